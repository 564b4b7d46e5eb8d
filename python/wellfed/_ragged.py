"""`Ragged`: arrays that differ in length, as one array of values and offsets."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np

__all__ = ["Ragged"]


class Ragged(Sequence[Any]):
    """Arrays that differ in length, one after the other: array ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Batches of `Dataset.ragged_batch` are of this form, and `from_tensor_slices` takes it, both without a copy.
    Both parts are NumPy arrays, or both torch tensors.

    Args:
        values: All values; other dimensions than the first are those of every value.
        offsets: Where arrays begin, and where the last one ends: whole numbers that do not fall, one more than there
            are arrays.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> ragged = wf.Ragged(np.arange(5), np.array([0, 2, 2, 5]))
        >>> len(ragged), [part.tolist() for part in ragged]
        (3, [[0, 1], [], [2, 3, 4]])
        >>> batch = next(iter(wf.from_tensor_slices(ragged).ragged_batch(2).numpy()))
        >>> batch.values.tolist(), batch.offsets.tolist()
        ([0, 1], [0, 2, 2])
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: Any) -> None:
        self.values = values
        """All values, one array after the other."""
        self.offsets = offsets
        """Where arrays begin, and where the last one ends."""
        if not len(offsets):
            raise ValueError("offsets are empty; there must be one more than there are arrays")

    @classmethod
    def from_arrays(cls, arrays: Iterable[Any]) -> Ragged:
        """Puts arrays (or lists of numbers) of one dtype together. Copies them once.

        Example:
            >>> import wellfed as wf
            >>> wf.Ragged.from_arrays([[1, 2], [], [3]]).offsets
            array([0, 2, 2, 3])
        """
        parts = [np.asarray(part) for part in arrays]
        filled = [part for part in parts if part.size] or parts
        if not filled:
            raise ValueError("there is no array, and so no dtype\nhint: make one as Ragged(values, [0])")
        first = filled[0]
        for i, part in enumerate(parts):
            if part.ndim != first.ndim or (part.size and part.shape[1:] != first.shape[1:]):
                raise ValueError(
                    f"array {i} has shape {list(part.shape)}, another one {list(first.shape)}; they may differ in "
                    "their first dimension alone"
                )
            if part.size and part.dtype != first.dtype:
                raise TypeError(f"array {i} has dtype {part.dtype}, another one {first.dtype}")
        if first.ndim == 0:
            raise ValueError("single numbers have no length")
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        values = np.empty((int(offsets[-1]), *first.shape[1:]), first.dtype)
        for part, start in zip(parts, offsets.tolist()):
            if part.size:
                values[start : start + len(part)] = part
        return cls(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Ragged: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Array ``index``, without a copy; for a slice of step 1, a `Ragged` of those arrays."""
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"the step of a slice is {step}; it must be 1")
            return Ragged(self.values, self.offsets[start : max(start, stop) + 1])
        at = operator.index(index)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError(f"there is no array {index}: there are {len(self)}")
        return self.values[int(self.offsets[at]) : int(self.offsets[at + 1])]

    def __iter__(self) -> Iterator[Any]:
        ends = self.offsets.tolist()
        return (self.values[start:end] for start, end in pairwise(ends))

    @property
    def lengths(self) -> Any:
        """Length of each array."""
        return self.offsets[1:] - self.offsets[:-1]

    def to_nested(self) -> Any:
        """A nested tensor of torch in its jagged layout, over the same memory.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> wf.Ragged(np.arange(3), np.array([0, 1, 3])).to_nested().shape[0]
            2
        """
        import torch

        first = int(self.offsets[0])
        parts = (self.values[first:], self.offsets - first) if first else (self.values, self.offsets)
        values, offsets = (torch.from_numpy(p) if isinstance(p, np.ndarray) else p for p in parts)
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def __repr__(self) -> str:
        rest = "".join(f", {side}" for side in self.values.shape[1:])
        dtype = str(self.values.dtype).removeprefix("torch.")
        return f"Ragged({len(self)} arrays of {dtype} [*{rest}], {len(self.values)} values)"
