"""wellfed's own loader over a server that answers late, and may be asked few things at once. Fixed: many at once."""

from __future__ import annotations

import itertools
import os

import torch
from common import Clock, Draw, arguments, device_step, settings
from data import arrays

import wellfed as wf


def prepare(draw: Draw) -> dict:
    # Rows of one file, of which the loader can keep few.
    rows, size, batch = 512 if draw.small else 4096, 16 * 1024, draw.choice([8, 16])
    connections, late = draw.choice([1, 2, 4]), draw.uniform(0.02, 0.05)
    server = [str(arrays(rows * size, 1)), "1e9", "--late", str(late)]
    return {
        "size": size,
        "batch": batch,
        "connections": connections,
        "step": batch * late / connections / draw.gain(),
        "server": server,
        "server_fixed": server,
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    url, options = f"{os.environ['PLANTED_URL']}/00000.bin", {"max_pool_connections": s.connections}
    rows = wf.raw_files(url, "uint8", s.size, storage_options=None if args.fixed else options)
    dataset = rows.shuffle(seed=args.seed).batch(s.batch)
    loader = dataset.with_options(memory_budget=32 << 20).torch()
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
