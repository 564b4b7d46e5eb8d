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

__all__ = ["FILTERS", "different"]

FILTERS = {0: "opencv-nearest", 1: "opencv-linear", 3: "opencv-area"}
"""The engine's filters by the constants of OpenCV: INTER_NEAREST, INTER_LINEAR and INTER_AREA."""


def different(what: str) -> str:
    """Why the engine cannot stand in for OpenCV in ``"resize"`` or ``"colour"``; empty if it can. Found out once."""
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


_CHECKS: dict[str, Callable[[Any], list[_Check]]] = {"resize": _resizes, "colour": _colours}
