"""What is known of a tensor inside of a pipeline's functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np

Mode: TypeAlias = Literal["TENSORFLOW", "TENSORFLOW_ACCURATE", "TENSORFLOW_UNCHANGED", "TENSORFLOW_L"]

__all__ = [
    "Bytes",
    "Const",
    "Drawn",
    "Image",
    "Mode",
    "Number",
    "Sizes",
    "Unknown",
    "Value",
    "applied",
    "images_of",
    "is_made",
]


@dataclass(frozen=True)
class Const:
    """A constant of the graph."""

    array: Any


@dataclass(frozen=True)
class Bytes:
    """A byte string: a component of the source or a feature of a record by its name; or the file that it names."""

    key: Any
    content: bool = False


@dataclass(frozen=True)
class Number:
    """An array of the source or of a record, and what is done to it."""

    key: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    ops: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Image:
    """A decoded image, and TensorFlow's operations on it.

    `size` is (height, width) where operations settle it, and `channels` is None for those of the file.
    """

    key: Any
    mode: Mode
    channels: int | None
    ops: tuple[dict[str, Any], ...] = field(default=(), hash=False)
    dtype: str = "uint8"
    size: tuple[int, int] | None = None
    # Whether there is a side of 1 in front, as the kernels that resample take it.
    batched: bool = False
    # Whether its pixels are those of an array of the source.
    held: bool = False

    def then(self, op: dict[str, Any], **changed: Any) -> Image:
        """With one more operation."""
        return replace(self, ops=(*self.ops, op), **changed)


@dataclass(frozen=True)
class Sizes:
    """Numbers that are computed from the size of an image: its shape, height and width, or a scale to a size."""

    image: Image
    what: str
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Drawn:
    """A float32 that TensorFlow draws, uniform from `low` to below `high`, and uses once."""

    low: float
    high: float


@dataclass(frozen=True)
class Unknown:
    """Anything else, with the reason."""

    why: str


Value = Const | Bytes | Number | Image | Sizes | Drawn | Unknown


def is_made(value: Value) -> TypeGuard[Image]:
    """Whether it is an image that the engine makes, and not one that an array has as it is."""
    return isinstance(value, Image) and (not value.held or len(value.ops) > 0)


def images_of(values: Sequence[Value]) -> list[Image]:
    """Those that the engine makes, each once."""
    made = {repr((value.key, value.mode, value.ops)): value for value in values if is_made(value)}
    return list(made.values())


def applied(number: Number, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The operations of `number` on a batch of its values."""
    for name, parameter in number.ops:
        if name == "cast":
            values = values.astype(parameter)
        elif name == "expand":
            values = np.expand_dims(values, parameter)
        elif name == "one_hot":
            depth, on, off = parameter
            hot = values[..., None] == np.arange(depth, dtype=values.dtype)
            values = np.where(hot, on, off)
        elif name == "pad":
            borders, filling = parameter
            values = np.pad(values, ((0, 0), *borders), constant_values=filling)
        else:
            raise AssertionError(name)
    return np.ascontiguousarray(values)
