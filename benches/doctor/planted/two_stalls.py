"""Reads that wait and an augmentation that computes cost about the same. Fixed: `read` (more workers) or `augment`."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings, slow_reads
from data import arrays
from heavy_augment import solarize, solarize_whole
from torch.utils.data import DataLoader, Dataset

SIZE = 32


class Tiles(Dataset):
    def __init__(self, root: str, whole: bool) -> None:
        self.files = sorted(Path(root).iterdir())
        self.solarize = solarize_whole if whole else solarize

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        data = self.files[index].read_bytes()
        tile = np.frombuffer(data, np.uint8).reshape(SIZE, SIZE, 3)
        return torch.from_numpy(np.ascontiguousarray(self.solarize(tile, 128)))


def prepare(draw: Draw) -> dict:
    root, batch = arrays(SIZE * SIZE * 3, 64 if draw.small else 4096), draw.choice([8, 16])
    tile = np.random.default_rng(0).integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    augment = cpu_seconds(lambda: solarize(tile, 128), 20)
    read = augment * draw.uniform(0.9, 1.1)
    return {
        "root": str(root),
        "batch": batch,
        "step": batch * (augment + read) / CORES / draw.uniform(2.5, 4),
        "env": slow_reads(root, read_us=read * 1e6),
    }


def main() -> None:
    args = arguments(["read", "augment"])
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Tiles(s.root, whole=args.fixed in ("yes", "augment")),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES * (4 if args.fixed in ("yes", "read") else 1),
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for tiles in loader:
            loss = device_step(tiles, s.step)
            if clock.step(len(tiles), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
