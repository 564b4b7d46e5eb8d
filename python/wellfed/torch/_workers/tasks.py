"""`TasksIterator`: one epoch of a loader with workers, in torch's order and with torch's errors.

Which worker makes which batch, when the sampler is asked and when random numbers are drawn is as in torch. What the
workers are, a subclass says.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import time
import warnings
from collections import deque
from typing import Any

from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from ..._accelerate import inherited_rows
from .._fetch import shorten
from .._private import sharding_init
from .._progress import PoolProgress, waits
from .._resume import Resume
from .._state import Tracked
from .setup import BATCH, END, FAILED, LOOKED, STARTED, Hooks, Look, Setup, Stalls

__all__ = ["TasksIterator"]


class TasksIterator(Tracked):
    """Batches of workers, which get tasks and answer with messages.

    A message is a list of what it is about (see `setup`), the epoch, the number of the batch, a report for the
    progress, and what `_unpack` makes a batch of.
    """

    _progress: PoolProgress
    _watched = False
    """Whether workers measure what they do."""

    def __init__(self, loader: Any, resume: Resume | None = None) -> None:
        super().__init__(loader, resume)
        self._prefetch_factor = loader.prefetch_factor
        self._in_order = loader.in_order
        self._bad = loader._bad
        self._by_batch = loader._seeds_by_batch
        if self._num_workers <= 0:
            raise AssertionError("num_workers must be greater than 0 for MultiProcessingDataLoaderIter")
        if self._prefetch_factor <= 0:
            raise AssertionError("prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter")
        init_fn = loader.worker_init_fn
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            init_fn = functools.partial(sharding_init, init_fn, self._world_size, self._rank)
        setup = Setup(
            kind=self._dataset_kind,
            dataset=self._dataset,
            auto_collation=self._auto_collation,
            collate_fn=self._collate_fn,
            drop_last=self._drop_last,
            base_seed=self._base_seed,
            init_fn=init_fn,
            num_workers=self._num_workers,
            shared_seed=self._shared_seed,
            ahead=self._prefetch_factor,
            float_dtype=loader.float_dtype,
            on_error=loader.on_error,
            accelerate=loader.accelerate,
            rows=inherited_rows() if loader.accelerate else None,
            watch=self._watched,
            hooks=self._hooks(loader),
        )
        self._failure: str | None = None
        self._awaiting_workers = False
        self._shutdown = False
        self._epoch = 0
        self._inbox: deque[tuple[int, Any]] = deque()
        self._stalls = Stalls(stall_seconds(loader))
        self._pool = self._start(setup, loader)
        self._workers = [self._process(i) for i in range(self._num_workers)]
        self._reset(loader, first_iter=True)

    # Epochs and tasks.

    def _start(self, setup: Setup, loader: Any) -> Any:
        """The workers: what takes tasks (`post`), brings messages (`wait`), and ends (`close`)."""
        raise NotImplementedError

    def _hooks(self, loader: Any) -> Hooks:
        return Hooks()

    def _process(self, number: int) -> Any:
        return self._pool.members[number].process

    def _who(self, worker: int) -> str:
        """A worker's name in a warning."""
        raise NotImplementedError

    def _released(self, number: int) -> list[int]:
        """Memory of a worker that is not looked at any more."""
        raise NotImplementedError

    def _unpack(self, worker: int, message: Any) -> Any:
        """What a message brings."""
        raise NotImplementedError

    def _discard(self, worker: int, message: Any) -> None:
        """A message is not looked at."""
        raise NotImplementedError

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            if self._by_batch:
                self._base_seed += 1  # torch draws no new one for workers that live on
            for worker, message in [*self._ready.values(), *self._inbox]:
                self._discard(worker, message)
            self._inbox.clear()
        self._progress = PoolProgress(self, loader, self._resume)
        self._send_idx = self._rcvd_idx = 0
        self._tasks: dict[int, int] = {}
        self._ready: dict[int, tuple[int, Any]] = {}
        self._active = [True] * self._num_workers
        self._workers_num_tasks = [0] * self._num_workers
        self._ends: dict[int, tuple[int, Any]] = {}
        self._cycle = itertools.cycle(range(self._num_workers))
        for _ in range(self._progress.last_worker + 1):
            next(self._cycle)
        if not first_iter:
            self._check_usable()
            self._epoch += 1
            for member in self._pool.members:
                member.skip_to(self._epoch)
                self._pool.post(
                    member.number, "resume", self._epoch, self._released(member.number), self._shared_seed
                )
        if waits(loader) or (first_iter and loader.worker_init_fn is not None):
            self._await_workers()
        self._progress.ready()
        for _ in range(self._prefetch_factor * self._num_workers):
            self._try_put_index()

    def _await_workers(self) -> None:
        """Waits for what each worker says of its start: its state or the exception that it ended with."""
        self._awaiting_workers = True
        try:
            missing = set(range(self._num_workers))
            while missing:
                worker, message = self._receive()
                if message[0] == FAILED:
                    raise_again(self._unpack(worker, message))
                if message[3] is None:  # It answers any task with the exception.
                    self._pool.post(worker, "task", self._epoch, self._released(worker), -1, None, False)
                else:
                    missing.discard(worker)
        except BaseException:
            self._shutdown_workers()
            raise
        finally:
            self._awaiting_workers = False

    def _try_put_index(self) -> None:
        most = self._prefetch_factor * self._num_workers
        try:
            index = self._next_index()
        except StopIteration:
            self._all_sent()
            return
        for _ in range(self._num_workers):
            worker = next(self._cycle)
            if self._active[worker] and (
                self._in_order or self._workers_num_tasks[worker] < most // sum(self._active)
            ):
                break
        else:
            return
        wish = self._progress.wanted()
        self._progress.sent(self._send_idx)
        # Its place in the epoch, which is the same after a resume, whoever makes it.
        place = self._place if self._by_batch else None
        self._pool.post(
            worker,
            "task",
            self._epoch,
            self._released(worker),
            self._send_idx,
            index,
            wish,
            self._base_seed,
            place,
        )
        self._tasks[self._send_idx] = worker
        self._indices_of[self._send_idx] = index
        self._workers_num_tasks[worker] += 1
        self._send_idx += 1

    def _all_sent(self) -> None:
        """There are no more tasks; may be called again and again."""

    def _looked(self, worker: int, look: Look) -> None:
        """A worker says what its epoch was like."""

    @functools.cached_property
    def _indices_of(self) -> dict[int, Any]:
        return {}

    def _next_data(self) -> Any:
        self._check_usable()
        while True:
            while self._rcvd_idx < self._send_idx:
                worker = self._tasks.get(self._rcvd_idx)
                if worker is not None:
                    if self._rcvd_idx in self._ready or self._active[worker]:
                        break
                    self._forget(self._rcvd_idx)
                    self._progress.dropped(*self._ends.pop(self._rcvd_idx, ()))
                self._rcvd_idx += 1
            else:
                if not self._persistent_workers:
                    self._shutdown_workers()
                raise StopIteration
            number = self._rcvd_idx
            if number in self._ready:
                self._rcvd_idx += 1
                return self._take(number, *self._ready.pop(number))
            worker, message = self._receive()
            kind, _, number, report, *_ = message
            if kind == END:
                self._end_of(number, worker, report)
                continue
            if number == self._rcvd_idx:
                self._rcvd_idx += 1
            elif self._in_order:
                self._ready[number] = worker, message
                continue
            return self._take(number, worker, message)

    def ready(self) -> bool:
        """Whether the next batch is here already; never waits."""
        if self._failure is not None or self._shutdown:
            return False
        if self._rcvd_idx in self._ready:
            return True
        with contextlib.suppress(RuntimeError):  # The next wait says it again, to whoever asks for a batch.
            self._inbox.extend(self._pool.wait(0))
        for _, (kind, epoch, number, *_) in self._inbox:
            wanted = epoch == self._epoch and kind in (BATCH, FAILED)
            if wanted and (number == self._rcvd_idx or not self._in_order):
                return True
        return False

    def _end_of(self, number: int, worker: int, report: Any) -> None:
        """A worker's share of an iterable data set is exhausted."""
        self._active[worker] = False
        if self._in_order:
            self._ends[number] = worker, report  # Not so for the caller, before batches that came earlier.
        else:
            self._progress.ended(worker, report)
        if not self._persistent_workers:
            self._pool.dismiss(worker)
        self._try_put_index()

    def _forget(self, number: int) -> None:
        del self._tasks[number]
        self._indices_of.pop(number, None)

    def _take(self, number: int, worker: int, message: Any) -> Any:
        """A finished batch for the caller; the next task goes out first."""
        self._forget(number)
        self._workers_num_tasks[worker] -= 1
        data = self._unpack(worker, message)
        self._try_put_index()
        if message[0] == FAILED:
            self._progress.failed(number, worker)
            raise_again(data)
        self._progress.yielded(number, worker, message[3])
        return self._bad.take_off(data)

    def _receive(self) -> tuple[int, Any]:
        """The next message that belongs to this epoch, with its worker."""
        self._stalls.begin()
        limit = time.monotonic() + self._timeout if self._timeout > 0 else None
        while True:
            while self._inbox:
                worker, message = self._inbox.popleft()
                if self._is_current(worker, message):
                    return worker, message
            pause = self._stalls.next - time.monotonic() if self._stalls.first > 0 else None
            if limit is not None:
                left = limit - time.monotonic()
                if left <= 0:
                    raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
                pause = left if pause is None else min(pause, left)
            try:
                self._inbox.extend(self._pool.wait(pause))
            except RuntimeError as e:
                self._failure = str(e)
                self._shutdown_workers()
                raise
            if not self._inbox and self._stalls.due():
                self._report_stall()

    def _is_current(self, worker: int, message: Any) -> bool:
        """Whether a message is about this epoch; slots of others go back at once."""
        kind, epoch, _, report, *_ = message
        if epoch != self._epoch:
            self._discard(worker, message)
            return False
        if kind == LOOKED:
            self._looked(worker, report)
            return False
        if kind == STARTED:
            if report is not None:
                self._progress.worker_started(worker, *report)
            return self._awaiting_workers
        return bool(kind in (BATCH, FAILED, END))

    def _report_stall(self) -> None:
        """Print what the worker does that the caller waits for."""
        worker = self._tasks.get(self._rcvd_idx, 0)
        index = shorten(self._indices_of.get(self._rcvd_idx))
        warnings.warn(
            f"waiting for {self._stalls.waited():.0f} s for batch {self._rcvd_idx} (samples {index}) of "
            f"{self._who(worker)}, which {self._pool.stacks(worker)}",
            RuntimeWarning,
            stacklevel=5,
        )

    # The end.

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise RuntimeError(self._failure)
        if self._shutdown and self._rcvd_idx < self._send_idx:
            raise RuntimeError("DataLoader workers of this iterator have been shut down")

    def _shutdown_workers(self) -> None:
        self._shutdown = True
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.close()

    def __del__(self) -> None:
        self._shutdown = True
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.close(dying=True)


def raise_again(wrapped: Any) -> None:
    """Raise a worker's exception, without the cycle of references by which `reraise` keeps the loader alive."""
    try:
        wrapped.reraise()
    except Exception as e:
        error = e.with_traceback(None)
    try:
        raise error
    finally:
        del error


def stall_seconds(loader: Any) -> float:
    """When to report a worker that is waited for."""
    own = getattr(loader, "stall_warning", None)
    if own is not None:
        return float(own)
    try:
        return float(os.environ.get("WELLFED_STALL_SECONDS", "60"))
    except ValueError:
        return 60.0
