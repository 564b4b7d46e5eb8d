"""What Albumentations' `Compose` becomes, and the wrapper that lets torchvision data sets call one.

Invariant: only transforms of exactly the known types are lowered, where the engine gives the same pixels for the same
numbers, and draws those from the same distributions. What depends on OpenCV's rounding is lowered only where OpenCV was
seen to round as the engine does, and what depends on how Albumentations draws only for its known versions.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wellfed import _opencv as O
from wellfed import transforms as T

from .forms import Form, RefusalError, is_stock
from .functions import call_of
from .opencv import BORDERS, FILTERS, WARPS, different

__all__ = [
    "SAME_SIZES",
    "Albumentations",
    "Leaf",
    "hidden_in",
    "leaves",
    "lower_leaf",
    "lower_with_mask",
    "remainder",
]

_METHODS = (
    "__call__",
    "apply",
    "get_params",
    "get_params_dependent_on_data",
    "should_apply",
    # Of `Affine` and what is made of it.
    "_get_scale",
    "_get_shear_params",
    "_get_translate_params",
    "_create_safe_rotate_matrix",
)

_TESTED = "2.0."
"""What the versions of Albumentations begin with whose draws are known."""


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
    converts: bool = True
    """Whether the pipeline is given an array whatever the image is; else Pillow images are none of its business."""
    whole: Any = None
    """What calls the pipeline."""

    def __repr__(self) -> str:
        return repr(self.transform)


def leaves(transform: Any) -> list[Any] | None:
    """The transforms of a pipeline that a wrapper or a known function calls; None if `transform` is neither."""
    albumentations = sys.modules.get("albumentations")
    if albumentations is None:
        return None
    owner, converts = transform, True
    if type(transform) is not Albumentations:
        call = call_of(transform)
        if call is None:
            return None
        owner, converts = Albumentations(call.held), call.converts
    if "__call__" in vars(owner):
        return None
    compose: Any = owner.compose
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
    return [Leaf(inner, owner, converts, transform) for inner in compose.transforms]


def remainder(rest: list[Leaf]) -> Any:
    """The pipeline that is left after the first transforms are done."""
    compose: Any = rest[0].owner.compose
    if len(rest) == len(compose.transforms):
        return rest[0].whole
    compose = copy.copy(compose)
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
    if form.kind == "pil" and not leaf.converts:
        raise RefusalError("is given a Pillow image, which it refuses", "image=np.array(image)")
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
    if (values := _of_values(kind)) is not None:
        _check_version()
        made = values(t)
        return [made if t.p == 1 else T.RandomApply([made], t.p)], after, ""
    always = (
        A.RandomCrop,
        A.CenterCrop,
        A.Pad,
        A.RandomResizedCrop,
        A.Resize,
        A.SmallestMaxSize,
        A.LongestMaxSize,
    )
    if kind in (*always, A.Normalize, A.ToFloat) and t.p != 1:
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
    if kind is A.RandomResizedCrop:
        _check_version()
        crop = T.RandomResizedCrop(t.size, t.scale, t.ratio, _filter(t))
        return [crop], replace(after, sized=True), ""
    if kind is A.Resize:
        return [T.Resize((t.height, t.width), _filter(t))], replace(after, sized=True), ""
    if kind in (A.SmallestMaxSize, A.LongestMaxSize):
        if not isinstance(t.max_size, int):
            raise RefusalError("the engine knows max_size as one number", "max_size=256")
        return [O.MaxSize(t.max_size, kind is A.LongestMaxSize, _filter(t))], after, ""
    if kind is A.RandomScale:
        _check_version()
        factors = [1 + limit for limit in t.scale_limit]
        return [O.RandomScale(factors, _filter(t), t.p)], replace(after, sized=False), ""
    if kind is A.CenterCrop:
        if t.pad_if_needed:
            raise RefusalError("pads in its own way")  # no advice: without, small images are an error
        return [O.FloorCenterCrop((t.height, t.width))], replace(after, sized=True), ""
    if kind is A.Normalize:
        return _normalize(t), after.turned("array", "float32"), ""
    if kind is A.ToFloat and t.max_value in (None, 255):
        return [T.ToTensor()], after.turned("array", "float32"), ""
    raise RefusalError("the engine has no transform that is equal to it")


SAME_SIZES = T.RandomPerspective(p=0)
"""Does nothing, but fails where a mask has another size than its image: pipelines refuse those."""


def lower_with_mask(leaf: Leaf, form: Form) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for one transform of a pipeline that is given an image and its mask."""
    import albumentations as A

    t = leaf.transform
    _check_version()
    moving = (A.Resize, A.RandomCrop, A.CenterCrop, A.RandomResizedCrop, A.SmallestMaxSize, A.LongestMaxSize)
    values = (A.Normalize, A.ToFloat, A.RandomBrightnessContrast, A.HueSaturationValue, A.ColorJitter)
    others = (A.NoOp, A.HorizontalFlip, A.VerticalFlip, *values)
    turning = (A.Affine, A.ShiftScaleRotate, A.Rotate, A.SafeRotate)
    if type(t).__name__ != "ToTensorV2" and type(t) not in (*moving, *others, *turning):
        raise RefusalError("the engine does not know what it does to masks")
    if getattr(t, "mask_interpolation", 0) != 0:
        raise RefusalError("masks are resampled by cv2.INTER_NEAREST", "mask_interpolation=cv2.INTER_NEAREST")
    if type(t) in turning:
        _check_opencv("mask warp")
        _check_fill_of_masks(t)
    return lower_leaf(leaf, form)


