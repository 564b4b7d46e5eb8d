"""Transforms of torchvision and timm on lazy images, without the detours that lead there.

A lazy image does in a microsecond what is asked of it, but torchvision takes 15 to 80 to ask: modules call each other,
look at types, log, and make tensors of constants. In `Compose` the transforms that every script has are therefore done
at once.

Invariant: the same numbers are drawn from the same generator in the same order, and the image is the one that the
transform gives. A transform that somebody has changed, or listens to, runs as it is.
"""

from __future__ import annotations

import functools
import math
import random
import struct
import sys
from collections.abc import Callable
from typing import Any

from .listening import of_library, unheard

__all__ = ["at_once"]

Step = Callable[[Any, Any], Any]
"""Takes the transform and the image; None where the transform is to be called."""


def at_once(step: Any, image: Any) -> Any:
    """The lazy image after a transform; None where that is to be called."""
    found = _known().get(type(step))
    if found is None:
        if type(step).__module__ != "timm.data.transforms":
            return None
        found = _of_timm().get(type(step))
        if found is None:
            return None
    do, methods, stock = found
    if methods() != stock or not unheard(step):
        return None
    return do(step, image)


def _entry(do: Step, methods: Callable[[], tuple[Any, ...]], library: str) -> Any:
    """What is done in the place of a transform, as long as its methods are those of its library; else None."""
    stock = methods()
    return (do, methods, stock) if of_library(stock, library) else None


@functools.cache
def _known() -> dict[type[Any], Any]:
    """By the transform's class."""
    from torchvision.transforms import _functional_pil as pil
    from torchvision.transforms import functional as f1
    from torchvision.transforms import transforms as v1
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as f2

    size1 = getattr(f1, "_compute_resized_output_size", None)
    size2 = getattr(
        sys.modules["torchvision.transforms.v2.functional._geometry"], "_compute_resized_output_size", None
    )

    def resized_crop2() -> tuple[Any, ...]:
        kind = v2.RandomResizedCrop
        return kind.forward, kind.make_params, kind.transform, kind._call_kernel, f2.resized_crop

    table = {
        v1.RandomResizedCrop: _entry(
            _resized_crop_v1,
            lambda: (
                v1.RandomResizedCrop.forward,
                v1.RandomResizedCrop.get_params,
                f1.resized_crop,
                f1.crop,
                f1.resize,
                pil.crop,
                pil.resize,
            ),
            "torchvision",
        ),
        v1.RandomHorizontalFlip: _entry(
            functools.partial(_flip, 0),
            lambda: (v1.RandomHorizontalFlip.forward, f1.hflip, pil.hflip),
            "torchvision",
        ),
        v1.RandomVerticalFlip: _entry(
            functools.partial(_flip, 1),
            lambda: (v1.RandomVerticalFlip.forward, f1.vflip, pil.vflip),
            "torchvision",
        ),
        v1.Resize: size1
        and _entry(
            functools.partial(_resize, size1),
            lambda: (v1.Resize.forward, f1.resize, f1._compute_resized_output_size, pil.resize),
            "torchvision",
        ),
        v1.CenterCrop: _entry(
            _center_crop,
            lambda: (v1.CenterCrop.forward, f1.center_crop, f1.crop, pil.crop),
            "torchvision",
        ),
        v1.ColorJitter: _entry(
            functools.partial(_color_jitter, _drawn_by_v1, _adjusting(f1)),
            lambda: (v1.ColorJitter.forward, v1.ColorJitter.get_params, *_adjusting(f1), *_adjusting(pil)),
            "torchvision",
        ),
        v2.ColorJitter: _entry(
            functools.partial(_color_jitter, _drawn_by_v2, _adjusting(f2)),
            lambda: (
                v2.ColorJitter.forward,
                v2.ColorJitter.transform,
                v2.ColorJitter.make_params,
                v2.ColorJitter._generate_value,
                v2.ColorJitter._call_kernel,
                *_adjusting(f2),
            ),
            "torchvision",
        ),
        v2.RandomResizedCrop: _entry(_resized_crop_v2, resized_crop2, "torchvision"),
        v2.RandomHorizontalFlip: _entry(
            functools.partial(_flip, 0),
            lambda: (v2.RandomHorizontalFlip.forward, v2.RandomHorizontalFlip.transform, f2.horizontal_flip),
            "torchvision",
        ),
        v2.RandomVerticalFlip: _entry(
            functools.partial(_flip, 1),
            lambda: (v2.RandomVerticalFlip.forward, v2.RandomVerticalFlip.transform, f2.vertical_flip),
            "torchvision",
        ),
        v2.Resize: size2
        and _entry(
            functools.partial(_resize, size2),
            lambda: (v2.Resize.forward, v2.Resize.transform, f2.resize),
            "torchvision",
        ),
        v2.CenterCrop: _entry(
            _center_crop,
            lambda: (v2.CenterCrop.forward, v2.CenterCrop.transform, f2.center_crop),
            "torchvision",
        ),
    }
    return {kind: entry for kind, entry in table.items() if entry}


