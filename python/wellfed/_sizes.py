"""Transforms after which images differ in size, with torchvision v2's names: what detection is trained with.

Batches of such images are lists, unless a transform behind them settles one size.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _arguments as check
from ._transform import Transform

__all__ = ["RandomIoUCrop", "RandomResize", "RandomShortestSize", "RandomZoomOut", "ScaleJitter"]

_OPTIONS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


class RandomResize(Transform):
    """Resizes the smaller edge to a random whole number; the aspect ratio stays.

    Args:
        min_size: Least smaller edge.
        max_size: The smaller edge is less than this.
        interpolation: nearest, nearest-exact, bilinear, bicubic or lanczos.
        antialias: True or None; shrinking is always antialiased.

    Example:
        >>> RandomResize(16, 17)(np.zeros((32, 64, 3), np.uint8)).shape
        (16, 32, 3)
    """

    _random = True
    _not_in_plan = frozenset({"antialias"})
    min_size: int
    max_size: int
    interpolation: str
    antialias: bool | None

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        least, end = check.whole(min_size, "min_size", 1), check.whole(max_size, "max_size", 1)
        if least >= end:
            raise ValueError(f"max_size is {end}; it must be greater than min_size, which is {least}")
        self._set(
            min_size=least,
            max_size=end,
            interpolation=check.interpolation(interpolation),
            antialias=check.antialias(antialias),
        )


class RandomShortestSize(Transform):
    """Resizes the smaller edge to one of several numbers; the aspect ratio stays.

    Args:
        min_size: Smaller edges to choose from: an int, or several.
        max_size: Greatest longer edge: where it would be longer, the smaller edge is less. None for any.
        interpolation: nearest, nearest-exact, bilinear, bicubic or lanczos.
        antialias: True or None; shrinking is always antialiased.

    Example:
        >>> RandomShortestSize((16, 24), max_size=32)(np.zeros((32, 64, 3), np.uint8)).shape
        (16, 32, 3)
    """

    _random = True
    _not_in_plan = frozenset({"antialias"})
    min_size: tuple[int, ...]
    max_size: int | None
    interpolation: str
    antialias: bool | None

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int | None = None,
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        given: Any = [min_size] if isinstance(min_size, numbers.Integral | np.integer) else min_size
        if not check.is_sequence(given):
            raise TypeError(f"min_size is {min_size!r}; it must be an int or a sequence of ints")
        if not given:
            raise ValueError("min_size is empty; there must be at least one number")
        self._set(
            min_size=tuple(check.whole(edge, "min_size", 1) for edge in given),
            max_size=None if max_size is None else check.whole(max_size, "max_size", 1),
            interpolation=check.interpolation(interpolation),
            antialias=check.antialias(antialias),
        )


class ScaleJitter(Transform):
    """Resizes to a random multiple of the size that fits a target; the aspect ratio stays.

    Args:
        target_size: What scale 1 fits, two ints. As in torchvision, the second is that of the height.
        scale_range: Least and greatest scale, above 0.
        interpolation: nearest, nearest-exact, bilinear, bicubic or lanczos.
        antialias: True or None; shrinking is always antialiased.

    Example:
        >>> ScaleJitter((64, 64), scale_range=(0.5, 0.5))(np.zeros((32, 64, 3), np.uint8)).shape
        (16, 32, 3)
    """

    _random = True
    _not_in_plan = frozenset({"antialias"})
    target_size: tuple[int, int]
    scale_range: tuple[float, float]
    interpolation: str
    antialias: bool | None

    def __init__(
        self,
        target_size: Sequence[int],
        scale_range: Sequence[float] = (0.1, 2.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        if not check.is_sequence(target_size) or len(target_size) != 2:
            raise TypeError(f"target_size is {target_size!r}; it must be a sequence of two ints")
        self._set(
            target_size=tuple(check.whole(side, "target_size", least=1) for side in target_size),
            scale_range=check.positive_pair(scale_range, "scale_range"),
            interpolation=check.interpolation(interpolation),
            antialias=check.antialias(antialias),
        )


class RandomZoomOut(Transform):
    """Puts images at a random place of a larger canvas, with probability ``p``.

    Args:
        fill: Value of the canvas, 0 to 255, or one per channel.
        side_range: Least and greatest size of the canvas as a multiple of the image's, at least 1.
        p: 0 to 1.
        mask_fill: Value of the canvas of masks, if it is not ``fill``.

    Example:
        >>> RandomZoomOut(side_range=(2, 2), p=1)(np.zeros((8, 6, 3), np.uint8)).shape
        (16, 12, 3)
    """

    _random = True
    fill: float | tuple[float, ...]
    side_range: tuple[float, float]
    p: float
    mask_fill: float | None = None

    def __init__(
        self,
        fill: float | Sequence[float] | None = 0,
        side_range: Sequence[float] = (1.0, 4.0),
        p: float = 0.5,
        *,
        mask_fill: float | None = None,
    ) -> None:
        sides = check.pair(side_range, "side_range")
        if sides[0] < 1:
            raise ValueError(f"side_range is {side_range!r}; it must be (low, high) with 1 <= low <= high")
        self._set(
            fill=check.fill(fill),
            side_range=sides,
            p=check.probability(p),
            **check.mask_fill(mask_fill),
        )


class RandomIoUCrop(Transform):
    """Keeps a random part of the image that overlaps one of its boxes well, as SSD is trained.

    It needs exactly one field of boxes beside the image. Boxes whose middle lies outside of the part become empty, so
    that `SanitizeBoundingBoxes` has to follow, which removes them.

    Args:
        min_scale: Least share of height and of width that is kept.
        max_scale: Greatest share of height and of width that is kept, at most 1.
        min_aspect_ratio: Least aspect ratio (width / height) of the part.
        max_aspect_ratio: Greatest aspect ratio (width / height) of the part.
        sampler_options: Least overlaps (Jaccard) to draw from: one box must overlap the part by as much. 1 or more
            keeps the image as it is. None is (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0).
        trials: Parts that are tried before another overlap is drawn.

    Example:
        >>> RandomIoUCrop(trials=20).sampler_options
        (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    """

    _random = True
    min_scale: float
    max_scale: float
    min_aspect_ratio: float
    max_aspect_ratio: float
    sampler_options: tuple[float, ...]
    trials: int

    def __init__(
        self,
        min_scale: float = 0.3,
        max_scale: float = 1.0,
        min_aspect_ratio: float = 0.5,
        max_aspect_ratio: float = 2.0,
        sampler_options: Sequence[float] | None = None,
        trials: int = 40,
    ) -> None:
        scale = check.pair((min_scale, max_scale), "(min_scale, max_scale)")
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError(f"(min_scale, max_scale) is {scale}; both must lie in 0 to 1")
        ratio = check.positive_pair(
            (min_aspect_ratio, max_aspect_ratio), "(min_aspect_ratio, max_aspect_ratio)"
        )
        options = _OPTIONS if sampler_options is None else sampler_options
        if not check.is_sequence(options) or not options:
            raise ValueError(f"sampler_options is {options!r}; it must be a sequence of at least one number")
        self._set(
            min_scale=scale[0],
            max_scale=scale[1],
            min_aspect_ratio=ratio[0],
            max_aspect_ratio=ratio[1],
            sampler_options=tuple(check.number(option, "sampler_options") for option in options),
            trials=check.whole(trials, "trials", 1),
        )
