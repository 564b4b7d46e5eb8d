"""Gradient accumulation: `loader.accumulate(n)` gives batches in groups of `n` and says which is the last of its group.

Invariant: every micro-batch knows, before its loss is computed, how many its group really has. A group never reaches
from one epoch into the next, and the last one of an epoch may be shorter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, TypeVar

from torch.utils.data import DataLoader, IterableDataset

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class MicroBatch(Generic[T_co]):
    """One batch, and where it stands in the group whose gradients make one step of the optimizer.

    Attributes:
        batch: What the loader gave.
        index: Its number in the group, from 0.
        count: How many batches this group has: `n`, or fewer in the last group of an epoch. Divide the loss by it.
        last: Whether it completes the group: now the optimizer may step.
    """

    batch: T_co
    index: int
    count: int

    @property
    def last(self) -> bool:
        """Whether it completes the group."""
        return self.index + 1 == self.count

    @contextlib.contextmanager
    def no_sync(self, *models: Any) -> Iterator[None]:
        """Within it, gradients are exchanged between ranks for the last micro-batch of the group only.

        Both the forward and the backward pass belong into it. Models without anything to exchange are left alone, so
        that a script can be the same with one process and with many.

        Args:
            *models: `DistributedDataParallel`, FSDP, or any module.
        """
        with contextlib.ExitStack() as stack:
            for model in models:
                if hasattr(model, "set_requires_gradient_sync"):  # fully_shard()
                    model.set_requires_gradient_sync(self.last)
                elif hasattr(model, "no_sync") and not self.last:
                    stack.enter_context(model.no_sync())
            yield


class MicroBatches(Generic[T_co]):
    """What `loader.accumulate(n)` returns: iterating goes through one epoch of the loader, a batch at a time.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from wellfed.torch import DataLoader
        >>> loader = DataLoader(TensorDataset(torch.arange(12.0).reshape(12, 1)), batch_size=2)
        >>> model = torch.nn.Linear(1, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        >>> for micro in loader.accumulate(4):
        ...     with micro.no_sync(model):
        ...         (x,) = micro.batch
        ...         loss = model(x).square().mean() / micro.count
        ...         loss.backward()
        ...     if micro.last:
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         print(f"a step after {micro.count} batches")
        a step after 4 batches
        a step after 2 batches
    """

    def __init__(self, loader: DataLoader[T_co], n: int) -> None:
        """Groups of `n` batches of `loader`."""
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise ValueError(f"accumulate() needs a positive number of batches per step, but got n={n!r}")
        self.loader = loader
        self.n = n

    def __len__(self) -> int:
        """Batches in an epoch, as of the loader."""
        return len(self.loader)

    @property
    def steps(self) -> int:
        """Optimizer steps in an epoch: what a learning-rate schedule wants to know."""
        return -(-len(self.loader) // self.n)

    def __iter__(self) -> Iterator[MicroBatch[T_co]]:
        batches = iter(self.loader)
        if isinstance(self.loader.dataset, IterableDataset):
            return self._read_ahead(batches)
        return self._counted(batches)

    def _counted(self, batches: Iterator[T_co]) -> Iterator[MicroBatch[T_co]]:
        """The length tells the size of the last group, so nothing is read ahead and a state is exact at any batch."""
        total = len(self.loader)
        # Not 0 where a state was loaded. Groups stay where they were in the epoch.
        place: int = getattr(batches, "_num_yielded", 0)
        begin = place  # of what is accumulated: a resumed process has no gradients of the batches before
        for batch in batches:
            if place >= total:
                raise RuntimeError(
                    f"the loader says it has {total} batches, and gave more"
                    "\nhint: __len__ of its sampler or batch sampler is wrong"
                )
            start = place - place % self.n
            first, end = max(start, begin), min(start + self.n, total)
            yield MicroBatch(batch, place - first, end - first)
            place += 1
        if place < total and place % self.n:
            raise RuntimeError(
                f"the loader says it has {total} batches, and gave {place}: its last group was cut short"
                "\nhint: __len__ of its sampler or batch sampler is wrong"
            )

    def _read_ahead(self, batches: Iterator[T_co]) -> Iterator[MicroBatch[T_co]]:
        """Nobody knows how long a stream is: a group is read before its first batch is given."""
        while group := list(islice(batches, self.n)):
            for i in range(len(group)):
                yield MicroBatch(group[i], i, len(group))
