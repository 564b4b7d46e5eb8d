"""Which samples come in which batch: the index sampler of a loader, read in arrays instead of one number at a time.

Invariant: the same indices as from iterating the sampler, and the same random numbers drawn at the same time. A
sampler of any other than the known exact types is iterated as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from .forms import is_stock

__all__ = ["Order"]

Indices = npt.NDArray[np.int64]
_KNOWN = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


class Order:
    """The batches of one epoch, in order, drawn no earlier than they are asked for.

    Args:
        index_sampler: What a loader iterates: a batch sampler, or a sampler where nothing is batched.
        iterated: ``iter(index_sampler)``, not begun; used for samplers that are not known.
        batched: Whether it gives batches.
        state: As of `state`, to begin where an earlier epoch was.
        skip: Batches of it that are not wanted any more.
    """

    def __init__(
        self,
        index_sampler: Any,
        iterated: Iterator[Any],
        batched: bool,
        state: dict[str, Any] | None = None,
        skip: int = 0,
    ) -> None:
        self._batches: Iterator[Any]
        self._rng: Any = None if state is None else state.get("rng")
        self._restored = state is not None
        sampler = known_sampler(index_sampler, batched)
        if sampler is None:
            self._batches = iterated
            for _ in range(skip):
                next(self._batches, None)
            return
        size, drop_last = (index_sampler.batch_size, index_sampler.drop_last) if batched else (1, False)
        self._batches = _cut(self._runs(sampler), size, drop_last, skip)

    def __iter__(self) -> Order:
        return self

    def __next__(self) -> Any:
        """Indices of the next batch: an int64 array from known samplers, else what the sampler gave."""
        return next(self._batches)

    def state(self) -> dict[str, Any]:
        """What decides this epoch's order, once its first batch was drawn. Its size does not depend on the data."""
        return {"rng": self._rng}

    def _generator(self, sampler: Any) -> torch.Generator | None:
        """The sampler's generator (None: torch's own), put where it was at the beginning of the epoch."""
        generator: torch.Generator | None = sampler.generator
        source = torch.default_generator if generator is None else generator
        if self._restored and self._rng is not None:
            source.set_state(self._rng)
        else:
            self._rng = source.get_state()
        return generator

    def _runs(self, sampler: Any) -> Iterator[Indices]:
        kind = type(sampler)
        if kind is SequentialSampler:
            yield np.arange(len(sampler.data_source))
        elif kind is RandomSampler:
            yield from self._random(sampler)
        elif kind is SubsetRandomSampler:
            picked = torch.randperm(len(sampler.indices), generator=self._generator(sampler)).numpy()
            yield np.asarray(sampler.indices)[picked].astype(np.int64)
        elif kind is WeightedRandomSampler:
            generator = self._generator(sampler)
            drawn = torch.multinomial(
                sampler.weights, sampler.num_samples, sampler.replacement, generator=generator
            )
            yield drawn.numpy()
        else:
            yield self._distributed(sampler)

    def _random(self, sampler: Any) -> Iterator[Indices]:
        n = len(sampler.data_source)
        if sampler.generator is None:
            if not (self._restored and self._rng is not None):
                self._rng = int(torch.empty((), dtype=torch.int64).random_().item())
            generator = torch.Generator()
            generator.manual_seed(self._rng)
        else:
            generator = self._generator(sampler)
        samples = sampler.num_samples
        if sampler.replacement:
            for start in range(0, samples - samples % 32 + 1, 32):
                size = min(32, samples - start)
                yield torch.randint(high=n, size=(size,), dtype=torch.int64, generator=generator).numpy()
            return
        for _ in range(samples // n):
            yield torch.randperm(n, generator=generator).numpy()
        # Drawn even if nothing of it is used, as RandomSampler does: the generator may be the user's.
        yield torch.randperm(n, generator=generator).numpy()[: samples % n]

    def _distributed(self, sampler: Any) -> Indices:
        if self._restored and self._rng is not None:
            sampler.epoch = self._rng
        self._rng = sampler.epoch
        n = len(sampler.dataset)
        if sampler.shuffle:
            generator = torch.Generator()
            generator.manual_seed(sampler.seed + sampler.epoch)
            indices = torch.randperm(n, generator=generator).numpy()
        else:
            indices = np.arange(n)
        # np.resize repeats from the beginning, as often as needed.
        indices = (
            np.resize(indices, sampler.total_size) if not sampler.drop_last else indices[: sampler.total_size]
        )
        return np.ascontiguousarray(indices[sampler.rank : sampler.total_size : sampler.num_replicas])


def known_sampler(index_sampler: Any, batched: bool) -> Any:
    """The sampler of single samples, if all is of types whose order is known; else None."""
    sampler = index_sampler
    if batched:
        if type(sampler) is not BatchSampler or not is_stock(sampler, "__iter__"):
            return None
        sampler = sampler.sampler
    if type(sampler) not in _KNOWN or not is_stock(sampler, "__iter__"):
        return None
    if type(sampler) is SubsetRandomSampler:
        try:
            indices = np.asarray(sampler.indices)
        except (TypeError, ValueError):
            return None
        if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
            return None
    if type(sampler) is WeightedRandomSampler and sampler.weights.device.type != "cpu":
        return None
    return sampler


def _cut(runs: Iterator[Indices], size: int, drop_last: bool, skip: int) -> Iterator[Indices]:
    """Runs of any length as batches; a run is drawn when the first number of it is needed, not before."""
    left = skip * size
    held: list[Indices] = []
    count = 0
    for run in runs:
        at = min(left, len(run))
        left -= at
        while len(run) - at >= size - count:
            held.append(run[at : at + size - count])
            at += size - count
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, count = [], 0
        if at < len(run):
            held.append(run[at:])
            count += len(run) - at
    if count and not drop_last:
        yield np.concatenate(held)
