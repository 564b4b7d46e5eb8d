"""What belongs to an image, while a function is read: masks and boxes, and transforms that are called on all of it.

Invariant: a `Mask` says exactly which numbers Python holds. What would mix numbers of several pixels is not known, but
in transforms that are called on the mask with its image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from . import calculating
from .calculating import after
from .forms import Steps, name_of
from .unknown import UnknownError
from .values import Boxes, Calculation, Group, Joint, Known, Mask, Picture, Row, Side, Table, Value

__all__ = [
    "as_mask",
    "attribute",
    "boxes",
    "calculated",
    "called_together",
    "leaves",
    "mask",
    "method",
    "moved_mask",
    "numbers",
    "sees",
    "size",
    "sliced",
    "tensor",
    "unsqueezed",
]


def leaves(*values: Value) -> Iterator[Value]:
    """What containers hold, in torch's order: that of the keys as they were given."""
    for value in values:
        if isinstance(value, Group):
            yield from leaves(*value.items)
        elif isinstance(value, Table):
            yield from leaves(*value.items.values())
        else:
            yield value


def sees(mask: Mask, *values: Value) -> bool:
    """Whether a part of the values may lie in the memory of a mask."""
    return any(isinstance(leaf, Mask) and leaf.memory is mask.memory for leaf in leaves(*values))


# Masks.


def as_mask(picture: Picture) -> Mask | None:
    """An image of which only the numbers of its pixels are of interest, as `Mask`; None if it is none."""
    if picture.mode not in ("any", "L") or picture.reader != "pillow" or picture.turned:
        return None
    if picture.array is not None or picture.encoded or picture.kind not in ("pil", "made"):
        return None
    steps = _flat_steps(picture)
    if steps is None:
        return None
    found: Mask | None = None
    for place, step in enumerate(steps):
        name = _torchvision_name(step)
        if found is None and name in ("PILToTensor", "ToTensor"):
            found = Mask(picture.path, picture.mode, "tensor", False, tuple(steps[:place]), memory=object())
            if name == "ToTensor":
                found = replace(found, after=(Calculation(_as_floats),))
        elif found is not None and isinstance(step, Joint):
            found = moved_mask(found, step)
        elif found is not None:
            return None  # also of ConvertImageDtype, which scales
    return found


def _flat_steps(picture: Picture) -> list[Any] | None:
    """Transforms that were called on an image, one by one; None if what was called drew for several things."""
    from .transforms import leaves_of

    steps: list[Any] = []
    for step in picture.steps:
        if isinstance(step, Joint):
            if step.draw is None:
                return None
            steps.append(step)
        else:
            steps += leaves_of(Steps((step,)))
    return steps


def _torchvision_name(step: Any) -> str:
    kind = type(step)
    return kind.__name__ if kind.__module__.startswith("torchvision.transforms.") else ""


def _as_floats(values: torch.Tensor) -> torch.Tensor:
    """What ``ToTensor`` makes of bytes; of a mask of one bit it makes 0 and 1."""
    if values.dtype == torch.bool:
        return values.to(torch.uint8).mul(255).float().div(255)
    if values.dtype != torch.uint8:
        raise TypeError(f"a mask of {values.dtype}")
    return values.float().div(255)


def numbers(picture: Picture, dtype: Any) -> Mask:
    """``np.array(image, dtype)`` of an image that may have any mode."""
    steps = _flat_steps(picture)
    if picture.kind not in ("pil", "made") or steps is None or not all(map(_is_of_pillow, steps)):
        raise UnknownError("makes an array of an image that may be grey")
    known = picture.reader == "pillow" and not picture.turned and not picture.encoded
    if not known or picture.array is not None or picture.mode not in ("any", "L"):
        raise UnknownError("makes an array of an image that may be grey")
    found = Mask(picture.path, picture.mode, "array", True, tuple(steps), memory=object())
    return found if dtype is None else after(found, _astype, dtype)


_ON_PILLOW = ("Resize", "CenterCrop", "RandomHorizontalFlip", "RandomVerticalFlip")


def _is_of_pillow(step: Any) -> bool:
    """Whether it gives a Pillow image when it is called on one."""
    return isinstance(step, Joint) or _torchvision_name(step) in _ON_PILLOW


def _astype(values: Any, dtype: Any) -> Any:
    return values.astype(dtype)


def tensor(value: Mask, dtype: Any = None) -> Mask:
    """``torch.from_numpy(mask)``, ``torch.as_tensor(mask, dtype=dtype)``."""
    found = replace(value, kind="tensor")
    if dtype is None:
        return found
    if not isinstance(dtype, torch.dtype):
        raise UnknownError("makes a tensor of a type that is not known")
    return after(found, torch.Tensor.to, dtype, own=False)


def mask(value: Value, dtype: Value) -> Mask:
    """``tv_tensors.Mask(value)``."""
    if isinstance(value, Picture):
        value = _unchanged_mask(value)
    if not isinstance(value, Mask) or not isinstance(dtype, Known):
        raise UnknownError("makes a mask of something that is not known")
    if value.joint:
        raise UnknownError("makes a mask of one that was transformed")
    return replace(tensor(value, dtype.value), kind="mask")


