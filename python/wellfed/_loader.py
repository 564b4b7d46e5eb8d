"""`Loader`: the finished batches of a data set, epoch by epoch, as arrays of the framework that asked."""

from __future__ import annotations

import functools
import json
import operator
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments as check
from . import _native
from ._cores import engine_threads
from ._passes import Pipeline
from ._ragged import Ragged
from .exceptions import StateError, WellfedError

if TYPE_CHECKING:
    from types import TracebackType

    from .dataset import Dataset

__all__ = ["BadSample", "Loader"]

Convert = Callable[[Any], Any]


def to_numpy(value: Any) -> Any:
    """A column of the engine as NumPy arrays that share its memory; lists of text and the like as they are."""
    if type(value) is not _native.Array:
        return _parts(value, to_numpy)
    if value.dtype == "bfloat16":
        raise TypeError(
            "NumPy has no bfloat16\nhint: iterate as .torch(), or choose ToDtype('float16') or ToDtype('float32')"
        )
    return np.asarray(value)


def _parts(value: Any, convert: Convert) -> Any:
    """A column that is not one array, with its arrays converted."""
    if type(value) is _native.RaggedColumn:
        return Ragged(convert(value.values), convert(value.offsets))
    if type(value) is tuple:
        return tuple(map(convert, value))
    if type(value) is list and value and type(value[0]) is _native.Array:
        return [convert(item) for item in value]
    return value


def torch_converter() -> Convert:
    """How arrays of the engine become torch tensors, without a copy."""
    try:
        from torch.utils.dlpack import from_dlpack
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            "torch() needs PyTorch, which is not installed\nhint: install torch, or iterate as .numpy()",
            name=e.name,
        ) from None
    array = _native.Array

    def convert(value: Any) -> Any:
        # from_dlpack of a capsule skips the questions that torch asks of foreign objects.
        return from_dlpack(value.__dlpack__()) if type(value) is array else _parts(value, convert)

    return convert


def is_batched(node: dict[str, Any]) -> bool:
    """Whether what a plan gives are batches."""
    while node["node"] not in (*_BATCHING, "unbatch", "source"):
        node = node["input"] if "input" in node else node["inputs"][0]
    return node["node"] in _BATCHING


_BATCHING = (
    "batch",
    "padded_batch",
    "ragged_batch",
    "bucket_by_sequence_length",
    "batch_by_tokens",
    "batch_by_duration",
)
"""Verbs that make batches of samples."""


def _of_one(convert: Convert) -> Convert:
    """For samples without batches, whose text, bytes or JSON is no list of one."""
    return lambda value: convert(value[0] if type(value) is list and len(value) == 1 else value)


def structured(structure: str, convert: Convert) -> Convert:
    """From columns to what the user gets: a bare value, or tuples, lists and dicts of them, nested at will."""
    tree = json.loads(structure)
    fields = tree.get("tuple")
    if fields is not None and [item.get("field") for item in fields] == list(range(len(fields))):
        return lambda columns: tuple(map(convert, columns))
    keys = tree.get("dict")
    if keys is not None and [item.get("field") for _, item in keys] == list(range(len(keys))):
        names = [key for key, _ in keys]
        return lambda columns: dict(zip(names, map(convert, columns)))
    build = _builder(tree)
    return lambda columns: build([convert(column) for column in columns])


