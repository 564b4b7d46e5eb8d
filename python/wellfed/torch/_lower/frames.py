"""Rows of pandas' tables of numbers: a value that is calculated of one row, calculated of all rows at once.

``torch.tensor(self.df.iloc[i][columns].values, dtype=torch.float32)`` takes some hundred microseconds of pandas for
each row. The row of a table of numbers has one dtype, that of ``df.to_numpy()``, and what is done to it here is done to
each number by itself, so it is the row of an array that the same steps make of all rows.

Invariant: `table` gives such an array only if rows of it, from all parts of the table, are equal in type, shape and
bits to what the data set makes. Where a number might become another one in a way that depends on how many are converted
at once (NaN or a large number as an integer), there is none, and rows are made one by one as before. Where the table
may be written to while an epoch lasts, as it may without workers, rows are taken of it batch by batch.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import default_collate

from .unknown import UnknownError
from .values import INDEX, Group, Known, Namespace, Row, Sliced, Table, Value

__all__ = [
    "Cells",
    "Frame",
    "advice",
    "attribute",
    "called",
    "dictionary",
    "item",
    "method",
    "of_arrow",
    "table",
]

_MOST = 256 << 20
"""Bytes up to which all rows are kept as one array."""

_COMPARED = 16
"""Rows that are compared with those of the data set."""


@dataclass(frozen=True, eq=False)
class Cells:
    """What is taken of the row at ``index``.

    Attributes:
        source: The table, or a column of it, as the data set holds it.
        key: What brackets take of it first: a name or several; None for all of it.
        kind: What Python holds. Of the row: a column of pandas ("series"), an array, a tensor, a number of NumPy's,
            or one of Python's. Of all rows: some columns or one ("held"), what finds rows of them by place
            ("placed"), or their array ("values").
        names: Of a column of pandas the names of its numbers.
        places: Columns of the table: their places, or one place for a number.
        own: Whether a number has the dtype of its column, and not that of its row.
        steps: What is done to the array of all rows, one after the other.
    """

    source: Any
    key: Any
    kind: Literal["series", "array", "tensor", "number", "python", "held", "placed", "values"]
    names: tuple[str, ...] = ()
    places: Any = None
    own: bool = False
    steps: tuple[Callable[[Any], Any], ...] = field(default=())

    def then(self, step: Callable[[Any], Any], kind: Any = None) -> Cells:
        """The same after one more step."""
        return replace(self, kind=kind or self.kind, steps=(*self.steps, step))

    @property
    def held(self) -> Any:
        """The columns that rows are taken of, or the one."""
        return self.source if self.key is None else self.source[self.key]


def _pandas() -> Any:
    return sys.modules.get("pandas")


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iuf"


def _begun(source: Any, key: Any = None) -> Cells | None:
    """A row of a table of numbers, with a name for each."""
    frame = source if key is None else source[key]
    names = tuple(frame.columns)
    if not frame.columns.is_unique or not all(type(name) is str for name in names):
        return None
    if not all(map(_is_number, frame.dtypes)) or not len(names):
        return None
    return Cells(source, key, "series", names, np.arange(len(names)))


def _picked(cells: Cells, places: Any, single: bool) -> Cells | None:
    """Some of the numbers of a column of pandas, by their places in it."""
    try:
        chosen = cells.places[places]
    except (IndexError, TypeError, ValueError):
        return None
    if single:
        return replace(cells, kind="number", names=(), places=int(chosen)) if np.ndim(chosen) == 0 else None
    if np.ndim(chosen) != 1:
        return None
    all_names = dict(zip(cells.places.tolist(), cells.names, strict=True))
    return replace(cells, places=chosen, names=tuple(all_names[place] for place in chosen.tolist()))


def _constant(value: Value | None) -> Known | None:
    """A value that is the same for all samples, lists of such values included."""
    if isinstance(value, Group) and value.kind is list and all(isinstance(one, Known) for one in value.items):
        return Known([one.value for one in value.items if isinstance(one, Known)])
    return value if isinstance(value, Known) else None


def item(
    owner: Value, key: ast.expr, known: Callable[[ast.expr], Known | None], value: Callable[[ast.expr], Value]
) -> Cells | None:
    """``owner[key]``; None if it is nothing that is known here.

    Args:
        owner: A table's indexer, a column, or what was taken of a row.
        key: What stands in brackets.
        known: Gives a key that is the same for all samples.
        value: Gives any other.
    """

    def constant(key: ast.expr) -> Known | None:
        return _constant(value(key)) if isinstance(key, ast.List) else known(key)

    if isinstance(owner, Row):
        if owner.cells is None:
            return None
        if owner.cells.kind in ("held", "placed", "values"):
            plain = not isinstance(key, ast.Tuple | ast.Slice) and value(key) is INDEX
            return _row_of(owner.cells) if plain else None
        chosen = constant(key)
        return None if chosen is None else _part(owner.cells, chosen.value)
    pandas = _pandas()
    if pandas is None or not isinstance(owner, Known):
        return None
    kind = type(owner.value)
    if kind is pandas.DataFrame:
        chosen = None if isinstance(key, ast.Tuple | ast.Slice) else constant(key)
        return None if chosen is None else _columns(owner.value, chosen.value)
    if kind is pandas.Series and not isinstance(key, ast.Tuple | ast.Slice) and value(key) is INDEX:
        return _of_column(owner.value) if _counts(owner.value) else None
    name = kind.__name__
    if kind.__module__.partition(".")[0] != "pandas" or name not in (
        "_iLocIndexer",
        "_LocIndexer",
        "_iAtIndexer",
    ):
        return None
    keys = key.elts if isinstance(key, ast.Tuple) else [key]
    if isinstance(keys[0], ast.Slice | ast.Tuple) or value(keys[0]) is not INDEX or len(keys) > 2:
        return None
    held = owner.value.obj
    if name == "_LocIndexer" and not _counts(held):
        return None
    if type(held) is pandas.Series:
        return _of_column(held) if len(keys) == 1 else None
    if type(held) is not pandas.DataFrame:
        return None
    row = _begun(held)
    if row is None or len(keys) == 1:
        return row
    chosen = constant(keys[1])
    if chosen is None:
        return None
    if name == "_LocIndexer":
        return None if isinstance(chosen.value, slice) else _of_own(_part(row, chosen.value))
    return _of_own(_at(row, chosen.value))


def _of_own(cells: Cells | None) -> Cells | None:
    """What a row and a column of a table say together: a number is looked up in its column."""
    return replace(cells, own=True) if cells is not None and cells.kind == "number" else cells


def _columns(frame: Any, key: Any) -> Cells | None:
    """``frame[key]`` with a name or several."""
    names = [key] if isinstance(key, str) else key
    if not isinstance(names, list) or not frame.columns.is_unique:
        return None
    if not all(type(name) is str and name in frame.columns for name in names):
        return None
    return Cells(frame, key, "held")


def _row_of(cells: Cells) -> Cells | None:
    """The row at ``index`` of what is held of a table."""
    if cells.held.ndim == 1:
        return _of_column(cells.source, cells.key) if cells.kind != "held" or _counts(cells.source) else None
    row = None if cells.kind == "held" else _begun(cells.source, cells.key)
    return row if row is None or cells.kind == "placed" else replace(row, kind="array")


def _counts(held: Any) -> bool:
    """Whether labels of rows are their places."""
    index = held.index
    return type(index) is _pandas().RangeIndex and index.start == 0 and index.step == 1


def _of_column(source: Any, key: Any = None) -> Cells | None:
    cells = Cells(source, key, "number")
    return cells if _is_number(cells.held.dtype) else None


def _at(cells: Cells, place: Any) -> Cells | None:
    """By place, as ``iloc`` has it."""
    if type(place) is int:
        return _picked(cells, place, True)
    if isinstance(place, slice) or (type(place) is list and all(type(one) is int for one in place)):
        return _picked(cells, place, False)
    return None


def _part(cells: Cells, key: Any) -> Cells | None:
    """What brackets take of a row, or of what was made of it."""
    if cells.kind == "series":
        if cells.steps:
            return None
        if isinstance(key, str):
            return _picked(cells, cells.names.index(key), True) if key in cells.names else None
        if type(key).__name__ == "Index" and type(key).__module__.partition(".")[0] == "pandas":
            key = key.tolist()
        if isinstance(key, slice):
            ends = (key.start, key.stop, key.step)
            return (
                _picked(cells, key, False) if all(end is None or type(end) is int for end in ends) else None
            )
        if not isinstance(key, list) or not all(type(name) is str and name in cells.names for name in key):
            return None
        return _picked(cells, [cells.names.index(name) for name in key], False)
    if cells.kind not in ("array", "tensor"):
        return None
    if isinstance(key, slice):
        return cells.then(lambda whole: whole[:, key])
    if type(key) is not int:
        return None
    return cells.then(lambda whole: whole[:, key], "number" if cells.kind == "array" else "tensor")


_FINDERS = ("values", "iloc", "iat")


def attribute(owner: Row, name: str) -> Cells | None:
    """``owner.name``."""
    cells: Cells | None = owner.cells
    if cells is not None and cells.kind == "held":
        if name in ("loc", "at"):
            return replace(cells, kind="placed") if _counts(cells.source) else None
        return replace(cells, kind="values" if name == "values" else "placed") if name in _FINDERS else None
    if cells is None or cells.kind != "series":
        return None
    if name == "values":
        return replace(cells, kind="array")
    # Of a column whose name is that of an attribute of pandas, it is the attribute.
    return None if hasattr(_pandas().Series, name) else _part(cells, name)


def method(owner: Value, name: str, arguments: list[Value], named: dict[str, Value]) -> Cells | None:
    """``owner.name(...)`` with arguments that are the same for all samples."""
    cells: Cells | None = owner.cells if isinstance(owner, Row) else None
    given = _given(arguments, named)
    if cells is None or given is None:
        return None
    places, words = given
    if cells.kind == "held":
        return replace(cells, kind="values") if name == "to_numpy" and not places and not words else None
    if cells.kind == "series":
        if name == "drop" and len(places) + len(words) == 1 and {*words} <= {"labels", "index"}:
            (labels,) = (*places, *words.values())
            gone = [labels] if isinstance(labels, str) else labels
            if not isinstance(gone, list) or not all(type(one) is str and one in cells.names for one in gone):
                return None
            return _part(cells, [one for one in cells.names if one not in gone])
        if name == "to_numpy" and len(places) + len(words) <= 1 and {*words} <= {"dtype"}:
            made = replace(cells, kind="array")
            (dtype,) = (*places, *words.values()) or (None,)
            return made if dtype is None else made.then(_numpy_as(dtype))
        return cells.then(_numpy_as(places[0])) if name == "astype" and _is_one(places, words) else None
    if cells.kind in ("array", "number"):
        if name == "astype" and _is_one(places, words):
            return cells.then(_numpy_as(places[0]))
        if name == "copy" and not places and not words:
            return cells
        return (
            replace(cells, kind="python")
            if name == "item" and cells.kind == "number" and not places
            else None
        )
    if cells.kind == "tensor":
        return _of_tensor(cells, name, places, words)
    return None


def _is_one(places: list[Any], words: dict[str, Any]) -> bool:
    return len(places) == 1 and not words


_AS = {
    "float": torch.float32,
    "double": torch.float64,
    "long": torch.int64,
    "int": torch.int32,
    "half": torch.float16,
}


def _of_tensor(cells: Cells, name: str, places: list[Any], words: dict[str, Any]) -> Cells | None:
    if name in _AS and not places and not words:
        return cells.then(_torch_as(_AS[name]))
    if name in ("to", "type") and _is_one(places, words) and isinstance(places[0], torch.dtype):
        return cells.then(_torch_as(places[0]))
    return cells if name in ("clone", "contiguous", "detach") and not places and not words else None


def _given(arguments: list[Value], named: dict[str, Value]) -> tuple[list[Any], dict[str, Any]] | None:
    places = [_constant(one) for one in arguments]
    words = {key: _constant(one) for key, one in named.items()}
    if None in places or None in words.values():
        return None
    return [one.value for one in places if one], {key: one.value for key, one in words.items() if one}


def called(function: Any, arguments: list[Value], named: dict[str, Value]) -> Cells | None:
    """``function(row, ...)`` of what was made of a row, or of a list of its numbers."""
    if not arguments:
        return None
    first, given = arguments[0], _given(arguments[1:], named)
    if given is None:
        return None
    places, words = given
    cells = first.cells if isinstance(first, Row) else _beside(first)
    if cells is None or cells.kind in ("held", "placed", "values"):
        return None
    dtype = words.get("dtype", places[0] if places else None)
    if len(places) + len(words) > 1 or not {*words} <= {"dtype"}:
        return None
    for make in (torch.tensor, torch.as_tensor, torch.from_numpy):
        if function is make:
            return None if cells.kind == "series" or places else _tensor(cells, dtype)
    if any(function is make for make in (torch.FloatTensor, torch.LongTensor)) and not places and not words:
        wanted = torch.float32 if function is torch.FloatTensor else torch.int64
        return _tensor(cells, wanted) if cells.kind == "array" else None
    if any(function is make for make in (np.array, np.asarray)):
        made = cells if cells.kind in ("array", "number") else replace(cells, kind="array")
        if cells.kind not in ("array", "series"):
            return None
        return made if dtype is None else made.then(_numpy_as(dtype))
    if places or words or cells.kind not in ("number", "python"):
        return None
    if function in (int, float):
        return replace(cells.then(_numpy_as(np.int64 if function is int else np.float64)), kind="python")
    if any(function is make for make in (np.float32, np.float64, np.int64, np.int32)):
        return replace(cells.then(_numpy_as(function)), kind="number")
    return None


def _tensor(cells: Cells, dtype: Any) -> Cells | None:
    if cells.kind == "tensor":
        return cells.then(_torch_as(dtype)) if isinstance(dtype, torch.dtype) else None
    made = cells.then(_from_numpy, "tensor")
    if isinstance(dtype, torch.dtype):
        return made.then(_torch_as(dtype))
    if dtype is not None:
        return None
    if cells.kind != "python":
        return made
    # torch gives numbers of Python its default dtype.
    return made.then(
        lambda whole: whole.to(torch.get_default_dtype()) if whole.is_floating_point() else whole
    )


def _beside(value: Value) -> Cells | None:
    """``[row["a"], row["b"]]`` of one table, as an array; of numbers of NumPy's alone."""
    if not isinstance(value, Group) or value.kind is not list or not value.items:
        return None
    parts = [one.cells if isinstance(one, Row) else None for one in value.items]
    first: Cells | None = parts[0]
    if first is None:
        return None
    for part in parts:
        if part is None or part.kind != "number" or part.steps or part.source is not first.source:
            return None
    if first.places is None:
        return None
    return replace(first, kind="array", places=np.array([part.places for part in parts if part is not None]))


