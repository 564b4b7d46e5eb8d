"""Short epochs, and workers that end with each: by fork, every third seed by spawn. Fixed: they stay."""

from __future__ import annotations

import itertools
import time

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, device_step, settings
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self, length: int) -> None:
        self.values = np.random.default_rng(0).standard_normal(1 << 20, np.float32)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * 997 % (len(self.values) - 4096)
        return torch.from_numpy(self.values[start : start + 4096].copy())


def epoch_seconds(start: str, batch: int) -> float:
    """What an epoch costs besides its steps: starting workers, first batches, ending workers. The median of three."""
    loader = DataLoader(Series(batch * CORES), batch, num_workers=CORES, multiprocessing_context=start)
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        list(loader)
        took.append(time.perf_counter() - begin)
    return sorted(took)[1]


def prepare(draw: Draw) -> dict:
    batch, step = 16, draw.uniform(5e-3, 15e-3)
    start = "spawn" if draw.case_seed % 3 == 2 else "fork"
    steps = max(3, round(epoch_seconds(start, batch) / (draw.gain(2.5) - 1) / step))
    return {"batch": batch, "step": step, "length": batch * steps, "start": start}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Series(s.length),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        multiprocessing_context=s.start,
        persistent_workers=bool(args.fixed),
    )
    clock = Clock(args)
    for _ in itertools.count():
        for series in loader:
            loss = device_step(series, s.step)
            if clock.step(len(series), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
