"""What Albumentations' `Compose` becomes, and the wrapper that lets torchvision data sets call one.

Invariant: only what Albumentations does without OpenCV's own rounding is lowered: flips, random crops, constant
borders, conversions and normalization. Resizing with OpenCV gives other pixels than Pillow's, so it stays in Python.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wellfed import transforms as T

from .forms import Form, RefusalError, is_stock

__all__ = ["Albumentations", "Leaf", "hidden_in", "leaves", "lower_leaf", "remainder"]

_METHODS = ("__call__", "apply", "get_params", "get_params_dependent_on_data", "should_apply")


class Albumentations:
    """An Albumentations pipeline as the ``transform`` of a torchvision data set.

    Takes the Pillow image that the data set has, calls the pipeline on the array of it, and gives its ``image``.
    `wellfed.torch.DataLoader` runs natively what can be.

    Args:
        compose: An ``albumentations.Compose``.

    Example:
        >>> import albumentations as A
        >>> from albumentations.pytorch import ToTensorV2
        >>> from PIL import Image
        >>> from wellfed.torch import Albumentations
        >>> transform = Albumentations(A.Compose([A.HorizontalFlip(), A.Normalize(), ToTensorV2()]))
        >>> tuple(transform(Image.new("RGB", (8, 6))).shape)
        (3, 6, 8)
    """

    def __init__(self, compose: Callable[..., dict[str, Any]]) -> None:
        self.compose = compose

    def __call__(self, image: Any) -> Any:
        """The pipeline's result for `image`."""
        return self.compose(image=np.asarray(image))["image"]

    def __repr__(self) -> str:
        return f"Albumentations({self.compose!r})"


@dataclass(frozen=True, eq=False)
class Leaf:
    """One transform of a pipeline, and the wrapper it is called by."""

    transform: Any
    owner: Albumentations

    def __repr__(self) -> str:
        return repr(self.transform)


def leaves(transform: Any) -> list[Any] | None:
    """The transforms of a wrapped pipeline; None if `transform` is none that can be taken apart."""
    albumentations = sys.modules.get("albumentations")
    if type(transform) is not Albumentations or albumentations is None or "__call__" in vars(transform):
        return None
    compose: Any = transform.compose
    if type(compose) is not albumentations.Compose or not is_stock(compose, "__call__"):
        return None
    plain = (
        compose.p == 1
        and not compose.processors
        and not compose.replay_mode
        and not compose.save_applied_params
    )
    if not plain or not compose.transforms:
        return None
    return [Leaf(inner, transform) for inner in compose.transforms]


def remainder(rest: list[Leaf]) -> Albumentations:
    """The pipeline that is left after the first transforms are done."""
    compose: Any = copy.copy(rest[0].owner.compose)
    compose.transforms = [leaf.transform for leaf in rest]
    return Albumentations(compose)


def hidden_in(function: Any) -> bool:
    """Whether a function or an object obviously holds a pipeline."""
    albumentations = sys.modules.get("albumentations")
    if albumentations is None:
        return False
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _filled(cell)]
    held += list(getattr(function, "__dict__", {}).values())
    code = getattr(function, "__code__", None)
    if code is not None:
        held += [function.__globals__.get(name) for name in code.co_names]
    return any(isinstance(value, albumentations.BaseCompose) for value in held)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a variable that has no value yet
        return False


def lower_leaf(leaf: Leaf, form: Form) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for one transform of a pipeline."""
    import albumentations as A
    from albumentations.pytorch import ToTensorV2

    t = leaf.transform
    kind = type(t)
    if not is_stock(t, *_METHODS):
        raise RefusalError("its methods were replaced")
    if form.mode != "RGB" or form.kind not in ("pil", "array"):
        raise RefusalError(f"stands on {form}" if form.mode == "RGB" else "images are grey")
    after = form.turned("array")
    if kind is A.NoOp:
        return [], after, "does nothing"
    if kind is ToTensorV2 and t.p == 1:
        return [T.ToImage()], form.turned("tensor"), ""
    if form.dtype != "uint8":
        raise RefusalError(f"stands on {form}; the engine does it to 8-bit images", "put it before Normalize")
    if kind is A.HorizontalFlip:
        return [T.RandomHorizontalFlip(t.p)], after, ""
    if kind is A.VerticalFlip:
        return [T.RandomVerticalFlip(t.p)], after, ""
    if t.p != 1:
        raise RefusalError(f"p is {t.p}; the engine always does it", "p=1")
    if kind is A.RandomCrop:
        if t.pad_if_needed:
            raise RefusalError("pads in its own way", "pad_if_needed=False")
        return [T.RandomCrop((t.height, t.width))], replace(after, sized=True), ""
    if kind is A.Pad:
        if t.border_mode != 0:
            raise RefusalError("border_mode is not cv2.BORDER_CONSTANT", "border_mode=cv2.BORDER_CONSTANT")
        padding = [t.padding] if isinstance(t.padding, int) else list(t.padding)
        return [T.Pad(padding, t.fill)], after, ""
    if kind is A.Normalize:
        if t.normalization != "standard" or t.max_pixel_value != 255:
            raise RefusalError("the engine knows normalization='standard' with max_pixel_value=255")
        steps = [T.ToDtype("float32", scale=True), T.Normalize(t.mean, t.std)]
        return steps, after.turned("array", "float32"), "rounds at most in the last bits differently"
    if kind is A.ToFloat and t.max_value in (None, 255):
        return [T.ToTensor()], after.turned("array", "float32"), ""
    if "Resize" in kind.__name__ or kind.__name__ in ("LongestMaxSize", "SmallestMaxSize"):
        # No advice: a transform of torchvision raises inside of a pipeline of Albumentations.
        raise RefusalError("OpenCV's resizing gives other pixels than Pillow's")
    if kind is A.CenterCrop:
        raise RefusalError("rounds the place of the crop differently")
    raise RefusalError("the engine has no transform that is equal to it")
