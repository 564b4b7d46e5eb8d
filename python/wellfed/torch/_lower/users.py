"""Data sets of the user's own class, whose ``__getitem__`` opens an image, calls transforms on it, and adds a label.

Invariant: as `reading` has it, samples have no other effect, so that images are made by the engine, and what goes with
them is evaluated in the calling process. Where a sample fails, the data set itself makes it, and says what is wrong.
"""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, default_collate, default_convert

from . import drawn, frames, several
from .encoded import Encoded, encoded, gathered
from .forms import Form, Refusal, RefusalError, Steps
from .joint import Lazy
from .lmdbs import Entries
from .reading import Reader, UnknownError
from .values import INDEX, Column, Example, Group, Joint, Kept, Namespace, Picture, Row, Sound, Table, Value
from .vocabulary import is_finished

if TYPE_CHECKING:
    from .hugging_stream import Step

__all__ = [
    "NO_IMAGE",
    "Collated",
    "Columns",
    "Layout",
    "Reading",
    "check_unshared",
    "laid_out_alone",
    "laid_out_lazily",
    "read",
    "read_examples",
    "read_rows",
    "reader_of",
]

NO_IMAGE = "its samples have no image"
"""Why samples are no images for the engine, while they may be looked up."""

_LONGEST = 4.0
"""Seconds that finding out the paths of all files may take."""

_SLOWEST = 2e-4
"""Seconds that it may take to evaluate what goes with an image; what takes longer is left to worker processes."""


@dataclass(frozen=True)
class Layout:
    """What a sample is: an image, and what stands beside it.

    Attributes:
        kind: What holds them; "alone" if nothing does.
        keys: Their keys in order, or their places.
        image: The key of the image.
        others: Values of each other key, for all rows.
        left: Keys of images that nothing was done to, which are not made: nobody may ask for them.
    """

    kind: Literal["alone", "tuple", "list", "dict"]
    keys: tuple[Any, ...]
    image: Any
    others: tuple[Sequence[Any], ...]
    left: tuple[Any, ...] = ()

    @property
    def form(self) -> tuple[Any, ...]:
        """What must be the same of data sets that are laid end to end."""
        return self.kind, self.keys, self.image, self.left

    @property
    def is_pair(self) -> bool:
        """Whether a sample is an image and a number that is known of all rows, as torchvision's data sets have it."""
        pair = self.kind in ("tuple", "list") and self.keys == (0, 1) and self.image == 0
        return pair and isinstance(self.others[0], np.ndarray)

    def sample(self, image: Any, row: int) -> Any:
        """The sample of `row`."""
        others = iter(self.others)
        values = [image if key == self.image else _one(next(others), row) for key in self.keys]
        return self._held(values)

    def _held(self, values: list[Any]) -> Any:
        if self.kind == "alone":
            return values[0]
        if self.kind == "dict":
            return dict(zip(self.keys, values, strict=True))
        return tuple(values) if self.kind == "tuple" else values


def _one(values: Sequence[Any], row: int) -> Any:
    """A value as the data set has it."""
    return values[row].item() if isinstance(values, np.ndarray) else values[row]


class Repeated(Lazy):
    """Values that are equal whenever they are made.

    Attributes:
        kept: Gives that of a row, which is not made again if it is a tensor; for those who copy it.
    """

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        super().__init__(length, make)
        self.kept = Kept(make)


class Rows(Lazy):
    """Rows of an array or tensor.

    Args:
        make: Makes one.
        table: What they are rows of, or what makes batches of them.
        length: How many there are.
    """

    def __init__(self, make: Callable[[int], Any], table: Any, length: int) -> None:
        super().__init__(length, make)
        self._table = table

    def batch(self, rows: Any) -> torch.Tensor:
        """Several, collated."""
        if isinstance(self._table, frames.Frame):
            return self._table.batch(rows)
        if isinstance(self._table, torch.Tensor):
            return self._table.index_select(0, torch.from_numpy(rows))
        return torch.from_numpy(np.take(self._table, rows, axis=0))


