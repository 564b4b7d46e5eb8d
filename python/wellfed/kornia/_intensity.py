"""Augmentations that change values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from .. import _arguments as check
from .. import transforms as T
from .._opencv import CoarseDropout
from .._transform import Compose, Transform
from ._arguments import byte_fill, channel_values, name_of, plain, refuse, share_weights, span, whole
from ._geometric import _sometimes
from ._module import Augmentation, Place

__all__ = [
    "ColorJiggle",
    "ColorJitter",
    "Denormalize",
    "Normalize",
    "RandomBrightness",
    "RandomContrast",
    "RandomEqualize",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPosterize",
    "RandomSaturation",
    "RandomSolarize",
]

Range = float | Sequence[float]

_BY_GREY = "saturation is a blend with the grey image, as torchvision's; kornia scales that of HSV"
_ORDER = "the order is drawn for each image, and not for each batch"
_LUMA = (0.299, 0.587, 0.114)


def _factor(low: float, high: float) -> Transform:
    """Values times a number."""
    return T.ColorJitter(brightness=(low, high))


def _one_of(weighted: Iterable[tuple[Transform, float]]) -> Transform:
    """One of some transforms, each with how likely it is."""
    transforms, weights = zip(*weighted, strict=True)
    return transforms[0] if len(transforms) == 1 else T.RandomChoice(transforms, p=weights)


def _plus(levels: int) -> Transform:
    """Values plus a number of levels, cut off at both ends, exactly.

    A factor a above 1 is inverted and scaled back: 255 - (255 - a * v) / a is v + 255 * (1 - 1 / a).
    """
    if not levels:
        return T.Identity()
    invert = T.RandomInvert(1.0)
    if abs(levels) >= 255:
        black = _factor(0.0, 0.0)
        return black if levels < 0 else Compose([black, invert])
    scale = 255 / (255 - abs(levels))
    # What is lost by rounding down between is less than the last step makes of it.
    there, back = _factor(scale, scale), _factor(1 / scale + 1e-6, 1 / scale + 1e-6)
    return Compose([there, invert, back, invert] if levels > 0 else [invert, there, invert, back])


def _added(low: float, high: float) -> Transform:
    """Values plus a share of 255 that is drawn, in whole levels."""
    return _one_of((_plus(levels), weight) for levels, weight in share_weights(255 * low, 255 * high, -0.5))


def _clipped(clip_output: bool, where: str) -> bool:
    if not clip_output:
        raise refuse(f"{where}: clip_output is False", "True", "8 bits hold nothing outside of 0 to 1")
    return True


class RandomBrightness(Augmentation):
    """Adds a random number: a drawn factor minus 1.

    Args:
        brightness: (low, high) within 0 to 2, or b for (1 - b, 1 + b).
        clip_output: True.
        same_on_batch: Whether one number is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> images = torch.tensor([[[[0.0, 0.2, 0.4]]]])
        >>> RandomBrightness((0.8, 0.8))(images)
        tensor([[[[0.0000, 0.0000, 0.2000]]]])
    """

    brightness: tuple[float, float]

    def __init__(
        self,
        brightness: Range = (1.0, 1.0),
        clip_output: bool = True,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            brightness=span(brightness, "brightness", 1.0, 0.0, 2.0),
            clip_output=_clipped(clip_output, type(self).__name__),
        )

    def lower(self, place: Place) -> list[Transform]:
        """One of many numbers of levels."""
        low, high = self.brightness
        return _sometimes(_added(low - 1, high - 1), self.p)


class RandomContrast(Augmentation):
    """Multiplies values by a random factor.

    Args:
        contrast: (low, high), at least 0; or c for (max(0, 1 - c), 1 + c).
        clip_output: True.
        same_on_batch: Whether one factor is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomContrast((0.5, 0.5))(torch.tensor([[[[0.0, 0.4, 0.8]]]]))
        tensor([[[[0.0000, 0.2000, 0.4000]]]])
    """

    contrast: tuple[float, float]

    def __init__(
        self,
        contrast: Range = (1.0, 1.0),
        clip_output: bool = True,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            contrast=span(contrast, "contrast", 1.0, 0.0),
            clip_output=_clipped(clip_output, type(self).__name__),
        )

    def lower(self, place: Place) -> list[Transform]:
        """What torchvision calls brightness."""
        return _sometimes(_factor(*self.contrast), self.p)


class RandomSaturation(Augmentation):
    """Blends colours with their grey by a random factor, as torchvision does; kornia scales the saturation of HSV.

    Factors are those of kornia. Below 1, kornia makes colours lighter, to the white of their brightest channel, and
    this keeps them as light as they are.

    Args:
        saturation: (low, high), at least 0; or s for (max(0, 1 - s), 1 + s).
        same_on_batch: Whether one factor is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomSaturation((0.0, 0.0))(torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1)).flatten()
        tensor([0.2980, 0.2980, 0.2980])
    """

    _colours = True
    _differs = _BY_GREY
    saturation: tuple[float, float]

    def __init__(
        self,
        saturation: Range = (1.0, 1.0),
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        super().__init__(p, same_on_batch, keepdim, saturation=span(saturation, "saturation", 1.0, 0.0))

    def lower(self, place: Place) -> list[Transform]:
        """Saturation alone of `ColorJitter`."""
        return _sometimes(T.ColorJitter(saturation=self.saturation), self.p)


class RandomHue(Augmentation):
    """Shifts the hue by a random share of the colour circle.

    Args:
        hue: (low, high) in -0.5 to 0.5, or h for (-h, h).
        same_on_batch: Whether one shift is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomHue((0.25, 0.25))(torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1)).flatten()
        tensor([0.5176, 1.0000, 0.0000])
    """

    _colours = True
    hue: tuple[float, float]

    def __init__(
        self, hue: Range = (0.0, 0.0), same_on_batch: bool = False, p: float = 1.0, keepdim: bool = False
    ) -> None:
        super().__init__(p, same_on_batch, keepdim, hue=span(hue, "hue", 0.0, -0.5, 0.5))

    def lower(self, place: Place) -> list[Transform]:
        """Hue alone of `ColorJitter`."""
        return _sometimes(T.ColorJitter(hue=self.hue), self.p)


class _Colours(Augmentation):
    """Four changes of colours, in random order."""

    brightness: tuple[float, float]
    contrast: tuple[float, float]
    saturation: tuple[float, float]
    hue: tuple[float, float]
    order: tuple[int, ...] | None
    _brightest = math.inf

    def __init__(
        self,
        brightness: Range = 0.0,
        contrast: Range = 0.0,
        saturation: Range = 0.0,
        hue: Range = 0.0,
        same_on_batch: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
        order: Sequence[int] | None = None,
    ) -> None:
        fixed = None if order is None else tuple(int(one) for one in order)
        if fixed is not None and (not set(fixed) <= set(range(4)) or len(set(fixed)) < len(fixed)):
            raise ValueError(
                f"order is {fixed}; must be numbers from 0 to 3 (brightness, contrast, saturation, hue), each once"
            )
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            brightness=span(brightness, "brightness", 1.0, 0.0, self._brightest),
            contrast=span(contrast, "contrast", 1.0, 0.0),
            saturation=span(saturation, "saturation", 1.0, 0.0),
            hue=span(hue, "hue", 0.0, -0.5, 0.5),
            order=fixed,
        )
        self.__dict__["_colours"] = any(
            spread != neutral
            for number, spread, neutral in ((2, self.saturation, (1.0, 1.0)), (3, self.hue, (0.0, 0.0)))
            if fixed is None or number in fixed
        )

    def _changes(self) -> list[Transform]:
        """What each of the four does that are not neutral, in order."""
        spans = (self.brightness, self.contrast, self.saturation, self.hue)
        return [
            self._change(number, *spans[number])
            for number in (range(4) if self.order is None else self.order)
            if spans[number] != ((0.0, 0.0) if number == 3 else (1.0, 1.0))
        ]

    def _change(self, number: int, low: float, high: float) -> Transform:
        raise NotImplementedError

    def lower(self, place: Place) -> list[Transform]:
        """The changes in an order that is drawn."""
        changes = self._changes()
        if not changes:
            return []
        if len(changes) == 1:
            return _sometimes(changes[0], self.p)
        return _sometimes(Compose(changes) if self.order is not None else T.RandomOrder(changes), self.p)


class ColorJiggle(_Colours):
    """Changes brightness, contrast, saturation and hue by random numbers, in random order.

    Brightness adds a number and contrast multiplies by one, as in kornia. Saturation is a blend with the grey image, as
    in torchvision: kornia scales the saturation of HSV by the factor instead. The order is drawn for each image.

    Args:
        brightness: (low, high) within 0 to 2, of which 1 is subtracted; or b for (1 - b, 1 + b).
        contrast: Factor: (low, high), at least 0; or c for (max(0, 1 - c), 1 + c).
        saturation: As contrast.
        hue: Shift as a share of the colour circle: (low, high) in -0.5 to 0.5, or h for (-h, h).
        same_on_batch: Whether numbers and order are drawn once for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.
        order: Which are done, in this order: numbers of (brightness, contrast, saturation, hue). None draws one.

    Example:
        >>> import torch
        >>> images = torch.tensor([[[[0.0, 0.2, 0.4]]]])
        >>> ColorJiggle(brightness=(1.4, 1.4), contrast=(0.5, 0.5), order=(0, 1))(images)
        tensor([[[[0.2000, 0.2980, 0.4000]]]])
    """

    _brightest = 2.0
    _differs = f"{_BY_GREY}; {_ORDER}"

    def _change(self, number: int, low: float, high: float) -> Transform:
        if number == 0:
            return _added(low - 1, high - 1)
        if number == 1:
            return _factor(low, high)
        return T.ColorJitter(saturation=(low, high)) if number == 2 else T.ColorJitter(hue=(low, high))


class ColorJitter(_Colours):
    """Changes brightness, contrast, saturation and hue as torchvision does, in random order; so does kornia's.

    The order is drawn for each image.

    Args:
        brightness: Factor: (low, high), at least 0; or b for (max(0, 1 - b), 1 + b).
        contrast: As brightness.
        saturation: As brightness.
        hue: Shift as a share of the colour circle: (low, high) in -0.5 to 0.5, or h for (-h, h).
        same_on_batch: Whether numbers and order are drawn once for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.
        order: Which are done, in this order: numbers of (brightness, contrast, saturation, hue). None draws one.

    Example:
        >>> ColorJitter(0.4, hue=0.1, p=0.8)
        ColorJitter(brightness=(0.6, 1.4), contrast=(1.0, 1.0), saturation=(1.0, 1.0), hue=(-0.1, 0.1), p=0.8)
    """

    _differs = _ORDER

    def lower(self, place: Place) -> list[Transform]:
        """The transform of this name, or a chain of its parts in a given order."""
        if self.order is not None:
            return super().lower(place)
        return _sometimes(T.ColorJitter(self.brightness, self.contrast, self.saturation, self.hue), self.p)

    def _change(self, number: int, low: float, high: float) -> Transform:
        return T.ColorJitter(**{("brightness", "contrast", "saturation", "hue")[number]: (low, high)})


class RandomGrayscale(Augmentation):
    """Turns images grey with probability ``p``; they keep their number of channels.

    Args:
        rgb_weights: None, or (0.299, 0.587, 0.114), which it stands for.
        same_on_batch: Whether all images of a batch turn grey, or none.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomGrayscale(p=1.0)(torch.tensor([1.0, 0.0, 0.0]).reshape(1, 3, 1, 1)).flatten()
        tensor([0.2980, 0.2980, 0.2980])
    """

    rgb_weights: tuple[float, ...] | None

    def __init__(
        self, rgb_weights: Any = None, same_on_batch: bool = False, p: float = 0.1, keepdim: bool = False
    ) -> None:
        weights = plain(rgb_weights)
        if weights is not None and (
            not check.is_sequence(weights) or [round(one, 4) for one in weights] != list(_LUMA)
        ):
            raise refuse(
                f"RandomGrayscale: rgb_weights is {weights!r}", f"None, for {_LUMA}", "rgb_weights=None"
            )
        super().__init__(p, same_on_batch, keepdim, rgb_weights=None if weights is None else tuple(weights))

    def lower(self, place: Place) -> list[Transform]:
        """The transform of this name."""
        return [T.RandomGrayscale(self.p)]


class RandomGaussianBlur(Augmentation):
    """Blurs with a Gaussian of random width.

    Args:
        kernel_size: (height, width) of the kernel in pixels, odd, or an int for both.
        sigma: Least and greatest standard deviation in pixels, above 0.
        border_type: ``"reflect"``.
        separable: Changes nothing but rounding in kornia, and nothing here.
        same_on_batch: Whether one width is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> RandomGaussianBlur((9, 9), (0.1, 2.0), p=0.5)
        RandomGaussianBlur(kernel_size=(9, 9), sigma=(0.1, 2.0), p=0.5)
    """

    kernel_size: tuple[int, int]
    sigma: tuple[float, float]
    border_type: str

    def __init__(
        self,
        kernel_size: tuple[int, int] | int,
        sigma: Sequence[float],
        border_type: Any = "reflect",
        separable: bool = True,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        kernel = check.size(plain(kernel_size), "kernel_size")
        width = check.positive_pair(plain(sigma), "sigma")
        T.GaussianBlur(kernel, width)
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            kernel_size=kernel,
            sigma=width,
            border_type=name_of(
                border_type,
                ("-constant", "reflect", "-replicate", "-circular"),
                "border_type",
                type(self).__name__,
                "only pixels closer to the border than half a kernel depend on it",
            ),
            separable=bool(separable),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The blur of this name."""
        height, width = self.kernel_size
        return _sometimes(T.GaussianBlur((width, height), self.sigma), self.p)


