"""Kornia's names over wellfed's kernels: ``import wellfed.kornia as K`` for ``import kornia.augmentation as K``.

Classes have the parameters and defaults of ``kornia.augmentation`` (0.9). A chain is run as one
`wellfed.torch.Augment`: on a CUDA device in a few launches, with draws of its own for each image; on the CPU by the
engine, with the same bits. What is drawn has kornia's distribution, and follows from torch's default generator. What
kornia has and wellfed has not is refused with a ValueError that names the parameter.

Example:
    >>> import torch
    >>> import wellfed.kornia as K
    >>> augment = K.AugmentationSequential(
    ...     K.RandomHorizontalFlip(p=0.5),
    ...     K.RandomResizedCrop((24, 24), scale=(0.3, 1.0)),
    ...     K.RandomGrayscale(p=0.2),
    ... )
    >>> batch = augment(torch.rand(8, 3, 32, 40))
    >>> batch.shape, batch.dtype
    (torch.Size([8, 3, 24, 24]), torch.float32)

Pixels are those of wellfed's kernels, and so have 8 bits until `Normalize` or the end of the chain:

- uint8 images are taken as they are, which is fastest. Floating point images are rounded to 8 bits first, by at most
  half a level. They must lie from 0 to 1: others, and NaN, are an error. On a device only the first batch is waited
  for; of later ones the error comes with one of the next calls.
- There are no gradients: images that require them are an error.
- Resizes are Pillow's: shrinking is antialiased, and pixels lie at their centres, whatever ``align_corners`` says.
- Colours are Pillow's, with whole levels. The saturation of `ColorJiggle` and `RandomSaturation` is torchvision's.

``chain.explain(shape)`` says what a chain becomes, and where it is unlike kornia's.
"""

from __future__ import annotations

from typing import Any

from ._container import AugmentationSequential, ImageSequential
from ._geometric import (
    CenterCrop,
    RandomAffine,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
)
from ._intensity import (
    ColorJiggle,
    ColorJitter,
    Denormalize,
    Normalize,
    RandomBrightness,
    RandomContrast,
    RandomEqualize,
    RandomErasing,
    RandomGaussianBlur,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomPosterize,
    RandomSaturation,
    RandomSolarize,
)

__all__ = [
    "AugmentationSequential",
    "CenterCrop",
    "ColorJiggle",
    "ColorJitter",
    "Denormalize",
    "ImageSequential",
    "Normalize",
    "RandomAffine",
    "RandomBrightness",
    "RandomContrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomHue",
    "RandomInvert",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
]

_MIXING = ("RandomMixUp", "RandomMixUpV2", "RandomCutMix", "RandomCutMixV2")


def __getattr__(name: str) -> Any:
    """Says what to do about kornia's other classes."""
    text = f"module {__name__!r} has no attribute {name!r}"
    if name.startswith("_"):
        raise AttributeError(text)
    if name in _MIXING:
        raise AttributeError(
            f"{text}: kornia pairs and weighs each image by itself\n"
            "hint: wellfed.transforms.MixUp or CutMix, last in wellfed.torch.Augment; or kornia's, after the chain"
        )
    raise AttributeError(f"{text}\nhint: kornia's own can be called on what a chain returns")