class Columns:
    """What stands beside the images of batches, collated.

    Args:
        layouts: Those of the data sets, which are laid end to end.
        starts: The first row of each.
        batched: Whether samples are collated to batches.
    """

    def __init__(self, layouts: list[Layout], starts: list[int], batched: bool) -> None:
        self._layouts, self._starts, self._batched = layouts, starts, batched
        self._first = layouts[0]
        columns = zip(*(layout.others for layout in layouts), strict=True)
        # default_collate hands on texts as it found them.
        held: type = list if self._first.kind == "dict" else tuple
        self._columns = [_gatherer(list(column), starts, held) for column in columns]

    @property
    def labels(self) -> torch.Tensor | None:
        """The labels of all rows, where samples are pairs."""
        if not all(layout.is_pair for layout in self._layouts):
            return None
        return torch.from_numpy(np.concatenate([np.asarray(layout.others[0]) for layout in self._layouts]))

    def sample(self, image: Any, row: int) -> Any:
        """One sample, from the row among those of all data sets."""
        number = bisect_right(self._starts, row) - 1
        return self._layouts[number].sample(image, row - self._starts[number])

    def batch(self, image: Any, rows: Any) -> Any:
        """What ``default_collate`` makes of samples whose images are the batch `image`; or `default_convert` of one."""
        if not self._batched:
            return default_convert(self.sample(image, int(rows[0])))
        columns = iter(self._columns)
        values = [image if key == self._first.image else next(columns)(rows) for key in self._first.keys]
        if self._first.kind == "alone":
            return values[0]
        return dict(zip(self._first.keys, values, strict=True)) if self._first.kind == "dict" else values


class Collated:
    """Batches of samples without images, as ``default_collate`` makes them of a list of rows."""

    def __init__(self, layout: Layout) -> None:
        self._columns = Columns([layout], [0], True)

    def __call__(self, rows: list[int]) -> Any:
        return self._columns.batch(None, np.array(rows, np.int64))


def _gatherer(parts: list[Sequence[Any]], starts: list[int], held: type) -> Callable[[Any], Any]:
    """From rows to the values of one key, collated."""
    if all(isinstance(part, np.ndarray) for part in parts):
        table = torch.from_numpy(np.concatenate(parts))
        return lambda rows: table.index_select(0, torch.from_numpy(rows))

    if len(parts) == 1 and isinstance(parts[0], Rows):
        return parts[0].batch

    def value(row: int) -> Any:
        number = bisect_right(starts, row) - 1
        part, row = parts[number], row - starts[number]
        return part.kept(row) if isinstance(part, Repeated) else _one(part, row)

    return lambda rows: default_collate(held(value(row) for row in rows.tolist()))


@dataclass(frozen=True)
class Reading:
    """What was read of a data set.

    Attributes:
        picture: How images are read, and what is called on them; or sounds.
        layout: What a sample is.
        seen: What was looked at, with the values that it had then.
        same_paths: Whether the files are still the same ones, where that is not known from what was looked at.
        follows: What the engine makes beside the image, as `several` has it.
    """

    picture: Picture | Sound
    layout: Layout | several.Sample
    seen: list[tuple[Callable[[], Any], Any]]
    same_paths: Callable[[], bool] | None = None
    follows: Any = None

    def now(self) -> list[Any]:
        """What was looked at, with the values that it has now.

        Raises:
            RefusalError: Some of it is not there any more.
        """
        try:
            return [look() for look, _ in self.seen]
        except (AttributeError, KeyError, ValueError):
            raise RefusalError("") from None

    @property
    def form(self) -> Form:
        """What an image is before its transforms."""
        if isinstance(self.picture, Sound):
            return Form("waveform", "float32")
        kinds: dict[str, Any] = {"pil": "pil", "array": "array", "chw": "tensor"}
        return Form(
            kinds[self.picture.before or self.picture.kind],
            mode=self.picture.mode,
            sized=self.picture.array is not None,
            exact=True,
        )

    @property
    def transform(self) -> Any:
        """What is called on it; None for nothing."""
        return Steps(self.picture.steps) if self.picture.steps else None


def reader_of(dataset: Any) -> tuple[Reader, Value]:
    """What a sample of a data set is, of a class that no library has.

    Raises:
        RefusalError: It is Python code that does more than that.
    """
    function = vars_of(type(dataset), "__getitem__")
    if type(function) is not FunctionType:
        raise RefusalError("Python code")
    kind = type(dataset)
    for name, usual in (
        ("__getitems__", None),
        ("__getattr__", vars(Dataset).get("__getattr__")),
        ("__getattribute__", vars(object)["__getattribute__"]),
    ):
        if vars_of(kind, name) is not usual:
            raise RefusalError(f"Python code: its class has {name}")
    if "__getitem__" in getattr(dataset, "__dict__", {}):
        raise RefusalError("Python code: its __getitem__ was replaced")
    reader = Reader()
    try:
        made = reader.method(dataset, "__getitem__", [INDEX])
        check_unshared(reader)
        return reader, made
    except UnknownError as unknown:
        change = frames.advice(reader.seen)
        raise RefusalError(f"Python code ({unknown})", change, Refusal(dataset, reader.seen)) from None
    except RefusalError:
        raise
    except Exception as error:  # It is only read: nobody's script is to fail of it.
        raise RefusalError(f"Python code (reading it ended with {type(error).__name__})") from None


