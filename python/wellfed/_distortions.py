"""Transforms that distort: where pixels lie, what colours they have, noise."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

from . import _arguments as check
from ._transform import Transform

__all__ = ["JPEG", "ElasticTransform", "GaussianNoise", "RandomPerspective", "RandomPhotometricDistort"]


class ElasticTransform(Transform):
    """Moves every pixel by smooth noise: uniform noise, blurred by a Gaussian; the size stays.

    Masks, boxes and points move with their image, boxes and points approximately, as in torchvision: by what moves the
    pixel at the place where they were.

    Args:
        alpha: Strength: (along x, along y), or one number for both.
        sigma: Standard deviation of the blur in pixels: (along x, along y), or one number for both. Four times of it
            must be less than the shorter side of images. 0 is for no blur.
        interpolation: nearest or bilinear.
        fill: Value of what comes in from outside, 0 to 255, or one per channel; None is black, into which images fade.

    Example:
        >>> ElasticTransform(alpha=30)
        ElasticTransform(alpha=(30.0, 30.0), sigma=(5.0, 5.0), interpolation='bilinear', fill=0)
    """

    _random = True
    alpha: tuple[float, float]
    sigma: tuple[float, float]
    interpolation: str
    fill: float | tuple[float, ...] | None

    def __init__(
        self,
        alpha: float | Sequence[float] = 50.0,
        sigma: float | Sequence[float] = 5.0,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        blur = _along_both(sigma, "sigma")
        if not (min(blur) > 0 or blur == (0.0, 0.0)):
            raise ValueError(f"sigma is {sigma!r}; both numbers must be above 0, or both 0")
        mode = check.interpolation(interpolation)
        if mode not in ("nearest", "bilinear"):
            raise ValueError(f"interpolation is {mode!r}; tensors are turned with nearest and bilinear")
        self._set(
            alpha=_along_both(alpha, "alpha"),
            sigma=blur,
            interpolation=mode,
            fill=None if fill is None else check.fill(fill),
        )


def _along_both(value: Any, name: str) -> tuple[float, float]:
    """(x, y) of a pair, a sequence of one, or one number."""
    given = [value] if isinstance(value, numbers.Real) else value
    if not check.is_sequence(given) or not all(isinstance(one, numbers.Real) for one in given):
        raise TypeError(f"{name} is {value!r}; it must be a number or (x, y)")
    if len(given) not in (1, 2):
        raise ValueError(f"{name} has {len(given)} numbers; it must be a number or (x, y)")
    return float(given[0]), float(given[-1])


class GaussianNoise(Transform):
    """Adds to every value a number of its own, drawn from a normal distribution.

    For 8-bit and for floating point images. Parameters are on the scale 0 to 1 for both.

    Args:
        mean: Mean of the noise.
        sigma: Its standard deviation, at least 0.
        clip: Whether results are cut off at 0 and 1 (255). Without it, 8-bit values go round.

    Example:
        >>> import numpy as np
        >>> GaussianNoise(mean=0.2, sigma=0)(np.array([[100, 250]], np.uint8))[0, :, 0]
        array([151, 255], dtype=uint8)
    """

    _random = True
    mean: float
    sigma: float
    clip: bool

    def __init__(self, mean: float = 0.0, sigma: float = 0.1, clip: bool = True) -> None:
        deviation = check.number(sigma, "sigma")
        if not deviation >= 0:
            raise ValueError(f"sigma is {deviation}; it must be at least 0")
        self._set(mean=check.number(mean, "mean"), sigma=deviation, clip=bool(clip))


class JPEG(Transform):
    """Compresses images as JPEGs of a random quality, and decodes them again.

    For images of 1 or 3 channels.

    Args:
        quality: 1 to 100: (least, greatest), or one number that is always used.

    Example:
        >>> JPEG((20, 90))
        JPEG(quality=(20, 90))
    """

    _random = True
    quality: tuple[int, int]

    def __init__(self, quality: int | Sequence[int]) -> None:
        if isinstance(quality, bool):
            raise TypeError("quality is a bool; it must be an int or (least, greatest)")
        given: Any = [quality, quality] if isinstance(quality, numbers.Integral) else quality
        if not check.is_sequence(given):
            raise TypeError(f"quality is {quality!r}; it must be an int or (least, greatest)")
        if len(given) != 2:
            raise ValueError(f"quality has {len(given)} numbers; it must be an int or (least, greatest)")
        least, greatest = (check.whole(one, "quality") for one in given)
        if not 1 <= least <= greatest <= 100:
            raise ValueError(f"quality is {quality!r}; it must be from 1 to 100")
        self._set(quality=(least, greatest))


class RandomPerspective(Transform):
    """Moves the corners of images inwards by random numbers of pixels, with probability ``p``; the size stays.

    Masks, boxes and points move with their image.

    Args:
        distortion_scale: Greatest share of half a side that a corner moves by, 0 to 1.
        p: 0 to 1.
        interpolation: nearest, bilinear or bicubic.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.

    Example:
        >>> import numpy as np
        >>> white = np.full((40, 40), 255, np.uint8)
        >>> RandomPerspective(p=1)(white, seed=1).min()
        np.uint8(0)
    """

    _random = True
    distortion_scale: float
    p: float
    interpolation: str
    fill: float | tuple[float, ...]

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        scale = check.number(distortion_scale, "distortion_scale")
        if not 0 <= scale <= 1:
            raise ValueError(f"distortion_scale is {scale}; it must be from 0 to 1")
        self._set(
            distortion_scale=scale,
            p=check.probability(p),
            interpolation=check.sampling(interpolation),
            fill=check.fill(fill),
        )


class RandomPhotometricDistort(Transform):
    """Changes brightness, contrast, saturation, hue and the order of channels, each with probability ``p``.

    For images of 1 or 3 channels. Contrast is changed before saturation and hue, or after them, each half of the time.

    Args:
        brightness: Least and greatest factor, at least 0.
        contrast: As brightness.
        saturation: As brightness.
        hue: Least and greatest shift, as a share of the colour circle, in -0.5 to 0.5.
        p: 0 to 1.

    Example:
        >>> RandomPhotometricDistort(p=0.3).contrast
        (0.5, 1.5)
    """

    _random = True
    brightness: tuple[float, float]
    contrast: tuple[float, float]
    saturation: tuple[float, float]
    hue: tuple[float, float]
    p: float

    def __init__(
        self,
        brightness: Sequence[float] = (0.875, 1.125),
        contrast: Sequence[float] = (0.5, 1.5),
        saturation: Sequence[float] = (0.5, 1.5),
        hue: Sequence[float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        factors = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
        ranges = {name: check.pair(given, name) for name, given in factors.items()}
        for name, (low, _) in ranges.items():
            if low < 0:
                raise ValueError(f"{name} is {factors[name]!r}; both numbers must be at least 0")
        shift = check.pair(hue, "hue")
        if shift[0] < -0.5 or shift[1] > 0.5:
            raise ValueError(f"hue is {hue!r}; both numbers must be from -0.5 to 0.5")
        self._set(**ranges, hue=shift, p=check.probability(p))