@functools.cache
def _of_timm() -> dict[type[Any], Any]:
    """The same of timm, which is imported by now."""
    from torchvision.transforms import functional as f1

    crop = sys.modules["timm.data.transforms"].RandomResizedCropAndInterpolation
    entry = _entry(_resized_crop_timm, lambda: (crop.__call__, crop.get_params), "timm")
    # It calls torchvision's functions.
    if entry is None or not of_library((f1.resized_crop,), "torchvision"):
        return {}
    return {crop: entry}


def _numbers(values: Any) -> bool:
    return type(values) in (list, tuple) and len(values) == 2 and all(type(v) in (int, float) for v in values)


def _side_lengths(size: Any) -> bool:
    return type(size) in (list, tuple) and len(size) == 2 and type(size[0]) is int and type(size[1]) is int


@functools.lru_cache(maxsize=64)
def _filter(interpolation: Any) -> int | None:
    """Pillow's number of a filter; None if it is none of torchvision's."""
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.functional import pil_modes_mapping

    if isinstance(interpolation, str) and not isinstance(interpolation, InterpolationMode):
        interpolation = {mode.value: mode for mode in InterpolationMode}.get(interpolation)
    if not isinstance(interpolation, InterpolationMode):
        return None
    number: int | None = pil_modes_mapping.get(interpolation)
    return number


@functools.lru_cache(maxsize=64)
def _logs(ratio: tuple[float, ...]) -> tuple[float, float]:
    """As torchvision takes them, in float32."""
    import torch

    low, high = torch.log(torch.tensor(ratio)).tolist()
    return low, high


def _part(image: Any, scale: Any, ratio: Any, logs: tuple[float, float]) -> tuple[int, int, int, int]:
    """Left, top, width and height of a random part: what `RandomResizedCrop` draws, in its order."""
    import torch

    width, height = image._size
    area = height * width
    for _ in range(10):
        target_area = area * torch.empty(1).uniform_(scale[0], scale[1]).item()
        aspect_ratio = torch.exp(torch.empty(1).uniform_(*logs)).item()
        w = round(math.sqrt(target_area * aspect_ratio))
        h = round(math.sqrt(target_area / aspect_ratio))
        if 0 < w <= width and 0 < h <= height:
            top = torch.randint(0, height - h + 1, size=(1,)).item()
            left = torch.randint(0, width - w + 1, size=(1,)).item()
            return int(left), int(top), w, h
    # The centre, as much as the ratio allows.
    w, h = width, height
    shape = float(width) / float(height)
    if shape < min(ratio):
        h = round(w / min(ratio))
    elif shape > max(ratio):
        w = round(h * max(ratio))
    return (width - w) // 2, (height - h) // 2, w, h


def _resized(image: Any, part: tuple[int, int, int, int], size: Any, filter_: int) -> Any:
    left, top, width, height = part
    return image.crop((left, top, left + width, top + height)).resize((size[1], size[0]), filter_)


def _resized_crop_v1(step: Any, image: Any) -> Any:
    import torch

    filter_ = _filter(step.interpolation)
    ratio = step.ratio
    if (
        filter_ is None
        or not (_numbers(step.scale) and _numbers(ratio) and _side_lengths(step.size))
        or step.antialias is False
        or min(ratio) <= 0
        or torch.get_default_dtype() is not torch.float32
    ):
        return None
    return _resized(image, _part(image, step.scale, ratio, _logs(tuple(ratio))), step.size, filter_)


