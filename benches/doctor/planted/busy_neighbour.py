"""Somebody else computes on the same cores. Decodes (even seeds) or trains a real network (odd). Fixed: nobody else."""

from __future__ import annotations

import itertools

import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from compute_bound import network
from data import jpegs
from serial_loading import Photos
from torch import nn
from torch.utils.data import DataLoader


def prepare(draw: Draw) -> dict:
    root, batch = jpegs(480, 32 if draw.small else 768), draw.choice([8, 16])
    photos = Photos(str(root))
    decode = cpu_seconds(lambda: [photos[i] for i in range(batch)])
    neighbours = max(1, round(CORES * (0.25 if draw.near else draw.choice([0.5, 1, 2]))))
    return {
        "root": str(root),
        "batch": batch,
        "real": draw.case_seed % 2,
        "step": decode / CORES * draw.uniform(1.0, 1.2),
        "neighbours": neighbours,
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Photos(s.root), batch_size=s.batch, shuffle=True, num_workers=CORES, persistent_workers=True
    )
    model = network(32)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    clock = Clock(args)
    for _ in itertools.count():
        for images in loader:
            if s.real:
                optimizer.zero_grad()
                scores = model(images[:, :, ::7, ::7].float() / 255)
                loss = nn.functional.cross_entropy(scores, torch.zeros(len(images), dtype=torch.int64))
                loss.backward()
                optimizer.step()
                value = loss.item()
            else:
                value = device_step(images, s.step)
            if clock.step(len(images), value):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
