"""Collate functions that stack images and labels, as `default_collate` does, under whichever keys.

``torch.stack([s["pixels"] for s in batch])`` and ``torch.tensor([s["label"] for s in batch])`` is how many scripts
collate. Invariant: a function is known only if its source, read with values that stand for those of any sample, gives
each of the stacked values as it is; or if it is exactly one of those of `transformers` and timm that do.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

import torch

from .forms import is_stock
from .reading import Reader
from .unknown import UnknownError
from .values import INDEX, Column, Group, Known, Picture, Row, Table, Value

__all__ = ["Batch", "stacks"]

_IMAGE = Picture(INDEX, kind="made")


@dataclass(frozen=True)
class Batch:
    """What a collate function makes of samples.

    Attributes:
        kind: What it puts the stacked values into.
        keys: For each its key there, or place, and that in the samples.
        dtype: The one element type that images may have; None for any.
        arrays: Whether images may be NumPy arrays.
    """

    kind: type
    keys: tuple[tuple[Hashable, Any], ...]
    dtype: str | None = None
    arrays: bool = False

    def __call__(self, stacked: Any) -> Any:
        """The batch, of values that were stacked under the keys of samples."""
        if self.kind is dict:
            return {key: stacked[old] for key, old in self.keys}
        return self.kind(stacked[old] for _, old in self.keys)


# One object for what is the same, since plans are compared by that.
_batch = functools.lru_cache(256)(Batch)


@dataclass(frozen=True)
class _Stacked:
    """The values of a key of all samples, in one tensor."""

    key: Hashable


class _Reader(Reader):
    """Reads what a function makes of a list of samples."""

    def __init__(self, cells: dict[Value, Hashable]) -> None:
        super().__init__()
        self._cells = cells

    def _of_batch(self, function: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
        (column, *rest) = arguments
        assert isinstance(column, Column)
        cell = column.item
        if isinstance(cell, Picture):
            known = function is torch.stack and (rest, named) in (
                ([], {}),
                ([Known(0)], {}),
                ([], {"dim": Known(0)}),
            )
        else:
            makes = function in (torch.tensor, torch.as_tensor)
            wide = makes and named == {"dtype": Known(torch.int64)}
            known = not rest and (wide or (not named and (makes or function is torch.LongTensor)))
        if not known or cell not in self._cells:
            raise UnknownError("stacks samples in another way")
        return Known(_Stacked(self._cells[cell]))


def stacks(
    function: Any, kind: Literal["tuple", "list", "dict"], keys: Sequence[Hashable], image: Hashable
) -> Batch | None:
    """What `function` makes of samples, if it does nothing but stack their values; else None.

    Args:
        function: The collate function.
        kind: What a sample is.
        keys: Of its values, in order. One is an image; the others are whole numbers of Python.
        image: The key of the image.
    """
    known = _of_transformers(function, kind, keys) or _of_timm(function, kind, keys, image)
    if known is not None or type(function) is not FunctionType:
        return known
    values: dict[Hashable, Value] = {
        key: _IMAGE if key == image else Row(f"cell{place}") for place, key in enumerate(keys)
    }
    sample: Value
    if kind == "dict":
        if not all(isinstance(key, str) for key in keys):
            return None
        sample = Table({str(key): value for key, value in values.items()})
    else:
        sample = Group(tuple if kind == "tuple" else list, tuple(values.values()))
    reader = _Reader({value: key for key, value in values.items()})
    try:
        made = reader.call(function, [Column(sample)])
    except Exception:  # It is only read: nobody's script is to fail of it.
        return None
    into: type
    found: list[tuple[Hashable, Value]]
    if isinstance(made, Table):
        into, found = dict, [*made.items.items()]
    elif isinstance(made, Group):
        into, found = made.kind, [*enumerate(made.items)]
    else:
        return None
    taken = [value.value.key for _, value in found if isinstance(value, Known) and _is_stacked(value.value)]
    # What is there twice would be one tensor, which somebody may change.
    if len(taken) < len(found) or len(set(taken)) < len(taken) or image not in taken:
        return None
    return _batch(into, tuple((key, old) for (key, _), old in zip(found, taken, strict=True)))


def _is_stacked(value: Any) -> bool:
    return isinstance(value, _Stacked)


def _of_transformers(function: Any, kind: str, keys: Sequence[Hashable]) -> Batch | None:
    """``default_data_collator``, and the class of that name: labels come first, and are called so."""
    module = sys.modules.get("transformers.data.data_collator")
    if module is None or kind != "dict":
        return None
    if type(function) is module.DefaultDataCollator:
        if not is_stock(function, "__call__") or function.return_tensors != "pt":
            return None
    elif function is not module.default_data_collator:
        return None
    own = (module.default_data_collator, module.torch_default_data_collator)
    if any(getattr(one, "__module__", None) != module.__name__ for one in own):
        return None
    # Whole numbers in the place of lists are refused there, and two labels would hide each other.
    if "label_ids" in keys or {"label", "labels"} <= set(keys):
        return None
    labels = [("labels", "label")] if "label" in keys else []
    return _batch(dict, (*labels, *((key, key) for key in keys if key != "label")))


def _of_timm(function: Any, kind: str, keys: Sequence[Hashable], image: Hashable) -> Batch | None:
    """``fast_collate``, which copies images of bytes into one tensor."""
    module = sys.modules.get("timm.data.loader")
    own = module is not None and function is module.fast_collate and function.__module__ == module.__name__
    if not own or kind != "tuple" or tuple(keys) != (0, 1) or image != 0:
        return None
    return _batch(tuple, ((0, 0), (1, 1)), "uint8", True)