def _builder(tree: dict[str, Any]) -> Callable[[list[Any]], Any]:
    """Picks the fields of one node of a structure out of the columns."""
    ((kind, inner),) = tree.items()
    if kind == "field":
        return operator.itemgetter(inner)
    if kind == "dict":
        named = [(key, _builder(item)) for key, item in inner]
        return lambda columns: {key: build(columns) for key, build in named}
    builders = [_builder(item) for item in inner]
    if kind == "list":
        return lambda columns: [build(columns) for build in builders]
    return lambda columns: tuple([build(columns) for build in builders])


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

    Epochs follow one another also where a loader is made anew for each of them: the first epoch of a new loader is the
    one after the last that a loader of the same pipeline began, over the same opened sources. `set_epoch` and
    `load_state_dict` win over that.

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
        to = _target(device)
        # By its name; None where batches stay where they are made.
        self._to: str | None = None if to is None else str(to)
        self._stage = None if to is None else _stage_for(to)
        # What it has made.
        self._staging: Any = None
        # Where the pass stands for the caller, if batches are taken from the engine ahead of that.
        self._progress: Any = None
        placed = _for_this_rank(dataset)
        locked = self._to is not None and placed._native.page_locked(self._to)
        self._pages = _pages_for(to) if locked else None
        page_lock = None if self._pages is None else self._pages.page_lock
        self._native: _native.Loader | None = placed._native.loader(self._to, page_lock)
        whole = convert if is_batched(dataset._plan()["root"]) else _of_one(convert)
        self._share = _share_of(dataset, self._native)
        self._left = _left_of(self._native)
        self._build = _with_left(self._left, structured(dataset._native.structure, whole))
        self._turn = 0
        self._began = False
        self._placed = False
        self._pipeline = Pipeline(self._native.fingerprint, json.dumps(dataset._plan()["root"]))
        self._warned: set[str] = set()

    @property
    def dataset(self) -> Dataset:
        """What is loaded."""
        return self._dataset

    def explain(self, analyze: bool = False) -> str:
        """As of `Dataset.explain`, with the device that this loader copies batches to.

        Args:
            analyze: Add what this loader did since it was made: time and bytes per stage, and of images that a device
                finishes, how many were decoded where.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> text = wf.from_tensor_slices(np.arange(4)).batch(2).torch(device="meta").explain()
            >>> "copy, when a batch is asked for" in text
            True
        """
        text = self._dataset._native.explain(self._to)
        if not analyze:
            return text
        stats = self.stats()
        text += f"analysis since the loader was made\n{stats}\n"
        if "decoded" in stats:
            cpu, device, nvjpeg = (stats["decoded"][who] for who in ("cpu", "device", "nvjpeg"))
            text += f"images decoded by the CPU {cpu}, by the device's kernels {device}, by nvJPEG {nvjpeg}\n"
        return text

    def _open(self) -> _native.Loader:
        if self._native is None:
            raise StateError("the loader is closed")
        return self._native

    def _placed_native(self) -> _native.Loader:
        """The engine's loader, where this one stands: before its first epoch, at the one that comes next."""
        native = self._open()
        if not self._began and not self._placed:
            # A loader that is made anew for each epoch goes on where the one before it began.
            native.set_epoch(self._dataset._passes.next(self._pipeline))
        return native

    def __iter__(self) -> Iterator[Any]:
        native = self._placed_native()
        if self._pages is not None:
            self._pages.begin()
        native.start_epoch()
        counted = not self._began and not self._placed
        self._began = True
        self._turn += 1
        self._dataset._passes.begun(self._pipeline, native.epoch, counted)
        epoch = _Epoch(self, native, self._turn)
        if self._share is not None:
            self._share.begin()
            epoch._next = _timed(epoch._next, self._share.note)
        if self._stage is None:
            return epoch
        from .torch._device import Staged

        self._staging = self._stage()
        staged = Staged(epoch, self._staging)
        self._progress = staged._progress
        return staged

    def _warn(self) -> None:
        """Warns, once, of what the system refuses: training goes on without, but not as fast as was hoped for."""
        stats = self.stats()
        for name, what in _PROBLEMS.items():
            problem = (stats.get(name) or {}).get("problem")
            if problem is not None and problem not in self._warned:
                self._warned.add(problem)
                warnings.warn(f"{what}: {problem}", RuntimeWarning, stacklevel=3)

    def __len__(self) -> int:
        length = self._placed_native().length()
        if length is None:
            raise TypeError("a loader that repeats without end has no length")
        return length

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``, from 0. Without it epochs follow one another."""
        self._open().set_epoch(check.whole(epoch, "epoch"))
        self._placed = True
        self._progress = None

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
        native = self._placed_native()
        state: dict[str, Any] = (_Progress(native) if self._progress is None else self._progress).state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called, to the bit.

        Raises:
            StateError: The state is of another pipeline, or cannot be carried over to these ranks and batches.
            ValueError: It is no state, or of a version that is not known.
        """
        self._open().load_state_dict(json.dumps(state))
        self._turn += 1
        self._progress = None
        self._placed = True

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
        stats = Stats(*self._open().stats())
        if self._share is not None:
            stats["on_device"] = self._share.stats()
        left = [recipe.decoded for recipe in self._left if recipe is not None]
        if left:
            stats["decoded"] = {who: sum(one[who] for one in left) for who in left[0]}
        return stats

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
        # What batches are copied from goes when the copies are over, which is not waited for.
        if hasattr(self._staging, "close"):
            self._staging.close()

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


