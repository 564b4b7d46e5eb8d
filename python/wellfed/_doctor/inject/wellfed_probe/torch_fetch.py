"""Patches what makes batches, in workers and inline: the records `fetch` and `samples`.

Invariants: the data set, its iterator and the collate function are exchanged for timed ones only while torch's `fetch`
runs, and only for batches that are measured so closely; nobody else sees them. Measuring takes about one percent of
the time: what it costs is measured, too, and done as often as that allows.
"""

from __future__ import annotations

import copy
import functools
import os
import threading
import time
from collections.abc import Iterator
from operator import getitem
from types import ModuleType
from typing import Any

from . import hooks
from .clocks import Price, every
from .files import FILES
from .profile import EVENT_NS, Tracer
from .recorder import RECORDER, Record, now
from .stacks import SAMPLER
from .torch_step import ATTRIBUTE, receiving
from .torch_worker import WORKER

__all__ = ["install"]

thread_time = time.thread_time_ns
process_time = time.process_time_ns

# Shares of the time that these may take: clocks of batches, the kernel's numbers about them, samples, and tracing
# samples.
CLOCKS = 0.002
KERNEL = 0.0005
SAMPLES = 0.002
TRACES = 0.002
# Recording the begin and end of a batch.
PLAIN_NS = 3000
# How long samples take, on average, where the kernel is asked about each.
SAMPLE_BYTES = 2_000_000
# Bytes by which the kernel's numbers may grow longer in a run.
DIGITS = 64
# The batch that tells whether files are read: the first one's imports are files, too.
SECOND = 2

# Samples before the first that is traced: what is loaded or compiled at the first call is no sample's.
TRACE_AFTER = 3