def _unchanged_mask(picture: Picture) -> Mask:
    from .vocabulary import made_by

    found = as_mask(picture if picture.steps else picture.after(made_by("v2", "PILToTensor")))
    if found is None:
        raise UnknownError("makes a mask of an image that is not known there")
    return found


def calculated(sign: str | None, left: Value, right: Value) -> Value:
    """``mask / 255`` and the like: with a number that is the same for all samples, or of what was made of one mask."""
    one, other = (as_mask(value) or value if isinstance(value, Picture) else value for value in (left, right))
    if isinstance(one, Mask) and isinstance(other, Mask):
        return calculating.on_both(sign or "", one, other)
    if isinstance(one, Mask) and isinstance(other, Known):
        return calculating.with_number(sign or "", one, other.value, first=False)
    if isinstance(other, Mask) and isinstance(one, Known):
        return calculating.with_number(sign or "", other, one.value, first=True)
    raise UnknownError("calculates with a mask in a way that is not known")


_CASTS = {
    "long": torch.int64,
    "int": torch.int32,
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bool": torch.bool,
    "byte": torch.uint8,
}
_NUMBERS = {"div": "/", "true_divide": "/", "mul": "*", "add": "+", "sub": "-"}
_NOTHING = ("contiguous", "detach")


def method(value: Mask, name: str, arguments: list[Value], named: dict[str, Value]) -> Mask:
    """A method of a mask."""
    given = [one.value for one in arguments if isinstance(one, Known)]
    if len(given) != len(arguments) or named:
        raise UnknownError(f"{name}() of a mask is called in a way that is not known")
    if value.kind == "array":
        match name, given:
            case "astype", [dtype]:
                return after(value, _astype, dtype)
            case "copy", []:
                return calculating.cleared(value)
            case "clip", [low, high]:
                return calculating.limited(value, low, high)
        raise UnknownError(f"{name}() of a mask is not known")
    match name, given:
        case _, [] if name in _CASTS:
            return after(calculating.plain(value), torch.Tensor.to, _CASTS[name], own=False)
        case "to", [torch.dtype() as dtype]:
            return after(value, torch.Tensor.to, dtype, own=False)  # stays a tv_tensors.Mask
        case "type", [torch.dtype() as dtype]:
            return after(calculating.plain(value), torch.Tensor.to, dtype, own=False)
        case "clone", []:
            return calculating.cleared(value)
        case _, [] if name in _NOTHING:
            return value if name != "contiguous" else calculating.plain(value)
        case (("clamp" | "clip"), [low, high]):
            return calculating.limited(value, low, high)
        case "squeeze", [0] if not value.flat:
            return replace(calculating.plain(value), flat=True)
        case "squeeze", [] if not value.flat:
            return replace(calculating.plain(value), flat=True, squeezed=True)
        case "unsqueeze", [0]:
            return unsqueezed(value)
        case _, [number] if name in _NUMBERS and type(number) in (int, float):
            return calculating.with_number(_NUMBERS[name], value, number, first=False)
    raise UnknownError(f"{name}() of a mask is not known")


def sliced(value: Mask, key: str, known: Known | None) -> Mask:
    """``mask[None]``, ``mask[np.newaxis, :, :]``: one dimension more, in front."""
    parts = key.strip("()").replace(" ", "").split(",")
    front = parts[0] in ("None", "np.newaxis") or known == Known(None)
    if not front or not set(parts[1:]) <= {":", "...", ""}:
        raise UnknownError("looks at a part of a mask")
    return unsqueezed(value)


def unsqueezed(value: Mask) -> Mask:
    """A mask of one channel."""
    if not value.flat or value.squeezed:
        raise UnknownError("gives a mask more dimensions than channels, height and width")
    return replace(calculating.plain(value), flat=False)


# Sizes.


def size(picture: Picture) -> tuple[Side, Side]:
    """Height and width of an image, of which only the kind was changed."""
    kinds = ("ToImage", "PILToTensor", "ToPureTensor")
    if any(_torchvision_name(step) not in kinds for step in picture.steps) or picture.turned:
        raise UnknownError("size of an image is not known")
    return Side(picture.path, "height"), Side(picture.path, "width")


def attribute(value: Value, name: str) -> Value:
    """An attribute of an image that says how large it is."""
    if isinstance(value, Picture):
        height, width = size(value) if name in ("size", "height", "width", "shape") else (None, None)
        if height is not None and width is not None:
            if value.kind == "pil" and name != "shape":
                found: dict[str, Value] = {
                    "size": Group(tuple, (width, height)),
                    "height": height,
                    "width": width,
                }
                return found[name]
            if name == "shape" and value.kind == "array" and value.mode in ("RGB", "BGR"):
                return Group(tuple, (height, width, Known(3)))
            tensor = value.kind in ("chw", "made") and value.mode == "RGB"
            if name == "shape" and tensor:
                return Group(tuple, (Known(3), height, width))
        raise UnknownError(f"{name} of an image is not known")
    raise UnknownError(f"{name} of {'a mask' if isinstance(value, Mask) else 'boxes'} is not known")


