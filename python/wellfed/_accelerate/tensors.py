"""What is replaced of torchvision: transforms that have the pass that decodes write their tensor.

Invariant: tensors have torchvision's values, and transforms that somebody has changed or listens to run as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _native
from ..exceptions import WellfedError
from . import places, torchvision_io
from .images import CONVERTED, pillow
from .listening import of_library, unheard
from .steps import at_once

__all__ = ["OF_TORCHVISION", "compose_v1", "compose_v2"]


@functools.lru_cache(maxsize=64)
def _values(
    channels: int, divide: bool, mean: tuple[float, ...] | None, std: tuple[float, ...] | None
) -> _native.Values:
    return _native.Values(
        channels, divide, None if mean is None else list(mean), None if std is None else list(std)
    )


def _numbers(given: Any, channels: int) -> tuple[float, ...] | None:
    """What is given for all channels or for each, as timm does in a tensor; None if it is anything else."""
    import torch

    if type(given) is torch.Tensor and given.ndim == 1 and given.dtype is torch.float32 and given.is_cpu:
        given = given.tolist()
    if type(given) not in (list, tuple) or len(given) not in (1, channels):
        return None
    return tuple(given) if all(type(number) in (int, float) for number in given) else None


def _tensor(image: Any, normalize: Any = None, divide: bool = True) -> Any:
    """The tensor of an image of Pillow's that torchvision's `ToTensor` gives, and after it a `Normalize`.

    Unless `divide`, `ToImage` and `ToDtype` in place of `ToTensor`. None where torchvision is to do it.
    """
    import torch

    kinds = pillow()
    if torch.get_default_dtype() is not torch.float32:
        return None
    recipe = None
    if type(image) in kinds.kinds:
        if type(image) is not kinds.lazy:
            image = image._derived(image._mode) if image._mode in CONVERTED else None
        recipe = None if image is None else image.__dict__.get("_recipe")
        if recipe is None:
            return None
    elif type(image) is not kinds.image.Image or image.mode not in CONVERTED or 0 in image.size:
        return None
    channels = 1 if image.mode == "L" else 3
    mean = std = None
    if normalize is not None:
        mean, std = _numbers(normalize.mean, channels), _numbers(normalize.std, channels)
        if mean is None or std is None:
            return None
    try:
        values = _values(channels, divide, mean, std)
    except (WellfedError, OverflowError):
        return None
    if recipe is not None and not recipe.natively():
        return None
    # Pixels that others have worked on are converted at once.
    pixels: bytes = image.tobytes() if recipe is None else b""
    width, height = image.size
    tensor = places.tensor((channels, height, width))
    try:
        if recipe is None:
            values.write(pixels, width, height, tensor.data_ptr(), tensor.nbytes)
        else:
            recipe.picture.write_tensor(tensor.data_ptr(), tensor.nbytes, values)
    except WellfedError:
        return None
    return tensor


def _to_tensor(original: Any) -> Any:
    @functools.wraps(original)
    def to_tensor(pic: Any) -> Any:
        tensor = _tensor(pic)
        return original(pic) if tensor is None else tensor

    return to_tensor


def _is_timms(step: Any) -> bool:
    """Whether it is timm's `MaybeToTensor`, which is torchvision's of what is no tensor."""
    kind = type(step)
    return (
        kind.__module__ == "timm.data.transforms"
        and kind.__name__ == "MaybeToTensor"
        and of_library((kind.__call__,), "timm")
    )


def compose_v1(original: Any) -> Any:
    """`Compose.__call__` that has one pass do `ToTensor` and the `Normalize` right after it."""
    from torchvision.transforms import Normalize, ToTensor, functional

    def methods() -> Any:
        return ToTensor.__call__, Normalize.forward, functional.to_tensor, functional.normalize

    stock = methods()
    if not of_library(stock):
        return original

    @functools.wraps(original)
    def call(self: Any, img: Any) -> Any:
        steps = self.transforms
        if type(steps) not in (list, tuple) or methods() != stock:
            return original(self, img)
        kinds = pillow().kinds
        steps = iter(tuple(steps))
        for step in steps:
            if type(img) in kinds:
                made = at_once(step, img)
                if made is not None:
                    img = made
                    continue
            if type(step) is ToTensor or _is_timms(step):
                following = next(steps, None)
                if type(following) is Normalize and unheard(following):
                    tensor = _tensor(img, following)
                    if tensor is not None:
                        img = tensor
                        continue
                img = step(img)
                if following is None:
                    break
                step = following
            img = step(img)
        return img

    return call


def compose_v2(original: Any) -> Any:
    """`Compose.forward` that has one pass do `ToImage`, `ToDtype` and the `Normalize` right after them."""
    import torch
    from torchvision.transforms.v2 import Normalize, ToDtype, ToImage, functional
    from torchvision.tv_tensors import Image

    def methods() -> Any:
        of_steps = ToImage.transform, ToDtype.transform, Normalize.transform, Normalize.forward
        return *of_steps, functional.to_image, functional.to_dtype, functional.normalize

    stock = methods()
    if not of_library(stock):
        return original

    def known(steps: Any) -> bool:
        """Whether these are `ToImage` and `ToDtype` of the kind that the pass knows."""
        return (
            len(steps) == 2
            and type(steps[0]) is ToImage
            and type(steps[1]) is ToDtype
            and steps[1].dtype is torch.float32
            and steps[1].scale is True
            and unheard(*steps)
            and methods() == stock
        )

    @functools.wraps(original)
    def forward(self: Any, *inputs: Any) -> Any:
        steps = self.transforms
        if type(steps) not in (list, tuple) or len(inputs) != 1:
            return original(self, *inputs)
        (value,) = inputs
        kinds, plain = pillow().kinds, pillow().image.Image
        at = 0
        while at < len(steps):
            lazy = type(value) in kinds
            if lazy:
                made = at_once(steps[at], value)
                if made is not None:
                    value, at = made, at + 1
                    continue
            if (lazy or type(value) is plain) and known(steps[at : at + 2]):
                following: Any = steps[at + 2] if len(steps) > at + 2 else None
                together = type(following) is Normalize and not following.inplace and unheard(following)
                tensor = _tensor(value, following if together else None, divide=False)
                if tensor is not None:
                    value, at = Image(tensor), at + (3 if together else 2)
                    continue
            value, at = steps[at](value), at + 1
        return value

    return forward


OF_TORCHVISION: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("torchvision.transforms.functional", "to_tensor", _to_tensor),
    ("torchvision.transforms", "Compose.__call__", compose_v1),
    ("torchvision.transforms.v2", "Compose.forward", compose_v2),
    ("torchvision.io.image", "torch.ops.image.decode_jpeg", torchvision_io.replaced),
    ("torchvision.io.image", "torch.ops.image.decode_image", torchvision_io.replaced),
]
"""What is replaced of torchvision: the module, the name in it, and what makes the replacement of the original."""
