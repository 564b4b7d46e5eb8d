"""How long Python looks for garbage: the record `garbage`. And what a diagnosis changes about it, if it is to try that.

Python looks at its objects whenever some hundreds of them were made and not freed, and now and then at all that there
are. It happens within whatever line makes an object, so stacks do not show it; Python tells those who ask
(`gc.callbacks`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

from .control import CONTROL
from .recorder import RECORDER, Record, now

__all__ = ["GARBAGE", "Garbage"]

thread_time = time.thread_time_ns

THRESHOLD = (100_000, 50, 50)

# One in so many collections of young objects is timed, which take some microseconds: each 11th of them goes further.
EVERY = 13


class Garbage:
    """Counts collections in this process.

    Attributes:
        count: Collections since the last record.
        cpu: Nanoseconds of a core they took.
    """

    def __init__(self) -> None:
        self.count = self.cpu = 0
        self._t = self._skipped = 0
        self._weight = 1
        self._hooked = False
        self._applied = False

    def begin(self) -> None:
        """Counts from now on."""
        if not self._hooked:
            self._hooked = True
            RECORDER.resets.append(self._begin_anew)
        if self._event not in gc.callbacks:
            gc.callbacks.append(self._event)
        self._begin_anew()

    def end(self) -> None:
        """Counts no more."""
        if self._event in gc.callbacks:
            gc.callbacks.remove(self._event)

    def _begin_anew(self) -> None:
        self.count = self.cpu = self._t = 0
        if RECORDER.directory is not None:
            RECORDER.drain_from(self.drain)

    def _event(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            young = info["generation"] < 2
            if young:
                self._skipped += 1
                if self._skipped < EVERY:
                    return
                self._skipped = 0
            self._weight = EVERY if young else 1
            self._t = thread_time()
        elif self._t:
            self.count += self._weight
            self.cpu += self._weight * (thread_time() - self._t)
            self._t = 0

    def drain(self) -> Iterator[Record]:
        """Those since the last time."""
        count, cpu = self.count, self.cpu
        self.count -= count
        self.cpu -= cpu
        # What was before there is a file is of no loop: imports, mostly. No process begins one for that alone.
        if count and RECORDER.started:
            yield {"k": "garbage", "t": now(), "n": count, "cpu": cpu}

    def apply(self) -> None:
        """Before the first loader is made: collects seldom, and never what there is by now, if that is to be tried."""
        if CONTROL.garbage and not self._applied:
            self._applied = True
            gc.freeze()
            gc.set_threshold(*THRESHOLD)


GARBAGE = Garbage()
"""This process's."""
