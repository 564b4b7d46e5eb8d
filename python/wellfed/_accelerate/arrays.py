"""`numpy.load` while samples are made: files of one array are read in less time, in workers where the batch is to lie.

Most files of a data set have the same header, so it is parsed once. Invariant: arrays have NumPy's values, type, shape
and strides, and can be written to. Whatever is not a plain file of numbers in C order, NumPy reads, and it says what is
wrong with a file.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import places

__all__ = ["enter", "inside", "leave"]

_HEADER = 128
"""Bytes of the header that NumPy writes of arrays with up to some dozen dimensions."""

_MOST = 1 << 30
"""Bytes of arrays up to which memory is taken before the file was read."""


class _Kind(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bytes: int


@functools.lru_cache(256)
def _kind(header: bytes) -> _Kind | None:
    """What a header says; None where NumPy is to read the file."""
    if len(header) != _HEADER or header[:8] != b"\x93NUMPY\x01\x00":
        return None
    if int.from_bytes(header[8:10], "little") != _HEADER - 10:
        return None
    try:
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(io.BytesIO(header[8:]))
    except ValueError:
        return None
    if dtype.kind not in "biufc" or not dtype.isnative or (fortran and len(shape) > 1) or 0 in shape:
        return None
    size = dtype.itemsize
    for side in shape:
        size *= side
    return _Kind(dtype, shape, size) if shape and size <= _MOST else None


def _load(path: Any) -> Any:
    """The array of a file; None where NumPy is to read it."""
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        kind = _kind(os.read(file, _HEADER))
        # A header may promise more than there is.
        if kind is None or os.fstat(file).st_size < _HEADER + kind.bytes:
            return None
        array = places.array(kind.shape) if kind.dtype == np.float32 else None
        if array is None:
            array = np.empty(kind.shape, kind.dtype)
        left = memoryview(array).cast("B")  # type: ignore[arg-type]
        while left:
            count = os.readv(file, [left])
            if not count:
                return None
            left = left[count:]
    except OSError:
        return None
    finally:
        os.close(file)
    return array


class _State(threading.local):
    """Whether this thread makes samples now; and for all threads, who wants it and what stood there before."""

    inside = False
    lock = threading.Lock()
    users = everywhere = 0
    before: Any = None
    ours: Any = None


_state = _State()


def inside(on: bool) -> None:
    """This thread begins to make samples, or ends."""
    _state.inside = on


def enter(everywhere: bool = True) -> None:
    """Replaces `numpy.load`, if it is NumPy's own: for all threads, or for those that are `inside`."""
    with _State.lock:
        _State.users += 1
        _State.everywhere += everywhere
        if _State.users == 1 and np.load.__module__ == "numpy" and hasattr(os, "readv"):
            _State.before, _State.ours = np.load, _replaced(np.load)
            np.load = _State.ours


def leave(everywhere: bool = True) -> None:
    """Gives it back when nobody wants it any more. What somebody else put there meanwhile stays."""
    with _State.lock:
        _State.users -= 1
        _State.everywhere -= everywhere
        if not _State.users and _State.ours is not None:
            if np.load is _State.ours:
                np.load = _State.before
            _State.before = _State.ours = None


def _replaced(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        plain = not args and (not kwargs or kwargs in ({"mmap_mode": None}, {"allow_pickle": False}))
        if plain and (_State.everywhere or _state.inside) and isinstance(file, str | os.PathLike):
            array = _load(file)
            if array is not None:
                return array
        return original(file, *args, **kwargs)

    return load


def _renew_lock() -> None:
    _State.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
