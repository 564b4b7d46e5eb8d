"""What timm's own transforms become, those of its `create_transform`; what it takes of torchvision is lowered as such.

Invariant: what timm's random transforms draw has the same distribution, and for equal draws values are timm's; the
generator is another one than Python's `random` and NumPy's.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

from wellfed import _arguments as check
from wellfed import _timm as M
from wellfed import transforms as T
from wellfed._timm import TimmAugment

from .forms import Form, RefusalError, is_stock

__all__ = ["METHODS", "handler_of"]

Step = tuple[list[T.Transform], Form, str]

METHODS = ("_erase", "_calc_blended_weights", "_apply_blended", "_apply_basic")
"""What timm's transforms call of themselves beside their ``__call__``."""


def handler_of(transform: Any) -> Any:
    """What lowers a transform of exactly one of timm's types; None if it is of no such type."""
    transforms = sys.modules.get("timm.data.transforms")
    erasing = sys.modules.get("timm.data.random_erasing")
    automatic = sys.modules.get("timm.data.auto_augment")
    sequences = sys.modules.get("timm.data.naflex_transforms")
    if transforms is None or erasing is None or automatic is None:
        return None
    known: dict[Any, Any] = {
        erasing.RandomErasing: _random_erasing,
        automatic.RandAugment: _rand_augment,
        automatic.AutoAugment: _auto_augment,
        automatic.AugMixAugment: _aug_mix,
    }
    # Versions differ in which of these there are.
    for module, handlers in ((transforms, _OF_TRANSFORMS), (sequences, _OF_SEQUENCES)):
        for name, handler in handlers.items():
            kind = getattr(module, name, None)
            # What others made available under that name is none of timm's own.
            if isinstance(kind, type) and kind.__module__ == getattr(module, "__name__", None):
                known[kind] = handler
    return known.get(type(transform))


def _random_resized_crop(t: Any, form: Form) -> Step:
    if form.kind != "pil":
        raise RefusalError(f"stands on {form}", "put it before ToTensor")
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


def _to_numpy(t: Any, form: Form) -> Step:
    _on_pillow(form)
    return [T.PILToTensor()], form.turned("chw array"), ""


def _to_plain_tensor(t: Any, form: Form) -> Step:
    _on_pillow(form)
    to = T.ToDtype(t.dtype)
    return [T.PILToTensor(), *([] if to.dtype == "uint8" else [to])], form.turned("tensor", to.dtype), ""


def _resize_keep_ratio(t: Any, form: Form) -> Step:
    _on_pillow(form)
    size, jitter = _pair(t.size, "size"), _jitter(t)
    lowered = M.ResizeKeepRatio(size, longest=t.longest, interpolation=_filters(t), **jitter)
    return [lowered], replace(form, sized=form.sized and not _opens(lowered)), ""


def _center_crop_or_pad(t: Any, form: Form) -> Step:
    _on_pillow(form)
    lowered = M.CenterCropOrPad(_pair(t.size, "size"), **_padding(t))
    return [lowered], replace(form, sized=True), ""


def _random_crop_or_pad(t: Any, form: Form) -> Step:
    _on_pillow(form)
    lowered = M.RandomCropOrPad(_pair(t.size, "size"), **_padding(t))
    return [lowered], replace(form, sized=True), ""


def _trim_border(t: Any, form: Form) -> Step:
    _on_pillow(form)
    return [M.TrimBorder(_whole(t.border_size, "border_size"))], form, ""


def _resize_to_sequence(t: Any, form: Form) -> Step:
    _on_pillow(form)
    patches = _patches(t, t.patch_size, t.max_seq_len)
    return [M.ResizeToSequence(**patches, max_ratio=t.max_ratio, interpolation=_filters(t))], form, ""


