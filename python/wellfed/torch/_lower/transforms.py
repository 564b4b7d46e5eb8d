"""What torchvision's transforms become, and others' beside them: a prefix for the engine, the rest for Python.

Invariant: only transforms of exactly the known types are lowered, and only where the engine does what torchvision
does to what stands there (a Pillow image, a uint8 tensor, a float tensor). What is known but cannot be lowered is
left with the reason and, where there is one, the change that would help.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from wellfed import _opencv as O
from wellfed import _timm as M
from wellfed import transforms as T
from wellfed.exceptions import WellfedError

from . import moved, several
from .advice import commute, reordered
from .crops import STACKED_BEHIND, Crops, is_for_each, joined, lower_crops
from .forms import Chain, ChannelsFirst, Form, Line, RefusalError, Steps, is_stock, name_of
from .joint import lower_joint
from .own import is_own, lower_own
from .processors import Processed, lower_processed
from .resampling import different_tensors
from .spectra import is_sound, lower_sound
from .values import Joint, Picture

if TYPE_CHECKING:
    from .datasets import Leaf

__all__ = ["METHODS", "RESIZES", "leaves_of", "leaves_size_open", "lower_leaf", "lower_one"]

Step = tuple[list[T.Transform], Form, str]
Handler = Callable[[Any, Form], Step]
Accepts = Callable[[list[T.Transform]], None]

METHODS = (
    "forward",
    "__call__",
    "transform",
    "make_params",
    "get_params",
    "_get_params",
    "_call_kernel",
    # Of automatic augmentations.
    "_augmentation_space",
    "_get_policies",
    "_get_random_item",
    "_apply_image_or_video_transform",
    "_sample_dirichlet",
    "_pil_to_tensor",
    "_tensor_to_pil",
)

_OPEN_SIZES = (
    M.RandomResizedCropToSequence,
    O.RandomScale,
    T.RandomIoUCrop,
    T.RandomResize,
    T.RandomShortestSize,
    T.RandomZoomOut,
    T.ScaleJitter,
)


def leaves_size_open(transform: T.Transform) -> bool:
    """Whether images differ in size by chance behind it, also those that had one size."""
    if isinstance(transform, M.ResizeKeepRatio | M.ResizeKeepRatioToSequence):
        return transform.random_scale_prob > 0 or transform.random_aspect_prob > 0
    return isinstance(transform, _OPEN_SIZES)


RESIZES = (T.RandomResize, T.RandomResizedCrop, T.RandomShortestSize, T.Resize, T.ScaleJitter)

_ANY_MODE = ("images have the mode of their file here, grey or colour", "put v2.RGB() first")
_BEFORE_TENSOR = "put it before ToTensor or ToImage, where images are still Pillow's"


def lower_leaf(leaf: Leaf, accepts: Accepts) -> Chain:
    """Cuts the transform of a data set in two.

    Args:
        leaf: The data set.
        accepts: Raises a `WellfedError` where the engine does not take a list of transforms.
    """
    follows = leaf.follows
    if isinstance(follows, several.Images) or (isinstance(follows, several.Together) and not follows.moves):
        chain = _lower_transform(leaf.transform, leaf.form, accepts)
        assert leaf.reading is not None
        first = leaf.reading.picture
        assert isinstance(first, Picture)
        if isinstance(follows, several.Images):
            several.lower_images(chain, follows, first, lambda picture: _by_steps(leaf, picture, first))
        else:
            several.lower_apart(chain, follows, first, _by_steps(leaf, first, first))
        return chain
    if follows is not None:
        return lower_joint(leaf.transform, leaf.form, follows, accepts)
    return _lower_transform(leaf.transform, leaf.form, accepts)


def _by_steps(leaf: Leaf, picture: Picture, first: Picture) -> moved.Lower:
    """What lowers steps of an image of a data set."""
    from .engine import accepts_for

    form = leaf.form if picture is first else moved.form_of(picture)
    accepts = accepts_for(replace(leaf, form=form))
    return lambda steps: _lower_transform(Steps(steps) if steps else None, form, accepts)


def _lower_transform(transform: Any, form: Form, accepts: Accepts) -> Chain:
    """Cuts `transform` in two.

    Args:
        transform: What a data set calls on its image; None for nothing.
        form: What the image is before.
        accepts: Raises a `WellfedError` where the engine does not take a list of transforms.
    """
    chain = Chain(form=form)
    if transform is None:
        return chain
    leaves = joined(list(leaves_of(transform)), _is_known)
    for place, leaf in enumerate(leaves):
        try:
            added, after, note = lower_one(leaf, chain.form)
            try:
                if added:
                    accepts([*chain.native, *added])
            except (WellfedError, TypeError, ValueError) as e:
                raise RefusalError(_first_line(e)) from None
        except RefusalError as refused:
            change = reordered(refused.change, leaves, place)
            chain.lines.append(Line(name_of(leaf), False, refused.why, change))
            rest = leaves[place:]
            chain.suffix = [suffix_of(rest, i) for i in range(len(rest)) if suffix_of(rest, i) is not None]
            for later in leaves[place + 1 :]:
                chain.lines.append(Line(name_of(later), False, *_why_later(later, leaf, chain.form)))
            return chain
        chain.native += added
        chain.form = after
        chain.lines.append(Line(name_of(leaf), True, note))
    return chain


def suffix_of(leaves: list[Any], place: int) -> Any:
    """What Python calls for the leaf at `place`; Albumentations' leaves are called together, by the first."""
    from .albumentations import Leaf, remainder

    leaf = leaves[place]
    if not isinstance(leaf, Leaf):
        return leaf
    before = leaves[place - 1] if place else None
    if isinstance(before, Leaf) and before.owner is leaf.owner:
        return None
    return remainder(
        [other for other in leaves[place:] if isinstance(other, Leaf) and other.owner is leaf.owner]
    )


