"""Whether the engine has OpenCV's pixels on this machine.

OpenCV rounds as the processor and the build have it, and some results depend on the length of its vectors. So it is not
asked for its version: the engine's pixels are compared with those of this very one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from wellfed import _opencv as O
from wellfed import transforms as T

__all__ = ["BORDERS", "FILTERS", "WARPS", "different"]

FILTERS = {0: "opencv-nearest", 1: "opencv-linear", 3: "opencv-area"}
"""The engine's filters by the constants of OpenCV: INTER_NEAREST, INTER_LINEAR and INTER_AREA."""

WARPS = {0: "opencv-nearest", 1: "opencv-linear"}
"""Those that images are turned by."""

BORDERS = {0: "constant", 4: "reflect"}
"""What comes in from outside: BORDER_CONSTANT and BORDER_REFLECT_101."""


def different(what: str) -> str:
    """Why the engine cannot stand in for OpenCV in something that `_CHECKS` names; empty if it can.

    Found out once.
    """
    import cv2

    return _different(cv2, what)


@functools.cache
def _different(cv2: Any, what: str) -> str:
    for name, theirs, ours, image in _CHECKS[what](cv2):
        try:
            same = np.array_equal(theirs(image), ours(image))
        except Exception:  # an OpenCV that has no such function is another one
            same = False
        if not same:
            return f"OpenCV {cv2.__version__} gives other pixels here than the versions known ({name})"
    return ""


_Check = tuple[str, Callable[[Any], Any], Callable[[Any], Any], Any]


def _noise(height: int, width: int) -> Any:
    # Not a generator of anybody's, whose state would change.
    i = np.arange(height * width * 3, dtype=np.int64)
    noise = ((i * i * 31) >> 3) ^ (i % 251)
    return (noise & 255).astype(np.uint8).reshape(height, width, 3)


def _resizes(cv2: Any) -> list[_Check]:
    sizes = [((37, 53), (19, 40)), ((37, 53), (61, 70)), ((64, 48), (32, 24)), ((90, 90), (30, 30))]
    return [
        (
            f"resize by {name}",
            functools.partial(cv2.resize, dsize=to[::-1], interpolation=flag),
            T.Resize(to, interpolation=name),
            _noise(*size),
        )
        for size, to in sizes
        for flag, name in FILTERS.items()
    ]


def _colours(cv2: Any) -> list[_Check]:
    def through_hsv(image: Any) -> Any:
        hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
        hsv[..., 0] = np.mod(hsv[..., 0].astype(np.int16) + 36.0, 180).astype(np.uint8)
        return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)

    def blended(image: Any) -> Any:
        grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
        return cv2.addWeighted(image, 1.3, grey, 1 - 1.3, gamma=0)

    same = (1.0, 1.0)
    return [
        ("HSV", through_hsv, O.OpenCvColorJitter(same, same, same, (0.2, 0.2)), _noise(40, 75)),
        ("addWeighted", blended, O.OpenCvColorJitter(same, same, (1.3, 1.3), (0.0, 0.0)), _noise(40, 75)),
    ]


def _warps(cv2: Any) -> list[_Check]:
    """Turns of images whose rows OpenCV maps in part one by one."""
    return [
        (
            f"warpAffine by {name}",
            functools.partial(_turned, cv2, flag=flag, border=border),
            _turn(name, mode, _FILL),
            _noise(61, width),
        )
        for flag, name in WARPS.items()
        for border, mode in BORDERS.items()
        for width in (16, 77)
    ]


def _mask_warps(cv2: Any) -> list[_Check]:
    """Turns of one channel by the nearest pixel, of bytes and of floating point."""

    def of_one(image: Any, border: int, dtype: Any) -> Any:
        turned = _turned(cv2, np.ascontiguousarray(image[..., 0], dtype), 0, border)
        return np.repeat(turned.astype(np.uint8)[..., None], 3, axis=2)

    return [
        (
            f"warpAffine of a mask of {np.dtype(dtype)}",
            functools.partial(of_one, border=border, dtype=dtype),
            _turn(WARPS[0], mode, _FILL[:1] * 3),
            np.repeat(_noise(61, width)[..., :1], 3, axis=2),
        )
        for dtype in (np.uint8, np.float32)
        for border, mode in BORDERS.items()
        for width in (16, 77)
    ]


_FILL = (9, 90, 200)


def _turned(cv2: Any, image: Any, flag: int, border: int) -> Any:
    height, width = image.shape[:2]
    centre = np.array([[1, 0, width / 2 - 0.5], [0, 1, height / 2 - 0.5], [0, 0, 1]])
    angle = np.deg2rad(23.0)
    sin, cos = np.sin(angle), np.cos(angle)
    turn = np.array([[cos, sin, 3], [-sin, cos, -2], [0, 0, 1]]) @ np.diag([0.7, 1.2, 1])
    matrix = (centre @ turn @ np.linalg.inv(centre))[:2]
    size = (width, height)
    return cv2.warpAffine(image, matrix, size, flags=flag, borderMode=border, borderValue=_FILL)


def _turn(name: str, border: str, fill: tuple[int, ...]) -> T.Transform:
    # Ways are added to what is turned already.
    return O.OpenCvAffine(
        scale=((0.7, 0.7), (1.2, 1.2)),
        translate_px=((3, 3), (-2, -2)),
        rotate=(23, 23),
        interpolation=name,
        border=border,
        fill=fill,
    )


_CHECKS: dict[str, Callable[[Any], list[_Check]]] = {
    "resize": _resizes,
    "colour": _colours,
    "warp": _warps,
    "mask warp": _mask_warps,
}