class RandomInvert(Augmentation):
    """Inverts values with probability ``p``.

    Args:
        max_val: 1.
        same_on_batch: Whether all images of a batch are inverted, or none.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomInvert(p=1.0)(torch.tensor([[[[0.0, 0.2, 1.0]]]]))
        tensor([[[[1.0000, 0.8000, 0.0000]]]])
    """

    max_val: float

    def __init__(
        self, max_val: Any = 1.0, same_on_batch: bool = False, p: float = 0.5, keepdim: bool = False
    ) -> None:
        if plain(max_val) not in (1, [1]):
            raise refuse(
                f"RandomInvert: max_val is {plain(max_val)!r}", "1", "images are from 0 to 1, or of uint8"
            )
        super().__init__(p, same_on_batch, keepdim, max_val=1.0)

    def lower(self, place: Place) -> list[Transform]:
        """The transform of this name."""
        return [T.RandomInvert(self.p)]


class RandomPosterize(Augmentation):
    """Keeps a random number of bits of each value.

    Args:
        bits: (low, high) within 0 to 8, or low for (low, 8): a number is drawn evenly, and rounded.
        same_on_batch: Whether one number is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomPosterize((1, 1), p=1.0)(torch.tensor([[[[0.2, 0.4, 0.6]]]]))
        tensor([[[[0.0000, 0.0000, 0.5020]]]])
    """

    bits: tuple[float, float]

    def __init__(
        self, bits: Range = 3, same_on_batch: bool = False, p: float = 0.5, keepdim: bool = False
    ) -> None:
        given = plain(bits)
        pair = given if check.is_sequence(given) else (check.number(given, "bits"), 8.0)
        super().__init__(p, same_on_batch, keepdim, bits=span(pair, "bits", 0.0, 0.0, 8.0))

    def lower(self, place: Place) -> list[Transform]:
        """One of nine transforms, by bits."""
        low, high = self.bits
        shares = [(round(low), 1.0)] if low == high else share_weights(low, high, -0.5)

        def keep(bits: int) -> Transform:
            if bits == 0:
                return _factor(0.0, 0.0)
            return T.Identity() if bits == 8 else T.RandomPosterize(bits, 1.0)

        return _sometimes(_one_of((keep(bits), weight) for bits, weight in shares), self.p)


