"""Fifty thousand tiny files, each opened for one sample, on a disk that takes a moment to open one. Fixed: one file."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, device_step, folder, settings, slow_reads
from torch.utils.data import DataLoader, Dataset


def records(size: int, count: int) -> Path:
    """`files/000/00000.bin`, … of so many bytes each, and all of them in `packed/all.bin`."""

    def make(at: Path) -> None:
        table = np.random.default_rng(size).integers(0, 256, (count, size), np.uint8)
        (at / "packed").mkdir()
        table.tofile(at / "packed" / "all.bin")
        for i, row in enumerate(table):
            if i % 500 == 0:
                (at / "files" / f"{i // 500:03}").mkdir(parents=True)
            (at / "files" / f"{i // 500:03}" / f"{i:05}.bin").write_bytes(row.tobytes())

    return folder(f"records-{size}-{count}", make)


class Files(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(str(path) for path in Path(root, "files").glob("*/*.bin"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.files[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


class Packed(Dataset):
    def __init__(self, root: str, size: int) -> None:
        self.rows = np.memmap(Path(root, "packed", "all.bin"), np.uint8, "r").reshape(-1, size)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[index].copy())


def prepare(draw: Draw) -> dict:
    batch, size, count = draw.choice([64, 128]), draw.choice([256, 1024]), 500 if draw.small else 50_000
    root, opening = records(size, count), draw.uniform(0.3e-3, 1.2e-3)
    own = 60e-6  # what open, read and close cost without the disk
    return {
        "root": str(root),
        "size": size,
        "batch": batch,
        "step": batch * (opening + own) / CORES / draw.gain(),
        "env": slow_reads(root, open_us=opening * 1e6),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Packed(s.root, s.size) if args.fixed else Files(s.root),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for rows in loader:
            loss = device_step(rows, s.step)
            if clock.step(len(rows), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
