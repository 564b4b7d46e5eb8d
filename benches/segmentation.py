"""Segmentation with joint transforms: torch's DataLoader at several worker counts against feed and the native pipeline.

Data are photographs of a folder with masks made of them. Loaders run in turns; medians and ratios are printed.

    python benches/segmentation.py PHOTOS [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import datasets, tv_tensors
from torchvision.transforms import v2

import wellfed as wf
from wellfed import transforms as T

BATCH, SIZE = 16, 224


def lay_out(photos: Path, root: Path, count: int) -> None:
    """Makes a tree in VOC's layout."""
    base = root / "VOCdevkit" / "VOC2012"
    for part in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (base / part).mkdir(parents=True)
    found = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    names = [f"{i:05d}" for i in range(count)]
    for i, name in enumerate(names):
        with Image.open(found[i % len(found)]) as image:
            picture = image.convert("RGB")
        picture.thumbnail((500, 500))
        picture.save(base / "JPEGImages" / f"{name}.jpg", quality=90)
        picture.quantize(21).save(base / "SegmentationClass" / f"{name}.png")
    (base / "ImageSets" / "Segmentation" / "train.txt").write_text("\n".join(names))


def seconds(batches: Iterable[object]) -> float:
    """How long one epoch takes."""
    began = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=400)
    given = parser.parse_args()
    float32 = v2.ToDtype(
        {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
    )
    joint = v2.Compose([v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.ToImage(), float32])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(given.photos, root, given.count)
        stock = datasets.wrap_dataset_for_transforms_v2(datasets.VOCSegmentation(root, transforms=joint))
        loaders: dict[str, Callable[[], Iterable[object]]] = {}
        for workers in (0, 1, 2, 3):
            torchs = DataLoader(stock, BATCH, num_workers=workers, persistent_workers=workers > 0)
            loaders[f"torch, {workers} workers"] = lambda loader=torchs: loader
        fed = wf.feed(DataLoader(stock, BATCH))
        loaders["feed"] = lambda: fed
        ds = wf.voc_segmentation(root).map(
            T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)
        )
        native = ds.batch(BATCH).torch()
        loaders["native"] = lambda: native
        times: dict[str, list[float]] = {name: [] for name in loaders}
        for turn in range(given.rounds + 1):
            for name, make in loaders.items():
                spent = seconds(make())
                if turn:
                    times[name].append(spent)
        medians = {name: statistics.median(all_) for name, all_ in times.items()}
        best = min(median for name, median in medians.items() if name.startswith("torch"))
        for name, median in medians.items():
            print(f"{name:20} {given.count / median:8.1f} samples/s  {best / median:5.2f}x  {times[name]}")


if __name__ == "__main__":
    main()
