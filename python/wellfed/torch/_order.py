"""The order of samples as an iterator that knows its place and can return to it.

Invariant: an `Order` gives what ``iter(sampler)`` gives and draws the same random numbers at the same time. Its report
is enough to give the rest of the epoch again in another process, for torch's samplers and for any other that is
`Stateful`, deterministic, or draws from torch's default generator or its own ``generator`` when it begins.
"""

from __future__ import annotations

import copy
import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from ..exceptions import StateError
from ._generators import Generators, decode_generator, encode_generator
from ._private import InfiniteSampler
from ._schema import (
    END_GENERATOR,
    EPOCH,
    INNER_ITER_STATE,
    INNER_STATE,
    LENGTH,
    SAMPLER_ENDED,
    SAMPLES_YIELDED,
    SEED,
    YIELDED,
)
from ._stateful import is_stateful, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._generators import Rng

__all__ = ["Mark", "Order", "order_of", "sees_nothing"]


_NOTHING = object()

Indices = npt.NDArray[np.int64]

_RANDOM_ITER = RandomSampler.__iter__


class Mark(NamedTuple):
    """A place in the order, as it was when it was taken.

    Attributes:
        yielded: Items that the sampler had given; of a batch sampler, those of the sampler within.
        sampler_state: The sampler's own state, if it has one.
        iter_state: That of its iterator.
        ended: Whether a sampler with a state of its own had no more.
    """

    yielded: int
    sampler_state: Any = None
    iter_state: Any = None
    ended: bool = False


class Order:
    """An iterator over what a sampler gives; see `order_of`."""

    def __init__(self) -> None:
        self.yielded = 0
        """Items given so far."""
        self.arrays = False
        """Whether the consumer takes batches of indices as int64 arrays, too. They are given where they are known."""

    def __iter__(self) -> Order:
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    @property
    def stateful(self) -> bool:
        """Whether the sampler or its iterator carries a state of its own."""
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Whether the order of this epoch came from torch's default generator."""
        raise NotImplementedError

    def uses(self, generator: Any) -> bool:
        """Whether the order is drawn from this generator."""
        raise NotImplementedError

    def settle(self) -> None:
        """Draws now what the epoch needs, so that a report made before the first sample is complete."""
        raise NotImplementedError

    def mark(self) -> Mark:
        """The place, cheaply: for `report`, later."""
        raise NotImplementedError

    def report(self, mark: Mark) -> tuple[Any, Any]:
        """States of the sampler and of its iterator as of `mark`, for `restore`."""
        raise NotImplementedError

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        """Goes to where a report was made. Of a finished epoch, only what the next one depends on is restored."""
        raise NotImplementedError


_KNOWN_HOUSES = ("torch", "torchdata", "accelerate", "transformers", "lightning", "pytorch_lightning")


def sees_nothing(sampler: Any) -> bool:
    """Whether asking `sampler` earlier than torch does gives the same: it does not look at what training does.

    So it is of the samplers of torch and of trainers, and of plain lists. Any other may choose by the losses of the
    batches before.
    """
    kind = type(sampler)
    if kind in (list, tuple, range):
        return True
    if kind.__module__.partition(".")[0] not in _KNOWN_HOUSES:
        return False
    inner = [getattr(sampler, name, None) for name in ("sampler", "batch_sampler")]
    return all(sees_nothing(part) for part in inner if part is not None)


def order_of(sampler: Any, rng: Rng) -> Order:
    """An `Order` that gives what ``iter(sampler)`` gives."""
    if type(sampler) is BatchSampler:
        return _Batches(sampler, rng)
    return _steps_of(sampler, rng)


class _Permutation:
    """What `RandomSampler` gives without replacement, drawn at the same times, and handed out in pieces.

    Args:
        length: How many indices.
        generator: What they are drawn from.
        private: Whether nobody else draws from it.
    """

    def __init__(self, length: int, generator: torch.Generator, private: bool) -> None:
        self._length, self._generator, self._private = length, generator, private
        self._drawn: Indices | None = None
        self._ended = False
        self._at = 0

    def __iter__(self) -> _Permutation:
        return self

    def __next__(self) -> int:
        piece = self.take(1)
        if not len(piece):
            raise StopIteration
        return int(piece[0])

    def draw(self) -> Indices:
        """All of it; drawn when it is first asked for."""
        if self._drawn is None:
            self._drawn = torch.randperm(self._length, generator=self._generator).numpy()
        return self._drawn

    def take(self, number: int) -> Indices:
        """The next `number` indices, fewer at the end."""
        piece = self.draw()[self._at : self._at + number]
        self._at += len(piece)
        if len(piece) < number and not self._ended:
            self._ended = True
            if not self._private:
                # The sampler draws once more and uses nothing of it, but the generator moves on.
                torch.randperm(self._length, generator=self._generator)
        return piece


