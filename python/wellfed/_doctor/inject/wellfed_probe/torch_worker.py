"""Patches what makes batches, in workers and inline: the records `role`, `fetch`, `samples` and `send`.

Invariant: the data set, its iterator and the collate function are exchanged for timed ones only while torch's `fetch`
runs, and only for batches that are measured; nobody else sees them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import hooks, torch_loader
from .clocks import every
from .files import FILES
from .recorder import RECORDER, Record, now
from .stacks import SAMPLER
from .torch_step import ATTRIBUTE, receiving

__all__ = ["install"]

thread_time = time.thread_time_ns
process_time = time.process_time_ns

# Reading /proc is asked for where batches and samples take longer than this on average.
PROC_BATCH = 2_000_000
PROC_SAMPLE = 1_000_000
TIMED_SAMPLE = 100_000
# Seconds to wait for the parent to say whose worker this is.
PATIENCE = 3_000_000_000


def install() -> None:
    """Patches fetchers and worker loops once they are imported."""
    hooks.when_imported("torch.utils.data._utils.fetch", _stock_fetchers)
    hooks.when_imported("torch.utils.data._utils.worker", _stock_worker)
    hooks.when_imported("torchdata.stateful_dataloader.worker", _stock_worker)
    hooks.when_imported("wellfed.torch._workers.worker", _our_worker)


def _stock_fetchers(module: ModuleType) -> None:
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        patch_fetcher(getattr(module, name))


def _stock_worker(module: ModuleType) -> None:
    module._worker_loop = loop_of(module._worker_loop)  # type: ignore[attr-defined]


def _our_worker(module: ModuleType) -> None:
    patch_fetcher(module.MapFetcher)
    patch_fetcher(module.IterableFetcher)
    module.run = our_loop_of(module.run)  # type: ignore[attr-defined]
    module.Packer.pack = pack_of(module.Packer.pack)


class Worker:
    """What this process is: a worker's number, -1 inline; and whose."""

    def __init__(self) -> None:
        self.number = -1
        # None where the parent leaves the number in a file.
        self.loader: int | None = None
        self.since = 0
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.number = -1
        self.loader = torch_loader.starting[0]
        LOGS.clear()

    def begin(self, number: int, count: int) -> None:
        """It turns out to be a worker."""
        self.number = number
        self.since = now()
        RECORDER.emit("role", t=self.since, worker=number, num_workers=count, tid=threading.get_native_id())
        FILES.install()
        RECORDER.drain_from(SENT.drain)
        SAMPLER.watch(threading.get_ident())
        SAMPLER.start()

    def known(self) -> bool:
        """Whether it is known which loader this process works for; looks for it."""
        if self.loader is not None:
            return True
        path = os.path.join(str(RECORDER.directory), f"{os.getpid()}.loader")
        try:
            with open(path, encoding="ascii") as file:
                self.loader = int(file.read())
            os.unlink(path)
        except (OSError, ValueError):
            if now() - self.since > PATIENCE:
                self.loader = 0
        return self.loader is not None

    def end(self) -> None:
        """The worker's loop is over."""
        SAMPLER.stop()
        if not self.known():
            self.since = 0
        RECORDER.flush()


LOGS: dict[int | None, FetchLog] = {}
WORKER = Worker()


def loop_of(original: Any) -> Any:
    """The worker loop of torch, announced."""
    names = list(inspect.signature(original).parameters)
    number, count = names.index("worker_id"), names.index("num_workers")

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        try:
            given = dict(zip(names, args)) | kwargs
            WORKER.begin(int(given[names[number]]), int(given[names[count]]))
            time_dumps()
        except Exception:
            RECORDER.failed("beginning a worker")
        try:
            return original(*args, **kwargs)
        finally:
            WORKER.end()

    return _worker_loop


def our_loop_of(original: Any) -> Any:
    """The life of a worker of wellfed's, announced."""

    @functools.wraps(original)
    def run(setup: Any, worker_id: int, *args: Any, **kwargs: Any) -> Any:
        try:
            WORKER.begin(worker_id, setup.num_workers)
        except Exception:
            RECORDER.failed("beginning a worker")
        try:
            return original(setup, worker_id, *args, **kwargs)
        finally:
            WORKER.end()

    return run


# Sending.