FIELDS = (
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
# Estimated for batches whose clocks were not read: as they went for the last whose were.
ESTIMATED = (3, 4, 6, 7)

LOGS: dict[int | None, FetchLog] = {}


def install() -> None:
    """Patches fetchers once they are imported."""
    hooks.when_imported("torch.utils.data._utils.fetch", _stock)
    hooks.when_imported("wellfed.torch._workers.worker", _ours)
    RECORDER.resets.append(LOGS.clear)


def _stock(module: ModuleType) -> None:
    patch(module._MapDatasetFetcher)
    patch(module._IterableDatasetFetcher)


def _ours(module: ModuleType) -> None:
    patch(module.MapFetcher)
    patch(module.IterableFetcher)


def patch(kind: type) -> None:
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


def log_for(fetcher: Any) -> FetchLog | None:
    """The log that this fetcher's batches belong to; None for a loader within a worker."""
    if RECORDER.directory is None:
        return None
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


class Proc:
    """Numbers of the kernel's about this thread and process; files are opened once."""

    def __init__(self) -> None:
        self._files: list[int] = []
        for path in ("/proc/self/io", "/proc/thread-self/schedstat"):
            try:
                self._files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                self._files.append(-1)
        # Looking is reading, too. Numbers get longer by a few digits.
        before = self.io()[0]
        self.delay()
        self._own = self.io()[0] - before + DIGITS

    def io(self) -> tuple[int, int]:
        """Bytes that went through read calls, and bytes that came from storage."""
        if self._files[0] < 0:
            return 0, 0
        lines = os.pread(self._files[0], 512, 0).split()
        return int(lines[1]), int(lines[9])

    def reads(self, read: int, disk: int) -> bool:
        """Whether so many bytes between two looks may be those of files: more than looking itself reads."""
        return self._files[0] < 0 or read > self._own or disk > 0

    def delay(self) -> int:
        """Nanoseconds this thread was ready but not running."""
        if self._files[1] < 0:
            return 0
        return int(os.pread(self._files[1], 128, 0).split()[1])


class FetchLog:
    """Batches that one thread of this process made for one loader.

    Attributes:
        skip: So many batches are not recorded.
        collate: Time and CPU time of the collation of the batch being made.
        sample_price: What it costs to time a sample.
        sample_bytes: Whether the kernel is asked about each sample.
    """

    def __init__(self, loader: int | None) -> None:
        self.loader = loader
        self.generation = RECORDER.generation
        self.skip = 0
        self.collate = (0, 0)
        # Fields of the record; whether clocks were read; whether the kernel was asked; one in how many it is.
        self.rows: list[tuple[Any, ...]] = []
        self.samples: list[tuple[int, ...]] = []
        self.proc: Proc | None = None
        self.sample_bytes = False
        self.sample_price = Price()
        self.tracer = Tracer()
        self._until_trace = TRACE_AFTER
        self._clock_price = Price()
        self._kernel_price = Price()
        self._period = 0.0
        self._turn = 0
        self._every = 1
        self._clocks_every = 1
        self._kernel_every = 1
        self._samples_every = 1
        self._share = [0.0] * len(FIELDS)
        RECORDER.drain_from(self.drain)

    def fetch(self, original: Any, fetcher: Any, index: Any) -> Any:
        """What `fetch` of torch gives, measured."""
        self._turn += 1
        self.skip = self._every - 1
        opens = FILES.opens
        outer, FILES.making = FILES.making, threading.get_ident()
        try:
            if self._turn == SECOND or self._turn % self._clocks_every == 0:
                return self._closely(original, fetcher, index, opens)
            t0 = now()
            value = original(fetcher, index)
            t1 = now()
        finally:
            FILES.making = outer
        size = len(index) if hasattr(index, "__len__") else 1
        self.rows.append((size, t0, t1, 0, 0, 0, 0, 0, 0, 0, FILES.opens - opens, False, False, self._every))
        self._adapt(t1 - t0, size)
        return value

    def _closely(self, original: Any, fetcher: Any, index: Any, opens: int) -> Any:
        begin = now()
        turn = self._turn // self._clocks_every
        exact = self._turn == SECOND or turn % self._kernel_every == 0
        size = len(index) if hasattr(index, "__len__") else 1
        stand_ins = StandIns(fetcher)
        try:
            stand_ins.enter(self, turn % self._samples_every == 0)
        except Exception:
            RECORDER.failed("timing samples")
        io, delay = (0, 0), 0
        kernel = now()
        if exact:
            if self.proc is None:
                self.proc = Proc()
            io, delay = self.proc.io(), self.proc.delay()
        self.collate = (0, 0)
        kernel = now() - kernel
        p0, c0, t0 = process_time(), thread_time(), now()
        try:
            return original(fetcher, index)
        finally:
            t1, c1, p1 = now(), thread_time(), process_time()
            stand_ins.leave()
            read = disk = 0
            if exact and self.proc is not None:
                after = self.proc.io()
                read, disk = after[0] - io[0], after[1] - io[1]
                delay = self.proc.delay() - delay
                self._kernel_price.paid(2 * kernel)
                if self._turn >= SECOND and self.proc.reads(read, disk):
                    FILES.install()
            opened = FILES.opens - opens
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
                    opened,
                    True,
                    exact,
                    self._every,
                )
            )
            self._clock_price.paid(now() - begin - (t1 - t0) - (2 * kernel if exact else 0))
            self._adapt(t1 - t0, size)

    def _adapt(self, period: int, size: int) -> None:
        """How much of this may be done."""
        self._period = period if self._period == 0 else 0.9 * self._period + 0.1 * period
        if self._turn > 16 and self._turn % 16:
            return
        self._every = every(PLAIN_NS, self._period, CLOCKS)
        recorded = self._period * self._every
        self._clocks_every = self._clock_price.every(recorded, CLOCKS)
        recorded *= self._clocks_every
        self._kernel_every = self._kernel_price.every(recorded, KERNEL)
        self._samples_every = self.sample_price.every(recorded, SAMPLES, size)
        self.sample_bytes = (self._period - self.collate[0]) / max(1, size) >= SAMPLE_BYTES

    def trace(self) -> bool:
        """Whether the next sample is to be traced."""
        self._until_trace -= 1
        return self._until_trace <= 0 and self.tracer.possible

    def traced(self, sample: float) -> None:
        """One was, where a batch's samples take so long: the next one after a while."""
        self._until_trace = every(EVENT_NS * self.tracer.events, sample * self._samples_every, TRACES)

    def drain(self) -> Iterator[Record]:
        """Batches since the last time."""
        if self.loader is None:
            if not WORKER.known():
                return
            self.loader = WORKER.loader
        common = {"loader": self.loader, "worker": WORKER.number}
        count = len(self.rows)
        rows, self.rows[:count] = self.rows[:count], []
        begin = 0
        for i in range(1, count + 1):
            if i == count or rows[i][-1] != rows[i - 1][-1]:
                yield {"k": "fetch", **common, **self._record(rows[begin:i])}
                begin = i
        count = len(self.samples)
        samples, self.samples[:count] = self.samples[:count], []
        if samples:
            index, wall, cpu, read, opens = map(list, zip(*samples))
            record: Record = {"index": index, "wall": wall, "cpu": cpu, "opens": opens}
            record["bytes"] = read if min(read) >= 0 else []
            yield {"k": "samples", **common, **record}
        profile = self.tracer.record()
        if profile is not None:
            yield from SAMPLER.described()
            yield {**profile, **common}

    def _record(self, rows: list[tuple[Any, ...]]) -> Record:
        """Rows as lists, with estimates where clocks were not read."""
        full = []
        for row in rows:
            wall = max(1, row[2] - row[1])
            if row[-3]:
                for i in ESTIMATED:
                    self._share[i] = row[i] / wall
                full.append(row)
            else:
                guess = list(row)
                for i in ESTIMATED:
                    guess[i] = int(self._share[i] * wall)
                full.append(tuple(guess))
        record: Record = {name: list(column) for name, column in zip(FIELDS, zip(*full))}
        record["every"] = rows[0][-1]
        if not all(row[-2] for row in rows):
            record["exact"] = [i for i, row in enumerate(rows) if row[-2]]
        return record


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
    if not getattr(dataset, "__getitems__", None):
        return TimedDataset(dataset, log)
    inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
    stock = type(dataset).__module__ == "torch.utils.data.dataset"
    if not stock or inner is None or hasattr(inner, "__getitems__"):
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
        return sample_timed(self._log, self._dataset, index)

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
        return sample_timed(self._log, self._iterator, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def sample_timed(log: FetchLog, source: Any, index: Any) -> Any:
    """``source[index]``, or the next of `source` for None, timed."""
    if log.trace():
        t0 = now()
        try:
            return log.tracer.run(next, source) if index is None else log.tracer.run(getitem, source, index)
        finally:
            # Its time is not that of a sample.
            log.traced(max(1, now() - t0 - EVENT_NS * log.tracer.events))
    begin = now()
    opens = FILES.opens
    read = log.proc.io()[0] if log.sample_bytes and log.proc is not None else -1
    c0, t0 = thread_time(), now()
    value = next(source) if index is None else source[index]
    t1 = now()
    cpu = thread_time() - c0
    if read >= 0 and log.proc is not None:
        read = log.proc.io()[0] - read
    number = index if type(index) is int else -1
    log.samples.append((number, t1 - t0, cpu, read, FILES.opens - opens))
    log.sample_price.paid(now() - begin - (t1 - t0))
    return value