def _why_later(later: Any, stopper: Any, form: Form) -> tuple[str, str]:
    """Why a transform after `stopper` stays in Python, and whether moving it helps; `form` is what `stopper` gets."""
    kind = type(stopper.transform if hasattr(stopper, "owner") else stopper)
    after = name_of(stopper).rpartition(".")[2] if kind is FunctionType else kind.__name__
    moves = commute(later, stopper) and _same_chain(later, stopper) and _keeps_kind(later, form)
    return f"comes after {after}, which is Python", f"move it before {after}" if moves else ""


def _same_chain(one: Any, other: Any) -> bool:
    """Whether both are called alike: a transform of Albumentations can be moved inside of its own pipeline only."""
    return getattr(one, "owner", None) is getattr(other, "owner", None)


def _keeps_kind(later: Any, form: Form) -> bool:
    """Whether the engine has it, and what stands behind it gets the kind of image that it got before.

    ``ToTensor`` in front of a transform of Pillow images would raise, and so would ``Normalize``.
    """
    try:
        _, given, _ = lower_one(later, form)
    except RefusalError:
        return False
    array = {"pil": "array"}  # Albumentations makes arrays of images, also of those that come first
    return given.dtype == form.dtype and given.kind in (form.kind, array.get(form.kind))


def leaves_of(transform: Any) -> Iterator[Any]:
    """The transforms of nested chains, in order."""
    from . import albumentations

    kind = type(transform)
    if kind is Steps:
        for inner in transform.transforms:
            yield from leaves_of(inner)
    elif kind in _containers() and is_stock(transform, *METHODS):
        for inner in transform.transforms if kind is not nn.Sequential else transform:
            yield from leaves_of(inner)
    elif kind is Joint:
        # Nothing goes with the image that the engine would have to move.
        yield from leaves_of(transform.transform)
    elif is_own(transform):
        if transform.several:
            yield transform  # what is behind the crops is called on each
        else:
            yield from transform.steps()
    elif (found := albumentations.leaves(transform)) is not None:
        yield from found
    else:
        yield transform


