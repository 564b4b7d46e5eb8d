"""A data set as people write it: `Image.open(path).convert("RGB")` and torchvision's transforms, with one line changed.

Measured in turns: torch's DataLoader, the same after `wellfed.accelerate()`, and wellfed.torch's DataLoader, which
reads the data set's source and makes its images natively; that is also measured with the data set called as it is
(``native=False``), with and without `accelerate`. First all of them must give the same batches for the same seed; of
what is drawn natively, which comes from a stream of its own, the same shapes and labels.

    python benches/scripts/custom_dataset.py PHOTOS [--count 500] [--workers 2] [--rounds 5] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from timm.data import create_transform
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

import wellfed as wf
from wellfed.torch import DataLoader as OurDataLoader

sys.path.append(str(Path(__file__).resolve().parent.parent))
from turns import in_turns, report

BATCH = 32


NATIVE = "wellfed"
"""The loader that makes images natively."""


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """The user's code; nothing in it knows of wellfed."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        self.paths = paths
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.paths[i]).convert("RGB")
        return self.transform(image), i


class Accelerated:
    """A loader whose epochs run under `wellfed.accelerate`."""

    def __init__(self, loader: Any, on: bool = True) -> None:
        self.loader = loader
        self.on = on

    def __iter__(self) -> Iterator[Any]:
        with wf.accelerate() if self.on else nullcontext():
            yield from self.loader


def chains() -> dict[str, Any]:
    """What torchvision's references do in training and evaluation, in both of its versions."""
    mean, std = wf.IMAGENET_MEAN, wf.IMAGENET_STD
    scaled = v2.ToDtype(torch.float32, scale=True)
    return {
        "timm": create_transform(224, is_training=True),
        "train": transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(mean, std),
            ]
        ),
        "train_v2": v2.Compose(
            [
                v2.RandomResizedCrop(224),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                scaled,
                v2.Normalize(mean, std),
            ]
        ),
        "evaluation": transforms.Compose(
            [
                transforms.Resize(256),
                transforms.CenterCrop(224),
                transforms.ToTensor(),
                transforms.Normalize(mean, std),
            ]
        ),
    }


def loaders(dataset: Any, workers: int) -> dict[str, Any]:
    """What is compared; each gives the same batches."""
    stock = DataLoader(dataset, BATCH, num_workers=workers)
    compared = {"torch": stock, "accelerate() with torch": Accelerated(stock)}
    if workers:
        called = OurDataLoader(dataset, BATCH, num_workers=workers, native=False)
        plain = OurDataLoader(dataset, BATCH, num_workers=workers, native=False, accelerate=False)
        compared |= {"wellfed, called, not accelerated": plain, "wellfed, called": called}
    return {**compared, NATIVE: OurDataLoader(dataset, BATCH, num_workers=workers)}


def same(dataset: Any, workers: int, random: bool) -> None:
    """Fails unless all loaders give the same batches; of `random` transforms the native one gives the same shapes."""
    batches: dict[str, list[Any]] = {}
    for name, loader in loaders(dataset, workers).items():
        torch.manual_seed(1)
        batches[name] = list(loader)
    first = batches.pop("torch")
    for name, others in batches.items():
        for theirs, ours in zip(first, others, strict=True):
            if not torch.equal(theirs[1], ours[1]) or theirs[0].shape != ours[0].shape:
                raise SystemExit(f"{name} gives other samples than torch")
            # Normalizing natively may round the last bit differently.
            if not (name == NATIVE and random) and not torch.allclose(theirs[0], ours[0], rtol=0, atol=1e-6):
                raise SystemExit(f"{name} gives other values than torch")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chains", nargs="+", default=[*chains()])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = [
        path for path in sorted(options.photos.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    ]
    paths = paths[: options.count]
    results = {}
    for name in options.chains:
        dataset = Photos(paths, chains()[name])
        same(Photos(paths[:64], chains()[name]), options.workers, "evaluation" not in name)
        print(f"{name}: {len(paths)} photographs, {options.workers} workers")
        results[name] = report(in_turns(loaders(dataset, options.workers), options.rounds), len(paths))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
