"""LitData: its data sets over chunks that `optimize` wrote, and the order of their samples.

Invariant: only data sets are recognized whose chunks lie here as they were written, unpacked. The order is what the
library says: a copy of the data set is iterated, for each worker, which gives numbers in the place of samples.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import wellfed as wf
from wellfed._accelerate import torchvision_io

from .._private import WorkerInfo
from .forms import RefusalError
from .shards import Blocks, Cells, Epoch, Packed, Shards, check_methods, stamps, table_of
from .values import INDEX, Group, Picture, Value

__all__ = ["Lit", "go_to", "is_known", "plain_collate", "read"]

_VALUES = (
    *(
        "str",
        "text",
        "bool",
        "int",
        "float",
        "bytes",
        "numpy",
        "tensor",
        "no_header_numpy",
        "no_header_tensor",
    ),
    "json",
)


def _class() -> Any:
    return getattr(sys.modules.get("litdata.streaming.dataset"), "StreamingDataset", None)


def is_known(dataset: Any) -> bool:
    """Whether it is a `StreamingDataset` of that library, or of a class derived from it."""
    kind = _class()
    return kind is not None and isinstance(dataset, kind)


def read(dataset: Any) -> Lit:
    """Recognizes a data set.

    Raises:
        RefusalError: The engine cannot make its samples, or their order may be another one.
    """
    check_methods(dataset, _class())
    try:
        return Lit(dataset)
    except RefusalError:
        raise
    except Exception as error:
        # Another version of the library, which looks different.
        raise RefusalError(f"what it has is not known ({type(error).__name__}: {error})") from None


def plain_collate(function: Any) -> Any:
    """The collate function of a loader, without what the library's own loader puts around it."""
    from torch.utils.data import default_collate

    loaders = sys.modules.get("litdata.streaming.dataloader")
    if loaders is None:
        return function
    wrapper = getattr(loaders, "StreamingDataLoaderCollateFn", None)
    if wrapper is not None and type(function) is wrapper:
        function = function.collate_fn
    own = getattr(loaders, "litdata_collate", None)
    # It looks for graphs, of which there are none here.
    is_own = own is not None and function is own and own.__module__ == "litdata.streaming.collate"
    return default_collate if is_own else function