def lower_one(leaf: Any, form: Form) -> Step:
    """What the engine does for one transform, what the image is then, and what there is to say.

    Raises:
        RefusalError: It stays in Python.
    """
    from . import albumentations, timm

    if is_sound(form):
        return lower_sound(leaf, form)
    if isinstance(leaf, albumentations.Leaf):
        return albumentations.lower_leaf(leaf, form)
    if isinstance(leaf, Crops):
        return _crops(leaf, form)
    if form.kind == "chw array":
        raise RefusalError(f"stands on {form}")
    if form.crops and not is_for_each(leaf):
        raise RefusalError(f"stands on {form.crops} crops of an image, one behind the other")
    if isinstance(leaf, ChannelsFirst):
        return [], form.turned("tensor"), ""
    if isinstance(leaf, Processed):
        return lower_processed(leaf, form)
    if is_own(leaf):
        if form.mode == "any":
            raise RefusalError(*_ANY_MODE)
        return lower_own(leaf, form)
    handler = _handlers().get(type(leaf)) or timm.handler_of(leaf)
    if handler is None:
        raise RefusalError(*_why_unknown(leaf))
    if form.mode == "any" and handler is not _rgb:
        raise RefusalError(*_ANY_MODE)
    if not is_stock(leaf, *METHODS, *timm.METHODS):
        raise RefusalError(
            "its methods were replaced, or it has hooks", "use the class as its library made it"
        )
    try:
        return handler(leaf, form)
    except (TypeError, ValueError) as e:
        raise RefusalError(_first_line(e)) from None


def _crops(t: Crops, form: Form) -> Step:
    if form.mode == "any":
        raise RefusalError(*_ANY_MODE)
    if form.crops:
        raise RefusalError("makes crops of crops")
    if not is_stock(t.crop, *METHODS) and not is_own(t.crop):
        raise RefusalError(
            "its methods were replaced, or it has hooks", "use the class as its library made it"
        )
    try:
        return lower_crops(t, form, leaves_of, lower_one)
    except (TypeError, ValueError) as e:
        raise RefusalError(_first_line(e)) from None


def _is_known(kind: type) -> bool:
    return kind in _handlers() or kind in _containers() or getattr(T, kind.__name__, None) is kind


def _why_unknown(leaf: Any) -> tuple[str, str]:
    from . import albumentations

    kind = type(leaf)
    if albumentations.hidden_in(leaf):
        return (
            "a Python function around an Albumentations pipeline",
            "give wellfed.torch.Albumentations(compose) in its place",
        )
    for base in kind.__mro__[1:]:
        if base in _handlers() or base in _containers():
            return f"a subclass of {base.__name__} may do something else", f"use {base.__name__} itself"
    if kind.__module__.startswith("torchvision.") and kind.__name__ != "Lambda":
        return "the engine has no such transform", ""
    return "Python code", ""


def _first_line(error: BaseException) -> str:
    # Of our own errors only the fact: the place is that of the image it was tried on.
    return str(getattr(error, "message", error)).partition("\n")[0]


_types: tuple[dict[type, Handler], frozenset[type]] | None = None


def _tables() -> tuple[dict[type, Handler], frozenset[type]]:
    """Handlers by exact type, and containers; made when first needed, since torchvision need not be there."""
    global _types
    if _types is not None:
        return _types
    table: dict[type, Handler] = {nn.Identity: _nothing}
    containers: set[type] = {nn.Sequential}
    try:
        import torchvision.transforms as v1
        from torchvision.transforms import v2
    except ImportError:
        return table, frozenset(containers)
    containers |= {v1.Compose, v2.Compose}
    for module in (v1, v2):
        for name, handler in _BOTH.items():
            table[getattr(module, name)] = handler
        for name in ("AutoAugment", "RandAugment", "TrivialAugmentWide"):
            table[getattr(module, name)] = _automatic("v1" if module is v1 else "v2")
        table[module.AugMix] = _aug_mix("v1" if module is v1 else "v2")
    table[v1.RandomCrop] = _random_crop_v1
    table[v2.RandomCrop] = _random_crop_v2
    table[v1.ToTensor] = _to_tensor_v1
    table[v2.ToTensor] = _to_tensor_v2
    table[v1.PILToTensor] = _pil_to_tensor_v1
    table[v2.PILToTensor] = _pil_to_tensor_v2
    table[v1.RandomErasing] = table[v2.RandomErasing] = _random_erasing
    table[v1.ConvertImageDtype] = _convert_image_dtype_v1
    table[v2.ConvertImageDtype] = _convert_image_dtype
    table[v2.ToImage] = _to_image
    table[v2.ToDtype] = _to_dtype
    table[v2.ToPureTensor] = _to_pure_tensor
    table[v2.Identity] = _nothing
    table[v2.RGB] = _rgb
    table[v2.RandomPhotometricDistort] = _photometric
    table[v2.GaussianNoise] = _gaussian_noise
    table[v2.JPEG] = _jpeg
    table[v2.RandomResize] = _random_resize
    table[v2.RandomShortestSize] = _random_shortest_size
    table[v2.ScaleJitter] = _scale_jitter
    table[v2.RandomZoomOut] = _zoom_out
    table[v2.RandomIoUCrop] = _iou_crop
    _types = table, frozenset(containers)
    return _types


