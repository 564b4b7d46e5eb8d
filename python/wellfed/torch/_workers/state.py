"""The worker's end of a state: restores the data set, and reports what changed in its state with the batches."""

from __future__ import annotations

from typing import Any

from .._private import DatasetKind
from .._progress import carried
from .._source import Source
from .._stateful import Changes, Delta
from .setup import Hooks

__all__ = ["Hello", "StateHooks"]

Hello = tuple[bool, Delta | None]
"""Whether anything in the worker carries state, and that state, unless the worker was started with it."""


class StateHooks(Hooks):
    """Restores and reports state.

    Args:
        states: Per worker, the state it starts with, or None.
        collate: The collate function.
        batch_size: Samples per batch; None without batching.
    """

    def __init__(self, states: list[dict[str, Any] | None], collate: Any, batch_size: int | None) -> None:
        self._states = states
        self._collate = collate
        self._batch_size = batch_size
        self._source: Source | None = None
        self._changes = Changes()

    def open(self, worker_id: int, kind: int, dataset: Any, make_fetcher: Any) -> tuple[Any, Hello]:
        """The first epoch of the process, from the state it was given."""
        return self._open(kind, dataset, make_fetcher, self._states[worker_id])

    def reopen(self, worker_id: int, kind: int, dataset: Any, make_fetcher: Any) -> tuple[Any, Hello]:
        """A later epoch."""
        return self._open(kind, dataset, make_fetcher, None)

    def report(self, wanted: Any, fetcher: Any, ended: bool) -> Delta | None:
        """What changed since the last report."""
        source = self._source
        if source is None:
            return None
        source.fetched()
        return self._changes.since(source.state()) if source.stateful and (wanted or ended) else None

    def _open(
        self, kind: int, dataset: Any, make_fetcher: Any, state: dict[str, Any] | None
    ) -> tuple[Any, Hello]:
        iterable = kind == DatasetKind.Iterable
        source = Source(
            dataset, self._collate, iterable, lambda: make_fetcher(dataset), self._batch_size, state
        )
        self._source = source
        known = carried(state)
        self._changes = Changes(known)
        first = self._changes.since(source.state()) if source.stateful and known is None else None
        return source.fetcher, (source.stateful, first)
