"""What wellfed's engine says of itself: the record `engine`, whenever records are written.

Its threads make batches without Python, so that neither stacks nor clocks of ours see them; it counts for itself.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from typing import Any

from .recorder import RECORDER, Record, now
from .steps import Steps

__all__ = ["watch"]


def watch(steps: Steps, owner: Any) -> None:
    """Has the counters of the engine in `owner._native` written until the steps end. None there: it is closed."""
    RECORDER.drain_from(Counters(steps, owner).drain)


class Counters:
    """Of one engine, since its loader was made."""

    def __init__(self, steps: Steps, owner: Any) -> None:
        self._steps = steps
        # It lives no longer for being watched.
        self._owner = weakref.ref(owner)

    def drain(self) -> Iterator[Record]:
        """What they are now."""
        if self._steps.ended and self.drain in RECORDER.drains:
            RECORDER.drains.remove(self.drain)
        native = getattr(self._owner(), "_native", None)
        if native is None:
            return
        try:
            stats = json.loads(native.stats()[0])
        except RuntimeError:
            return  # Closed meanwhile.
        yield {
            "k": "engine",
            "t": now(),
            "loader": self._steps.log.number,
            "batches": stats["batches"],
            "num_workers": stats["num_workers"],
            "memory": stats["memory"],
            "memory_budget": stats["memory_budget"],
            "requests": stats["requests"],
            "stages": [{"name": stage["name"], "seconds": stage["seconds"]} for stage in stats["stages"]],
        }
