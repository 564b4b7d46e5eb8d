"""`Steps`: what one iterator over a loader did, step by step, from the moments its `__next__` was entered and left.

The framework's patch calls `enter` and `leave` (or does what they do, where a call is too dear). Invariant: per step
two readings of the clock and one append; what costs more (CPU clocks, limits) is done at every so-many-th step. Half of
the steps of a millisecond are only counted, and most of those of microseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .clocks import Price
from .control import CONTROL, FAR, is_worker
from .recorder import RECORDER, Record, now
from .stacks import SAMPLER
from .torch_device import Device, device_for

__all__ = ["LoaderLog", "Steps"]

thread_time = time.thread_time_ns
process_time = time.process_time_ns

# Steps shorter than this are recorded in bursts, at most half of the time: noting one takes some 4 us in a loop that
# has used the caches for something else meanwhile.
SHORT = 2_000_000
BURST = 256
CHECK = 64
PAUSE = 250_000_000
# Share of the time that reading CPU clocks may take.
CLOCKS = 0.001

_all: list[LoaderLog] = []


def close_all() -> None:
    """Ends what is being noted; iterators go on without."""
    for log in _all:
        for steps in list(log.active):
            steps.close()


class LoaderLog:
    """A loader: its number, and the steps over all of its iterators.

    Attributes:
        number: Within the process.
        iterators: How many were made.
        first: When its first step began.
        steps: Taken in iterators that ended.
        spent: Nanoseconds in the loops of iterators that ended.
        now: Steps of the iterator that was made last, until that ends.
        active: Steps of all iterators that have not ended.
        clocks_price: What it costs to read CPU clocks around a step.
        clocks_every: Of so many steps, two are measured with CPU clocks; 1: all are.
        tell: Gives the record that announces it; again in each process that uses it.
    """

    def __init__(self, tell: Callable[[int], Record]) -> None:
        self.number = len(_all)
        self.iterators = 0
        self.first = 0
        self.steps = 0
        self.spent = 0
        self.now: Steps | None = None
        self.active: list[Steps] = []
        self.clocks_price = Price()
        self.clocks_every = 1
        self.told: int | None = None
        self.tell = tell
        _all.append(self)

    def announce(self) -> None:
        """Writes what it is, once a process."""
        if self.told == RECORDER.generation or RECORDER.directory is None:
            return
        self.told = RECORDER.generation
        try:
            RECORDER._waiting.append(self.tell(self.number))
        except Exception:
            RECORDER.failed("describing a loader")

    def total(self) -> int:
        """Nanoseconds in its loops."""
        return self.spent + sum(steps.last - steps.begin for steps in list(self.active))


class Steps:
    """Steps of one iterator.

    Attributes:
        n: Steps so far.
        limit: At this step `check` is to be called before it begins.
        gone: Tells that the iterator does not exist any more.
        owner: Class whose `__next__` is the one that counts.
        clocks: At this step CPU clocks are read.
        skip: Up to this step, steps are only counted.
        unpickle: Nanoseconds that went into rebuilding the batch of the step that runs.
        ending: Called once no step will follow.
    """

    def __init__(self, log: LoaderLog, t0: int, t1: int, alone: bool = True) -> None:
        """Begins at `t1`; `alone`: the loader has no other iterator from now on."""
        log.announce()
        if alone and log.now is not None:
            log.now.close()
        self.log = log
        self.iter = log.iterators
        log.iterators += 1
        log.now = self
        self.n = 0
        self.limit = 0
        self.owner: type | None = None
        self.gone: Any = None
        self.clocks = 0
        self.skip = 0
        self.unpickle = 0
        self.begin = self.last = t1
        self.ended = RECORDER.directory is None
        if not self.ended:
            log.active.append(self)
        self.generation = RECORDER.generation
        self.rows: list[tuple[int, ...]] = []
        self.add = self.rows.append
        self._period = 0.0
        self._wait_share = [0.0, 0.0]
        self._compute_share = [0.0, 0.0]
        self._before: tuple[Any, ...] | None = None
        self._read: int | None = None
        self.device: Device | None = None
        self.listeners: list[Callable[[int, Any], Any]] = []
        self.ending: Callable[[], Any] | None = None
        RECORDER.emit("iter", loader=log.number, iter=self.iter, t0=t0, t1=t1)
        RECORDER.drain_from(self.drain)
        self.thread = threading.get_ident()
        SAMPLER.watch(self.thread)
        SAMPLER.start()

    def check(self) -> None:
        """Before a step, once in a while: looks after the thread that writes, and ends the diagnosis if it is time."""
        SAMPLER.start()
        self.thread = threading.get_ident()
        if self.generation != RECORDER.generation:
            self._again()
        n = self.n
        self.limit = n + CHECK
        self._thin_out(n)
        if self.device is None:
            self.device = device_for(self.log.number, self.iter)
        elif n:
            self.device.pace((now() - self.begin) / n)
        if not CONTROL.limited or is_worker():
            return
        log = self.log
        t = now()
        if log.first == 0:
            log.first = t
        late = t - log.first >= CONTROL.time
        left = CONTROL.steps - log.steps - n
        if late or left <= 0:
            self.last = t
            if log.total() >= max(other.total() for other in _all):
                CONTROL.end("time" if late else "steps")
        self.limit = n + 1 if CONTROL.time < FAR or left <= 0 else min(self.limit, n + left)
        self.skip = min(self.skip, n + max(left, 0))

    def _again(self) -> None:
        """This process was forked from the one that made the iterator, and goes on with it."""
        self.generation = RECORDER.generation
        self.rows.clear()
        self.log.announce()
        RECORDER.emit("iter", loader=self.log.number, iter=self.iter, t0=self.begin, t1=self.begin)
        RECORDER.drain_from(self.drain)
        self.thread = threading.get_ident()
        SAMPLER.watch(self.thread)

    def _thin_out(self, n: int) -> None:
        """Has the steps that follow only counted, if many short ones wait to be written."""
        rows = self.rows
        count = len(rows)
        if count < BURST:
            return
        period = (rows[count - 1][2] - rows[0][1]) / count
        if period < SHORT:
            self.skip = n + max(count, int(PAUSE / max(period, 1000)))

    # What follows is one step; `next_of` in torch_step.py has it in one piece.

    def enter(self) -> tuple[int, ...]:
        """A step begins; returns what `leave` is given."""
        if self.n >= self.limit:
            self.check()
        self.unpickle = 0
        if self.n >= self.clocks:
            begin = now()
            p0 = process_time()
            c0 = thread_time()
            t0 = now()
            return t0, c0, p0, t0 - begin
        return (now(),)

    def leave(self, entered: tuple[int, ...]) -> None:
        """A step was handed out."""
        if self.ended:
            return
        t1 = now()
        if len(entered) > 1:
            t0, c0, p0, spent = entered
            c1 = thread_time()
            self.add((self.n, t0, t1, self.unpickle, c0, c1, p0, process_time()))
            self.measured(spent + now() - t1)
        else:
            self.add((self.n, entered[0], t1, self.unpickle))
        self.n += 1

    def measured(self, spent: int) -> None:
        """CPU clocks were read, in so many nanoseconds: says when next.

        Two steps in a row, so that the way between them is known, too.
        """
        n = self.n
        log = self.log
        log.clocks_price.paid(spent)
        if log.clocks_every > 2 and n % 2:
            self.clocks = n + log.clocks_every + (log.clocks_every + n) % 2
        else:
            self.clocks = n + 1

    def hear(self, batch: Any) -> None:
        """Shows a batch to those who want to see one; each is asked until it says that it has seen enough."""
        for listener in list(self.listeners):
            try:
                done = listener(self.n - 1, batch)
            except Exception:
                RECORDER.failed("looking at a batch")
                done = True
            if done:
                self.listeners.remove(listener)

    def end(self, t0: int) -> None:
        """`StopIteration` came out of the step that began at `t0`."""
        if not self.ended:
            self.last = t = now()
            RECORDER.emit("end", loader=self.log.number, iter=self.iter, t0=t0, t=t, steps=self.n)
            self.close()

    def close(self) -> None:
        """No step will follow."""
        if self.ended:
            return
        self.ended = True
        self.log.spent += self.last - self.begin
        self.log.steps += self.n
        self.log.active.remove(self)
        if self.log.now is self:
            self.log.now = None
        if self.ending is not None:
            self.ending()

    def drain(self) -> Iterator[Record]:
        """Steps since the last time."""
        # Before the rows are taken, or its last ones would stay.
        ended = self.ended
        count = len(self.rows)
        rows, self.rows[:count] = self.rows[:count], []
        if rows:
            self.last = max(self.last, rows[-1][2])
            self._adapt(rows)
            begin = 0
            for i in range(1, len(rows) + 1):
                if i == len(rows) or rows[i][0] != rows[i - 1][0] + 1:
                    yield self._record(rows[begin:i])
                    begin = i
        if self.device is not None:
            yield from self.device.drain()
        if ended and self.drain in RECORDER.drains:
            RECORDER.drains.remove(self.drain)

    def _adapt(self, rows: list[tuple[int, ...]]) -> None:
        steps = rows[-1][0] - rows[0][0]
        if steps < 1:
            return
        period = (rows[-1][1] - rows[0][1]) / steps
        self._period = period if self._period == 0 else 0.5 * (self._period + period)
        wanted = self.log.clocks_price.every(self._period, CLOCKS)
        self.log.clocks_every = 1 if wanted <= 1 else max(4, 2 * wanted)

    def _record(self, rows: list[tuple[int, ...]]) -> Record:
        c0, c1 = self._cpu(rows, 4, 0)
        p0, p1 = self._cpu(rows, 6, 1)
        self._before = (*rows[-1][:3], c1[-1], p1[-1], self._read)
        unpickle = [row[3] for row in rows]
        return {
            "k": "steps",
            "loader": self.log.number,
            "iter": self.iter,
            "first": rows[0][0],
            "t0": [row[1] for row in rows],
            "t1": [row[2] for row in rows],
            "c0": c0,
            "c1": c1,
            "p0": p0,
            "p1": p1,
            "unpickle": unpickle,
        }

    def _cpu(self, rows: list[tuple[int, ...]], column: int, which: int) -> tuple[list[int], list[int]]:
        """Clock at the begin and end of each wait. Where it was not read: as it went where it was read last."""
        before = self._before
        t, c = (before[2], before[3 + which]) if before is not None else (rows[0][1], 0)
        # Step after which the clock was read last.
        read = None if before is None else before[5]
        begins, ends = [], []
        for row in rows:
            step, t0, t1 = row[:3]
            if len(row) > 4:
                a, b = row[column], row[column + 1]
                if read == step - 1:
                    self._compute_share[which] = max(0.0, (a - c) / max(1, t0 - t))
                self._wait_share[which] = (b - a) / max(1, t1 - t0)
                read = step
            else:
                a = c + int((t0 - t) * self._compute_share[which])
                b = a + int((t1 - t0) * self._wait_share[which])
            # Estimates may have run ahead of the clock.
            a = max(a, c)
            c = max(a, b)
            t = t1
            begins.append(a)
            ends.append(c)
        self._read = read
        return begins, ends
