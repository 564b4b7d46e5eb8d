"""A model of many tiny modules, fed few samples a step: launching them costs. Fixed: batches 8 times as large."""

from __future__ import annotations

import torch
from clock import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    args = arguments()
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU()) for _ in range(100)]
    model = nn.Sequential(*blocks, nn.Linear(32, 1)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    data = TensorDataset(torch.randn(8192, 32))
    cuda = args.device.startswith("cuda")
    loader = DataLoader(data, batch_size=32 if args.fixed else 4, shuffle=True, pin_memory=cuda)
    clock = Clock(args.seconds)
    while True:
        for (rows,) in loader:
            rows = rows.to(args.device, non_blocking=True)
            loss = model(rows).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.step(len(rows)):
                return


if __name__ == "__main__":
    main()