def boxes(
    data: Value, form: Value, canvas: Value, dtype: Value, text: Callable[[Value], str | None]
) -> Boxes:
    """``tv_tensors.BoundingBoxes(data, format=form, canvas_size=canvas, dtype=dtype)``."""
    form_name = getattr(getattr(form, "value", None), "value", getattr(form, "value", None))
    name = form_name.upper() if isinstance(form_name, str) else ""
    if name not in ("XYXY", "XYWH", "CXCYWH"):
        raise UnknownError("makes boxes of a format that is not known")
    match canvas:
        case Group(held, (Side(image, "height"), Side(other, "width"))) if image == other:
            pass
        case _:
            raise UnknownError("makes boxes of another canvas_size than the height and width of their image")
    if not isinstance(dtype, Known) or not isinstance(dtype.value, torch.dtype | None):
        raise UnknownError("makes boxes of a type that is not known")
    given = text(data)
    if given is None:
        raise UnknownError("makes boxes of something that is not known")
    return Boxes(Row(given), dtype.value, name, image, held)


# Transforms that are called on several things.


def called_together(function: Any, arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """What a transform gives that is called on an image with what belongs to it; None if it is no such call.

    Raises:
        UnknownError: It is one, of what does not move alike.
    """
    kind = type(function)
    house = kind.__module__.partition(".")[0]
    held = [*leaves(*arguments, *named.values())]
    given = (*arguments, *named.values())
    if house not in ("torchvision", "albumentations") or (len(given) == 1 and isinstance(given[0], Picture)):
        return None
    pictures = [value for value in held if isinstance(value, Picture)]
    if not pictures or not (house == "albumentations" or ".v2." in f"{kind.__module__}."):
        return None
    if house == "albumentations":
        return _augmented(function, arguments, named)
    if named or held[0] is not pictures[0]:
        raise UnknownError(f"calls {name_of(function)} on something else before the image")
    if len(pictures) > 1:
        raise UnknownError(
            f"calls {name_of(function)} on two images, of which torchvision resamples both alike; "
            "tv_tensors.Mask(mask) is moved as a mask"
        )
    if any(isinstance(value, Known) and not _is_fixed(value.value) for value in held):
        raise UnknownError(f"calls {name_of(function)} on an object that it may change")
    followers = [value for value in held if isinstance(value, Mask | Boxes)]
    if len(followers) > 1 or any(isinstance(value, Mask) and value.kind != "mask" for value in followers):
        raise UnknownError(f"calls {name_of(function)} on more than an image and its mask or boxes")
    if any(isinstance(value, Side) for value in held):
        raise UnknownError("size of an image is not known")
    made = tuple(_moved(value, Joint(function)) for value in arguments)
    return made[0] if len(made) == 1 else Group(tuple, made)


def _is_fixed(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | bytes)


def _moved(value: Value, joint: Joint) -> Value:
    if isinstance(value, Picture):
        return value.after(joint)
    if isinstance(value, Mask):
        return moved_mask(value, joint)
    if isinstance(value, Boxes):
        return replace(value, joint=(*value.joint, joint))
    if isinstance(value, Group):
        return Group(value.kind, tuple(_moved(item, joint) for item in value.items))
    if isinstance(value, Table):
        return Table({key: _moved(item, joint) for key, item in value.items.items()})
    return value


def moved_mask(value: Mask, joint: Joint) -> Mask:
    """A mask that a transform was called on, alone or with its image."""
    if not value.joint:
        value = replace(value, early=value.after, after=())
    elif value.after:
        if joint.draw is None:
            raise UnknownError("calculates with a mask between two transforms")
        # It makes no difference whether a mask is calculated with before it is flipped, or after that.
        value = replace(value, early=(*value.early, *value.after), after=())
    return replace(value, joint=(*value.joint, joint), memory=object())


def _augmented(function: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
    """What a pipeline of Albumentations gives of ``image=`` and ``mask=``."""
    image, found = named.get("image"), named.get("mask")
    if arguments or set(named) != {"image", "mask"}:
        raise UnknownError(f"calls {type(function).__name__} in another way than with image= and mask=")
    if not isinstance(image, Picture) or image.kind not in ("array", "made") or image.mode != "RGB":
        raise UnknownError(f"calls {type(function).__name__} on an image that is not known there")
    if not hasattr(function, "transforms"):
        raise UnknownError(f"calls {type(function).__name__} on an image and a mask")
    if not isinstance(found, Mask) or found.kind != "array" or not found.flat or found.squeezed:
        raise UnknownError(f"calls {type(function).__name__} on a mask that is not known there")
    joint = Joint(function)
    moved = _moved(found, joint)
    if isinstance(moved, Mask) and any(type(t).__name__ == "ToTensorV2" for t in function.transforms):
        moved = replace(moved, kind="tensor")
    return Table({"image": image.after(joint), "mask": moved})