class Sent:
    """Batches that were sent."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def drain(self) -> Iterator[Record]:
        """Those since the last time."""
        count = len(self.rows)
        if count and WORKER.known():
            rows, self.rows[:count] = self.rows[:count], []
            t0, t1, cpu, size = map(list, zip(*rows))
            yield {
                "k": "send",
                "loader": WORKER.loader,
                "worker": WORKER.number,
                "t0": t0,
                "t1": t1,
                "cpu": cpu,
                "bytes": size,
            }


SENT = Sent()


def time_dumps() -> None:
    """Times the serialization of what this worker sends, in the thread that does it."""
    from multiprocessing.reduction import ForkingPickler

    original = ForkingPickler.dumps

    @functools.wraps(original)
    def dumps(*args: Any, **kwargs: Any) -> Any:
        t0, c0 = now(), thread_time()
        data = original(*args, **kwargs)
        SENT.rows.append((t0, now(), thread_time() - c0, len(data)))
        return data

    ForkingPickler.dumps = staticmethod(dumps)  # type: ignore[method-assign]


def pack_of(original: Any) -> Any:
    """Packing of a batch into shared memory, timed."""

    @functools.wraps(original)
    def pack(self: Any, *args: Any, **kwargs: Any) -> Any:
        t0, c0 = now(), thread_time()
        packed = original(self, *args, **kwargs)
        SENT.rows.append((t0, now(), thread_time() - c0, len(packed[0])))
        return packed

    return pack


# Fetching.


class Proc:
    """Numbers of the kernel's about this thread and process; files are opened once."""

    def __init__(self) -> None:
        self._files: list[int] = []
        for path in ("/proc/self/io", "/proc/thread-self/schedstat"):
            try:
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                self._files.append(-1)

    def io(self) -> tuple[int, int]:
        """Bytes that went through read calls, and bytes that came from storage."""
        if self._files[0] < 0:
            return 0, 0
        lines = os.pread(self._files[0], 512, 0).split()
        return int(lines[1]), int(lines[9])

    def delay(self) -> int:
        """Nanoseconds this thread was ready but not running."""
        if self._files[1] < 0:
            return 0
        return int(os.pread(self._files[1], 128, 0).split()[1])

    def close(self) -> None:
        """Gives the files back."""
        for file in self._files:
            if file >= 0:
                os.close(file)


# What a row of `FetchLog` has, and after that whether the kernel was asked.
FETCH_FIELDS = (
    "n",
    "t0",
    "t1",
    "cpu",
    "process_cpu",
    "delay",
    "collate",
    "collate_cpu",
    "bytes",
    "disk_bytes",
    "opens",
)


class FetchLog:
    """Batches that one thread of this process made for one loader.

    Attributes:
        skip: So many batches are not recorded.
        collate: Time and CPU time of the collation of the batch being made.
    """

    def __init__(self, loader: int | None) -> None:
        self.loader = loader
        self.generation = RECORDER.generation
        self.skip = 0
        self.collate = (0, 0)
        self.rows: list[tuple[int, ...]] = []
        self.samples: list[tuple[int, ...]] = []
        self.proc: Proc | None = None
        self._period = 0.0
        self._count = 0
        self._every = 1
        self._proc_every = 1
        self._sample_every = 1
        self.sample_bytes = False
        RECORDER.drain_from(self.drain)

    def fetch(self, original: Any, fetcher: Any, index: Any) -> Any:
        """What `fetch` of torch gives, measured."""
        self._count += 1
        every_one = self._every
        self.skip = every_one - 1
        turn = self._count
        exact = self._period >= PROC_BATCH or turn % self._proc_every == 0
        detailed = turn % self._sample_every == 0
        size = len(index) if hasattr(index, "__len__") else 1
        stand_ins = StandIns(fetcher)
        try:
            stand_ins.enter(self, detailed)
        except Exception:
            RECORDER.failed("timing samples")
        io0, delay0 = (0, 0), 0
        if exact:
            if self.proc is None:
                self.proc = Proc()
            io0, delay0 = self.proc.io(), self.proc.delay()
        self.collate = (0, 0)
        opens = FILES.opens
        outer, FILES.making = FILES.making, threading.get_ident()
        p0, c0, t0 = process_time(), thread_time(), now()
        try:
            return original(fetcher, index)
        finally:
            t1, c1, p1 = now(), thread_time(), process_time()
            FILES.making = outer
            stand_ins.leave()
            read = disk = delay = 0
            if exact and self.proc is not None:
                io1 = self.proc.io()
                read, disk = io1[0] - io0[0], io1[1] - io0[1]
                delay = self.proc.delay() - delay0
            self.rows.append(
                (
                    size,
                    t0,
                    t1,
                    c1 - c0,
                    p1 - p0,
                    delay,
                    *self.collate,
                    read,
                    disk,
                    FILES.opens - opens,
                    exact,
                )
            )
            if turn < 16 or turn % 16 == 0:
                self._adapt(t1 - t0, size)

    def _adapt(self, period: int, size: int) -> None:
        """How much of this may be measured: half a percent of the time."""
        self._period = period if self._period == 0 else 0.8 * self._period + 0.2 * period
        self._every = every(5, self._period, 0.007)
        # Two files, twice.
        self._proc_every = max(1, every(8, self._period * self._every, 0.003))
        each = (self._period - self.collate[0]) / max(1, size)
        self.sample_bytes = each >= PROC_SAMPLE
        self._sample_every = 1 if each >= TIMED_SAMPLE else every(3 * size, self._period * self._every)

    def drain(self) -> Iterator[Record]:
        """Batches since the last time."""
        if self.loader is None:
            if not WORKER.known():
                return
            self.loader = WORKER.loader
        common = {"loader": self.loader, "worker": WORKER.number}
        count = len(self.rows)
        rows, self.rows[:count] = self.rows[:count], []
        if rows:
            record: Record = {"k": "fetch", **common, "every": self._every}
            record.update({name: list(column) for name, column in zip(FETCH_FIELDS, zip(*rows))})
            if not all(row[-1] for row in rows):
                record["exact"] = [i for i, row in enumerate(rows) if row[-1]]
            yield record
        count = len(self.samples)
        samples, self.samples[:count] = self.samples[:count], []
        if samples:
            index, wall, cpu, read, opens = map(list, zip(*samples))
            record = {"k": "samples", **common, "index": index, "wall": wall, "cpu": cpu, "opens": opens}
            record["bytes"] = read if min(read) >= 0 else []
            yield record


