"""What timm's automatic augmentations become: `TimmAugment`. `wellfed.torch` makes it from a transform of timm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _arguments as check
from ._transform import Transform

__all__ = ["TimmAugment"]

Op = tuple[str, float, float]


class TimmAugment(Transform):
    """Draws some of several policies and does the operations of each: timm's RandAugment, AutoAugment and AugMix.

    For images of 1 or 3 channels; pixels are those that Pillow gives timm. Samples with masks, boxes or points are
    refused.

    Args:
        policies: What is drawn from: each a list of operations, ``(name, probability, magnitude)`` by timm's names.
        num_layers: How many policies are drawn; of a mix for each chain, where -1 draws 1 to 3.
        weights: How likely each policy is; then none is drawn twice. None: all alike.
        magnitude_std: Standard deviation of magnitudes around the given one.
        uniform: Draw magnitudes from 0 to the given one instead.
        magnitude_max: Greatest magnitude.
        translate_const: Pixels that ``TranslateX`` moves by at magnitude 10.
        translate_pct: Share of its side that ``TranslateXRel`` moves an image by at magnitude 10.
        interpolation: nearest, bilinear or bicubic, or two of them, of which one is drawn.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        mix: ``{"alpha": ..., "width": ..., "blended": ...}`` mixes the image with several chains, as AugMix does.

    Example:
        >>> import numpy as np
        >>> TimmAugment([[("Invert", 1, 0)]])(np.array([[0, 200]], np.uint8))[0, :, 0]
        array([255,  55], dtype=uint8)
    """

    _random = True
    policies: tuple[tuple[Op, ...], ...]
    num_layers: int
    weights: tuple[float, ...] | None
    magnitude_std: float
    uniform: bool
    magnitude_max: float
    translate_const: float
    translate_pct: float
    interpolation: str | tuple[str, ...]
    fill: float | tuple[float, ...]
    mix: dict[str, Any] | None

    def __init__(
        self,
        policies: Sequence[Sequence[Sequence[Any]]],
        num_layers: int = 1,
        weights: Sequence[float] | None = None,
        magnitude_std: float = 0.0,
        uniform: bool = False,
        magnitude_max: float = 10.0,
        translate_const: float = 250.0,
        translate_pct: float = 0.45,
        interpolation: Any = ("bilinear", "bicubic"),
        fill: float | Sequence[float] = 128,
        mix: dict[str, Any] | None = None,
    ) -> None:
        self._set(
            policies=tuple(tuple(_op(op) for op in policy) for policy in policies),
            num_layers=int(num_layers),
            weights=None if weights is None else tuple(float(weight) for weight in weights),
            magnitude_std=check.number(magnitude_std, "magnitude_std"),
            uniform=bool(uniform),
            magnitude_max=check.number(magnitude_max, "magnitude_max"),
            translate_const=check.number(translate_const, "translate_const"),
            translate_pct=check.number(translate_pct, "translate_pct"),
            interpolation=check.filters(interpolation, check.sampling),
            fill=check.fill(fill),
            mix=None if mix is None else dict(mix),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Refuses: only images of 8 bits can be transformed."""
        raise TypeError("TimmAugment is there for images of 8 bits: torchvision has none like it")


def _op(op: Sequence[Any]) -> Op:
    name, probability, magnitude = op
    return str(name), check.probability(probability), check.number(magnitude, "magnitude")
