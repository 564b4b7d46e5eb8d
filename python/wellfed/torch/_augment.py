"""`Augment`: transforms on batches of images where these lie, on a CUDA device or on the CPU.

Invariant: an image gets the pixels that the CPU gives it for the same seed, epoch and index, bit for bit. On a device
all is submitted to the current stream of the caller, with memory of torch's own allocator: nothing waits.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, overload

import torch

from .. import _native
from .._called import new_seed
from .._transform import Compose, Transform
from ..exceptions import ConfigError

__all__ = ["Augment"]

_MOST_MIXING = 64
"""Transforms of batches, at most: each has a stage of its own among the draws."""

_HINT = "\nhint: batches are uint8 tensors (images, channels, height, width) with 1 or 3 channels"


class Augment:
    """Runs transforms on batches of images, with draws of its own for each image.

    A batch is transformed where it lies: on a CUDA device by a few launches in the current stream, without waiting for
    it; on the CPU by the engine. Both give the same bits. Transforms that have no kernel on a device (sharpness,
    `ElasticTransform`, `JPEG` and the like) are refused on both, with a hint: run those in the ``map()`` of the
    data set.

    Args:
        transform: A `wellfed.transforms.Transform`, or several one after the other. The last ones may be of batches
            (`MixUp`, `CutMix`, a choice of them): then labels are given as well.
        seed: What draws depend on, 0 to 2**64 - 1. None takes one from torch's default generator. Processes of one
            training should have different ones, or give `indices`.
        channels_last: Whether finished batches have ``memory_format=torch.channels_last``. None keeps that of the
            images.

    Example:
        >>> import torch
        >>> from wellfed import transforms as T
        >>> from wellfed.torch import Augment
        >>> augment = Augment(
        ...     [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)], seed=0
        ... )
        >>> images = torch.randint(0, 256, (8, 3, 32, 40), dtype=torch.uint8)
        >>> batch = augment(images)
        >>> batch.shape, batch.dtype
        (torch.Size([8, 3, 24, 24]), torch.float32)
    """

    def __init__(
        self,
        transform: Transform | Sequence[Transform],
        seed: int | None = None,
        channels_last: bool | None = None,
    ) -> None:
        """Makes a plan with the first batch of each size."""
        chain = [transform] if isinstance(transform, Transform) else list(transform)
        first = next((at for at, one in enumerate(chain) if one.on_batches), len(chain))
        chain, self.mixing = chain[:first], tuple(chain[first:])
        """What is done to finished batches and their labels."""
        if not all(one.on_batches for one in self.mixing):
            late = next(one for one in self.mixing if not one.on_batches)
            raise TypeError(
                f"{late!r} comes after {self.mixing[0]!r}, which mixes images of a batch"
                "\nhint: put MixUp and CutMix last"
            )
        if len(self.mixing) > _MOST_MIXING:
            raise ValueError(
                f"there are {len(self.mixing)} transforms of batches; at most {_MOST_MIXING} can be"
            )
        self.transform = (
            chain[0] if len(chain) == 1 else Compose(chain or [Transform.from_plan({"type": "Identity"})])
        )
        if seed is not None and not 0 <= seed < 1 << 64:
            raise ValueError(f"seed is {seed}; must be 0 to 2**64 - 1")
        self.seed = new_seed() if seed is None else seed
        self.channels_last = channels_last
        self.epoch = 0
        """Draws are those of this epoch: count it up where `indices` come again."""
        self.seen = 0
        """Images so far: the index of the next one, where `indices` are not given."""
        self._plan = json.dumps(self.transform.to_plan())
        _native.check_transform(self._plan)
        self._made: dict[tuple[int, int, int, bool], _native.Augmentation] = {}

    @overload
    def __call__(
        self, images: torch.Tensor, indices: Sequence[int] | torch.Tensor | None = None, labels: None = None
    ) -> torch.Tensor: ...
    @overload
    def __call__(
        self,
        images: torch.Tensor,
        indices: Sequence[int] | torch.Tensor | None = None,
        *,
        labels: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...
    def __call__(
        self,
        images: torch.Tensor,
        indices: Sequence[int] | torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """The transformed images, a new tensor on the same device; and labels, if they are mixed.

        Args:
            images: uint8 ``[images, channels, height, width]`` with 1 or 3 channels, contiguous or not.
            indices: Numbers of the images in their data set, which draws depend on beside seed and epoch. Without them
                images are counted as they come, in `seen`.
            labels: With `MixUp` or `CutMix`, and only then: int64 ``[images]``, numbers of classes; or float32
                ``[images, classes]``, probabilities. What is drawn for a batch depends on seed, epoch and the index of
                its first image. Labels become float32 ``[images, classes]`` where they are mixed, on their own device.

        Raises:
            TypeError: For other tensors, and for indices on a device, which it would have to wait for.
            ValueError: For other numbers of indices than images, and for transforms that a device does not have.
        """
        kernels = getattr(images, "is_cuda", False)
        if not self.mixing:
            if labels is not None:
                raise TypeError("labels are given, and nothing mixes them\nhint: put MixUp or CutMix last")
            return self._run(images, indices, kernels)
        if labels is None:
            raise TypeError(f"{self.mixing[0]!r} mixes labels as well\nhint: augment(images, labels=labels)")
        return self._mixed(images, indices, labels, kernels)

    def _mixed(
        self, images: torch.Tensor, indices: Any, labels: torch.Tensor, kernels: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _check(images)
        classes = _check_labels(labels, len(images), self.mixing)
        numbers = self._numbers(len(images), indices)
        made = self._run(images, numbers, kernels)
        if len(made) == 0:
            return made, labels
        plan = json.dumps([one.to_plan() for one in self.mixing])
        size = (made.shape[2], made.shape[3])
        blends = _native.draw_blends(plan, size, self.seed, self.epoch, numbers[0])
        if not made.is_floating_point() and any(corners is None for _, corners in blends):
            raise TypeError(
                f"MixUp works on floating point images, and these end as {made.dtype}"
                '\nhint: put ToDtype("float32", scale=True) before it'
            )
        # A batch of one channel or one pixel is laid out both ways.
        planar = made.is_contiguous()
        index = made.device.index if made.is_cuda else None
        stream = torch.cuda.current_stream(made.device).cuda_stream if made.is_cuda else 0
        dtype = str(made.dtype).removeprefix("torch.")
        for weight, corners in blends:
            shape = list(made.shape[1:])
            _native.mix_images(
                index, stream, made.data_ptr(), len(made), shape, dtype, planar, weight, corners
            )
            if labels.ndim == 1:
                rows = torch.zeros(len(labels), classes, dtype=torch.float32, device=labels.device)
                labels = rows.scatter_(1, labels[:, None], 1.0)
            labels = labels.roll(1, 0).mul_(1.0 - weight).add_(labels.mul(weight))
        return made, labels

    def _run(self, images: torch.Tensor, indices: Any, kernels: bool) -> torch.Tensor:
        """Beside `__call__`, on the CPU with the kernels of a device as well: for tests."""
        _check(images)
        numbers = self._numbers(len(images), indices)
        made, out = self._prepare(images)
        if len(out) == 0:
            return out
        if kernels:
            _submit(made, images, numbers, self.epoch, out)
        else:
            images = images.contiguous()
            made.run(numbers, self.epoch, images.data_ptr(), out.data_ptr())
        return out

    def _prepare(self, images: torch.Tensor) -> tuple[_native.Augmentation, torch.Tensor]:
        """What is done to images of this size, and memory for the finished ones."""
        count, channels, height, width = images.shape
        last = self.channels_last
        if last is None:
            last = not images.is_contiguous() and images.is_contiguous(memory_format=torch.channels_last)
        key = (channels, height, width, last)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = _native.Augmentation(self._plan, key[:3], last, self.seed)
        *sides, dtype = made.output
        out = torch.empty(
            (count, *sides),
            dtype=getattr(torch, dtype),
            device=images.device,
            memory_format=torch.channels_last if last else torch.contiguous_format,
        )
        return made, out

    def _numbers(self, count: int, indices: Any) -> list[int]:
        if indices is None:
            first, self.seen = self.seen, self.seen + count
            return list(range(first, first + count))
        if isinstance(indices, torch.Tensor):
            if indices.device.type != "cpu":
                raise TypeError(
                    f"indices are on {indices.device}: reading them there would wait for the device\n"
                    "hint: keep them on the CPU, where they come from"
                )
            indices = indices.tolist()
        numbers = [int(index) for index in indices]
        if min(numbers, default=0) < 0:
            raise ValueError(f"indices begin with 0, and {min(numbers)} is among them")
        if len(numbers) != count:
            raise ValueError(f"there are {len(numbers)} indices for {count} images")
        return numbers

    def __getstate__(self) -> dict[str, Any]:
        """What it is and where it stands; plans are made anew."""
        return {**self.__dict__, "_made": {}}

    def __repr__(self) -> str:
        return f"Augment({self.transform!r}, seed={self.seed}, channels_last={self.channels_last})"


_NOW_AND_THEN = ("RandAugment", "TrivialAugmentWide", "AutoAugment")
"""Transforms that draw what kernels have, and now and then what they do not (sharpness)."""


@functools.lru_cache(maxsize=64)
def _for_calls(transform: Transform) -> Augment:
    return Augment(transform, seed=0)


def on_batch(
    transform: Transform, images: torch.Tensor, seed: int, kernels: bool = True
) -> torch.Tensor | None:
    """What `transform`, called on a batch on a CUDA device, makes of it: each image with draws of its own.

    Args:
        transform: One that makes one image of each.
        images: uint8 ``[images, channels, height, width]`` with 1 or 3 channels.
        seed: What draws depend on, beside the number of the image in the batch.
        kernels: Whether the kernels make it, or the engine on the CPU: for tests.

    Returns:
        A new tensor there; None if the device has no kernels for the transform.
    """
    augment = _for_calls(transform)
    try:
        made, out = augment._prepare(images)
    except ConfigError:
        return None
    if len(out) == 0:
        return out
    numbers = list(range(len(images)))
    if kernels:
        try:
            _submit(made, images, numbers, seed, out)
            return out
        except ConfigError as error:
            if error.stage not in _NOW_AND_THEN:
                return None
            # An image drew what kernels do not have: the CPU has the same draws and pixels.
    given = images.cpu().contiguous()
    host = torch.empty_like(out, device="cpu")
    made.run(numbers, seed, given.data_ptr(), host.data_ptr())
    return out.copy_(host)


def _classes(transforms: Sequence[Transform]) -> int | None:
    """What `num_classes` says of the first of them that says it."""
    for one in transforms:
        found = getattr(one, "num_classes", None) or _classes(getattr(one, "transforms", ()))
        if found is not None:
            return int(found)
    return None


def _check_range(labels: torch.Tensor, classes: int) -> None:
    outside = ((labels < 0) | (labels >= classes)).nonzero()
    if len(outside):
        at = int(outside[0])
        raise ValueError(
            f"labels[{at}] is {int(labels[at])}; must be from 0 to {classes - 1} with num_classes={classes}"
        )


def _check_labels(labels: torch.Tensor, count: int, mixing: Sequence[Transform]) -> int:
    """How many classes there are."""
    what = f"labels are {getattr(labels, 'dtype', type(labels).__name__)} of shape {list(getattr(labels, 'shape', ()))}"
    if not isinstance(labels, torch.Tensor) or len(labels) != count:
        raise TypeError(f"{what}, for {count} images")
    classes = _classes(mixing)
    if labels.dtype == torch.int64 and labels.ndim == 1:
        if classes is None:
            raise ValueError("num_classes must be passed if the labels are index-based (1D)")
        # On a device a look would wait for it: there torch's own assertion fails, as under torchvision's transforms.
        if not labels.is_cuda:
            _check_range(labels, classes)
        return classes
    if labels.dtype != torch.float32 or labels.ndim != 2:
        raise TypeError(f"{what}; they must be int64 [images] or float32 [images, num_classes]")
    if classes is not None and classes != labels.shape[1]:
        raise ValueError(f"labels have {labels.shape[1]} classes, and num_classes is {classes}")
    return int(labels.shape[1])


def _check(images: torch.Tensor) -> None:
    if not isinstance(images, torch.Tensor):
        raise TypeError(f"Augment was called on a {type(images).__name__}{_HINT}")
    if images.dtype != torch.uint8 or images.ndim != 4 or images.layout != torch.strided:
        raise TypeError(f"Augment was called on {images.dtype} of shape {list(images.shape)}{_HINT}")
    if images.device.type not in ("cpu", "cuda"):
        raise TypeError(
            f"Augment was called on images on {images.device}; it knows CUDA devices and the CPU"
            "\nhint: call it before the images are copied there"
        )


def _submit(
    made: _native.Augmentation, images: torch.Tensor, numbers: list[int], epoch: int, out: torch.Tensor
) -> None:
    """Submits the kernels for `images` to the current stream of their device."""
    submit(made.plan(numbers, epoch, images.data_ptr(), list(images.stride()), out.data_ptr()), images.device)


def submit(plan: _native.AugmentPlan, device: torch.device) -> None:
    """Submits the launches of a plan to the current stream of the device that its images are on."""
    on_cuda = device.type == "cuda"
    # On a device memory comes at multiples of 512, and in the host's at multiples of 64.
    memory = torch.empty(plan.memory, dtype=torch.uint8, device=device)
    scratch = torch.empty(plan.scratch, dtype=torch.uint8, device=device)
    # Pinned memory goes back to torch's cache, which gives it again once the copy is done.
    given = torch.empty(plan.copied, dtype=torch.uint8, pin_memory=True) if on_cuda else memory
    plan.write(given.data_ptr(), given.nbytes)
    if on_cuda:
        memory[: plan.copied].copy_(given, non_blocking=True)
    stream = torch.cuda.current_stream(device).cuda_stream if on_cuda else 0
    index = torch.cuda.current_device() if on_cuda and device.index is None else device.index
    plan.run(index if on_cuda else None, stream, memory.data_ptr(), scratch.data_ptr())
