"""Where one pass over a loader stands: kept while batches are handed over, read by `state_dict()`.

Invariant: a report describes what the caller has been given, never what was only prefetched. The objects here live in
the parent and know nothing of processes, so that a state can be taken after the iterator itself is gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ._generators import encode_generator
from ._private import DatasetKind
from ._schema import (
    AHEAD,
    BASE_SEED,
    BATCHES,
    COLLATE_STATE,
    DATASET_ITER_STATE,
    DATASET_KIND,
    DATASET_STATE,
    END,
    FETCHER_ENDED,
    FETCHER_STATE,
    FINISHED,
    GENERATOR,
    INDEX_SAMPLER_STATE,
    LAST_WORKER,
    LEN_CALLED,
    MAIN_SNAPSHOT,
    NUM_WORKERS,
    NUM_YIELDED,
    RNG,
    SAMPLER_ITER_STATE,
    SAMPLER_ITER_YIELDED,
    SHARED_SEED,
    SNAPSHOT,
    SNAPSHOT_STEP,
    STATE_VERSION,
    STEPS_SINCE_SNAPSHOT,
    VERSION,
    WORKER_ID,
    WORKER_SNAPSHOTS,
)
from ._source import Source, carries
from ._stateful import Ledger, is_stateful

if TYPE_CHECKING:
    from ._generators import Rng
    from ._order import Mark, Order
    from ._resume import Resume
    from ._stateful import Delta

__all__ = ["AheadProgress", "InlineProgress", "Place", "PoolProgress", "Progress", "carried", "waits"]


class Drawn(NamedTuple):
    """What has come of the order.

    Attributes:
        items: How many items.
        mark: For `Order.report`.
    """

    items: int
    mark: Mark


class Place(NamedTuple):
    """Where a pass stands: see `Progress.place`."""

    num_yielded: int
    finished: bool
    at: Any


class Progress:
    """The part that all iterators share: the order, the seeds, and how many batches were given.

    Args:
        iterator: A `Tracked` iterator whose order and seeds have been set.
        loader: The loader.
        resume: The state it goes on from, if any.
    """

    def __init__(self, iterator: Any, loader: Any, resume: Resume | None) -> None:
        self.order: Order = iterator._sampler_iter
        self.iterable: bool = iterator._dataset_kind == DatasetKind.Iterable
        self.num_yielded = 0 if resume is None else resume.num_yielded
        self.finished = False
        self._rng: Rng = loader._checkpoints.rng
        self._generator = loader.generator
        self._seeds = {
            BASE_SEED: iterator._base_seed,
            SHARED_SEED: iterator._shared_seed,
            LEN_CALLED: iterator._IterableDataset_len_called,
        }
        # What had come of the order when the pass was over.
        self._last: Any = None

    def finish(self) -> None:
        """The pass is over: the caller got StopIteration."""
        if not self.finished:
            self.finished = True
            self._last = self._drawn()

    def place(self) -> Place:
        """Where the pass stands now, cheaply: for `state_dict`, later."""
        return Place(self.num_yielded, self.finished, self._at_place())

    def state_dict(self, place: Place | None = None) -> dict[str, Any]:
        """The state as of the batch that the caller got last, or as of `place`; shares nothing with what goes on.

        Only where the pass stands is that of `place`. Random generators are as they are now: the caller, who has not
        got what came after it, draws from them meanwhile.
        """
        if not self.order.stateful:
            self.order.settle()
        return self._state(self.place() if place is None else place)

    def _at_place(self) -> Any:
        """What a subclass knows of the place beside the number of batches."""
        raise NotImplementedError

    def _state(self, place: Place) -> dict[str, Any]:
        raise NotImplementedError

    def _drawn(self) -> Drawn:
        return Drawn(self.order.yielded, self.order.mark())

    def _main(self, drawn: Drawn) -> dict[str, Any]:
        of_sampler, of_iterator = self.order.report(drawn.mark)
        return {
            INDEX_SAMPLER_STATE: of_sampler,
            SAMPLER_ITER_STATE: of_iterator,
            SAMPLER_ITER_YIELDED: drawn.items,
            **self._seeds,
        }

    def _frame(self, place: Place) -> dict[str, Any]:
        """What every state says beside the place."""
        state: dict[str, Any] = {
            STATE_VERSION: VERSION,
            DATASET_KIND: "iterable" if self.iterable else "map",
            FINISHED: place.finished,
        }
        if place.finished:
            of_sampler, of_iterator = self.order.report(self._last.mark)
            state[END] = {INDEX_SAMPLER_STATE: of_sampler, SAMPLER_ITER_STATE: of_iterator}
        if self.order.draws or self._generator is None:
            state[RNG] = self._rng.state()
        if isinstance(self._generator, torch.Generator) and not self.order.uses(self._generator):
            state[GENERATOR] = encode_generator(self._generator.get_state())
        return state


class InlineProgress(Progress):
    """Of an iterator that works in the calling process; `source` is None where samples carry no state."""

    def __init__(
        self, iterator: Any, loader: Any, resume: Resume | None, source: Source | None = None
    ) -> None:
        super().__init__(iterator, loader, resume)
        self._source = source

    def yielded(self) -> None:
        """A batch is handed to the caller."""
        self.num_yielded += 1
        if self._source is not None:
            self._source.fetched()

    def _at_place(self) -> Any:
        return self._drawn()

    def _state(self, place: Place) -> dict[str, Any]:
        state = {**self._main(place.at), NUM_YIELDED: place.num_yielded, **self._frame(place)}
        if self._source is None:
            return {**state, FETCHER_STATE: None, DATASET_STATE: None}
        # Made in the calling process, one at a time: nothing was made since `place`.
        return {**state, **self._source.state(), BATCHES: place.num_yielded}


class AheadProgress(InlineProgress):
    """Of an iterator that draws the order ahead of the caller but whose samples carry no state, as the engine's."""

    def __init__(self, iterator: Any, loader: Any, resume: Resume | None) -> None:
        super().__init__(iterator, loader, resume)
        self._at = self._drawn()
        self._ahead: deque[Drawn] = deque()

    def drawn(self) -> None:
        """An item was taken from the order."""
        self._ahead.append(self._drawn())

    def yielded(self) -> None:
        """The batch of the oldest item drawn is handed to the caller."""
        self.num_yielded += 1
        self._at = self._ahead.popleft()

    def _at_place(self) -> Any:
        return self._at


