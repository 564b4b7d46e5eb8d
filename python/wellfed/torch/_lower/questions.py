"""Small questions that are asked while a function is read: of values, of the syntax tree, of objects."""

from __future__ import annotations

import ast
import inspect
import os
from pathlib import PurePath
from types import CellType, FunctionType
from typing import Any, TypeGuard

import numpy as np
from torch import nn

from .unknown import UnknownError
from .values import INDEX, Boxes, Column, File, Group, Known, Mask, Picture, Sound, Table, Value, is_plain

__all__ = [
    "COMPARISONS",
    "SIGNS",
    "bound",
    "fresh",
    "identity",
    "is_same",
    "is_scalar",
    "is_text",
    "known_number",
    "looks_plainly",
    "of_cell",
    "taken",
    "times",
    "word",
]

SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


def bound(function: FunctionType, arguments: list[Value], named: dict[str, Value]) -> dict[str, Value]:
    """Parameters of a function, by name."""
    try:
        bound = inspect.signature(function).bind(*arguments, **named)
    except TypeError as error:
        raise UnknownError(f"its arguments do not fit: {error}") from None
    values: dict[str, Value] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            values[name] = Group(tuple, tuple(bound.arguments.get(name, ())))
        elif parameter.kind is parameter.VAR_KEYWORD:
            values[name] = Table(dict(bound.arguments.get(name, {})))
        else:
            values[name] = bound.arguments[name] if name in bound.arguments else Known(parameter.default)
    return values


def looks_plainly(value: Any) -> bool:
    """Whether an attribute that is there is looked up without the object's own code."""
    kind = type(value)
    ways = (object.__getattribute__, tuple.__getattribute__, nn.Module.__getattribute__)
    return is_plain(value) or kind.__getattribute__ in ways


def is_scalar(value: Any) -> bool:
    """Whether nobody can change it in place."""
    return isinstance(
        value, str | bytes | bool | int | float | complex | PurePath | np.generic | type(None) | range
    )


def known_number(value: Value) -> Any:
    """A number that is the same for all samples, or the mask that stands there; None of all else."""
    return value.value if isinstance(value, Known) else value if isinstance(value, Mask) else None


def times(value: Value, table: Table) -> int:
    """How often a dictionary is a part of a value."""
    if value is table:
        return 1
    if isinstance(value, Group | Table):
        parts = value.items if isinstance(value, Group) else value.items.values()
        return sum(times(part, table) for part in parts)
    return times(value.item, table) if isinstance(value, Column) else 0


def is_text(value: Value) -> TypeGuard[Known]:
    return isinstance(value, Known) and type(value.value) is str


def is_same(one: Value, other: Value) -> bool | None:
    """Whether two values are one object, where that can be told."""
    if isinstance(one, Known) and isinstance(other, Known):
        return one.value is other.value
    fresh = (Picture, Sound, Mask, Boxes, Group, Table, File)
    for value, given in ((one, other), (other, one)):
        # What is made anew is no object that was there before; nor is an index None.
        if isinstance(value, fresh) and isinstance(given, Known):
            return False
        if value is INDEX and isinstance(given, Known) and given.value is None:
            return False
    return None


def identity(path: str) -> tuple[int, ...]:
    """What tells a file from one that was put in its place."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise KeyError(path) from error
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def fresh(item: Any) -> Any:
    """An item of an array in a file, as h5py reads it."""
    return item.copy() if isinstance(item, np.ndarray) else item


def taken(value: Any, key: Any) -> Any:
    try:
        return value[key]
    except IndexError:
        raise KeyError(key) from None


def of_cell(cell: CellType) -> Any:
    return cell.cell_contents


def word(node: ast.AST) -> str:
    """What Python calls a piece of code."""
    return {
        ast.For: "a loop",
        ast.While: "a loop",
        ast.Raise: "raise",
        ast.Expr: "a call for its effect",
        ast.Import: "an import",
        ast.ImportFrom: "an import",
        ast.Global: "global",
        ast.Assert: "an assertion about a sample",
        ast.Try: "try with else or finally",
    }.get(type(node), type(node).__name__)