class StandIns:
    """Timed objects in place of a fetcher's, until `leave`."""

    def __init__(self, fetcher: Any) -> None:
        self.fetcher = fetcher
        self.collate = fetcher.collate_fn
        self.name = ""
        self.original: Any = None

    def enter(self, log: FetchLog, detailed: bool) -> None:
        """Puts them in place; those of samples only if it is to be `detailed`."""
        fetcher = self.fetcher
        fetcher.collate_fn = functools.partial(collate_timed, log, self.collate)
        if not detailed:
            return
        if "dataset_iter" in vars(fetcher):
            self.original = fetcher.dataset_iter
            fetcher.dataset_iter = TimedIterator(self.original, log)
            self.name = "dataset_iter"
        elif fetcher.auto_collation:
            stand_in = timed(fetcher.dataset, log)
            if stand_in is not None:
                self.original = fetcher.dataset
                fetcher.dataset = stand_in
                self.name = "dataset"

    def leave(self) -> None:
        """Puts the fetcher's own back."""
        self.fetcher.collate_fn = self.collate
        if self.name:
            setattr(self.fetcher, self.name, self.original)


def collate_timed(log: FetchLog, collate: Any, data: Any) -> Any:
    """Collation, timed."""
    c0, t0 = thread_time(), now()
    try:
        return collate(data)
    finally:
        log.collate = (now() - t0, thread_time() - c0)


def timed(dataset: Any, log: FetchLog) -> Any:
    """A data set whose samples are timed; None for one that gives only whole batches."""
    whole = getattr(dataset, "__getitems__", None)
    if not whole:
        return TimedDataset(dataset, log)
    inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
    if (
        type(dataset).__module__ != "torch.utils.data.dataset"
        or inner is None
        or hasattr(inner, "__getitems__")
    ):
        return None
    # A Subset asks the data set in it for one sample after the other.
    other = copy.copy(dataset)
    other.dataset = TimedDataset(inner, log)
    return other


class TimedDataset:
    """A data set that notes how long each sample takes."""

    def __init__(self, dataset: Any, log: FetchLog) -> None:
        self._dataset = dataset
        self._log = log

    def __getitem__(self, index: Any) -> Any:
        log = self._log
        opens = FILES.opens
        read = log.proc.io()[0] if log.sample_bytes and log.proc is not None else -1
        c0, t0 = thread_time(), now()
        value = self._dataset[index]
        t1 = now()
        cpu = thread_time() - c0
        if read >= 0 and log.proc is not None:
            read = log.proc.io()[0] - read
        number = index if type(index) is int else -1
        log.samples.append((number, t1 - t0, cpu, read, FILES.opens - opens))
        return value

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class TimedIterator:
    """An iterator over an iterable data set that notes how long each sample takes."""

    def __init__(self, iterator: Any, log: FetchLog) -> None:
        self._iterator = iterator
        self._log = log

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        log = self._log
        opens = FILES.opens
        read = log.proc.io()[0] if log.sample_bytes and log.proc is not None else -1
        c0, t0 = thread_time(), now()
        value = next(self._iterator)
        t1 = now()
        cpu = thread_time() - c0
        if read >= 0 and log.proc is not None:
            read = log.proc.io()[0] - read
        log.samples.append((-1, t1 - t0, cpu, read, FILES.opens - opens))
        return value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def log_for(fetcher: Any) -> FetchLog | None:
    """The log that this fetcher's batches belong to; None for a loader within a worker."""
    try:
        steps = receiving()
        if WORKER.number >= 0:
            if steps is not None:
                return None
            key = None
        else:
            key = 0 if steps is None else steps.log.number
        log = LOGS.get(key)
        if log is None:
            log = LOGS[key] = FetchLog(key)
        vars(fetcher)[ATTRIBUTE] = log
        return log
    except Exception:
        RECORDER.failed("noting a batch")
        return None


def patch_fetcher(kind: type) -> None:
    """Patches the `fetch` that this class defines."""
    original = vars(kind)["fetch"]

    @functools.wraps(original)
    def fetch(self: Any, possibly_batched_index: Any) -> Any:
        log = self.__dict__.get(ATTRIBUTE)
        if log is None or log.generation != RECORDER.generation:
            log = log_for(self)
            if log is None:
                return original(self, possibly_batched_index)
        if log.skip > 0:
            log.skip -= 1
            return original(self, possibly_batched_index)
        return log.fetch(original, self, possibly_batched_index)

    kind.fetch = fetch  # type: ignore[attr-defined]
