"""A real network on the cores takes the time, and the data is always there. Nothing to fix."""

from __future__ import annotations

import itertools

import torch
from common import Clock, Draw, arguments, settings
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(draw: Draw) -> dict:
    return {
        "width": draw.choice([32, 48, 64]),
        "batch": draw.choice([16, 32]),
        "workers": draw.choice([0, 1]),
    }


def network(width: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    data = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(0, 10, (1024,)))
    loader = DataLoader(
        data, batch_size=s.batch, shuffle=True, num_workers=s.workers, persistent_workers=s.workers > 0
    )
    model = network(s.width)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    clock = Clock(args)
    for _ in itertools.count():
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            if clock.step(len(images), loss.item()):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
