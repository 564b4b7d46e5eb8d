"""Augmentations that move pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _arguments as check
from .. import transforms as T
from .._opencv import FloorCenterCrop
from .._transform import Transform
from ._arguments import byte_fill, name_of, plain, refuse, sides, span, whole
from ._module import Augmentation, Place

__all__ = [
    "CenterCrop",
    "RandomAffine",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomVerticalFlip",
    "Resize",
]

_SIDES = ("short", "long", "vert", "horz")
_RESAMPLES = ("nearest", "bilinear", "bicubic")
_CENTRES = "pixels are resampled around their centres, whatever align_corners says"
_ANTIALIASED = f"shrinking is antialiased, as Pillow's; {_CENTRES}"


def _resample(value: Any, where: str) -> str:
    return name_of(value, _RESAMPLES, "resample", where, "")


def _slices(cropping_mode: str, where: str) -> str:
    if cropping_mode != "slice":
        raise refuse(
            f"{where}: cropping_mode is {cropping_mode!r}",
            "'slice'",
            "kornia's 'resample' is for gradients, which images of 8 bits have none of",
        )
    return cropping_mode


def _sometimes(transform: Transform, p: float) -> list[Transform]:
    """A transform for each image or not."""
    if p == 0.0:
        return []
    return [transform if p == 1.0 else T.RandomApply([transform], p)]


class _Flip(Augmentation):
    _on_floats = True
    p_batch: float

    def __init__(
        self, p: float = 0.5, p_batch: float = 1.0, same_on_batch: bool = False, keepdim: bool = False
    ) -> None:
        if p_batch != 1:
            raise refuse(
                f"{type(self).__name__}: p_batch is {p_batch}",
                "p_batch=1, and p for each image",
                "call one of two chains, as torch.rand(()) < p_batch decides",
            )
        super().__init__(p, same_on_batch, keepdim, p_batch=p_batch)


class RandomHorizontalFlip(_Flip):
    """Mirrors left and right with probability ``p``.

    Args:
        p: 0 to 1, for each image.
        p_batch: 1.
        same_on_batch: Whether all images of a batch are mirrored, or none.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomHorizontalFlip(p=1.0)(torch.tensor([[[[0.0, 0.2, 1.0]]]]))
        tensor([[[[1.0000, 0.2000, 0.0000]]]])
    """

    def lower(self, place: Place) -> list[Transform]:
        """The flip of this name."""
        return [T.RandomHorizontalFlip(self.p)]


class RandomVerticalFlip(_Flip):
    """Mirrors top and bottom with probability ``p``.

    Args:
        p: 0 to 1, for each image.
        p_batch: 1.
        same_on_batch: Whether all images of a batch are mirrored, or none.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> RandomVerticalFlip(p=1.0, keepdim=True)(torch.tensor([[[0.0], [1.0]]])).flatten()
        tensor([1., 0.])
    """

    def lower(self, place: Place) -> list[Transform]:
        """The flip of this name."""
        return [T.RandomVerticalFlip(self.p)]


class CenterCrop(Augmentation):
    """Keeps the centre; where a side does not halve, the half is rounded down. Images must not be smaller.

    Args:
        size: (height, width), or an int for both.
        align_corners: Changes nothing, as in kornia.
        resample: Changes nothing, as in kornia.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.
        cropping_mode: ``"slice"``.

    Example:
        >>> import torch
        >>> CenterCrop(4)(torch.zeros(2, 3, 8, 7)).shape
        torch.Size([2, 3, 4, 4])
    """

    _draws = False
    size: tuple[int, int]

    def __init__(
        self,
        size: int | tuple[int, int],
        align_corners: bool = True,
        resample: Any = "BILINEAR",
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        where = type(self).__name__
        both = (size, size) if isinstance(size, int) else size
        whole(check.probability(p), where)
        super().__init__(
            p,
            keepdim=keepdim,
            size=sides(both, "size", where),
            align_corners=bool(align_corners),
            resample=_resample(resample, where).upper(),
            cropping_mode=_slices(cropping_mode, where),
        )

    def lower(self, place: Place) -> list[Transform]:
        """A crop."""
        return [FloorCenterCrop(self.size)] if self.p else []


class Resize(Augmentation):
    """Resizes images, with Pillow's antialiased pixels.

    Of an int the other side follows from the aspect ratio, cut to whole pixels.

    Args:
        size: (height, width), or an int for the side that `side` names.
        side: ``"short"``, ``"long"``, ``"vert"`` (the height) or ``"horz"`` (the width).
        resample: nearest, bilinear or bicubic.
        align_corners: Changes nothing: pixels are resampled around their centres.
        antialias: Changes nothing: shrinking is always antialiased.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> Resize(16)(torch.zeros(2, 3, 32, 64)).shape
        torch.Size([2, 3, 16, 32])
    """

    _draws = False
    _differs = _ANTIALIASED
    size: int | tuple[int, int]
    side: str
    resample: str

    def __init__(
        self,
        size: int | tuple[int, int],
        side: str = "short",
        resample: Any = "BILINEAR",
        align_corners: bool = True,
        antialias: bool = False,
        p: float = 1.0,
        keepdim: bool = False,
    ) -> None:
        where = type(self).__name__
        whole(check.probability(p), where)
        super().__init__(
            p,
            keepdim=keepdim,
            size=check.whole(size, "size", 1) if isinstance(size, int) else sides(size, "size", where),
            side=name_of(side, _SIDES, "side", where, ""),
            resample=_resample(resample, where).upper(),
            align_corners=bool(align_corners),
            antialias=bool(antialias),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The resize of this name."""
        if not self.p:
            return []
        size = self._size(self.size, *place.size) if isinstance(self.size, int) else self.size
        return [T.Resize(size, _filter(self.resample))]

    def _size(self, side: int, height: int, width: int) -> tuple[int, int]:
        """Height and width of the result where one side is given, with kornia's rounding."""
        aspect = width / height
        upright = {"vert": True, "horz": False}.get(self.side, (self.side == "short") != (aspect < 1))
        made = (side, int(side * aspect)) if upright else (int(side / aspect), side)
        if 0 in made:
            raise ValueError(f"{self!r} makes images of {height} x {width} into {made[0]} x {made[1]}")
        return made


