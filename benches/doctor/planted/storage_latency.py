"""Each read of a file takes long, as on a far file system. Fixed: more workers, which wait and need no cores."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from common import CORES, Clock, Draw, arguments, device_step, settings, slow_reads
from data import arrays
from torch.utils.data import DataLoader, Dataset


class Features(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(Path(root).iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(self.files[index].read_bytes()), dtype=torch.uint8)


def prepare(draw: Draw) -> dict:
    batch, read = draw.choice([8, 16, 32]), draw.uniform(2e-3, 12e-3)
    opening = draw.choice([0, 0.5]) * read
    root = arrays(draw.choice([4096, 65536]), 64 if draw.small else 4096)
    gain = draw.gain()
    return {
        "root": str(root),
        "batch": batch,
        "step": batch * (read + opening) / CORES / gain,
        "more": round(CORES * gain * 2),
        "env": slow_reads(root, open_us=opening * 1e6, read_us=read * 1e6),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Features(s.root),
        batch_size=s.batch,
        shuffle=True,
        num_workers=s.more if args.fixed else CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for features in loader:
            loss = device_step(features, s.step)
            if clock.step(len(features), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
