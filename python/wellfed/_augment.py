"""Automatic augmentations, the operations that they consist of, and transforms that run others by chance.

They take images of 1 or 3 channels and 8 bits, and give the pixels that torchvision gives for Pillow images.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Any

from . import _arguments as check
from . import _native
from ._transform import Transform, inner_transforms, mixing

__all__ = [
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomEqualize",
    "RandomInvert",
    "RandomOrder",
    "RandomPosterize",
    "RandomSolarize",
    "TrivialAugmentWide",
]


class AutoAugmentPolicy(Enum):
    """What the operations of `AutoAugment` were learned on. torchvision's enum of this name or text do, too."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class RandomInvert(Transform):
    """Turns values around, ``255 - v``, with probability ``p``.

    Args:
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> RandomInvert(p=1)(np.array([[0, 200]], np.uint8))[0, :, 0]
        array([255,  55], dtype=uint8)
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self._set(p=check.probability(p))


class RandomPosterize(Transform):
    """Keeps the highest bits of every value, with probability ``p``.

    Args:
        bits: How many, 1 to 8.
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> RandomPosterize(2, p=1)(np.array([[63, 200]], np.uint8))[0, :, 0]
        array([  0, 192], dtype=uint8)
    """

    _random = True
    bits: int
    p: float

    def __init__(self, bits: int, p: float = 0.5) -> None:
        bits = check.whole(bits, "bits")
        if not 1 <= bits <= 8:
            raise ValueError(f"bits is {bits}; it must be 1 to 8")
        self._set(bits=bits, p=check.probability(p))


class RandomSolarize(Transform):
    """Turns values of at least ``threshold`` around, with probability ``p``.

    Args:
        threshold: On the scale 0 to 255.
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> RandomSolarize(128, p=1)(np.array([[100, 200]], np.uint8))[0, :, 0]
        array([100,  55], dtype=uint8)
    """

    _random = True
    threshold: float
    p: float

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        self._set(threshold=check.number(threshold, "threshold"), p=check.probability(p))


class RandomAdjustSharpness(Transform):
    """Smooths or sharpens with probability ``p``.

    Args:
        sharpness_factor: 0 is smooth, 1 leaves images as they are, 2 is sharp; at least 0.
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> spot = np.zeros((3, 3), np.uint8)
        >>> spot[1, 1] = 130
        >>> RandomAdjustSharpness(0, p=1)(spot)[:, :, 0].max()
        np.uint8(50)
    """

    _random = True
    sharpness_factor: float
    p: float

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        factor = check.number(sharpness_factor, "sharpness_factor")
        if factor < 0:
            raise ValueError(f"sharpness_factor is {factor}; it must be at least 0")
        self._set(sharpness_factor=factor, p=check.probability(p))


class RandomAutocontrast(Transform):
    """Spreads the values of every channel over 0 to 255, with probability ``p``.

    Args:
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> RandomAutocontrast(p=1)(np.array([[100, 125, 151]], np.uint8))[0, :, 0]
        array([  0, 125, 255], dtype=uint8)
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self._set(p=check.probability(p))


class RandomEqualize(Transform):
    """Makes the values of every channel about equally frequent, with probability ``p``.

    Args:
        p: 0 to 1.

    Example:
        >>> import numpy as np
        >>> dark = (np.arange(4096) // 64).astype(np.uint8).reshape(64, 64)
        >>> int(RandomEqualize(p=1)(dark).max())
        255
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self._set(p=check.probability(p))


def _thresholds(version: str) -> dict[str, str]:
    """The parameter of automatic augmentations, where it is not the default: plans stay what they were."""
    if version not in ("v1", "v2"):
        raise ValueError(f"thresholds is {version!r}; it must be 'v1' or 'v2'")
    return {} if version == "v2" else {"thresholds": version}


def _automatic(transform: Transform, v2: Any) -> Any:
    """Torchvision's automatic augmentation with the parameters of `transform`, with its enums."""
    parameters = dict(vars(transform))
    module = v2
    if "v1" in (parameters.pop("thresholds", "v2"), parameters.pop("version", "v2")):
        module = importlib.import_module("torchvision.transforms")
    parameters["interpolation"] = v2.InterpolationMode(parameters["interpolation"])
    if "policy" in parameters:
        parameters["policy"] = v2.AutoAugmentPolicy(parameters["policy"])
    return getattr(module, type(transform).__name__)(**parameters)


