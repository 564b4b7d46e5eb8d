"""What timm's own transforms become, those of its `create_transform`; what it takes of torchvision is lowered as such.

Invariant: of timm's random transforms only those whose draws have torchvision's distribution are lowered: they differ
from torchvision's in the generator alone, which is Python's `random`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

from wellfed import transforms as T

from .forms import Form, RefusalError

__all__ = ["handler_of"]

Step = tuple[list[T.Transform], Form, str]


def handler_of(transform: Any) -> Any:
    """What lowers a transform of exactly one of timm's types; None if it is of no such type."""
    transforms = sys.modules.get("timm.data.transforms")
    erasing = sys.modules.get("timm.data.random_erasing")
    if transforms is None or erasing is None:
        return None
    known = {
        transforms.RandomResizedCropAndInterpolation: _random_resized_crop,
        transforms.MaybeToTensor: _to_tensor,
        transforms.MaybePILToTensor: _pil_to_tensor,
        erasing.RandomErasing: _random_erasing,
    }
    return known.get(type(transform))


def _random_resized_crop(t: Any, form: Form) -> Step:
    if form.kind != "pil":
        raise RefusalError(f"stands on {form}", "put it before ToTensor")
    if isinstance(t.interpolation, tuple | list):
        raise RefusalError("its interpolation is drawn for each sample")
    lowered = T.RandomResizedCrop(t.size, t.scale, t.ratio, t.interpolation, True)
    return [lowered], replace(form, sized=True), ""


def _to_tensor(t: Any, form: Form) -> Step:
    if form.kind in ("tensor", "image"):
        return [], form, "does nothing"
    if form.dtype != "uint8":
        raise RefusalError(f"stands on {form}")
    return [T.ToTensor()], form.turned("tensor", "float32"), ""


def _pil_to_tensor(t: Any, form: Form) -> Step:
    if form.kind in ("tensor", "image"):
        return [], form, "does nothing"
    if form.kind != "pil":
        raise RefusalError(f"stands on {form}, which it refuses")
    return [T.PILToTensor()], form.turned("tensor"), ""


def _random_erasing(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image") or form.dtype != "float32":
        raise RefusalError(f"stands on {form}", "put it after ToTensor")
    if (t.min_count, t.max_count) != (1, 1):
        raise RefusalError(f"it erases {t.min_count} to {t.max_count} places; the engine erases one")
    if t.rand_color:
        raise RefusalError(
            "it draws one colour for a place; the engine draws every value, or takes a constant"
        )
    if t.device != "cpu":
        raise RefusalError(f"its device is {t.device!r}")
    low, high = t.log_aspect_ratio
    value: Any = "random" if t.per_pixel else 0
    erase = T.RandomErasing(t.probability, (t.min_area, t.max_area), (math.exp(low), math.exp(high)), value)
    return [erase], form, ""
