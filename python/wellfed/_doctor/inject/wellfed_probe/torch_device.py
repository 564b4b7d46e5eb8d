"""How long the device works on a step, by its own events: the record `device`.

Invariant: nothing ever waits for the device. An event is read when it says that it was reached; events are looked at
one at a time, in the thread that trains, so that no other thread gets a context on a device.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

from .recorder import Record

__all__ = ["Device", "device_for"]

# Nanoseconds that the events of one step cost.
COST = 20_000
BUDGET = 0.004
MOST_WAITING = 256


def device_for(loader: int, iterator: int) -> Device | None:
    """What notes the device's part in the steps of an iterator, if there is a device in use."""
    cuda: Any = sys.modules.get("torch.cuda")
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return None
    return Device(cuda, loader, iterator)


class Device:
    """Events of one iterator's steps."""

    def __init__(self, cuda: Any, loader: int, iterator: int) -> None:
        self._cuda = cuda
        self._loader = loader
        self._iterator = iterator
        self._free: list[Any] = []
        self._open: tuple[int, Any] | None = None
        self._waiting: deque[tuple[int, Any, Any]] = deque()
        self._rows: list[tuple[int, int]] = []
        self._next = 0
        self.every = 1

    def pace(self, period: float) -> None:
        """Steps take `period` nanoseconds."""
        self.every = max(1, round(COST / (BUDGET * max(1.0, period))))

    def begin(self, n: int) -> None:
        """Batch `n` was handed out."""
        if n < self._next or len(self._waiting) >= MOST_WAITING or self._cuda.is_current_stream_capturing():
            return
        self._next = n + self.every
        self._open = n, self._event()

    def end(self, n: int) -> None:
        """Batch `n` is asked for."""
        if self._open is None:
            return
        before, first = self._open
        self._open = None
        if before + 1 == n and not self._cuda.is_current_stream_capturing():
            self._waiting.append((before, first, self._event()))
            self._look()

    def _event(self) -> Any:
        event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _look(self) -> None:
        n, first, last = self._waiting[0]
        if last.query():
            self._waiting.popleft()
            self._rows.append((n, int(first.elapsed_time(last) * 1e6)))
            self._free += (first, last)

    def drain(self) -> Iterator[Record]:
        """Steps since the last time, in runs without gaps."""
        count = len(self._rows)
        rows, self._rows[:count] = self._rows[:count], []
        begin = 0
        for i in range(1, count + 1):
            if i == count or rows[i][0] != rows[i - 1][0] + 1:
                run = rows[begin:i]
                yield {
                    "k": "device",
                    "loader": self._loader,
                    "iter": self._iterator,
                    "first": run[0][0],
                    "busy": [busy for _, busy in run],
                }
                begin = i