def _resized_crop_v2(step: Any, image: Any) -> Any:
    import torch

    filter_ = _filter(step.interpolation)
    if (
        filter_ is None
        or not (_numbers(step.scale) and _numbers(step.ratio) and _side_lengths(step.size))
        or step.antialias is False
        or step._log_ratio.shape != (2,)
        or torch.get_default_dtype() is not torch.float32
    ):
        return None
    low, high = step._log_ratio.tolist()
    return _resized(image, _part(image, step.scale, step.ratio, (low, high)), step.size, filter_)


def _resized_crop_timm(step: Any, image: Any) -> Any:
    several = isinstance(step.interpolation, (tuple, list))
    filters = [_filter(one) for one in (step.interpolation if several else [step.interpolation])]
    if not filters or None in filters or not _side_lengths(step.size):
        return None
    top, left, height, width = step.get_params(image, step.scale, step.ratio)
    filter_ = random.choice(filters) if several else filters[0]
    assert filter_ is not None
    return _resized(image, (left, top, width, height), step.size, filter_)


@functools.lru_cache(maxsize=64)
def _single(number: float) -> float:
    """The float32 that torch compares with."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _flip(method: int, step: Any, image: Any) -> Any:
    """Flips with probability `p`: from left to right (0), or from top to bottom (1)."""
    import torch

    if (
        type(step.p) not in (int, float)
        or not 0 <= step.p <= 1
        or torch.get_default_dtype() is not torch.float32
    ):
        return None
    if torch.rand(1).item() < _single(step.p):
        return image.transpose(_transpositions()[method])
    return image


@functools.cache
def _transpositions() -> Any:
    from PIL import Image

    return Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM


def _resize(size_of: Any, step: Any, image: Any) -> Any:
    filter_ = _filter(step.interpolation)
    if filter_ is None or step.antialias is False:
        return None
    size = step.size
    if type(size) is int:
        size = [size]
    if (
        type(size) not in (list, tuple)
        or len(size) not in (1, 2)
        or any(type(side) is not int for side in size)
    ):
        return None
    if len(size) == 2 and step.max_size is not None:
        return None
    width, height = image._size
    rows, columns = size_of((height, width), size, step.max_size)
    return image if (rows, columns) == (height, width) else image.resize((columns, rows), filter_)


def _adjusting(module: Any) -> tuple[Any, ...]:
    """Torchvision's functions that change colours, at the numbers of `Picture.adjust`, which are those of its draws."""
    return module.adjust_brightness, module.adjust_contrast, module.adjust_saturation, module.adjust_hue


def _drawn_by_v1(step: Any) -> tuple[Any, ...]:
    return tuple(step.get_params(step.brightness, step.contrast, step.saturation, step.hue))


def _drawn_by_v2(step: Any) -> tuple[Any, ...]:
    drawn = step.make_params([])
    names = "fn_idx", "brightness_factor", "contrast_factor", "saturation_factor", "hue_factor"
    return tuple(drawn[name] for name in names)


def _color_jitter(draw: Any, functions: tuple[Any, ...], step: Any, image: Any) -> Any:
    from .images import pillow

    order, *factors = draw(step)
    kinds = pillow()
    for what in order.tolist():
        factor = factors[what]
        if factor is None:
            continue
        new = kinds.adjusted(image, what, factor) if type(image) in kinds.kinds and _coloured(image) else None
        image = functions[what](image, factor) if new is None else new
    return image


def _coloured(image: Any) -> bool:
    """Whether it is an image that has hues: of grey ones torchvision gives the same object."""
    return bool(image._mode == "RGB")


def _center_crop(step: Any, image: Any) -> Any:
    if not _side_lengths(step.size):
        return None
    (height, width), (columns, rows) = step.size, image._size
    if height > rows or width > columns:
        return None
    top, left = round((rows - height) / 2.0), round((columns - width) / 2.0)
    return image.crop((left, top, left + width, top + height))