def _check_fill_of_masks(t: Any) -> None:
    fills = [list(fill) if isinstance(fill, tuple | list) else [fill] for fill in (t.fill, t.fill_mask)]
    if t.border_mode == 0 and len({float(value) for fill in fills for value in fill}) > 1:
        why = f"fill is {t.fill!r} and fill_mask {t.fill_mask!r}; the engine fills images and masks alike"
        raise RefusalError(why, "fill=0, fill_mask=0")


def _check_version() -> None:
    import albumentations as A

    if not str(A.__version__).startswith(_TESTED):
        raise RefusalError(f"Albumentations is {A.__version__}; what {_TESTED}x draws is known")


def _filter(t: Any) -> str:
    """The engine's filter for a transform that resizes."""
    if t.interpolation not in FILTERS:
        raise RefusalError(
            "the engine knows cv2.INTER_NEAREST, cv2.INTER_LINEAR and cv2.INTER_AREA",
            "interpolation=cv2.INTER_LINEAR",
        )
    _check_opencv("resize")
    name = FILTERS[t.interpolation]
    if t.area_for_downscale is None or name == "opencv-area":
        return name
    if name != "opencv-linear":
        raise RefusalError(
            "the engine chooses between INTER_AREA and INTER_LINEAR", "area_for_downscale=None"
        )
    return "opencv-linear-area"


def _check_opencv(what: str) -> None:
    reason = different(what)
    if reason:
        raise RefusalError(reason)


def _normalize(t: Any) -> list[T.Transform]:
    if t.normalization != "standard" or t.max_pixel_value != 255:
        raise RefusalError("the engine knows normalization='standard' with max_pixel_value=255")
    _check_version()
    # Both as Albumentations keeps them, in float32.
    mean = np.array(t.mean, np.float32) * t.max_pixel_value
    std = np.array(t.std, np.float32) * t.max_pixel_value
    if not (np.array_equal(mean, t.mean_np) and np.array_equal(np.reciprocal(std), t.denominator)):
        raise RefusalError("its mean or std was changed after it was made", "make it anew")
    if not {mean.size, std.size} <= {1, 3}:
        raise RefusalError(f"it has {mean.size} means and {std.size} stds, and images have 3 channels")
    plain = [[float(v) for v in values.reshape(-1)] for values in (mean, std)]
    return [T.ToDtype("float32", scale=False), O.NormalizeByReciprocal(*plain)]


def _of_values(kind: type) -> Callable[[Any], T.Transform] | None:
    """What makes the engine's transform for one that keeps sizes."""
    import albumentations as A

    return {
        A.RandomBrightnessContrast: _brightness_contrast,
        A.HueSaturationValue: _hue_saturation_value,
        A.ColorJitter: _color_jitter,
        A.CoarseDropout: _coarse_dropout,
        A.Affine: _affine,
        A.ShiftScaleRotate: _affine,
        A.SafeRotate: _safe_rotate,
        A.Rotate: _rotate,
    }.get(kind)


