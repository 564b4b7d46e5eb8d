"""What asking for the time costs here, and how often it may be asked for."""

from __future__ import annotations

import time

__all__ = ["every"]

BUDGET = 0.005

_cost: list[int] = []


def cost() -> int:
    """Nanoseconds to read the CPU clocks of thread and process once; measured once."""
    if not _cost:
        best = 1 << 62
        for _ in range(5):
            begin = time.perf_counter_ns()
            for _ in range(4):
                time.thread_time_ns()
                time.process_time_ns()
            best = min(best, (time.perf_counter_ns() - begin) // 4)
        _cost.append(best + 200)
    return _cost[0]


def every(reads: float, period: float, budget: float = BUDGET) -> int:
    """One in how many: for `reads` readings that recur every `period` nanoseconds."""
    if period <= 0:
        return 1
    return max(1, min(1 << 16, round(reads * cost() / (budget * period) + 0.3)))
