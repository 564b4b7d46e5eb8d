"""Columns of tables as numbers of one array: what `Dataset.stack` takes, and `adapt`, which finds it out in one pass.

Example:
    >>> import pathlib, tempfile
    >>> import wellfed as wf
    >>> from wellfed import tables
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> text = ["age,city,income", "30,Rome,1.5", "50,Oslo,2.5"]
    >>> _ = path.write_text(chr(10).join(text))
    >>> ds = wf.csv(path, label_name="income")
    >>> tables.adapt(ds, ["age", "city"])
    [Number('age', mean=40.0, std=10.0), Category('city', vocabulary=['Oslo', 'Rome'])]
    >>> city = tables.Category("city", ["Oslo", "Rome"], output_mode="one_hot")
    >>> ds = ds.stack([tables.Number("age", mean=40, std=10), city])
    >>> features, label = next(iter(ds.batch(2).numpy()))
    >>> features["features"]
    array([[-1.,  0.,  0.,  1.],
           [ 1.,  0.,  1.,  0.]], dtype=float32)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _arguments as check

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Category", "Column", "Date", "Hashing", "Number", "adapt"]

OutputMode = Literal["int", "one_hot"]

PARTS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofyear",
    "dayofweek",
    "hour",
    "minute",
    "second",
    "timestamp",
)
"""What `Date` may have."""

ROWS = 8192
"""Rows that `adapt` looks at together."""


@dataclass(frozen=True, repr=False)
class Number:
    """A column of numbers ``x`` as ``(x - mean) / std``, calculated in float64.

    Args:
        column: Its name.
        mean: What is subtracted.
        std: What it is divided by; not 0.
        missing: What stands for null and NaN, before it is standardized. None: a row with a null is a bad sample, as
            ``on_error`` says, and NaN stays NaN.
        indicator: Whether a second number says that the first is missing: 1, else 0.

    Example:
        >>> from wellfed import tables
        >>> tables.Number("age", mean=40, std=10, missing=40)
        Number('age', mean=40, std=10, missing=40)
    """

    column: str
    mean: float = 0.0
    std: float = 1.0
    missing: float | None = None
    indicator: bool = False

    def __repr__(self) -> str:
        return _repr(self, Number(self.column))

    def to_plan(self) -> dict[str, Any]:
        """The description that `Dataset.stack` gives to the engine."""
        missing = {} if self.missing is None else {"missing": check.number(self.missing, "missing")}
        if self.indicator and self.missing is None:
            raise ValueError(
                f"Number({self.column!r}) has an indicator of missing values and no number for them"
                "\nhint: give missing=0.0, or another number"
            )
        mean, std = check.number(self.mean, "mean"), check.number(self.std, "std")
        return {"type": "number", "mean": mean, "std": std, **missing, "indicator": bool(self.indicator)}


@dataclass(frozen=True, repr=False)
class Category:
    """A column of texts or whole numbers as places in a vocabulary: Keras' ``StringLookup`` and ``IntegerLookup``.

    Args:
        column: Its name.
        vocabulary: Texts, or whole numbers; none twice.
        num_oov_indices: 1: index 0 is for what is not in the vocabulary, and for null. 0: such rows are bad samples.
        output_mode: ``int``: one number, the index. ``one_hot``: as many numbers as there are indices, of which one is
            1 and the others are 0.

    Example:
        >>> from wellfed import tables
        >>> tables.Category("city", ["Oslo", "Rome"], output_mode="one_hot")
        Category('city', vocabulary=['Oslo', 'Rome'], output_mode='one_hot')
    """

    column: str
    vocabulary: Sequence[str] | Sequence[int] = field(default=())
    num_oov_indices: int = 1
    output_mode: OutputMode = "int"

    def __repr__(self) -> str:
        return _repr(self, Category(self.column))

    def to_plan(self) -> dict[str, Any]:
        """The description that `Dataset.stack` gives to the engine."""
        if isinstance(self.vocabulary, str) or not isinstance(self.vocabulary, Sequence | np.ndarray):
            raise TypeError(
                f"vocabulary is {self.vocabulary!r}; it must be a sequence of texts or of whole numbers"
            )
        words = [_word(word, self.column) for word in self.vocabulary]
        return {
            "type": "vocabulary",
            "vocabulary": words,
            "num_oov_indices": check.whole(self.num_oov_indices, "num_oov_indices"),
            "one_hot": _one_hot(self.output_mode),
        }


@dataclass(frozen=True, repr=False)
class Hashing:
    """A column of texts or whole numbers as bins of their hashes: rapidhash, version 3, modulo ``num_bins``.

    What is hashed is the text, also of numbers. The bins are the same on all machines and in all versions; they are
    not those of Keras' ``Hashing``.

    Args:
        column: Its name.
        num_bins: Number of bins, at least 1.
        output_mode: ``int`` or ``one_hot``, as of `Category`.

    Example:
        >>> from wellfed import tables
        >>> tables.Hashing("user", num_bins=1000)
        Hashing('user', num_bins=1000)
    """

    column: str
    num_bins: int = 0
    output_mode: OutputMode = "int"

    def __repr__(self) -> str:
        return _repr(self, Hashing(self.column))

    def to_plan(self) -> dict[str, Any]:
        """The description that `Dataset.stack` gives to the engine."""
        bins = check.whole(self.num_bins, "num_bins", 1)
        return {"type": "hash", "num_bins": bins, "one_hot": _one_hot(self.output_mode)}


@dataclass(frozen=True, repr=False)
class Date:
    """A column of dates, or of dates with times of day, as numbers of the calendar: one for each part.

    Columns of Parquet and Arrow may have the types of dates and timestamps; columns of text, as those of CSV files,
    have dates as ISO 8601 writes them (``2024-02-29``, ``2024-02-29 12:30:15.5``, ``2024-02-29T12:30:15+01:00``), or as
    ``format`` says. Times with an offset, and timestamps with a time zone, are taken in UTC.

    Args:
        column: Its name.
        parts: Names as of pandas: ``year``, ``quarter`` (1 to 4), ``month`` (1 to 12), ``day`` (1 to 31), ``dayofyear``
            (1 to 366), ``dayofweek`` (0 is Monday), ``hour``, ``minute``, ``second``, and ``timestamp``: seconds since
            1970, which float64 and int64 hold.
        format: How texts are written, with the fields of ``strftime``, such as ``"%d/%m/%Y %H:%M"``.
        missing: What stands for each part of null and of an empty text. None: such a row is a bad sample, as
            ``on_error`` says.
        indicator: Whether one more number says that the date is missing: 1, else 0.

    Example:
        >>> from wellfed import tables
        >>> tables.Date("sold", ["month", "dayofweek"], format="%d.%m.%Y")
        Date('sold', parts=['month', 'dayofweek'], format='%d.%m.%Y')
    """

    column: str
    parts: Sequence[str] = ("year", "month", "day")
    format: str | None = None
    missing: float | None = None
    indicator: bool = False

    def __repr__(self) -> str:
        return _repr(self, Date(self.column))

    def to_plan(self) -> dict[str, Any]:
        """The description that `Dataset.stack` gives to the engine."""
        parts = check.names(self.parts, "parts")
        for part in parts:
            if part not in PARTS:
                raise ValueError(f"parts of Date({self.column!r}) has {part!r}; there are {', '.join(PARTS)}")
        plan: dict[str, Any] = {"type": "date", "parts": list(parts), "indicator": bool(self.indicator)}
        if self.format is not None:
            if not isinstance(self.format, str):
                raise TypeError(f"format is {self.format!r}; it must be a string, as of strftime")
            plan["format"] = self.format
        if self.missing is not None:
            plan["missing"] = check.number(self.missing, "missing")
        elif self.indicator:
            raise ValueError(
                f"Date({self.column!r}) has an indicator of missing dates and no number for them\nhint: give missing=0"
            )
        return plan


Column = Number | Category | Hashing | Date
"""What one column of `Dataset.stack` may be, besides a name."""


def adapt(
    dataset: Dataset,
    columns: str | Sequence[str] | None = None,
    *,
    max_tokens: int | None = None,
    output_mode: OutputMode = "int",
    missing: float | None = None,
) -> list[Number | Category]:
    """Encodings of columns by one pass over a data set: means and deviations of numbers, vocabularies of texts.

    Args:
        dataset: Of samples, before `batch`; as a table gives them.
        columns: Names of the columns, in order. None: all columns of numbers and texts but the label.
        max_tokens: The most words of a vocabulary, together with the index of other words. None: no limit.
        output_mode: Of the vocabularies; see `Category`.
        missing: What stands for null and NaN in numbers, which count neither in means nor in deviations; see `Number`.

    Without ``missing`` a row with a null is a bad sample here, too, and with it one with a null for a text:
    ``dataset.with_options(on_error="skip")`` leaves it out of all columns.

    Returns:
        For each column of numbers a `Number` with its mean and its standard deviation (of the population, as Keras'
        ``Normalization`` has it; 1 where all are equal), for each of texts a `Category` with its words, the most
        frequent first, and those that are equally frequent in alphabetical order.

    Raises:
        ValueError: The data set is empty, or a column is not there.
        TypeError: A column holds neither numbers nor texts.
    """
    if max_tokens is not None:
        check.whole(max_tokens, "max_tokens", 2)
    mode: OutputMode = "one_hot" if _one_hot(output_mode) else "int"
    wanted = None if columns is None else check.names(columns, "columns")
    found: dict[str, _Moments | Counter[str]] = {}
    names: list[str] = []
    numbers: list[str] = []
    if missing is not None:
        dataset, names, numbers = _numbers_apart(dataset, wanted)
    for element in dataset.batch(ROWS).numpy():
        batch = element[0] if isinstance(element, tuple) and len(element) == 2 else element
        if not isinstance(batch, Mapping):
            raise TypeError(
                f"adapt() needs samples that are dicts of columns, and not a {type(batch).__name__}"
            )
        if numbers:
            batch = _with_nan(batch, names, numbers)
        for name in wanted if wanted is not None else batch:
            if name not in batch:
                raise ValueError(f"there is no column {name!r}: there are {', '.join(map(str, batch))}")
            _count(found, name, batch[name], wanted is not None)
    if not found:
        raise ValueError(
            "adapt() has found no column of numbers or texts: the data set is empty, or has none"
        )
    most = None if max_tokens is None else max_tokens - 1
    made: list[Number | Category] = []
    for name, what in found.items():
        if isinstance(what, _Moments):
            made.append(Number(name, what.mean, what.std(name), missing))
        else:
            words = sorted(what, key=lambda word: (-what[word], word))
            made.append(Category(name, words[:most], output_mode=mode))
    return made


_APART = "numbers with nulls"
"""The field of numbers and of what says that they are null."""


def _numbers_apart(dataset: Dataset, wanted: list[str] | None) -> tuple[Dataset, list[str], list[str]]:
    """`dataset` with its columns of single numbers in one field that takes nulls; names of all columns, and of these.

    As it is, without names of numbers, if it is no table.
    """
    structure = json.loads(dataset._native.structure)
    inner = structure["tuple"][0] if len(structure.get("tuple", ())) == 2 else structure
    names = [name for name, _ in inner.get("dict", ())]
    single = {
        name
        for name, kind, _, sides, *_ in dataset.numpy()._open().columns()
        if kind == "array" and not sides
    }
    numbers = [name for name in names if name in single and (wanted is None or name in wanted)]
    try:
        columns = [Number(name, missing=0.0, indicator=True) for name in numbers]
        return dataset.stack(columns, "float64", name=_APART), names, numbers
    except ValueError:  # No table, or no number.
        return dataset, names, []


def _with_nan(batch: Mapping[str, Any], names: list[str], numbers: list[str]) -> dict[str, Any]:
    """The columns of a batch in their order, with NaN where a number is missing."""
    pairs = batch[_APART]
    values = np.where(pairs[:, 1::2] == 1, np.nan, pairs[:, ::2])
    return {name: values[:, numbers.index(name)] if name in numbers else batch[name] for name in names}


class _Moments:
    """Mean and squared deviations of numbers that come in parts (Chan, Golub and LeVeque, 1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: Any) -> None:
        values = np.asarray(values, np.float64)
        values = values[~np.isnan(values)]
        if not len(values):
            return
        mean = float(values.mean())
        squares = float(((values - mean) ** 2).sum())
        all_of = self.count + len(values)
        apart = mean - self.mean
        self.squares += squares + apart**2 * self.count * len(values) / all_of
        self.mean += apart * len(values) / all_of
        self.count = all_of

    def std(self, name: str) -> float:
        if not self.count:
            raise ValueError(f"column {name!r} has no number but NaN")
        return float(np.sqrt(self.squares / self.count)) or 1.0


