"""How much of the images' way the device takes with `on_device="auto"`: found by measuring while training runs.

The loop's time is cut into windows of batches. Of each it is known how fast batches went through, and how much of the
time the loop waited for them. Where it waits, a larger share is tried, where it does not, a smaller one, as the device
has better things to do; a window with the other share says whether that was right. Invariant: batches are the same with
every share, so that nothing but the speed depends on what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

WINDOW = 24
"""Batches of a window."""
SETTLE = 8
"""Batches that pass before a new share is measured: those that were made with the one before."""
PAUSE = 8
"""Windows before what was no gain is tried again: conditions drift."""
STEP = 0.25
"""How much a share changes at once."""
WAITS, IDLE = 0.05, 0.01
"""Shares of the time in which the loop waits: from where on the device should help, and up to where it need not."""
GAIN, LOSS = 1.02, 0.99
"""What a larger share must bring, and what a smaller one may cost."""


class DeviceShare:
    """Chooses the share of samples that the device decodes, by hill climbing.

    Attributes:
        share: The share that is in force, 0 to 1.
    """

    def __init__(
        self, apply: Callable[[float], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`apply` puts a share into force; `clock` stands in for the time in tests."""
        self.share = 0.0
        self._apply, self._clock = apply, clock
        self._windows: list[tuple[float, float, float]] = []
        self._settle = SETTLE
        self._count = 0
        self._waited = 0.0
        self._begin: float | None = None
        # The share before the one that is tried, and what it brought.
        self._before: tuple[float, float] | None = None
        # Windows until larger or smaller shares may be tried again.
        self._pause = {1: 0, -1: 0}

    def begin(self) -> None:
        """A pass begins: what lies between two is no part of a window."""
        self._restart(SETTLE)

    def note(self, waited: float) -> None:
        """A batch was handed out, for which the loop waited so many seconds."""
        if self._settle > 0:
            self._settle -= 1
            return
        now = self._clock()
        if self._begin is None:
            self._begin = now
            return
        self._count += 1
        self._waited += waited
        if self._count < WINDOW:
            return
        took = max(now - self._begin, 1e-9)
        self._decide(self._count / took, self._waited / took)

    def stats(self) -> dict[str, Any]:
        """The share, and of the last windows: share, batches a second, share of the time that the loop waited."""
        keys = ("share", "batches_per_second", "waiting")
        return {"share": self.share, "windows": [dict(zip(keys, one)) for one in self._windows[-20:]]}

    def _decide(self, rate: float, waiting: float) -> None:
        self._windows.append((self.share, rate, waiting))
        del self._windows[:-100]
        self._pause = {way: max(0, left - 1) for way, left in self._pause.items()}
        if self._before is not None:
            (share, reference), self._before = self._before, None
            way = 1 if self.share > share else -1
            if rate < reference * (GAIN if way > 0 else LOSS):
                self._pause[way] = PAUSE
                return self._set(share)
        if waiting > WAITS and self.share < 1 and not self._pause[1]:
            self._before = (self.share, rate)
            return self._set(min(1.0, self.share + STEP))
        if waiting < IDLE and self.share > 0 and not self._pause[-1]:
            self._before = (self.share, rate)
            return self._set(max(0.0, self.share - STEP))
        return self._restart(0)

    def _set(self, share: float) -> None:
        self.share = share
        self._apply(share)
        self._restart(SETTLE)

    def _restart(self, settle: int) -> None:
        self._settle = settle
        self._count, self._waited, self._begin = 0, 0.0, None
