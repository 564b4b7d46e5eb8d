"""Samples come over HTTP from a server that sends so many bytes a second in all. Fixed: from a local copy."""

from __future__ import annotations

import itertools
import os
import urllib.request
from pathlib import Path

import torch
from common import CORES, Clock, Draw, arguments, device_step, loading_seconds, settings
from data import arrays
from torch.utils.data import DataLoader, Dataset


class Remote(Dataset):
    def __init__(self, url: str, count: int) -> None:
        self.url, self.count = url, count

    def __len__(self) -> int:
        return self.count * 16

    def __getitem__(self, index: int) -> torch.Tensor:
        with urllib.request.urlopen(f"{self.url}/{index % self.count:05}.bin") as answer:
            return torch.frombuffer(bytearray(answer.read()), dtype=torch.uint8)


class Local(Remote):
    def __getitem__(self, index: int) -> torch.Tensor:
        data = Path(self.url, f"{index % self.count:05}.bin").read_bytes()
        return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def prepare(draw: Draw) -> dict:
    batch, size, count = draw.choice([4, 8, 16]), draw.choice([64, 128, 256]) * 1024, 16 if draw.small else 64
    root, rate = arrays(size, count), draw.uniform(10e6, 40e6)
    workers = CORES * draw.choice([1, 2])
    # What taking batches up costs, the step takes besides.
    near = DataLoader(Local(str(root), count), batch, num_workers=workers, persistent_workers=True)
    step = batch * size / rate / draw.gain() - loading_seconds(near, between=0.02)
    return {
        "root": str(root),
        "count": count,
        "batch": batch,
        "workers": workers,
        "step": max(step, 1e-3),
        "server": [str(root), str(rate)],
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    dataset = Local(s.root, s.count) if args.fixed else Remote(os.environ["PLANTED_URL"], s.count)
    loader = DataLoader(
        dataset, batch_size=s.batch, shuffle=True, num_workers=s.workers, persistent_workers=True
    )
    clock = Clock(args)
    for _ in itertools.count():
        for samples in loader:
            loss = device_step(samples, s.step)
            if clock.step(len(samples), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