def _resize_keep_ratio_to_sequence(t: Any, form: Form) -> Step:
    _on_pillow(form)
    patches = _patches(t, t.patch_size, t.max_sequence_len)
    lowered = M.ResizeKeepRatioToSequence(
        **patches, max_ratio=t.max_ratio, longest=t.longest, interpolation=_filters(t), **_jitter(t)
    )
    return [lowered], replace(form, sized=form.sized and not _opens(lowered)), ""


def _random_resized_crop_to_sequence(t: Any, form: Form) -> Step:
    _on_pillow(form)
    if t.max_ratio is not None:
        raise RefusalError("its max_ratio is one that timm does not look at", "max_ratio=None")
    lowered = M.RandomResizedCropToSequence(
        **_patches(t, (t.patch_h, t.patch_w), t.max_seq_len),
        scale=t.scale,
        ratio=t.ratio,
        interpolation=_filters(t),
        final_scale_range=t.final_scale_range,
        attempts=t.attempts,
    )
    return [lowered], replace(form, sized=False), ""


def _center_crop_to_sequence(t: Any, form: Form) -> Step:
    _on_pillow(form)
    patches = _patches(t, t.patch_size, t.max_seq_len)
    return [M.CenterCropToSequence(**patches, **_padding(t))], form, ""


def _random_crop_to_sequence(t: Any, form: Form) -> Step:
    _on_pillow(form)
    patches = _patches(t, t.patch_size, t.max_sequence_len)
    return [M.RandomCropToSequence(**patches, **_padding(t))], form, ""


def _patchify(t: Any, form: Form) -> Step:
    raise RefusalError("makes a dictionary of patches, which torch does without looking at a pixel")


_OF_TRANSFORMS: dict[str, Any] = {
    "RandomResizedCropAndInterpolation": _random_resized_crop,
    "MaybeToTensor": _to_tensor,
    "MaybePILToTensor": _pil_to_tensor,
    "ToNumpy": _to_numpy,
    "ToTensor": _to_plain_tensor,
    "ResizeKeepRatio": _resize_keep_ratio,
    "CenterCropOrPad": _center_crop_or_pad,
    "RandomCropOrPad": _random_crop_or_pad,
    "TrimBorder": _trim_border,
}
_OF_SEQUENCES: dict[str, Any] = {
    "ResizeToSequence": _resize_to_sequence,
    "ResizeKeepRatioToSequence": _resize_keep_ratio_to_sequence,
    "RandomResizedCropToSequence": _random_resized_crop_to_sequence,
    "CenterCropToSequence": _center_crop_to_sequence,
    "RandomCropToSequence": _random_crop_to_sequence,
    "Patchify": _patchify,
}
"""By name, in the modules of timm that have them."""


def _opens(lowered: M.ResizeKeepRatio | M.ResizeKeepRatioToSequence) -> bool:
    """Whether images of one size differ in size behind it."""
    return lowered.random_scale_prob > 0 or lowered.random_aspect_prob > 0


def _whole(value: Any, name: str) -> int:
    if type(value) is not int:
        raise RefusalError(f"its {name} is {value!r}", f"a whole number as {name}")
    return value


def _pair(value: Any, name: str) -> tuple[int, int]:
    """Height and width, of which timm calculates with fractions as well."""
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2:
        raise RefusalError(f"its {name} is {value!r}", f"(height, width) as {name}")
    return _whole(pair[0], name), _whole(pair[1], name)


def _filters(t: Any) -> Any:
    """Its filter, or two of which one is drawn. Pillow knows one kind of nearest."""
    given = t.interpolation if isinstance(t.interpolation, tuple | list) else [t.interpolation]
    modes = [getattr(mode, "value", mode) for mode in given]
    return check.filters(["nearest" if mode == "nearest-exact" else mode for mode in modes])


