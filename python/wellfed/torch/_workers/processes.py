"""`WorkersIterator`: one epoch of a loader with worker processes, whose batches come in shared memory."""

from __future__ import annotations

import time
from typing import Any

import torch

from .._device import PageLock, has_streams
from .._resume import Resume
from .pack import unpack
from .pool import ForkedPool, Pool
from .setup import Hooks, Setup
from .state import StateHooks
from .tasks import TasksIterator
from .tuning import Pace, Tuner

__all__ = ["WorkersIterator"]


class WorkersIterator(TasksIterator):
    """Batches of worker processes."""

    _pool: Pool

    def __init__(self, loader: Any, resume: Resume | None = None) -> None:
        self._tuner: Tuner | None = loader._tuner
        self._pace = None if self._tuner is None else Pace(self._pids)
        super().__init__(loader, resume)

    def _pids(self) -> list[int]:
        return [member.pid for member in self._pool.members if member.pid is not None]

    def _next_data(self) -> Any:
        if self._pace is None:
            return super()._next_data()
        asked = time.perf_counter()
        data = super()._next_data()
        self._pace.came(asked)
        return data

    def _shutdown_workers(self) -> None:
        # At the end of an epoch it is called while the workers are there.
        ended = not self._shutdown and self._failure is None and not getattr(self, "_tasks", True)
        if ended and self._tuner is not None and self._pace is not None:
            self._tuner.learn(self._pace.finish())
        super()._shutdown_workers()

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