class RandAugment(Transform):
    """Does some operations one after the other, each drawn from 14, with one magnitude and a random sign.

    The operations: identity, shear and translation along x and y, rotation, brightness, color, contrast, sharpness,
    posterize, solarize, autocontrast, equalize. For images of 1 or 3 channels. Samples with masks, boxes or points are
    refused, as in torchvision: use ``map(..., field="image")`` to leave these where they are.

    Args:
        num_ops: How many operations, 0 to 1,000.
        magnitude: Which of the magnitudes, 0 to ``num_magnitude_bins - 1``.
        num_magnitude_bins: How many magnitudes there are, at least 2.
        interpolation: nearest, bilinear or bicubic.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        thresholds: Of which of torchvision's classes of this name the thresholds of solarize are, ``"v1"`` or ``"v2"``;
            some differ by 1.

    Example:
        >>> RandAugment(magnitude=5)
        RandAugment(num_ops=2, magnitude=5, num_magnitude_bins=31, interpolation='nearest', fill=0)
    """

    _random = True
    num_ops: int
    magnitude: int
    num_magnitude_bins: int
    interpolation: str
    fill: float | tuple[float, ...]

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
        *,
        thresholds: str = "v2",
    ) -> None:
        bins = check.whole(num_magnitude_bins, "num_magnitude_bins", 2)
        strength = check.whole(magnitude, "magnitude")
        if strength >= bins:
            raise ValueError(f"magnitude is {strength}; it must be below num_magnitude_bins, which is {bins}")
        self._set(
            num_ops=check.whole(num_ops, "num_ops"),
            magnitude=strength,
            num_magnitude_bins=bins,
            interpolation=check.sampling(interpolation),
            fill=check.fill(fill),
            **_thresholds(thresholds),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of the version that has its thresholds."""
        return _automatic(self, v2)


class TrivialAugmentWide(Transform):
    """Does one operation, drawn from the 14 of `RandAugment`, with a magnitude drawn at random and a random sign.

    Args:
        num_magnitude_bins: How many magnitudes there are, at least 2.
        interpolation: nearest, bilinear or bicubic.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        thresholds: Of which of torchvision's classes of this name the thresholds of solarize are, ``"v1"`` or ``"v2"``;
            some differ by 1.

    Example:
        >>> TrivialAugmentWide()
        TrivialAugmentWide(num_magnitude_bins=31, interpolation='nearest', fill=0)
    """

    _random = True
    num_magnitude_bins: int
    interpolation: str
    fill: float | tuple[float, ...]

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
        *,
        thresholds: str = "v2",
    ) -> None:
        self._set(
            num_magnitude_bins=check.whole(num_magnitude_bins, "num_magnitude_bins", 2),
            interpolation=check.sampling(interpolation),
            fill=check.fill(fill),
            **_thresholds(thresholds),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of the version that has its thresholds."""
        return _automatic(self, v2)


class AutoAugment(Transform):
    """Does the two operations of one of 25 pairs, each with its probability and its magnitude, with a random sign.

    Args:
        policy: What the pairs were learned on: an `AutoAugmentPolicy`, torchvision's enum of this name, or imagenet,
            cifar10 or svhn.
        interpolation: nearest, bilinear or bicubic.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        thresholds: Of which of torchvision's classes of this name the thresholds of solarize are, ``"v1"`` or ``"v2"``;
            some differ by 1.

    Example:
        >>> AutoAugment("cifar10")
        AutoAugment(policy='cifar10', interpolation='nearest', fill=0)
    """

    _random = True
    policy: str
    interpolation: str
    fill: float | tuple[float, ...]

    def __init__(
        self,
        policy: Any = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = None,
        *,
        thresholds: str = "v2",
    ) -> None:
        name = getattr(policy, "value", policy)
        known = [known.value for known in AutoAugmentPolicy]
        if name not in known:
            raise ValueError(f"policy is {policy!r}; it must be one of {', '.join(known)}")
        self._set(
            policy=str(name),
            interpolation=check.sampling(interpolation),
            fill=check.fill(fill),
            **_thresholds(thresholds),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of the version that has its thresholds."""
        return _automatic(self, v2)


class AugMix(Transform):
    """Mixes images with chains of operations on them, with random weights.

    The operations: shear and translation along x and y, rotation, posterize, solarize, autocontrast, equalize, and with
    ``all_ops`` brightness, color, contrast and sharpness; with torchvision's arithmetic of tensors, also for Pillow
    images. For images of 1 or 3 channels. Samples with masks, boxes or points are refused, as in torchvision.

    Args:
        severity: How many of the ten magnitudes of every operation there are to choose from, weakest first; 1 to 10.
        mixture_width: How many chains, 1 to 100.
        chain_depth: Operations of a chain, up to 100; -1 draws 1 to 3 for each.
        alpha: Parameter of the distributions of weights, above 0.
        all_ops: Whether brightness, color, contrast and sharpness are among the operations.
        interpolation: nearest or bilinear.
        fill: Value of what comes in from outside, 0 to 255, or one per channel; None is black, into which images fade.
        version: Of which of torchvision's classes of this name the arithmetic is, ``"v1"`` or ``"v2"``; some values
            differ by 1.

    Example:
        >>> AugMix(severity=5).mixture_width
        3
    """

    _random = True
    severity: int
    mixture_width: int
    chain_depth: int
    alpha: float
    all_ops: bool
    interpolation: str
    fill: float | tuple[float, ...] | None

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: float | Sequence[float] | None = None,
        *,
        version: str = "v2",
    ) -> None:
        level = check.whole(severity, "severity", 1)
        if level > 10:
            raise ValueError(f"severity is {level}; it must be 1 to 10")
        mode = check.interpolation(interpolation)
        if mode not in ("nearest", "bilinear"):
            raise ValueError(f"interpolation is {mode!r}; tensors are turned with nearest and bilinear")
        strength = check.number(alpha, "alpha")
        if not strength > 0:
            raise ValueError(f"alpha is {strength}; it must be above 0")
        if version not in ("v1", "v2"):
            raise ValueError(f"version is {version!r}; it must be 'v1' or 'v2'")
        self._set(
            severity=level,
            mixture_width=check.whole(mixture_width, "mixture_width", 1),
            chain_depth=check.whole(chain_depth, "chain_depth", -sys.maxsize),
            alpha=strength,
            all_ops=bool(all_ops),
            interpolation=mode,
            fill=None if fill is None else check.fill(fill),
            **({} if version == "v2" else {"version": version}),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of the version that has its arithmetic."""
        return _automatic(self, v2)


def _check(transform: Transform) -> None:
    """Raises the engine's error if it refuses `transform`: which of them can stand in others, it alone knows."""
    if not transform.on_batches:
        _native.check_transform(json.dumps(transform.to_plan()))


class RandomApply(Transform):
    """Runs transforms one after the other with probability ``p``, or none of them.

    Args:
        transforms: Transforms that leave sizes alone or turn the image: colour, grey with its channels, blur,
            `RandomRotation`, `RandomAffine`, automatic augmentations, and others of this kind.
        p: 0 to 1.

    Example:
        >>> RandomApply([RandomInvert(1)], p=0.1).p
        0.1
    """

    transforms: tuple[Transform, ...]
    p: float
    _random = True

    @property
    def on_batches(self) -> bool:
        """Whether it works on finished batches."""
        return mixing(self, self.transforms)

    def __init__(self, transforms: Sequence[Transform], p: float = 0.5) -> None:
        self._set(transforms=inner_transforms(transforms), p=check.probability(p))
        _check(self)

    def to_plan(self) -> dict[str, Any]:
        """This transform as data that JSON can express."""
        return {"type": "RandomApply", "transforms": [t.to_plan() for t in self.transforms], "p": self.p}

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of torchvision's transforms."""
        return v2.RandomApply([t.as_torchvision(v2) for t in self.transforms], self.p)


class RandomChoice(Transform):
    """Runs one of several transforms.

    Args:
        transforms: What to choose from, as in `RandomApply`.
        p: A weight for each, none negative; None makes all equally likely.

    Example:
        >>> RandomChoice([RandomEqualize(1), RandomSolarize(128, 1)]).p is None
        True
    """

    transforms: tuple[Transform, ...]
    p: tuple[float, ...] | None
    _random = True

    @property
    def on_batches(self) -> bool:
        """Whether it works on finished batches."""
        return mixing(self, self.transforms)

    def __init__(self, transforms: Sequence[Transform], p: Sequence[float] | None = None) -> None:
        inner = inner_transforms(transforms)
        weights = None
        if p is not None:
            weights = tuple(check.number(weight, "p") for weight in p)
            if len(weights) != len(inner):
                raise ValueError(f"p has {len(weights)} numbers for {len(inner)} transforms")
            if min(weights) < 0 or sum(weights) <= 0:
                raise ValueError(f"p is {weights}; no number may be negative, and not all 0")
        self._set(transforms=inner, p=weights)
        _check(self)

    def to_plan(self) -> dict[str, Any]:
        """This transform as data that JSON can express."""
        return {"type": "RandomChoice", "transforms": [t.to_plan() for t in self.transforms], "p": self.p}

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of torchvision's transforms."""
        p = None if self.p is None else list(self.p)
        return v2.RandomChoice([t.as_torchvision(v2) for t in self.transforms], p)


class RandomOrder(Transform):
    """Runs transforms in random order.

    Args:
        transforms: What to run, as in `RandomApply`.

    Example:
        >>> len(RandomOrder([RandomInvert(), RandomEqualize()]).transforms)
        2
    """

    transforms: tuple[Transform, ...]
    _random = True

    def __init__(self, transforms: Sequence[Transform]) -> None:
        inner = inner_transforms(transforms)
        if any(one.on_batches for one in inner):
            raise ValueError(
                "RandomOrder has no transforms of batches, such as MixUp and CutMix"
                "\nhint: ds.batch(n).map(T.MixUp(...), T.CutMix(...)) runs them in this order"
            )
        self._set(transforms=inner)
        _check(self)

    def to_plan(self) -> dict[str, Any]:
        """This transform as data that JSON can express."""
        return {"type": "RandomOrder", "transforms": [t.to_plan() for t in self.transforms]}

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, of torchvision's transforms."""
        return v2.RandomOrder([t.as_torchvision(v2) for t in self.transforms])