class RandomSolarize(Augmentation):
    """Adds a random number, then inverts values from a random threshold on.

    Args:
        thresholds: (low, high) within 0 to 1, or t for (0.5 - t, 0.5 + t).
        additions: (low, high) within -0.5 to 0.5, or a for (-a, a).
        same_on_batch: Whether both are drawn once for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> solarize = RandomSolarize((0.5, 0.5), (0.2, 0.2), p=1.0)
        >>> solarize(torch.tensor([[[[0.0, 0.2, 0.4, 1.0]]]]))
        tensor([[[[0.2000, 0.4000, 0.4000, 0.0000]]]])
    """

    thresholds: tuple[float, float]
    additions: tuple[float, float]

    def __init__(
        self,
        thresholds: Range = 0.1,
        additions: Range = 0.1,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            thresholds=span(thresholds, "thresholds", 0.5, 0.0, 1.0),
            additions=span(additions, "additions", 0.0, -0.5, 0.5),
        )

    def lower(self, place: Place) -> list[Transform]:
        """One of many numbers of levels, and one of many thresholds: the least value that reaches what is drawn."""
        low, high = self.thresholds
        shares = share_weights(255 * low, 255 * high, -1.0)
        inverted = _one_of((T.RandomSolarize(level, 1.0), weight) for level, weight in shares)
        steps = [inverted] if self.additions == (0.0, 0.0) else [_added(*self.additions), inverted]
        return _sometimes(steps[0] if len(steps) == 1 else Compose(steps), self.p)


