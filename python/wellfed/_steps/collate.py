"""Samples to batches, by torch's rules, and batches to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _offer

__all__ = ["as_numpy", "collated", "converted"]


def collated(samples: list[Any]) -> Any:
    """A batch as ``torch.utils.data.default_collate`` makes it.

    In a worker it is put together in shared memory; samples that lie there already are not copied.
    """
    from torch.utils.data import default_collate

    offer = _offer.current
    if offer is None:
        return default_collate(samples)
    with offer.in_place():
        return default_collate(samples)


def converted(sample: Any) -> Any:
    """One sample, with tensors in place of arrays."""
    from torch.utils.data import default_convert

    return default_convert(sample)


def as_numpy(value: Any) -> Any:
    """A batch with arrays in place of tensors, which share their memory."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            raise TypeError(
                "NumPy has no bfloat16\nhint: iterate as .torch(), or convert to float32 in map()"
            )
        return value.detach().numpy()
    if isinstance(value, dict):
        return {key: as_numpy(one) for key, one in value.items()}
    if isinstance(value, tuple):
        parts = [as_numpy(one) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [as_numpy(one) for one in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def stacked(samples: list[Any]) -> Any:
    """A batch of samples as NumPy arrays, by the rules of torch's `default_collate`, without torch."""
    first = samples[0]
    if isinstance(first, str | bytes):
        return list(samples)
    if isinstance(first, dict):
        return {key: stacked([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list):
        parts = [stacked(list(part)) for part in zip(*samples, strict=True)]
        if isinstance(first, list):
            return parts
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return np.stack([np.asarray(sample) for sample in samples])
