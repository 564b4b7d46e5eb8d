"""Advice to put a transform elsewhere is given only where every image stays what it would have been."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchvision")
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from wellfed.torch._lower.advice import commute, reordered

FLIPS = [
    v1.RandomHorizontalFlip(1),
    v1.RandomVerticalFlip(1),
    v2.RandomHorizontalFlip(1),
    v2.RandomVerticalFlip(1),
]
ALIKE = [
    v1.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v1.Grayscale(3),
    v1.RandomAutocontrast(1),
    v1.RandomEqualize(1),
    v1.RandomInvert(1),
    v1.RandomPosterize(3, 1),
    v1.RandomSolarize(100, 1),
    v1.ToTensor(),
    v1.PILToTensor(),
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v2.RandomPhotometricDistort(p=1),
    v2.RandomChannelPermutation(),
    v2.RGB(),
    v2.ToImage(),
]
OTHERS = [
    v1.RandomCrop(8),
    v1.Resize(9),
    v1.RandomRotation(20),
    v1.GaussianBlur(3),
    v1.Lambda(lambda image: image),
    v1.RandomPerspective(),
    v1.Pad(2),
]


class Own(v1.ColorJitter):
    pass


def image() -> Image.Image:
    return Image.fromarray(np.random.default_rng(3).integers(0, 256, (13, 17, 3), dtype=np.uint8))


def array(value: Any) -> Any:
    return np.asarray(v2.functional.pil_to_tensor(value) if isinstance(value, Image.Image) else value)


@pytest.mark.parametrize(
    "other", ALIKE, ids=lambda t: f"{type(t).__module__.split('.')[2]}.{type(t).__name__}"
)
@pytest.mark.parametrize("flip", FLIPS[::3], ids=["horizontal", "vertical"])
def test_a_flip_gives_the_same_before_and_behind(flip: Any, other: Any) -> None:
    assert commute(flip, other)

    def seeded(value: Any) -> Any:
        torch.manual_seed(5)
        return other(value)

    behind = array(flip(seeded(image())))
    before = array(seeded(flip(image())))
    # Means over the image are added up in another order.
    assert behind.dtype == before.dtype
    assert np.abs(behind.astype(float) - before.astype(float)).max() <= (
        1 if behind.dtype == np.uint8 else 1e-6
    )


@pytest.mark.parametrize("other", [*OTHERS, Own(0.4)], ids=lambda t: type(t).__name__)
def test_nothing_is_said_of_other_orders(other: Any) -> None:
    assert not any(commute(flip, other) for flip in FLIPS)
    assert not any(commute(other, alike) for alike in ALIKE)


def test_advice_to_move_is_kept_for_flips_behind_conversions_only() -> None:
    words = "put it before ToTensor"
    normalize = v1.Normalize([0.5], [0.5])
    assert reordered(words, [v1.Resize(9), v1.ToTensor(), normalize, FLIPS[0]], 3) == words
    assert reordered(words, [v1.ToTensor(), v1.Resize(9), FLIPS[0]], 2) == ""
    assert reordered(words, [v1.ToTensor(), normalize, v1.RandomRotation(9)], 2) == ""
    assert reordered(words, [FLIPS[0]], 0) == ""
    assert reordered("antialias=True", [v1.Resize(9)], 0) == "antialias=True"
