"""What variables of a function hold while it is read: values that are known, those of a row, images.

Invariant: the text of a `Row` is an expression of names of a `Namespace` and ``index`` alone, which has no effect but
its value, however often and in whichever process it is evaluated.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from .stamps import is_settled

__all__ = [
    "INDEX",
    "Batched",
    "Boxes",
    "Calculation",
    "Chance",
    "Column",
    "Edge",
    "Features",
    "File",
    "Group",
    "Hdf5",
    "Joint",
    "Kept",
    "Known",
    "Lmdb",
    "Mask",
    "Namespace",
    "NotPlainError",
    "Picture",
    "Region",
    "Row",
    "Side",
    "Sliced",
    "Sound",
    "Stack",
    "Stored",
    "Table",
    "Transaction",
    "Uniform",
    "Value",
    "attribute",
    "is_container",
    "is_plain",
]


@dataclass(frozen=True)
class Known:
    """The same object for all samples."""

    value: Any


@dataclass(frozen=True)
class Row:
    """Another value for each sample: a Python expression of ``index``.

    Attributes:
        text: The expression.
        rows: An array or a tensor of which it is the row at ``index``, or a copy of that, if it is one.
        cells: What is taken of the row of a table, as `frames` has it, if it is that.
        of_file: Whether a file is opened for it, so that nobody is to ask for those of all samples.
    """

    text: str
    rows: Any = field(default=None, compare=False)
    cells: Any = field(default=None, compare=False)
    of_file: bool = field(default=False, compare=False)


INDEX = Row("index")


PictureKind = Literal["pil", "array", "chw array", "hwc", "chw", "floats", "made"]


@dataclass(frozen=True)
class Picture:
    """An image, and what was done to it.

    Attributes:
        path: Where its file is; or its place in `array`.
        reader: What reads it.
        mode: What Pillow turns it into; "any" for what the file is. Of OpenCV's, "BGR" or "RGB".
        kind: What Python holds: a Pillow image, an array or tensor of either layout; "floats" is a tensor of float32
            that still has values up to 255, and "made" what a transform gives, which only others are called on.
        turned: Whether it is turned as its EXIF data says.
        before: Its `kind` when the first transform was called on it; None if none was.
        steps: Transforms that were called on it, in order.
        array: The images of all samples, if they are an array: uint8, (N, H, W, 3) or (N, H, W).
        encoded: Whether `path` is not where its file is, but the bytes of that.
    """

    path: Row
    reader: Literal["pillow", "opencv", "torchvision", "memory"] = "pillow"
    mode: str = "any"
    kind: PictureKind = "pil"
    turned: bool = False
    before: PictureKind | None = None
    steps: tuple[Any, ...] = ()
    array: Any = field(default=None, compare=False)
    encoded: bool = False

    def after(self, step: Any) -> Picture:
        """The image that `step` makes of it."""
        return replace(self, steps=(*self.steps, step), kind="made", before=self.before or self.kind)


@dataclass(frozen=True)
class Sound:
    """The waveform of a sound, and what was done to it.

    Attributes:
        path: Where its file is.
        steps: Transforms that were called on it, in order.
        rate: The sample rate of its file, as `torchaudio.load` gives it; None if that is not known.
    """

    path: Row
    steps: tuple[Any, ...] = ()
    rate: Row | None = None

    def after(self, step: Any) -> Sound:
        """The sound that `step` makes of it."""
        return replace(self, steps=(*self.steps, step))


@dataclass(frozen=True)
class Joint:
    """A transform that is called on an image together with what belongs to it.

    Attributes:
        transform: What is called.
        draw: What the data set draws by itself, for all that it is called on; None if the transform draws, or nothing.
    """

    transform: Any
    draw: Uniform | Region | None = None

    @property
    def shared(self) -> Any:
        """What all have in common that move together."""
        return self.transform if self.draw is None else self.draw


@dataclass(frozen=True)
class Calculation:
    """What is done to each number of a mask alone.

    Attributes:
        function: Takes the array or tensor, and `arguments`.
        arguments: The same for all samples.
        on_array: Whether it is NumPy's, and not torch's.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    on_array: bool = False


