"""What launching a module costs the host: networks too small to compute anything, a step's time over their modules.

    python benches/doctor/launch.py

The constant `LAUNCH` of the rule for steps that are too small rests on this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn

WIDTH, DEPTH, BATCH = 8, 30, 2
STEPS, ROUNDS = 50, 5


def linear_norm() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()) for _ in range(DEPTH)]
    return nn.Sequential(*layers), torch.randn(BATCH, WIDTH)


def linear() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(BATCH, WIDTH)


def convolution() -> tuple[nn.Module, torch.Tensor]:
    layers = [
        nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU())
        for _ in range(DEPTH)
    ]
    return nn.Sequential(*layers), torch.randn(BATCH, WIDTH, 4, 4)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, WIDTH, batch_first=True)
    return nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False), torch.randn(BATCH, 4, WIDTH)


def seconds(model: nn.Module, data: torch.Tensor, optimizer: torch.optim.Optimizer) -> float:
    """Of a step: the median of some rounds."""
    took = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        took.append((time.perf_counter() - begin) / STEPS)
    return median(took[1:])


def main() -> None:
    torch.set_num_threads(1)
    networks: list[Callable[[], tuple[nn.Module, torch.Tensor]]] = [
        linear,
        linear_norm,
        convolution,
        transformer,
    ]
    print(f"PyTorch {torch.__version__}, width {WIDTH}, {BATCH} samples, one thread")
    for make in networks:
        for name in ("SGD", "AdamW"):
            model, data = make()
            optimizer = getattr(torch.optim, name)(model.parameters(), 1e-3)
            # All of them, those that hold others too: so the probes count calls.
            modules = sum(1 for _ in model.modules())
            step = seconds(model, data, optimizer)
            each = f"{step * 1e3:6.2f} ms a step {step / modules * 1e6:5.0f} us a module"
            print(f"{make.__name__:12} {name:6} {modules:4} modules {each}")


if __name__ == "__main__":
    main()