def _handlers() -> dict[type, Handler]:
    return _tables()[0]


def _containers() -> frozenset[type]:
    return _tables()[1]


def _on_bytes(form: Form) -> None:
    if form.kind == "array":
        raise RefusalError("stands on an array, as OpenCV and Albumentations give it")
    if form.dtype != "uint8":
        raise RefusalError(f"stands on {form}; the engine does it to 8-bit images", _BEFORE_TENSOR)


def _on_pillow(form: Form) -> None:
    _on_bytes(form)
    if form.kind != "pil":
        raise RefusalError(
            "stands on a tensor, of which torchvision makes other pixels than of Pillow images",
            _BEFORE_TENSOR,
        )


def _nothing(t: Any, form: Form) -> Step:
    return [], form, "does nothing"


def _resampling(t: Any, form: Form) -> tuple[Any, str]:
    """The interpolation for the engine, which antialiases, and what there is to say."""
    _on_bytes(form)
    if form.kind == "pil":
        return _interpolation(t), ""
    mode = getattr(t.interpolation, "value", t.interpolation)
    if mode not in ("bilinear", "bicubic"):
        raise RefusalError(
            f"torchvision takes other pixels for {mode} of tensors than of Pillow images", _BEFORE_TENSOR
        )
    if t.antialias is not True:
        raise RefusalError("the engine always antialiases", "antialias=True")
    # Version 1 resamples tensors as float32.
    why = different_tensors() if ".v2." in type(t).__module__ else "v1 resamples tensors in another way"
    if not why:
        return f"torch-{mode}", ""
    if form.exact:
        raise RefusalError(why, _BEFORE_TENSOR)
    return mode, f"resampled as Pillow does, by rounding up to 2 of 255 from torchvision's tensors: {why}"


def _interpolation(t: Any) -> Any:
    """Pillow knows one kind of nearest, and torchvision gives it both."""
    mode = getattr(t.interpolation, "value", t.interpolation)
    return "nearest" if mode == "nearest-exact" else t.interpolation


def _resize(t: Any, form: Form) -> Step:
    interpolation, note = _resampling(t, form)
    lowered = T.Resize(t.size, interpolation, t.max_size)
    return [lowered], replace(form, sized=form.sized or isinstance(lowered.size, tuple)), note


def _random_resized_crop(t: Any, form: Form) -> Step:
    interpolation, note = _resampling(t, form)
    return (
        [T.RandomResizedCrop(t.size, t.scale, t.ratio, interpolation)],
        replace(form, sized=True),
        note,
    )


def _random_resize(t: Any, form: Form) -> Step:
    interpolation, note = _resampling(t, form)
    lowered = T.RandomResize(t.min_size, t.max_size, interpolation)
    return [lowered], replace(form, sized=False), note


def _random_shortest_size(t: Any, form: Form) -> Step:
    interpolation, note = _resampling(t, form)
    lowered = T.RandomShortestSize(t.min_size, t.max_size, interpolation)
    return [lowered], replace(form, sized=False), note


def _scale_jitter(t: Any, form: Form) -> Step:
    interpolation, note = _resampling(t, form)
    lowered = T.ScaleJitter(t.target_size, t.scale_range, interpolation)
    return [lowered], replace(form, sized=False), note


