"""`WorkersIterator`: one epoch of a loader with worker processes, whose batches come in shared memory."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import Any

import torch

from ..._cores import usable_cores
from .._device import PageLock, has_streams
from .._resume import Resume
from .choice import Choice, Clock
from .pack import unpack
from .pool import ForkedPool, Pool
from .reach import look
from .setup import Hooks, Look, Setup
from .state import StateHooks
from .tasks import TasksIterator
from .tuning import Pace, Tuner

__all__ = ["WorkersIterator"]

LONGEST_LOOK = 1.0
"""Seconds that workers have to look at the data set when the epoch is over."""


class WorkersIterator(TasksIterator):
    """Batches of worker processes."""

    _pool: Pool

    def __init__(self, loader: Any, resume: Resume | None = None, choice: Choice | None = None) -> None:
        self._tuner: Tuner | None = loader._tuner
        self._pace = None if self._tuner is None else Pace(self._pids)
        # What of this epoch is measured for; nothing if it is not a whole one.
        self._measured = choice if choice is not None and choice.watches and resume is None else None
        self._watched = self._measured is not None
        self._timing = Clock(time.perf_counter, time.thread_time)
        self._looks: dict[int, Look] | None = None
        super().__init__(loader, resume)

    def _pids(self) -> list[int]:
        return [member.pid for member in self._pool.members if member.pid is not None]

    def _next_data(self) -> Any:
        if self._pace is None and self._measured is None:
            return super()._next_data()
        asked = time.perf_counter()
        self._timing.asked()
        data = super()._next_data()
        self._timing.came()
        if self._pace is not None:
            self._pace.came(asked)
        return data

    def _shutdown_workers(self) -> None:
        # At the end of an epoch it is called while the workers are there.
        ended = not self._shutdown and self._failure is None and not getattr(self, "_tasks", True)
        if ended and self._tuner is not None and self._pace is not None:
            self._tuner.learn(self._pace.finish())
        if ended and self._measured is not None:
            self._await_looks()
        super()._shutdown_workers()
        if ended:
            self._ended()

    def _ended(self) -> None:
        """The epoch came to its end, and the workers are gone."""
        looks = self._looks
        if self._measured is None or looks is None or len(looks) < self._num_workers:
            return
        making = [found.making for found in looks.values() if found.making > 0]
        measured = self._timing.finish(statistics.median(making) if making else 0.0)
        at_once = min(self._num_workers, max(1, int(usable_cores())))
        self._measured.learn_own(measured, at_once, lambda: self._judged([*looks.values()]))

    def _judged(self, looks: list[Look]) -> tuple[str | None, str]:
        """Why samples have to stay in the workers, if they have to, and what the data set is at."""
        for found in looks:
            if found.why is not None and found.making > 0:
                return found.why, ""
        why, mark, _ = look(self._dataset, self._collate_fn)
        if why is None and any(found.mark != mark for found in looks if found.making > 0):
            why = "samples change what the data set holds"
        return why, mark

    def _all_sent(self) -> None:
        if self._measured is not None and self._looks is None:
            self._looks = {}
            for worker in range(self._num_workers):
                self._pool.post(worker, "look", self._epoch, [])

    def _looked(self, worker: int, look: Look) -> None:
        if self._looks is not None:
            self._looks[worker] = look

    def _await_looks(self) -> None:
        """Waits for what the workers say of the epoch; that is none of its time."""
        begun = time.perf_counter()
        with contextlib.suppress(RuntimeError):  # One has died, now that nobody needs it any more.
            while self._inbox:
                self._is_current(*self._inbox.popleft())
            while self._looks is not None and len(self._looks) < self._num_workers:
                left = begun + LONGEST_LOOK - time.perf_counter()
                if left <= 0:
                    break
                for worker, message in self._pool.wait(left):
                    self._is_current(worker, message)
        self._timing.leave_out(time.perf_counter() - begun)

    def _start(self, setup: Setup, loader: Any) -> Pool:
        pool = start_pool(setup, loader)
        if loader.device is not None and has_streams(loader.device):
            for member in pool.members:
                member.mappings.page_lock = PageLock
        return pool

    def _hooks(self, loader: Any) -> Hooks:
        resume = self._resume
        states = [None] * self._num_workers if resume is None else resume.worker_states(self._num_workers)
        return StateHooks(states, self._collate_fn, loader.batch_size)

    def _who(self, worker: int) -> str:
        return f"DataLoader worker {worker} (pid {self._pool.members[worker].pid})"

    def _released(self, number: int) -> list[int]:
        return self._pool.members[number].mappings.take_released()

    def _unpack(self, worker: int, message: Any) -> Any:
        _, _, _, _, skeleton, letter, places = message
        arrays: dict[int, Any] = {}
        buffers = []
        for slot, offset, size in places:
            if slot not in arrays:
                arrays[slot] = self._pool.array(worker, slot)
            buffers.append(arrays[slot][offset : offset + size])
        if letter is not None:
            skeleton = self._pool.array(worker, letter[0])[: letter[1]]
        return unpack(skeleton, buffers)

    def _discard(self, worker: int, message: Any) -> None:
        *_, letter, places = message
        slots = {slot for slot, _, _ in places} | ({letter[0]} if letter is not None else set())
        self._pool.members[worker].mappings.released.extend(slots)


def start_pool(setup: Setup, loader: Any) -> Pool:
    """Start the workers as the loader's context says."""
    context = loader.multiprocessing_context
    if context is None:
        context = torch.multiprocessing.get_context()
    method = context.get_start_method()
    if method == "fork":
        return ForkedPool(setup, context)
    from .spawned import SpawnedPool

    return SpawnedPool(setup, method, loader)