def _opened(sampler: Any, private: bool = False) -> Iterator[Any]:
    """``iter(sampler)``, for shuffling without replacement as an iterator that knows all of its items."""
    if (
        type(sampler) is RandomSampler
        and type(sampler).__iter__ is _RANDOM_ITER
        and isinstance(sampler.generator, torch.Generator)
        and not sampler.replacement
        and sampler.num_samples == len(sampler.data_source)
    ):
        return _Permutation(sampler.num_samples, sampler.generator, private)
    return iter(sampler)


def _generator_of(sampler: Any) -> torch.Generator | None:
    generator = getattr(sampler, "generator", None)
    return generator if isinstance(generator, torch.Generator) else None


def _steps_of(sampler: Any, rng: Rng) -> _Steps:
    """What `sampler` gives, one item at a time."""
    if type(sampler) is InfiniteSampler:
        return _Endless(sampler, itertools.repeat(None))
    if type(sampler) is SequentialSampler:
        return _Sequential(sampler, iter(range(len(sampler.data_source))))
    generators = Generators(rng, _generator_of(sampler))
    if type(sampler) is RandomSampler and generators.own is None:
        return _Shuffled(sampler, generators)
    drawn: dict[str, Any] = {}
    items = generators.note("_iter", lambda: _opened(sampler), drawn)
    if is_stateful(sampler) or is_stateful(items):
        return _Stateful(sampler, items)
    return _Watched(sampler, items, generators, drawn)


class _Steps(Order):
    """What a sampler gives, one item at a time. There is a subclass for each way of coming back to a place.

    Args:
        sampler: The sampler.
        items: What it gives.
    """

    def __init__(self, sampler: Any, items: Iterator[Any]) -> None:
        super().__init__()
        self.sampler = sampler
        self._items = items
        self._generator = _generator_of(sampler)
        # What it takes to draw the order of this epoch again.
        self._drawn: dict[str, Any] = {}

    def __next__(self) -> Any:
        self.settle()
        try:
            item = next(self._items)
        except StopIteration:
            self._end()
            raise
        self.yielded += 1
        return item

    def take(self, number: int, arrays: bool = False) -> list[Any] | Indices:
        """The next `number` items, fewer at the end; as an array if that is wanted and they are known as one."""
        self.settle()
        items: list[Any] | Indices
        if isinstance(self._items, _Permutation):
            items = self._items.take(number)
            items = items if arrays else items.tolist()
        else:
            items = [*itertools.islice(self._items, number)]
        self.yielded += len(items)
        if len(items) < number:
            self._end()
        return items

    @property
    def stateful(self) -> bool:
        return False

    @property
    def draws(self) -> bool:
        return "rng" in self._drawn or "rng_iter" in self._drawn

    def uses(self, generator: Any) -> bool:
        return generator is not None and self._generator is generator

    def settle(self) -> None:
        """Nothing is drawn."""

    def mark(self) -> Mark:
        return Mark(self.yielded)

    def report(self, mark: Mark) -> tuple[Any, Any]:
        return None, {YIELDED: mark.yielded, **self._drawn} if self._drawn else None

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        self.yielded = yielded
        drawn = dict(iter_state) if isinstance(iter_state, dict) else {}
        drawn.pop(YIELDED, None)
        if finished:
            self._restore_end(drawn)
            return
        self._check(drawn, yielded)
        self._drawn = drawn
        self._go_to(yielded)

    def _check(self, drawn: dict[str, Any], yielded: int) -> None:
        """Raises if `drawn` is no report of such a sampler, `yielded` items into its epoch."""
        if SEED in drawn and type(self.sampler) is not RandomSampler:
            raise StateError(
                "cannot resume: the state was taken of shuffled samples, but the sampler is a "
                f"{type(self.sampler).__name__}\nhint: make the loader with shuffle=True, as it was"
            )
        length = drawn.get(LENGTH)
        if length is not None and length != len(self.sampler.data_source):
            raise StateError(
                f"cannot resume: the state was taken of {length} samples, but there are now "
                f"{len(self.sampler.data_source)}, of which the same seed gives another order"
            )

    def _go_to(self, yielded: int) -> None:
        """Lets the next item be that after the first `yielded` ones."""
        raise NotImplementedError

    def _restore_end(self, drawn: dict[str, Any]) -> None:
        """Restores what the next epoch depends on after the one that `drawn` reports."""

    def _end(self) -> None:
        """There are no more items."""


