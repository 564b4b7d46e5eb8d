"""The device is busy all the time but for three percent, in which the training process loads. Healthy."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from common import Clock, Draw, arguments, device_step, loading_seconds, settings
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, size: int) -> None:
        self.image = np.random.default_rng(0).integers(0, 256, (2048, 2048), np.uint8)
        self.size = size

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> torch.Tensor:
        at = index % (2048 - self.size)
        return torch.from_numpy(self.image[at : at + self.size, at : at + self.size].astype(np.float32))


def prepare(draw: Draw) -> dict:
    size, batch = draw.choice([64, 128]), draw.choice([16, 32])
    loader = DataLoader(Patches(size), batch_size=batch, shuffle=True)
    cost = loading_seconds(loader, between=0.02)
    return {"size": size, "batch": batch, "step": cost / draw.uniform(0.015, 0.03)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(Patches(s.size), batch_size=s.batch, shuffle=True)
    clock = Clock(args)
    for _ in itertools.count():
        for patches in loader:
            loss = device_step(patches, s.step)
            if clock.step(len(patches), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