def _filter(resample: str) -> str:
    """The name of a resize; kornia's nearest neighbour is that of pixel centres."""
    return "nearest-exact" if resample == "NEAREST" else resample.lower()


class RandomResizedCrop(Augmentation):
    """Crops a part of random area and aspect ratio, and resizes it, with Pillow's antialiased pixels.

    Parts are drawn as kornia draws them; where none of ten fits, the middle is taken, and kornia takes a part of this
    size at a random place.

    Args:
        size: (height, width) of the result.
        scale: Least and greatest share of the area that is kept.
        ratio: Least and greatest aspect ratio (width / height) of the part; its logarithm is drawn uniformly.
        resample: nearest, bilinear or bicubic.
        same_on_batch: Whether one part is drawn for all images of a batch.
        align_corners: Changes nothing: pixels are resampled around their centres.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.
        cropping_mode: ``"slice"``.

    Example:
        >>> import torch
        >>> RandomResizedCrop((24, 16), scale=(0.3, 1.0))(torch.rand(2, 3, 40, 40)).shape
        torch.Size([2, 3, 24, 16])
    """

    _differs = _ANTIALIASED
    size: tuple[int, int]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    resample: str

    def __init__(
        self,
        size: tuple[int, int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        resample: Any = "BILINEAR",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        where = type(self).__name__
        whole(check.probability(p), where)
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            size=sides(size, "size", where),
            scale=check.positive_pair(plain(scale), "scale"),
            ratio=check.positive_pair(plain(ratio), "ratio"),
            resample=_resample(resample, where).upper(),
            align_corners=bool(align_corners),
            cropping_mode=_slices(cropping_mode, where),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The crop of this name."""
        return (
            [T.RandomResizedCrop(self.size, self.scale, self.ratio, _filter(self.resample))] if self.p else []
        )


class RandomCrop(Augmentation):
    """Keeps a window at a random place. Images that are too small are an error, where kornia makes them larger.

    Args:
        size: (height, width).
        padding: Border added before cropping: one int, (left and right, top and bottom), or (left, top, right, bottom).
        pad_if_needed: Pad images that are smaller than ``size``; without `padding`.
        fill: Value of the border from 0 to 1, or one per channel.
        padding_mode: constant, reflect or replicate.
        resample: Changes nothing, as in kornia.
        same_on_batch: Whether one place is drawn for all images of a batch.
        align_corners: Changes nothing, as in kornia.
        p: 1, or 0 for never.
        keepdim: Whether an image without a batch is returned without one.
        cropping_mode: ``"slice"``.

    Example:
        >>> import torch
        >>> RandomCrop((32, 32), padding=4, padding_mode="reflect")(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 3, 32, 32])
    """

    size: tuple[int, int]
    padding: int | tuple[int, ...] | None
    pad_if_needed: bool
    fill: float | Sequence[float]
    padding_mode: str

    def __init__(
        self,
        size: tuple[int, int],
        padding: int | tuple[int, ...] | None = None,
        pad_if_needed: bool | None = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
        resample: Any = "BILINEAR",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 1.0,
        keepdim: bool = False,
        cropping_mode: str = "slice",
    ) -> None:
        where = type(self).__name__
        whole(check.probability(p), where)
        byte_fill(fill, "fill", where)
        if padding is not None:
            check.padding(padding)
        if pad_if_needed and padding is not None:
            raise refuse(
                f"{where}: pad_if_needed is True and padding is {padding!r}",
                "one of the two",
                "padding= that is large enough, since images of a batch are of one size",
            )
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            size=sides(size, "size", where),
            padding=padding,
            pad_if_needed=bool(pad_if_needed),
            fill=plain(fill),
            padding_mode=name_of(
                padding_mode,
                ("constant", "reflect", "replicate", "-circular"),
                "padding_mode",
                where,
                "reflect has no visible border either",
            ),
            resample=_resample(resample, where).upper(),
            align_corners=bool(align_corners),
            cropping_mode=_slices(cropping_mode, where),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The crop of this name."""
        mode = "edge" if self.padding_mode == "replicate" else self.padding_mode
        fill = byte_fill(self.fill, "fill", type(self).__name__)
        return [T.RandomCrop(self.size, self.padding, self.pad_if_needed, fill, mode)] if self.p else []


class RandomRotation(Augmentation):
    """Rotates by a random angle around the middle, counter-clockwise; what comes in from outside is black.

    Args:
        degrees: (low, high), or d for (-d, d); within -360 to 360.
        resample: nearest, bilinear or bicubic.
        same_on_batch: Whether one angle is drawn for all images of a batch.
        align_corners: Changes nothing: pixels are resampled around their centres.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> images = torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]])
        >>> RandomRotation((90, 90), resample="nearest", p=1.0)(images)
        tensor([[[[0.2000, 1.0000],
                  [0.0000, 0.4000]]]])
    """

    _differs = f"the border does not fade to black; {_CENTRES}"
    degrees: tuple[float, float]
    resample: str

    def __init__(
        self,
        degrees: float | Sequence[float],
        resample: Any = "BILINEAR",
        same_on_batch: bool = False,
        align_corners: bool = True,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            degrees=span(degrees, "degrees", 0.0, -360.0, 360.0),
            resample=_resample(resample, type(self).__name__).upper(),
            align_corners=bool(align_corners),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The rotation of this name."""
        return _sometimes(T.RandomRotation(self.degrees, self.resample.lower()), self.p)


class RandomAffine(Augmentation):
    """Turns (clockwise), moves, scales and shears by random amounts around the middle; the image keeps its size.

    Args:
        degrees: Angle: (low, high), or d for (-d, d); within -360 to 360.
        translate: Greatest share of the width and of the height to move by, 0 to 1; by whole pixels.
        scale: Least and greatest scale, above 0; one for both sides.
        shear: Angles in degrees: d for (-d, d) along x, (low, high) along x, or (low, high, low, high) along x and y.
        resample: nearest, bilinear or bicubic.
        same_on_batch: Whether all images of a batch are moved alike.
        align_corners: Changes nothing: pixels are resampled around their centres.
        padding_mode: ``"zeros"``, or ``"fill"`` with `fill_value`.
        fill_value: Value of what comes in from outside, 0 to 1, or one per channel.
        p: 0 to 1, for each image.
        keepdim: Whether an image without a batch is returned without one.

    Example:
        >>> import torch
        >>> images = torch.tensor([[[[0.0, 0.2], [0.4, 1.0]]]])
        >>> RandomAffine((90, 90), resample="nearest", p=1.0)(images)
        tensor([[[[0.4000, 0.0000],
                  [1.0000, 0.2000]]]])
    """

    _differs = f"images move by whole pixels; the border does not fade to black; {_CENTRES}"
    degrees: tuple[float, float]
    translate: tuple[float, float] | None
    scale: tuple[float, float] | None
    shear: tuple[float, ...] | None
    resample: str
    padding_mode: str
    fill_value: float | Sequence[float] | None

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        resample: Any = "BILINEAR",
        same_on_batch: bool = False,
        align_corners: bool = False,
        padding_mode: Any = "ZEROS",
        fill_value: Any = None,
        p: float = 0.5,
        keepdim: bool = False,
    ) -> None:
        where = type(self).__name__
        given = plain(scale)
        if check.is_sequence(given) and len(given) == 4:
            raise refuse(
                f"{where}: scale is {given!r}, another one along y than along x",
                "(low, high), one for both sides",
                "scale=(low, high), and RandomResizedCrop with ratio= for the aspect ratio",
            )
        mode = name_of(
            padding_mode,
            ("zeros", "-border", "-reflection", "fill"),
            "padding_mode",
            where,
            "padding_mode='fill' with fill_value= the mean of the images",
        )
        if fill_value is not None:
            byte_fill(fill_value, "fill_value", where)
        turned = plain(shear)
        if check.is_sequence(turned) and len(turned) == 2 and check.is_sequence(turned[0]):
            turned = [*turned[0], *turned[1]]
        super().__init__(
            p,
            same_on_batch,
            keepdim,
            degrees=span(degrees, "degrees", 0.0, -360.0, 360.0),
            translate=check.shares(plain(translate), "translate"),
            scale=None if given is None else check.positive_pair(given, "scale"),
            shear=check.shear(turned),
            resample=_resample(resample, where).upper(),
            align_corners=bool(align_corners),
            padding_mode=mode.upper(),
            fill_value=plain(fill_value),
        )

    def lower(self, place: Place) -> list[Transform]:
        """The map of this name."""
        filled = self.padding_mode == "FILL" and self.fill_value is not None
        fill = byte_fill(self.fill_value, "fill_value", type(self).__name__) if filled else 0.0
        return _sometimes(
            T.RandomAffine(self.degrees, self.translate, self.scale, self.shear, self.resample.lower(), fill),
            self.p,
        )
