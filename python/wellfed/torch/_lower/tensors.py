"""`TensorDataset`, and what is made of several: whole batches gathered at once, without worker or engine.

Invariant: batches are equal to the stock loader's to the bit, in structure too, and are fresh tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .datasets import _indices
from .forms import RefusalError, is_stock

__all__ = ["Rows"]

_METHODS = ("__getitem__", "__getitems__", "__len__", "__getattribute__")


class Rows:
    """The rows of tensors that a data set gives.

    Args:
        dataset: A `TensorDataset`, or `Subset` and `ConcatDataset` of some.

    Raises:
        RefusalError: It is anything else.
    """

    def __init__(self, dataset: Any) -> None:
        self._parts: list[tuple[torch.Tensor, ...]] = []
        rows = self._read(dataset)
        self._rows = None if rows is None else torch.from_numpy(rows)
        self._starts = torch.tensor(np.cumsum([0, *(len(part[0]) for part in self._parts)]))
        self.length = int(self._starts[-1]) if rows is None else len(rows)

    def _read(self, dataset: Any) -> Any:
        """Rows of `dataset` among those of all parts, or None for all of them."""
        kind = type(dataset)
        if kind not in (TensorDataset, Subset, ConcatDataset):
            raise RefusalError("no TensorDataset")
        if not is_stock(dataset, *_METHODS):
            raise RefusalError("its methods were replaced", "use the class as torch made it")
        if kind is Subset:
            inner = self._read(dataset.dataset)
            picked = _indices(dataset.indices, len(dataset.dataset))
            return picked if inner is None else inner[picked]
        if kind is ConcatDataset:
            if dataset.cumulative_sizes != ConcatDataset.cumsum(dataset.datasets):
                raise RefusalError("its parts changed their length", "make the ConcatDataset anew")
            return self._concatenated(dataset.datasets)
        tensors = tuple(dataset.tensors)
        if not tensors or any(type(t) is not torch.Tensor or t.layout != torch.strided for t in tensors):
            raise RefusalError("it holds something else than plain dense tensors")
        if any(t.requires_grad for t in tensors):
            raise RefusalError("its tensors take part in gradients", "use tensor.detach()")
        if any(t.ndim == 0 or len(t) < len(tensors[0]) for t in tensors):
            raise RefusalError("its tensors differ in length")
        known = self._parts[0] if self._parts else tensors
        if [(t.dtype, t.shape[1:], t.device) for t in tensors] != [
            (t.dtype, t.shape[1:], t.device) for t in known
        ]:
            raise RefusalError("its parts differ in shape, dtype or device")
        self._parts.append(tensors)
        return None

    def _concatenated(self, datasets: list[Any]) -> Any:
        rows, whole = [], True
        for part in datasets:
            first = sum(len(tensors[0]) for tensors in self._parts)
            found = self._read(part)
            whole = whole and found is None
            rows.append(first + (np.arange(len(part)) if found is None else found))
        return None if whole else np.concatenate(rows)

    def batch(self, indices: Any) -> list[torch.Tensor]:
        """What ``default_collate([dataset[i] for i in indices])`` gives."""
        given = np.asarray(indices, np.int64)
        if given.size and given.min() < 0:
            given = np.where(
                given < 0, given + self.length, given
            )  # from the end, as the data set itself counts
        where = torch.from_numpy(given)
        if self._rows is not None:
            where = self._rows[where]
        if len(self._parts) == 1:
            tensors = self._parts[0]
            return [
                t.index_select(0, where if t.device.type == "cpu" else where.to(t.device)) for t in tensors
            ]
        part_of = torch.bucketize(where, self._starts[1:], right=True)
        batch = [t.new_empty((len(where), *t.shape[1:])) for t in self._parts[0]]
        for place, tensors in enumerate(self._parts):
            mine = (part_of == place).nonzero().squeeze(1)
            if len(mine):
                for out, tensor in zip(batch, tensors, strict=True):
                    at = (where[mine] - self._starts[place]).to(tensor.device)
                    out.index_copy_(0, mine.to(out.device), tensor.index_select(0, at))
        return batch
