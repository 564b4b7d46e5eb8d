"""Waits for the loss and writes a log in each step, so that host and device take turns. Fixed: every 50th step."""

from __future__ import annotations

import itertools
import json
import os
import tempfile

import torch
from common import Clock, Draw, arguments, rested_seconds, settings
from fake_device import FakeDevice, Loss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def log(file, step: int, loss: Loss, model: nn.Module) -> None:
    """One line for each step: loss and norms of all parameters."""
    told = {"step": step, "loss": loss.item()}
    told |= {name: p.detach().norm().item() for name, p in model.named_parameters()}
    line = json.dumps(told)
    print(line[:60], file=file)
    file.write(line + "\n")
    file.flush()
    os.fsync(file.fileno())


def make_model(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(layers)))


def prepare(draw: Draw) -> dict:
    layers = draw.randint(10, 120)
    device = FakeDevice()
    with tempfile.TemporaryFile("w") as file:
        model, loss = make_model(layers), device.launch(torch.zeros(64), 0)
        cost = rested_seconds(lambda: log(file, 0, loss, model))
    return {"layers": layers, "step": cost / (draw.gain(2.2) - 1)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(20_000, 64)), batch_size=64, shuffle=True)
    device, model = FakeDevice(), make_model(s.layers)
    clock = Clock(args)
    every = 50 if args.fixed else 1
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        for epoch in itertools.count():
            for i, (batch,) in enumerate(loader):
                loss = device.launch(batch, s.step)
                device.synchronize(device.busy_until - 4 * s.step)  # the queue of a device is not endless
                if i % every == 0:
                    log(file, epoch * len(loader) + i, loss, model)
                if clock.step(len(batch), loss.value):
                    clock.report()
                    return
            clock.epoch()


if __name__ == "__main__":
    main()