class _UnequalError(Exception):
    """All rows at once could be another thing than one by one."""


def _checked(low: Any, high: Any, limits: Any) -> None:
    if not (np.isfinite(low) and np.isfinite(high) and limits.min <= low and high <= limits.max):
        raise _UnequalError


def _numpy_as(dtype: Any) -> Callable[[Any], Any]:
    def step(whole: Any) -> Any:
        wanted = np.dtype(dtype)
        if not _is_number(wanted):
            raise _UnequalError
        if wanted.kind in "iu" and whole.dtype != wanted and whole.size:
            _checked(whole.min(), whole.max(), np.iinfo(wanted))
        return whole.astype(wanted, copy=False)

    return step


def _torch_as(dtype: torch.dtype) -> Callable[[Any], Any]:
    def step(whole: Any) -> Any:
        if dtype.is_complex or dtype is torch.bool:
            raise _UnequalError
        if not dtype.is_floating_point and whole.dtype != dtype and whole.numel():
            _checked(whole.min().item(), whole.max().item(), torch.iinfo(dtype))
        return whole.to(dtype)

    return step


def _from_numpy(whole: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(whole))


class Frame:
    """Batches of a value that is made of rows of a table.

    Args:
        cells: How it is made.
        length: How many samples there are.
        live: Whether the table may be written to meanwhile.

    Raises:
        Exception: It cannot be made of all rows.
    """

    def __init__(self, cells: Cells, length: int, live: bool) -> None:
        self._cells, self._live = cells, live
        self._axes, self._dtypes = self._labels(cells.held)
        self._whole = self._made(slice(0, length))

    def _labels(self, held: Any) -> tuple[list[Any], list[Any]]:
        return [*held.axes], [held.dtype] if held.ndim == 1 else [*held.dtypes]

    def _made(self, rows: Any) -> torch.Tensor:
        held, places = self._cells.held, self._cells.places
        if places is None:
            whole = held.iloc[rows].to_numpy(copy=True)
        elif self._cells.own:
            whole = held.iloc[rows, places].to_numpy(copy=True)
        else:
            # The dtype that a row has is that of all columns, also where only some of them are taken.
            dtype = held.iloc[:0].to_numpy().dtype
            whole = held.iloc[rows, places if np.ndim(places) == 0 else places.tolist()].to_numpy(
                dtype, copy=True
            )
        for step in self._cells.steps:
            whole = step(whole)
        return (whole if isinstance(whole, torch.Tensor) else _from_numpy(whole)).contiguous()

    @property
    def nbytes(self) -> int:
        """Bytes of all rows."""
        return int(self._whole.nbytes)

    def batch(self, rows: Any) -> torch.Tensor:
        """Several rows, collated."""
        if not self._live:
            return self._whole.index_select(0, torch.from_numpy(rows))
        axes, dtypes = self._labels(self._cells.held)
        if dtypes != self._dtypes or not all(map(_is_same, axes, self._axes)):
            raise _UnequalError  # The data set itself makes them.
        return self._made(rows)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or bool(one.equals(other))


