"""Iterable data sets over shards that a library wrote: samples by number, in the order of the library itself.

These are the ``StreamingDataset`` of MosaicML's Streaming (`mosaic.py`) and that of LitData (`litdata.py`), and classes
derived from them whose ``__getitem__`` takes what the library gives and does something to it. Invariant: batch `i` has
the samples that the stock loader's batch `i` has, whatever the number of workers, none of which is started. The order
is not computed here: the library's own functions are asked, for each worker as it would be.
"""

from __future__ import annotations

import os
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

import wellfed as wf

from .._fetch import MapFetcher, note
from .._private import WorkerInfo
from . import drawn, several, users
from .datasets import Flat, Leaf, Stored
from .encoded import encoded, gathered
from .forms import Line, Refusal, RefusalError
from .native import NativeSource
from .reading import Reader, UnknownError
from .users import NO_IMAGE, Columns, Reading
from .values import INDEX, Namespace, Picture, Row, Table, Value
from .webdataset import in_process

__all__ = [
    "Blocks",
    "Cells",
    "Epoch",
    "Examples",
    "Packed",
    "ShardStream",
    "Shards",
    "check_methods",
    "flat_of",
    "go_to",
    "lookups_of",
    "read_alike",
    "stamps",
    "table_of",
]

_SLOWEST = 1e-3
"""Seconds that a batch without images may take where there are worker processes, which would make others meanwhile."""


# Where samples lie.