@dataclass(frozen=True)
class Mask:
    """The numbers of the pixels of an image file, which nothing resamples.

    Attributes:
        path: Where its file is.
        mode: "any" for numbers as they are stored, "L" for Pillow's grey.
        kind: What Python holds: an array, a tensor, or a ``tv_tensors.Mask``.
        flat: Whether it has two dimensions; else three, the first of one channel.
        steps: Transforms that were called on it while it was a Pillow image.
        early: What was done to its numbers before the first transform was called on it with its image.
        joint: Transforms that were.
        after: What was done to its numbers then.
        squeezed: Whether sides of one pixel would be gone.
        memory: What stands for the memory that its numbers lie in, which others may look at too; None if nobody may
            write to it.
    """

    path: Row
    mode: str
    kind: Literal["array", "tensor", "mask"]
    flat: bool
    steps: tuple[Any, ...] = ()
    early: tuple[Calculation, ...] = ()
    joint: tuple[Joint, ...] = ()
    after: tuple[Calculation, ...] = ()
    squeezed: bool = False
    memory: object = field(default=None, compare=False)

    @property
    def by_hand(self) -> tuple[Joint, ...]:
        """What moved it, in order, with numbers that its data set drew."""
        moved = (*self.steps, *self.joint)
        return tuple(step for step in moved if isinstance(step, Joint) and step.draw is not None)


@dataclass(frozen=True, eq=False)
class Uniform:
    """A number from 0 to below 1, which is drawn for each sample.

    Attributes:
        used: What it decides, with the transform that this comes to: one thing, or else several would depend on it.
    """

    used: list[tuple[Any, Any]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Chance:
    """Whether a number that is drawn lies below a bound, or above it."""

    number: Uniform
    below: bool
    bound: float


@dataclass(frozen=True, eq=False)
class Region:
    """A part of an image that is drawn by ``get_params()`` of a transform of torchvision.

    Attributes:
        image: What it was drawn for.
        make: From the arguments of the function that cuts it out to the transform that does both.
    """

    image: Picture
    make: Callable[..., Any]


@dataclass(frozen=True)
class Edge:
    """One of the four numbers of a region."""

    region: Region
    place: int


@dataclass(frozen=True)
class Boxes:
    """Boxes of an image.

    Attributes:
        data: The numbers.
        dtype: Type that they are turned into; None for what torch makes of them.
        format: What four numbers are.
        image: The file of their image.
        canvas: What holds the height and width of that.
        joint: Transforms that were called on them with it.
    """

    data: Row
    dtype: torch.dtype | None
    format: str
    image: Row
    canvas: type = tuple
    joint: tuple[Joint, ...] = ()


@dataclass(frozen=True)
class Side:
    """How many pixels high or wide an image is before its first transform."""

    image: Row
    axis: Literal["height", "width"]


@dataclass(frozen=True)
class File:
    """A file that is open for reading bytes.

    Attributes:
        path: Where it is; or its bytes.
        encoded: Whether those lie in memory, and `path` is what they are.
    """

    path: Row
    encoded: bool = False


@dataclass(frozen=True)
class Hdf5:
    """An HDF5 file that is open for reading, or a group in it."""

    path: str
    name: str = "/"


@dataclass(frozen=True, eq=False)
class Lmdb:
    """An LMDB environment.

    Attributes:
        file: Where its data lies.
        entries: From a key to its value.
        env: The object that the data set has; None if it opens one when it needs it.
    """

    file: str
    entries: Any
    env: Any = None


@dataclass(frozen=True, eq=False)
class Transaction:
    """A transaction of LMDB that reads."""

    of: Lmdb


@dataclass(frozen=True, eq=False)
class Stored:
    """An array in an HDF5 file, which gives a new array for each item."""

    array: npt.NDArray[Any]


@dataclass(frozen=True)
class Sliced:
    """``table.slice(index, 1)`` of a table of Arrow."""

    table: Any


@dataclass(frozen=True)
class Group:
    """A new tuple or list."""

    kind: type
    items: tuple[Value, ...]


@dataclass(frozen=True)
class Table:
    """A new dictionary with texts as keys."""

    items: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Example(Table):
    """The dictionary that a function was given, whatever it has written into it since."""


@dataclass(frozen=True)
class Features(Table):
    """A new dictionary whose keys are attributes as well."""


@dataclass(frozen=True)
class Stack:
    """A batch of one image."""

    item: Picture


@dataclass(frozen=True)
class Column:
    """A list with one item for each sample of a batch."""

    item: Value


@dataclass(frozen=True)
class Batched:
    """A value of a batch: a Python expression of ``rows``, the indices of its samples."""

    text: str


Value = (
    Known
    | Row
    | Picture
    | Sound
    | Mask
    | Boxes
    | Side
    | File
    | Hdf5
    | Lmdb
    | Transaction
    | Stored
    | Sliced
    | Group
    | Table
    | Stack
    | Column
    | Batched
    | Uniform
    | Chance
    | Edge
)


# Values of rows.


class NotPlainError(TypeError):
    """An object has its own way to do what is asked of it."""


_PLAIN: tuple[type, ...] = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    list,
    dict,
    range,
    slice,
    np.ndarray,
    np.memmap,
    torch.Tensor,
    torch.Size,
)
_CONTAINERS = frozenset({tuple, list, dict, str, bytes, range, np.ndarray, np.memmap, torch.Tensor})
_OF_PANDAS = (
    "Series",
    "DataFrame",
    "_iLocIndexer",
    "_LocIndexer",
    "_AtIndexer",
    "_iAtIndexer",
    "Index",
    "RangeIndex",
)


