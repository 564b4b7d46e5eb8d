"""How much of a loop's speed is where its buffers lie in memory, without any doctor.

    python benches/doctor/layout.py [--blocks 20]

Trains `overhead.py`'s images inline in blocks of 200 steps. Before each block, buffers of random sizes are allocated,
and half of them freed: what any few lines before a loop might do. Told is what a step of each block took, and by how
much blocks differ: with buffers where they happen to come, and drawn anew for each sample, as `overhead.py` has it.
"""

from __future__ import annotations

import argparse
import random
import statistics

import overhead

CASE = "images inline"
STEPS = 200
BUFFERS = 50


def spread(data: object, amount: int, size: int, blocks: int) -> list[float]:
    """Microseconds a step of each block."""
    took = []
    for _ in range(blocks):
        buffers: list[bytearray | None] = [bytearray(random.randrange(64, 300_000)) for _ in range(BUFFERS)]
        buffers[::2] = [None] * len(buffers[::2])
        parts = overhead.block(CASE, amount, data, size)["wall"]
        took.append(1e6 * statistics.median(parts))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()
    if options.blocks < 2:
        parser.error("--blocks: 2 at least, or they cannot differ")
    import torch

    torch.set_num_threads(1)
    _, microseconds, work, kind, workers = overhead.CASES[CASE]
    overhead.CASES[CASE] = (STEPS, microseconds, work, kind, workers)
    amount = overhead.calibrate(microseconds, overhead.WORK[work])
    data, size = overhead.make_data(kind, STEPS)
    overhead.block(CASE, amount, data, size)
    for name, drawn in (("as they come", False), ("drawn for each sample", True)):
        data.drawn = drawn
        took = spread(data, amount, size, options.blocks)
        share = 100 * statistics.stdev(took) / statistics.mean(took)
        print(
            f"buffers {name}: us/step {' '.join(f'{t:.0f}' for t in took)}; standard deviation {share:.1f} %"
        )
    data.path.unlink()


if __name__ == "__main__":
    main()
