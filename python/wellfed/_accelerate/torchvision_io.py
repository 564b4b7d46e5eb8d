"""`torchvision.io` under acceleration: JPEGs are decoded by wellfed, in half the time, where the tensor is the same.

What torchvision checks and warns of stays its own: only the operators are replaced that its functions call in the end.
Invariant: tensors have torchvision's values, shape and strides. What is not known to come out so, its operators do.
"""

from __future__ import annotations

import ctypes
import functools
import io
import sys
from typing import Any

from .. import _native
from ..exceptions import WellfedError
from .images import here

__all__ = ["TESTED", "Operator", "replaced", "taken_over", "unusable"]

TESTED = ("0.29",)
"""Versions of torchvision that the tests were run with."""

_UNCHANGED, _GRAY, _RGB = 0, 1, 3
"""torchvision's numbers of modes."""


class Operator:
    """Stands for one of torchvision's operators: decodes JPEGs, and leaves the rest to it."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = (
            None
            if kwargs or not here.wanted() or len(args) not in (2, 3) or _is_tracing()
            else _decoded(*args)
        )
        return self._original(*args, **kwargs) if made is None else made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __repr__(self) -> str:
        return repr(self._original)


def _is_tracing() -> bool:
    """Whether calls are recorded, of which a tensor that comes from elsewhere would be a constant."""
    import torch

    return bool(torch.jit.is_tracing())


def replaced(original: Any) -> Any:
    """What an operator is replaced by: itself, where its pixels are not known."""
    return original if unusable(original) else _of(original)


@functools.cache
def _of(original: Any) -> Operator:
    """One object for each operator, which lives on: TorchScript knows operators by the number that an object has."""
    operator = Operator(original)
    try:
        from torch.jit._builtins import _find_builtin, _register_builtin

        name = _find_builtin(getattr(original, "_op", original))
        if name is not None:
            _register_builtin(operator, name)
    except ImportError:
        # Then a function that calls it cannot be scripted while acceleration is on.
        pass
    return operator


def taken_over() -> bool:
    """Whether acceleration replaces the operators of this torchvision, once it has been imported."""
    if "torchvision.io.image" not in sys.modules:
        return False
    import torch

    operator = getattr(torch.ops.image, "decode_jpeg", None)
    return operator is not None and (isinstance(operator, Operator) or not unusable(operator))


def _decoded(data: Any, mode: int, apply_orientation: bool = False) -> Any:
    """The tensor of a JPEG; None where torchvision is to make it."""
    import torch

    if type(data) is not torch.Tensor or data.dtype is not torch.uint8 or data.ndim != 1 or not data.is_cpu:
        return None
    if not data.is_contiguous() or mode not in (_UNCHANGED, _GRAY, _RGB):
        return None
    content = ctypes.string_at(data.data_ptr(), data.numel())
    head = _native.jpeg_head(content)
    if head is None:
        return None
    width, height, components, length = head
    grey = components == 1
    # Of colours torchvision's grey is the file's own brightness, and its inks are not Pillow's.
    if components == 4 or (mode == _GRAY and not grey):
        return None
    if apply_orientation and content.find(b"Exif", 0, length) >= 0:
        return None
    channels = 1 if grey and mode != _RGB else 3
    try:
        picture = _native.Picture.open(content, "L" if channels == 1 else "RGB")
        if picture is None or picture.size != (width, height):
            return None
        # As torchvision has it: pixels as they come, seen as channels first.
        pixels = torch.empty((height, width, channels), dtype=torch.uint8, device="cpu")
        picture.write_pixels(pixels.data_ptr(), pixels.nbytes)
    except WellfedError:
        return None
    return pixels.permute(2, 0, 1)


@functools.cache
def unusable(original: Any) -> str:
    """Why an operator of torchvision's is not replaced; empty if it is.

    The library that it decodes with depends on how it was built, so that a few pixels are compared.
    """
    import torch
    from PIL import Image
    from torchvision import __version__ as version

    if ".".join(version.split(".")[:2]) not in TESTED:
        return f"it was tested with torchvision {' and '.join(TESTED)}, and this is {version}"
    gradient = Image.linear_gradient("L")
    turned = gradient.transpose(Image.Transpose.ROTATE_90)
    image = Image.merge("RGB", (gradient, turned, gradient.rotate(30))).crop((11, 7, 70, 52))
    for options in (
        {"subsampling": 2, "quality": 60},
        {"subsampling": 1, "quality": 90},
        {"progressive": True},
    ):
        file = io.BytesIO()
        image.save(file, "JPEG", **options)
        data = torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)
        try:
            theirs = original(data, _RGB, False)
        except RuntimeError as error:
            return str(error)
        ours = _decoded(data, _RGB)
        if ours is None or not torch.equal(ours, theirs) or ours.stride() != theirs.stride():
            return (
                "torchvision was built with another JPEG library than libjpeg-turbo, so its pixels are others"
            )
    return ""