def is_container(value: Any) -> bool:
    """Whether taking an item of it does nothing else."""
    return type(value) in _CONTAINERS or _of_pandas(value) or _of_arrow(value)


def is_plain(value: Any) -> bool:
    """Whether operators and the usual methods of it do what its library says, and nothing else."""
    kind = type(value)
    return (
        kind in _PLAIN
        or (
            isinstance(value, np.generic | PurePath)
            and kind.__module__.partition(".")[0] in ("numpy", "pathlib")
        )
        or is_named_tuple(value)
        or _of_pandas(value)
        or _of_arrow(value)
    )


def is_named_tuple(value: Any) -> bool:
    """Whether it is of a class that `collections.namedtuple` or `typing.NamedTuple` made."""
    kind = type(value)
    return (
        isinstance(value, tuple)
        and kind.__getitem__ is tuple.__getitem__
        and isinstance(getattr(kind, "_fields", None), tuple)
    )


def _of_pandas(value: Any) -> bool:
    kind = type(value)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ in _OF_PANDAS


def _of_arrow(value: Any) -> bool:
    """Whether it is a table of Arrow, a column of one, or a value in it: nothing can change them."""
    kind = type(value)
    name = kind.__name__
    known = name in ("Table", "ChunkedArray") or name.endswith(("Array", "Scalar"))
    return known and kind.__module__ in ("pyarrow", "pyarrow.lib")


def _plain(value: Any) -> Any:
    if not is_plain(value):
        raise NotPlainError(f"{type(value).__qualname__} is no plain value")
    return value