class Lit(Shards):
    """A data set over chunks of LitData."""

    library = "LitData"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.getters = (_class().__getitem__,)
        self._check(dataset)
        root = dataset.input_dir.path
        self._twin = _copied(dataset)
        cache = self._cache = self._twin._create_cache(_worker_env())
        if self._twin.posix_fast is None or not self._twin.posix_fast.in_place:
            raise RefusalError("its chunks are not read where they lie", "LITDATA_POSIX_FAST left out")
        known = cache._reader.config
        config, chunks = known.config, known._chunks
        packing = ("compression", "compression_level", "ipc_compression", "encryption")
        if any(config.get(name) for name in packing):
            raise RefusalError("its chunks are compressed or encrypted", "optimize(compression=None)")
        if config.get("format"):
            raise RefusalError(f"its chunks have the format {config['format']}")
        loader = self._loader = cache._reader._item_loader
        kind = type(loader).__name__ if type(loader).__module__ == _LOADERS else ""
        if kind not in ("PyTreeLoader", "TokensLoader") or config.get("item_loader") not in (None, kind):
            raise RefusalError(f"its item_loader is a {type(loader).__name__}", "leave item_loader out")
        paths = [os.path.join(root, chunk["filename"]) for chunk in chunks]
        self.files = stamps([*paths, os.path.join(root, "index.json")])
        block = loader._block_size if kind == "TokensLoader" else None
        items = [chunk["chunk_size"] for chunk in chunks]
        counts = items if block is None else [chunk["dim"] // block for chunk in chunks]
        whole = [(start, start, end, end) for start, end in _ranges(counts)]
        if [tuple(interval) for interval in cache.get_chunk_intervals()] != whole:
            raise RefusalError("subsample= leaves samples out", "leave subsample out")
        self._formats = list(config["data_format"])
        self._tokens = None if block is None else _decoder(loader)
        if block is None:
            self.packed = Packed(paths, counts, [None] * len(self._formats))
        else:
            heads = [4 * (count + 2) for count in items]
            self.packed = Blocks(paths, counts, heads, block * loader._dtype.itemsize)
        self._root = root
        self.mark = [dataset.shuffle, dataset.seed, dataset.drop_last, _transforms(dataset)]

    def _check(self, dataset: Any) -> None:
        if dataset._state_dict is not None:
            raise RefusalError("it goes on from a state that was loaded into it")
        for name in ("serializers", "_encryption"):
            if getattr(dataset, name):
                raise RefusalError(f"it has {name.strip('_')}=", f"{name.strip('_')} left out")
        if (
            getattr(dataset, "window_direct_io", False)
            or getattr(dataset, "_forced_worker_env", None) is not None
        ):
            raise RefusalError("its samples are read in another way")
        where = dataset.input_dir
        if where.url is not None or where.path is None or not os.path.isdir(where.path):
            raise RefusalError("its chunks are fetched while it runs", "a local folder")
        if os.getenv("DATA_OPTIMIZER_GLOBAL_RANK"):
            raise RefusalError("it runs in map() or optimize()")

    def cells(self, cells: Cells) -> Value:
        """A new tree of what was written."""
        from litdata.utilities._pytree import tree_unflatten

        if self._tokens is not None:
            return cells.row(0, self._tokens)
        leaves = [self._leaf(cells, place, form) for place, form in enumerate(self._formats)]
        spec = self._loader._data_spec
        tree = tree_unflatten([_Leaf(place) for place in range(len(leaves))], spec)
        names: dict[int, str] = {}
        _name(tree, (), names)

        def value(tree: Any) -> Value:
            if type(tree) is _Leaf:
                return leaves[tree.place](names[tree.place] or "value")
            if type(tree) is dict and all(type(key) is str for key in tree):
                return table_of({key: value(inner) for key, inner in tree.items()})
            if type(tree) in (list, tuple):
                return Group(type(tree), tuple(map(value, tree)))
            raise RefusalError(f"its samples are {type(tree).__name__}", "dictionaries, lists and tuples")

        return value(tree)

    def _leaf(self, cells: Cells, place: int, form: str) -> Callable[[str], Value]:
        kind = form.partition(":")[0]
        if kind == "pil":
            return lambda name: cells.image(place, name, Picture(INDEX))
        if form in ("jpeg", "image:jpg", "image:jpeg") and torchvision_io.taken_over():
            return lambda name: cells.image(
                place, name, Picture(INDEX, "torchvision", "RGB", "chw", turned=True)
            )
        if kind not in _VALUES:
            raise RefusalError(f"samples have values of format {form!r}")
        serializer = self._loader._serializers_list[place]
        if type(serializer).__module__ != "litdata.streaming.serializers":
            raise RefusalError(f"values of format {form!r} are read by {type(serializer).__name__}")
        # The library maps its chunks, so that values are made of views: bytes are one.
        return lambda name: cells.row(place, lambda data: serializer.deserialize(memoryview(data)))

    def after(self, sample: Value, apply: Callable[[Any, list[Value]], Value]) -> Value:
        """What ``transform=`` makes of a sample."""
        for transform in _transforms(self.dataset):
            sample = apply(transform, [sample])
        return sample

    def same(self, other: Shards) -> bool:
        """Whether it has the same samples."""
        if self.dataset is not other.dataset or self.files != other.files:
            return False
        one, two = self.mark[-1], other.mark[-1]
        return (
            self.mark[:-1] == other.mark[:-1]
            and len(one) == len(two)
            and all(a is b for a, b in zip(one, two))
        )

    def engine(self, field: str) -> wf.Dataset:
        """The engine's data set of one value of each sample."""
        made = wf.litdata(self._root, fields=[field])
        if len(made) != len(self.packed):
            raise RefusalError(f"its index states {len(made)} samples, and not {len(self.packed)}")
        return made

    def sample(self, number: int) -> Any:
        """A sample as the data set makes it."""
        twin = self._twin
        if twin.cache is None:
            twin.cache = self._cache
            twin.on_demand_bytes = False  # as it reads where it is iterated
        return twin[int(number)]

    def stages(self, workers: int) -> list[Any]:
        """What each worker has of its own: a copy of the data set, which counts its epochs."""
        return [_ordered(self.dataset, self._cache) for _ in range(workers)]

    def begin(self, workers: int, persistent: bool) -> Epoch:
        """An epoch of a loader with so many workers, which may live on after it."""
        return _Epoch(self.dataset, self._cache, persistent)


class _Epoch(Epoch):
    """An epoch of a data set, as it counts them.

    Args:
        dataset: The data set.
        cache: Where its chunks are.
        persistent: Whether workers live on, and count epochs themselves.
    """

    def __init__(self, dataset: Any, cache: Any, persistent: bool) -> None:
        self._dataset, self._cache, self._persistent = dataset, cache, persistent
        self._order: Any = dataset
        self._number = dataset.current_epoch

    def numbers(self, worker: WorkerInfo | None, stages: Any) -> Iterator[int]:
        """The samples of one process in the order in which it gives them."""
        if worker is None:
            return self._here()
        if worker.id == 0:
            self._number = stages.current_epoch
            self._order = stages if self._persistent else self._dataset
        return _inside(stages)

    def _here(self) -> Iterator[int]:
        order = _ordered(self._dataset, self._cache)
        yield from order
        # It was at its end, and says so to the data set that it is a copy of.
        self._dataset.current_epoch = order.current_epoch
        self._dataset.reset_state_dict()

    def mark(self, finished: bool) -> dict[str, Any] | None:
        """The number of the epoch."""
        return {"epoch": int(self._order.current_epoch if finished else self._number)}


def _inside(stages: Any) -> Iterator[int]:
    # It asks for the worker that it is in when it begins, which is when the first number is wanted.
    yield from stages


def go_to(dataset: Any, mark: dict[str, Any]) -> None:
    """Has the next epoch of a data set be the one that `mark` is of."""
    dataset.current_epoch = mark["epoch"]


_LOADERS = "litdata.streaming.item_loader"


def _decoder(loader: Any) -> Callable[[bytes], Any]:
    """What makes of tokens what the library makes: memory of their own."""
    dtype = loader._dtype
    if loader._serializer_name == "no_header_tensor":
        return lambda data: torch.frombuffer(bytearray(data), dtype=dtype)
    return lambda data: np.frombuffer(bytearray(data), dtype)


class _Leaf:
    """The place of a value in a tree."""

    def __init__(self, place: int) -> None:
        self.place = place


def _name(tree: Any, path: tuple[str, ...], names: dict[int, str]) -> None:
    """What the engine calls the values of a tree."""
    if type(tree) is _Leaf:
        names[tree.place] = ".".join(path)
        return
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, inner in items:
        _name(inner, (*path, str(key)), names)


def _ranges(counts: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for count in counts:
        yield start, start + count
        start += count


def _transforms(dataset: Any) -> list[Any]:
    given = vars(dataset).get("transform")
    if given is None:
        return []
    return list(given) if isinstance(given, list) else [given]


def _worker_env() -> Any:
    from litdata.utilities.env import _WorkerEnv

    return _WorkerEnv.detect()


def _copied(dataset: Any) -> Any:
    """A data set of its own kind that shares nothing with it that changes."""
    twin = object.__new__(type(dataset))
    twin.__dict__.update(vars(dataset))
    twin.input_dir, twin.cache, twin.shuffler = copy.copy(dataset.input_dir), None, None
    twin.item_loader = copy.deepcopy(dataset.item_loader)
    return twin


_order_classes: dict[type, type] = {}


def _ordered(dataset: Any, cache: Any) -> Any:
    """A copy of the data set that gives the numbers of samples in their place, and touches no file."""
    kind = _class()
    if kind not in _order_classes:

        def getitem(self: Any, index: Any) -> int:
            return int(index.index)

        def create_cache(self: Any, worker_env: Any) -> Any:
            return _Quiet(self.__dict__["wellfed_cache"])

        _order_classes[kind] = type("Order", (kind,), {"__getitem__": getitem, "_create_cache": create_cache})
    order: Any = object.__new__(_order_classes[kind])
    order.__dict__.update(vars(dataset))
    order.cache = order.shuffler = None
    order.wellfed_cache = cache
    return order


class _Quiet:
    """What the order is found from: the places of chunks, without anything that readies them for reading."""

    def __init__(self, cache: Any) -> None:
        self._cache, self._reader = cache, _NoReader(cache._reader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._cache, name)


class _NoReader:
    """A reader that nobody reads with."""

    def __init__(self, reader: Any) -> None:
        self._known = reader
        self.on_demand_bytes = True

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        """Chunks are not readied."""

    acquire_shared_locks = enable_mmap_for_chunks = enable_posix_fast = _nothing
    prefetch_posix_window = set_keep_node_shard = _nothing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._known, name)