def table(value: Value, length: int, function: Callable[[int], Any], live: bool) -> Frame | None:
    """Batches of a value, as ``default_collate`` puts its rows together; None if they are made one by one.

    Args:
        value: What is made of the row at ``index``.
        length: How many samples there are.
        function: Makes it of one.
        live: Whether the table may be written to while an epoch lasts.
    """
    cells = value.cells if isinstance(value, Row) else None
    if cells is None or cells.kind in ("series", "held", "placed", "values"):
        return None
    columns = 1 if np.ndim(cells.places) == 0 else len(cells.places)
    if not 0 < length <= len(cells.source) or length * columns * 8 > _MOST:
        return None
    try:
        made = Frame(cells, length, live)
        some = np.unique(np.linspace(0, length - 1, _COMPARED).astype(np.int64))
        expected = default_collate([function(row) for row in some.tolist()])
        return made if made.nbytes <= _MOST and _equal(expected, made.batch(some)) else None
    except Exception:  # What is wrong with a row, it says itself when it is asked for.
        return None


def _equal(expected: Any, found: torch.Tensor) -> bool:
    if type(expected) is not torch.Tensor or expected.dtype != found.dtype or expected.shape != found.shape:
        return False
    return bool(expected.contiguous().numpy().tobytes() == found.numpy().tobytes())


