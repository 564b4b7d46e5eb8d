"""`Fed`: a data set whose batches are all the engine's, and its iterators, which ``tf.train.Checkpoint`` saves.

An iterator that is advanced from Python takes batches from the engine itself. One that TensorFlow advances (in a
``tf.function``, below other data sets, in Keras) is TensorFlow's own, which makes batches ahead of what it gave.

Invariant: an iterator that was advanced from Python, or restored, goes on at that place when TensorFlow takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import tensorflow as tf
from tensorflow.python.ops import gen_dataset_ops

from .._handover.iterators import TakenOver, as_tensors, from_tensors
from .._handover.passes import Epochs, Pass
from .._handover.tensorflow import of_python
from ..exceptions import StateError, WellfedError
from ._order import Ordered, OrderedPass

__all__ = ["EpochPasses", "Fed", "OrderedPasses", "Passes"]

Split = Callable[[Any], tuple[Any, ...]]


class Passes(Protocol):
    """The passes over a data set, for Python and for TensorFlow."""

    split: Split

    def new(self) -> Any:
        """The next one, which has not begun."""

    def dataset(self, one: Any) -> Any:
        """What TensorFlow goes on with."""


class _Given:
    """A ``tf.data.Dataset`` of what is left of a pass."""

    def __init__(self, one: Any, split: Split, signature: Any) -> None:
        self._one, self._split, self._signature = one, split, signature

    def dataset(self) -> Any:
        return tf.data.Dataset.from_generator(self._rest, output_signature=self._signature).prefetch(2)

    def _rest(self) -> Iterator[tuple[Any, ...]]:
        return map(self._split, self._one)


class _EpochPass(Pass):
    """A pass whose place at its end is that end, and not the beginning of the next epoch."""

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {"over": self.over, "loader": state}

    def load_state_dict(self, state: dict[str, Any], over: bool = False) -> None:
        if "loader" not in state:
            raise StateError(
                "the state is of a pipeline that shuffles\nhint: restore it into the pipeline that it was saved from"
            )
        super().load_state_dict(state["loader"], over or state["over"])


class EpochPasses:
    """Those in the engine's own order: each is the next epoch."""

    def __init__(self, epochs: Epochs, split: Split, signature: Any, fed: Any) -> None:
        """`fed` is a ``tf.data.Dataset`` of them."""
        self._epochs, self.split, self._signature, self._fed = epochs, split, signature, fed

    def new(self) -> _EpochPass:
        """As of `Passes`."""
        return _EpochPass(self._epochs)

    def dataset(self, one: _EpochPass) -> Any:
        """As of `Passes`."""
        if not one.begun and not one.over:
            return self._fed
        return _Given(one, self.split, self._signature).dataset()


class OrderedPasses:
    """Those in an order of TensorFlow's: each has a mark, which says how many were made before it."""

    def __init__(self, ordered: Ordered, split: Split, signature: Any, marks: Any, flat: Any) -> None:
        """`flat` makes batches of `marks`."""
        self._ordered, self.split, self._signature = ordered, split, signature
        self._marks, self._flat = marks, flat

    def new(self) -> OrderedPass:
        """As of `Passes`."""
        (mark,) = self._marks
        return OrderedPass(self._ordered, mark.numpy())

    def dataset(self, one: OrderedPass) -> Any:
        """As of `Passes`."""
        if one.begun:
            return _Given(one, self.split, self._signature).dataset()
        function = self._flat._map_func.function
        variant = gen_dataset_ops.flat_map_dataset(
            tf.data.Dataset.from_tensors(one.mark)._variant_tensor,
            function.captured_inputs,
            f=function,
            **self._flat._common_args,
        )
        return _Variant(variant, self._flat).prefetch(2)


class _Variant(tf.data.Dataset):
    """A data set of TensorFlow's with elements as those of `like`."""

    def __init__(self, variant: Any, like: Any) -> None:
        self._like = like
        super().__init__(variant)

    def _inputs(self) -> list[Any]:
        return []

    @property
    def element_spec(self) -> Any:
        return self._like.element_spec


class Fed(tf.data.Dataset):
    """A `tf.data.Dataset` of the engine's batches."""

    def __init__(self, fed: Any, spec: Any, passes: Passes) -> None:
        """`fed` has the components of elements of `spec`."""
        self._fed, self._spec, self._passes = fed, spec, passes
        super().__init__(fed._variant_tensor)

    @property
    def element_spec(self) -> Any:
        """The structure of `tf.TypeSpec`s of an element."""
        return self._spec

    def _inputs(self) -> list[Any]:
        return [self._fed]

    def __iter__(self) -> Any:
        return _Iterator(self) if tf.executing_eagerly() else super().__iter__()

    def _element(self, batch: tuple[Any, ...]) -> Any:
        tensors = [of_python(value) for value in self._passes.split(batch)]
        return tf.nest.pack_sequence_as(self._spec, tensors)


class _Iterator(TakenOver):
    def __init__(self, data: Fed) -> None:
        super().__init__(data, data._spec)
        self._pass = data._passes.new()

    def _rest(self) -> Any:
        return _Packed(self._data._passes.dataset(self._pass), self._data._spec)

    def _taken(self) -> Any:
        try:
            return self._data._element(next(self._pass))
        except StateError:
            raise
        except WellfedError as error:
            # The errors that TensorFlow makes of those of Python functions.
            known = isinstance(error, ValueError | TypeError)
            kind = tf.errors.InvalidArgumentError if known else tf.errors.UnknownError
            raise kind(None, None, str(error)) from error

    def _serialize_to_tensors(self) -> dict[str, Any]:
        if self._resource is not None:
            raise StateError(
                "this iterator is advanced by TensorFlow, which makes batches ahead, so its place is not known\n"
                "hint: advance it from Python, by next(iterator), and give the batches to functions"
            )
        return as_tensors(self._pass.state_dict())

    def _restore_from_tensors(self, restored: dict[str, Any]) -> None:
        self._resource = None
        self._pass.load_state_dict(from_tensors(restored))


class _Packed(tf.data.Dataset):
    """Components of `source` as elements of `spec`."""

    def __init__(self, source: Any, spec: Any) -> None:
        self._source, self._spec = source, spec
        super().__init__(source._variant_tensor)

    def _inputs(self) -> list[Any]:
        return [self._source]

    @property
    def element_spec(self) -> Any:
        return self._spec
