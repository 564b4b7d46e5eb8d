"""What a Python `map` costs: wellfed's loader and torch's, on the same data set, with the same callable.

Both run in turns, and the ratio of each round is kept. A ratio is the time of wellfed's loader over that of the other:
torch's with as many workers, or the native pipeline without the step.

    python benches/python_map.py [--rounds 7] [--photos FOLDER]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import wellfed as wf
from turns import in_turns
from wellfed import transforms as T


class Pictures(Dataset[Any]):
    """Images in memory as a data set of torch's, optionally with a callable on each sample."""

    def __init__(self, count: int, side: int, step: Callable[[Any], Any] | None = None) -> None:
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (count, 3, side, side), np.uint8)
        self.step = step

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> Any:
        sample = self.pixels[i], i
        return sample if self.step is None else self.step(sample)


def normalized(sample: Any) -> Any:
    """About what hand-written steps do: floats, a random flip, a mean and a deviation."""
    image, label = sample
    pixels = torch.from_numpy(np.ascontiguousarray(image)).float().div_(255)
    if torch.rand(()) < 0.5:
        pixels = pixels.flip(-1)
    return (pixels - 0.45) / 0.225, label


def same(sample: Any) -> Any:
    return sample


def compare(name: str, ours: Any, theirs: Any, rounds: int) -> None:
    """Prints medians of both and of the ratio of a round."""
    times = in_turns({"ours": ours, "theirs": theirs}, rounds)
    ratio = statistics.median(a / b for a, b in zip(times["ours"], times["theirs"]))
    a, b = (statistics.median(times[which]) for which in ("ours", "theirs"))
    print(f"{name:58} {a * 1e3:8.1f} ms {b * 1e3:8.1f} ms  ratio {ratio:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--photos", help="a folder of photographs, for native stages around a Python step")
    given = parser.parse_args()
    print(f"{'':58} {'wellfed':>11} {'other':>11}")
    for side, count, batch in ((224, 768, 32), (32, 20_000, 128)):
        for workers in (1, 2):
            stock: Any = DataLoader(
                Pictures(count, side, normalized),
                batch_size=batch,
                num_workers=workers,
                persistent_workers=True,
            )
            options: Any = {"num_workers": workers}
            with (
                wf.from_dataset(Pictures(count, side)).map(normalized).batch(batch).torch(**options) as steps
            ):
                compare(f"from_dataset, {side} px, {workers} workers, torch", steps, stock, given.rounds)
            del stock
    if given.photos:
        crops = wf.image_folder(given.photos, labels=None).map(T.RandomResizedCrop(224))
        # The engine makes the first batches of the next epoch at the end of one, and worker processes do not: in short
        # epochs that counts.
        for times in (1, 6):
            with (
                crops.map(same).repeat(times).batch(32).torch(num_workers=2) as steps,
                crops.repeat(times).batch(32).torch(num_workers=2) as native,
            ):
                name = f"native crops and a map, epochs of {len(crops) * times}, native alone"
                compare(name, steps, native, given.rounds)


if __name__ == "__main__":
    main()
