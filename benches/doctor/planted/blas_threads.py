"""Four workers a core, each with eight BLAS threads. Fixed: one thread a worker, by the environment."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from torch.utils.data import DataLoader, Dataset


class Projected(Dataset):
    """Whitens each sample by a matrix product."""

    def __init__(self, size: int, rows: int) -> None:
        rng = np.random.default_rng(0)
        self.samples = rng.standard_normal((64, rows, size), np.float32)
        self.whiten = rng.standard_normal((size, size), np.float32)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy((self.samples[index % 64] @ self.whiten)[:16])


def prepare(draw: Draw) -> dict:
    size, rows, batch = draw.choice([256, 384]), draw.choice([32, 64]), draw.choice([2, 4])
    dataset = Projected(size, rows)
    cost = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    kept = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "8")
    return {
        "size": size,
        "rows": rows,
        "batch": batch,
        "step": cost / CORES * draw.uniform(0.3, 0.9),
        "env": kept,
        "env_fixed": dict.fromkeys(kept, "1"),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Projected(s.size, s.rows),
        batch_size=s.batch,
        shuffle=True,
        num_workers=4 * CORES,
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
