"""One photograph of 200 is huge, and its batch holds up all that follow. Fixed: it was made small before."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from data import jpegs
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    """Thumbnails, among which some were forgotten to be made small."""

    def __init__(self, small: str, huge: str, every: int) -> None:
        self.small = sorted(Path(small).glob("*/*.jpg"))
        self.huge = sorted(Path(huge).glob("*/*.jpg"))
        self.every = every

    def __len__(self) -> int:
        return 200 * 8

    def __getitem__(self, index: int) -> torch.Tensor:
        files = self.huge if self.every and index % self.every == 7 else self.small
        with Image.open(files[index % len(files)]) as image:
            thumbnail = image.convert("RGB").resize((64, 64))
        return torch.from_numpy(np.asarray(thumbnail).copy())


def prepare(draw: Draw) -> dict:
    batch, every = draw.choice([4, 8]), 40 if draw.small else 200
    small, huge = jpegs(96, 64), jpegs(640 if draw.small else draw.choice([3200, 4000]), 3, distinct=3)
    some, large = Photos(str(small), str(huge), 0), Photos(str(huge), str(huge), 0)
    usual = cpu_seconds(lambda: [some[i] for i in range(batch)])
    stall = cpu_seconds(lambda: large[0], 3)
    # The batches between two slow samples take this long in all; what is prefetched bridges a part of the stall.
    between = every / batch
    bridged = (2 * CORES - 1) / between
    step = stall / between / (draw.gain(2.5) - 1 + bridged)
    return {"small": str(small), "huge": str(huge), "batch": batch, "every": every, "step": max(step, usual)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    dataset = Photos(s.small, s.huge, 0 if args.fixed else s.every)
    # In order: the slow sample comes at regular distances.
    loader = DataLoader(dataset, batch_size=s.batch, num_workers=CORES, persistent_workers=True)
    clock = Clock(args)
    for _ in itertools.count():
        for images in loader:
            loss = device_step(images, s.step)
            if clock.step(len(images), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