def _jitter(t: Any) -> dict[str, Any]:
    """What is drawn of scale and aspect ratio."""
    # There was a version that drew factors of the aspect ratio, and not their logarithm.
    if t.random_aspect_prob > 0 and "log" not in t.get_params.__code__.co_names:
        raise RefusalError("its aspect ratio is drawn in another way", "another version of timm")
    return {
        "random_scale_prob": t.random_scale_prob,
        "random_scale_range": t.random_scale_range,
        "random_scale_area": getattr(t, "random_scale_area", False),
        "random_aspect_prob": t.random_aspect_prob,
        "random_aspect_range": t.random_aspect_range,
    }


def _padding(t: Any) -> dict[str, Any]:
    """How and with what it pads."""
    fill = 0 if t.fill is None else t.fill
    values = fill if isinstance(fill, tuple | list) else [fill]
    if not all(isinstance(v, int | float) and 0 <= v <= 255 for v in values):
        raise RefusalError(f"its fill is {t.fill!r}", "numbers from 0 to 255")
    return {"fill": fill, "padding_mode": getattr(t, "padding_mode", "constant")}


def _patches(t: Any, patch_size: Any, most: Any) -> dict[str, Any]:
    """What it aims at."""
    return {
        "patch_size": _pair(patch_size, "patch_size"),
        "max_seq_len": _whole(most, "sequence"),
        "divisible_by_patch": t.divisible_by_patch,
    }


