"""Data sets of Hugging Face's `datasets` whose images are encoded bytes in Arrow tables.

Invariant: only rows of format ``"torch"`` or ``"numpy"`` are recognized, and those with a transform whose source says
what it does; whose columns are one image and numbers or text; and only if no file is of a kind that Pillow would give
in another form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import users
from .encoded import Encoded
from .forms import Form, RefusalError, is_stock
from .sounds import Mono, Sounds
from .users import Reading
from .values import INDEX, Column, Known, Namespace, Picture, Row, Sound
from .values import Table as Cells

__all__ = [
    "Encoded",
    "Table",
    "Transformed",
    "cells",
    "content_of",
    "is_known",
    "is_transformed",
    "read",
    "read_transformed",
]


@dataclass(frozen=True)
class Table:
    """What a data set has beside its images.

    Attributes:
        content: The images.
        form: What one of them is.
        image: Name of their column.
        columns: Names of all columns, in order.
        values: The other columns.
    """

    content: Encoded
    form: Form
    image: str
    columns: list[str]
    values: dict[str, Any]


def is_known(dataset: Any) -> bool:
    """Whether it is a map-style data set of `datasets`, of exactly that type."""
    module = sys.modules.get("datasets")
    return module is not None and type(dataset) is module.Dataset


def read(dataset: Any) -> Table:
    """Recognizes `dataset`.

    Raises:
        RefusalError: The engine cannot make its rows.
    """
    _check(dataset)
    form = dataset.format
    if form["type"] not in ("torch", "numpy") or form["format_kwargs"]:
        why = f"its format is {form['type']!r}" + (" with arguments" if form["format_kwargs"] else "")
        raise RefusalError(why, 'with_format("torch")')
    columns = list(form["columns"])
    image, mode = _image(dataset, columns)
    values = {name: _column(dataset, name, form["type"]) for name in columns if name != image}
    content = _encoded(dataset, image)
    grey = _looked_through(content, mode)
    if form["type"] == "numpy" and grey:
        raise RefusalError("grey images are arrays without channels", 'with_format("torch")')
    kind: Any = "tensor" if form["type"] == "torch" else "array"
    return Table(content, Form(kind, mode="L" if grey else "RGB"), image, columns, values)


def _check(dataset: Any) -> None:
    form = dataset.format
    if form["output_all_columns"] and set(form["columns"]) != set(dataset.column_names):
        raise RefusalError("it gives columns beside those of its format", "output_all_columns=False")
    if not is_stock(dataset, "__getitem__", "__getitems__", "_getitem", "__len__", "with_format"):
        raise RefusalError("its methods were replaced", "use the class as its library made it")


def _image(dataset: Any, columns: list[str]) -> tuple[str, str | None]:
    """The one column of images, and the mode that they are turned into."""
    import datasets

    images = [name for name in columns if isinstance(dataset.features[name], datasets.Image)]
    if len(images) != 1:
        raise RefusalError(f"it has {len(images)} columns of images")
    feature = dataset.features[images[0]]
    if not feature.decode or feature.mode not in (None, "RGB"):
        raise RefusalError(
            "its images are not decoded" if not feature.decode else f"its mode is {feature.mode}"
        )
    return images[0], feature.mode


@dataclass(frozen=True)
class Transformed:
    """A data set whose rows a function of the user changes.

    Attributes:
        content: The images: encoded, or the paths of their files.
        reading: What the function does.
    """

    content: Encoded | list[str] | Sounds
    reading: Reading


def is_transformed(dataset: Any) -> bool:
    """Whether its rows are given to a function, by ``set_transform`` or ``with_transform``."""
    return bool(dataset.format["type"] == "custom")


def read_transformed(dataset: Any) -> Transformed:
    """Recognizes `dataset`, and reads what its function does to rows.

    Raises:
        RefusalError: It does what the engine cannot.
    """
    _check(dataset)
    columns = list(dataset.format["columns"])
    function = dataset.format["format_kwargs"]["transform"]
    if set(dataset.format["format_kwargs"]) != {"transform"}:
        raise RefusalError("its format has other arguments than a transform")
    audio = [name for name in columns if type(dataset.features[name]).__name__ == "Audio"]
    if audio:
        return _read_sounds(dataset, columns, audio, function)
    image, cells_of = cells(dataset, columns)

    def rows(names: Namespace) -> Cells:
        return Cells({name: Column(cell) for name, cell in cells_of(names).items()})

    reading = users.read_rows(function, rows, len(dataset.data))
    return Transformed(content_of(dataset, image, reading), reading)


def _read_sounds(dataset: Any, columns: list[str], audio: list[str], function: Any) -> Transformed:
    """A data set with one column of sounds, and what its function does to rows.

    Raises:
        RefusalError: It does what the engine cannot.
    """
    import datasets

    if not hasattr(datasets.config, "TORCHCODEC_AVAILABLE"):
        raise RefusalError("sounds are decoded in another way by this version of datasets")
    name, feature = audio[0], dataset.features[audio[0]]
    rate = feature.sampling_rate
    if len(audio) > 1 or not feature.decode or feature.num_channels is not None:
        raise RefusalError("it has several columns of sounds, or one that is decoded in another way")
    if type(rate) is not int or feature.stream_index is not None:
        raise RefusalError("the sample rate of its sounds is not known", "Audio(sampling_rate=16000)")
    # What `datasets` decodes: it is asked for its items by their names.
    cell = Cells({"array": Sound(INDEX).after(Mono()), "sampling_rate": Known(rate)})

    def rows(names: Namespace) -> Cells:
        others = {other: Row(_values(dataset, other, names)) for other in columns if other != name}
        return Cells({other: Column(cell if other == name else others[other]) for other in columns})

    reading = users.read_rows(function, rows, len(dataset.data), sounds=True)
    content = _content(dataset, name)
    if isinstance(content, Encoded):
        return Transformed(Sounds([], rate, content), reading)
    return Transformed(Sounds(content, rate), reading)


def cells(dataset: Any, columns: list[str]) -> tuple[str, Callable[[Namespace], dict[str, Any]]]:
    """The one column of images, and what stands for the cells of a row, by their columns."""
    image, mode = _image(dataset, columns)
    picture = Picture(INDEX, mode=mode or "any", turned=True)

    def of_row(names: Namespace) -> dict[str, Any]:
        return {name: picture if name == image else Row(_values(dataset, name, names)) for name in columns}

    return image, of_row


def content_of(dataset: Any, image: str, reading: Reading) -> Encoded | list[str]:
    """The images of a column: encoded, or the paths of their files."""
    content = _content(dataset, image)
    if isinstance(content, Encoded) and isinstance(reading.picture, Picture):
        _looked_through(content, reading.picture.mode)
    return content


def _values(dataset: Any, name: str, names: Namespace) -> str:
    """An expression for the value of a column, as Python has it."""
    import datasets

    feature = dataset.features[name]
    if not isinstance(feature, datasets.Value | datasets.ClassLabel):
        raise RefusalError(f"column {name!r} is {feature}")
    dtype = str(feature.dtype)
    if not dtype.startswith(("int", "uint", "float", "string", "large_string", "bool")):
        raise RefusalError(f"column {name!r} is {dtype}")
    column = dataset.data.column(name)
    if "string" not in dtype:
        return f"{names.name(column.to_pylist())}[index]"
    # Texts may be long, and are made when they are asked for.
    return f"{names.name(lambda row: column[row].as_py())}(index)"


def _content(dataset: Any, name: str) -> Encoded | list[str]:
    """The encoded images of a column, or their files where there are only those."""
    column = dataset.data.column(name)
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    if not chunks or any(chunk.field("bytes").null_count < len(chunk) for chunk in chunks):
        return _encoded(dataset, name)
    paths = [path for chunk in chunks for path in chunk.field("path").to_pylist()]
    if any(path is None or "://" in path or "::" in path for path in paths):
        raise RefusalError("some of its images are not files here")
    return paths


def _column(dataset: Any, name: str, kind: str) -> Any:
    """Values of one column as an int64 or float32 array, or a list of text."""
    import datasets

    feature = dataset.features[name]
    dtype = getattr(feature, "dtype", None)
    if not isinstance(feature, datasets.Value | datasets.ClassLabel):
        raise RefusalError(f"column {name!r} is {feature}")
    values = dataset.data.column(name)
    if values.null_count:
        raise RefusalError(f"column {name!r} has empty values")
    if dtype == "string":
        texts = values.to_pylist()
        return texts if kind == "torch" else list(map(np.str_, texts))
    # What each format makes of single numbers, and torch of those.
    wide = {"int64": np.int64, "int32": np.int64, "int8": np.int64, "int16": np.int64, "float32": np.float32}
    if kind == "torch" and dtype in wide:
        return values.to_numpy().astype(wide[dtype])
    if dtype in ("int64", "float32"):
        return values.to_numpy().astype(wide[dtype])
    raise RefusalError(f"column {name!r} is {dtype}", "int64 or float32")


def _encoded(dataset: Any, name: str) -> Encoded:
    chunks = [chunk for chunk in dataset.data.column(name).chunks if len(chunk)]
    parts, offsets = [], []
    for chunk in chunks:
        content = chunk.field("bytes")
        if chunk.null_count or content.null_count:
            raise RefusalError("its files are paths, not bytes")
        wide = str(content.type) == "large_binary"
        _, places, data = content.buffers()
        first = chunk.offset + content.offset if len(content) != len(chunk) else content.offset
        at = np.frombuffer(places, np.int64 if wide else np.int32)[first : first + len(chunk) + 1]
        parts.append(np.frombuffer(data, np.uint8))
        offsets.append(at.astype(np.int64))
    if not parts:
        raise RefusalError("it is empty")
    return Encoded(parts, offsets)


def _looked_through(content: Encoded, mode: str | None) -> bool:
    """Whether images are grey; refuses those that Pillow would give in another form than the engine."""
    if any((np.diff(at) < 33).any() for at in content.offsets):
        raise RefusalError("some of its images are cut short")

    def bytes_at(place: int) -> npt.NDArray[np.uint8]:
        pairs = zip(content.chunks, content.offsets, strict=True)
        return np.concatenate([data[at[:-1] + place] for data, at in pairs])

    first = bytes_at(0)
    png = first == 0x89
    if not (png | (first == 0xFF)).all():
        raise RefusalError("some of its images are neither JPEG nor PNG", "JPEG or PNG")
    if mode == "RGB":
        return False
    depth, colour = bytes_at(24)[png], bytes_at(25)[png]
    if (depth != 8).any() or not np.isin(colour, (0, 2)).all():
        raise RefusalError(
            "some of its images have palettes, alpha or other depths than 8", 'Image(mode="RGB")'
        )
    greys = colour == 0
    if not png.all():
        # The number of components stands somewhere in a JPEG's header, so one of them stands for all.
        raise RefusalError("JPEGs may be grey or colour", 'cast_column("image", Image(mode="RGB"))')
    if greys.any() and not greys.all():
        raise RefusalError("grey and colour images are mixed", 'Image(mode="RGB")')
    return bool(greys.all())
