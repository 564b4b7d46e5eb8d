"""`Dataset.tf`: a real `tf.data.Dataset` over a loader, and its iterator.

Two ways lead from a loader to tensors. An iterator that is advanced from Python takes batches from the loader itself:
some microseconds. One that TensorFlow advances (in a `tf.function`, under `Dataset.map`, in Keras) is an iterator of
TensorFlow's over `generated`, whose Python function does the same. On both, a tensor is the memory that the batch
was made in: DLPack keeps it until the last tensor is gone. TensorFlow aborts the process where such memory is not
aligned to 64 bytes, so what is not is copied.

Invariant: an iterator that was advanced from Python, or restored, goes on at that place when TensorFlow takes it over.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native
from .._loader import Loader, is_batched
from ..exceptions import StateError
from .columns import Column, batch_size, columns_of, counted, map_tree, without_lists
from .passes import Epochs, Pass, steps_loader, stream_loader

try:
    import tensorflow as tf
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "tf() needs TensorFlow, which is not installed\nhint: install tensorflow (or tensorflow-cpu), or iterate as "
        ".numpy()",
        name=e.name,
    ) from None

from .generated import generated
from .iterators import TakenOver, as_tensors, from_tensors
from .sparse import Sparse

if TYPE_CHECKING:
    from .._steps.loader import StepsLoader
    from .._steps.stream import StreamDataset, StreamLoader
    from ..dataset import Dataset

__all__ = ["TensorFlowDataset", "make", "make_stream"]

ALIGNMENT = 64
"""Bytes; tensors that are not aligned so abort the process."""

_UNKNOWN = (0, False)
"""What `counted` gives where nothing is known of the number of elements."""

Restructure = Callable[[Any], Any]
_from_dlpack = tf.experimental.dlpack.from_dlpack


def make(
    dataset: Dataset,
    element_spec: Any,
    context: Any,
    restructure: Restructure,
    kind: type[TensorFlowDataset] | None = None,
    sparse: Sequence[str | int] = (),
) -> TensorFlowDataset:
    """The `tf.data.Dataset` of a data set; `restructure` is done to every element, and to what is known of them.

    `kind` is the class of it, if another one than `TensorFlowDataset`; `sparse` names columns, as of `Sparse`.
    """
    steps = dataset._has_python()

    def opened() -> Loader | StepsLoader:
        if not steps:
            return Loader(dataset, of_engine, "TensorFlow", None)
        from .._steps.collate import as_numpy

        return steps_loader(dataset, as_numpy, "TensorFlow", context)

    epochs = Epochs(opened)
    if element_spec is not None:
        elements = spec = element_spec
    elif isinstance(epochs.loader, Loader):
        elements = restructure(without_lists(columns_of(dataset, epochs.loader)))
        spec = map_tree(_spec_of, elements)
    else:
        elements = spec = _looked_at(dataset, restructure)
    if sparse != ():
        made = Sparse(sparse, elements, is_batched(dataset._plan()["root"]))
        spec, restructure = made.specs(spec), _both(restructure, made)
    finish: Restructure = _Checked(spec, restructure) if steps else _both(without_lists, restructure)
    return (kind or TensorFlowDataset)(epochs, spec, counted(dataset), finish)


def make_stream(
    dataset: StreamDataset,
    element_spec: Any,
    context: Any,
    restructure: Restructure,
    sparse: Sequence[str | int] = (),
) -> TensorFlowDataset:
    """The `tf.data.Dataset` of a stream; the arguments are those of `make`."""
    from .._steps.collate import as_numpy

    epochs = Epochs(lambda: stream_loader(dataset, as_numpy, context))
    batched, size = dataset._batching()
    spec = element_spec
    if spec is None:
        first = dataset._first()
        if first is None:
            raise _none("a generator makes them")
        spec = _spec_of_first(first[0], restructure, batched, size)
    if sparse != ():
        made = Sparse(sparse, spec, batched)
        spec, restructure = made.specs(spec), _both(restructure, made)
    return TensorFlowDataset(epochs, spec, _UNKNOWN, _Checked(spec, restructure))


def _both(first: Restructure, second: Restructure) -> Restructure:
    return lambda element: second(first(element))


def of_engine(value: Any) -> Any:
    """A column of the engine as a tensor over its memory."""
    kind = type(value)
    if kind is _native.Array:
        # Columns begin where the engine's memory does, which is aligned.
        return _from_dlpack(value.__dlpack__())
    if kind is _native.RaggedColumn:
        values, offsets = of_engine(value.values), of_engine(value.offsets)
        return tf.RaggedTensor.from_row_splits(values, offsets, validate=False)
    if kind is tuple:
        return tuple(map(of_engine, value))
    return tf.constant(value, tf.string)


def of_python(value: Any) -> Any:
    """What a Python step gave as a tensor, without a copy where TensorFlow can do without."""
    if isinstance(value, tf.Tensor | tf.RaggedTensor | tf.SparseTensor):
        return value
    if isinstance(value, str | bytes):
        return tf.constant(value, tf.string)
    array = np.asarray(value)
    shared = (
        array.flags.c_contiguous
        and array.flags.writeable
        and array.dtype.kind in "biuf"
        and array.ctypes.data % ALIGNMENT == 0
    )
    return _from_dlpack(array.__dlpack__()) if shared else tf.convert_to_tensor(array)


def _of_steps(tree: Any) -> Any:
    """Tensors of a batch of Python steps; lists of text and numbers are one tensor, other lists are tuples."""
    if isinstance(tree, dict):
        return {key: _of_steps(one) for key, one in tree.items()}
    if isinstance(tree, tuple | list):
        if tree and all(isinstance(one, str | bytes) for one in tree):
            return tf.constant(list(tree), tf.string)
        parts = [_of_steps(one) for one in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    if tree is None:
        raise TypeError("tf(): an element has None, which is no tensor\nhint: leave it out in map()")
    return of_python(tree)


def _spec_of(column: Column) -> Any:
    if column.kind == "array":
        return tf.TensorSpec(column.shape, tf.dtypes.as_dtype(column.dtype))
    if column.kind == "ragged":
        return tf.RaggedTensorSpec(column.shape, tf.dtypes.as_dtype(column.dtype), 1, tf.int64)
    if column.kind in ("text", "bytes"):
        return tf.TensorSpec(column.shape, tf.string)
    raise TypeError(
        f"tf(): {column.name} has JSON values, which are no tensors\nhint: name the fields that you need when you open "
        "the source, or turn them into numbers by map()"
    )


def _looked_at(dataset: Dataset, restructure: Restructure) -> Any:
    """The spec of elements of Python steps: that of the first one."""
    if counted(dataset)[0] == 0:
        raise _none("a Python step makes them")
    plan = dataset._plan()
    return _spec_of_first(dataset[0], restructure, is_batched(plan["root"]), batch_size(plan))


def _none(who: str) -> ValueError:
    return ValueError(
        f"tf(): what elements are is not known, since there are none and {who}\nhint: tf(element_spec=...) says it"
    )


def _spec_of_first(first: Any, restructure: Restructure, batched: bool, size: int | None) -> Any:
    """The spec of elements of which one is given; unless `size` says it, the number of samples is left open."""

    def spec(tensor: Any) -> Any:
        found = tf.type_spec_from_value(tensor)
        if not batched or not tensor.shape.rank or not isinstance(found, tf.TensorSpec):
            return found
        front = size if tensor.shape[0] == size else None
        return tf.TensorSpec([front, *tensor.shape[1:]], found.dtype)

    return tf.nest.map_structure(spec, restructure(_of_steps(first)))


class _Checked:
    """Makes tensors of batches of Python steps, and checks that they are what was announced."""

    def __init__(self, spec: Any, restructure: Restructure) -> None:
        self._spec, self._restructure = spec, restructure

    def __call__(self, batch: Any) -> Any:
        element = self._restructure(_of_steps(batch))
        if isinstance(self._spec, tf.TensorSpec):
            fits = self._spec.is_compatible_with(element)
        else:
            tf.nest.assert_same_structure(self._spec, element)
            pairs = zip(tf.nest.flatten(self._spec), tf.nest.flatten(element))
            fits = all(spec.is_compatible_with(one) for spec, one in pairs)
        if not fits:
            found = tf.nest.map_structure(tf.type_spec_from_value, element)
            raise TypeError(
                f"an element is {found}, but {self._spec} was expected\nhint: what elements are is seen in the first "
                "one; tf(element_spec=...) says it where they differ, with None for a side that does"
            )
        return element


class _Running:
    """The passes that TensorFlow advances."""

    def __init__(self) -> None:
        self.passes: weakref.WeakSet[Pass] = weakref.WeakSet()
        self.begun = 0


class TensorFlowDataset(tf.data.Dataset):
    """A `tf.data.Dataset` whose elements a loader of wellfed makes; see `wellfed.Dataset.tf`.

    Every iteration is the next epoch. Its iterators are `tf.data.Iterator`s that `tf.train.Checkpoint` saves and
    restores, and so can the data set itself be.
    """

    def __init__(
        self, epochs: Epochs, spec: Any, count: tuple[int | None, bool], finish: Callable[[Any], Any]
    ) -> None:
        self._epochs, self._spec, self._count, self._finish = epochs, spec, count, finish
        self._taken: weakref.WeakSet[_Iterator] = weakref.WeakSet()
        self._running = _Running()
        self._source = self._generated(epochs, self._running, finish, None)
        length, exact = count
        if length is None:
            length, exact = tf.data.INFINITE_CARDINALITY, True
        inner = self._source.apply(tf.data.experimental.assert_cardinality(length)) if exact else self._source
        self._inner = inner
        super().__init__(inner._variant_tensor)

    def _generated(
        self, epochs: Epochs, running: _Running, finish: Callable[[Any], Any], given: Pass | None
    ) -> Any:
        """What TensorFlow iterates: new passes, or the rest of the one given."""
        # TensorFlow keeps the function for as long as the process lives; whoever iterates keeps the data set.
        epochs_left = weakref.ref(epochs)
        given_left = None if given is None else weakref.ref(given)

        def generate() -> Any:
            kept = epochs_left()
            one = None if kept is None else Pass(kept) if given_left is None else given_left()
            if one is None:
                raise StateError(
                    "the data set of tf() is gone\nhint: keep a reference to it while it is iterated"
                )
            running.begun += 1
            running.passes.add(one)
            try:
                for batch in one:
                    yield finish(batch)
            finally:
                one.close()

        return generated(generate, self._spec)

    @property
    def loader(self) -> Loader | StepsLoader | StreamLoader:
        """The loader: `stats`, `errors`, `explain`, `set_epoch`, `state_dict`, `close`."""
        return self._epochs.loader

    @property
    def element_spec(self) -> Any:
        """The structure of `tf.TypeSpec`s of an element."""
        return self._spec

    def _inputs(self) -> list[Any]:
        return [self._inner]

    def __iter__(self) -> Any:
        return _Iterator(self) if tf.executing_eagerly() else super().__iter__()

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return as_tensors(self.loader.state_dict())

    def _restore_from_tensors(self, restored: dict[str, Any]) -> None:
        self.loader.load_state_dict(from_tensors(restored))

    def __repr__(self) -> str:
        return f"<wellfed {self.loader.dataset!r} as tf.data.Dataset of {self._spec}>"

    __str__ = __repr__


_OVER = "over"
"""In the place of an iterator: it has given all that its epoch has."""


class _Iterator(TakenOver):
    def __init__(self, data: TensorFlowDataset) -> None:
        super().__init__(data, data._spec)
        self._pass = Pass(data._epochs)
        # Whether the pass of TensorFlow's iterator is the one above; if not, how many had begun before it.
        self._same, self._before = False, 0

    def _taken(self) -> Any:
        return self._data._finish(next(self._pass))

    def _rest(self) -> Any:
        data = self._data
        self._same = self._pass.begun or self._pass.over
        source, self._before = data._source, data._running.begun
        if self._same:
            source = data._generated(data._epochs, data._running, data._finish, self._pass)
        data._taken.add(self)
        return _asked_for(source)

    def _place(self) -> dict[str, Any]:
        """Where this iterator is. One at its end says so, as its loader is at the start of the next epoch."""
        data = self._data
        if self._resource is not None and not self._same and data._running.begun == self._before:
            # It was not advanced yet: from here on it is, in the epoch that its place is told of.
            self._let_go()
        if self._resource is None or self._same:
            return {**self._pass.state_dict(), **({_OVER: True} if self._pass.over else {})}
        running = [one for one in data._running.passes if not one.over]
        if len(running) > 1 or len(data._taken) > 1:
            raise StateError(
                "several iterators of this data set are advanced by TensorFlow, so the place of each is not known"
                "\nhint: keep one of them, or advance them from Python, by next(iterator)"
            )
        return running[0].state_dict() if running else {**data.loader.state_dict(), _OVER: True}

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return as_tensors(self._place())

    def _restore_from_tensors(self, restored: dict[str, Any]) -> None:
        self._let_go()
        state = from_tensors(restored)
        over = state.pop(_OVER, False)
        self._pass.load_state_dict(state, over)

    def _let_go(self) -> None:
        """Gives TensorFlow's iterator up."""
        self._resource, self._same = None, False
        self._data._taken.discard(self)


def _asked_for(source: Any) -> Any:
    """`source` without what TensorFlow would make ahead, so that its place is that of what was handed out."""
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return source.with_options(options)
