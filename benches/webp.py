"""Folders of WebP files: `wf.feed(DataLoader(ImageFolder))` beside the same loader of torch, in turns.

    python benches/webp.py --photos DIR [--images 1000] [--rounds 5] [--out FILE.json]

Photographs written by Pillow as lossy files of quality 80 and as lossless ones, cropped at random and resized to
224x224, or shrunk and cropped as for evaluation. torch runs with 0, 1, 2 and as many workers as cores; what is compared
is the fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import wellfed as wf
from turns import in_turns, report

TRAINING = transforms.Compose(
    [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
EVALUATION = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


def write(folder: Path, photos: list[Path], count: int, options: dict[str, Any]) -> None:
    for i in range(count):
        into = folder / str(i % 10)
        into.mkdir(parents=True, exist_ok=True)
        if i < len(photos):
            Image.open(photos[i]).convert("RGB").save(into / f"{i}.webp", **options)
        else:
            (into / f"{i}.webp").hardlink_to(folder / str(i % len(photos) % 10) / f"{i % len(photos)}.webp")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    photos = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    results = {}
    with tempfile.TemporaryDirectory() as name:
        for form, how in {"lossy": {"quality": 80}, "lossless": {"lossless": True, "quality": 20}}.items():
            folder = Path(name) / form
            write(folder, photos[: options.images], options.images, how)
            for task, chain in {"training": TRAINING, "evaluation": EVALUATION}.items():
                print(f"{form}, {task}")
                data = ImageFolder(str(folder), chain)
                loaders: dict[str, Any] = {}
                for workers in sorted({0, 1, 2, len(os.sched_getaffinity(0))}):
                    loaders[f"torch, {workers} workers"] = DataLoader(
                        data,
                        batch_size=64,
                        shuffle=True,
                        num_workers=workers,
                        persistent_workers=workers > 0,
                    )
                loaders["wellfed"] = wf.feed(DataLoader(data, batch_size=64, shuffle=True))
                results[f"{form}, {task}"] = report(in_turns(loaders, options.rounds), options.images)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
