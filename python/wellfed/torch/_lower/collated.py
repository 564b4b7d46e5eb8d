"""Collate functions of the user's own that stack images and labels, as `default_collate` does.

``torch.stack([s["pixels"] for s in batch])`` and ``torch.tensor([s["label"] for s in batch])`` under the same keys is
how many scripts collate. Invariant: a function is known only if its source, read with values that stand for
those of any sample, gives the same values under the same keys in the same order.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal

import torch

from .reading import Reader
from .unknown import UnknownError
from .values import INDEX, Column, Group, Known, Picture, Row, Table, Value

__all__ = ["stacks"]

_IMAGE = Picture(INDEX, kind="made")


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
) -> type | None:
    """What `function` puts the stacked values of samples into, if it does nothing but stack them; else None.

    Args:
        function: The collate function.
        kind: What a sample is.
        keys: Of its values, in order. One is an image; the others are whole numbers of Python.
        image: The key of the image.
    """
    if type(function) is not FunctionType:
        return None
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
    wanted = {key: Known(_Stacked(key)) for key in keys}
    if kind == "dict":
        same = isinstance(made, Table) and list(made.items.items()) == list(wanted.items())
        return dict if same else None
    if isinstance(made, Group) and made.items == tuple(wanted.values()):
        return made.kind
    return None