# Tables of Arrow.


def of_arrow(
    names: Namespace, owner: Value, name: str, arguments: list[Value], named: dict[str, Value]
) -> Value | None:
    """``table.slice(i, 1)`` of Arrow, and the dictionary or list that is made of that; None of anything else."""
    if isinstance(owner, Sliced):
        if name not in ("to_pydict", "to_pylist") or arguments or named:
            raise UnknownError(f"{name} of a row of a table is not known")
        columns = {one: owner.table.column(one) for one in owner.table.column_names}
        cells = {one: Row(f"{names.name(column)}[index].as_py()") for one, column in columns.items()}
        if name == "to_pylist":
            return Group(list, (Table(cells),))
        return Table({one: Group(list, (cell,)) for one, cell in cells.items()})
    arrow: Any = sys.modules.get("pyarrow")
    if (
        arrow is None
        or name != "slice"
        or not isinstance(owner, Known)
        or type(owner.value) is not arrow.Table
    ):
        return None
    values = dict(zip(("offset", "length"), arguments, strict=False)) | named
    if values.get("offset") is not INDEX or values.get("length") != Known(1) or len(values) != 2:
        return None
    columns = owner.value.column_names
    return Sliced(owner.value) if len({*columns}) == len(columns) else None


def dictionary(node: ast.DictComp, pairs: list[Value], bound: Callable[[Value, ast.expr], Value]) -> Table:
    """``{key: value for key, value in row.items()}``.

    Args:
        node: It.
        pairs: What it goes over.
        bound: Gives the value of an expression while the variables of the loop hold one of them.
    """
    if len(node.generators) != 1 or node.generators[0].ifs or node.generators[0].is_async:
        raise UnknownError("a dictionary of some of the items is not known")
    made: dict[str, Value] = {}
    for pair in pairs:
        key = bound(pair, node.key)
        if not isinstance(key, Known) or type(key.value) is not str:
            raise UnknownError("a key of a dictionary is no text")
        made[key.value] = bound(pair, node.value)
    return Table(made)


# Advice.


def advice(seen: list[tuple[Callable[[], Any], Any]]) -> str:
    """What would make a data set over tables faster, of those that it looks at; nothing if it looks at none."""
    pandas = _pandas()
    for _, value in seen:
        if pandas is not None and type(value) is pandas.DataFrame and len(value.columns):
            if all(map(_is_number, value.dtypes)):
                return "self.x = df[columns].to_numpy(np.float32) once, in __init__, and self.x[i] in __getitem__"
        elif type(value).__module__ == "pyarrow.lib" and type(value).__name__ == "Table":
            return 'self.x = table["x"].to_numpy() of each column once, in __init__, and self.x[i] in __getitem__'
    return ""
