"""Arguments of the verbs that batch arrays of different sizes: one value for each field, in the samples' structure."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from . import _arguments as check

__all__ = ["field_name", "padding", "reals", "wholes"]

Tree = dict[str, Any]


def padding(
    tree: Tree, padded_shapes: Any, padding_values: Any, multiple_of: int | None, lengths: bool, mask: bool
) -> dict[str, Any]:
    """What a plan says of padding: shapes and values field by field."""
    count = _count(tree)
    values = padding_values
    if isinstance(values, numbers.Number | np.generic):
        values = [_number(values)] * count
    elif values is not None:
        values = _by_field(tree, values, _number, "padding_values", count)
    shapes = None
    if padded_shapes is not None:
        shapes = _by_field(tree, padded_shapes, _shape, "padded_shapes", count)
    multiple = None if multiple_of is None else check.whole(multiple_of, "multiple_of", 1)
    return {
        "padded_shapes": shapes,
        "padding_values": values,
        "multiple_of": multiple,
        "lengths": bool(lengths),
        "mask": bool(mask),
    }


def wholes(values: Any, name: str) -> list[int]:
    """A list of whole numbers of at least 1."""
    if not check.is_sequence(values) and not isinstance(values, np.ndarray):
        raise TypeError(f"{name} is {values!r}; it must be a list of ints")
    return [check.whole(value, name, 1) for value in values]


def reals(values: Any, name: str) -> list[float]:
    """A list of numbers."""
    if not check.is_sequence(values) and not isinstance(values, np.ndarray):
        raise TypeError(f"{name} is {values!r}; it must be a list of numbers")
    return [check.number(value, name) for value in values]


def field_name(field: Any) -> str | None:
    """The name of a field; of a tuple's, its place."""
    if field is None or isinstance(field, str):
        return field
    if callable(field):
        raise TypeError(
            "lengths are taken from the source, before samples are made, and so not from a function\n"
            "hint: give the name of the field whose length counts, or its place in a tuple"
        )
    return str(check.whole(field, "field"))


def _count(tree: Tree) -> int:
    ((kind, inner),) = tree.items()
    if kind == "field":
        return 1
    return sum(_count(item) for item in ([item for _, item in inner] if kind == "dict" else inner))


def _by_field(tree: Tree, value: Any, leaf: Callable[[Any, str], Any], what: str, count: int) -> list[Any]:
    found: list[Any] = [None] * count

    def walk(tree: Tree, value: Any) -> None:
        ((kind, inner),) = tree.items()
        if value is None:
            return
        if kind == "field":
            found[inner] = leaf(value, what)
        elif kind == "dict":
            if not isinstance(value, Mapping):
                raise TypeError(f"{what} is {value!r}; samples are dicts, so it must be a dict as well")
            keys = dict(inner)
            for key, item in value.items():
                if key not in keys:
                    raise ValueError(f"{what} has {key!r}, but samples have {', '.join(map(repr, keys))}")
                walk(keys[key], item)
        else:
            if not isinstance(value, tuple | list):
                raise TypeError(f"{what} is {value!r}; samples are tuples, so it must be a tuple as well")
            if len(value) != len(inner):
                raise ValueError(f"{what} has {len(value)} items, but samples have {len(inner)}")
            for item, part in zip(inner, value):
                walk(item, part)

    walk(tree, value)
    return found


def _shape(value: Any, what: str) -> list[int | None]:
    """Sides; None and -1 are left to the batch."""
    if isinstance(value, numbers.Integral) or not hasattr(value, "__iter__") or isinstance(value, str):
        raise TypeError(f"{what} has {value!r} where a shape belongs, such as [None] or [10]")
    return [None if side is None or side == -1 else check.whole(side, what) for side in value]


def _number(value: Any, what: str = "padding_values") -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, numbers.Integral):
        return int(value)
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{what} has {value!r} where a number belongs")
    number = float(value)
    if math.isfinite(number):
        return number
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
