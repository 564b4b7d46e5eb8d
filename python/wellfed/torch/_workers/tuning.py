"""`Tuner`: how many worker processes `num_workers="auto"` has, found by measuring whole epochs.

It begins with one worker for each core. Where the loop over batches waits for them while cores are idle, the samples
wait for a disk or a network, and the next epoch tries twice as many; that many stay if they are worth it. No value of a
batch depends on the number (see `DataLoader`), so neither does a resumed run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler

from ..._cores import CGROUP
from .._order import sees_nothing
from .._stateful import is_stateful

__all__ = ["Epoch", "Pace", "Tuner", "free_memory", "tuner_of"]

PROC = Path("/proc")

WORTH = 1.1
"""How many times as fast a larger number must be to stay."""
WAITING = 0.05
"""Of its time, what the loop waits for batches if it is they that are slow."""
BUSY = 0.7
"""Of the cores, what the workers use if it is not a disk or a network that is slow."""
SHORTEST = 1.0
"""Seconds that an epoch must take to be a measurement."""


class Epoch(NamedTuple):
    """What was measured in an epoch.

    Attributes:
        workers: How many there were.
        rate: Batches a second, the start of the workers included.
        waiting: The share of its time in which the caller waited for a batch.
        busy: Cores that the workers kept busy on average, from the first batch to the last.
        memory: Bytes that they held at its end, what they share divided among them.
    """

    workers: int
    rate: float
    waiting: float
    busy: float
    memory: int


class Tuner:
    """Decides the number of workers of each epoch.

    Args:
        cores: Cores to use, and the number to begin with.
        room: Bytes that there are for more workers, asked when these would be started.
    """

    def __init__(self, cores: int, room: Callable[[], int] | None = None) -> None:
        self.cores = self.workers = cores
        self.most = 4 * cores
        self.story: list[str] = []
        self._room = free_memory if room is None else room
        self._before: Epoch | None = None
        self._done = False

    def learn(self, epoch: Epoch | None) -> None:
        """Takes what an epoch with the present number was like into account; None: it was too short to tell."""
        if epoch is None:
            if self._before is not None:
                self.workers, self._done = self._before.workers, True
            return
        if self._done or epoch.workers != self.workers:
            return
        before, self._before = self._before, None
        if before is not None and epoch.rate < WORTH * before.rate:
            self.story.append(f"{epoch.workers} were {epoch.rate / before.rate:.2f}x as fast")
            self.workers, self._done = before.workers, True
            return
        if before is not None:
            self.story.append(
                f"{epoch.workers} were {epoch.rate / before.rate:.1f}x as fast as {before.workers}"
            )
        slow = epoch.waiting > WAITING and epoch.busy < BUSY * self.cores
        if slow and 2 * self.workers <= self.most and epoch.memory < self._room() // 4:
            self._before = epoch
            self.workers *= 2


class Pace:
    """Measures one epoch of a pool of processes.

    Args:
        pids: Gives their process numbers, once a batch has come.
    """

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self._pids = pids
        self._workers: list[int] = []
        self._began = time.perf_counter()
        self._first = self._last = self._waited = self._used = 0.0
        self._batches = 0

    def came(self, asked: float) -> None:
        """A batch came that was asked for at `asked`, by `time.perf_counter`."""
        self._last = time.perf_counter()
        self._waited += self._last - asked
        if self._batches == 0:
            self._workers = self._pids()
            self._first, self._used = self._last, sum(map(cpu_seconds, self._workers))
        self._batches += 1

    def finish(self) -> Epoch | None:
        """The measurement, asked for while the workers are there; None if the epoch was too short to be one."""
        took, working = self._last - self._began, self._last - self._first
        if working < SHORTEST or self._batches < 8 * len(self._workers):
            return None
        used = max(0.0, sum(map(cpu_seconds, self._workers)) - self._used)
        memory = sum(map(held_memory, self._workers))
        return Epoch(len(self._workers), self._batches / took, self._waited / took, used / working, memory)


def tuner_of(loader: Any) -> Tuner | None:
    """What decides the number of workers of a loader with ``num_workers="auto"``; None if it stays as it is.

    It stays where something else than speed might depend on it: how often a sampler of one's own was asked when a loop
    is broken off, a generator that the order is drawn from (torch's sampler draws from it once more when it has given
    its last index), and states that workers hold. Workers that live on keep their number, too.
    """
    sampler = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    generators = (loader.generator, *(getattr(part, "generator", None) for part in samplers(sampler)))
    if (
        loader.persistent_workers
        or any(generator is not None for generator in generators)
        or not sees_nothing(sampler)
        or is_stateful(loader.dataset)
        or is_stateful(loader.collate_fn)
    ):
        return None
    return Tuner(loader.num_workers)


def samplers(sampler: Any) -> list[Any]:
    """A sampler and the one within."""
    return [sampler, sampler.sampler] if isinstance(sampler, BatchSampler) else [sampler]


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time that a process has used; 0 if that cannot be told."""
    try:
        # The name, in brackets, may hold anything.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def held_memory(pid: int) -> int:
    """Bytes that a process holds, those that others hold, too, divided among them; 0 if that cannot be told."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 0


def free_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> int:
    """Bytes that may still be taken: of the machine, and of the control group if that has a limit; 0 if not known."""
    free = 0
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) << 10
        limit = (cgroup / "memory.max").read_text().strip()
        if limit != "max":
            free = min(free, int(limit) - int((cgroup / "memory.current").read_text()))
    except (OSError, ValueError, IndexError):
        pass
    return max(0, free)
