"""Reads samples that were compressed hard (gzip, bz2 or xz). Fixed: they lie there uncompressed."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
from pathlib import Path

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, folder, settings
from torch.utils.data import DataLoader, Dataset

OPENERS = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open, "npy": open}


def volumes(kind: str, size: int, count: int) -> Path:
    def make(at: Path) -> None:
        rng = np.random.default_rng(size)
        for i in range(count):
            smooth = rng.integers(0, 40, (size, 64, 64)).cumsum(0).astype(np.int16)
            with OPENERS[kind](at / f"{i:04}.{kind}", "wb") as file:
                np.save(file, smooth)

    return folder(f"volumes-{kind}-{size}-{count}", make)


class Volumes(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(Path(root).iterdir())

    def __len__(self) -> int:
        return len(self.files) * 16

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.files[index % len(self.files)]
        with OPENERS[path.suffix[1:]](path, "rb") as file:
            return torch.from_numpy(np.load(file))


def prepare(draw: Draw) -> dict:
    kind, size, batch = draw.choice(["gz", "gz", "bz2", "xz"]), draw.choice([16, 32]), draw.choice([4, 8])
    count = 8 if draw.small else 64
    root, plain = volumes(kind, size, count), volumes("npy", size, count)
    dataset = Volumes(str(root))
    cost = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    return {"root": str(root), "plain": str(plain), "batch": batch, "step": cost / CORES / draw.gain()}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Volumes(s.plain if args.fixed else s.root),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for volume in loader:
            loss = device_step(volume, s.step)
            if clock.step(len(volume), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
