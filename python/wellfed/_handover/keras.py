"""`Dataset.keras`: what `fit`, `evaluate` and `predict` take.

On TensorFlow that is the `tf.data.Dataset` of `Dataset.tf`. On other backends it is a `keras.utils.PyDataset`, the only
form in which Keras takes batches from Python, knows how many there are, and weighs classes. Keras asks it for batches
by number, in an order that ``fit(shuffle=True)`` permutes; the numbers are not looked at, since the order is the
loader's. What must be known is where a pass begins, also where the one before it was given up. Keras makes a generator
for each pass, so a call from another frame than the last one begins a new pass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._loader import Loader, to_numpy, torch_converter
from ..exceptions import CorruptSampleError, StateError
from .columns import Column, columns_of, counted, map_tree, picker, without_lists
from .passes import Epochs, Pass, steps_loader

try:
    import keras
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "keras() needs Keras, which is not installed\nhint: install keras; tf_keras takes what .tf() gives",
        name=e.name,
    ) from None

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import Options
    from .._steps.loader import StepsLoader
    from .._steps.stream import StreamDataset, StreamLoader
    from ..dataset import Dataset

__all__ = ["KerasData", "make", "make_stream", "optioned"]

# Keras 2 has none: it takes what `Dataset.tf` gives.
_Base: Any = getattr(keras.utils, "PyDataset", object)


def optioned(dataset: Dataset, **options: Unpack[Options]) -> Dataset:
    """`dataset` with options; image batches have Keras' layout, unless another one is given."""
    last = keras.backend.image_data_format() == "channels_last"
    return dataset.with_options(layout="NHWC" if last else "NCHW").with_options(**options)


def make(dataset: Dataset, x: Any, y: Any, sample_weight: Any, context: Any) -> Any:
    """What Keras' methods take, on the backend that Keras has."""
    pick = picker(x, y, sample_weight)
    if counted(dataset)[0] == 0:
        raise ValueError("keras(): the data set has no batch, and Keras takes none without\nhint: see len()")
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from .tensorflow import make as make_tensorflow

        return make_tensorflow(dataset, None, context, pick)
    return KerasData(dataset, pick, context, backend)


def make_stream(dataset: StreamDataset, parts: tuple[Any, Any, Any], element_spec: Any, context: Any) -> Any:
    """What Keras' methods take of a stream; `parts` are ``(x, y, sample_weight)`` as of `Dataset.keras`."""
    pick = picker(*parts)
    if keras.backend.backend() == "tensorflow":
        from .tensorflow import make_stream as make_tensorflow

        return make_tensorflow(dataset, element_spec, context, pick)
    if element_spec is not None:
        raise ValueError(
            f"element_spec is for Keras on TensorFlow; on {keras.backend.backend()} nothing is asked for it"
        )
    from .keras_stream import KerasStream

    return KerasStream(dataset, pick, context)


class KerasData(_Base):
    """Batches for Keras on torch or JAX; see `wellfed.Dataset.keras`. Every pass is the next epoch."""

    def __init__(self, dataset: Dataset, pick: Callable[[Any], Any], context: Any, backend: str) -> None:
        # One worker is the calling thread: batches are made by the loader's own.
        super().__init__(workers=1, use_multiprocessing=False)
        self._pick = pick
        self._length, _ = counted(dataset)
        self._epochs = Epochs(_opener(dataset, context, backend))
        self._check(dataset)
        self._pass: Pass | None = None
        self._given = 0
        # The frame that the pass is for: kept, so that no other one gets its identity.
        self._frame: Any = None

    def _check(self, dataset: Dataset) -> None:
        """Raises now what `pick` would raise of every batch."""
        if not dataset._has_python():
            assert isinstance(self._epochs.loader, Loader)
            map_tree(_refuse, self._pick(without_lists(columns_of(dataset, self._epochs.loader))))

    @property
    def loader(self) -> Loader | StepsLoader | StreamLoader:
        """The loader: `stats`, `errors`, `explain`, `set_epoch`, `state_dict`, `close`."""
        return self._epochs.loader

    @property
    def num_batches(self) -> int | None:
        """Batches of an epoch; None without end."""
        return self._length

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError("a data set that repeats without end has no length")
        return self._length

    def __getitem__(self, index: int) -> Any:
        frame = sys._getframe(1)
        if self._pass is None or frame is not self._frame:
            if self._pass is not None:
                self._pass.close()
            self._pass, self._given, self._frame = Pass(self._epochs), 0, frame
        try:
            batch = next(self._pass)
        except StopIteration:
            raise self._early() from None
        self._given += 1
        if self._given == self._length:
            # Keras does not ask for more, but the end of an epoch is known only when it has been asked for.
            next(self._pass, None)
            self._pass = self._frame = None
        return self._pick(without_lists(batch))

    def _early(self) -> Exception:
        """What is wrong when there are fewer batches than Keras was told."""
        self._pass = self._frame = None
        if self._given == 0:
            return StateError("the data set has no batch")
        return CorruptSampleError(
            f"the epoch ended after {self._given} of {self._length} batches: it was resumed in its middle, or all "
            "samples of the others are bad\nhint: resume at the start of an epoch; use on_error='replace', not 'skip'"
        )

    def __repr__(self) -> str:
        return f"<wellfed batches for Keras>\n{self.loader.dataset!r}"


def _refuse(column: Column) -> None:
    """Raises for what is no array."""
    if column.kind != "array":
        hint = (
            "use padded_batch()"
            if column.kind == "ragged"
            else "say which fields to take: keras(x=..., y=...)"
        )
        raise TypeError(
            f"{column.name} is {column.kind}; Keras takes arrays on the backend {keras.backend.backend()}\nhint: {hint}"
        )


def _opener(dataset: Dataset, context: Any, backend: str) -> Callable[[], Loader | StepsLoader]:
    """What opens a loader of arrays that the backend takes without a copy."""
    tensors = backend == "torch"
    if dataset._has_python():
        from .._steps.collate import as_numpy

        convert = None if tensors else as_numpy
        return lambda: steps_loader(dataset, convert, "Keras", context)
    column = torch_converter() if tensors else to_numpy
    return lambda: Loader(dataset, column, "Keras", None)
