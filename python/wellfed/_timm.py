"""Transforms that timm's become, where torchvision has none like it. `wellfed.torch` makes them from those of timm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as check
from ._transform import Transform

__all__ = [
    "CenterCropOrPad",
    "CenterCropToSequence",
    "RandomCropOrPad",
    "RandomCropToSequence",
    "RandomResizedCropToSequence",
    "ResizeKeepRatio",
    "ResizeKeepRatioToSequence",
    "ResizeToSequence",
    "TimmAugment",
    "TrimBorder",
]

Op = tuple[str, float, float]
Filters = str | tuple[str, ...]


class _OfTimm(Transform):
    """A transform that torchvision has not."""

    def as_torchvision(self, v2: Any) -> Any:
        """Refuses: only images of 8 bits can be transformed."""
        raise TypeError(f"{type(self).__name__} is there for images of 8 bits: torchvision has none like it")


class TimmAugment(_OfTimm):
    """Draws some of several policies and does the operations of each: timm's RandAugment, AutoAugment and AugMix.

    For images of 1 or 3 channels; pixels are those that Pillow gives timm. Samples with masks, boxes or points are
    refused.

    Args:
        policies: What is drawn from: each a list of operations, ``(name, probability, magnitude)`` by timm's names.
        num_layers: How many policies are drawn; of a mix for each chain, where -1 draws 1 to 3.
        weights: How likely each policy is; then none is drawn twice. None: all alike.
        magnitude_std: Standard deviation of magnitudes around the given one.
        uniform: Draw magnitudes from 0 to the given one instead.
        magnitude_max: Greatest magnitude.
        translate_const: Pixels that ``TranslateX`` moves by at magnitude 10.
        translate_pct: Share of its side that ``TranslateXRel`` moves an image by at magnitude 10.
        interpolation: nearest, bilinear or bicubic, or two of them, of which one is drawn.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        mix: ``{"alpha": ..., "width": ..., "blended": ...}`` mixes the image with several chains, as AugMix does.

    Example:
        >>> import numpy as np
        >>> TimmAugment([[("Invert", 1, 0)]])(np.array([[0, 200]], np.uint8))[0, :, 0]
        array([255,  55], dtype=uint8)
    """

    _random = True
    policies: tuple[tuple[Op, ...], ...]
    num_layers: int
    weights: tuple[float, ...] | None
    magnitude_std: float
    uniform: bool
    magnitude_max: float
    translate_const: float
    translate_pct: float
    interpolation: str | tuple[str, ...]
    fill: float | tuple[float, ...]
    mix: dict[str, Any] | None

    def __init__(
        self,
        policies: Sequence[Sequence[Sequence[Any]]],
        num_layers: int = 1,
        weights: Sequence[float] | None = None,
        magnitude_std: float = 0.0,
        uniform: bool = False,
        magnitude_max: float = 10.0,
        translate_const: float = 250.0,
        translate_pct: float = 0.45,
        interpolation: Any = ("bilinear", "bicubic"),
        fill: float | Sequence[float] = 128,
        mix: dict[str, Any] | None = None,
    ) -> None:
        self._set(
            policies=tuple(tuple(_op(op) for op in policy) for policy in policies),
            num_layers=int(num_layers),
            weights=None if weights is None else tuple(float(weight) for weight in weights),
            magnitude_std=check.number(magnitude_std, "magnitude_std"),
            uniform=bool(uniform),
            magnitude_max=check.number(magnitude_max, "magnitude_max"),
            translate_const=check.number(translate_const, "translate_const"),
            translate_pct=check.number(translate_pct, "translate_pct"),
            interpolation=check.filters(interpolation, check.sampling),
            fill=check.fill(fill),
            mix=None if mix is None else dict(mix),
        )


def _op(op: Sequence[Any]) -> Op:
    name, probability, magnitude = op
    return str(name), check.probability(probability), check.number(magnitude, "magnitude")


class _Jitter(_OfTimm):
    """What is drawn of a scale and an aspect ratio that are kept."""

    longest: float
    interpolation: Filters
    random_scale_prob: float
    random_scale_range: tuple[float, float]
    random_scale_area: bool
    random_aspect_prob: float
    random_aspect_range: tuple[float, float]

    def _jitter(
        self,
        scale_prob: float,
        scale_range: Sequence[float],
        scale_area: bool,
        aspect_prob: float,
        aspect_range: Sequence[float],
    ) -> None:
        self._set(
            random_scale_prob=check.probability(scale_prob),
            random_scale_range=check.positive_pair(scale_range, "random_scale_range"),
            random_scale_area=bool(scale_area),
            random_aspect_prob=check.probability(aspect_prob),
            random_aspect_range=check.positive_pair(aspect_range, "random_aspect_range"),
        )

    @property
    def random(self) -> bool:
        """Whether it draws random parameters."""
        several = isinstance(self.interpolation, tuple)
        return several or self.random_scale_prob > 0 or self.random_aspect_prob > 0


class ResizeKeepRatio(_Jitter):
    """Resizes so that the image covers a size, or fits into it; the aspect ratio stays, but for what is drawn.

    Args:
        size: (height, width) to reach, or an int for both.
        longest: 0: the result covers ``size``; 1: it fits into it; others lie between.
        interpolation: Filter, or two of which one is drawn.
        random_scale_prob: Probability that the scale is drawn.
        random_scale_range: Least and greatest factor of both sides.
        random_scale_area: Whether the scale is a share of the area: less of it is a larger picture.
        random_aspect_prob: Probability that the aspect ratio is drawn.
        random_aspect_range: Least and greatest factor of the aspect ratio.

    Example:
        >>> import numpy as np
        >>> ResizeKeepRatio((30, 40), longest=1)(np.zeros((60, 120, 3), np.uint8)).shape
        (20, 40, 3)
    """

    size: tuple[int, int]

    def __init__(
        self,
        size: int | Sequence[int],
        longest: float = 0.0,
        interpolation: Any = "bilinear",
        random_scale_prob: float = 0.0,
        random_scale_range: Sequence[float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: Sequence[float] = (0.9, 1.11),
    ) -> None:
        self._set(
            size=check.size(size),
            longest=check.number(longest, "longest"),
            interpolation=check.filters(interpolation),
        )
        self._jitter(
            random_scale_prob, random_scale_range, random_scale_area, random_aspect_prob, random_aspect_range
        )


class CenterCropOrPad(_OfTimm):
    """Keeps the middle of the image, and adds what is missing around it.

    Args:
        size: (height, width) of the result, or an int for both.
        fill: Value of added pixels, 0 to 255, or one per channel.
        padding_mode: constant, edge, reflect or symmetric.

    Example:
        >>> import numpy as np
        >>> CenterCropOrPad((1, 5), padding_mode="reflect")(np.array([[1, 2, 3]], np.uint8))[0, :, 0]
        array([2, 1, 2, 3, 2], dtype=uint8)
    """

    size: tuple[int, int]
    fill: float | tuple[float, ...]
    padding_mode: str

    def __init__(
        self, size: int | Sequence[int], fill: float | Sequence[float] = 0, padding_mode: str = "constant"
    ) -> None:
        mode = check.padding_mode(padding_mode)
        self._set(size=check.size(size), fill=check.fill(fill), padding_mode=mode)


class RandomCropOrPad(CenterCropOrPad):
    """Keeps a window of the image at a random place, and puts an image that is smaller at a random place of one.

    Args:
        size: (height, width) of the result, or an int for both.
        fill: Value of added pixels, 0 to 255, or one per channel.
        padding_mode: constant, edge, reflect or symmetric.

    Example:
        >>> import numpy as np
        >>> RandomCropOrPad((2, 1), padding_mode="edge")(np.array([[7, 7, 7]], np.uint8))[:, 0, 0]
        array([7, 7], dtype=uint8)
    """

    _random = True


class TrimBorder(_OfTimm):
    """Cuts off as many pixels at each border.

    Args:
        border_size: How many.

    Example:
        >>> import numpy as np
        >>> TrimBorder(2)(np.zeros((9, 7, 3), np.uint8)).shape
        (5, 3, 3)
    """

    border_size: int

    def __init__(self, border_size: int) -> None:
        self._set(border_size=check.whole(border_size, "border_size"))


def _patches(patch_size: Any, max_seq_len: int, divisible_by_patch: bool) -> dict[str, Any]:
    """What all that aim at a number of patches have in common."""
    return {
        "patch_size": check.size(patch_size, "patch_size"),
        "max_seq_len": check.whole(max_seq_len, "max_seq_len", 1),
        "divisible_by_patch": bool(divisible_by_patch),
    }


def _max_ratio(value: Any) -> float | None:
    return None if value is None else check.number(value, "max_ratio")


class ResizeToSequence(_OfTimm):
    """Resizes the image to the largest size of which no more patches are made; the aspect ratio stays.

    Args:
        patch_size: (height, width) of a patch, or an int for both.
        max_seq_len: How many patches an image may have.
        divisible_by_patch: Whether sides are multiples of those of a patch.
        max_ratio: Greatest scale.
        interpolation: Filter, or two of which one is drawn.

    Example:
        >>> import numpy as np
        >>> ResizeToSequence(16, 576)(np.zeros((100, 200, 3), np.uint8)).shape
        (272, 528, 3)
    """

    patch_size: tuple[int, int]
    max_seq_len: int
    divisible_by_patch: bool
    max_ratio: float | None
    interpolation: Filters

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        max_seq_len: int = 1024,
        divisible_by_patch: bool = True,
        max_ratio: float | None = None,
        interpolation: Any = "bilinear",
    ) -> None:
        self._set(
            **_patches(patch_size, max_seq_len, divisible_by_patch),
            max_ratio=_max_ratio(max_ratio),
            interpolation=check.filters(interpolation),
        )

    @property
    def random(self) -> bool:
        """Whether it draws random parameters."""
        return isinstance(self.interpolation, tuple)


class ResizeKeepRatioToSequence(_Jitter):
    """Resizes the image to a size of which no more patches are made, with a drawn scale and aspect ratio.

    Args:
        patch_size: (height, width) of a patch, or an int for both.
        max_seq_len: How many patches an image may have.
        divisible_by_patch: Whether sides are multiples of those of a patch.
        max_ratio: Greatest scale.
        longest: Which side decides where rounding to patches makes a difference: 0 the one that is scaled less.
        interpolation: Filter, or two of which one is drawn.
        random_scale_prob: Probability that the scale is drawn.
        random_scale_range: Least and greatest factor of both sides.
        random_scale_area: Whether the scale is a share of the area: less of it is a larger picture.
        random_aspect_prob: Probability that the aspect ratio is drawn.
        random_aspect_range: Least and greatest factor of the aspect ratio.

    Example:
        >>> import numpy as np
        >>> ResizeKeepRatioToSequence(8, 9)(np.zeros((100, 100, 3), np.uint8)).shape
        (24, 24, 3)
    """

    patch_size: tuple[int, int]
    max_seq_len: int
    divisible_by_patch: bool
    max_ratio: float | None

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        max_seq_len: int = 1024,
        divisible_by_patch: bool = True,
        max_ratio: float | None = None,
        longest: float = 0.0,
        interpolation: Any = "bilinear",
        random_scale_prob: float = 0.0,
        random_scale_range: Sequence[float] = (0.85, 1.05),
        random_scale_area: bool = False,
        random_aspect_prob: float = 0.0,
        random_aspect_range: Sequence[float] = (0.9, 1.11),
    ) -> None:
        self._set(
            **_patches(patch_size, max_seq_len, divisible_by_patch),
            max_ratio=_max_ratio(max_ratio),
            longest=check.number(longest, "longest"),
            interpolation=check.filters(interpolation),
        )
        self._jitter(
            random_scale_prob, random_scale_range, random_scale_area, random_aspect_prob, random_aspect_range
        )


class RandomResizedCropToSequence(_OfTimm):
    """Crops a random part and resizes it to the largest size of which no more patches are made.

    Args:
        patch_size: (height, width) of a patch, or an int for both.
        max_seq_len: How many patches an image may have.
        scale: Least and greatest share of the area that is kept.
        ratio: Least and greatest factor of the image's aspect ratio.
        interpolation: Filter, or two of which one is drawn.
        divisible_by_patch: Whether sides are multiples of those of a patch.
        final_scale_range: Least and greatest share of the largest size; None for all of it.
        attempts: How often a part is drawn before the middle is taken.

    Example:
        >>> import numpy as np
        >>> RandomResizedCropToSequence(8, 9, scale=(1, 1), ratio=(1, 1))(np.zeros((50, 50, 3), np.uint8)).shape
        (24, 24, 3)
    """

    _random = True
    patch_size: tuple[int, int]
    max_seq_len: int
    scale: tuple[float, float]
    ratio: tuple[float, float]
    interpolation: Filters
    divisible_by_patch: bool
    final_scale_range: tuple[float, float] | None
    attempts: int

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        max_seq_len: int = 1024,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (0.8, 1.25),
        interpolation: Any = "bilinear",
        divisible_by_patch: bool = True,
        final_scale_range: Sequence[float] | None = None,
        attempts: int = 10,
    ) -> None:
        final = None if final_scale_range is None else check.pair(final_scale_range, "final_scale_range")
        self._set(
            **_patches(patch_size, max_seq_len, divisible_by_patch),
            scale=check.pair(scale, "scale"),
            ratio=check.positive_pair(ratio, "ratio"),
            interpolation=check.filters(interpolation),
            final_scale_range=final,
            attempts=check.whole(attempts, "attempts"),
        )


class CenterCropToSequence(_OfTimm):
    """Keeps the middle, of as many patches as the image would have if it were scaled to the largest size that fits.

    Args:
        patch_size: (height, width) of a patch, or an int for both.
        max_seq_len: How many patches an image may have.
        divisible_by_patch: Whether sides are multiples of those of a patch.
        fill: Value of added pixels, 0 to 255, or one per channel.
        padding_mode: constant, edge, reflect or symmetric.

    Example:
        >>> import numpy as np
        >>> CenterCropToSequence(8, 9)(np.zeros((50, 50, 3), np.uint8)).shape
        (24, 24, 3)
    """

    patch_size: tuple[int, int]
    max_seq_len: int
    divisible_by_patch: bool
    fill: float | tuple[float, ...]
    padding_mode: str

    def __init__(
        self,
        patch_size: int | Sequence[int] = 16,
        max_seq_len: int = 1024,
        divisible_by_patch: bool = True,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        mode = check.padding_mode(padding_mode)
        patches = _patches(patch_size, max_seq_len, divisible_by_patch)
        self._set(**patches, fill=check.fill(fill), padding_mode=mode)


class RandomCropToSequence(CenterCropToSequence):
    """Keeps a window at a random place, of as many patches as the image would have if it were scaled down to fit.

    Args:
        patch_size: (height, width) of a patch, or an int for both.
        max_seq_len: How many patches an image may have.
        divisible_by_patch: Whether sides are multiples of those of a patch.
        fill: Value of added pixels, 0 to 255, or one per channel.
        padding_mode: constant, edge, reflect or symmetric.

    Example:
        >>> import numpy as np
        >>> RandomCropToSequence(8, 9)(np.zeros((50, 50, 3), np.uint8)).shape
        (24, 24, 3)
    """

    _random = True
