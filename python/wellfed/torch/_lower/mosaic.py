"""MosaicML's Streaming: its data sets over MDS shards, and the order of their samples.

Invariant: only data sets are recognized whose shards lie here as they were written, unpacked, and stay here. The order
is what the library's own methods say, run once for an epoch on a copy of the data set; the counter of epochs, which
lies in memory that all processes of a node share, goes on as they leave it.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

import wellfed as wf
from wellfed.exceptions import StateError

from .._private import WorkerInfo, set_worker_info
from .forms import RefusalError
from .shards import Cells, Epoch, Packed, Shards, check_methods, stamps, table_of
from .values import INDEX, Picture, Value

__all__ = ["Mosaic", "go_to", "is_known", "read"]

_IMAGES = ("jpeg", "png", "pil")
_PICKLED = ("pkl",)


def _class() -> Any:
    return getattr(sys.modules.get("streaming.base.dataset"), "StreamingDataset", None)


def is_known(dataset: Any) -> bool:
    """Whether it is a `StreamingDataset` of that library, or of a class derived from it."""
    kind = _class()
    return kind is not None and isinstance(dataset, kind)


def read(dataset: Any) -> Mosaic:
    """Recognizes a data set.

    Raises:
        RefusalError: The engine cannot make its samples, or their order may be another one.
    """
    check_methods(dataset, _class(), "get_item")
    try:
        return Mosaic(dataset)
    except RefusalError:
        raise
    except Exception as error:
        # Another version of the library, which looks different.
        raise RefusalError(f"what it has is not known ({type(error).__name__}: {error})") from None


class Mosaic(Shards):
    """A data set over MDS shards."""

    library = "Streaming"

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.getters = (_class().__getitem__, _class().get_item)
        self.entry = "__getitem__"
        if dataset.cache_limit:
            raise RefusalError("cache_limit removes shards while it runs", "leave cache_limit out")
        if not isinstance(dataset.batch_size, int):
            raise RefusalError("it has no batch_size", "batch_size=, as that of the loader")
        if type(dataset._shared_barrier).__call__.__module__ != "streaming.base.shared.barrier":
            raise RefusalError("its barrier was replaced")
        self._folders: list[str] = []
        for stream in dataset.streams:
            if type(stream).__module__ != "streaming.base.stream" or type(stream).__name__ != "Stream":
                raise RefusalError(f"its stream is a {type(stream).__name__}", "streams of the library")
            self._folders.append(os.path.join(stream.local, stream.split))
        paths, first = [], dataset.shards[0]
        for shard in dataset.shards:
            if (type(shard).__module__, type(shard).__name__) != (
                "streaming.base.format.mds.reader",
                "MDSReader",
            ):
                raise RefusalError(f"its shards are read by {type(shard).__name__}", "MDS shards")
            if shard.compression is not None:
                raise RefusalError("its shards are compressed", "MDSWriter(compression=None)")
            same = (
                shard.column_names == first.column_names and shard.column_encodings == first.column_encodings
            )
            if not same or shard.column_sizes != first.column_sizes:
                raise RefusalError("its shards differ in their columns")
            paths.append(os.path.join(shard.dirname, shard.split, shard.raw_data.basename))
        self.files = stamps(paths)
        short = [shard for shard, file in zip(dataset.shards, self.files) if shard.raw_data.bytes != file[1]]
        if short:
            raise RefusalError(f"shard {short[0].raw_data.basename} is not as large as its index says")
        sizes = [size or None for size in first.column_sizes]
        self.packed = Packed(paths, [len(shard) for shard in dataset.shards], sizes)
        self._columns = list(zip(first.column_names, first.column_encodings, strict=True))

    def cells(self, cells: Cells) -> Value:
        """A new dictionary of all columns; without those that run code when they are read."""
        from streaming.base.format.mds.encodings import mds_decode

        items: dict[str, Value] = {}
        for place, (name, encoding) in enumerate(self._columns):
            if encoding in _IMAGES:
                items[name] = cells.image(place, name, Picture(INDEX))
            elif encoding == "bytes":
                items[name] = cells.row(place, None)
            elif not encoding.startswith((*_PICKLED, "list", *(f"{image}_" for image in _IMAGES))):
                items[name] = cells.row(place, _decoder(mds_decode, encoding))
        if len(items) < len(self._columns):
            left = next(encoding for name, encoding in self._columns if name not in items)
            raise RefusalError(f"a column is {left}", "columns of images, numbers, text and arrays")
        return table_of(items)

    def inner(self, getter: Any) -> str | None:
        """The method that the library's own calls for a sample, if it is the user's."""
        own = next(vars(kind)["get_item"] for kind in type(self.dataset).__mro__ if "get_item" in vars(kind))
        return "get_item" if getter is self.getters[0] and own is not self.getters[1] else None

    def engine(self, field: str) -> wf.Dataset:
        """The engine's data set of one column."""
        made = wf.mds(self._folders, fields=[field])
        if len(made) != len(self.packed):
            raise RefusalError(f"its indices state {len(made)} samples, and not {len(self.packed)}")
        return made

    def sample(self, number: int) -> Any:
        """A sample as the data set makes it."""
        return self.dataset[number]

    def begin(self, workers: int, persistent: bool) -> Epoch:
        """An epoch of a loader with so many workers, which may live on after it."""
        return _Epoch(self.dataset, workers)


