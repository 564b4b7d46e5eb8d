"""Worker threads: batches made side by side in this process, on request.

Invariant: order, errors, timeouts and states are those of worker processes, by the same code. Threads share the data
set itself and the random generators of the process; nothing here seeds or copies them. The threads know nothing of
the iterator, so they end when that is dropped.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import traceback
import warnings
import weakref
from queue import Empty, SimpleQueue
from typing import Any

import torch
from torch.utils.data import MapDataPipe
from torch.utils.data import get_worker_info as stock_worker_info

from .._fetch import MapFetcher, Stopped, located, with_bad
from .._precision import cast
from .._private import DatasetKind, ExceptionWrapper, WorkerInfo
from .._resume import Resume
from .._stateful import is_stateful
from .setup import BATCH, FAILED, STARTED, STOP_GRACE, Setup
from .tasks import TasksIterator

__all__ = ["THREAD", "ThreadsIterator", "check", "get_worker_info", "in_threads"]

THREAD = "thread"
"""The value of `multiprocessing_context` that asks for threads."""

LOOK = 1.0
"""Seconds after which whoever waits for a batch looks whether the threads still exist."""

here = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """What `torch.utils.data.get_worker_info` says, also in worker threads, of which that knows nothing.

    Returns:
        In a worker: `id`, `num_workers`, `dataset` and `seed`; elsewhere None. In a thread, `dataset` is the one that
        all threads share, and nothing was seeded with `seed`: it is for generators of the worker's own.

    Example:
        >>> from wellfed.torch import DataLoader, get_worker_info
        >>> class Who:
        ...     def __len__(self):
        ...         return 4
        ...     def __getitem__(self, i):
        ...         return get_worker_info().id
        >>> [x.tolist() for x in DataLoader(Who(), 2, num_workers=2, multiprocessing_context="thread")]
        [[0, 0], [1, 1]]
        >>> get_worker_info() is None
        True
    """
    info: WorkerInfo | None = getattr(here, "info", None)
    return stock_worker_info() if info is None else info


def in_threads(loader: Any) -> bool:
    """Whether the workers of `loader` are threads: only where that is asked for, since they share the generators."""
    return bool(loader.num_workers > 0 and loader.multiprocessing_context == THREAD)


def obstacle(loader: Any) -> str | None:
    """Why threads cannot do what `loader` is to do; None if they can."""
    if loader._dataset_kind != DatasetKind.Map or isinstance(loader.dataset, MapDataPipe):
        return "it takes its share from torch.utils.data.get_worker_info(), which knows nothing of threads"
    if is_stateful(loader.dataset) or is_stateful(loader.collate_fn):
        what = "the data set" if is_stateful(loader.dataset) else "collate_fn"
        return f"{what} carries a state (state_dict), which threads would change at the same time"
    return None


def check(loader: Any) -> None:
    """Raises a ValueError where threads were asked for and cannot be."""
    if loader.num_workers > 0 and loader.multiprocessing_context == THREAD:
        why = obstacle(loader)
        if why is not None:
            raise ValueError(
                f"multiprocessing_context='thread' is not possible for a {type(loader.dataset).__name__}: {why}"
                "\nhint: leave it out, and its workers are processes"
            )


class ThreadsIterator(TasksIterator):
    """Batches of worker threads."""

    _pool: WorkerThreads

    def __init__(self, loader: Any, resume: Resume | None = None) -> None:
        check(loader)
        super().__init__(loader, resume)

    def _start(self, setup: Setup, loader: Any) -> WorkerThreads:
        return WorkerThreads(setup)

    def _process(self, number: int) -> threading.Thread:
        return self._pool.members[number].thread

    def _who(self, worker: int) -> str:
        return f"DataLoader worker thread {worker}"

    def _released(self, number: int) -> list[int]:
        return []

    def _unpack(self, worker: int, message: Any) -> Any:
        return message[4]

    def _discard(self, worker: int, message: Any) -> None:
        pass


class WorkerThreads:
    """The threads of one iterator: as a `Pool` is to its consumer, but batches are handed over as they are."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.owner = os.getpid()
        self.closed = False
        self.messages: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        self.members = [WorkerThread(setup, self.messages, number) for number in range(setup.num_workers)]
        alive.add(self)
        threads_of_torch = torch.get_num_threads()
        try:
            for member in self.members:
                member.thread.start()
            for member in self.members:
                member.began.wait()
        except BaseException:
            self.close()
            raise
        finally:
            # Each of ours has set 1 for itself, and by that for threads of others that start later.
            torch.set_num_threads(threads_of_torch)

    def post(self, number: int, *task: Any) -> None:
        """Send to a thread."""
        self.members[number].tasks.put(task)

    def wait(self, seconds: float | None) -> list[tuple[int, Any]]:
        """Messages that came in within `seconds`, or within a time of our own, with the number of their thread.

        Raises:
            RuntimeError: The threads are in another process.
        """
        arrived: list[tuple[int, Any]] = []
        try:
            arrived.append(
                self.messages.get(timeout=LOOK if seconds is None else min(max(0.0, seconds), LOOK))
            )
            while True:
                arrived.append(self.messages.get_nowait())
        except Empty:
            pass
        if not arrived and os.getpid() != self.owner:
            raise RuntimeError(
                "the worker threads of this iterator are in the process that this one was forked from"
                "\nhint: call iter(loader) anew"
            )
        return arrived

    def stacks(self, number: int) -> str:
        """What a thread does."""
        return self.members[number].stack()

    def close(self, dying: bool = False) -> None:
        """End all threads; returns when they are gone, or are not to be had. `dying`: called by a destructor."""
        if self.closed:
            return
        self.closed = True
        if self.owner != os.getpid():
            return
        alive.discard(self)
        for member in self.members:
            member.closed = True
            member.tasks.put(None)
        deadline = time.monotonic() + STOP_GRACE
        for member in self.members:
            # A destructor may run in any thread, also in one of these.
            if member.thread.ident is not None and member.thread is not threading.current_thread():
                member.thread.join(max(0.0, deadline - time.monotonic()))
                if member.thread.is_alive():
                    member.warn()