def check_unshared(reader: Reader) -> None:
    """Refuses what is read of memory that others write to: workers would see that at once.

    Raises:
        UnknownError: There is some.
    """
    for _, value in reader.seen:
        if isinstance(value, torch.Tensor) and (value.is_shared() or value.device.type != "cpu"):
            raise UnknownError("it looks at a tensor that other processes share")
        if type(value) is np.ndarray:
            while type(value.base) is np.ndarray:
                value = value.base
            if not value.flags.owndata and not isinstance(value.base, bytes | np.memmap | torch.Tensor):
                raise UnknownError("it looks at an array in memory that is not its own")


def read(dataset: Any) -> tuple[Reading, list[str] | npt.NDArray[np.uint8] | Encoded]:
    """Reads a data set of images of a class that no library has; and the files of its images, or the array of them.

    Raises:
        RefusalError: It is Python code that does more than that.
    """
    reader, made = reader_of(dataset)
    try:
        made = drawn.alone(made)
    except UnknownError as unknown:
        raise RefusalError(f"Python code ({unknown})") from None
    if several.are_several(made):
        return _read_several(reader, made, dataset)
    try:
        picture, shape = _found(made)
    except UnknownError as unknown:
        raise RefusalError(f"Python code ({unknown})") from None
    try:
        length = len(dataset)
        found: list[Any] = []
        if isinstance(picture, Sound) or picture.array is None:
            found = _found_files(reader, picture, length)
        layout = _laid_out(reader, shape, length)
    except RefusalError:
        raise
    except Exception as error:
        # It may be for some samples only, of which it is told when they are asked for.
        raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None
    if isinstance(picture, Picture) and picture.array is not None:
        if length > len(picture.array):
            raise RefusalError(f"Python code: it has {length} samples, but {len(picture.array)} images")
        return Reading(picture, layout, reader.seen), picture.array[:length]
    again = None if reader.names.settled else lambda: _found_files(reader, picture, length) == found
    reading = Reading(picture, layout, reader.seen, again)
    if isinstance(picture, Picture) and picture.encoded:
        return reading, encoded(found, picture.reader == "opencv", picture.turned)
    return reading, found


def _found_files(reader: Reader, picture: Picture | Sound, length: int) -> list[Any]:
    """The paths of all images or sounds, or the bytes of their files."""
    if isinstance(picture, Picture) and picture.encoded:
        return gathered(reader.names.function(picture.path.text), length)
    return _evaluated(reader, picture.path, length)


def _read_several(reader: Reader, made: Value, dataset: Any) -> tuple[Reading, list[str]]:
    """Reads a data set whose samples are an image and more that the engine makes."""
    try:
        length = len(dataset)
        looked: list[tuple[Row, list[str]]] = []

        def evaluated(path: Row) -> list[str]:
            looked.append((path, _evaluated(reader, path, length)))
            return looked[-1][1]

        found = several.read(reader.names, made, length, evaluated)
    except UnknownError as unknown:
        raise RefusalError(f"Python code ({unknown})", refusal=Refusal(dataset, reader.seen)) from None
    except RefusalError:
        raise
    except Exception as error:
        # It may be for some samples only, of which it is told when they are asked for.
        raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None

    def again() -> bool:
        same = all(_evaluated(reader, path, length) == paths for path, paths in looked)
        return same and (found.same_boxes is None or found.same_boxes())

    settled = reader.names.settled
    return Reading(
        found.picture, found.sample, reader.seen, None if settled else again, found.follows
    ), found.paths