def go_to(dataset: Any, mark: dict[str, Any]) -> None:
    """Has the next epoch of a data set be the one that `mark` is of.

    Raises:
        StateError: Ranks of this node count epochs together, and are further on.
    """
    if dataset.next_epoch > mark["epoch"]:
        if not dataset._unique_rank_world.is_local_leader:
            raise StateError(
                f"cannot resume: the data set is in epoch {dataset.next_epoch - 1}, the state of epoch {mark['epoch']}"
                "\nhint: make the data set anew, or resume in another process"
            )
        dataset.next_epoch = mark["epoch"]
    dataset.load_state_dict(mark)


def _decoder(decode: Any, encoding: str) -> Any:
    return lambda data: decode(encoding, data)


class _Epoch(Epoch):
    """What the samples of an epoch are, asked once, when the first of its workers begins.

    Args:
        dataset: The data set.
        workers: How many the loader has.
    """

    def __init__(self, dataset: Any, workers: int) -> None:
        self._dataset, self._workers = dataset, workers
        self._shares: list[npt.NDArray[np.int64]] | None = None
        self._state: dict[str, Any] | None = None

    def numbers(self, worker: WorkerInfo | None, stages: Any) -> Iterator[int]:
        """The samples of one process in the order in which it gives them."""
        if worker is not None:
            self._begun()  # as workers do, which begin before the first batch is asked for
        return self._share(0 if worker is None else worker.id)

    def _share(self, place: int) -> Iterator[int]:
        share = self._begun()[place]
        yield from share[share != -1].tolist()

    def mark(self, finished: bool) -> dict[str, Any] | None:
        """The library's own state of the beginning of an epoch."""
        if self._state is None:
            order = self._ordered()
            return _state(order, *order._resume(order._parallel_worker_world, order.next_epoch))
        if not finished:
            return self._state
        return {**self._state, "epoch": self._state["epoch"] + 1, "sample_in_epoch": 0}

    def _begun(self) -> list[npt.NDArray[np.int64]]:
        """The samples of each worker, in its order; -1 where there is none."""
        if self._shares is None:
            self._shares = self._asked()
        return self._shares

    def _ordered(self) -> Any:
        """A copy of the data set that knows the workers of the loader."""
        dataset, workers = self._dataset, self._workers
        order: Any = object.__new__(_order_class())
        order.__dict__.update({name: value for name, value in vars(dataset).items() if name != "_locals_shm"})
        order._shared_barrier = _Entered(dataset._shared_barrier, max(workers, 1))
        before = get_worker_info()
        if workers:
            set_worker_info(WorkerInfo(id=0, num_workers=workers, seed=0, dataset=dataset))
        try:
            order._unique_worker_world = order._unique_rank_world.detect_workers()
            order._parallel_worker_world = order._parallel_rank_world.detect_workers()
        finally:
            if workers:
                set_worker_info(before)
        return order

    def _asked(self) -> list[npt.NDArray[np.int64]]:
        order = self._ordered()
        epoch, sample_in_epoch = order._resume_incr_epoch()
        order._get_work(epoch, sample_in_epoch)
        world, work = order._parallel_worker_world, order.__dict__["wellfed_work"]
        if not self._workers:
            # What the caller's own data set keeps of its first epoch.
            for name in (
                "num_canonical_nodes",
                "shuffle_block_size",
                "shuffle_seed",
                "initial_physical_nodes",
            ):
                setattr(self._dataset, name, getattr(order, name))
        self._state = _state(order, epoch, sample_in_epoch)
        workers = range(max(self._workers, 1))
        return [work[world.node, world.rank_of_node, worker].flatten() for worker in workers]


def _state(order: Any, epoch: int, sample_in_epoch: int) -> dict[str, Any]:
    """The library's state of a place in an epoch."""
    nodes = order.initial_physical_nodes
    return {
        "epoch": epoch,
        "sample_in_epoch": sample_in_epoch,
        "num_canonical_nodes": order.num_canonical_nodes,
        "shuffle_seed": order.shuffle_seed,
        "initial_physical_nodes": order._parallel_rank_world.num_nodes if nodes is None else nodes,
    }


_order_classes: dict[type, type] = {}


def _order_class() -> type:
    """The library's class, which keeps the work of all workers that it has found."""
    kind = _class()
    if kind not in _order_classes:

        def share_work(self: Any, sample_ids: Any) -> Any:
            self.__dict__["wellfed_work"] = sample_ids
            return kind._share_work(self, sample_ids)

        def attach_work(self: Any) -> Any:
            found = kind._attach_work(self)
            self.__dict__["wellfed_work"] = found[0].copy()
            return found

        methods = {"_share_work": share_work, "_attach_work": attach_work}
        _order_classes[kind] = type("Order", (kind,), methods)
    return _order_classes[kind]


class _Entered:
    """The barrier of all workers of a node, entered for all workers of this process, each by a thread of its own.

    So other ranks of the node may run their workers, or be like this one.
    """

    def __init__(self, barrier: Any, count: int) -> None:
        self._barrier, self._count = barrier, count
        self.filelock_path = barrier.filelock_path

    def __call__(self, num_procs: int) -> None:
        if num_procs == self._count:
            return  # nobody else is waited for
        threads = [
            threading.Thread(target=self._enter, args=(num_procs,), daemon=True) for _ in range(self._count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _enter(self, num_procs: int) -> None:
        from filelock import FileLock

        # A lock belongs to whoever opened its file: each worker has one of its own.
        barrier = copy.copy(self._barrier)
        barrier.lock = FileLock(self.filelock_path)
        barrier(num_procs)
