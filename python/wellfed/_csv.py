"""CSV files as tables, with the arguments and the meaning of ``tf.data.experimental.make_csv_dataset``.

TensorFlow's dtypes and tensors are taken by their names and values: it is not needed for that, nor imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import _arguments as check
from . import _native
from ._tables import Filters, _conditions
from .dataset import Dataset
from .sources import Path, StorageOptions, _urls

__all__ = ["csv"]

_DTYPES = ("int32", "int64", "float32", "float64", "string")
_ALIASES = {
    "str": "string",
    "bytes": "string",
    "object": "string",
    "text": "string",
    "float": "float32",
    "int": "int32",
}
_COMPRESSIONS = {None: "auto", "": "none", "GZIP": "gzip", "ZLIB": "zlib", "ZSTD": "zstd"}


def csv(
    file_pattern: Path | Sequence[Path],
    batch_size: int | None = None,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | Mapping[str, Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[str | int] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool | None = None,
    shuffle_buffer_size: int | None = None,
    shuffle_seed: int | None = None,
    num_rows_for_inference: int | None = 100,
    compression_type: Literal["GZIP", "ZLIB", "ZSTD", ""] | None = None,
    ignore_errors: bool = False,
    *,
    filters: Filters = None,
    unpack_to: Path | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    r"""Rows of CSV files (RFC 4180). Samples are dicts by column, or pairs of such a dict and the label.

    With ``batch_size`` this is ``tf.data.experimental.make_csv_dataset``: batches, shuffled and repeated
    without end unless ``shuffle`` and ``num_epochs`` say otherwise. Without, it is the rows in their order,
    once, for other verbs to work on.

    Opening reads all files once, in parallel, to find where rows begin. Then a row is reached through its group
    of up to 16,384 rows, or about 1 MB of text, which is parsed as a whole and kept while ``memory_budget`` has
    room: so files may be larger than memory, every order is by position, and a state is exact. ``explain()``
    says how many rows a group has.

    Args:
        file_pattern: Files: paths or URLs with braces or stars, or several of them; or a folder of them.
        batch_size: Rows of a batch. None: no batches.
        column_names: Names of all columns, in order. None: those of the header, which all files must agree on.
        column_defaults: One entry for each selected column, in the order of the file; or a dict of some, by name. A
            dtype (``"int32"``, ``"int64"``, ``"float32"``, ``"float64"``, ``"string"``; NumPy's, torch's or
            TensorFlow's as well) means that a value is required; a value of such a type, also in a list or
            tensor of one, stands for those that are missing. None: types follow from the first rows; 0 and
            ``""`` stand for missing values.
        label_name: The column that is the label, apart from the dict.
        select_columns: Columns to take, by name or place from 0. They come in the order of the file.
        field_delim: One ASCII character.
        use_quote_delim: Whether fields may be quoted, with delimiters, ends of lines and doubled quotes within.
            Else quotes are characters as others.
        na_value: A text that stands for a missing value, as an empty field does.
        header: Whether the first row of each file is no data.
        num_epochs: How often the rows come, as one epoch. None: without end with ``batch_size``, else once.
        shuffle: Whether rows come in a random order, another each time. None: with ``batch_size``.
        shuffle_buffer_size: About how many rows are mixed with each other: whole groups in random order, so
            many of them at a time that they have as many rows. This parses each group once an epoch where not
            all of them fit into ``memory_budget``. None: all rows, by one permutation.
        shuffle_seed: The seed of the order. None is 0: the same order in each run.
        num_rows_for_inference: How many rows say what types columns have: the first of int32, int64, float32,
            float64 and string that has all of their values. None: all rows of all files.
        compression_type: ``"GZIP"``, ``"ZLIB"``, ``"ZSTD"``, or ``""`` for plain text; None finds out which by
            names and first bytes (not ZLIB). Compressed files are unpacked into memory, at most 4 GiB of them, or to
            ``unpack_to``.
        ignore_errors: Leaves out bad rows, as ``with_options(on_error="skip")`` does.
        filters: Rows to take, as of `parquet`.
        unpack_to: A folder on local disk that compressed files are unpacked into, each once, and read from by position:
            for those that are larger than memory.
        storage_options: As of `image_folder`.

    A row with another number of fields, with a text where a number must be, without a required value, with a quote in
    a wrong place or bytes that are no UTF-8 is a bad sample, whose error names file, line, column and text.
    Lines with nothing in them are no rows, unless there is only one column.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: Headers differ, a column does not exist or is called as another one is, or an argument is
        malformed.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
        >>> written = path.write_text('name,x,y\n"Ann, B.",0.5,1\nBo,,0\n')
        >>> ds = wf.csv(path, label_name="y")
        >>> features, label = next(iter(ds.batch(2).numpy()))
        >>> features["name"], features["x"], label
        (['Ann, B.', 'Bo'], array([0.5, 0. ], dtype=float32), array([1, 0], dtype=int32))
    """
    how: dict[str, Any] = {
        "delimiter": _delimiter(field_delim),
        "quotes": bool(use_quote_delim),
        "header": bool(header),
        "missing": _text(na_value, "na_value"),
        "compression": _compression(compression_type),
        "look_at": None
        if num_rows_for_inference is None
        else check.whole(num_rows_for_inference, "num_rows_for_inference"),
    }
    if unpack_to is not None:
        how["unpack_to"] = check.path(unpack_to, "unpack_to")
    if column_names is not None:
        how["names"] = check.names(column_names, "column_names")
    elif not header:
        raise ValueError(
            "column_names is None and header False: nothing names the columns\nhint: give column_names=[...]"
        )
    if select_columns is not None:
        how["select"] = _columns(select_columns)
    if column_defaults is not None:
        how["types"] = _types(column_defaults)
    spec: dict[str, Any] = {
        "type": "table",
        "format": "csv",
        "urls": _urls(file_pattern, storage_options, "file_pattern"),
        "csv": how,
    }
    if label_name is not None:
        spec["label"] = _text(label_name, "label_name")
    if filters is not None:
        spec["filters"] = _conditions(filters)
    batched = batch_size is not None
    count = None if num_epochs is None else check.whole(num_epochs, "num_epochs", 1)
    if shuffle is False and (shuffle_buffer_size is not None or shuffle_seed is not None):
        raise ValueError("shuffle is False, and shuffle_buffer_size or shuffle_seed is given")
    shuffled = batched if shuffle is None else bool(shuffle)
    if not shuffled and (shuffle_buffer_size is not None or shuffle_seed is not None):
        raise ValueError("shuffle_buffer_size or shuffle_seed is given without shuffle\nhint: shuffle=True")
    native = _native.Dataset.open(check.to_json(spec))
    ds = Dataset(native)
    if shuffled:
        seed = 0 if shuffle_seed is None else check.whole(shuffle_seed, "shuffle_seed")
        if shuffle_buffer_size is None:
            ds = ds.shuffle(seed=seed)
        else:
            size = check.whole(shuffle_buffer_size, "shuffle_buffer_size", 1)
            rows = max(native.group_samples() or 1, 1)
            ds = ds.shuffle(seed=seed, block_size=rows, window=-(-size // rows))
    if count is None:
        ds = ds.repeat() if batched else ds
    elif count != 1:
        ds = ds.repeat(count)
    if batch_size is not None:
        ds = ds.batch(batch_size)
    return ds.with_options(on_error="skip") if ignore_errors else ds


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it must be a string")
    return value


def _delimiter(value: Any) -> str:
    if len(_text(value, "field_delim")) != 1 or not value.isascii() or value in '"\r\n\0':
        raise ValueError(
            f"field_delim is {value!r}; it must be one ASCII character, and no quote or end of a line"
        )
    return str(value)


def _compression(value: Any) -> str:
    name = value.upper() if isinstance(value, str) else value
    if (name is not None and not isinstance(name, str)) or name not in _COMPRESSIONS:
        raise ValueError(f"compression_type is {value!r}; it must be GZIP, ZLIB, ZSTD, '' or None")
    return _COMPRESSIONS[name]


def _columns(given: Any) -> list[str | int]:
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise TypeError(f"select_columns is {given!r}; it must be a list of names and places")
    return [one if isinstance(one, str) else check.whole(one, "a place in select_columns") for one in given]


def _types(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {
            _text(name, "a name in column_defaults"): _type(one, repr(name)) for name, one in given.items()
        }
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        raise TypeError(f"column_defaults is {given!r}; it must be a list, or a dict by column")
    return [_type(one, str(at)) for at, one in enumerate(given)]


def _type(given: Any, which: str) -> dict[str, Any]:
    """A dtype, which is required, or a value of one, which stands for what is missing."""
    name = _name(given)
    if name is not None:
        if name not in _DTYPES:
            raise ValueError(
                f"column_defaults has dtype {given!r} for column {which}; it must be one of {', '.join(_DTYPES)}"
            )
        return {"dtype": name}
    array = np.asarray(given.numpy() if hasattr(given, "numpy") else given)
    dtype = "string" if array.dtype.kind in "SUO" else array.dtype.name
    if not hasattr(given, "dtype") and array.dtype.kind in "if":
        # As TensorFlow takes Python's numbers.
        dtype = "float32" if array.dtype.kind == "f" else "int32"
    if dtype not in _DTYPES or array.size > 1:
        raise ValueError(
            f"column_defaults has {given!r} for column {which}; it must be a dtype or one value, of "
            f"{', '.join(_DTYPES)}"
        )
    if array.size == 0:
        return {"dtype": dtype}
    value = array.reshape(-1)[0]
    if dtype == "string":
        if not isinstance(value, str | bytes):
            raise ValueError(
                f"column_defaults has {given!r} for column {which}; it must be a dtype or one value"
            )
        return {"dtype": dtype, "default": value.decode() if isinstance(value, bytes) else str(value)}
    if dtype == "int32" and not -(2**31) <= int(value) < 2**31:
        raise ValueError(
            f"column_defaults has {given!r} for column {which}, which is no int32\nhint: np.int64({value})"
        )
    shown = repr(float(value)) if dtype.startswith("float") else str(int(value))
    return {"dtype": dtype, "default": shown}


def _name(given: Any) -> str | None:
    """The name of a dtype, if that is what it is. Of texts only those that name one: others are defaults."""
    if isinstance(given, str):
        return given if given in _DTYPES else None
    if isinstance(given, type):
        if issubclass(given, np.generic):
            found = np.dtype(given).name
            return "string" if np.dtype(given).kind in "SUO" else found
        return _ALIASES.get(given.__name__, given.__name__)
    if isinstance(given, np.dtype):
        return "string" if given.kind in "SUO" else given.name
    if type(given).__name__ == "DType":
        return str(given.name)
    if type(given).__module__ == "torch" and type(given).__name__ == "dtype":
        return str(given).removeprefix("torch.")
    return None
