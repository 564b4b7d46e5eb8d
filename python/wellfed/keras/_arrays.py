"""`ArrayData`: what `wf.keras` gives on torch and JAX, with the methods of `tf.data` that pipelines use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from .._handover.columns import map_tree, without_lists
from .._handover.keras import KerasData
from .._handover.passes import Pass
from .._loader import is_batched
from ..exceptions import ConfigError

if TYPE_CHECKING:
    from .._transform import Transform
    from ..dataset import Dataset

__all__ = ["ArrayData"]

Finish = Callable[[Any], Any]


class ArrayData(KerasData):
    """Batches for `fit`, `evaluate` and `predict`, and for loops: torch tensors on torch, NumPy arrays on JAX.

    Each iteration is the next epoch. `map` is called with whole batches (or samples, without a batch size) in the
    thread that asks for them. TensorFlow is not needed.

    Attributes:
        class_names: Names of classes by label; None without labels.
        file_paths: Paths of the files, in the order before any shuffle.
        dataset: The pipeline, a `wellfed.Dataset`.
    """

    class_names: list[str] | None
    file_paths: list[str]

    def __init__(
        self,
        dataset: Dataset,
        finish: Finish,
        functions: tuple[Finish, ...],
        uncached: Callable[[], Dataset] | None,
    ) -> None:
        self.dataset = dataset
        self._finish, self._functions, self._uncached = finish, functions, uncached
        super().__init__(dataset, self._as_keras, None, keras.backend.backend())

    @classmethod
    def of(
        cls, source: Dataset, steps: Sequence[Transform], batch_size: int | None, finish: Finish
    ) -> ArrayData:
        """Batches of `source` after `steps`, to which `finish` is done; single samples without a size."""

        def built(before: Dataset) -> Dataset:
            dataset = before.map(*steps) if steps else before
            return dataset if batch_size is None else dataset.batch(batch_size)

        return cls(built(source), finish, (), lambda: built(source.cache()))

    def _element(self, batch: Any) -> Any:
        element = self._finish(without_lists(batch))
        for function in self._functions:
            element = function(*element) if isinstance(element, tuple) else function(element)
            element = tuple(element) if isinstance(element, list) else element
        return element

    def _as_keras(self, batch: Any) -> Any:
        """What `fit` is given: always a tuple or a dict."""
        element = self._element(batch)
        return element if isinstance(element, tuple | dict) else (element,)

    def _check(self, dataset: Dataset) -> None:
        # What functions make is seen when they are called.
        if not getattr(self._finish, "texts", False):
            functions, self._functions = self._functions, ()
            super()._check(dataset)
            self._functions = functions

    def __iter__(self) -> Iterator[Any]:
        one = Pass(self._epochs)
        try:
            for batch in one:
                yield self._element(batch)
        finally:
            one.close()

    def explain(self) -> str:
        """What the engine does, and in which way; then the functions that are called here."""
        text = self.loader.explain()
        names = [getattr(function, "__qualname__", repr(function)) for function in self._functions]
        return text + "".join(f"then, in the calling thread: {name}\n" for name in names)

    def _with(self, dataset: Dataset, functions: tuple[Finish, ...] | None = None) -> ArrayData:
        made = ArrayData(dataset, self._finish, self._functions if functions is None else functions, None)
        for name in ("class_names", "file_paths"):
            if hasattr(self, name):
                setattr(made, name, getattr(self, name))
        return made

    def _before_functions(self, verb: str) -> None:
        if self._functions:
            raise ConfigError(f"{verb}() after map()\nhint: put {verb}() before map()")

    def map(
        self, map_func: Finish, num_parallel_calls: Any = None, deterministic: Any = None, name: Any = None
    ) -> ArrayData:
        """Calls a function with each element: with its parts, if it is a tuple. The other arguments have no effect."""
        if not callable(map_func):
            raise TypeError(f"map_func is {map_func!r}, which cannot be called")
        return self._with(self.dataset, (*self._functions, map_func))

    def take(self, count: int, name: Any = None) -> ArrayData:
        """At most the first `count` elements of each epoch; all with -1."""
        return self._with(self.dataset.take(count))

    def skip(self, count: int, name: Any = None) -> ArrayData:
        """All but the first `count` elements of each epoch; none with -1."""
        return self._with(self.dataset.skip(count))

    def repeat(self, count: int | None = None, name: Any = None) -> ArrayData:
        """The elements several times over, as one epoch; without end with None or -1."""
        return self._with(self.dataset.repeat(count))

    def prefetch(self, buffer_size: Any, name: Any = None) -> ArrayData:
        """This data set: batches are made ahead in any case, as many as its memory budget and speed ask for."""
        return self

    def cache(self, filename: str = "", name: Any = None) -> ArrayData:
        """Keeps JPEGs as coefficients, as `wellfed.Dataset.cache`: comes first. The order stays random."""
        if filename:
            raise ConfigError("cache() with a file\nhint: cache() without one keeps images in memory")
        if self._uncached is None:
            raise ConfigError("cache() after another method\nhint: put cache() first")
        return self._with(self._uncached())

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: Any = True,
        name: Any = None,
    ) -> ArrayData:
        """All elements change places, whatever the size of the buffer: anew in each epoch, unless that is False."""
        drawn = int(np.random.randint(1_000_000)) if seed is None else seed
        return self._with(self.dataset.shuffle(seed=drawn, reshuffle_each_iteration=reshuffle_each_iteration))

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
        name: Any = None,
    ) -> ArrayData:
        """Stacks samples."""
        self._before_functions("batch")
        if self._is_batched:
            raise ConfigError("batch() of batches\nhint: unbatch() comes before it")
        return self._with(self.dataset.batch(batch_size, drop_last=bool(drop_remainder)))

    def unbatch(self, name: Any = None) -> ArrayData:
        """Single samples."""
        self._before_functions("unbatch")
        return self._with(self.dataset.unbatch())

    @property
    def _is_batched(self) -> bool:
        return is_batched(self.dataset._plan()["root"])

    def cardinality(self) -> int:
        """How many elements there are; -1 without end, as ``tf.data.INFINITE_CARDINALITY``."""
        length = self.num_batches
        return -1 if length is None else length

    def as_numpy_iterator(self) -> Iterator[Any]:
        """An iterator of NumPy arrays."""
        for element in self:
            yield map_tree(_as_numpy, element)


def _as_numpy(value: Any) -> Any:
    return value if isinstance(value, np.ndarray | bytes) else keras.ops.convert_to_numpy(value)
