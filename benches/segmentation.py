"""Segmentation with joint transforms: torch's DataLoader at several worker counts against feed and the native pipeline.

Data are photographs of a folder with masks made of them, in VOC's layout.

    python benches/segmentation.py [PHOTOS] [--rounds 5] [--count 400] [--out FILE.json]
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, tv_tensors
from torchvision.transforms import v2

import wellfed as wf
from vision import arguments, compare, pictures
from wellfed import transforms as T

BATCH, SIZE = 16, 224


def lay_out(photos: Path | None, root: Path, count: int) -> None:
    """Makes a tree in VOC's layout."""
    base = root / "VOCdevkit" / "VOC2012"
    for part in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / part).mkdir(parents=True)
    names = [f"{i:05d}" for i in range(count)]
    for name, picture in zip(names, pictures(photos, count, [(500, 500)])):
        picture.save(base / "JPEGImages" / f"{name}.jpg", quality=90)
        picture.quantize(21).save(base / "SegmentationClass" / f"{name}.png")
    (base / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names))


def main() -> None:
    given = arguments(__doc__)
    float32 = v2.ToDtype(
        {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
    )
    joint = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.ToImage(), float32])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(given.photos, root, given.count)
        dataset = datasets.wrap_dataset_for_transforms_v2(datasets.VOCSegmentation(root, transforms=joint))

        def stock(workers: int) -> Any:
            return DataLoader(
                dataset, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
            )

        ds = wf.voc_segmentation(root).map(
            T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)
        )
        ours = {"feed": wf.feed(stock(0)), "native": ds.shuffle(seed=0).batch(BATCH).torch()}
        compare(stock, ours, given)


if __name__ == "__main__":
    main()
