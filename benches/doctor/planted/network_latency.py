"""Samples come over HTTP from a server that answers late, however small they are. Fixed: more workers."""

from __future__ import annotations

import itertools
import math
import os

import torch
from common import CORES, Clock, Draw, arguments, device_step, settings
from data import arrays
from network import Remote
from torch.utils.data import DataLoader


def prepare(draw: Draw) -> dict:
    batch, size, count = draw.choice([4, 8]), draw.choice([8, 16, 32]) * 1024, 16 if draw.small else 64
    root, late, gain = arrays(size, count), draw.uniform(0.03, 0.08), draw.gain()
    server = [str(root), "1e9", "--late", str(late)]
    return {
        "count": count,
        "batch": batch,
        "workers": CORES,
        "fixed_workers": math.ceil(1.3 * CORES * gain),
        "step": batch * late / CORES / gain,
        "server": server,
        "server_fixed": server,
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    workers = s.fixed_workers if args.fixed else s.workers
    dataset = Remote(os.environ["PLANTED_URL"], s.count)
    loader = DataLoader(
        dataset, batch_size=s.batch, shuffle=True, num_workers=workers, persistent_workers=True
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
