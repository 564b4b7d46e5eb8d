"""MixUp and CutMix: torch's DataLoader at its best of several worker counts against feed and a native pipeline.

Data are photographs in an `ImageFolder`, transformed as usual. Batches are stacked and mixed by a collate function, as
in torchvision's documentation, and by the native pipeline's own transforms.

    python benches/mix.py [FOLDER] [--rounds 5] [--count 400] [--out FILE.json]

FOLDER holds classes of photographs; without it, some are made.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, default_collate
from torchvision import datasets
from torchvision.transforms import v2

import wellfed as wf
from vision import arguments, compare, pictures
from wellfed import transforms as T

BATCH, SIZE, CLASSES = 64, 224, 1000

CHAIN = v2.Compose(
    [
        v2.RandomResizedCrop(SIZE),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
    ]
)
NATIVE = [
    T.RandomResizedCrop(SIZE),
    T.RandomHorizontalFlip(),
    T.ToDtype("float32", scale=True),
    T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
]


def collating(mix: Any) -> Any:
    """The collate function of torchvision's documentation."""
    return lambda batch: mix(*default_collate(batch))


def main() -> None:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as made:
        root = given.photos
        if root is None:
            root = Path(made)
            for number, picture in enumerate(pictures(None, given.count, [(500, 375)])):
                folder = root / f"{number % 10}"
                folder.mkdir(exist_ok=True)
                picture.save(folder / f"{number:05d}.jpg", quality=90)
        dataset = datasets.ImageFolder(root, CHAIN)
        samples = wf.image_folder(root).shuffle(seed=0).map(*NATIVE)
        for name in ("MixUp", "CutMix"):
            print(f"\n{name}", flush=True)
            collate = collating(getattr(v2, name)(num_classes=CLASSES))

            def stock(workers: int, collate_fn: Any = collate) -> Any:
                return DataLoader(
                    dataset,
                    BATCH,
                    shuffle=True,
                    num_workers=workers,
                    persistent_workers=workers > 0,
                    collate_fn=collate_fn,
                )

            batches = samples.batch(BATCH)
            ours = {
                "feed": wf.feed(stock(0)),
                "native": batches.map(getattr(T, name)(num_classes=CLASSES)).torch(),
                "native, not mixed": batches.torch(),
            }
            out = given.out and given.out.with_stem(f"{given.out.stem}-{name}")
            compare(stock, ours, argparse.Namespace(**{**vars(given), "out": out}))


if __name__ == "__main__":
    main()
