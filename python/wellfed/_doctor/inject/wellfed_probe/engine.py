"""What wellfed's engine says of itself: the record `engine`, whenever records are written.

Its threads make batches without Python, so that neither stacks nor clocks of ours see them; it counts for itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .recorder import RECORDER, Record, now
from .steps import Steps

__all__ = ["watch"]


def watch(steps: Steps, native: Callable[[], Any]) -> None:
    """Has the counters of the engine that `native` gives (None while there is none) written until the steps end."""
    RECORDER.drain_from(Counters(steps, native).drain)


class Counters:
    """Of one engine, since its loader was made."""

    def __init__(self, steps: Steps, native: Callable[[], Any]) -> None:
        self._steps = steps
        self._native = native

    def drain(self) -> Iterator[Record]:
        """What they are now."""
        if self._steps.ended and self.drain in RECORDER.drains:
            RECORDER.drains.remove(self.drain)
        native = self._native()
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
            "stages": [{"name": stage["name"], "seconds": stage["seconds"]} for stage in stats["stages"]],
        }
