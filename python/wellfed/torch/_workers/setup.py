"""What a worker is told before it starts, what its messages are about, and the plug for reports beside batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "BATCH",
    "END",
    "FAILED",
    "LOOKED",
    "STARTED",
    "STOP_GRACE",
    "Hooks",
    "Look",
    "Setup",
    "Stalls",
]

STARTED, BATCH, FAILED, END, LOOKED = range(5)
"""What a worker's message is about."""

STOP_GRACE = 5.0
"""Seconds that a worker has for the sample at hand when it is told to end."""


class Hooks:
    """What workers report beside batches; the default reports nothing. Travels to the workers by pickle.

    A subclass can restore and report the state of data sets: the reports arrive at the consumer's iterator
    (`_worker_started`, `_batch_taken`) in the order of the batches.
    """

    def open(
        self, worker_id: int, kind: int, dataset: Any, make_fetcher: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """The fetcher of this epoch, from `make_fetcher(dataset)`, and the report on the start of it."""
        return make_fetcher(dataset), None

    def reopen(
        self, worker_id: int, kind: int, dataset: Any, make_fetcher: Callable[[Any], Any]
    ) -> tuple[Any, Any]:
        """As `open`, for a later epoch of the same process."""
        return make_fetcher(dataset), None

    def report(self, wanted: Any, fetcher: Any, ended: bool) -> Any:
        """The report that goes with a batch; `wanted` came with its task; `ended`: there was no batch left."""
        return None


@dataclass
class Setup:
    """One pool of workers: torch's arguments of a worker, as they are.

    `rows` are the row indexes that workers share where `accelerate` is on; see `inherited_rows`. With `watch`, workers
    measure what they do, and answer to "look" with a `Look`.
    """

    kind: int
    dataset: Any
    auto_collation: bool
    collate_fn: Any
    drop_last: bool
    base_seed: int
    init_fn: Any
    num_workers: int
    shared_seed: int | None
    ahead: int
    float_dtype: Any = None
    on_error: str = "raise"
    accelerate: bool = False
    rows: Any = None
    watch: bool = False
    hooks: Hooks = field(default_factory=Hooks)


class Look(NamedTuple):
    """What a worker has to say of its epoch.

    Attributes:
        making: Seconds that it took to make a batch, by the median; 0 if it made none.
        why: Why samples have to stay in worker processes; None if nothing was noticed.
        mark: What the data set is at; see `reach.look`.
    """

    making: float
    why: str | None
    mark: str


class Stalls:
    """When a worker that is waited for is to be reported: after `first` seconds, then after twice as long."""

    def __init__(self, first: float) -> None:
        self.first = first
        self.since = self.next = 0.0
        self.begin()

    def begin(self) -> None:
        """The wait for a batch begins."""
        self.since = time.monotonic()
        self.next = self.since + self.first

    def waited(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self.since

    def due(self) -> bool:
        """Whether a report is due now; the next one is due later."""
        now = time.monotonic()
        if self.first <= 0 or now < self.next:
            return False
        self.next = now + 2 * (now - self.since)
        return True