def _zoom_out(t: Any, form: Form) -> Step:
    _on_bytes(form)
    fill, more = _fills(t, form)
    return [T.RandomZoomOut(fill, t.side_range, t.p, **more)], replace(form, sized=False), ""


def _iou_crop(t: Any, form: Form) -> Step:
    _on_bytes(form)
    ratio = (t.min_aspect_ratio, t.max_aspect_ratio)
    lowered = T.RandomIoUCrop(t.min_scale, t.max_scale, *ratio, t.options, t.trials)
    return [lowered], replace(form, sized=False), ""


def _fills(t: Any, form: Form) -> tuple[Any, dict[str, Any]]:
    """The fill of images such as `form`, and that of masks as an argument, if it is another."""
    if not isinstance(t.fill, dict):
        return t.fill, {}
    import PIL.Image
    from torchvision.tv_tensors import Image, Mask

    kinds: dict[str, type] = {"pil": PIL.Image.Image, "image": Image, "tensor": torch.Tensor}

    def of(kind: type) -> Any:
        # By exact type, and 0 where nothing is said: what torchvision makes of it.
        return t._fill.get(kind, t._fill.get("others")) or 0

    mask = of(Mask)
    if isinstance(mask, list | tuple):
        if len(mask) != 1:
            raise RefusalError("masks are filled with one value", "fill=0")
        mask = mask[0]
    return of(kinds[form.kind]), {"mask_fill": mask}


def _center_crop(t: Any, form: Form) -> Step:
    _on_bytes(form)
    return [T.CenterCrop(t.size)], replace(form, sized=True), ""


def _pad(t: Any, form: Form) -> Step:
    _on_bytes(form)
    fill, more = _fills(t, form)
    return [T.Pad(t.padding, fill, t.padding_mode, **more)], form, ""


def _random_crop(t: Any, form: Form, padding: Any) -> Step:
    _on_bytes(form)
    fill, more = _fills(t, form)
    lowered = T.RandomCrop(t.size, padding, t.pad_if_needed, fill, t.padding_mode, **more)
    return [lowered], replace(form, sized=True), ""


def _random_crop_v1(t: Any, form: Form) -> Step:
    return _random_crop(t, form, t.padding)


def _random_crop_v2(t: Any, form: Form) -> Step:
    if t.padding is None:
        return _random_crop(t, form, None)
    left, right, top, bottom = t.padding  # v2 keeps them in this order
    return _random_crop(t, form, (left, top, right, bottom))


def _flip(kind: type[T.RandomHorizontalFlip | T.RandomVerticalFlip]) -> Handler:
    def lower(t: Any, form: Form) -> Step:
        _on_bytes(form)
        return [kind(t.p)], form, ""

    return lower


def _rotation(t: Any, form: Form) -> Step:
    _on_pillow(form)
    lowered = T.RandomRotation(t.degrees, t.interpolation, t.expand, t.center, t.fill)
    return [lowered], replace(form, sized=form.sized and not t.expand), ""


def _color_jitter(t: Any, form: Form) -> Step:
    _on_pillow(form)
    return [T.ColorJitter(t.brightness, t.contrast, t.saturation, t.hue)], form, ""


def _grayscale(t: Any, form: Form) -> Step:
    _on_pillow(form)
    mode = "L" if t.num_output_channels == 1 else "RGB"
    return [T.Grayscale(t.num_output_channels)], replace(form, mode=mode), ""


def _random_grayscale(t: Any, form: Form) -> Step:
    _on_pillow(form)
    return [T.RandomGrayscale(t.p)], form, ""


def _blur(t: Any, form: Form) -> Step:
    _on_bytes(form)
    note = "a value may be rounded the other way: one level of 255"
    return [T.GaussianBlur(t.kernel_size, t.sigma)], form, note


def _affine(t: Any, form: Form) -> Step:
    _on_pillow(form)
    lowered = T.RandomAffine(t.degrees, t.translate, t.scale, t.shear, _interpolation(t), t.fill, t.center)
    return [lowered], form, ""


