"""What measuring costs here, and how often something may be measured."""

from __future__ import annotations

__all__ = ["Price", "every", "part", "share_among"]

MOST = 1 << 16
ENOUGH = 4

_part = 1.0


def share_among(processes: int) -> None:
    """This process is one of so many that do the same: all of them together may measure as much as one alone."""
    global _part
    _part = 1 / max(1, processes)


def part() -> float:
    """This process's part of what may be measured."""
    return _part


def every(nanoseconds: float, period: float, budget: float) -> int:
    """One in how many may be measured, if it takes so long and may take this share of `period`; see `share_among`."""
    if period <= 0:
        return 1
    return max(1, min(MOST, round(nanoseconds / (_part * budget * period) + 0.3)))


class Price:
    """What something costs, from single measurements in which the thread may have been interrupted: their median."""

    def __init__(self) -> None:
        self._usual = 0
        self._lately: list[int] = []

    def paid(self, nanoseconds: int) -> None:
        """It took so long this time."""
        self._lately.append(nanoseconds)
        if len(self._lately) == 16:
            self._usual = median(self._lately)
            self._lately.clear()

    def every(self, period: float, budget: float, times: float = 1) -> int:
        """One in how many may be done; each, until there are enough measurements to say."""
        if not self._usual and len(self._lately) < ENOUGH:
            return 1
        return every(times * (self._usual or median(self._lately)), period, budget)


def median(values: list[int]) -> int:
    """The one in the middle, or the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]
