"""Loaders measured in turns, so that whatever else the machine does hits all of them alike.

A turn is one epoch outside of the clock, then epochs inside of it until enough time has passed. So a loader that works
ahead across the end of an epoch gains nothing at the start of the clock that it has not paid for before its stop.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["in_turns", "report"]

LEAST = 0.5
"""Seconds that a turn has at least: an epoch of milliseconds is measured several times."""


def _epoch(loader: Iterable[Any]) -> None:
    for _ in loader:
        pass


def seconds(loader: Iterable[Any], least: float = LEAST) -> float:
    """Seconds that an epoch takes."""
    _epoch(loader)
    epochs, since = 0, time.perf_counter()
    while epochs == 0 or time.perf_counter() - since < least:
        _epoch(loader)
        epochs += 1
    return (time.perf_counter() - since) / epochs


def in_turns(loaders: Mapping[str, Iterable[Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of an epoch of each loader, round by round; every second round goes backwards."""
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds):
        order = list(loaders.items())
        for name, loader in order if number % 2 == 0 else reversed(order):
            times[name].append(seconds(loader))
    return times


def report(times: Mapping[str, list[float]], samples: int, stock: str = "torch") -> dict[str, Any]:
    """Prints samples a second, and by how many times each loader is faster than the best one whose name begins with
    `stock`: the median of the ratios of each round. Gives back all of that."""
    medians = {name: statistics.median(all_) for name, all_ in times.items()}
    best = min((name for name in times if name.startswith(stock)), key=medians.__getitem__)
    results = {}
    for name, all_ in times.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times[best], all_))
        results[name] = {
            "samples_per_second": samples / medians[name],
            "times_the_best_of_stock": ratio,
            "seconds": all_,
        }
        print(f"{name:24} {samples / medians[name]:10.1f} samples/s  {ratio:6.2f}x", flush=True)
    print(f"{'':24} 1.00x is {best}", flush=True)
    return {"best_of_stock": best, "loaders": results}