class WorkerThread:
    """One thread: its tasks, and its loop over them."""

    def __init__(self, setup: Setup, messages: SimpleQueue[tuple[int, Any]], number: int) -> None:
        # Not the threads: no cycle keeps the data set and batches alive when that is dropped.
        self.setup, self.messages, self.number = setup, messages, number
        self.tasks: SimpleQueue[Any] = SimpleQueue()
        self.began = threading.Event()
        self.thread = threading.Thread(target=self.run, name=f"wellfed-worker-{number}", daemon=True)
        self.closed = False
        self.epoch = self.wanted = 0
        self.job = "starts"

    def skip_to(self, epoch: int) -> None:
        """Tasks of earlier epochs are not wanted any more."""
        self.wanted = epoch

    def stopped(self) -> bool:
        """Whether the batch in the making is for nobody."""
        return self.closed or self.epoch != self.wanted

    def run(self) -> None:
        """Body of the thread."""
        torch.set_num_threads(1)
        self.began.set()
        setup, where = self.setup, f"in DataLoader worker thread {self.number}"
        here.info = WorkerInfo(
            id=self.number,
            num_workers=setup.num_workers,
            seed=setup.base_seed + self.number,
            dataset=setup.dataset,
        )
        fetcher = MapFetcher(setup.dataset, setup.auto_collation, setup.collate_fn, setup.drop_last)
        fetcher.stopped = self.stopped
        fetcher.on_error = setup.on_error
        broken = None
        try:
            if setup.init_fn is not None:
                setup.init_fn(self.number)
        except BaseException:  # also SystemExit: the consumer waits for a word
            broken = ExceptionWrapper(where=where)
        self.say(STARTED, 0, 0, None if broken is not None else (False, None))
        while (task := self.tasks.get()) is not None:
            kind, epoch, _, *rest = task
            self.epoch = epoch
            if kind == "resume":
                self.say(STARTED, epoch, 0, (False, None))
            elif broken is not None:
                self.say(FAILED, epoch, rest[0], None, broken)
                broken = None
            elif not self.stopped():
                self.work(fetcher, where, *rest[:2])

    def work(self, fetcher: MapFetcher, where: str, number: int, index: Any) -> None:
        """One task."""
        self.job = f"works on batch {number}"
        try:
            batch = cast(fetcher.fetch(index), self.setup.float_dtype)
        except Stopped:
            pass
        except BaseException:
            # Only text: whoever stores the exception itself keeps all frames alive.
            error = located(ExceptionWrapper(where=where), fetcher.at, number)
            self.say(FAILED, self.epoch, number, None, error)
        else:
            self.say(BATCH, self.epoch, number, None, with_bad(fetcher, batch))
        self.job = "waits for a task"

    def say(self, kind: int, epoch: int, number: int, report: Any, data: Any = None) -> None:
        """One message."""
        self.messages.put((self.number, [kind, epoch, number, report, data]))

    def stack(self) -> str:
        """What the thread does and its Python stack."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return f"{self.job}\n{''.join(traceback.format_stack(frame)) if frame is not None else ''}"

    def warn(self) -> None:
        """Say that the thread does not end."""
        warnings.warn(
            f"DataLoader worker thread {self.number} was told to end {STOP_GRACE:g} s ago, but it {self.stack()}"
            "hint: a thread cannot be ended from outside; worker processes can",
            RuntimeWarning,
            stacklevel=4,
        )


alive: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


def close_all() -> None:
    """Before the interpreter ends: a thread that works on then may find it half taken down."""
    for threads in list(alive):
        threads.close()


atexit.register(close_all)
