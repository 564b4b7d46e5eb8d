"""The host waits for the GPU in each step, to log the loss and all gradients' norms. Fixed: every 50th step."""

from __future__ import annotations

import itertools

import torch
from clock import Clock, arguments
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    args = arguments()
    width, layers = (64, 8) if args.small else (1024, 60)
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    model = nn.Sequential(*blocks, nn.Linear(width, 1)).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    # Batches by slices of tensors: the loader takes no time to speak of.
    rows = TensorDataset(torch.randn(64, 512, width))
    loader = DataLoader(rows, batch_size=None, shuffle=True, pin_memory=args.device.startswith("cuda"))
    clock = Clock(args.seconds)
    log: list[float] = []
    steps = itertools.count()
    while True:
        for (batch,) in loader:
            batch = batch.to(args.device, non_blocking=True)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not args.fixed or next(steps) % 50 == 0:
                log = [loss.item(), *(p.grad.norm().item() for p in model.parameters())]
            if clock.step(len(batch)):
                print(log[:1])
                return


if __name__ == "__main__":
    main()
