"""`state_dict()` and `load_state_dict()` of the loader, and the part of its iterators that they rely on.

The protocol and meaning are those of torchdata's StatefulDataLoader. Invariant: a loader that loaded a state gives the
batches that would have followed where the state was taken, and then starts new epochs as the other would have.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from ..exceptions import StateError
from ._generators import Rng, decode_generator
from ._order import Order, order_of
from ._private import BaseIterator, DatasetKind, profiling
from ._resume import Resume, StateMismatchError
from ._stateful import Stateful

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ._progress import Progress

__all__ = ["Checkpoints", "StateMismatchError", "Stateful", "Tracked"]


class Checkpoints:
    """What a loader remembers for `state_dict` and `load_state_dict`.

    It holds the progress of the newest pass but not its iterator: workers go when the caller drops that.
    """

    def __init__(self, pending: dict[str, Any] | None = None) -> None:
        self.rng = Rng()
        self.progress: Progress | None = None
        self._pending = pending
        self._ready: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Checkpoints, (self._pending,)

    @property
    def pending(self) -> dict[str, Any] | None:
        """The state that the next pass is to go on from."""
        return copy.deepcopy(self._pending)

    def state_dict(self, loader: Any) -> dict[str, Any]:
        """The state as of the last batch the caller got."""
        if self._pending is not None:
            return copy.deepcopy(self._pending)
        if self.progress is None:
            self._ready = iter(loader)
        progress = getattr(self._ready, "_progress", None) if self.progress is None else self.progress
        state: dict[str, Any] | None = None if progress is None else progress.state_dict()
        if state is None:
            raise StateError(_PLACELESS.format(type(self._ready).__name__))
        return state

    def load_state_dict(self, loader: Any, state: dict[str, Any]) -> None:
        """The next pass goes on from `state`; an empty dict: starts anew."""
        if state != {}:
            Resume(state)
        loader._iterator = None
        self._ready = None
        self.progress = None
        self._pending = copy.deepcopy(state) or None

    def iterate(self, loader: Any, fresh: Callable[[], Any]) -> Any:
        """What ``iter(loader)`` gives; `fresh` makes or resets an iterator as torch does."""
        if self._ready is not None:
            iterator, self._ready = self._ready, None
            return iterator
        if self._pending is None:
            if self.progress is None:
                self.rng.follow(loader.dataset)
            iterator = fresh()
        else:
            iterator = self._resume(loader, Resume(self._pending), fresh)
            self._pending = None
        self.progress = getattr(iterator, "_progress", None)
        return iterator

    def _resume(self, loader: Any, resume: Resume, fresh: Callable[[], Any]) -> Any:
        resume.check(loader, loader._dataset_kind == DatasetKind.Iterable)
        if resume.stream is not None:
            from ._lower.shards import go_to

            go_to(loader.dataset, resume.stream)
        self.rng.resume(resume.rng, loader.dataset)
        # Iterators that live on hand something over to the next epoch: workers their state, the engine's their seed.
        lives_on = loader.num_workers > 0 and loader.persistent_workers
        carries = resume.carries and (loader.num_workers == 0 or lives_on)
        hands_over = not resume.pool or loader._seeds_by_batch
        if resume.finished and not carries and not (lives_on and hands_over):
            # Nothing is left of that epoch but what the next one's order is drawn from.
            with self.rng.untouched():
                order_of(loader._index_sampler, self.rng).restore(*resume.end, finished=True)
            self._set_generator(loader, resume)
            return fresh()
        iterator = self._continued(loader, resume)
        if not resume.finished:
            return iterator
        if loader.num_workers > 0:
            _drain(iterator)
        return fresh()

    def _continued(self, loader: Any, resume: Resume) -> Any:
        own = type(loader)._get_iterator
        if own.__module__ != _OURS:
            raise StateError(
                f"cannot resume: {own.__qualname__} makes the iterator, which does not know where to go on"
                "\nhint: define _iterator_from(self, resume) in its place"
            )
        iterator = loader._iterator_from(resume)
        if getattr(iterator, "_progress", None) is None:
            raise StateError(_PLACELESS.format(type(iterator).__name__))
        self._set_generator(loader, resume)
        for _ in range(resume.steps):
            if next(iterator, _END) is _END:
                raise StateError(
                    f"cannot resume: the data ended before batch {resume.num_yielded + resume.steps}, after which the "
                    "state was taken\nhint: is it the same data set?"
                )
        if loader.persistent_workers and loader.num_workers > 0:
            loader._iterator = iterator
        return iterator

    @staticmethod
    def _set_generator(loader: Any, resume: Resume) -> None:
        if resume.generator is not None and isinstance(loader.generator, torch.Generator):
            loader.generator.set_state(decode_generator(resume.generator))


_END = object()

_OURS = f"{__package__}._loader"


_PLACELESS = "the iterator of this loader, a {}, does not keep its place: it cannot be saved or restored"


def _drain(iterator: Iterator[Any]) -> None:
    if next(iterator, _END) is not _END:
        raise StateError(
            "cannot resume: the state was taken at the end of an epoch, but the data now goes on"
            "\nhint: is it the same data set?"
        )


class Tracked(BaseIterator):
    """An iterator of torch's kind whose order knows its place.

    `__init__` does what torch's base class does and takes over order, seeds and counts from the state to go on from, if
    there is one; ``_resume`` is that state until the next epoch begins. A subclass then sets ``_progress``, anew in
    every ``_reset``, and draws with ``_next_index``.
    """

    _progress: Progress
    _sampler_iter: Order

    def __init__(self, loader: Any, resume: Resume | None = None) -> None:
        checkpoints: Checkpoints = loader._checkpoints
        self._rng = checkpoints.rng
        self._resume = resume
        self._skip: frozenset[int] = frozenset()
        self._place = 0
        with self._rng.scope() if resume is None else self._rng.untouched():
            BaseIterator.__init__(self, loader)
        if resume is None:
            return
        if resume.base_seed is not None:
            self._base_seed = resume.base_seed
        if resume.shared_seed is not None:
            self._shared_seed = resume.shared_seed
        self._IterableDataset_len_called = resume.len_called
        self._num_yielded = resume.num_yielded
        at_end = resume.finished and loader.num_workers == 0
        self._sampler_iter.restore(*(resume.end if at_end else resume.order), finished=at_end)
        self._skip = frozenset(self._sampler_iter.yielded + offset for offset in resume.ahead)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if first_iter and self._resume is not None:
            return  # It would begin anew.
        self._resume = None
        self._skip = frozenset()  # It was of the epoch that was resumed.
        with self._rng.scope():
            BaseIterator._reset(self, loader, first_iter)

    @property
    def _index_sampler(self) -> Any:
        return self._ordered

    @_index_sampler.setter
    def _index_sampler(self, sampler: Any) -> None:
        self._ordered = _Ordered(sampler, self._rng)

    def _next_index(self) -> Any:
        order = self._sampler_iter
        index = next(order)
        self._place = order.yielded
        while order.yielded in self._skip and next(order, _END) is not _END:
            pass  # handed over before the state was taken, ahead of its turn
        return index

    def __next__(self) -> Any:
        try:
            # torch's own announces each batch to the profiler, on or off, which takes as long as a small batch, and
            # counts what a data set of a length that was asked for gives.
            if self._IterableDataset_len_called is not None or profiling():
                return super().__next__()
            data = self._next_data()
            self._num_yielded += 1
            return data
        except StopIteration:
            self._progress.finish()
            raise


class _Ordered:
    """A sampler whose iterators are `Order`s; otherwise as it is."""

    def __init__(self, sampler: Any, rng: Rng) -> None:
        self._sampler = sampler
        self._rng = rng

    def __iter__(self) -> Order:
        return order_of(self._sampler, self._rng)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)
