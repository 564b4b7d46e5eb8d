"""`ToBytes`: images of floating point numbers from 0 to 1, as kernels take them.

Invariant: what is not from 0 to 1 is an error. On the CPU, and of the first batch on a device, it is raised before
anything is made of the batch. Later batches on a device are looked at without waiting for it: their error comes with
one of the next calls.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["ToBytes"]

_SLACK = 1e-3
"""What arithmetic may leave outside of 0 to 1: less than half a step of 8 bits, and rounded away with it."""


class ToBytes:
    """Rounds images to 8 bits."""

    def __init__(self) -> None:
        """Has seen no images."""
        self._range: Any = None
        """Least and greatest value of all later batches on a device, there."""
        self._copy: Any = None
        """The range on its way to the host, and the event after which it is there."""
        self._seen = False

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 of the same shape and memory format.

        Raises:
            ValueError: For values that are not from 0 to 1, and for images that gradients are asked of.
        """
        if images.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "images require gradients, and images of 8 bits have none\nhint: images.detach(), or kornia's own"
            )
        images = images.detach()
        if images.numel():
            self._look(images, waits=not (images.is_cuda and self._seen))
        if images.dtype in (torch.float16, torch.bfloat16):
            images = images.float()
        return images.mul(255).add_(0.5).to(torch.uint8)

    def _look(self, images: torch.Tensor, waits: bool) -> None:
        found = torch.stack(images.aminmax())
        if waits:
            _check(found)
            self._seen = True
            return
        if self._range is None or self._range.device != found.device:
            self._range = found
        else:
            # No number stays no number.
            low, high = torch.minimum(self._range[0], found[0]), torch.maximum(self._range[1], found[1])
            self._range = torch.stack([low, high])
        if self._copy is None:
            self._copy = _start_copy(self._range)
        elif self._copy[1].query():
            copied, latest = self._copy[0], self._range
            self._copy = self._range = None
            _check(copied)
            self._range, self._copy = latest, _start_copy(latest)


def _start_copy(values: torch.Tensor) -> tuple[torch.Tensor, Any]:
    host = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
    host.copy_(values, non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(values.device))
    return host, event


def _check(values: torch.Tensor) -> None:
    low, high = (float(value) for value in values.tolist())
    if low >= -_SLACK and high <= 1 + _SLACK:
        return
    if low != low:
        raise ValueError("images hold NaN; must be numbers from 0 to 1")
    hint = (
        "augment images before they are normalized: Normalize may be the last of the chain"
        if low < -_SLACK
        else "give images of uint8 as they are, which is faster, or images / 255"
    )
    raise ValueError(f"images are from {low:g} to {high:g}; must be from 0 to 1\nhint: {hint}")
