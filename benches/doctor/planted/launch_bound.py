"""A model of many tiny modules, fed few samples a step: starting them costs. Fixed: batches 8 times as large."""

from __future__ import annotations

import itertools

import torch
from common import Clock, Draw, arguments, settings
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(draw: Draw) -> dict:
    # Near the threshold, computing costs more than starting.
    width, batch = (256, 256) if draw.near else (draw.choice([8, 16, 32]), draw.choice([2, 4]))
    return {"layers": draw.randint(30, 120), "width": width, "batch": batch}


def network(layers: int, width: int) -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(*blocks, nn.Linear(width, 1))


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    model = network(s.layers, s.width)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, foreach=False)
    data = TensorDataset(torch.randn(8192, s.width))
    loader = DataLoader(data, batch_size=s.batch * (8 if args.fixed else 1), shuffle=True)
    clock = Clock(args)
    for _ in itertools.count():
        for (rows,) in loader:
            optimizer.zero_grad()
            loss = model(rows).square().mean()
            loss.backward()
            optimizer.step()
            if clock.step(len(rows), loss.item()):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