_PROBLEMS = {
    "cache": "samples are not cached",
    "row_index": "row indexes are not kept",
    "remote_cache": "remote bytes are not kept as they should be",
    "page_locked": "batches are copied once more on their way to the device",
}
"""What follows from a problem that `stats` tells."""


class _Epoch(Iterator[Any]):
    """One pass over a loader. Keeps the loader alive; ends when another pass begins."""

    __slots__ = ("_build", "_loader", "_next", "_num_yielded", "_progress", "_ready", "_turn")

    def __init__(self, loader: Loader, native: _native.Loader, turn: int) -> None:
        self._loader = loader
        self._build = loader._build
        self._next: Callable[[], list[Any] | None] = native.next
        self._ready: Callable[[], bool] = native.ready
        self._turn = turn
        self._num_yielded = 0
        self._progress = _Progress(native)

    def __len__(self) -> int:
        return len(self._loader)

    def ready(self) -> bool:
        """Whether the next batch is there."""
        return self._loader._turn == self._turn and self._next is not _exhausted and self._ready()

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
        self._num_yielded += 1
        return self._build(columns)


class _Progress:
    """Where an engine's loader stands, in the form in which the device stage asks for it."""

    def __init__(self, native: _native.Loader) -> None:
        self._native = native

    def place(self) -> str:
        """Of what it gave so far."""
        return self._native.state_dict()

    def state_dict(self, place: str | None = None) -> dict[str, Any]:
        """The state, now or as of `place`."""
        state: dict[str, Any] = json.loads(self.place() if place is None else place)
        return state


def _share_of(dataset: Dataset, native: _native.Loader) -> Any:
    """What chooses the device's share of the work, where the plan leaves that open."""
    if dataset._plan()["options"].get("on_device") != "auto":
        return None
    from .torch._share import DeviceShare

    return DeviceShare(native.set_device_share, ahead=lambda: native.depth)


def _timed(
    following: Callable[[], list[Any] | None], note: Callable[[float], None]
) -> Callable[[], list[Any] | None]:
    """As `following`, and `note` is told how long each call took."""

    def next_() -> list[Any] | None:
        begin = time.perf_counter()
        columns = following()
        if columns is not None:
            note(time.perf_counter() - begin)
        return columns

    return next_


def _left_of(native: _native.Loader) -> list[Any]:
    """What the device makes of each column; None of those that it does not finish."""
    left = native.left_images()
    if not any(left):
        return []
    from .torch._left import Recipe

    return [None if image is None else Recipe(*image) for image in left]


def _with_left(recipes: list[Any], build: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """As `build`, of columns of which some hold images that the device finishes by their recipes."""
    if not recipes:
        return build
    from .torch._left import LeftImages, Recipe

    convert = torch_converter()

    def of(column: Any, recipe: Recipe | None) -> Any:
        if recipe is None:
            return column
        return LeftImages(convert(column.values), convert(column.offsets), recipe, column.blends)

    return lambda columns: build([of(*pair) for pair in zip(columns, recipes)])


def _target(device: Any) -> Any:
    """The device as torch names it; None where batches stay in ordinary memory."""
    if device is None:
        return None
    from .torch._device import target

    return target(device)


def _stage_for(device: Any) -> Callable[[], Any]:
    """What makes, once, the stage that brings batches to a device."""
    from .torch._device import stage_for

    return functools.cache(lambda: stage_for(device))


def _pages_for(device: Any) -> Any:
    """What page-locks batches, so that a device reads them where they were made."""
    from .torch._device import BatchPages

    return BatchPages(device)


def _for_this_rank(dataset: Dataset) -> Dataset:
    """The data set with this rank's share of the cores, where several ranks share the machine and nobody says more."""
    threads = engine_threads()
    if threads == "auto" or json.loads(dataset.to_json())["options"]["num_workers"] != "auto":
        return dataset
    return dataset.with_options(num_workers=threads)


def _exhausted() -> None:
    """What follows the last batch."""