def _count(found: dict[str, _Moments | Counter[str]], name: str, values: Any, asked: bool) -> None:
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
        moments = found.setdefault(name, _Moments())
        assert isinstance(moments, _Moments)
        moments.add(values)
    elif isinstance(values, list) and all(isinstance(value, str) for value in values):
        counts = found.setdefault(name, Counter())
        assert isinstance(counts, Counter)
        counts.update(values)
    elif asked:
        raise TypeError(f"column {name!r} holds neither single numbers nor texts")


def _one_hot(output_mode: Any) -> bool:
    if output_mode not in ("int", "one_hot"):
        raise ValueError(f"output_mode is {output_mode!r}; it must be 'int' or 'one_hot'")
    return bool(output_mode == "one_hot")


def _word(word: Any, column: str) -> str:
    if isinstance(word, str):
        return word
    if isinstance(word, int | np.integer) and not isinstance(word, bool):
        return str(int(word))
    raise TypeError(
        f"the vocabulary of column {column!r} has {word!r}, which is neither text nor a whole number"
    )


def _repr(of: Any, plain: Any) -> str:
    """The call that makes it, without what is as it is by default, and with the first words of long vocabularies."""
    parts = [repr(of.column)]
    for name, value in vars(of).items():
        if name != "column" and value != getattr(plain, name):
            parts.append(f"{name}={_shown(value)}")
    return f"{type(of).__name__}({', '.join(parts)})"


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float) or value is None or len(value) <= 10:
        return repr(value)
    return f"[{', '.join(map(repr, list(value)[:8]))}, … {len(value)} in all]"