class _Endless(_Steps):
    """What stands for a sampler where the data set is an iterable: nothing, for ever."""

    def _go_to(self, yielded: int) -> None:
        pass


class _Sequential(_Steps):
    """Samples as they are numbered."""

    def _go_to(self, yielded: int) -> None:
        self._items = iter(range(yielded, max(yielded, len(self.sampler.data_source))))


class _Stateful(_Steps):
    """A sampler that carries a state of its own, or whose iterator does."""

    def __init__(self, sampler: Any, items: Iterator[Any]) -> None:
        super().__init__(sampler, items)
        self._ended = False

    @property
    def stateful(self) -> bool:
        return True

    def mark(self) -> Mark:
        return Mark(self.yielded, state_of(self.sampler), state_of(self._items), self._ended)

    def report(self, mark: Mark) -> tuple[Any, Any]:
        return copy.deepcopy(mark.sampler_state), copy.deepcopy(mark.iter_state)

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        self.yielded = yielded
        if is_stateful(self.sampler) and sampler_state is not None:
            self.sampler.load_state_dict(copy.deepcopy(sampler_state))
        self._items = iter(self.sampler)
        if is_stateful(self._items) and iter_state is not None:
            self._items.load_state_dict(copy.deepcopy(iter_state))

    def _end(self) -> None:
        self._ended = True


class _Redrawn(_Steps):
    """A sampler whose items are drawn again, and passed over up to the place.

    Args:
        sampler: The sampler.
        items: What it gives, if nothing of it was drawn yet.
        generators: What it draws from.
    """

    def __init__(self, sampler: Any, items: Iterator[Any], generators: Generators) -> None:
        super().__init__(sampler, items)
        self._generators = generators
        self._settled = False

    def settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._items = self._first()

    def _go_to(self, yielded: int) -> None:
        self._settled = yielded > 0 or any(key != EPOCH for key in self._drawn)
        self._items = self._again() if self._settled else _opened(self.sampler)
        if isinstance(self._items, _Permutation):
            skipped = len(self._items.take(yielded)) if yielded else 0
        else:
            skipped = sum(1 for _ in itertools.islice(self._items, yielded))
        if skipped < yielded:
            raise StateError(
                f"cannot resume: {yielded} items of {type(self.sampler).__name__} were used up when the state was "
                f"taken, but it now gives only {skipped}\nhint: is it the same data set and the same sampler?"
            )

    def _first(self) -> Iterator[Any]:
        """The items, drawn for the first time, with a note of what they came from."""
        raise NotImplementedError

    def _again(self) -> Iterator[Any]:
        """The items from the first one, drawn from the same random numbers as before."""
        if SEED in self._drawn:
            return self._seeded(self._drawn[SEED])
        with self._generators.rng.untouched():
            self._generators.rewind("_iter", self._drawn)
            items = _opened(self.sampler)
            self._generators.rewind("", self._drawn)
            return _started(items)

    def _seeded(self, seed: int) -> Iterator[Any]:
        generator = torch.Generator()
        generator.manual_seed(seed)
        return self._with(generator)

    def _with(self, generator: torch.Generator) -> Iterator[Any]:
        # The sampler's own algorithm, whatever it is in this version of torch, on the generator it would have made.
        sampler = copy.copy(self.sampler)
        sampler.generator = generator
        return _opened(sampler, private=True)


class _Shuffled(_Redrawn):
    """torch's own `RandomSampler` without a generator: each epoch comes from a seed, drawn where torch draws it."""

    def __init__(self, sampler: RandomSampler, generators: Generators) -> None:
        super().__init__(sampler, iter(()), generators)

    @property
    def draws(self) -> bool:
        return True

    def _first(self) -> Iterator[Any]:
        with self._generators.rng.scope():
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
        self._drawn |= {SEED: seed, LENGTH: len(self.sampler.data_source)}
        return self._seeded(seed)

    def _again(self) -> Iterator[Any]:
        if SEED not in self._drawn and "generator" in self._drawn:
            # torchdata's sampler of the same name draws from a generator of its own.
            generator = torch.Generator()
            generator.set_state(decode_generator(self._drawn["generator"]))
            return self._with(generator)
        return super()._again()

    def _check(self, drawn: dict[str, Any], yielded: int) -> None:
        super()._check(drawn, yielded)
        if yielded and not (SEED in drawn or "generator" in drawn):
            raise StateError(
                "cannot resume: the state was not taken of shuffled samples, but the loader shuffles"
                "\nhint: make the loader as it was when state_dict() was called"
            )


