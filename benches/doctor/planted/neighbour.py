"""Somebody else's processes, which use so many cores: `neighbour.py COUNT`."""

from __future__ import annotations

import math
import os
import sys
from multiprocessing import Process


def work(parent: int) -> None:
    """Computes until the parent is gone."""
    x = 0.5
    while os.getppid() == parent:
        for _ in range(100_000):
            x = math.sin(x) + 1.0


if __name__ == "__main__":
    workers = [Process(target=work, args=(os.getpid(),), daemon=True) for _ in range(int(sys.argv[1]))]
    for worker in workers:
        worker.start()
    print("busy", flush=True)
    for worker in workers:
        worker.join()
