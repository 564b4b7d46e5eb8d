"""Batches in float16 or bfloat16, made where they are assembled: `DataLoader(..., float_dtype=torch.bfloat16)`.

Invariant: only floating point tensors change. Labels, masks, token ids and all that is not a tensor stay as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from ._nested import map_leaves


def float_dtype(value: torch.dtype | str | None) -> torch.dtype | None:
    """What `DataLoader`'s argument `float_dtype` says, checked.

    Example:
        >>> float_dtype("bfloat16")
        torch.bfloat16
        >>> float_dtype(torch.int64)
        Traceback (most recent call last):
        ValueError: float_dtype must be a floating point type, but got float_dtype=torch.int64
        hint: integer tensors keep their type; collate_fn may convert them
    """
    if value is None:
        return None
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"float_dtype must be a torch.dtype or its name, but got float_dtype={value!r}"
            "\nhint: for example float_dtype=torch.bfloat16"
        )
    if not dtype.is_floating_point:
        raise ValueError(
            f"float_dtype must be a floating point type, but got float_dtype={dtype}"
            "\nhint: integer tensors keep their type; collate_fn may convert them"
        )
    return dtype


def cast(batch: Any, dtype: torch.dtype | None) -> Any:
    """The batch with its floating point tensors in `dtype`; the batch itself if there is nothing to do.

    Example:
        >>> images, labels = cast([torch.zeros(2, 3), torch.tensor([1, 2])], torch.float16)
        >>> images.dtype, labels.dtype
        (torch.float16, torch.int64)
    """
    if dtype is None:
        return batch

    def other_float(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != dtype

    return map_leaves(batch, lambda tensor: tensor.to(dtype), other_float)
