"""`Places`: where the tensors of a batch's samples are written, so that collating has nothing to copy.

In a worker process that is the shared memory in which the batch goes to the caller. A place is only ever a guess at
where a tensor will lie in its batch: whoever collates looks at where the samples do lie, and copies them if that is not
one after the other. Nobody is given a place twice in one batch.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from .. import _offer

__all__ = ["Places", "array", "tensor"]

LARGE = 64 * 1024
"""Bytes of a batch from which samples are put where it is to lie."""

MOST = 128 << 20
"""Bytes of a batch up to which they are: a data set may well make little of much."""

VIEWS = 4
"""Tensors of one shape that a sample may have."""

TRIES = 4
"""Batches in a row that were sent from elsewhere, after which no more samples are put there."""

Shape = tuple[int, ...]


class Places:
    """Memory for the tensors of one batch after the other, of samples that this thread makes.

    How many tensors of a shape a sample has is known from the batch before.
    """

    def __init__(self, offer: _offer.Offer) -> None:
        self._offer = offer
        self._thread = threading.get_ident()
        self._samples = 0
        self._views: dict[Shape, int] = {}
        # Of the batch at hand: tensors that were asked for, and the array of the first, second, ... of each sample.
        self._counts: dict[Shape, int] = {}
        self._blocks: dict[tuple[Shape, int], Any] = {}
        self._in_vain = self._collated = 0
        self._placed = False

    def begin(self, samples: int) -> None:
        """A batch of so many samples is made from now on; 0: it will not be collated as those before."""
        self.end()
        # Only now it is known whether the last batch was sent as it lay.
        if self._placed:
            self._in_vain = 0 if self._offer.collated > self._collated else self._in_vain + 1
        self._placed = False
        self._samples = samples if self._in_vain < TRIES else 0
        self._collated = self._offer.collated

    def end(self) -> None:
        """The batch is made: what holds its memory from now on is for others to say."""
        for shape, count in self._counts.items():
            views, rest = divmod(count, self._samples)
            self._views[shape] = views if not rest and views <= VIEWS else 1
        self._samples = 0
        self._counts.clear()
        self._blocks.clear()

    def of(self, shape: Shape) -> Any:
        """Memory for a float32 tensor of this shape; None if there is none."""
        # A second thread could be given the same place as this one.
        if not self._samples or threading.get_ident() != self._thread:
            return None
        count = self._counts.get(shape, 0)
        self._counts[shape] = count + 1
        row, view = divmod(count, self._views.get(shape, 1))
        if row >= self._samples:
            return None
        block = self._blocks.get((shape, view))
        if block is None:
            size = 4 * self._samples
            for side in shape:
                size *= side
            if not LARGE <= size <= MOST:
                return None
            memory = self._offer.place(size)[:size]
            self._placed = True
            block = self._blocks[shape, view] = memory.view(np.float32).reshape(self._samples, *shape)
        return block[row]


current: Places | None = None
"""Those of this process, if it is a worker."""


def array(shape: Shape) -> Any:
    """A float32 array with unspecified values where a tensor of its batch may lie; None if there is no such place."""
    return None if current is None else current.of(shape)


def tensor(shape: Shape) -> Any:
    """A float32 tensor with unspecified values, which nobody else knows of."""
    import torch

    place = array(shape)
    if place is None:
        return torch.empty(shape, dtype=torch.float32, device="cpu")
    # Each has a storage of its own, so that saving one does not save its batch.
    return torch.from_numpy(place)


def _forget() -> None:
    global current
    current = None


if hasattr(os, "register_at_fork"):
    # The memory is still the parent's.
    os.register_at_fork(after_in_child=_forget)
