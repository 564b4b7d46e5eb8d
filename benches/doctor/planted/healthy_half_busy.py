"""The device is busy half of the time only, because the script waits for an environment of fixed rate. Healthy."""

from __future__ import annotations

import itertools
import time

import torch
from common import Clock, Draw, arguments, device_step, settings
from torch.utils.data import DataLoader, TensorDataset


def prepare(draw: Draw) -> dict:
    step = draw.uniform(8e-3, 25e-3)
    return {"batch": draw.choice([16, 32]), "step": step, "period": 2 * step}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(TensorDataset(torch.randn(4096, 32)), batch_size=s.batch, shuffle=True)
    clock = Clock(args)
    next_tick = time.perf_counter()
    for _ in itertools.count():
        for (observations,) in loader:
            loss = device_step(observations, s.step)
            next_tick = max(next_tick + s.period, time.perf_counter())
            time.sleep(next_tick - time.perf_counter() if next_tick > time.perf_counter() else 0)
            if clock.step(len(observations), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
