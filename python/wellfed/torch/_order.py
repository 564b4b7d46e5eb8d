"""The order of samples as an iterator that knows its place and can return to it.

Invariant: an `Order` gives what ``iter(sampler)`` gives and draws the same random numbers at the same time. Its report
is enough to give the rest of the epoch again in another process, for torch's samplers and for any other that is
`Stateful`, deterministic, or draws from torch's default generator or its own ``generator`` when it begins.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import functools
import itertools
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from ..exceptions import StateError
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
    from collections.abc import Callable, Iterator

__all__ = ["Order", "Rng", "decode_generator", "encode_generator", "order_of", "sees_nothing"]


_NOTHING = object()

Indices = npt.NDArray[np.int64]

_RANDOM_ITER = RandomSampler.__iter__


def encode_generator(state: torch.Tensor) -> str:
    """A generator's state as text: it can be written as JSON, and nobody can change it by accident."""
    return base64.b64encode(zlib.compress(state.numpy().tobytes(), 1)).decode("ascii")


def decode_generator(text: Any) -> torch.Tensor:
    """The reverse of `encode_generator`; takes the tensor itself too, which is what torchdata stores."""
    if isinstance(text, torch.Tensor):
        return text
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True))
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise StateError(f"the state of a random generator is damaged: {error}") from error
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


class _Pinned:
    """A copy of the default generator of the run that was interrupted.

    Args:
        state: Where it is.
        seed: What the generator of this process was seeded with when the copy was made.
    """

    def __init__(self, state: torch.Tensor, seed: int) -> None:
        self.state, self.seed = state, seed
        self.inside = False