def attribute(value: Any, name: str) -> Any:
    """An attribute that is only looked up.

    Raises:
        NotPlainError: The object may do something else.
    """
    if is_named_tuple(value) and name in type(value)._fields:
        return getattr(value, name)
    if isinstance(_plain(value), PurePath) and name in ("name", "stem", "suffix", "parent", "parts"):
        return getattr(value, name)
    if _of_pandas(value) and (name in ("iloc", "loc", "at", "iat", "values", "index") or name in value):
        return getattr(value, name)
    if isinstance(value, np.ndarray | torch.Tensor) and name in ("shape", "T", "dtype", "ndim"):
        return getattr(value, name)
    raise NotPlainError(f"{name} of {type(value).__qualname__} is no plain attribute")


def _parts(value: Any, count: int, more: bool) -> Any:
    """What is unpacked into `count` variables, or `more`."""
    if (
        isinstance(_plain(value), dict | str | bytes)
        or len(value) < count
        or (len(value) > count and not more)
    ):
        raise NotPlainError(f"{type(value).__qualname__} is not unpacked into {count} variables")
    return value


class Kept:
    """Tensors that a function makes for rows, as long as they take little memory.

    Args:
        make: Gives equal values whenever it is called with the same row.
    """

    MOST = 256 << 20
    """Bytes up to which tensors are kept."""

    _BESIDE = 200
    """Bytes that a tensor takes beside its values."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make
        self._values: dict[int, torch.Tensor] = {}
        self._bytes = 0

    def __call__(self, row: int) -> Any:
        value = self._values.get(row)
        if value is None:
            value = self._make(row)
            if type(value) is torch.Tensor and not value.requires_grad and self._bytes < self.MOST:
                self._values[row] = value
                self._bytes += value.nbytes + self._BESIDE
        return value


class Namespace:
    """The objects that texts of rows name."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {
            "_plain": _plain,
            "_attribute": attribute,
            "_parts": _parts,
            "_is": operator.is_,
            "__builtins__": builtins,
        }
        self._places: dict[int, str] = {}
        self._variables = 0
        self.check: Callable[[Any], Any] | None = None
        """What is called on each value; None for nothing."""

    def name(self, value: Any) -> str:
        """A name for an object."""
        if id(value) not in self._places:
            name = f"k{len(self._places)}"
            # The object is kept, so that nothing else gets its id.
            self.names[name] = value
            self._places[id(value)] = name
        return self._places[id(value)]

    def kept(self, text: str) -> str:
        """An expression for the same value, which is evaluated once for each row if it makes a tensor.

        Only for those who copy it.
        """
        if not self.settled:
            return text
        memory = Kept(self.function(text))
        return f"{self.name(memory)}(index)"

    def variable(self) -> str:
        """A name that nothing else has."""
        self._variables += 1
        return f"v{self._variables}"

    def text(self, value: Value) -> str | None:
        """An expression that makes the value; None of images."""
        if isinstance(value, Row):
            return value.text
        if isinstance(value, Known):
            return self.name(value.value)
        if isinstance(value, Group):
            parts = [self.text(item) for item in value.items]
            if None in parts:
                return None
            inner = "".join(f"{part}, " for part in parts)
            return f"({inner})" if value.kind is tuple else f"[{inner}]"
        if isinstance(value, Table):
            pairs = [(key, self.text(item)) for key, item in value.items.items()]
            if any(text is None for _, text in pairs):
                return None
            return "{" + ", ".join(f"{key!r}: {text}" for key, text in pairs) + "}"
        return None

    @property
    def settled(self) -> bool:
        """Whether nobody can change a container in another one unseen."""
        return all(is_settled(value) for value in self.names.values())

    def function(self, text: str) -> Callable[[int], Any]:
        """What evaluates an expression for an index."""
        made: Callable[[int], Any] = eval(compile(f"lambda index: {text}", "<row>", "eval"), self.names)
        check = self.check
        return made if check is None else lambda index: check(made(index))

    def of_batch(self, text: str) -> Callable[[list[int]], Any]:
        """What evaluates an expression for the indices of a batch."""
        made: Callable[[list[int]], Any] = eval(
            compile(f"lambda rows: {text}", "<batch>", "eval"), self.names
        )
        return made