def _brightness_contrast(t: Any) -> T.Transform:
    if t.ensure_safe_range:
        raise RefusalError("the engine does not fit numbers to a range", "ensure_safe_range=False")
    return O.RandomBrightnessContrast(t.brightness_limit, t.contrast_limit, t.brightness_by_max)


def _hue_saturation_value(t: Any) -> T.Transform:
    _check_opencv("colour")
    return O.HueSaturationValue(t.hue_shift_limit, t.sat_shift_limit, t.val_shift_limit)


def _color_jitter(t: Any) -> T.Transform:
    import albumentations.augmentations.pixel.functional as F

    names = ("brightness", "contrast", "saturation", "hue")
    if t.transforms != [getattr(F, f"adjust_{name}_torchvision") for name in names]:
        raise RefusalError("its functions were changed", "make it anew")
    _check_opencv("colour")
    return O.OpenCvColorJitter(t.brightness, t.contrast, t.saturation, t.hue)


def _coarse_dropout(t: Any) -> T.Transform:
    fill = list(t.fill) if isinstance(t.fill, tuple | list) else t.fill
    values = fill if isinstance(fill, list) else [fill]
    if any(isinstance(v, str) or not 0 <= v <= 255 for v in values) or len(values) not in (1, 3):
        raise RefusalError(f"fill is {t.fill!r}; the engine fills with numbers of 0 to 255", "fill=0")
    # Cut off, as NumPy makes bytes of them.
    whole = [int(v) for v in values]
    return O.CoarseDropout(t.num_holes_range, t.hole_height_range, t.hole_width_range, whole)


def _affine(t: Any) -> T.Transform:
    if t.fit_output:
        raise RefusalError("changes the size of each image by its angle", "fit_output=False")
    ways = None if t.translate_percent is None else [t.translate_percent[axis] for axis in ("x", "y")]
    pixels = None
    if t.translate_px is not None:
        # Cut off, as Albumentations does before it draws.
        pixels = [[int(way) for way in t.translate_px[axis]] for axis in ("x", "y")]
        ways = None
    return O.OpenCvAffine(
        scale=[t.scale[axis] for axis in ("x", "y")],
        keep_ratio=t.keep_ratio,
        balanced_scale=t.balanced_scale,
        translate_percent=ways,
        translate_px=pixels,
        rotate=t.rotate,
        shear=[t.shear[axis] for axis in ("x", "y")],
        **_warped(t),
    )


def _rotate(t: Any) -> T.Transform:
    if t.crop_border:
        raise RefusalError("cuts each image to a size of its own", "crop_border=False")
    return O.OpenCvAffine(rotate=t.limit, **_warped(t))


def _safe_rotate(t: Any) -> T.Transform:
    return O.OpenCvAffine(rotate=t.limit, fit=True, **_warped(t))


def _warped(t: Any) -> dict[str, Any]:
    """How `cv2.warpAffine` is called."""
    if t.interpolation not in WARPS:
        raise RefusalError(
            "the engine turns by cv2.INTER_NEAREST and cv2.INTER_LINEAR", "interpolation=cv2.INTER_LINEAR"
        )
    if t.border_mode not in BORDERS:
        raise RefusalError(
            "the engine knows cv2.BORDER_CONSTANT and cv2.BORDER_REFLECT_101",
            "border_mode=cv2.BORDER_CONSTANT",
        )
    fill = list(t.fill) if isinstance(t.fill, tuple | list) else [float(t.fill)] * 3
    if len(fill) != 3 or any(v != int(v) or not 0 <= v <= 255 for v in fill):
        raise RefusalError(f"fill is {t.fill!r}; the engine fills with whole numbers of 0 to 255", "fill=0")
    _check_opencv("warp")
    # One number for all channels, where they have one, is a mask's, too.
    whole = [int(v) for v in (fill[:1] if len(set(fill)) == 1 else fill)]
    return {"interpolation": WARPS[t.interpolation], "border": BORDERS[t.border_mode], "fill": whole}
