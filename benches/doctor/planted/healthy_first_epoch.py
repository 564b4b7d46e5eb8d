"""Decodes in the first epoch and keeps what it decoded: only that epoch is slow. Healthy."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from common import Clock, Draw, arguments, device_step, settings
from data import jpegs
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class KeptPhotos(Dataset):
    def __init__(self, root: str, count: int) -> None:
        self.files = sorted(Path(root).glob("*/*.jpg"))[:count]
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index not in self.kept:
            with Image.open(self.files[index]) as image:
                self.kept[index] = torch.from_numpy(np.asarray(image.resize((96, 96))).copy())
        return self.kept[index]


def prepare(draw: Draw) -> dict:
    root = jpegs(draw.choice([320, 480]), 32 if draw.small else 768)
    return {
        "root": str(root),
        "count": draw.randint(100, 200),
        "batch": draw.choice([8, 16]),
        "step": draw.uniform(10e-3, 25e-3),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(KeptPhotos(s.root, s.count), batch_size=s.batch, shuffle=True)
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
