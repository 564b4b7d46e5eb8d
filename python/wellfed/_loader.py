"""`Loader`: the finished batches of a data set, epoch by epoch, as arrays of the framework that asked."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments as check
from . import _native
from .exceptions import StateError, WellfedError

if TYPE_CHECKING:
    from types import TracebackType

    from .dataset import Dataset

__all__ = ["BadSample", "Loader"]

Convert = Callable[[Any], Any]


def to_numpy(value: Any) -> Any:
    """An array of the engine as a NumPy array that shares its memory; lists as they are."""
    if type(value) is not _native.Array:
        return value
    if value.dtype == "bfloat16":
        raise TypeError(
            "NumPy has no bfloat16\nhint: iterate as .torch(), or choose ToDtype('float16') or ToDtype('float32')"
        )
    return np.asarray(value)


def torch_converter(device: Any) -> Convert:
    """How arrays of the engine become torch tensors on `device`."""
    try:
        import torch
        from torch.utils.dlpack import from_dlpack
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            "torch() needs PyTorch, which is not installed\nhint: install torch, or iterate as .numpy()",
            name=e.name,
        ) from None
    array = _native.Array
    target = None if device is None else torch.device(device)
    if target is None or target.type == "cpu":

        def convert(value: Any) -> Any:
            # from_dlpack of a capsule skips the questions that torch asks of foreign objects.
            return from_dlpack(value.__dlpack__()) if type(value) is array else value

    else:

        def convert(value: Any) -> Any:
            if type(value) is not array:
                return value
            return from_dlpack(value.__dlpack__()).to(target, non_blocking=True)

    return convert


def structured(structure: Any, convert: Convert) -> Convert:
    """From columns to what the user gets: a bare value, a tuple, a dict, or a tuple of such parts."""
    if structure == "single":
        return lambda columns: convert(columns[0])
    if structure == "tuple":
        return lambda columns: tuple(map(convert, columns))
    if isinstance(structure, dict):
        names = structure["dict"]
        return lambda columns: dict(zip(names, map(convert, columns)))
    parts: list[tuple[slice, Convert]] = []
    start = 0
    for part, count in structure:
        parts.append((slice(start, start + count), structured(part, convert)))
        start += count
    return lambda columns: tuple(build(columns[place]) for place, build in parts)


@dataclass(frozen=True)
class BadSample:
    """A sample that could not be made.

    Attributes:
        epoch: Epoch it was met in.
        batch: Batch of that epoch.
        replaced: Whether another sample took its place.
        error: Why, with its place; not raised unless ``on_error="raise"``.
        position: Its place in the pass, where the order was given batch by batch.
    """

    epoch: int
    batch: int
    replaced: bool
    error: WellfedError
    position: int | None = None

    @property
    def source(self) -> str | None:
        """The data set it belongs to."""
        return self.error.source

    @property
    def key(self) -> str | None:
        """Its name: a relative path, a key in a tar shard, or a number."""
        return self.error.key

    @property
    def index(self) -> int | None:
        """Its index in the source; ``dataset.sample(index, epoch)`` tries it again."""
        return self.error.index

    @property
    def offset(self) -> int | None:
        """Byte offset in the file or shard."""
        return self.error.offset

    @property
    def stage(self) -> str | None:
        """What was being done: ``read``, ``decode``, or a transform's name."""
        return self.error.stage

    @property
    def cause(self) -> str:
        """What was wrong."""
        return self.error.message

    def __repr__(self) -> str:
        parts = [f"{n}={getattr(self, n)!r}" for n in ("key", "index", "offset", "stage", "cause", "epoch")]
        return f"BadSample({', '.join(parts)}{', replaced=True' if self.replaced else ''})"


class Stats(dict[str, Any]):
    """Counters of a loader by name; printed, a table."""

    def __init__(self, data: str, table: str) -> None:
        super().__init__(json.loads(data))
        self._table = table

    def __str__(self) -> str:
        return self._table


