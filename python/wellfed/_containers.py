"""Sources of files that hold many samples: lines of JSON, arrays, HDF5, MDS shards, LitData, LMDB, FFCV."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import _arguments as check
from .dataset import Dataset
from .sources import Path, StorageOptions, _open, _urls

__all__ = ["beton", "hdf5", "jsonl", "litdata", "lmdb", "mds", "npy", "npz", "raw_files"]

_NUMBERS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)


def jsonl(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | Mapping[str, str | None] | None = None,
    defaults: Mapping[str, Any] | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    r"""Lines of JSON: one object a line, one sample a line. Keys of the objects are fields.

    Where lines begin is found once, in parallel; then each is one read by position. Files that are compressed (``.gz``,
    ``.zst``) are unpacked into memory when they are opened, at most 4 GiB of them. Blank lines are no samples.

    Args:
        urls: Files: paths or URLs with braces (``part-{000..099}.jsonl``) or stars.
        fields: Keys to take, in order; samples are tuples of them, also of one. Or a dict of keys and their types:
            ``"int64"``, ``"float32"`` and other numbers, ``"bool"``, ``"text"``, ``"json"``, lists of numbers
            such as ``"int64[*]"`` (of any length) and ``"float32[768]"``; None as type: as in the first lines. None:
            samples are dicts of all keys, which must be the same in the first 100 lines.
        defaults: What stands for a field that is missing or null. Without, such lines are bad samples.
        storage_options: As of `image_folder`.

    Without types, whole numbers are int64, others float64, lists of numbers arrays that differ in length, all other
    values ``"json"``: parsed objects in a batch.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: The first lines lack a field or differ in their keys, or a type is not known.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.jsonl"
        >>> written = path.write_text('{"text": "a", "label": 1}\n{"text": "b", "label": null}\n')
        >>> ds = wf.jsonl(path, fields=["text", "label"], defaults={"label": -1})
        >>> list(ds.batch(2).numpy())
        [(['a', 'b'], array([ 1, -1]))]
    """
    if fields is None:
        if defaults:
            raise ValueError("defaults are given without fields\nhint: name the fields to take, too")
        return _open("jsonl", urls=_urls(urls, storage_options))
    types: Mapping[str, str | None] = (
        fields if isinstance(fields, Mapping) else dict.fromkeys(listed := check.names(fields, "fields"))
    )
    if not isinstance(fields, Mapping) and len(types) < len(listed):
        raise ValueError(f"fields is {listed}; a field is asked for twice")
    given = dict(defaults or {})
    taken = []
    for name, type_ in types.items():
        field: dict[str, Any] = {"name": name}
        if type_ is not None:
            field["kind"] = _kind(name, type_)
        if given.get(name) is not None:
            field["default"] = given[name]
        given.pop(name, None)
        taken.append(field)
    if given:
        raise ValueError(f"defaults names {', '.join(map(repr, given))}, which is no field")
    return _open("jsonl", urls=_urls(urls, storage_options), fields=taken)


def _kind(name: str, type_: str) -> Any:
    """A type such as ``int64`` or ``float32[768]``, as the engine takes it."""
    if type_ in ("text", "json"):
        return type_
    dtype, bracket, side = str(type_).partition("[")
    side = side.removesuffix("]") if side.endswith("]") else ""
    numbers = tuple(name for name in _NUMBERS if name != "float16")
    if dtype not in numbers or (bracket and side != "*" and not side.isdecimal()):
        raise ValueError(
            f"field {name} cannot be {type_!r}\nhint: known are text, json, {', '.join(numbers)}, and lists of numbers "
            "such as int64[*] and float32[768]"
        )
    if not bracket:
        return {"scalar": {"dtype": dtype}}
    return {"array": {"dtype": dtype, "shape": [None if side == "*" else int(side)]}}


def npy(
    urls: Path | Sequence[Path],
    *,
    pixels: Literal["infer", "hwc", "chw", "never"] = "infer",
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of arrays in ``.npy`` files, read by position: samples are rows, those of several files follow each other.

    For arrays larger than memory or in a store; those that `numpy.load` opens can be given to `from_tensor_slices`.

    Args:
        urls: Files: paths or URLs with braces (``part-{000..099}.npy``) or stars. Their rows are of one dtype and
            shape.
        pixels: As of `from_tensor_slices`.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: Arrays differ in dtype or in the shape of their rows.
        wellfed.CorruptSampleError: A file does not have the bytes that its header needs.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.npy"
        >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
        >>> wf.npy(path).sample(2)
        array([4., 5.], dtype=float32)
    """
    return _open("array_files", urls=_urls(urls, storage_options), format="npy", pixels=_pixels(pixels))