def _random_erasing(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image") or form.dtype != "float32":
        raise RefusalError(f"stands on {form}", "put it after ToTensor")
    if t.device != "cpu":
        raise RefusalError(f"its device is {t.device!r}")
    low, high = t.log_aspect_ratio
    value: Any = "random" if t.per_pixel else "random-color" if t.rand_color else 0
    ratio = math.exp(low), math.exp(high)
    count = t.min_count, t.max_count
    erase = T.RandomErasing(t.probability, (t.min_area, t.max_area), ratio, value, count=count)
    return [erase], form, ""


def _rand_augment(t: Any, form: Form) -> Step:
    _on_pillow(form)
    weights = None if t.choice_weights is None else [float(weight) for weight in t.choice_weights]
    policies, settings = _operations([[op] for op in t.ops], form)
    return [TimmAugment(policies, t.num_layers, weights, **settings)], form, ""


def _auto_augment(t: Any, form: Form) -> Step:
    _on_pillow(form)
    policies, settings = _operations(t.policy, form)
    return [TimmAugment(policies, **settings)], form, ""


def _aug_mix(t: Any, form: Form) -> Step:
    _on_pillow(form)
    policies, settings = _operations([[op] for op in t.ops], form)
    mix = {"alpha": float(t.alpha), "width": int(t.width), "blended": bool(t.blended)}
    return [TimmAugment(policies, t.depth if t.depth > 0 else -1, mix=mix, **settings)], form, ""


def _on_pillow(form: Form) -> None:
    if form.kind != "pil":
        raise RefusalError(f"stands on {form}", "put it before ToTensor")


_LEVELS = {
    "AutoContrast": ("auto_contrast", ""),
    "Equalize": ("equalize", ""),
    "Invert": ("invert", ""),
    "Rotate": ("rotate", "_rotate_level_to_arg"),
    "Posterize": ("posterize", "_posterize_level_to_arg"),
    "PosterizeIncreasing": ("posterize", "_posterize_increasing_level_to_arg"),
    "PosterizeOriginal": ("posterize", "_posterize_original_level_to_arg"),
    "Solarize": ("solarize", "_solarize_level_to_arg"),
    "SolarizeIncreasing": ("solarize", "_solarize_increasing_level_to_arg"),
    "SolarizeAdd": ("solarize_add", "_solarize_add_level_to_arg"),
    "Color": ("color", "_enhance_level_to_arg"),
    "ColorIncreasing": ("color", "_enhance_increasing_level_to_arg"),
    "Contrast": ("contrast", "_enhance_level_to_arg"),
    "ContrastIncreasing": ("contrast", "_enhance_increasing_level_to_arg"),
    "Brightness": ("brightness", "_enhance_level_to_arg"),
    "BrightnessIncreasing": ("brightness", "_enhance_increasing_level_to_arg"),
    "Sharpness": ("sharpness", "_enhance_level_to_arg"),
    "SharpnessIncreasing": ("sharpness", "_enhance_increasing_level_to_arg"),
    "ShearX": ("shear_x", "_shear_level_to_arg"),
    "ShearY": ("shear_y", "_shear_level_to_arg"),
    "TranslateX": ("translate_x_abs", "_translate_abs_level_to_arg"),
    "TranslateY": ("translate_y_abs", "_translate_abs_level_to_arg"),
    "TranslateXRel": ("translate_x_rel", "_translate_rel_level_to_arg"),
    "TranslateYRel": ("translate_y_rel", "_translate_rel_level_to_arg"),
    "Desaturate": ("desaturate", "_minmax_level_to_arg"),
    "GaussianBlur": ("gaussian_blur", "_minmax_level_to_arg"),
    "GaussianBlurRand": ("gaussian_blur_rand", "_minmax_level_to_arg"),
}
"""By name: timm's function that does it, and the one that makes its argument."""

_RANGES: dict[str, dict[str, float]] = {
    "Desaturate": {"min_val": 0.5, "max_val": 1.0},
    "GaussianBlur": {"min_val": 0.1, "max_val": 2.0},
}


def _operations(policies: Any, form: Form) -> tuple[list[list[tuple[str, float, float]]], dict[str, Any]]:
    """The operations of policies, and what all of them have in common."""
    found, common = [], None
    for policy in policies:
        found.append([_operation(op) for op in policy])
        for op in policy:
            settings = _settings(op, form)
            if common is not None and settings != common:
                raise RefusalError("its operations have different settings")
            common = settings
    return found, common or {}


def _operation(op: Any) -> tuple[str, float, float]:
    automatic = sys.modules["timm.data.auto_augment"]
    if type(op) is not automatic.AugmentOp or not is_stock(op, "__call__"):
        raise RefusalError(f"{type(op).__name__} in it is no operation of timm's")
    if op.name not in _LEVELS or _functions(op) != (*_LEVELS[op.name], _RANGES.get(op.name, {})):
        raise RefusalError(f"{op.name} in it is not timm's")
    return op.name, min(max(float(op.prob), 0.0), 1.0), float(op.magnitude)


def _functions(op: Any) -> tuple[str, str, dict[str, float]]:
    """Names of an operation's functions, if they are timm's, and what the second one is given."""
    level, given = op.level_fn, {}
    if hasattr(level, "func"):
        level, given = level.func, dict(level.keywords)
    own = [f for f in (op.aug_fn, level) if f is not None and f.__module__ != "timm.data.auto_augment"]
    return ("", "", {}) if own else (op.aug_fn.__name__, getattr(level, "__name__", ""), given)


def _settings(op: Any, form: Form) -> dict[str, Any]:
    if op.kwargs.keys() != {"fillcolor", "resample"}:
        raise RefusalError(f"its operations are given {', '.join(sorted(op.kwargs))}")
    fill = op.kwargs["fillcolor"]
    channels = 1 if form.mode == "L" else 3
    values = list(fill) if isinstance(fill, tuple | list) else [fill]
    if len(values) != channels or not all(type(v) is int and 0 <= v <= 255 for v in values):
        raise RefusalError(f"its fill is {fill!r}, and images have {channels} channels")
    if "translate_const" not in op.hparams and op.name in ("TranslateX", "TranslateY"):
        raise RefusalError("it has no translate_const")
    std = float(op.magnitude_std or 0)
    return {
        "magnitude_std": std if 0 < std < math.inf else 0.0,
        "uniform": std == math.inf,
        "magnitude_max": float(op.magnitude_max or 10),
        "translate_const": float(op.hparams.get("translate_const", 250)),
        "translate_pct": float(op.hparams.get("translate_pct", 0.45)),
        "interpolation": check.filters(op.kwargs["resample"], check.sampling),
        "fill": tuple(values),
    }