class Packed:
    """Files of samples that consist of several values, as both libraries write them.

    .. code-block:: text

        file     u32 number of samples | u32 place of each, and where the last one ends | samples
        sample   u32 size of each value without a fixed one | the values

    Args:
        paths: The files.
        counts: How many samples each has.
        sizes: The size of each value; None where it differs from sample to sample.
    """

    _MOST = 64
    """Files that are open at a time."""

    def __init__(self, paths: Sequence[str], counts: Sequence[int], sizes: Sequence[int | None]) -> None:
        self.paths, self.sizes = list(paths), list(sizes)
        self.starts = [0, *accumulate(counts)]
        self._head = 4 * sum(size is None for size in sizes)
        self._open: OrderedDict[int, int] = OrderedDict()
        self._places: dict[int, npt.NDArray[np.uint32]] = {}
        self._process = os.getpid()
        weakref.finalize(self, _close, self._open)

    def __len__(self) -> int:
        return self.starts[-1]

    def shard(self, number: int) -> int:
        """Which file has a sample."""
        return bisect_right(self.starts, number) - 1

    def value(self, number: int, place: int) -> bytes:
        """The bytes of a value of a sample.

        Raises:
            ValueError: The file does not have them.
        """
        shard = self.shard(number)
        file = self.opened(shard)
        if shard not in self._places:
            self._places[shard] = self._places_in(shard, file)
        row = number - self.starts[shard]
        begin, end = map(int, self._places[shard][row : row + 2])
        head = np.frombuffer(os.pread(file, self._head, begin), "<u4").tolist()
        sizes = [head.pop(0) if size is None else size for size in self.sizes]
        at = begin + self._head + sum(sizes[:place])
        found = os.pread(file, sizes[place], at)
        if at + sizes[place] > end or len(found) != sizes[place]:
            raise ValueError(f"sample {row} of {self.paths[shard]} is cut short")
        return found

    def opened(self, shard: int) -> int:
        """A file, open for reading."""
        file = self._open.get(shard)
        if file is not None:
            self._open.move_to_end(shard)
            return file
        file = os.open(self.paths[shard], os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._open[shard] = file
        if len(self._open) > self._MOST:
            os.close(self._open.popitem(last=False)[1])
        return file

    def _places_in(self, shard: int, file: int) -> npt.NDArray[np.uint32]:
        count = self.starts[shard + 1] - self.starts[shard]
        head = np.frombuffer(os.pread(file, 4 * (count + 2), 0), "<u4")
        if len(head) < count + 2 or head[0] != count:
            raise ValueError(f"{self.paths[shard]} does not have {count} samples")
        return head[1:]


class Blocks:
    """Files of tokens that follow each other, of which a sample is so many.

    Args:
        paths: The files.
        counts: How many samples each has.
        heads: Bytes before the first token of each.
        size: Bytes of a sample.
    """

    def __init__(self, paths: Sequence[str], counts: Sequence[int], heads: Sequence[int], size: int) -> None:
        self._files = Packed(paths, counts, [])
        self._heads, self._size = list(heads), size

    def __len__(self) -> int:
        return len(self._files)

    def value(self, number: int, place: int) -> bytes:
        """The bytes of a sample.

        Raises:
            ValueError: The file does not have them.
        """
        shard = self._files.shard(number)
        at = self._heads[shard] + (number - self._files.starts[shard]) * self._size
        found = os.pread(self._files.opened(shard), self._size, at)
        if len(found) != self._size:
            raise ValueError(f"{self._files.paths[shard]} is cut short")
        return found


def _close(files: OrderedDict[int, int]) -> None:
    for file in files.values():
        os.close(file)


class Cells:
    """What stands for the values of a sample while functions are read.

    Args:
        names: Of the reader.
        packed: Where the values lie.
    """

    def __init__(self, names: Namespace, packed: Packed | Blocks) -> None:
        self._names, self._packed = names, packed
        self.images: dict[str, str] = {}
        """By the text of their bytes, the names that the engine has for values that are images to it."""

    def row(self, place: int, decode: Callable[[bytes], Any] | None) -> Row:
        """The value that the library makes by `decode` of the bytes at a place; None: the bytes themselves."""
        packed = self._packed

        def value(index: int) -> Any:
            found = packed.value(index, place)
            return found if decode is None else decode(found)

        return Row(f"{self._names.name(value)}(index)")

    def image(self, place: int, field: str, picture: Picture) -> Picture:
        """An image that is `field` in the engine's data set; `picture` says what the library makes of it."""
        path = self.row(place, None)
        self.images[path.text] = field
        return Picture(path, picture.reader, picture.mode, picture.kind, picture.turned, encoded=True)


# What is read of the classes.


class Shards:
    """A data set of one of the libraries, recognized.

    Attributes:
        dataset: The data set.
        packed: Where its samples lie.
        files: Name, size and time of change of each file.
        getters: The library's functions that give a sample.
    """

    library = ""
    dataset: Any
    packed: Packed | Blocks
    files: list[tuple[str, int, int]]
    getters: tuple[Any, ...]

    def inner(self, getter: Any) -> str | None:
        """The method of the user's that one of the library's functions calls for a sample; None if there is none."""
        return None

    def same(self, other: Shards) -> bool:
        """Whether it has the same samples."""
        return self.dataset is other.dataset and self.files == other.files and self.mark == other.mark

    mark: Any = None
    """What else was looked at."""

    def cells(self, cells: Cells) -> Value:
        """A sample as the library makes it."""
        raise NotImplementedError

    def after(self, sample: Value, apply: Callable[[Any, list[Value]], Value]) -> Value:
        """What the library itself calls on a sample that its user gave it functions for."""
        return sample

    def engine(self, field: str) -> wf.Dataset:
        """The engine's data set of one value of each sample."""
        raise NotImplementedError

    def sample(self, number: int) -> Any:
        """A sample as the data set makes it."""
        raise NotImplementedError

    def stages(self, workers: int) -> list[Any]:
        """What each worker has of its own."""
        return [None] * workers

    def begin(self, workers: int, persistent: bool) -> Epoch:
        """An epoch of a loader with so many workers, which may live on after it."""
        raise NotImplementedError


class Epoch:
    """The order of one epoch."""

    def numbers(self, worker: WorkerInfo | None, stages: Any) -> Iterator[int]:
        """The samples of one process in the order in which it gives them."""
        raise NotImplementedError

    def mark(self, finished: bool) -> dict[str, Any] | None:
        """What `go_to` needs to begin this epoch anew, or the next one if this is `finished`; None: nothing."""
        raise NotImplementedError


def go_to(dataset: Any, mark: dict[str, Any]) -> None:
    """Has the next epoch of a data set be the one that `mark` is of.

    Raises:
        StateError: It cannot go there.
    """
    from . import litdata, mosaic

    for library in (mosaic, litdata):
        if library.is_known(dataset):
            library.go_to(dataset, mark)


class _Number:
    """What a data set is given for a sample: something to hand on to the library, and to nobody else."""


class _Reader(Reader):
    """Reads what a data set makes of a sample of the library's."""

    def __init__(self, shards: Shards) -> None:
        super().__init__()
        self._shards = shards
        self.cells = Cells(self.names, shards.packed)
        self.number: Any = _Number()

    def read(self) -> Value:
        """A sample of the data set."""
        return self.method(self._shards.dataset, "__getitem__", [self.number])

    def _apply(self, function: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
        own: Any = None
        if isinstance(function, MethodType):
            function_, own = function.__func__, [function.__self__]
        else:
            function_ = function
            if len(arguments) == 2 and hasattr(arguments[0], "value"):
                own = [arguments[0].value]
        known = any(function_ is getter for getter in self._shards.getters)
        if known and own and own[0] is self._shards.dataset:
            if arguments[-1:] != [self.number] or named:
                raise UnknownError("it asks for another sample")
            inner = self._shards.inner(function_)
            if inner is not None:
                return self.method(self._shards.dataset, inner, [self.number])
            sample = self._shards.cells(self.cells)
            return self._shards.after(sample, lambda function, given: self._apply(function, given, {}))
        return super()._apply(function, arguments, named)


def check_methods(dataset: Any, library: type, *others: str) -> None:
    """Refuses classes that do more than to make another sample of what the library gives.

    Args:
        dataset: The data set.
        library: The library's class.
        others: Methods beside ``__getitem__`` that are read.

    Raises:
        RefusalError: It has methods of the library's in another way, or looks its attributes up in another way.
    """
    house = library.__module__.partition(".")[0]
    names = {
        name
        for kind in library.__mro__
        for name, value in vars(kind).items()
        if isinstance(value, FunctionType | property | staticmethod | classmethod)
    }
    names -= {"__init__", "__getitem__", "__len__", "__class_getitem__", "__init_subclass__", "__repr__"}
    names -= set(others)
    for kind in type(dataset).__mro__:
        inherited = kind in library.__mro__
        for name, value in vars(kind).items():
            if inherited:
                made = (getattr(value, "__module__", None) or "").partition(".")[0]
                if isinstance(value, FunctionType) and made not in (house, "torch", "typing", "collections"):
                    raise RefusalError(f"its {name} was replaced", "use the class as its library made it")
            elif name in names or name in ("__getattribute__", "__getattr__"):
                raise RefusalError(f"Python code: its class has {name} of its own")
    hidden = sorted(names & set(vars(dataset)))
    hidden += [name for name in ("__getitem__", *others) if name in vars(dataset)]
    if hidden:
        raise RefusalError(f"its {hidden[0]} was replaced")


class Examples(Dataset[Any]):
    """Samples by their numbers, as the data set makes them."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards

    def __len__(self) -> int:
        return len(self.shards.packed)

    def __getitem__(self, number: int) -> Any:
        return self.shards.sample(number)


def _reader_of(shards: Shards) -> tuple[_Reader, Value]:
    reader = _Reader(shards)
    try:
        made = drawn.alone(reader.read())
        users.check_unshared(reader)
        if several.are_several(made):
            raise UnknownError("its samples have several images, masks or boxes")
        return reader, made
    except UnknownError as unknown:
        refusal = Refusal(shards.dataset, reader.seen)
        raise RefusalError(f"Python code ({unknown})", refusal=refusal) from None
    except RefusalError:
        raise
    except Exception as error:  # It is only read: nobody's script is to fail of it.
        raise RefusalError(f"Python code (reading it ended with {type(error).__name__})") from None


def flat_of(shards: Shards) -> Flat:
    """The samples of a data set by number, as the engine can make them.

    Raises:
        RefusalError: It cannot.
    """
    reader, made = _reader_of(shards)
    try:
        return _flat_of(shards, reader, made)
    except RefusalError as refused:
        if refused.why == NO_IMAGE:
            raise
        raise RefusalError(refused.why, refused.change, Refusal(shards.dataset, reader.seen)) from None


def _flat_of(shards: Shards, reader: _Reader, made: Value) -> Flat:
    length = len(shards.packed)
    try:
        picture, layout = users.laid_out_lazily(reader, made, length)
    except UnknownError as unknown:
        raise RefusalError(str(unknown) if str(unknown) == NO_IMAGE else f"Python code ({unknown})") from None
    except RefusalError:
        raise
    except Exception as error:
        # It may be for some samples only, of which it is told when they are asked for.
        raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None
    if picture.array is not None or not picture.encoded:
        raise RefusalError("Python code: its images come from elsewhere")
    field = reader.cells.images.get(picture.path.text)
    content: Any
    if field is None:
        found = gathered(reader.names.function(picture.path.text), length)
        content = encoded(found, picture.reader == "opencv", picture.turned)
    else:
        name = field
        opencv = picture.reader != "pillow"
        content = Stored(lambda: _opened(shards, name), length, opencv, picture.turned)
    reading = Reading(picture, layout, reader.seen)
    leaf = Leaf(shards.dataset, content, reading.form, reading.transform, (), None, reading=reading)
    return Flat([leaf], None, length)


def read_alike(flat: Flat) -> bool:
    """Whether the same would be read of the data set."""
    return _unchanged([leaf.reading for leaf in flat.leaves if leaf.reading is not None])


def _unchanged(readings: list[Reading]) -> bool:
    try:
        return all(
            len(now := reading.now()) == len(reading.seen)
            and all(a is b[1] for a, b in zip(now, reading.seen))
            for reading in readings
        )
    except RefusalError:
        return False


def _opened(shards: Shards, field: str) -> wf.Dataset:
    try:
        return shards.engine(field)
    except (OSError, ValueError, wf.WellfedError) as error:
        raise RefusalError(str(error).partition("\n")[0]) from None


class _Here:
    """In the place of the engine's loader where there is nothing that it has to make."""

    depth = 0

    def __init__(self) -> None:
        self._rows: list[Any] = []

    def begin(self, seed: int, samples: int) -> None:
        """An epoch begins."""
        self._rows = []

    def submit(self, rows: Any) -> None:
        """A batch is asked for."""
        self._rows.append(rows)

    def next(self) -> list[Any]:
        """Its columns."""
        self._rows.pop(0)
        return []

    def ready(self) -> bool:
        """Whether the next batch takes no time."""
        return bool(self._rows)

    def finish(self) -> None:
        """No more batches are asked for."""

    def close(self) -> None:
        """Nobody uses it any more."""


class LookedUp:
    """Batches of samples without images, made in the calling thread.

    Args:
        columns: What makes them.
        loader: Whose collate function it is.
    """

    rows = None

    def __init__(self, columns: Columns, loader: Any) -> None:
        self._columns = columns
        self._fetcher = MapFetcher(
            loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )
        self.in_python = 0

    def acquire(self) -> Any:
        """What batches are asked of."""
        return _Here()

    def release(self, native: Any) -> None:
        """Gives it back."""

    def finish(self, columns: list[Any], rows: Any, given: Any) -> Any:
        """A batch, collated."""
        try:
            return self._columns.batch(None, rows)
        except Exception as error:  # The data set may expect it, or says more of it.
            return self.make_in_python(given, error)

    def make_in_python(self, given: Any, error: BaseException | None) -> Any:
        """The batch as the data set makes it."""
        try:
            batch = self._fetcher.fetch(given.tolist())
        except Exception as raised:
            note(raised, self._fetcher.at)
            raise
        self.in_python += 1
        return batch


def lookups_of(shards: Shards, loader: Any) -> tuple[LookedUp, Reading]:
    """Batches of samples without images.

    Raises:
        RefusalError: They take long, or are not understood.
    """
    reader, made = _reader_of(shards)
    if not loader._auto_collation:
        raise RefusalError("Python code, called for one sample at a time")
    try:
        return _lookups_of(shards, loader, reader, made)
    except RefusalError as refused:
        raise RefusalError(refused.why, refused.change, Refusal(shards.dataset, reader.seen)) from None


def _lookups_of(shards: Shards, loader: Any, reader: _Reader, made: Value) -> tuple[LookedUp, Reading]:
    length = len(shards.packed)
    try:
        layout = users.laid_out_alone(reader, made, length, lazily=True)
        source = LookedUp(Columns([layout], [0], True), loader)
        size, took = min(loader.batch_size or 1, length), []
        for _ in range(3):
            begun = time.perf_counter()
            source.finish([], np.arange(size), np.arange(size))
            took.append(time.perf_counter() - begun)
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None
    if source.in_python:
        raise RefusalError("Python code: its samples cannot be looked up")
    if loader.num_workers and min(took) > _SLOWEST:
        raise RefusalError(f"Python code: a batch of it takes {min(took) * 1e3:.1f} ms")
    return source, Reading(Picture(INDEX), layout, reader.seen)


class ShardStream:
    """What batches are made from, for a `StreamIterator`.

    Args:
        shards: The data set, recognized.
        readings: What was read of it.
        native: What makes batches of rows.
        lines: What became of each part.
        key: What else it was made for.
    """

    def __init__(
        self,
        shards: Shards,
        readings: list[Reading],
        native: NativeSource | LookedUp,
        lines: list[tuple[str, Line]],
        key: list[Any],
    ) -> None:
        self.shards, self.native, self.key = shards, native, key
        self._readings = readings
        self.acquire, self.release = native.acquire, native.release
        order = f"{shards.library}'s own, for each worker as it would be"
        self._lines = [lines[0], ("order", Line("order of samples", False, order)), *lines[1:]]

    @property
    def in_python(self) -> int:
        """Batches that the data set itself made."""
        return self.native.in_python

    def current(self, shards: Shards, key: list[Any]) -> bool:
        """Whether it still holds."""
        same = len(key) == len(self.key) and all(a is b for a, b in zip(key, self.key))
        return same and _unchanged(self._readings) and self.shards.same(shards)

    def lines(self) -> list[tuple[str, Line]]:
        """What became of each part."""
        return self._lines

    def stages(self, workers: int) -> list[Any]:
        """What each worker has of its own."""
        return self.shards.stages(workers)

    def begin(self, loader: Any) -> Epoch:
        """An epoch, of which `batches` gives the share of each worker."""
        self._epoch = self.shards.begin(loader.num_workers, loader.persistent_workers)
        return self._epoch

    def batches(self, loader: Any, worker: WorkerInfo | None, stages: Any) -> Iterator[Any]:
        """Numbers of the samples of each batch of one process."""
        numbers = in_process(self._epoch.numbers(worker, stages), worker)
        size, drop_last = loader.batch_size, loader.drop_last
        return _batches(numbers, size, drop_last)

    def located(self, numbers: Any) -> Any:
        """Rows of the engine's data set."""
        return numbers

    def finish(self, columns: list[Any], numbers: Any) -> Any:
        """A batch of the engine's columns, as the loader collates it."""
        return self.native.finish(columns, numbers, numbers)

    def make_in_python(self, numbers: Any, error: BaseException) -> Any:
        """The batch as the data set makes it. Whatever it raises has the engine's words as its cause."""
        return self.native.make_in_python(numbers, error)


def _batches(numbers: Iterator[int], size: int | None, drop_last: bool) -> Iterator[npt.NDArray[np.int64]]:
    while True:
        batch = list(islice(numbers, 1 if size is None else size))
        if not batch or (drop_last and size is not None and len(batch) < size):
            return
        yield np.asarray(batch, np.int64)
        if size is not None and len(batch) < size:
            return


def stamps(paths: Sequence[str]) -> list[tuple[str, int, int]]:
    """Name, size and time of change of files.

    Raises:
        RefusalError: One of them is not there.
    """
    found = []
    for path in paths:
        try:
            stat = os.stat(path)
        except OSError as error:
            raise RefusalError(
                f"shard {path}: {error.strerror}", "all shards in the local folder before the first epoch"
            ) from None
        found.append((path, stat.st_size, stat.st_mtime_ns))
    return found


def table_of(items: dict[str, Value]) -> Value:
    """A new dictionary."""
    return Table(items)
