"""Rows in memory, loaded by the training process itself, which costs next to nothing. Healthy."""

from __future__ import annotations

import itertools

import torch
from common import Clock, Draw, arguments, device_step, settings
from torch.utils.data import DataLoader, TensorDataset


def prepare(draw: Draw) -> dict:
    return {
        "batch": draw.choice([16, 32, 64]),
        "features": draw.choice([8, 64]),
        "step": draw.uniform(8e-3, 25e-3),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(TensorDataset(torch.randn(4096, s.features)), batch_size=s.batch, shuffle=True)
    clock = Clock(args)
    for _ in itertools.count():
        for (rows,) in loader:
            loss = device_step(rows, s.step)
            if clock.step(len(rows), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