def read_rows(
    function: Any, rows: Callable[[Namespace], Table], length: int, sounds: bool = False
) -> Reading:
    """Reads a function that is given rows as lists by name, and gives such rows.

    Args:
        function: What is called.
        rows: What it is called on.
        length: How many rows there are in all.
        sounds: Whether they have sounds, and no images.

    Raises:
        RefusalError: It does more than the engine can.
    """

    def made(reader: Reader) -> dict[str, Value]:
        return _cells(_table(reader.call(function, [rows(reader.names)])).items)

    return _read_cells(made, "its transform (set_transform)", length, sounds)


def read_examples(steps: Sequence[Step], example: Callable[[Namespace], Example], length: int) -> Reading:
    """Reads functions of `map`, each of which is given the row that the one before it has left.

    Args:
        steps: The functions.
        example: The row that the first one is given.
        length: How many rows there are in all.

    Raises:
        RefusalError: They do more than the engine can.
    """

    def made(reader: Reader) -> dict[str, Value]:
        items = dict(example(reader.names).items)
        for step in steps:
            given = {name: Column(item) for name, item in items.items()} if step.batched else items
            table = _table(reader.call(step.function, [Example(given)]))
            kept = {name: item for name, item in given.items() if name not in step.removed}
            # Columns are taken out of the dictionary that the function was given, and out of no other.
            removed = step.removed if isinstance(table, Example) else ()
            items = {**kept, **{name: item for name, item in table.items.items() if name not in removed}}
            if step.batched:
                items = _cells(items)
        return items

    return _read_cells(made, "its function (map)", length)


def _table(made: Value) -> Table:
    if not isinstance(made, Table):
        raise UnknownError("it gives something else than a dictionary")
    return made


def _cells(columns: Mapping[str, Value]) -> dict[str, Value]:
    """What is in each row of lists by name."""
    cells = {}
    for name, column in columns.items():
        if not isinstance(column, Column):
            raise UnknownError(f"{name!r} is no list with an item for each row")
        cells[name] = column.item
    return cells


def _read_cells(
    made: Callable[[Reader], dict[str, Value]], what: str, length: int, sounds: bool = False
) -> Reading:
    """What rows are made of, by their columns."""
    reader = Reader()
    try:
        cells = made(reader)
        check_unshared(reader)
        if any(isinstance(step, Joint) for cell in cells.values() for step in getattr(cell, "steps", ())):
            raise UnknownError("draws by itself what becomes of its images")
        # The example of Hugging Face puts tensors beside the images, and stacks the tensors.
        images = {name: cell for name, cell in cells.items() if isinstance(cell, Picture)}
        bare = tuple(name for name, image in images.items() if image.kind == "pil" and not image.steps)
        left = bare if len(images) == len(bare) + 1 else ()
        rest = Table({name: cell for name, cell in cells.items() if name not in left})
        picture, shape = _found_sound(rest) if sounds else _found_image(rest)
    except UnknownError as unknown:
        raise RefusalError(f"{what} is Python code ({unknown})") from None
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(f"{what} is Python code (reading it ended with {type(error).__name__})") from None
    try:
        layout = _laid_out(reader, shape, length)
    except RefusalError:
        raise
    except Exception as error:
        raise RefusalError(f"{what} raises {type(error).__name__} for some rows") from None
    return Reading(picture, replace(layout, left=left), reader.seen)


