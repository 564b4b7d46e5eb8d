"""Encoded images in memory, where Arrow or Python has them.

Invariant: the bytes are not changed by anybody: they are Arrow's, those of `bytes` objects, or copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .forms import RefusalError

__all__ = ["MOST_IN_MEMORY", "Encoded", "encoded", "gathered"]

MOST_IN_MEMORY = 1 << 30
"""Bytes of encoded images that are copied into memory."""

_LONGEST = 4.0
"""Seconds that finding the bytes of all images may take."""


@dataclass(frozen=True)
class Encoded:
    """Encoded images in memory.

    Attributes:
        chunks: Bytes, where they lie.
        offsets: For each chunk, where in it each image begins, and where the last one ends.
        opencv: Whether only what is known of OpenCV is read, as it reads it; the rest is left to Python.
        turned: Whether images are turned as their EXIF data says.
    """

    chunks: list[npt.NDArray[np.uint8]]
    offsets: list[npt.NDArray[np.int64]]
    opencv: bool = False
    turned: bool = True

    @property
    def unread(self) -> int:
        """How many are of formats that the engine does not read."""
        pairs = zip(self.chunks, self.offsets, strict=True)
        first = np.concatenate([_first_bytes(data, at) for data, at in pairs])
        return int(np.count_nonzero((first != 0xFF) & (first != 0x89)))

    def __len__(self) -> int:
        return sum(len(at) - 1 for at in self.offsets)


def _first_bytes(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The first byte of each image; 0 where there is none."""
    first = np.zeros(len(offsets) - 1, np.uint8)
    there = offsets[:-1] < offsets[1:]
    first[there] = data[offsets[:-1][there]]
    return first


def gathered(function: Callable[[int], Any], length: int) -> list[bytes | npt.NDArray[np.uint8]]:
    """The bytes of all images.

    Args:
        function: Gives those of a row.
        length: How many rows there are.

    Raises:
        RefusalError: They are no bytes, are made anew each time and large, or take long to find.
    """
    begun, copied = time.monotonic(), 0
    found: list[bytes | npt.NDArray[np.uint8]] = []
    anew = length > 0 and _memory(function(0)) is not _memory(function(0))
    for index in range(length):
        value = _memory(function(index))
        if isinstance(value, np.ndarray):
            value = value.tobytes()
            copied += len(value)
        elif anew:
            copied += len(value)
        found.append(value)
        if copied > MOST_IN_MEMORY:
            raise RefusalError(
                f"Python code: its encoded images are copies of more than {MOST_IN_MEMORY} bytes"
            )
        if index % 256 == 255 and (time.monotonic() - begun) / (index + 1) * length > _LONGEST:
            raise RefusalError(f"Python code: the bytes of {length} images take seconds to find")
    return found


def _memory(value: Any) -> Any:
    """Where bytes lie: the object that holds all of them, if it is one."""
    if type(value) is bytes:
        return value
    if type(value) is memoryview:
        value = np.frombuffer(value, np.uint8)
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
        raise RefusalError(f"Python code: its encoded images are {type(value).__name__}, and no bytes")
    base = value.base
    return base if type(base) is bytes and len(base) == len(value) else value


def encoded(images: list[Any], opencv: bool, turned: bool) -> Encoded:
    """Images that lie apart."""
    chunks = [np.frombuffer(image, np.uint8) if len(image) else np.empty(0, np.uint8) for image in images]
    offsets = [np.array([0, len(image)], np.int64) for image in images]
    return Encoded(chunks, offsets, opencv, turned)
