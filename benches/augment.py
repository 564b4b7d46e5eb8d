"""Automatic augmentations: torch's DataLoader at its best of several worker counts against feed.

Data are photographs in an `ImageFolder`, transformed as torchvision's classification references do it.

    python benches/augment.py [FOLDER] [--rounds 5] [--count 400] [--out FILE.json]

FOLDER holds classes of photographs; without it, some are made.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torchvision.transforms as v1
from torch.utils.data import DataLoader, Subset
from torchvision import datasets
from torchvision.transforms import v2

import wellfed as wf
from vision import arguments, compare, pictures

BATCH, SIZE = 32, 224


def presets(module: Any) -> dict[str, Any]:
    """The references' chains, by the augmentation that they have."""
    augmentations = {
        "RandAugment": module.RandAugment(interpolation=v1.InterpolationMode.BILINEAR, magnitude=9),
        "TrivialAugmentWide": module.TrivialAugmentWide(interpolation=v1.InterpolationMode.BILINEAR),
        "AutoAugment": module.AutoAugment(interpolation=v1.InterpolationMode.BILINEAR),
        "RandAugment, nearest": module.RandAugment(),
    }
    return {
        name: module.Compose(
            [
                module.RandomResizedCrop(SIZE, antialias=True),
                module.RandomHorizontalFlip(),
                augmentation,
                module.PILToTensor(),
                module.ConvertImageDtype(torch.float),
                module.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
                module.RandomErasing(0.1),
            ]
        )
        for name, augmentation in augmentations.items()
    }


def main() -> None:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as made:
        root = given.photos
        if root is None:
            root = Path(made)
            (root / "class").mkdir()
            for number, picture in enumerate(pictures(None, given.count, [(500, 375)])):
                picture.save(root / "class" / f"{number:05d}.jpg", quality=90)
        for name, preset in presets(v2).items():
            print(f"\n{name}", flush=True)
            whole = datasets.ImageFolder(root, preset)
            dataset = Subset(whole, range(0, len(whole), max(1, len(whole) // given.count)))

            def stock(workers: int, dataset: Any = dataset) -> Any:
                return DataLoader(
                    dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
                )

            out = given.out and given.out.with_stem(f"{given.out.stem}-{name.replace(', ', '-')}")
            compare(stock, {"feed": wf.feed(stock(0))}, argparse.Namespace(**{**vars(given), "out": out}))


if __name__ == "__main__":
    main()
