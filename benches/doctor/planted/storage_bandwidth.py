"""The disk gives so many bytes a second, however many ask. Fixed: the data lies on a disk that gives more."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from common import CORES, Clock, Draw, arguments, device_step, loading_seconds, settings, slow_reads
from data import arrays
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(Path(root).iterdir())

    def __len__(self) -> int:
        return len(self.files) * 16

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.files[index % len(self.files)]
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


def prepare(draw: Draw) -> dict:
    batch, size = draw.choice([4, 8]), draw.choice([256, 512, 1024]) * 1024
    root = arrays(size, 16 if draw.small else 128)
    far = root.with_name(f"{root.name}-far")
    if not far.exists():
        far.symlink_to(root)
    rate, workers = draw.uniform(20e6, 80e6), CORES * draw.choice([1, 2])
    # What taking batches up costs, the step takes besides.
    near = DataLoader(Clips(str(root)), batch, num_workers=workers, persistent_workers=True)
    step = batch * size / rate / draw.gain() - loading_seconds(near, between=0.02)
    return {
        "root": str(far),
        "local": str(root),
        "batch": batch,
        "workers": workers,
        "step": max(step, 1e-3),
        "env": slow_reads(far, rate=rate),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Clips(s.local if args.fixed else s.root),
        batch_size=s.batch,
        shuffle=True,
        num_workers=s.workers,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for clips in loader:
            loss = device_step(clips, s.step)
            if clock.step(len(clips), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
