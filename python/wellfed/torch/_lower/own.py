"""Transforms of wellfed in the ``transform`` of a data set, also among torchvision's.

Invariant: the engine does what calling the transform does: Pillow's pixels for images of 8 bits; of floating point
tensors, which calling leaves to torchvision, only what the engine does alike.
"""

from __future__ import annotations

from dataclasses import replace

from wellfed import transforms as T

from .crops import STACKED_BEHIND
from .forms import Form, RefusalError

__all__ = ["is_own", "lower_own"]

_ON_FLOATS = (T.Normalize, T.GaussianNoise, T.RandomErasing, T.ToImage, T.ToTensor, T.PILToTensor, T.Identity)
_SIZED = (T.CenterCrop, T.RandomCrop, T.RandomResizedCrop)


def is_own(transform: object) -> bool:
    """Whether it is a transform of exactly one of wellfed's types, called as that is."""
    kind = type(transform)
    return (
        isinstance(transform, T.Transform)
        and getattr(T, kind.__name__, None) is kind
        and kind.__call__ is T.Transform.__call__
    )


def lower_own(t: T.Transform, form: Form) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for it, and what the image is then."""
    if t.several:
        raise RefusalError("makes several images of one", STACKED_BEHIND)
    if form.dtype != "uint8" and not isinstance(t, _ON_FLOATS):
        raise RefusalError(
            f"stands on {form}; the engine does it to 8-bit images",
            "put it before ToTensor or ToDtype",
        )
    after = replace(form, sized=_sized(t, form))
    if isinstance(t, T.Grayscale):
        return [t], replace(after, mode="L" if t.num_output_channels == 1 else "RGB"), ""
    if isinstance(t, T.ToTensor):
        return ([t], _made(after, "float32"), "") if form.dtype == "uint8" else ([], form, "does nothing")
    if isinstance(t, T.ToDtype):
        return ([], form, "does nothing") if t.dtype == "uint8" else ([t], _made(after, t.dtype), "")
    if isinstance(t, T.ToImage):
        return [t], form if form.kind == "array" else form.turned("image"), ""
    if isinstance(t, T.PILToTensor):
        return [t], _made(after, form.dtype), ""
    return [t], after, ""


def _made(form: Form, dtype: str) -> Form:
    """The image as a tensor; arrays stay arrays, and a ``tv_tensors.Image`` stays one."""
    return form.turned("tensor" if form.kind == "pil" else form.kind, dtype)


def _sized(t: T.Transform, form: Form) -> bool:
    if isinstance(t, T.RandomRotation):
        return form.sized and not t.expand
    return form.sized or isinstance(t, _SIZED) or (isinstance(t, T.Resize) and isinstance(t.size, tuple))
