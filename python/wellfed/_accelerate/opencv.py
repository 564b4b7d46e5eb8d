"""What is replaced of OpenCV under `accelerate`: `cv2.imread` and `cv2.imdecode`, of JPEGs.

Invariant: what they return is what OpenCV returns, and what is not known to be equal OpenCV does: other formats and
flags, inks, images that are to be turned, and all that is missing or too damaged.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _native
from ..exceptions import WellfedError

__all__ = ["applies", "enter", "is_ours", "leave"]

_TESTED = "5.0."
"""What the versions of OpenCV begin with that the tests were run with."""

_BGR, _RGB = 1, 256
"""IMREAD_COLOR and IMREAD_COLOR_RGB, the flags that are known."""


class _State:
    """Who wants it, and what stood there before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.before: dict[str, tuple[Any, Any]] = {}


_state = _State()


def enter() -> None:
    """Replaces OpenCV's functions, if it has been imported and is one whose pixels are known."""
    cv2: Any = sys.modules.get("cv2")
    with _state.lock:
        _state.users += 1
        if _state.before or cv2 is None or not _known(cv2):
            return
        for name, wrapper in (("imread", _imread), ("imdecode", _imdecode)):
            original = getattr(cv2, name)
            ours = wrapper(cv2, original)
            _state.before[name] = (original, ours)
            setattr(cv2, name, ours)


def leave() -> None:
    """Gives them back when nobody wants it any more. What somebody else put there meanwhile stays."""
    cv2: Any = sys.modules.get("cv2")
    with _state.lock:
        _state.users -= 1
        if _state.users:
            return
        for name, (original, ours) in _state.before.items():
            if getattr(cv2, name, None) is ours:
                setattr(cv2, name, original)
        _state.before.clear()


def applies() -> bool:
    """Whether OpenCV has been imported and is one whose pixels are known."""
    cv2: Any = sys.modules.get("cv2")
    return cv2 is not None and _known(cv2)


def is_ours(function: Any) -> bool:
    """Whether it is a function that stands in for one of OpenCV."""
    return any(function is ours for _, ours in _state.before.values())


@functools.cache
def _known(cv2: Any) -> bool:
    """Whether it decodes as the engine does: known by its version, and seen once."""
    try:
        if not str(cv2.__version__).startswith(_TESTED):
            return False
        i = np.arange(75 * 50 * 3, dtype=np.int64)
        noise = cv2.blur((((i * i * 31) >> 3) & 255).astype(np.uint8).reshape(50, 75, 3), (3, 3))
        for options in ([], [cv2.IMWRITE_JPEG_PROGRESSIVE, 1], [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x211111]):
            _, data = cv2.imencode(".jpg", noise, [cv2.IMWRITE_JPEG_QUALITY, 80, *options])
            ours = _decoded(cv2, data.tobytes(), _BGR)
            if ours is None or not np.array_equal(ours, cv2.imdecode(data, _BGR)):
                return False
    except Exception:  # an OpenCV that lacks something is another one
        return False
    return True


def _imread(cv2: Any, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def imread(*args: Any, **kwargs: Any) -> Any:
        given = _given(args, kwargs, "filename")
        if given is not None and isinstance(given[0], str | os.PathLike):
            try:
                with open(given[0], "rb") as file:
                    data = file.read()
            except OSError:
                return original(*args, **kwargs)
            image = _decoded(cv2, data, given[1])
            if image is not None:
                return image
        return original(*args, **kwargs)

    return imread


def _imdecode(cv2: Any, original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def imdecode(*args: Any, **kwargs: Any) -> Any:
        given = _given(args, kwargs, "buf")
        if given is not None:
            buffer = given[0]
            if type(buffer) is np.ndarray and buffer.dtype == np.uint8 and buffer.ndim == 1:
                image = _decoded(cv2, buffer.tobytes(), given[1])
                if image is not None:
                    return image
        return original(*args, **kwargs)

    return imdecode


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> tuple[Any, Any] | None:
    """The first argument and the flags of a call; None for any other call."""
    values = dict(zip((name, "flags"), args, strict=False))
    if len(args) > 2 or any(key in values or key not in (name, "flags") for key in kwargs):
        return None
    values |= kwargs
    # imdecode() has no default.
    if name not in values or (name == "buf" and "flags" not in values):
        return None
    return values[name], values.get("flags", _BGR)


def _decoded(cv2: Any, data: bytes, flags: Any) -> Any:
    """The image of a file, as OpenCV gives it; None for what is left to OpenCV."""
    if type(flags) is not int or flags not in (_BGR, _RGB) or not _is_plain(data):
        return None
    try:
        picture = _native.Picture.open(data, "RGB")
        if picture is None:
            return None
        width, height = picture.size
        pixels = np.frombuffer(picture.pixels(), np.uint8).reshape(height, width, 3)
    except WellfedError:
        return None
    return pixels.copy() if flags == _RGB else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)


def _is_plain(data: bytes) -> bool:
    """Whether it is a JPEG of 1 or 3 channels that is not to be turned."""
    if not data.startswith(b"\xff\xd8\xff"):
        return False
    at = 2
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in (0xC0, 0xC1, 0xC2):
            return data[at + 4] == 8 and data[at + 9] in (1, 3)
        if (
            marker == 0xE1
            and data[at + 4 : at + 8] == b"Exif"
            and not _is_upright(data[at + 10 : at + 2 + size])
        ):
            return False
        if not (0xE0 <= marker <= 0xEF or marker in (0xDB, 0xC4, 0xDD, 0xFE)) or size < 2:
            return False  # markers that files seldom have
        at += 2 + size
    return False


def _is_upright(exif: bytes) -> bool:
    """Whether EXIF data says, without any doubt, that an image is not to be turned."""
    order: Any = {b"II*\x00": "little", b"MM\x00*": "big"}.get(exif[:4])
    if order is None:
        return False

    def number(at: int, size: int) -> int:
        return int.from_bytes(exif[at : at + size], order)

    first = number(4, 4)
    count = number(first, 2)
    end = first + 2 + 12 * count
    if first < 8 or end > len(exif):
        return False
    for at in range(first + 2, end, 12):
        if number(at, 2) == 0x0112:
            # One number of 16 bits, which is 1.
            return number(at + 2, 2) == 3 and number(at + 4, 4) == 1 and number(at + 8, 2) == 1
    return True


def _renew_lock() -> None:
    _state.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
