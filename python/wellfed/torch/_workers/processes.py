"""`WorkersIterator`: one epoch of a loader with worker processes, whose batches come in shared memory."""

from __future__ import annotations

from typing import Any

import torch

from .._device import PageLock
from .pack import unpack
from .pool import ForkedPool, Pool
from .setup import Hooks, Setup
from .state import StateHooks
from .tasks import TasksIterator

__all__ = ["WorkersIterator"]


class WorkersIterator(TasksIterator):
    """Batches of worker processes."""

    _pool: Pool

    def _start(self, setup: Setup, loader: Any) -> Pool:
        pool = start_pool(setup, loader)
        if loader.device is not None and loader.device.type == "cuda":
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