class _Resumed:
    """The copies by the data sets of which a loader was resumed: a loader that is made anew goes on with them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], _Pinned]] = {}

    def note(self, dataset: Any, pinned: _Pinned | None) -> None:
        key = id(dataset)
        self._known.pop(key, None)
        # Of lists and ranges nobody can tell when they are gone.
        with contextlib.suppress(TypeError):
            if pinned is not None:
                self._known[key] = weakref.ref(dataset, lambda _: self._known.pop(key, None)), pinned

    def of(self, dataset: Any) -> _Pinned | None:
        known = self._known.get(id(dataset))
        return None if known is None or known[0]() is not dataset else known[1]


_RESUMED = _Resumed()


class Rng:
    """Where a loader draws its seeds from if it has no generator: torch's default generator.

    After a resume, the default generator may be anywhere. If it is not where the interrupted run left it, the seeds of
    later epochs come from a copy of that one, so that those epochs, too, are as they would have been; also those of
    loaders of the same data set that are made later. That ends when the caller seeds the default generator.
    """

    def __init__(self) -> None:
        self._pinned: _Pinned | None = None

    def resume(self, text: Any, dataset: Any) -> None:
        """Continues with the numbers that come after a state was taken, or with the default generator's for None."""
        self._pinned = None
        if text is not None:
            state = decode_generator(text)
            if not torch.equal(state, torch.get_rng_state()):
                self._pinned = _Pinned(state, torch.initial_seed())
        _RESUMED.note(dataset, self._pinned)

    def follow(self, dataset: Any) -> None:
        """Continues with the numbers that loaders of `dataset` draw that were resumed."""
        self._pinned = _RESUMED.of(dataset)

    def _copy(self) -> _Pinned | None:
        """What stands in for the default generator, unless that was seeded meanwhile."""
        if self._pinned is not None and self._pinned.seed != torch.initial_seed():
            self._pinned = None
        return self._pinned

    def state(self) -> str:
        """What `resume` takes."""
        pinned = self._copy()
        return encode_generator(torch.get_rng_state() if pinned is None else pinned.state)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is drawn from the default generator within comes from here."""
        if self._pinned is not None and self._pinned.inside:
            yield
            return
        pinned = self._copy()
        if pinned is None:
            yield
            return
        outside = torch.get_rng_state()
        torch.set_rng_state(pinned.state)
        pinned.inside = True
        try:
            yield
        finally:
            pinned.inside = False
            pinned.state = torch.get_rng_state()
            torch.set_rng_state(outside)

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """What is drawn from the default generator within is as if it had not been."""
        outside = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(outside)


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

    def mark(self) -> Any:
        """The place, cheaply: for `report`, later."""
        raise NotImplementedError

    def report(self, mark: Any) -> tuple[Any, Any]:
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
    return _Steps(sampler, rng)


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


class _Steps(Order):
    """Any sampler, one item at a time."""

    def __init__(self, sampler: Any, rng: Rng) -> None:
        super().__init__()
        self.sampler = sampler
        self._rng = rng
        self._endless = type(sampler) is InfiniteSampler
        self._plain = self._endless or type(sampler) is SequentialSampler
        self._begun = self._plain
        self._ended = False
        self._stateful = False
        generator = getattr(sampler, "generator", None)
        self._generator = generator if isinstance(generator, torch.Generator) else None
        self._private = type(sampler) is RandomSampler and self._generator is None
        # What the random generators were at before this epoch's order was drawn from them.
        self._drawn: dict[str, Any] = {}
        self._iterator: Iterator[Any]
        if self._endless:
            self._iterator = itertools.repeat(None)
        elif self._plain:
            self._iterator = iter(range(len(sampler.data_source)))
        elif self._private:
            self._iterator = iter(())
        else:
            self._iterator = self._watch("_iter", lambda: _opened(sampler))
            self._stateful = is_stateful(sampler) or is_stateful(self._iterator)
            if self._stateful:
                self._begun, self._drawn = True, {}
            elif isinstance(epoch := getattr(sampler, "epoch", None), int) and hasattr(sampler, "set_epoch"):
                self._drawn[EPOCH] = epoch

    def __next__(self) -> Any:
        if not self._begun:
            self.settle()
        try:
            item = next(self._iterator)
        except StopIteration:
            self._end()
            raise
        self.yielded += 1
        return item

    def take(self, number: int, arrays: bool = False) -> list[Any] | Indices:
        """The next `number` items, fewer at the end; as an array if that is wanted and they are known as one."""
        if not self._begun:
            self.settle()
        items: list[Any] | Indices
        if isinstance(self._iterator, _Permutation):
            items = self._iterator.take(number)
            items = items if arrays else items.tolist()
        else:
            items = [*itertools.islice(self._iterator, number)]
        self.yielded += len(items)
        if len(items) < number:
            self._end()
        return items

    @property
    def stateful(self) -> bool:
        return self._stateful

    @property
    def draws(self) -> bool:
        return self._private or "rng" in self._drawn or "rng_iter" in self._drawn

    def uses(self, generator: Any) -> bool:
        return generator is not None and self._generator is generator

    def settle(self) -> None:
        if self._begun:
            return
        self._begun = True
        if self._private:
            with self._rng.scope():
                seed = int(torch.empty((), dtype=torch.int64).random_().item())
            self._drawn |= {SEED: seed, LENGTH: len(self.sampler.data_source)}
            self._iterator = self._seeded(seed)
            return
        inner = self._iterator
        self._iterator = self._watch("", lambda: _started(inner))

    def mark(self) -> Any:
        if self._stateful:
            return self.yielded, state_of(self.sampler), state_of(self._iterator), self._ended
        return self.yielded, None, None, False

    def report(self, mark: Any) -> tuple[Any, Any]:
        yielded, sampler_state, iter_state, _ = mark
        if self._stateful:
            return copy.deepcopy(sampler_state), copy.deepcopy(iter_state)
        return None, {YIELDED: yielded, **self._drawn} if self._drawn else None

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        self.yielded = yielded
        if self._stateful:
            if is_stateful(self.sampler) and sampler_state is not None:
                self.sampler.load_state_dict(copy.deepcopy(sampler_state))
            self._iterator = iter(self.sampler)
            if is_stateful(self._iterator) and iter_state is not None:
                self._iterator.load_state_dict(copy.deepcopy(iter_state))
            return
        drawn = dict(iter_state) if isinstance(iter_state, dict) else {}
        drawn.pop(YIELDED, None)
        if finished:
            if self._generator is not None and END_GENERATOR in drawn:
                self._generator.set_state(decode_generator(drawn[END_GENERATOR]))
            return
        self._check(drawn, yielded)
        self._drawn = drawn
        self._begun = yielded > 0 or any(key != EPOCH for key in drawn) or self._plain
        if self._endless:
            return
        if type(self.sampler) is SequentialSampler:
            self._iterator = iter(range(yielded, max(yielded, len(self.sampler.data_source))))
            return
        if EPOCH in drawn and drawn[EPOCH] != self.sampler.epoch:
            self.sampler.set_epoch(drawn[EPOCH])
        self._iterator = self._again() if self._begun else _opened(self.sampler)
        if isinstance(self._iterator, _Permutation):
            skipped = len(self._iterator.take(yielded)) if yielded else 0
        else:
            skipped = sum(1 for _ in itertools.islice(self._iterator, yielded))
        if skipped < yielded:
            raise StateError(
                f"cannot resume: {yielded} items of {type(self.sampler).__name__} were used up when the state was "
                f"taken, but it now gives only {skipped}\nhint: is it the same data set and the same sampler?"
            )

    def _check(self, drawn: dict[str, Any], yielded: int) -> None:
        name = type(self.sampler).__name__
        if SEED in drawn and type(self.sampler) is not RandomSampler:
            raise StateError(
                f"cannot resume: the state was taken of shuffled samples, but the sampler is a {name}"
                "\nhint: make the loader with shuffle=True, as it was"
            )
        if self._private and yielded and not (SEED in drawn or "generator" in drawn):
            raise StateError(
                "cannot resume: the state was not taken of shuffled samples, but the loader shuffles"
                "\nhint: make the loader as it was when state_dict() was called"
            )
        length = drawn.get(LENGTH)
        if length is not None and length != len(self.sampler.data_source):
            raise StateError(
                f"cannot resume: the state was taken of {length} samples, but there are now "
                f"{len(self.sampler.data_source)}, of which the same seed gives another order"
            )

    def _again(self) -> Iterator[Any]:
        """The sampler's items from the first one, drawn from the same random numbers as before."""
        if SEED in self._drawn:
            return self._seeded(self._drawn[SEED])
        if self._private and "generator" in self._drawn:
            # torchdata's sampler of the same name draws from a generator of its own.
            generator = torch.Generator()
            generator.set_state(decode_generator(self._drawn["generator"]))
            return self._with(generator)
        with self._rng.untouched():
            self._rewind("_iter")
            inner = _opened(self.sampler)
            self._rewind("")
            return _started(inner)

    def _seeded(self, seed: int) -> Iterator[Any]:
        generator = torch.Generator()
        generator.manual_seed(seed)
        return self._with(generator)

    def _with(self, generator: torch.Generator) -> Iterator[Any]:
        # The sampler's own algorithm, whatever it is in this version of torch, on the generator it would have made.
        sampler = copy.copy(self.sampler)
        sampler.generator = generator
        return _opened(sampler, private=True)

    def _watch(self, when: str, work: Callable[[], Any]) -> Any:
        """Does `work` and notes what the generators were at before, if it drew from them."""
        with self._rng.scope():
            default = torch.get_rng_state()
            generator = self._generator
            own = None if generator is None else generator.get_state()
            result = work()
            if not torch.equal(default, torch.get_rng_state()):
                self._drawn["rng" + when] = encode_generator(default)
            if generator is not None and own is not None and not torch.equal(own, generator.get_state()):
                self._drawn["generator" + when] = encode_generator(own)
        return result

    def _rewind(self, when: str) -> None:
        if "rng" + when in self._drawn:
            torch.set_rng_state(decode_generator(self._drawn["rng" + when]))
        if self._generator is not None and "generator" + when in self._drawn:
            self._generator.set_state(decode_generator(self._drawn["generator" + when]))

    def _end(self) -> None:
        if not self._ended:
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
        return _Steps(self._sampler.sampler, self._rng)

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

    def mark(self) -> Any:
        return self._steps.mark()

    def report(self, mark: Any) -> tuple[Any, Any]:
        state: dict[str, Any] = {SAMPLES_YIELDED: mark[0]}
        sampler_state, iter_state = self._steps.report(mark)
        if sampler_state is not None:
            state[INNER_STATE] = sampler_state
        if iter_state is not None:
            state[INNER_ITER_STATE] = iter_state
        if mark[3]:
            state[SAMPLER_ENDED] = True
        return None, state

    def restore(self, sampler_state: Any, iter_state: Any, yielded: int, finished: bool) -> None:
        state = iter_state if isinstance(iter_state, dict) else {}
        self.yielded = yielded
        samples = state.get(SAMPLES_YIELDED, yielded * self._size)
        self._steps.restore(state.get(INNER_STATE), state.get(INNER_ITER_STATE), samples, finished)
        # An incomplete last batch was given. The sampler is not asked again: its state may be that of the next epoch.
        self._over = bool(state.get(SAMPLER_ENDED)) and not finished
