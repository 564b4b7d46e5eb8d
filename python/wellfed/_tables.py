"""Tables as sources: Parquet, and Arrow's own format (Feather, and what Hugging Face's `datasets` saves)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as check
from . import _native
from .dataset import Dataset
from .sources import Path, StorageOptions, _urls

__all__ = ["arrow", "parquet"]

Filters = Sequence[tuple[str, str, Any]] | Sequence[Sequence[tuple[str, str, Any]]] | None


def parquet(
    paths: Path | Sequence[Path],
    *,
    columns: str | Sequence[str] | None = None,
    fields: str | Sequence[str] | None = None,
    filters: Filters = None,
    images: str | Sequence[str] | None = None,
    audio: str | Sequence[str] | None = None,
    split: str | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of Parquet files. Samples are dicts by column, or tuples with ``fields``.

    Footers are read when the data set is opened; then a row is reached through its row group, which is decoded as a
    whole and kept while ``memory_budget`` has room. So read in order, or by ``shuffle(block_size=..., window=...)``
    with the size of row groups, each group is decoded once an epoch; ``explain()`` says how large they are.

    Args:
        paths: Files: paths or URLs with braces or stars, or several of them; or a folder of them.
        columns: Columns to read, which become a dict; None is all.
        fields: Columns to read, which become a tuple, in this order.
        filters: Rows to take, as pyarrow writes it: ``[("x", ">", 3), ("y", "in", [1, 2])]`` is an "and" of conditions,
            a list of such lists an "or". Row groups that cannot match by their statistics are not read; of the others
            the columns that are compared are read once, when the data set is opened.
        images: Columns of bytes that are encoded images. None: those that Hugging Face's metadata calls images, and
            structs of ``bytes`` and ``path`` without such metadata.
        audio: Columns of bytes that are encoded sounds (WAV, FLAC, MP3, ...), which are decoded as those of
            `audio_folder`. None: those that Hugging Face's metadata calls audio.
        split: Of a folder, the files whose names begin with it (``train-00000-of-00002.parquet``), or its folder.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: A column does not exist, files differ in the types of columns, or a folder has several splits.
        wellfed.UnsupportedSampleError: A column has a type that is no field, such as decimals.

    Example:
        >>> import pathlib, tempfile
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "points.parquet"
        >>> pq.write_table(pa.table({"x": [0.5, 1.5, 2.5], "label": [0, 1, 0]}), path)
        >>> ds = wf.parquet(path, fields=["x", "label"], filters=[("x", ">", 1)])
        >>> list(ds.batch(2).numpy())
        [(array([1.5, 2.5]), array([1, 0]))]
    """
    return _open("parquet", paths, columns, fields, filters, images, audio, split, storage_options)


def arrow(
    paths: Path | Sequence[Path],
    *,
    columns: str | Sequence[str] | None = None,
    fields: str | Sequence[str] | None = None,
    filters: Filters = None,
    images: str | Sequence[str] | None = None,
    audio: str | Sequence[str] | None = None,
    split: str | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of Arrow files and streams, of Feather files (version 2), and of folders that ``save_to_disk`` wrote.

    Record batches are for these what row groups are for `parquet`: a row is reached through its batch, all of whose
    columns are read from storage.

    Args:
        paths: Files, as of `parquet`; or a folder of ``.arrow`` or ``.feather`` files, or of Hugging Face's
            ``save_to_disk``.
        columns: As of `parquet`.
        fields: As of `parquet`.
        filters: As of `parquet`, but that there are no statistics: what is compared is read from all batches.
        images: As of `parquet`.
        audio: As of `parquet`.
        split: As of `parquet`, or the one of a ``DatasetDict``.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: As of `parquet`.
        wellfed.UnsupportedSampleError: As of `parquet`, and for Feather, version 1.

    Example:
        >>> import pathlib, tempfile
        >>> import pyarrow as pa, pyarrow.feather
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tokens.feather"
        >>> pa.feather.write_feather(pa.table({"tokens": [[1, 2, 3], [4]]}), path)
        >>> batch, = wf.arrow(path).ragged_batch(2).numpy()
        >>> batch["tokens"].values, batch["tokens"].offsets
        (array([1, 2, 3, 4]), array([0, 3, 4]))
    """
    return _open("arrow", paths, columns, fields, filters, images, audio, split, storage_options)


def _open(
    kind: str,
    paths: Path | Sequence[Path],
    columns: str | Sequence[str] | None,
    fields: str | Sequence[str] | None,
    filters: Filters,
    images: str | Sequence[str] | None,
    audio: str | Sequence[str] | None,
    split: str | None,
    storage_options: StorageOptions,
) -> Dataset:
    if columns is not None and fields is not None:
        raise ValueError("columns and fields are both given: columns are read into dicts, fields into tuples")
    texts = _urls(paths, storage_options, "paths")
    spec: dict[str, Any] = {"type": "table", "format": kind, "urls": texts, "tuple": fields is not None}
    wanted, name = (columns, "columns") if fields is None else (fields, "fields")
    if wanted is not None:
        spec["columns"] = check.names(wanted, name)
    if images is not None:
        spec["images"] = check.names(images, "images")
    if audio is not None:
        spec["audio"] = check.names(audio, "audio")
    if split is not None:
        spec["split"] = check.names(split, "split")[0]
    if filters is not None:
        spec["filters"] = _conditions(filters)
    return Dataset(_native.Dataset.open(check.to_json(spec)))


_OPERATORS = ("==", "=", "!=", "<", "<=", ">", ">=", "in", "not in")


def _conditions(filters: Any) -> list[list[list[Any]]]:
    """An "or" of "and"s of conditions, of either form that pyarrow takes."""
    listed = list(filters)
    if not listed:
        return []
    either = listed if isinstance(listed[0], list) else [listed]
    return [[_condition(one) for one in each] for each in either]


def _condition(given: Any) -> list[Any]:
    if not isinstance(given, tuple | list) or len(given) != 3 or not isinstance(given[0], str):
        raise TypeError(f"filters has {given!r}; a condition is (column, operator, value)")
    column, operator, value = given
    if operator not in _OPERATORS:
        raise ValueError(f"filters has operator {operator!r}; it must be one of {', '.join(_OPERATORS)}")
    if operator in ("in", "not in"):
        if isinstance(value, str | bytes):
            raise TypeError(f"filters compares {column!r} with {value!r}; in and not in take a list")
        return [column, operator, [_scalar(one) for one in value]]
    return [column, operator, _scalar(value)]


def _scalar(value: Any) -> Any:
    """Numbers of NumPy's as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
