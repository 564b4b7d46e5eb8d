"""Equality of what loaders and data sets give: structure, types, dtypes and bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image


def same(one: Any, other: Any) -> bool:
    """Whether both are the same to the bit, in type too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, Image.Image):
        return one.mode == other.mode and one.size == other.size and one.tobytes() == other.tobytes()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Greatest difference of two tensors of one shape and dtype."""
    assert one.shape == other.shape
    assert one.dtype == other.dtype
    return float((one.double() - other.double()).abs().max())