def vars_of(kind: type, name: str) -> Any:
    """An attribute of a class as it was written, also of the classes that it is derived from."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


_Shape = tuple[Any, tuple[Any, ...], list[Value]]
"""What holds the values of a sample, their keys, and the values."""


def _shape(made: Value) -> _Shape:
    if isinstance(made, Group):
        return made.kind.__name__, tuple(range(len(made.items))), list(made.items)
    if isinstance(made, Table):
        return "dict", tuple(made.items), list(made.items.values())
    return "alone", (0,), [made]


def _found(made: Value) -> tuple[Picture | Sound, _Shape]:
    """The one image or sound of a sample, and the sample."""
    shape = _shape(made)
    pictures = [value for value in shape[2] if isinstance(value, Picture | Sound)]
    if len(pictures) != 1:
        raise UnknownError(NO_IMAGE if not pictures else "its samples have several images")
    if isinstance(pictures[0], Picture) and not is_finished(pictures[0]):
        raise UnknownError("its images are of a kind that is not known")
    return pictures[0], shape


def _found_image(made: Value) -> tuple[Picture, _Shape]:
    """The one image of a sample, which is no sound, and the sample."""
    picture, shape = _found(made)
    if not isinstance(picture, Picture):
        raise UnknownError("its samples are sounds")
    return picture, shape


def _found_sound(made: Value) -> tuple[Sound, _Shape]:
    """The one sound of a row, and the row."""
    sound, shape = _found(made)
    if not isinstance(sound, Sound) or sound.path != INDEX:
        raise UnknownError("its rows have other images or sounds")
    return sound, shape


def _evaluated(reader: Reader, path: Row, length: int) -> list[str]:
    """The files of all samples."""
    function = reader.names.function(path.text)
    begun, paths = time.monotonic(), []
    for start in range(0, length, 1000):
        paths += [os.fspath(function(index)) for index in range(start, min(start + 1000, length))]
        if (time.monotonic() - begun) / len(paths) * length > _LONGEST and len(paths) < length:
            raise RefusalError(f"Python code: the paths of {length} files take seconds to find out")
    if any(type(path) is not str for path in paths):
        raise RefusalError("Python code: its paths are no texts")
    return paths


_NONE = object()
"""The key of the image of samples that have none."""


def laid_out_lazily(reader: Reader, made: Value, length: int) -> tuple[Picture, Layout]:
    """The one image of a sample, and what stands beside it, which is evaluated when it is asked for.

    Raises:
        UnknownError: There is no image, or several.
        RefusalError: It takes long to evaluate.
    """
    picture, shape = _found_image(made)
    return picture, _laid_out(reader, shape, length, lazily=True)


def laid_out_alone(
    reader: Reader, made: Value, length: int, lazily: bool = False, live: bool = False
) -> Layout:
    """Samples without images; if `lazily`, their values are evaluated when they are asked for.

    If `live`, tables of pandas may be written to while an epoch lasts.

    Raises:
        RefusalError: There is one.
    """
    shape = _shape(made)
    if any(isinstance(value, Picture | Sound) for value in shape[2]):
        raise RefusalError("Python code: its samples have images")
    if any(isinstance(value, Entries) for value in reader.names.names.values()):
        # Measured: a third slower than its own code, as each step of an expression asks what it is given.
        raise RefusalError("Python code: its own code looks entries of LMDB up in less time")
    return _laid_out(reader, shape, length, lazily, live)


def _laid_out(reader: Reader, shape: _Shape, length: int, lazily: bool = False, live: bool = False) -> Layout:
    kind, keys, values = shape
    made_by_engine = (
        key for key, value in zip(keys, values, strict=True) if isinstance(value, Picture | Sound)
    )
    image = next(made_by_engine, _NONE)
    others: list[Sequence[Any]] = []
    for value in values:
        if isinstance(value, Picture | Sound):
            continue
        text = reader.names.text(value)
        if text is None:
            raise RefusalError("Python code: there is an image in a part of its samples")
        rows = value.rows if isinstance(value, Row) else None
        if rows is not None and len(rows) >= length:
            others.append(Rows(reader.names.function(text), rows, length))
            continue
        made = reader.names.function(text)
        if isinstance(value, Row) and value.of_file:
            others.append(Lazy(length, made))
            continue
        table = None if lazily or image is not _NONE else frames.table(value, length, made, live)
        if table is not None:
            others.append(Rows(made, table, length))
            continue
        settled = reader.names.settled and not lazily
        what = "a value of its samples" if image is _NONE else "what goes with an image"
        others.append(_column(reader.names.function(text), length, settled, what))
    return Layout(kind, keys, image, tuple(others))


def _column(function: Callable[[int], Any], length: int, settled: bool, what: str) -> Sequence[Any]:
    """The values of a key: an array of whole numbers, or of floating point, where all are; else made one by one."""
    if not length:
        return []
    first, took = [], math.inf
    for index in range(min(length, 16)):
        begun = time.perf_counter()
        first.append(function(index))
        # The least, since others may be at work on this machine.
        took = min(took, time.perf_counter() - begun)
    if took > _SLOWEST:
        raise RefusalError(f"Python code: {what} takes {took * 1e6:.0f} us")
    kinds = set(map(type, first))
    if not settled:
        return Lazy(length, function)
    if kinds not in ({int}, {float}) or took * length > _LONGEST:
        return Repeated(length, function)
    values = [function(index) for index in range(length)]
    if set(map(type, values)) != kinds:
        return Repeated(length, function)
    try:
        return np.array(values, np.int64 if kinds == {int} else np.float64)  # type: ignore[return-value]
    except OverflowError:
        return Lazy(length, function)
