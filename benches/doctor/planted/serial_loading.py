"""Trains on photographs that the training process decodes itself. Fixed: worker processes do."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from data import jpegs
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(Path(root).glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.files[index]) as image:
            small = image.convert("RGB").resize((224, 224))
        return torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1)


def prepare(draw: Draw) -> dict:
    batch = draw.choice([8, 16, 32])
    root = jpegs(draw.choice([320, 480, 640]), 32 if draw.small else 768)
    photos = Photos(str(root))
    decode = cpu_seconds(lambda: [photos[i] for i in range(batch)])
    return {"root": str(root), "batch": batch, "step": decode / (draw.gain(1 + CORES * 0.6) - 1)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Photos(s.root),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES if args.fixed else 0,
        persistent_workers=bool(args.fixed),
    )
    clock = Clock(args)
    for _ in itertools.count():
        for images in loader:
            loss = device_step(images, s.step)
            if clock.step(len(images), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
