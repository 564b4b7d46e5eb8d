"""Samples come over HTTP from a server that refuses what is more than so many requests a second; the script asks again.

Fixed: from a local copy.
"""

from __future__ import annotations

import itertools
import os
import time
import urllib.error

import torch
from common import CORES, Clock, Draw, arguments, device_step, settings
from data import arrays
from network import Local, Remote
from torch.utils.data import DataLoader


class Patient(Remote):
    """Asks again when it was refused, a little later each time."""

    def __getitem__(self, index: int) -> torch.Tensor:
        for attempt in itertools.count():
            try:
                return super().__getitem__(index)
            except urllib.error.HTTPError as refused:
                if refused.code != 503:
                    raise
                refused.close()
            time.sleep(0.02 * 2 ** min(attempt, 3))
        raise AssertionError


def prepare(draw: Draw) -> dict:
    batch, size, count = draw.choice([4, 8]), draw.choice([8, 16, 32]) * 1024, 16 if draw.small else 64
    root, rate = arrays(size, count), draw.uniform(60, 150)
    return {
        "root": str(root),
        "count": count,
        "batch": batch,
        "workers": CORES * draw.choice([2, 4]),
        "step": batch / rate / draw.gain(),
        "server": [str(root), "1e9", "--most", str(rate)],
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    dataset = Local(s.root, s.count) if args.fixed else Patient(os.environ["PLANTED_URL"], s.count)
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