def _perspective(t: Any, form: Form) -> Step:
    _on_pillow(form)
    lowered = T.RandomPerspective(t.distortion_scale, t.p, _interpolation(t), t.fill)
    note = "where a corner stays in its place, torchvision's solver rounds: a pixel may be its neighbour"
    return [lowered], form, note


def _photometric(t: Any, form: Form) -> Step:
    _on_pillow(form)
    return [T.RandomPhotometricDistort(t.brightness, t.contrast, t.saturation, t.hue, t.p)], form, ""


def _elastic(t: Any, form: Form) -> Step:
    _on_bytes(form)
    note = "a value may be rounded the other way: one level of 255"
    return [T.ElasticTransform(t.alpha, t.sigma, t.interpolation, t.fill)], form, note


def _gaussian_noise(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image"):
        raise RefusalError(f"stands on {form}, which it refuses", "put it after ToImage or ToTensor")
    if form.dtype not in ("uint8", "float32"):
        raise RefusalError(f"stands on {form}", "put it before the conversion, or use float32")
    return [T.GaussianNoise(t.mean, t.sigma, t.clip)], form, ""


def _jpeg(t: Any, form: Form) -> Step:
    _on_bytes(form)
    return [T.JPEG(t.quality)], form, ""


def _stays(why: str, change: str = "") -> Handler:
    """Of what is known, and not for the engine."""

    def lower(t: Any, form: Form) -> Step:
        raise RefusalError(why, change)

    return lower


def _by_chance(kind: Callable[..., T.Transform], *parameters: str) -> Handler:
    """Of transforms that change values with a probability."""

    def lower(t: Any, form: Form) -> Step:
        _on_pillow(form)
        return [kind(*(getattr(t, name) for name in parameters), t.p)], form, ""

    return lower


def _automatic(version: str) -> Handler:
    """Of automatic augmentations of torchvision's first or second version."""

    def lower(t: Any, form: Form) -> Step:
        _on_pillow(form)
        if version == "v2" and not all(
            make.__module__.startswith("torchvision.") for make, _ in t._AUGMENTATION_SPACE.values()
        ):
            raise RefusalError("its operations were changed", "the operations of torchvision")
        made: T.Transform
        outside = _interpolation(t), t.fill
        match type(t).__name__:
            case "AutoAugment":
                pairs = t.policies if version == "v1" else t._policies
                if pairs != t._get_policies(t.policy):
                    raise RefusalError("its policies were changed", "the policies of torchvision")
                made = T.AutoAugment(t.policy, *outside, thresholds=version)
            case "RandAugment":
                made = T.RandAugment(
                    t.num_ops, t.magnitude, t.num_magnitude_bins, *outside, thresholds=version
                )
            case _:
                made = T.TrivialAugmentWide(t.num_magnitude_bins, *outside, thresholds=version)
        return [made], form, ""

    return lower


def _aug_mix(version: str) -> Handler:
    """Of torchvision's first or second version; both turn Pillow images into tensors."""

    def lower(t: Any, form: Form) -> Step:
        _on_bytes(form)
        spaces = [] if version == "v1" else [t._AUGMENTATION_SPACE, t._PARTIAL_AUGMENTATION_SPACE]
        makers = [make for space in spaces for make, _ in space.values()]
        if t._PARAMETER_MAX != 10 or not all(m.__module__.startswith("torchvision.") for m in makers):
            raise RefusalError("its operations were changed", "the operations of torchvision")
        chains = t.severity, t.mixture_width, t.chain_depth, t.alpha, t.all_ops
        made = T.AugMix(*chains, t.interpolation, t.fill, version=version)
        return [made], form, "sums of more than 65,793 pixels may round differently, by one level of 255"

    return lower


def _nest(kind: type[T.RandomApply | T.RandomChoice | T.RandomOrder]) -> Handler:
    """Of transforms that run others by chance. What is inside must leave a Pillow image, of the same mode."""

    def lower(t: Any, form: Form) -> Step:
        _on_pillow(form)
        inner: list[T.Transform] = []
        sized = form.sized
        for one in t.transforms:
            steps, after = _nested(one, form)
            sized = sized and after.sized
            # Those of RandomApply run one after the other; the others are chosen, each as a whole.
            inner += steps if kind is T.RandomApply else [_one(steps)]
        inner = inner or [T.Identity()]
        lowered = kind(inner) if kind is T.RandomOrder else kind(inner, t.p)  # type: ignore[call-arg]
        return [lowered], replace(form, sized=sized), ""

    return lower


def _one(steps: list[T.Transform]) -> T.Transform:
    return steps[0] if len(steps) == 1 else T.Compose(steps or [T.Identity()])


def _nested(transform: Any, form: Form) -> tuple[list[T.Transform], Form]:
    """What the engine runs for a transform inside of another one."""
    steps: list[T.Transform] = []
    after = form
    for leaf in leaves_of(transform):
        try:
            added, after, _ = lower_one(leaf, after)
        except RefusalError as refused:
            raise RefusalError(f"{name_of(leaf)} in it: {refused.why}", refused.change) from None
        if (after.kind, after.mode) != (form.kind, form.mode):
            raise RefusalError(f"{name_of(leaf)} in it makes another kind of image")
        steps += added
    return steps, after


def _random_erasing(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image"):
        raise RefusalError("stands on a Pillow image", "put it after ToTensor")
    value = "random" if t.value is None else t.value
    if form.dtype == "uint8":
        numbered: Any = [value] if isinstance(value, numbers.Real) else value
        if isinstance(numbered, str) or any(v != int(v) or not 0 <= v <= 255 for v in numbered):
            raise RefusalError(
                f"value is {value!r} on {form}", "put it after the conversion to floating point"
            )
    elif form.dtype != "float32":
        raise RefusalError(f"stands on {form}", "put it before the conversion, or use float32")
    if isinstance(value, tuple | list) and len(value) == 1:
        value = value[0]
    return [T.RandomErasing(t.p, t.scale, t.ratio, value, t.inplace)], form, ""


def _to_tensor_v1(t: Any, form: Form) -> Step:
    if form.kind not in ("pil", "array"):
        raise RefusalError(f"stands on {form}, which it refuses")
    if form.dtype != "uint8":
        raise RefusalError(f"stands on {form}")
    return [T.ToTensor()], form.turned("tensor", "float32"), ""


def _to_tensor_v2(t: Any, form: Form) -> Step:
    if form.kind in ("tensor", "image"):
        return _nothing(t, form)
    return _to_tensor_v1(t, form)


def _pil_to_tensor_v1(t: Any, form: Form) -> Step:
    if form.kind != "pil":
        raise RefusalError(f"stands on {form}, which it refuses")
    return [T.PILToTensor()], form.turned("tensor"), ""


def _pil_to_tensor_v2(t: Any, form: Form) -> Step:
    return _nothing(t, form) if form.kind != "pil" else _pil_to_tensor_v1(t, form)


def _to_image(t: Any, form: Form) -> Step:
    if form.kind == "image":
        return _nothing(t, form)
    if form.dtype != "uint8":
        raise RefusalError(f"stands on {form}")
    return [T.ToImage()], form.turned("image"), ""


def _to_pure_tensor(t: Any, form: Form) -> Step:
    return ([], form.turned("tensor"), "") if form.kind == "image" else _nothing(t, form)


def _to_pil(t: Any, form: Form) -> Step:
    if form.kind == "pil" or form.dtype != "uint8" or t.mode is not None:
        raise RefusalError(f"stands on {form}" if t.mode is None else f"mode is {t.mode!r}")
    return [], form.turned("pil"), ""


def _rgb(t: Any, form: Form) -> Step:
    if form.mode == "any" and form.kind == "pil":
        return [], replace(form, mode="RGB"), "decoded so"
    if form.mode != "RGB":
        raise RefusalError("images are grey here")
    return _nothing(t, form)


def _to_dtype(t: Any, form: Form) -> Step:
    if form.kind == "pil":
        return [], form, "leaves Pillow images as they are"
    wanted = t.dtype
    if isinstance(wanted, dict):
        from torchvision.tv_tensors import Image

        key = Image if form.kind == "image" else torch.Tensor
        if key not in wanted and "others" not in wanted:
            raise RefusalError(f"names no dtype for {form}")
        wanted = wanted[key] if key in wanted else wanted["others"]
        if wanted is None:
            return _nothing(t, form)
    return _cast(wanted, bool(t.scale), form)


def _convert_image_dtype(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image"):
        raise RefusalError(f"stands on {form}, which it refuses", "put it after PILToTensor or ToImage")
    return _cast(t.dtype, True, form)


def _convert_image_dtype_v1(t: Any, form: Form) -> Step:
    if form.kind in ("tensor", "image") and form.dtype == "uint8" and t.dtype is not torch.uint8:
        # v1 divides by 255, as ToTensor does; v2 multiplies by 1/255.
        if t.dtype is not torch.float32:
            raise RefusalError(f"the engine makes {t.dtype} as v2 does", "v2.ToDtype(dtype, scale=True)")
        return [T.ToTensor()], form.turned(form.kind, "float32"), ""
    return _convert_image_dtype(t, form)


def _cast(dtype: torch.dtype, scale: bool, form: Form) -> Step:
    lowered = T.ToDtype(dtype, scale)
    if form.kind == "array":
        raise RefusalError(f"stands on {form}")
    if lowered.dtype == form.dtype:
        return [], form, "does nothing"
    if lowered.dtype == "uint8":
        raise RefusalError("back to uint8")
    return [lowered], form.turned(form.kind, lowered.dtype), ""


def _normalize(t: Any, form: Form) -> Step:
    if form.kind not in ("tensor", "image"):
        raise RefusalError(f"stands on {form}, which it refuses", "put it after ToTensor")
    if form.dtype != "float32":
        raise RefusalError(f"stands on {form}", "convert to float32 first")
    mean, std = _numbers(t.mean), _numbers(t.std)
    channels = 1 if form.mode == "L" else 3
    if channels == 3 and not {len(mean), len(std)} <= {1, 3}:
        raise RefusalError(f"it has {len(mean)} means and {len(std)} stds, and images have 3 channels")
    if channels == 1 and max(len(mean), len(std)) > 1:
        raise RefusalError(
            "it has more than one mean or std, and images are grey", "give one mean and one std"
        )
    return [T.Normalize(mean, std, t.inplace)], form, "rounds at most in the last bit differently"


def _numbers(value: Any) -> tuple[float, ...]:
    if isinstance(value, numbers.Real):
        return (float(value),)
    return tuple(float(v) for v in value)


_BOTH: dict[str, Handler] = {
    "Resize": _resize,
    "CenterCrop": _center_crop,
    "Pad": _pad,
    "RandomResizedCrop": _random_resized_crop,
    "RandomHorizontalFlip": _flip(T.RandomHorizontalFlip),
    "RandomVerticalFlip": _flip(T.RandomVerticalFlip),
    "RandomRotation": _rotation,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "ElasticTransform": _elastic,
    "FiveCrop": _stays("makes five images of one", STACKED_BEHIND),
    "TenCrop": _stays("makes ten images of one", STACKED_BEHIND),
    "LinearTransformation": _stays(
        "its matrix has a row and a column for each value of the image: a task for torch"
    ),
    "RandomInvert": _by_chance(T.RandomInvert),
    "RandomPosterize": _by_chance(T.RandomPosterize, "bits"),
    "RandomSolarize": _by_chance(T.RandomSolarize, "threshold"),
    "RandomAdjustSharpness": _by_chance(T.RandomAdjustSharpness, "sharpness_factor"),
    "RandomAutocontrast": _by_chance(T.RandomAutocontrast),
    "RandomEqualize": _by_chance(T.RandomEqualize),
    "RandomApply": _nest(T.RandomApply),
    "RandomChoice": _nest(T.RandomChoice),
    "RandomOrder": _nest(T.RandomOrder),
    "ColorJitter": _color_jitter,
    "Grayscale": _grayscale,
    "RandomGrayscale": _random_grayscale,
    "GaussianBlur": _blur,
    "Normalize": _normalize,
    "ToPILImage": _to_pil,
}