class Loader:
    """Batches of a data set. Every iteration is the next epoch.

    Worker threads start with the first iteration and keep working into the next epoch. They end when the loader
    and its iterators are gone, or at `close`. A batch belongs to whoever holds it: its memory is used again only
    after the last array of it is gone.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> loader = wf.from_tensor_slices(np.arange(6)).shuffle(seed=0).batch(3).numpy()
        >>> len(loader)
        2
        >>> first, second = [sorted(map(int, np.concatenate(list(loader)))) for epoch in range(2)]
        >>> first == second
        True
    """

    def __init__(self, dataset: Dataset, convert: Convert, framework: str, device: Any) -> None:
        self._dataset = dataset
        self._framework = framework
        self._device = device
        self._native: _native.Loader | None = dataset._native.loader()
        self._build = structured(json.loads(dataset._native.structure), convert)
        self._turn = 0
        self._warned: set[str] = set()

    @property
    def dataset(self) -> Dataset:
        """What is loaded."""
        return self._dataset

    def _open(self) -> _native.Loader:
        if self._native is None:
            raise StateError("the loader is closed")
        return self._native

    def __iter__(self) -> Iterator[Any]:
        native = self._open()
        native.start_epoch()
        self._turn += 1
        return _Epoch(self, native, self._turn)

    def _warn(self) -> None:
        """Warns, once, of caches that cannot be written: training goes on without, but not as fast as was hoped for."""
        stats = self.stats()
        for name in ("cache", "row_index"):
            problem = (stats.get(name) or {}).get("problem")
            if problem is not None and problem not in self._warned:
                self._warned.add(problem)
                what = "samples are not cached" if name == "cache" else "row indexes are not kept"
                warnings.warn(f"{what}: {problem}", RuntimeWarning, stacklevel=3)

    def __len__(self) -> int:
        length = self._open().length()
        if length is None:
            raise TypeError("a loader that repeats without end has no length")
        return length

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``, from 0. Without it epochs follow one another."""
        self._open().set_epoch(check.whole(epoch, "epoch"))

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, in a few numbers that JSON can express.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(10)).shuffle(seed=3).batch(2)
            >>> loader = ds.numpy()
            >>> batches = iter(loader)
            >>> head = [next(batches) for _ in range(2)]
            >>> state = loader.state_dict()
            >>> rest = [batch.tolist() for batch in batches]
            >>> other = ds.numpy()
            >>> other.load_state_dict(state)
            >>> [batch.tolist() for batch in other] == rest
            True
        """
        state: dict[str, Any] = json.loads(self._open().state_dict())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called, to the bit.

        Raises:
            ValueError: The state is of another pipeline, or of a version that is not known.
        """
        self._turn += 1
        self._open().load_state_dict(json.dumps(state))

    def stats(self) -> Stats:
        """What happened since the loader was made: time and bytes per stage, waits, queues, memory.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> loader = wf.from_tensor_slices(np.arange(6)).batch(3).numpy()
            >>> batches = list(loader)
            >>> loader.stats()["samples"]
            6
        """
        return Stats(*self._open().stats())

    def errors(self) -> list[BadSample]:
        """Samples that could not be made, in the order they were met."""
        return [BadSample(*fields) for fields in self._open().errors()]

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what every thread did as a Chrome trace (for ui.perfetto.dev). Needs the option ``trace=True``."""
        self._open().write_trace(os.fspath(path))

    def close(self) -> None:
        """Ends the worker threads and frees all memory but that of batches still held. Can be called twice."""
        native, self._native = self._native, None
        self._turn += 1
        if native is not None:
            native.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._native is None else ""
        device = "" if self._device is None else f", device={str(self._device)!r}"
        return f"<wellfed.Loader of {self._framework} batches{device}{state}>\n{self._dataset!r}"

    def __reduce__(self) -> Any:
        raise TypeError("a loader cannot be pickled, since it has threads\nhint: pickle its dataset instead")


class _Epoch(Iterator[Any]):
    """One pass over a loader. Keeps the loader alive; ends when another pass begins."""

    __slots__ = ("_build", "_loader", "_next", "_turn")

    def __init__(self, loader: Loader, native: _native.Loader, turn: int) -> None:
        self._loader = loader
        self._build = loader._build
        self._next: Callable[[], list[Any] | None] = native.next
        self._turn = turn

    def __next__(self) -> Any:
        if self._loader._turn != self._turn:
            if self._next is _exhausted:
                raise StopIteration
            raise StateError(
                "this iterator is no longer valid: its loader was iterated anew, restored or closed"
            )
        columns = self._next()
        if columns is None:
            self._next = _exhausted
            self._loader._warn()
            raise StopIteration
        return self._build(columns)


def _exhausted() -> None:
    """What follows the last batch."""
