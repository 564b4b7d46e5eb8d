"""A `tf.data.Dataset` whose elements Python makes: what `from_generator` is, without a change of threads for each.

`from_generator` has TensorFlow run the function that calls Python by its threads: for each element one of them is
woken, and the one that asked waits for it. A `MapDataset` can be told to run its function in the thread that asks
(`use_inter_op_parallelism=False`), which only the operation itself offers. That thread is one of TensorFlow's, whose
state in the interpreter is kept from one batch to the next (`foreign`). Each iterator has a generator of its own,
and `from_generator` gives that one's number, since it says when the iterator is gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from typing import Any

import tensorflow as tf

from .foreign import keep_state, let_state_go

__all__ = ["generated"]


def generated(generate: Callable[[], Generator[Any, None, None]], spec: Any) -> Any:
    """A `tf.data.Dataset` of `spec`, each iterator of which calls `generate` and gives what that yields.

    Elements must be tensors of that structure; `TypeError` where the shape of one does not fit. A generator is closed
    when its iterator is gone.
    """
    running: dict[int, Generator[Any, None, None]] = {}
    numbers = itertools.count()
    # Those of a ragged tensor are two.
    parts = tf.nest.flatten(spec, expand_composites=True)
    plain = all(isinstance(one, tf.TensorSpec) for one in tf.nest.flatten(spec))
    # Elements that are flat as they are.
    flat = type(spec) is tuple and all(isinstance(one, tf.TensorSpec) for one in spec)
    dtypes, shapes = [part.dtype for part in parts], [part.shape for part in parts]

    def numbered() -> Any:
        number = next(numbers)
        iterator = running[number] = generate()
        try:
            yield number
        finally:
            del running[number]
            iterator.close()

    def pull(number: Any) -> Any:
        keep_state()
        try:
            # A StopIteration is what TensorFlow takes for the end.
            element = next(running[int(number)])
        except BaseException:
            let_state_go()
            raise
        tensors = element if flat else tf.nest.flatten(element, expand_composites=True)
        for tensor, shape in zip(tensors, shapes, strict=True):
            if not shape.is_compatible_with(tensor.shape):
                raise TypeError(f"an element has a tensor of shape {tensor.shape}, but {shape} was expected")
        return tensors

    # `Dataset.counter` runs a function for each number.
    endless = tf.data.Dataset.range(tf.int64.max)

    def elements(number: Any) -> Any:
        def element(place: Any) -> Any:
            tensors = tf.py_function(pull, [number], dtypes)
            for tensor, shape in zip(tensors, shapes):
                tensor.set_shape(shape)
            return tensors

        function = tf.function(element, autograph=False).get_concrete_function(tf.TensorSpec((), tf.int64))
        variant = tf.raw_ops.MapDataset(
            input_dataset=tf.data.experimental.to_variant(endless),
            other_arguments=function.captured_inputs,
            f=function,
            output_types=dtypes,
            output_shapes=shapes,
            use_inter_op_parallelism=False,
            # The end of the generator is the end of the data set, whatever is before it.
            preserve_cardinality=False,
        )
        return tf.data.experimental.from_variant(variant, spec if plain else tuple(parts))

    def composed(*tensors: Any) -> Any:
        return tf.nest.pack_sequence_as(spec, tensors, expand_composites=True)

    iterators = tf.data.Dataset.from_generator(numbered, output_signature=tf.TensorSpec((), tf.int64))
    made = iterators.flat_map(elements)
    return made if plain else made.map(tf.autograph.experimental.do_not_convert(composed))
