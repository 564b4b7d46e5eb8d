"""`Places`: where the engine puts the samples of a batch, so that collating has nothing to copy.

In a worker process that is the shared memory in which the batch goes to the caller. Steps get arrays over it as they
get any others. Where all of them give their array back, the samples lie as the batch does, and are one already;
otherwise they are stacked elsewhere, as always, and the memory is used for the next batch. An array that a step keeps
for itself is seen when the batch is packed: then that is copied after all (`Slot.shared`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native, _offer

__all__ = ["Places"]

LARGE = 64 * 1024
"""Bytes of a batch from which samples are put where it is to lie."""

MOST = 128 << 20
"""Bytes of a batch up to which they are: steps may well make little of much."""

TRIES = 4
"""Batches in a row that were made of none of such samples, after which no more are put there."""

Fields = list[tuple[int, Any, tuple[int, ...]]]
"""Columns, with dtype and shape of a sample."""


class Places:
    """Memory for the samples of one batch after the other.

    What a source's samples look like is known from those of the batch before; one that looks otherwise has memory of
    its own.
    """

    def __init__(self) -> None:
        # By leaf.
        self._known: dict[int, Fields] = {}
        # Of the batch at hand: the array of a column of the picks that have this place in their elements.
        self._blocks: dict[tuple[int, int, str, tuple[int, ...]], Any] = {}
        # Batches in a row that had blocks in vain, and those before this one that lie in theirs.
        self._in_vain = self._collated = 0

    def forget(self) -> None:
        """The batch is made: what holds its memory from now on is for others to say."""
        if self._blocks and _offer.current is not None:
            collated = _offer.current.collated
            self._in_vain = 0 if collated > self._collated else self._in_vain + 1
            self._collated = collated
        self._blocks = {}

    def of(self, leaf: int, place: int, rows: int) -> list[tuple[int, Any]]:
        """Arrays ``[rows, ...]`` by column, for samples of `leaf` at this place in their elements."""
        offer = _offer.current
        if offer is None or self._in_vain >= TRIES:
            return []
        found = []
        for column, dtype, shape in self._known.get(leaf, ()):
            name = (place, column, str(dtype), shape)
            if name not in self._blocks:
                size = rows * int(np.prod(shape)) * dtype.itemsize
                self._blocks[name] = offer.place(size)[:size].view(dtype).reshape(rows, *shape)
            found.append((column, self._blocks[name]))
        return found

    def learn(self, leaf: int, rows: int, columns: list[Any]) -> None:
        """Notes what a sample of `leaf` looks like, of which none found a place: arrays that are large in a batch."""
        if _offer.current is None:
            return
        self._known[leaf] = [
            (column, np.dtype(value.dtype), tuple(value.shape))
            for column, value in enumerate(columns)
            if type(value) is _native.Array
            and value.dtype != "bfloat16"
            and LARGE <= rows * int(np.prod(value.shape)) * np.dtype(value.dtype).itemsize <= MOST
        ]
