"""A pass over a stream as torch's loaders want it."""

from __future__ import annotations

from typing import Any

from torch.utils.data import IterableDataset

from .stream import Pass

__all__ = ["IterablePass"]


class IterablePass(Pass, IterableDataset[Any]):  # type: ignore[misc]
    """`Pass` as torch's `IterableDataset`."""
