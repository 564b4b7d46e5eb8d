"""The data set is larger than the memory the container may use, so every epoch reads the disk. Fixed: more memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import torch
from common import CORES, Clock, Draw, arguments, device_step, settings
from data import arrays
from torch.utils.data import DataLoader, Dataset

OWN = 345e6
"""About what the script's processes need for themselves."""


class Spectra(Dataset):
    def __init__(self, root: str) -> None:
        self.files = sorted(Path(root).iterdir())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        data = bytearray(1 << 20)
        with open(self.files[index], "rb", buffering=0) as file:
            file.readinto(data)
        return torch.frombuffer(data, dtype=torch.uint8)[::64].clone()


def prepare(draw: Draw) -> dict:
    size, batch = 1 << 20, draw.choice([2, 4])
    count = 48 if draw.small else draw.choice([320, 400, 480])
    root = arrays(size, count)
    disk, limit = draw.uniform(80e6, 140e6), OWN + draw.uniform(90e6, 160e6)
    missing = max(0.1, 1 - (limit - OWN) / (size * count))
    return {
        "root": str(root),
        "batch": batch,
        "step": batch * size * missing / disk / draw.gain(2.2),
        "memory": {"limit": int(limit), "disk": int(disk), "cold": str(root)},
        "memory_fixed": {"disk": int(disk), "cold": str(root)},
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Spectra(s.root), batch_size=s.batch, shuffle=True, num_workers=CORES, persistent_workers=True
    )
    clock = Clock(args)
    for _ in itertools.count():
        for spectra in loader:
            loss = device_step(spectra, s.step)
            if clock.step(len(spectra), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