class _Watched(_Redrawn):
    """Any other sampler: a report has what the generators were at before it drew from them.

    Args:
        sampler: The sampler.
        items: What it gives, of which nothing was drawn yet.
        generators: What it may draw from.
        drawn: What they were at before the iterator was made, if it drew from them.
    """

    def __init__(
        self, sampler: Any, items: Iterator[Any], generators: Generators, drawn: dict[str, Any]
    ) -> None:
        super().__init__(sampler, items, generators)
        self._drawn = drawn
        self._ended = False
        if isinstance(epoch := getattr(sampler, "epoch", None), int) and hasattr(sampler, "set_epoch"):
            drawn[EPOCH] = epoch

    def _first(self) -> Iterator[Any]:
        items = self._items
        return self._generators.note("", lambda: _started(items), self._drawn)

    def _go_to(self, yielded: int) -> None:
        if EPOCH in self._drawn and self._drawn[EPOCH] != self.sampler.epoch:
            self.sampler.set_epoch(self._drawn[EPOCH])
        super()._go_to(yielded)

    def _restore_end(self, drawn: dict[str, Any]) -> None:
        if self._generator is not None and END_GENERATOR in drawn:
            self._generator.set_state(decode_generator(drawn[END_GENERATOR]))

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._generator is not None and any(key.startswith("generator") for key in self._drawn):
            self._drawn[END_GENERATOR] = encode_generator(self._generator.get_state())


def _started(items: Iterator[Any]) -> Iterator[Any]:
    """`items`, with what the first one needs drawn already."""
    if isinstance(items, _Permutation):
        items.draw()
        return items
    first = next(items, _NOTHING)
    return iter(()) if first is _NOTHING else itertools.chain((first,), items)


class _Batches(Order):
    """torch's own `BatchSampler`, of which the sampler within may be `Stateful`."""

    def __init__(self, sampler: BatchSampler, rng: Rng) -> None:
        super().__init__()
        self._sampler = sampler
        self._rng = rng
        self._size = sampler.batch_size
        self._drop_last = sampler.drop_last
        self._over = False

    @functools.cached_property
    def _steps(self) -> _Steps:
        # Late, as in torch: what the sampler draws comes after the loader has drawn the workers' seed.
        return _steps_of(self._sampler.sampler, self._rng)

    @property
    def stateful(self) -> bool:
        return self._steps.stateful

    def __next__(self) -> Any:
        if self._over:
            raise StopIteration
        self._over = True  # also after an exception, as where a generator raised it
        batch = self._steps.take(self._size, self.arrays)
        if not len(batch) or (self._drop_last and len(batch) < self._size):
            raise StopIteration
        self._over = False
        self.yielded += 1
        return batch

    @property
    def draws(self) -> bool:
        return self._steps.draws

    def uses(self, generator: Any) -> bool:
        return self._steps.uses(generator)

    def settle(self) -> None:
        self._steps.settle()

    def mark(self) -> Mark:
        return self._steps.mark()

    def report(self, mark: Mark) -> tuple[Any, Any]:
        state: dict[str, Any] = {SAMPLES_YIELDED: mark.yielded}
        sampler_state, iter_state = self._steps.report(mark)
        if sampler_state is not None:
            state[INNER_STATE] = sampler_state
        if iter_state is not None:
            state[INNER_ITER_STATE] = iter_state
        if mark.ended:
            state[SAMPLER_ENDED] = True
        return None, state

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        state = iter_state if isinstance(iter_state, dict) else {}
        self.yielded = yielded
        samples = state.get(SAMPLES_YIELDED, yielded * self._size)
        self._steps.restore(state.get(INNER_STATE), state.get(INNER_ITER_STATE), samples, finished)
        # An incomplete last batch was given. The sampler is not asked again: its state may be that of the next epoch.
        self._over = bool(state.get(SAMPLER_ENDED)) and not finished