class RandomEqualize(Augmentation):
    """Equalizes the histogram of each channel with probability ``p``.

    Args:
        same_on_batch: Whether all images of a batch are equalized, or none.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> RandomEqualize()
        RandomEqualize(p=0.5)
    """

    def __init__(self, same_on_batch: bool = False, p: float = 0.5, keepdim: bool = False) -> None:
        super().__init__(p, same_on_batch, keepdim)

    def lower(self, place: Place) -> list[Transform]:
        """The transform of this name."""
        return [T.RandomEqualize(self.p)]


class RandomErasing(Augmentation):
    """Overwrites a random rectangle with probability ``p``.

    Rectangles are drawn as in kornia, of a fine grid of areas and aspect ratios. After `Normalize` the logarithm of the
    aspect ratio is drawn evenly, as in torchvision.

    Args:
        scale: Least and greatest share of the area.
        ratio: Least and greatest aspect ratio (height / width). From below to above 1, half of all are below.
        value: What is written, 0 to 1; after `Normalize` as it is.
        same_on_batch: Whether one rectangle is drawn for all images of a batch.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> erased = RandomErasing((0.25, 0.25), (1.0, 1.0), value=1.0, p=1.0)(torch.zeros(1, 1, 8, 8))
        >>> erased.sum()
        tensor(16.)
    """

    _on_floats = True
    _differs = (
        "aspect ratios and areas are those of a grid; after Normalize ratios are drawn as torchvision does"
    )
    scale: tuple[float, float]
    ratio: tuple[float, float]
    value: float

    def __init__(
        self,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float = 0.0,
        same_on_batch: bool = False,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        if not 0 <= check.number(value, "value") <= 1:
            raise ValueError(f"value is {value}; must be 0 to 1")
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            scale=span(list(plain(scale)), "scale", 0.0, 0.0),
            ratio=check.positive_pair(plain(ratio), "ratio"),
            value=float(value),
        )

    def lower(self, place: Place) -> list[Transform]:
        """One of many rectangles; or the transform of this name, which may follow a cast."""
        if place.floats:
            if self.scale[1] > 1:
                raise refuse(
                    f"RandomErasing: scale is {self.scale} after Normalize",
                    "0 to 1",
                    "put it before Normalize",
                )
            return [T.RandomErasing(self.p, self.scale, self.ratio, self.value)]
        fill = byte_fill(self.value, "value", "RandomErasing")
        return _sometimes(
            _one_of(
                (CoarseDropout((1, 1), (height, height), (width, width), fill), weight)
                for (height, width), weight in sorted(self._sizes(*place.size).items())
            ),
            self.p,
        )

    def _sizes(self, height: int, width: int) -> dict[tuple[int, int], float]:
        """Heights and widths, with how likely each is."""
        low, high = self.ratio
        spans = [(low, 1.0), (1.0, high)] if low < 1 < high else [self.ratio]
        found: dict[tuple[int, int], float] = {}
        for area in _middles(*self.scale, _GRID):
            for part in spans:
                for ratio in _middles(*part, _GRID // len(spans)):
                    pixels = area * height * width
                    rows = min(max(round(math.sqrt(pixels * ratio)), 1), height)
                    columns = min(max(round(math.sqrt(pixels / ratio)), 1), width)
                    found[rows, columns] = found.get((rows, columns), 0.0) + 1.0
        return found


_GRID = 48
"""Areas, and aspect ratios, that rectangles have."""


def _middles(low: float, high: float, count: int) -> list[float]:
    """The middles of so many equal parts of a range."""
    if low == high:
        return [low]
    return [low + (high - low) * (at + 0.5) / count for at in range(count)]


class Normalize(Augmentation):
    """``(x - mean) / std`` for each channel. What changes 8 bits comes before it.

    Args:
        mean: One number, or one per channel.
        std: One number, or one per channel, none of them 0.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> Normalize(0.5, 0.5)(torch.tensor([[[[0.0, 0.4, 1.0]]]]))
        tensor([[[[-1.0000, -0.2000,  1.0000]]]])
    """

    _makes_floats = True
    _draws = False
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __init__(self, mean: Any, std: Any, p: float = 1.0, keepdim: bool = False) -> None:
        where = type(self).__name__
        whole(check.probability(p), where)
        means, stds = channel_values(mean, "mean", where), channel_values(std, "std", where)
        if 0.0 in stds:
            raise ValueError(f"{where}: std is {stds}; it must not be 0")
        super().__init__(p, keepdim=keepdim, mean=means, std=stds)

    def lower(self, place: Place) -> list[Transform]:
        """The transform of this name."""
        return [T.Normalize(self.mean, self.std)] if self.p else []


class Denormalize(Normalize):
    """``x * std + mean`` for each channel. What changes 8 bits comes before it.

    Args:
        mean: One number, or one per channel.
        std: One number, or one per channel, none of them 0.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> Denormalize(0.5, 0.25)(torch.tensor([[[[0.0, 0.4, 1.0]]]]))
        tensor([[[[0.5000, 0.6000, 0.7500]]]])
    """

    def lower(self, place: Place) -> list[Transform]:
        """`wellfed.transforms.Normalize` with the inverse map."""
        count = max(len(self.mean), len(self.std))
        means = self.mean * (count if len(self.mean) == 1 else 1)
        stds = self.std * (count if len(self.std) == 1 else 1)
        shifts = [-mean / std for mean, std in zip(means, stds)]
        return [T.Normalize(shifts, [1 / std for std in stds])] if self.p else []
