"""`Source`: a data set, its iterator and the collate function in one process, and what state they carry.

Used by the inline iterator and in every worker process. Invariant: after ``Source(..., state)`` the fetcher gives what
it would have given after `state` was taken.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import logging
from typing import TYPE_CHECKING, Any

from ..exceptions import StateError
from ._schema import BATCHES, COLLATE_STATE, DATASET_ITER_STATE, DATASET_STATE, FETCHER_ENDED, FETCHER_STATE
from ._stateful import is_stateful, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Source", "carries"]

logger = logging.getLogger("wellfed.torch")


def carries(state: dict[str, Any] | None) -> bool:
    """Whether a data set, its iterator or a collate function left something in this state."""
    if state is None:
        return False
    fetcher = state.get(FETCHER_STATE) or {}
    return bool(state.get(DATASET_STATE) or state.get(COLLATE_STATE) or fetcher.get(DATASET_ITER_STATE))


class Source:
    """What gives samples in this process.

    Args:
        dataset: The data set.
        collate: The loader's collate function.
        iterable: Whether the data set is of the iterable kind.
        make_fetcher: Makes the fetcher of `_fetch` for the data set; calls ``iter(dataset)`` once if that is iterable.
        batch_size: Samples per batch; None without batching.
        state: What `Source.state` returned, with ``batches``, the number of batches given since the epoch began.
    """

    def __init__(
        self,
        dataset: Any,
        collate: Any,
        iterable: bool,
        make_fetcher: Callable[[], Any],
        batch_size: int | None,
        state: dict[str, Any] | None = None,
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._loaded: dict[str, Any] | None = None
        if state is not None:
            # In this order: the iterator that the data set makes may depend on the data set's state.
            if state.get(DATASET_STATE) is not None and is_stateful(dataset):
                dataset.load_state_dict(copy.deepcopy(state[DATASET_STATE]))
            if state.get(COLLATE_STATE) is not None and is_stateful(collate):
                collate.load_state_dict(copy.deepcopy(state[COLLATE_STATE]))
        self.fetcher = make_fetcher()
        self.iterator: Any = self.fetcher.dataset_iter if iterable else None
        self.stateful = is_stateful(dataset) or is_stateful(collate) or is_stateful(self.iterator)
        if state is not None and iterable:
            self.fetcher.count = state.get(BATCHES, 0) * (batch_size or 1)
            self._continue(state, batch_size)

    def _continue(self, state: dict[str, Any], batch_size: int | None) -> None:
        fetcher = state.get(FETCHER_STATE) or {}
        of_iterator = fetcher.get(DATASET_ITER_STATE)
        if of_iterator is not None and is_stateful(self.iterator):
            self.iterator.load_state_dict(copy.deepcopy(of_iterator))
        if fetcher.get(FETCHER_ENDED):
            # Not asked again: at its end, many a data set resets its state for the next epoch.
            self.fetcher.dataset_iter = iter(())
            self.fetcher.ended = True
        elif (is_stateful(self.iterator) and of_iterator is not None) or (
            is_stateful(self._dataset) and state.get(DATASET_STATE) is not None
        ):
            self._loaded = state
        else:
            self._skip(state.get(BATCHES, 0), batch_size)

    def _skip(self, batches: int, batch_size: int | None) -> None:
        if batches == 0:
            return
        logger.warning(
            "the state has none of the data set or its iterator (no state_dict() and load_state_dict(), or the engine "
            "made its batches): going through %d batches to where the state was taken",
            batches,
        )
        size = batch_size or 1
        wanted = batches * size
        found = 0
        for _ in itertools.islice(self.iterator, wanted):
            found += 1
        if found <= wanted - size:
            raise StateError(
                f"cannot resume: {batches} batches of {size} were used up when the state was taken, but the data set "
                f"now gives only {found} samples\nhint: is it the same data set?"
            )
        self.fetcher.ended = found < wanted

    def fetched(self) -> None:
        """To be called when a batch was fetched: from now on the state is that of the objects themselves."""
        self._loaded = None

    def state(self) -> dict[str, Any]:
        """Copies of what they carry."""
        if self._loaded is not None and _not_begun(self.iterator):
            # A generator function has not run yet, and with it the code that takes up the loaded state.
            keys = (DATASET_STATE, FETCHER_STATE, COLLATE_STATE)
            return copy.deepcopy({key: self._loaded[key] for key in keys if key in self._loaded})
        of_dataset = None if self.iterator is self._dataset else state_of(self._dataset)
        state: dict[str, Any] = {DATASET_STATE: of_dataset, FETCHER_STATE: None}
        if self.iterator is not None:
            state[FETCHER_STATE] = {
                DATASET_ITER_STATE: state_of(self.iterator),
                FETCHER_ENDED: self.fetcher.ended,
            }
        if is_stateful(self._collate):
            state[COLLATE_STATE] = state_of(self._collate)
        return state


def _not_begun(iterator: Any) -> bool:
    return inspect.isgenerator(iterator) and inspect.getgeneratorstate(iterator) == inspect.GEN_CREATED
