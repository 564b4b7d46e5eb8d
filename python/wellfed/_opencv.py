"""Transforms that Albumentations' become: the same pixels, where they are not those of torchvision's.

They are made by `wellfed.torch`, from a pipeline of Albumentations. Each does what Albumentations does where its ``p``
is 1; `RandomApply` around one is another ``p``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as check
from ._transform import Transform

__all__ = [
    "CoarseDropout",
    "FloorCenterCrop",
    "HueSaturationValue",
    "MaxSize",
    "NormalizeByReciprocal",
    "OpenCvAffine",
    "OpenCvColorJitter",
    "RandomBrightnessContrast",
    "RandomScale",
]


def _pair(value: Sequence[float], name: str) -> tuple[float, float]:
    if not check.is_sequence(value) or len(value) != 2:
        raise ValueError(f"{name} is {value!r}; it must be (low, high)")
    low, high = float(value[0]), float(value[1])
    if not low <= high:
        raise ValueError(f"{name} is {(low, high)}; low must not exceed high")
    return low, high


class _OfOpenCv(Transform):
    """A transform that torchvision has not."""

    def as_torchvision(self, v2: Any) -> Any:
        """Refuses: only images of 8 bits can be transformed."""
        raise TypeError(f"{type(self).__name__} is there for images of 8 bits: torchvision has none like it")


class RandomBrightnessContrast(_OfOpenCv):
    """Multiplies values by a random factor and adds a random number.

    Args:
        brightness_limit: Least and greatest number that is added, as a share of 255 or of the image's mean.
        contrast_limit: Least and greatest number that the factor exceeds 1 by.
        brightness_by_max: Whether what is added is a share of 255.

    Example:
        >>> import numpy as np
        >>> RandomBrightnessContrast((0.2, 0.2), (-0.5, -0.5))(np.full((1, 1, 3), 100, np.uint8))
        array([[[101, 101, 101]]], dtype=uint8)
    """

    _random = True
    brightness_limit: tuple[float, float]
    contrast_limit: tuple[float, float]
    brightness_by_max: bool

    def __init__(
        self,
        brightness_limit: Sequence[float] = (-0.2, 0.2),
        contrast_limit: Sequence[float] = (-0.2, 0.2),
        brightness_by_max: bool = True,
    ) -> None:
        self._set(
            brightness_limit=_pair(brightness_limit, "brightness_limit"),
            contrast_limit=_pair(contrast_limit, "contrast_limit"),
            brightness_by_max=bool(brightness_by_max),
        )


class HueSaturationValue(_OfOpenCv):
    """Shifts hue, saturation and value by random numbers.

    Args:
        hue_shift_limit: Least and greatest shift of the hue, in steps of two degrees.
        sat_shift_limit: Least and greatest shift of the saturation, of 255.
        val_shift_limit: Least and greatest shift of the value, of 255.

    Example:
        >>> import numpy as np
        >>> HueSaturationValue((60, 60), (0, 0), (0, 0))(np.array([[[255, 0, 0]]], np.uint8))
        array([[[  0, 255,   0]]], dtype=uint8)
    """

    _random = True
    hue_shift_limit: tuple[float, float]
    sat_shift_limit: tuple[float, float]
    val_shift_limit: tuple[float, float]

    def __init__(
        self,
        hue_shift_limit: Sequence[float] = (-20, 20),
        sat_shift_limit: Sequence[float] = (-30, 30),
        val_shift_limit: Sequence[float] = (-20, 20),
    ) -> None:
        self._set(
            hue_shift_limit=_pair(hue_shift_limit, "hue_shift_limit"),
            sat_shift_limit=_pair(sat_shift_limit, "sat_shift_limit"),
            val_shift_limit=_pair(val_shift_limit, "val_shift_limit"),
        )


class OpenCvColorJitter(_OfOpenCv):
    """Changes brightness, contrast, saturation and hue by random numbers, in random order, with OpenCV's rounding.

    Args:
        brightness: Least and greatest factor, at least 0.
        contrast: As brightness.
        saturation: As brightness.
        hue: Least and greatest shift as a share of the colour circle, within -0.5 to 0.5.

    Example:
        >>> OpenCvColorJitter(hue=(0, 0))
        OpenCvColorJitter(brightness=(0.8, 1.2), contrast=(0.8, 1.2), saturation=(0.8, 1.2), hue=(0.0, 0.0))
    """

    _random = True
    brightness: tuple[float, float]
    contrast: tuple[float, float]
    saturation: tuple[float, float]
    hue: tuple[float, float]

    def __init__(
        self,
        brightness: Sequence[float] = (0.8, 1.2),
        contrast: Sequence[float] = (0.8, 1.2),
        saturation: Sequence[float] = (0.8, 1.2),
        hue: Sequence[float] = (-0.5, 0.5),
    ) -> None:
        self._set(
            brightness=_pair(brightness, "brightness"),
            contrast=_pair(contrast, "contrast"),
            saturation=_pair(saturation, "saturation"),
            hue=_pair(hue, "hue"),
        )


def _pairs(value: Sequence[Sequence[float]], name: str) -> tuple[tuple[float, float], tuple[float, float]]:
    if not check.is_sequence(value) or len(value) != 2:
        raise ValueError(f"{name} is {value!r}; it must be ((low, high), (low, high)), along x and along y")
    return _pair(value[0], name), _pair(value[1], name)


class OpenCvAffine(_OfOpenCv):
    """Scales, turns, shears and moves the image around its centre by random numbers; the size stays.

    Pairs of pairs are ranges along x and along y.

    Args:
        scale: Least and greatest scale, above 0.
        keep_ratio: Whether the scale along x is that along y, too.
        balanced_scale: Whether scales below 1 and above are drawn equally often.
        translate_percent: Least and greatest way as a share of the side, cut to whole pixels.
        translate_px: Least and greatest way in whole pixels, in place of shares.
        rotate: Least and greatest angle in degrees, counter-clockwise.
        shear: Least and greatest angle of the shear in degrees.
        fit: In place of all but `rotate`: the turned image is scaled so that all of it is seen.
        interpolation: ``"opencv-nearest"`` or ``"opencv-linear"``.
        border: What comes in from outside: ``"constant"``, or ``"reflect"`` without repeating the border.
        fill: A number, or one a channel.

    Example:
        >>> import numpy as np
        >>> OpenCvAffine(rotate=(90, 90))(np.array([[[1], [2]], [[3], [4]]], np.uint8))[..., 0]
        array([[2, 4],
               [1, 3]], dtype=uint8)
    """

    _random = True
    scale: tuple[tuple[float, float], tuple[float, float]]
    keep_ratio: bool
    balanced_scale: bool
    translate_percent: tuple[tuple[float, float], tuple[float, float]] | None
    translate_px: tuple[tuple[int, int], tuple[int, int]] | None
    rotate: tuple[float, float]
    shear: tuple[tuple[float, float], tuple[float, float]]
    fit: bool
    interpolation: str
    border: str
    fill: float | tuple[float, ...]

    def __init__(
        self,
        scale: Sequence[Sequence[float]] = ((1, 1), (1, 1)),
        keep_ratio: bool = False,
        balanced_scale: bool = False,
        translate_percent: Sequence[Sequence[float]] | None = None,
        translate_px: Sequence[Sequence[int]] | None = None,
        rotate: Sequence[float] = (0, 0),
        shear: Sequence[Sequence[float]] = ((0, 0), (0, 0)),
        fit: bool = False,
        interpolation: Any = "opencv-linear",
        border: str = "constant",
        fill: Any = 0,
    ) -> None:
        percent = None if translate_percent is None else _pairs(translate_percent, "translate_percent")
        pixels = None
        if translate_px is not None:
            (a, b), (c, d) = _pairs(translate_px, "translate_px")
            pixels = (int(a), int(b)), (int(c), int(d))
        if border not in ("constant", "reflect"):
            raise ValueError(f"border is {border!r}; it must be 'constant' or 'reflect'")
        self._set(
            scale=_pairs(scale, "scale"),
            keep_ratio=bool(keep_ratio),
            balanced_scale=bool(balanced_scale),
            translate_percent=percent,
            translate_px=pixels,
            rotate=_pair(rotate, "rotate"),
            shear=_pairs(shear, "shear"),
            fit=bool(fit),
            interpolation=check.interpolation(interpolation),
            border=border,
            fill=check.fill(fill),
        )


class RandomScale(_OfOpenCv):
    """Resizes both sides by one random factor and cuts them to whole pixels, sometimes.

    Args:
        scale: Least and greatest factor, above 0.
        interpolation: As that of `wellfed.transforms.Resize`.
        p: Probability of doing so.

    Example:
        >>> import numpy as np
        >>> RandomScale((1.5, 1.5))(np.zeros((5, 6, 3), np.uint8)).shape
        (7, 9, 3)
    """

    _random = True
    scale: tuple[float, float]
    interpolation: str
    p: float

    def __init__(
        self, scale: Sequence[float] = (0.9, 1.1), interpolation: Any = "opencv-linear", p: float = 1
    ) -> None:
        self._set(
            scale=_pair(scale, "scale"),
            interpolation=check.interpolation(interpolation),
            p=check.probability(p),
        )


class CoarseDropout(_OfOpenCv):
    """Fills some rectangles of random size and place.

    Args:
        num_holes_range: Least and greatest number of holes.
        hole_height_range: Least and greatest height: in pixels if the greatest is at least 1, else as shares of the
            image's.
        hole_width_range: Least and greatest width, in the unit of heights.
        fill: A number, or one a channel.

    Example:
        >>> import numpy as np
        >>> CoarseDropout((1, 1), (2, 2), (3, 3), fill=1)(np.zeros((5, 6, 1), np.uint8)).sum()
        np.uint64(6)
    """

    _random = True
    num_holes_range: tuple[int, int]
    hole_height_range: tuple[float, float]
    hole_width_range: tuple[float, float]
    fill: float | tuple[float, ...]

    def __init__(
        self,
        num_holes_range: Sequence[int] = (1, 2),
        hole_height_range: Sequence[float] = (0.1, 0.2),
        hole_width_range: Sequence[float] = (0.1, 0.2),
        fill: Any = 0,
    ) -> None:
        least, most = _pair(num_holes_range, "num_holes_range")
        self._set(
            num_holes_range=(int(least), int(most)),
            hole_height_range=_pair(hole_height_range, "hole_height_range"),
            hole_width_range=_pair(hole_width_range, "hole_width_range"),
            fill=check.fill(fill),
        )


class NormalizeByReciprocal(_OfOpenCv):
    """``(x - mean) * (1 / std)`` for each channel of floating point images, where the reciprocal is rounded first.

    Args:
        mean: One number per channel.
        std: One number per channel, none of them 0.

    Example:
        >>> NormalizeByReciprocal([127.5], [127.5])
        NormalizeByReciprocal(mean=(127.5,), std=(127.5,))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        means, stds = check.channels(mean, "mean"), check.channels(std, "std")
        if 0.0 in stds:
            raise ValueError(f"std is {stds}; it must not be 0")
        self._set(mean=means, std=stds)


class FloorCenterCrop(_OfOpenCv):
    """Cuts out the middle; where a side does not halve, the half is rounded down.

    Args:
        size: (height, width) of the result, or an int for both.

    Example:
        >>> import numpy as np
        >>> FloorCenterCrop(1)(np.arange(4, dtype=np.uint8).reshape(1, 4, 1)).item()
        1
    """

    size: tuple[int, int]

    def __init__(self, size: int | Sequence[int]) -> None:
        self._set(size=check.size(size))


class MaxSize(_OfOpenCv):
    """Resizes so that the smaller or the longer side has a given length and the aspect ratio stays.

    Args:
        size: Length of the side.
        longest: Whether it is the longer one.
        interpolation: As that of `wellfed.transforms.Resize`.

    Example:
        >>> import numpy as np
        >>> MaxSize(256)(np.zeros((500, 333, 3), np.uint8)).shape
        (384, 256, 3)
    """

    size: int
    longest: bool
    interpolation: str

    def __init__(self, size: int, longest: bool = False, interpolation: Any = "opencv-linear") -> None:
        self._set(
            size=check.whole(size, "size", 1),
            longest=bool(longest),
            interpolation=check.interpolation(interpolation),
        )
