"""What may change between epochs: whether values are still those that were looked at.

Invariant: of what is read where it lies, as images in arrays are, nothing is kept but which object it is.
"""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

__all__ = ["Stamp", "is_kept", "is_settled"]


class Stamp:
    """Values as they were, the elements of lists and small arrays included."""

    def __init__(self, values: list[Any]) -> None:
        self._values = [(value, _copied(value)) for value in values]

    def holds(self, now: list[Any], deep: bool = True) -> bool:
        """Whether `now` are the same objects, and if `deep` with the same elements."""
        same = _same if deep else _is
        return len(now) == len(self._values) and all(map(same, self._values, now))


def _copied(value: Any) -> Any:
    """What a later look is compared with; None of what is read where it lies."""
    if isinstance(value, torch.Tensor | np.ndarray) and is_kept(value):
        return value.clone() if isinstance(value, torch.Tensor) else value.copy()
    if _is_list_of_lists(value):
        return list(map(list, value))
    if isinstance(value, list | dict) or _is_frame(value):
        return value.copy()
    return None


def is_kept(array: Any) -> bool:
    """Whether changes of an array, or of a tensor, in place are seen: of labels, not of images and large tables."""
    return bool(array.ndim == 1 or (array.nbytes <= _SMALL and "uint8" not in str(array.dtype)))


def is_settled(value: Any) -> bool:
    """Whether all changes of what is in a container are seen: nothing else in it could be changed without it."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return is_kept(value)
    if _is_list_of_lists(value):
        return True
    if isinstance(value, list | tuple | dict):
        first = next(iter(value.values() if isinstance(value, dict) else value), None)
        return all(map(_is_fixed, first if isinstance(first, tuple) else (first,)))
    return True


def _is_list_of_lists(value: Any) -> bool:
    """Whether it is a table of texts or numbers, of which a copy takes little."""
    if type(value) is not list or not value or type(value[0]) is not list:
        return False
    if not all(type(row) is list for row in value) or sum(map(len, value)) > _MANY:
        return False
    return all(map(_is_fixed, value[0]))


def _is_fixed(value: Any) -> bool:
    return value is None or isinstance(
        value, bool | int | float | complex | str | bytes | np.generic | PurePath
    )


_MANY = 4_000_000
"""Values of a table that are kept for comparison."""

_SMALL = 1 << 20
"""Bytes of arrays that are kept for comparison."""


def _is_frame(value: Any) -> bool:
    """Whether it is a table or a column of pandas."""
    pandas: Any = sys.modules.get("pandas")
    return pandas is not None and type(value) in (pandas.DataFrame, pandas.Series)


_SCALARS = (str, range, int, float, bytes, tuple)
"""What may be made anew each time it is looked up."""


def _is(before: tuple[Any, Any], now: Any) -> bool:
    value, copied = before
    if value is not now and not (type(value) is type(now) and type(now) in _SCALARS and value == now):
        return False
    return not isinstance(copied, list | dict) or len(copied) == len(now)


def _same(before: tuple[Any, Any], now: Any) -> bool:
    if not _is(before, now):
        return False
    copied = before[1]
    if copied is None:
        return True
    if isinstance(now, torch.Tensor):
        return bool(torch.equal(copied, now))
    if isinstance(now, np.ndarray):
        return bool(np.array_equal(copied, now))
    if _is_frame(now):
        return bool(copied.equals(now))
    try:
        return bool(copied == now)
    except (ValueError, RuntimeError):  # arrays in a list or dictionary have no one answer
        return False