def npz(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    pixels: Literal["infer", "hwc", "chw", "never"] = "infer",
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of the arrays in ``.npz`` files. Samples are dicts of all arrays, or tuples of those that are named.

    Arrays are checked by their CRC-32 when the files are opened, and kept in memory, at most 4 GiB of them.

    Args:
        urls: Files: paths or URLs with braces or stars. All have the same arrays.
        fields: Names of arrays to take, in order, such as ``["x_train", "y_train"]``.
        pixels: As of `from_tensor_slices`.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: The arrays that are taken differ in length, or there is none of a name.
        wellfed.CorruptSampleError: A file is damaged.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.npz"
        >>> np.savez_compressed(path, x=np.zeros((3, 8, 8), np.uint8), y=np.arange(3))
        >>> image, label = wf.npz(path, fields=["x", "y"]).sample(2)
        >>> image.shape, int(label)
        ((1, 8, 8), 2)
    """
    names = None if fields is None else check.names(fields, "fields")
    return _open(
        "array_files",
        urls=_urls(urls, storage_options),
        format={"npz": {} if names is None else {"fields": names}},
        pixels=_pixels(pixels),
    )


def raw_files(
    urls: Path | Sequence[Path],
    dtype: Any,
    shape: int | Sequence[int] = (),
    *,
    offset: int = 0,
    pixels: Literal["infer", "hwc", "chw", "never"] = "infer",
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of numbers in files without a header, read by position, as `numpy.memmap` and `numpy.fromfile` read them.

    A memory map itself can be given to `from_tensor_slices`; this reads from stores, and from several files.

    Args:
        urls: Files: paths or URLs with braces or stars.
        dtype: Type of the elements, in the byte order of this machine.
        shape: Shape of one row; ``()`` for rows of one number.
        offset: Bytes in front of the first row of each file.
        pixels: As of `from_tensor_slices`.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        wellfed.CorruptSampleError: A file has a part of a row at its end.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "tokens.bin"
        >>> np.arange(8, dtype=np.uint16).tofile(path)
        >>> wf.raw_files(path, np.uint16, 4).sample(1)
        array([4, 5, 6, 7], dtype=uint16)
    """
    name = np.dtype(dtype)
    if name.newbyteorder("=") != name:
        raise ValueError(f"dtype is {name.str}; it must be in the byte order of this machine")
    sides = [shape] if isinstance(shape, int | np.integer) else list(shape)
    if any(int(side) < 1 for side in sides) or offset < 0:
        raise ValueError(f"shape is {shape!r} and offset {offset!r}; they must not be negative, sides not 0")
    raw = {"dtype": name.name, "shape": [int(side) for side in sides], "offset": int(offset)}
    return _open(
        "array_files", urls=_urls(urls, storage_options), format={"raw": raw}, pixels=_pixels(pixels)
    )


def _pixels(pixels: str) -> str:
    if pixels not in ("infer", "hwc", "chw", "never"):
        raise ValueError(f"pixels is {pixels!r}; it must be 'infer', 'hwc', 'chw' or 'never'")
    return pixels


def hdf5(
    paths: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | Mapping[str, str] | None = None,
    group: str | None = None,
    split: str | None = None,
    images: str | Sequence[str] | None = None,
    pixels: Literal["infer", "hwc", "chw", "never"] = "infer",
    storage_options: StorageOptions = None,
) -> Dataset:
    """Rows of data sets in HDF5 files: data sets of one length are fields, those of several files follow each other.

    Files are read without the HDF5 library and its one lock. Where chunks lie is read once, when a file is opened; then
    rows are reads by position, and chunks are unpacked by the loader's threads. Chunks of several rows are kept while
    ``memory_budget`` has room. So read in order, or by ``shuffle(block_size=..., window=...)`` with the rows of a
    chunk, each chunk is unpacked once an epoch; ``explain()`` says how large they are.

    Args:
        paths: Files: paths or URLs with braces or stars, or several of them; or a folder of them (``.h5``, ``.hdf5``).
        fields: Data sets to take, as paths in the group: ``["images", "labels"]`` gives tuples, in this order;
            ``{"image": "train/images"}`` dicts by these names. None: dicts of all data sets of the group that have as
            many rows as most of them; a `UserWarning` names the others.
        group: The group that paths begin at, such as ``"train"``. None: the root.
        split: Of a folder, the files whose names begin with it (``train-0.h5``), or its folder.
        images: Fields that are encoded images (JPEG, PNG): bytes of variable length, or opaque ones.
        pixels: Which uint8 arrays are images, as of `from_tensor_slices`.
        storage_options: As of `image_folder`.

    Numbers, booleans and enumerations, text, opaque bytes, and lists of numbers of variable length are fields; filters
    are gzip, shuffle, fletcher32, scaleoffset, lzf, lz4, zstd, bitshuffle and blosc (version 1). Everything else is an
    error when it is opened.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: There is no data set of a name, or they differ in length or from file to file.
        wellfed.CorruptSampleError: A file is damaged, or was cut.
        wellfed.UnsupportedSampleError: A data set has another type, filter or layout, or the file is being written.

    Example:
        >>> import pathlib, tempfile
        >>> import h5py
        >>> import numpy as np
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.h5"
        >>> with h5py.File(path, "w") as file:
        ...     x = file.create_dataset("x", data=np.eye(4, dtype=np.float32), chunks=(2, 4), compression="gzip")
        ...     y = file.create_dataset("y", data=np.arange(4))
        >>> row, label = wf.hdf5(path, fields=["x", "y"]).sample(2)
        >>> row, int(label)
        (array([0., 0., 1., 0.], dtype=float32), 2)
    """
    pairs: list[tuple[str, str]] | None = None
    if isinstance(fields, Mapping):
        pairs = list(zip(check.names(list(fields), "fields"), check.names(list(fields.values()), "fields")))
    elif fields is not None:
        pairs = [(name, name) for name in check.names(fields, "fields")]
    dataset = _open(
        "hdf5",
        urls=_urls(paths, storage_options, "paths"),
        group=group,
        split=split,
        fields=pairs,
        tuple=fields is not None and not isinstance(fields, Mapping),
        images=None if images is None else check.names(images, "images"),
        pixels=_pixels(pixels),
    )
    for note in dataset._native.notes():
        warnings.warn(note, UserWarning, stacklevel=2)
    return dataset


def mds(
    urls: Path | Sequence[Path],
    *,
    split: str | None = None,
    fields: str | Sequence[str] | None = None,
    validate_hash: str | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Shards of MosaicML's Streaming (MDS), read where they lie. Samples are dicts of all columns.

    Samples of plain shards are read by position. Compressed shards (zstd, gz) are unpacked when they are opened, at
    most 4 GiB of them, and kept in memory. Sizes are checked for every sample; all samples that the index states are
    samples, those of a damaged shard bad ones.

    Args:
        urls: The folder with ``index.json``, or several: paths or URLs with braces; or indices, also with stars.
        split: A folder in each of them, as Streaming calls it: ``"train"``.
        fields: Columns to take, in order; samples are tuples of them, also of one.
        validate_hash: Read all shards when they are opened, and compare this hash of theirs: ``"sha1"``, ``"sha256"``,
            ``"md5"``, ``"xxh64"`` or ``"xxh3_64"``, if the index has it. Compressed shards are compared in any case.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: There is no index, or no shard of its.
        ValueError: Shards differ in their columns, or there is none of a name.
        wellfed.UnsupportedSampleError: A column is pickled: reading would run what is in it. ``fields`` takes others.

    Example:
        >>> import json, pathlib, struct, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> data = struct.pack("<3I", 1, 12, 20) + struct.pack("<q", 7)
        >>> written = (root / "shard.00000.mds").write_bytes(data)
        >>> shard = {"format": "mds", "samples": 1, "column_names": ["label"], "column_encodings": ["int"],
        ...          "column_sizes": [8], "compression": None, "zip_data": None,
        ...          "raw_data": {"basename": "shard.00000.mds", "bytes": 20, "hashes": {}}}
        >>> index = (root / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
        >>> int(wf.mds(root).sample(0)["label"])
        7
    """
    return _open(
        "mds",
        urls=_urls(urls, storage_options),
        split=split,
        fields=None if fields is None else check.names(fields, "fields"),
        validate_hash=validate_hash,
    )


def litdata(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    block_size: int | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Chunks of LitData (``litdata.optimize``), read where they lie. Samples have the structure that was written.

    Items of plain chunks, and ones that are compressed by themselves, are read by position. Chunks that are compressed
    as a whole or many items at a time are unpacked when they are opened, at most 4 GiB of them, and kept in memory.
    Sizes are checked for every item; all items that the index states are samples, those of a damaged chunk bad ones.

    Args:
        urls: The folder with ``index.json``, or several: paths or URLs with braces; or indices, also with stars.
        fields: Fields to take, in order; samples are tuples of them, also of one. Names are keys, or places in lists
            and tuples, with dots between: ``"image"``, ``"0"``, ``"more.label"``; ``"value"`` without any.
        block_size: Of tokens (``TokensLoader``): how many are a sample. They go on from item to item, and what is left
            at the end of a chunk is left out, as LitData does. None: what was written as an item.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: There is no index, or no chunk of its.
        ValueError: Data sets differ in what they hold, or there is no field of a name.
        wellfed.UnsupportedSampleError: A field is pickled, since reading it would run what is in it (``fields`` takes
            others); or items are encrypted, or rows of Arrow or Parquet.

    Example:
        >>> import json, pathlib, struct, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> chunk = struct.pack("<3I", 1, 12, 24) + struct.pack("<Iq", 8, 7)
        >>> written = (root / "chunk-0-0.bin").write_bytes(chunk)
        >>> config = {"compression": None, "data_format": ["int"], "item_loader": "PyTreeLoader",
        ...           "data_spec": '[1, {"type": null, "context": null, "children_spec": []}]'}
        >>> chunks = [{"filename": "chunk-0-0.bin", "chunk_size": 1, "chunk_bytes": 24, "dim": None}]
        >>> index = (root / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))
        >>> int(wf.litdata(root).sample(0))
        7
    """
    if block_size is not None and int(block_size) < 1:
        raise ValueError(f"block_size is {block_size}; it must be at least 1")
    return _open(
        "litdata",
        urls=_urls(urls, storage_options),
        fields=None if fields is None else check.names(fields, "fields"),
        block_size=None if block_size is None else int(block_size),
    )


def lmdb(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    value: str = "auto",
    db: str | None = None,
    keys: str | bytes | Sequence[str | bytes] | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Entries of LMDB databases, in the order of their keys. Keys are listed once; a sample is one read by position.

    No lock is taken and nothing mapped: the database may lie in any store, on a file system that only reads, be used by
    processes that fork, and be written meanwhile. What is read is the state at opening. LMDB keeps it until the second
    transaction after that; from then on samples are an `ObjectChangedError`, and never bytes of others.

    Args:
        urls: The folder with ``data.mdb``, or a file (``subdir=False``), or several: paths or URLs with braces, stars.
        fields: Fields to take, in order; samples are tuples of them, also of one: those of the values, and
            ``"__key__"``, the key as text.
        value: What values are: ``"image"``, ``"npy"``, ``"msgpack"``, ``"datum"`` (Caffe), ``"text"``, ``"json"``,
            ``"bytes"``, or the dtype and shape of an array such as ``"float32[3, 224]"`` that was written by
            ``tobytes()``. ``"auto"`` looks at up to 64 of them, from the first to the last.
        db: A named database.
        keys: Which entries are samples: a prefix of keys, or a list of keys, in whose order they come. None: all but
            ``__len__`` and ``__keys__``, under which others keep what is no sample.
        storage_options: As of `image_folder`.

    A sample is its value; of ``"msgpack"`` a dict or tuple of what the value holds, of ``"datum"`` (image, label).

    Raises:
        FileNotFoundError: There is no such file, named database or key.
        ValueError: Values differ in what they are, or there is no field of a name.
        wellfed.UnsupportedSampleError: Values are pickles, since reading them runs what is in them (``value="bytes"``
            gives them as they are), or a key has several values (DUPSORT).
        wellfed.CorruptSampleError: The file is damaged where its entries cannot be told.

    Example:
        >>> import pathlib, tempfile
        >>> import lmdb
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp())
        >>> with lmdb.open(str(path)) as env, env.begin(write=True) as transaction:
        ...     for i in range(3):
        ...         _ = transaction.put(f"{i:08}".encode(), np.float32([i, i]).tobytes())
        >>> wf.lmdb(path, value="float32[2]", fields=["__key__", "value"]).sample(2)
        ('00000002', array([2., 2.], dtype=float32))
    """
    return _open(
        "lmdb",
        urls=_urls(urls, storage_options),
        db=db,
        keys=None if keys is None else _lmdb_keys(keys),
        value=_lmdb_value(value),
        fields=None if fields is None else check.names(fields, "fields"),
    )


def _lmdb_keys(keys: str | bytes | Sequence[str | bytes]) -> dict[str, Any]:
    def one(key: str | bytes) -> str | list[int]:
        if isinstance(key, str):
            return key
        try:
            return bytes(key).decode()
        except UnicodeDecodeError:
            return list(key)

    if isinstance(keys, str | bytes):
        return {"prefix": one(keys)}
    listed = list(keys)
    if not all(isinstance(key, str | bytes) for key in listed):
        raise ValueError(f"keys is {keys!r}\nhint: give a prefix, or a list of keys, as str or bytes")
    return {"list": [one(key) for key in listed]}


def _lmdb_value(value: str) -> Any:
    known = ("auto", "bytes", "image", "text", "json", "npy", "datum", "msgpack")
    if value in known:
        return value
    if value == "pickle":
        raise ValueError(
            "value is 'pickle', and reading a pickle runs what is in it\nhint: write images, .npy or msgpack instead; "
            "value='bytes' gives pickles as they are, for a map of your own"
        )
    name, bracket, sides = str(value).partition("[")
    shape = [side.strip() for side in sides.removesuffix("]").split(",") if side.strip()]
    fits = not bracket or (sides.endswith("]") and all(side.isdecimal() for side in shape))
    if name.strip() not in _NUMBERS or not fits:
        raise ValueError(
            f"value is {value!r}\nhint: known are {', '.join(known)}, and arrays such as 'uint8[28, 28]' and 'float32'"
        )
    return {"array": {"dtype": name.strip(), "shape": [int(side) for side in shape]}}


def beton(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Files of FFCV (``.beton``), read where they lie. Samples are tuples of their fields, in the order of the file.

    Images (pixels, JPEGs, or both), numbers, bytes, JSON and arrays are read. Each value is one read by position; the
    numbers of all samples, and where their data lies, are read when a file is opened, and kept in memory.

    Args:
        urls: Files: paths or URLs with braces or stars. All have the same fields.
        fields: Fields to take, in order.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: Files differ in their fields, or there is none of a name.
        wellfed.UnsupportedSampleError: A file has fields of the writer's own, or another version.
        wellfed.CorruptSampleError: A file is none of FFCV's, or was cut.

    Example:
        >>> import pathlib, struct, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.beton"
        >>> head = struct.pack("<HHIQQ", 2, 1, 1 << 21, 2, 24 + 1041 + 16)
        >>> field = struct.pack("<B16s1024x", 1, b"label")
        >>> written = path.write_bytes(head + field + struct.pack("<2q", 5, 6))
        >>> int(wf.beton(path).sample(1)[0])
        6
    """
    return _open(
        "beton",
        urls=_urls(urls, storage_options),
        fields=None if fields is None else check.names(fields, "fields"),
    )
