"""What happens when a transform is called on one image, as torchvision's data sets call it.

Invariant: random parameters are drawn anew at each call, and the result is what torchvision's transform of this name
gives for the same kind of image: Pillow in, Pillow out, or a tensor where the transform makes one; a CHW tensor in, a
CHW tensor out. NumPy arrays are HWC and stay so. Batches of images on a CUDA device are transformed there, each image
with draws of its own.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _native
from ._loader import to_numpy, torch_converter

if TYPE_CHECKING:
    from .transforms import Transform

__all__ = ["call", "new_seed"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def new_seed() -> int:
    """A seed of 63 bits that no call had before.

    From torch's default generator if torch is imported: `torch.manual_seed` and the seeds of workers count then. Else
    from Python's `random`, which is seeded anew in a process that was forked.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return random.getrandbits(63)
    # Not random_(), which gives a default device the last word on where the number is made.
    return int(torch.randint(0, (1 << 63) - 1, (), dtype=torch.int64, device="cpu"))


def call(transform: Transform, image: Any, seed: int | None) -> Any:
    """``transform(image)``; see `Transform.__call__`."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(image, torch.Tensor):
        return _on_tensor(torch, transform, image, seed)
    if _is_pillow(image):
        return _on_pillow(transform, image, seed)
    array = np.asarray(image)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise TypeError(
            f"an image must be uint8 [height, width, channels], not {array.dtype} {list(array.shape)}"
            "\nhint: arrays of floating point numbers are transformed as tensors, which need torch and torchvision"
        )
    made = to_numpy(_run(transform, array[:, :, None] if array.ndim == 2 else array, seed))
    return tuple(made) if transform.several else made


def _run(transform: Transform, pixels: npt.NDArray[Any], seed: int | None) -> Any:
    """The engine's array, HWC, of HWC pixels; of several images, one behind the other."""
    if seed is None:
        # Only where it is needed: what is drawn here, nobody else sees.
        seed = new_seed() if transform.random else 0
    return _native.apply(json.dumps(transform.to_plan()), np.ascontiguousarray(pixels), seed)


def _is_pillow(image: Any) -> bool:
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def _on_pillow(transform: Transform, image: Any, seed: int | None) -> Any:
    if image.mode not in _MODES.values():
        raise TypeError(
            f"a Pillow image has mode {image.mode!r}; {type(transform).__name__} knows RGB, L and RGBA"
            '\nhint: image.convert("RGB")'
        )
    pixels = np.asarray(image)
    result = _run(transform, pixels[:, :, None] if pixels.ndim == 2 else pixels, seed)
    kind = _made(transform)
    if kind is not None:
        tensor = _channels_first(result)
        if transform.several:
            return tuple(_wrapped(one, kind) for one in tensor)
        return _wrapped(tensor, kind)
    array: npt.NDArray[Any] = to_numpy(result)
    return tuple(map(_pillow, array)) if transform.several else _pillow(array)


def _pillow(array: npt.NDArray[Any]) -> Any:
    height, width, channels = array.shape
    return sys.modules["PIL.Image"].frombytes(_MODES[channels], (width, height), array)


def _on_tensor(torch: Any, transform: Transform, image: Any, seed: int | None) -> Any:
    kinds: Any = sys.modules.get("torchvision.tv_tensors")
    special = kinds is not None and isinstance(image, kinds.TVTensor)
    if special and not isinstance(image, kinds.Image | kinds.Video):
        raise TypeError(
            f"{type(transform).__name__} was called on a {type(image).__name__}, but it is called on images"
            "\nhint: torchvision.transforms.v2 transforms images together with boxes and masks"
        )
    if image.is_cuda:
        made = _on_device(torch, transform, image, seed)
        if made is not None:
            return kinds.wrap(made, like=image) if special else _wrapped(made, _made(transform))
    if image.dtype != torch.uint8 or image.device.type != "cpu" or image.ndim < 3:
        return _torchvisions(transform)(image)
    if seed is None and image.ndim > 3:
        seed = new_seed() if transform.random else 0  # one for all images of a batch, as in torchvision
    given = image.as_subclass(torch.Tensor) if type(image) is not torch.Tensor else image
    flat = given.reshape(-1, *given.shape[-3:])
    if not len(flat):
        return _torchvisions(transform)(image)
    made = [_channels_first(_run(transform, one.permute(1, 2, 0).numpy(), seed)) for one in flat]

    def finish(each: Sequence[Any]) -> Any:
        result = each[0] if given.ndim == 3 else torch.stack(each).reshape(*given.shape[:-3], *each[0].shape)
        return kinds.wrap(result, like=image) if special else _wrapped(result, _made(transform))

    return tuple(map(finish, zip(*made, strict=True))) if transform.several else finish(made)


def _on_device(
    torch: Any, transform: Transform, image: Any, seed: int | None, kernels: bool = True
) -> Any | None:
    """What kernels make of a batch on a CUDA device, each image with draws of its own; None if they do not.

    With `kernels` False the engine makes it: for tests, where images may lie on the CPU.
    """
    if image.dtype != torch.uint8 or image.ndim != 4 or image.shape[1] not in (1, 3) or transform.several:
        return None
    from .torch._augment import on_batch

    if seed is None:
        seed = new_seed() if transform.random else 0
    given = image.as_subclass(torch.Tensor) if type(image) is not torch.Tensor else image
    return on_batch(transform, given, seed, kernels)


def _made(transform: Transform) -> str | None:
    """What a Pillow image becomes: ``"tensor"``, ``"image"`` (a tv_tensors.Image), or None: it stays one."""
    kind: str | None = None
    for step in transform.steps():
        kind = "image" if step.makes == "image" else kind or step.makes
    return kind


def _channels_first(result: Any) -> Any:
    """The engine's array as a CHW tensor, or several of them as one."""
    return torch_converter()(result).movedim(-1, -3).contiguous()


def _wrapped(tensor: Any, kind: str | None) -> Any:
    """The tensor, as a tv_tensors.Image if it is to be one and torchvision is there."""
    if kind != "image":
        return tensor
    try:
        from torchvision.tv_tensors import Image
    except ImportError:
        return tensor
    return Image(tensor)


def _torchvisions(transform: Transform) -> Any:
    """Torchvision's transform of this name: for what the engine has no pixels for."""
    try:
        from torchvision.transforms import v2
    except ImportError:
        raise TypeError(
            f"{type(transform).__name__} was called on a tensor that is no uint8 image [channels, height, width] on "
            "the CPU\nhint: install torchvision, which transforms such tensors"
        ) from None
    return transform.as_torchvision(v2)
