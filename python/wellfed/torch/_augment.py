"""`Augment`: transforms on batches of images where these lie, on a CUDA device or on the CPU.

Invariant: an image gets the pixels that the CPU gives it for the same seed, epoch and index, bit for bit. On a device
all is submitted to the current stream of the caller, with memory of torch's own allocator: nothing waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from .. import _native
from .._called import new_seed
from .._transform import Compose, Transform

__all__ = ["Augment"]

_HINT = "\nhint: batches are uint8 tensors (images, channels, height, width) with 1 or 3 channels"


class Augment:
    """Runs transforms on batches of images, with draws of its own for each image.

    A batch is transformed where it lies: on a CUDA device by a few launches in the current stream, without waiting for
    it; on the CPU by the engine. Both give the same bits. Transforms that have no kernel on a device (sharpness,
    `ElasticTransform`, `JPEG` and the like) are refused on both, with a hint: run those in the ``map()`` of the data set.

    Args:
        transform: A `wellfed.transforms.Transform`, or several one after the other.
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
        self.transform = transform if isinstance(transform, Transform) else Compose(transform)
        if self.transform.on_batches:
            raise TypeError(
                f"{self.transform!r} mixes images of a batch, and Augment transforms each by itself"
                "\nhint: call MixUp or CutMix on what Augment returns, with the labels"
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

    def __call__(
        self, images: torch.Tensor, indices: Sequence[int] | torch.Tensor | None = None
    ) -> torch.Tensor:
        """The transformed images: a new tensor on the same device.

        Args:
            images: uint8 ``[images, channels, height, width]`` with 1 or 3 channels, contiguous or not.
            indices: Numbers of the images in their data set, which draws depend on beside seed and epoch. Without them
                images are counted as they come, in `seen`.

        Raises:
            TypeError: For other tensors, and for indices on a device, which it would have to wait for.
            ValueError: For other numbers of indices than images, and for transforms that a device does not have.
        """
        return self._run(images, indices, kernels=getattr(images, "is_cuda", False))

    def _run(self, images: torch.Tensor, indices: Any, kernels: bool) -> torch.Tensor:
        """Beside `__call__`, on the CPU with the kernels of a device as well: for tests."""
        _check(images)
        numbers = self._numbers(len(images), indices)
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
        if count == 0:
            return out
        if kernels:
            _submit(made, images, numbers, self.epoch, out)
        else:
            images = images.contiguous()
            made.run(numbers, self.epoch, images.data_ptr(), out.data_ptr())
        return out

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
