"""Which advice to put transforms in another order is given: only what leaves every image as likely as it was.

Invariant: a flip moves whole pixels, so it can stand before or after whatever treats all pixels alike; the random
numbers of both are independent. Nothing is said of any other order: a crop before a change of contrast, or a resize of
bytes in place of floats, gives other images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .forms import is_stock

__all__ = ["commute", "reordered"]

_FLIPS = {"RandomHorizontalFlip", "RandomVerticalFlip", "HorizontalFlip", "VerticalFlip"}
# What becomes of a pixel depends on its value, on all values of the image, and on random numbers, never on where it is.
_ALIKE = {
    "ColorJitter",
    "ConvertImageDtype",
    "Grayscale",
    "Normalize",
    "PILToTensor",
    "RGB",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomEqualize",
    "RandomGrayscale",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomSolarize",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "ToTensorV2",
}
_HOUSES = ("torchvision.", "wellfed.", "albumentations.")
_METHODS = ("forward", "__call__", "transform")


def _kind(leaf: Any) -> type:
    # A leaf of Albumentations holds its transform, and the pipeline that it is of.
    return type(leaf.transform if hasattr(leaf, "owner") else leaf)


def _is(leaf: Any, names: set[str]) -> bool:
    kind = _kind(leaf)
    return kind.__name__ in names and kind.__module__.startswith(_HOUSES) and not _changed(leaf)


def _changed(leaf: Any) -> bool:
    # What wellfed's own transforms are made of is none of torchvision's business.
    leaf = leaf.transform if hasattr(leaf, "owner") else leaf
    return not type(leaf).__module__.startswith("wellfed.") and not is_stock(leaf, *_METHODS)


def commute(flip: Any, other: Any) -> bool:
    """Whether `flip`, behind `other`, may as well stand before it."""
    return _is(flip, _FLIPS) and _is(other, _ALIKE)


def reordered(change: str, leaves: Sequence[Any], place: int) -> str:
    """`change`, unless it is to put the leaf at `place` before those in front of it, and that gives other images."""
    if not change.startswith("put it before"):
        return change
    first = next((i for i, leaf in enumerate(leaves[:place]) if _converts(leaf)), place)
    same = first < place and all(commute(leaves[place], other) for other in leaves[first:place])
    return change if same else ""


def _converts(leaf: Any) -> bool:
    return _kind(leaf).__name__ in (
        "ToTensor",
        "ToImage",
        "PILToTensor",
        "ToDtype",
        "ConvertImageDtype",
        "Normalize",
        "ToTensorV2",
    )