class PoolProgress(Progress):
    """Of an iterator over worker processes.

    Tasks are numbered from 0 as they are sent. ``wanted()`` says of the next one whether the worker is to send what
    changed in its state with the answer. Each task is reported when it is its turn: its batch is handed over
    (`yielded`), its exception is raised (`failed`), or the worker's data had ended (`dropped`).

    What is exact at every batch without a word from the workers, because nothing carries state, is kept so; otherwise
    there is a snapshot every ``snapshot_every_n_steps`` batches, and batches since then are gone through again.
    """

    def __init__(self, iterator: Any, loader: Any, resume: Resume | None) -> None:
        super().__init__(iterator, loader, resume)
        workers: int = loader.num_workers
        self._workers = workers
        self._in_order: bool = loader.in_order
        self._every: int = loader.snapshot_every_n_steps or 0
        states: list[Any] = [None] * workers if resume is None else resume.worker_states(workers)
        self._ledgers = [Ledger(carried(state)) for state in states]
        self._batches = [0 if state is None else int(state.get(BATCHES, 0)) for state in states]
        self._over = [
            state is not None and bool((state.get(FETCHER_STATE) or {}).get(FETCHER_ENDED))
            for state in states
        ]
        self.last_worker = workers - 1 if resume is None else resume.last_worker(workers)
        # All tasks below _low are handed over, and of the others, those in _done.
        self._low = 0
        self._low_drawn = self._drawn()
        self._drawn_at: dict[int, Drawn] = {}
        self._done: set[int] = set()
        # Which items of the order a task stands for: its own, and those after it that a resumed state has as done.
        self._spans: dict[int, range] = {}
        self._items = self.order.yielded
        self._sent = 0
        self._answered = 0
        self._stateful_workers = any(carries(state) for state in states)
        self._snapshot: _Snapshot | None = None

    def worker_started(self, worker: int, stateful: bool, delta: Delta | None) -> None:
        """A worker has started; `delta` is its state, unless it was started with one."""
        self._stateful_workers |= stateful
        self._ledgers[worker] = self._ledgers[worker].after(delta)

    def ready(self) -> None:
        """The workers that were to be waited for have started; to be called before the first task is sent."""
        if self._interval:
            self._snapshot = self._now()

    @property
    def _interval(self) -> bool:
        return self._stateful_workers or self.order.stateful

    def wanted(self) -> bool:
        """Whether the next task's answer is to bring the worker's state; to be asked when its index has been drawn."""
        return self._stateful_workers and self._near(self._workers - 1)

    def sent(self, task: int) -> None:
        """A task is sent to a worker."""
        near = not self.order.stateful or self._near(0)
        self._sent += 1
        if self.iterable:
            return
        if near:
            self._drawn_at[task] = self._drawn()
        self._spans[task] = range(self._items, self.order.yielded)
        self._items = self.order.yielded

    def _near(self, beyond: int) -> bool:
        """Whether there may be a snapshot when the next task to be sent is handed over, or up to `beyond` later."""
        if not self._in_order:
            return True
        if not self._every:
            return False
        first = self.num_yielded + 1
        last = first + self._sent - self._answered + beyond
        return (first - 1) // self._every < last // self._every

    def yielded(self, task: int, worker: int, delta: Delta | None) -> None:
        """A batch is handed to the caller."""
        self.num_yielded += 1
        self._answer(task, worker, delta)
        if self._interval and (not self._in_order or (self._every and self.num_yielded % self._every == 0)):
            self._snapshot = self._now()

    def failed(self, task: int, worker: int) -> None:
        """An exception is handed to the caller instead of a batch."""
        self._answer(task, worker, None)

    def dropped(self, worker: int | None = None, delta: Delta | None = None) -> None:
        """It is the turn of a task that brings no batch; of the one that found the end, with its worker."""
        self._answered += 1
        if worker is not None:
            self.ended(worker, delta)

    def ended(self, worker: int, delta: Delta | None) -> None:
        """A worker's data set has no more."""
        self._over[worker] = True
        self._ledgers[worker] = self._ledgers[worker].after(delta)

    def finish(self) -> None:
        super().finish()
        if self._interval and self.iterable:
            self._snapshot = self._now()  # every worker has sent its last state

    def _answer(self, task: int, worker: int, delta: Delta | None) -> None:
        self._answered += 1
        self._batches[worker] += 1
        self.last_worker = worker
        self._ledgers[worker] = self._ledgers[worker].after(delta)
        if self.iterable:
            return
        self._done.add(task)
        while self._low in self._done:
            self._done.remove(self._low)
            self._low_drawn = self._drawn_at.pop(self._low, self._low_drawn)
            del self._spans[self._low]
            self._low += 1

    def _now(self) -> _Snapshot:
        ahead = [
            item - self._spans[self._low].start
            for task, span in self._spans.items()
            if task in self._done or len(span) > 1
            for item in (span if task in self._done else span[1:])
        ]
        return _Snapshot(
            self.num_yielded,
            self.last_worker,
            self._low_drawn,
            ahead,
            [*self._ledgers],
            [*self._batches],
            [*self._over],
        )

    def _at_place(self) -> _Snapshot:
        return self._snapshot if self._interval and self._snapshot is not None else self._now()

    def _state(self, place: Place) -> dict[str, Any]:
        now: _Snapshot = place.at
        main: dict[str, Any] = {NUM_WORKERS: self._workers}
        if self.iterable:
            main |= {
                INDEX_SAMPLER_STATE: None,
                SAMPLER_ITER_STATE: None,
                SAMPLER_ITER_YIELDED: now.step,
                **self._seeds,
            }
        else:
            main |= self._main(now.drawn)
        snapshot = {
            SNAPSHOT_STEP: now.step,
            LAST_WORKER: now.last_worker,
            MAIN_SNAPSHOT: main,
            WORKER_SNAPSHOTS: {f"worker_{i}": self._worker(now, i) for i in range(self._workers)},
        }
        if now.ahead:
            snapshot[AHEAD] = now.ahead
        steps = place.num_yielded - now.step
        return {SNAPSHOT: snapshot, STEPS_SINCE_SNAPSHOT: steps, **self._frame(place)}

    def _worker(self, now: _Snapshot, worker: int) -> dict[str, Any]:
        state: dict[str, Any] = {WORKER_ID: worker, DATASET_STATE: None, FETCHER_STATE: None}
        if self.iterable:
            state[FETCHER_STATE] = {DATASET_ITER_STATE: None, FETCHER_ENDED: False}
        state |= now.ledgers[worker].state() or {}
        if now.over[worker]:
            state[FETCHER_STATE][FETCHER_ENDED] = True
        return {**state, BATCHES: now.batches[worker]}


class _Snapshot(NamedTuple):
    step: int
    last_worker: int
    drawn: Drawn
    ahead: list[int]
    ledgers: list[Ledger]
    batches: list[int]
    over: list[bool]


def carried(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """The part of a worker's state that the worker itself knows of."""
    if not carries(state) or state is None:
        return None
    return {key: state[key] for key in (DATASET_STATE, FETCHER_STATE, COLLATE_STATE) if key in state}


def waits(loader: Any) -> bool:
    """Whether the state of `loader` cannot be known before its workers have said how they begin."""
    return (
        loader._dataset_kind == DatasetKind.Iterable
        or is_stateful(loader.dataset)
        or is_stateful(loader.collate_fn)
    )
