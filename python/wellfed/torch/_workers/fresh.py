"""`Fresh`: whether a collate function of the user's makes its batches of new memory.

What a worker hands over is a copy. A batch of the calling thread is the very object, which the script may write to: so
it must not be a part of a sample, of the data set, or of the batch before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

__all__ = ["Extent", "Fresh", "extents"]

Extent = tuple[int, int]
"""Where an array or a tensor begins and ends in memory."""

_FIXED = (type(None), bool, int, float, complex, str, bytes)


class Fresh:
    """A collate function that is watched.

    Attributes:
        shares: Whether a batch had memory that was not its own, or something in it that is not known.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate
        self.shares = False
        # The batch before, which lives on: its memory is not given to the next one.
        self._before: tuple[Any, _Found] | None = None

    def __call__(self, samples: Any) -> Any:
        if self.shares:
            return self._collate(samples)
        given = _Found(samples)
        batch = self._collate(samples)
        made = _Found(batch)
        self.shares = (
            made.strange or made.meets(given) or (self._before is not None and made.meets(self._before[1]))
        )
        self._before = None if self.shares else (batch, made)
        return batch

    def lies_in(self, memory: Iterable[Extent]) -> bool:
        """Whether a part of the last batch lies in such memory."""
        if self._before is None:
            return False
        return _overlap(self._before[1].extents, [*memory])


class _Found:
    """What a structure is made of.

    Attributes:
        extents: Of its arrays and tensors.
        objects: Its containers that can be changed, by number.
        strange: Whether there is something in it that is neither, nor a number or a text; or a part of a larger array.
    """

    def __init__(self, structure: Any) -> None:
        self.extents: list[Extent] = []
        self.objects: set[int] = set()
        self.strange = False
        left = [structure]
        while left:
            value = left.pop()
            kind = type(value)
            if kind in _FIXED or issubclass(kind, np.generic):
                continue
            if kind in (torch.Tensor, np.ndarray):
                self.strange |= _is_part(value)
                self.extents += extents(value)
            elif kind in (list, dict):
                self.objects.add(id(value))
                left += value.values() if kind is dict else value
            elif tuple in kind.__mro__ and (kind is tuple or hasattr(kind, "_fields")):
                left += tuple.__iter__(value)
            else:
                self.objects.add(id(value))
                self.strange = True

    def meets(self, other: _Found) -> bool:
        """Whether they share something."""
        return bool(self.objects & other.objects) or _overlap(self.extents, other.extents)


def extents(value: torch.Tensor | np.ndarray[Any, Any]) -> list[Extent]:
    """Where it lies; nothing for one without elements."""
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        return [(storage.data_ptr(), storage.data_ptr() + storage.nbytes())] if storage.nbytes() else []
    if value.size == 0:
        return []
    # From the first element, strides lead both ways.
    first: int = value.__array_interface__["data"][0]
    steps = [step * (count - 1) for step, count in zip(value.strides, value.shape)]
    low, high = first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0)
    return [(low, high + value.itemsize)]


def _is_part(value: Any) -> bool:
    """Whether it is a part of a larger one, or lies in memory of something else."""
    if isinstance(value, torch.Tensor):
        return value.device.type != "cpu" or bool(value.untyped_storage().nbytes() > value.nbytes)
    return bool(value.base is not None)


def _overlap(some: list[Extent], others: list[Extent]) -> bool:
    """Whether any of them meets any of the others."""
    both = sorted([(*extent, 0) for extent in some] + [(*extent, 1) for extent in others])
    ends = [0, 0]
    for low, high, which in both:
        if low < ends[1 - which]:
            return True
        ends[which] = max(ends[which], high)
    return False
