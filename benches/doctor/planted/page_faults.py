"""Volumes larger than what `malloc` keeps, made anew by each operation. Fixed: it keeps them, by the environment."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    """Scans that are scaled and clipped, of which a part is used."""

    def __init__(self, depth: int) -> None:
        self.scan = np.random.default_rng(0).random((depth, 512, 512), np.float32)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        volume = (self.scan * (1 + index % 7) - 0.5).clip(0, 1)
        return torch.from_numpy(volume[:4, ::4, ::4].copy())


def prepare(draw: Draw) -> dict:
    # 1 MB a slice; from 33 on no threshold of malloc's own keeps them.
    depth, batch = draw.choice([36, 48]), draw.choice([2, 4])
    dataset = Volumes(depth)
    cost = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    kept = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 30))
    return {
        "depth": depth,
        "batch": batch,
        "step": cost / CORES / draw.gain(1.8),
        "env": {},
        "env_fixed": kept,
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Volumes(s.depth),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for volumes in loader:
            loss = device_step(volumes, s.step)
            if clock.step(len(volumes), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
