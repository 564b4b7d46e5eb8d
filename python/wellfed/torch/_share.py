"""How much of the images' way the device takes with `on_device="auto"`: found by measuring while training runs.

The loop's time is cut into windows of batches. Of each it is known how fast batches went through, and how much of the
time the loop waited for them. Where it waits, a larger share is tried, where it does not, a smaller one, as the device
has better things to do; a window with the other share says whether that was right. What was not is tried again after
ever longer pauses, so that trials cost next to nothing, until the loop's rate changes. Invariant: batches are the same
with every share, so that nothing but the speed depends on what is measured.

Waits are those for the engine. A wait for the thread that stages is none of them: it takes only batches that lie ready,
and what it does takes longer with a larger share, so that where it is the slow one a smaller share is right, which is
what is tried where the engine is not waited for. Its time is in the rate, by which trials are judged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

WINDOW = 24
"""Batches of a window."""
BEHIND = 4
"""Batches between the engine and the end of a step: staged, copied, and those that the device works on."""
SETTLE = 8
"""Batches that pass before anything is measured, while threads begin."""
PAUSE, LONGEST = 8, 128
"""Windows before what was no gain is tried again: after the first time, and at most. Conditions drift."""
COST = 0.02
"""A pause is so long at least that what its trial cost is no more than this part of it, within bounds."""
STEP = 0.25
"""How much a share changes at once."""
GAIN, LOSS = 1.02, 0.99
"""What a larger share must bring, and what a smaller one may cost."""
WAITS = 1 - 1 / GAIN
"""Share of the time from which on waits are worth a larger share. Without any wait the loop would be faster by no more
than they take: up to here a larger share cannot bring what it must, and a smaller one is tried."""
BAD = 0.8
"""A trial ends after a third of its window if batches go through at less than this part of the rate before."""
DRIFT = 0.1
"""How much the rate of a share that is kept changes, in two windows one after the other, if conditions are others."""


class DeviceShare:
    """Chooses the share of samples that the device decodes, by hill climbing.

    Attributes:
        share: The share that is in force, 0 to 1.
    """

    def __init__(
        self,
        apply: Callable[[float], None],
        clock: Callable[[], float] = time.perf_counter,
        ahead: Callable[[], int] = lambda: 4,
    ) -> None:
        """`apply` puts a share into force; `clock` stands in for the time in tests; `ahead` batches are being made."""
        self.share = 0.0
        self._apply, self._clock, self._ahead = apply, clock, ahead
        self._windows: list[tuple[float, float, float]] = []
        self._last: float | None = None
        # The share before the one that is tried, and what it brought.
        self._before: tuple[float, float] | None = None
        # Windows until larger or smaller shares may be tried again, and how long the next pause is.
        self._pause = {1: 0, -1: 0}
        self._length = {1: PAUSE, -1: PAUSE}
        # The rate of the share that is kept, windows since that were far from it, one after the other, and whether
        # they said that conditions are others, in which no smaller share was wrong yet.
        self._kept: float | None = None
        self._far = 0
        self._drifted = False
        self._restart(SETTLE)

    def begin(self) -> None:
        """A pass begins: what lies between two is no part of a window, which goes on."""
        self._last = None

    def note(self, waited: float) -> None:
        """A batch was handed out, for which the loop waited so many seconds."""
        now = self._clock()
        last, self._last = self._last, now
        if self._settle > 0:
            self._settle -= 1
            return
        if last is None:
            return
        self._count += 1
        self._took += now - last
        self._waited += waited
        took = max(self._took, 1e-9)
        rate = self._count / took
        if self._count >= WINDOW or self._is_bad(rate):
            self._decide(rate, self._waited / took)

    def stats(self) -> dict[str, Any]:
        """The share, and of the last windows: share, batches a second, share of the time that the loop waited."""
        keys = ("share", "batches_per_second", "waiting")
        return {"share": self.share, "windows": [dict(zip(keys, one)) for one in self._windows[-20:]]}

    def _is_bad(self, rate: float) -> bool:
        return self._before is not None and self._count >= WINDOW // 3 and rate < BAD * self._before[1]

    def _decide(self, rate: float, waiting: float) -> None:
        self._windows.append((self.share, rate, waiting))
        del self._windows[:-100]
        self._pause = {way: max(0, left - 1) for way, left in self._pause.items()}
        if self._before is None:
            self._look_for_drift(rate)
        else:
            (share, reference), self._before = self._before, None
            way = 1 if self.share > share else -1
            if rate < reference * (GAIN if way > 0 else LOSS):
                lost = (self._ahead() + BEHIND + self._count) * (reference / rate - 1)
                # It may have been a single wait of the script that was so long.
                self._rest(way, min(math.ceil(lost / (WINDOW * COST)), 2 * LONGEST))
                self._drifted = self._drifted and way > 0
                return self._set(share)
            self._kept, self._far = rate, 0
            self._length[1] = PAUSE
            if rate >= reference * GAIN:
                # The one before has just been measured.
                self._rest(-way)
        ways = [1] if waiting > WAITS else [-1]
        if self._drifted and ways == [1]:
            # A larger share was right once: it may be the device that is slow now, although the loop waits.
            ways.append(-1)
        for way in ways:
            share = min(1.0, max(0.0, self.share + way * STEP))
            if share != self.share and not self._pause[way]:
                self._before = (self.share, rate)
                return self._set(share)
        return self._restart(0)

    def _look_for_drift(self, rate: float) -> None:
        """Forgets pauses where the rate of the share that is kept is not what it was when they began."""
        if self._kept is None:
            self._kept = rate
        self._far = self._far + 1 if abs(rate / self._kept - 1) > DRIFT else 0
        if self._far == 2:
            self._kept, self._far, self._drifted = rate, 0, True
            self._pause = {1: 0, -1: 0}
            self._length = {1: PAUSE, -1: PAUSE}

    def _rest(self, way: int, least: int = 0) -> None:
        """Larger (1) or smaller (-1) shares are not tried for some windows, and the next time for twice as many."""
        length = self._length[way]
        if not self._pause[way]:
            self._length[way] = min(2 * length, LONGEST)
        self._pause[way] = max(self._pause[way], length, least)

    def _set(self, share: float) -> None:
        self.share = share
        self._apply(share)
        # Those that were made with the share before.
        self._restart(self._ahead() + BEHIND)

    def _restart(self, settle: int) -> None:
        self._settle = settle
        self._count, self._took, self._waited = 0, 0.0, 0.0
