"""LMDB of photographs and of small arrays: wellfed beside python-lmdb in a torch DataLoader, in turns.

    python benches/from_lmdb.py [--samples 2000] [--rounds 5] [--task both] [--out FILE.json]

Two tasks, both in random order: JPEGs with their key, decoded, cropped at random and resized to 224x224, in batches of
64; and float32 arrays of 256 numbers, as batches of 256. The DataLoader opens the database in its workers without lock
and read-ahead, keeps one transaction, and reads values as buffers, without a copy; arrays are fetched a batch at a time
by `__getitems__` and stacked by NumPy. It runs with 0, 1, 2 and as many workers as cores; what is compared is the
fastest of them. Each round runs all of them once, in turn; medians are over rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import wellfed as wf
from turns import in_turns, report
from wellfed import transforms as T

BATCH, ROWS, WIDTH = 64, 256, 256


def photographs(samples: int) -> list[bytes]:
    """JPEGs of about 110 KB: those in WELLFED_TEST_DATA, or smooth noise."""
    given = os.environ.get("WELLFED_TEST_DATA")
    found = sorted(Path(given).rglob("*.jpg"))[:samples] if given else []
    if found:
        return [path.read_bytes() for path in found]
    random, files = np.random.default_rng(0), []
    for _ in range(min(samples, 64)):
        small = Image.fromarray(random.integers(0, 256, (48, 64, 3), np.uint8))
        file = io.BytesIO()
        small.resize((800, 600), Image.Resampling.BICUBIC).save(file, "jpeg", quality=95)
        files.append(file.getvalue())
    return files


def write(path: Path, values: list[bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 36) as env, env.begin(write=True) as writing:
        for i, value in enumerate(values):
            writing.put(b"%08d" % i, value)
    return path


class Opened(Dataset[Any]):
    """A database that each worker opens for itself."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = str(path), count
        self.reading: Any = None

    def __len__(self) -> int:
        return self.count

    def get(self, i: int) -> Any:
        if self.reading is None:
            env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)
            self.reading = env.begin(buffers=True)
        return self.reading.get(b"%08d" % i)


class Images(Opened):
    def __init__(self, path: Path, count: int) -> None:
        super().__init__(path, count)
        self.chain = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()])

    def __getitem__(self, i: int) -> Any:
        return self.chain(Image.open(io.BytesIO(self.get(i))).convert("RGB")), i % 1000


class Arrays(Opened):
    def __getitems__(self, numbers: list[int]) -> Any:
        return torch.from_numpy(np.stack([np.frombuffer(self.get(i), np.float32) for i in numbers]))


def whole(batch: Any) -> Any:
    return batch


def compare(
    kind: type[Opened], path: Path, count: int, ours: wf.Dataset, batch: int, rounds: int, **options: Any
) -> Any:
    loaders: dict[str, Any] = {}
    for workers in sorted({0, 1, 2, len(os.sched_getaffinity(0))}):
        # A process may open a database once only, and those that are forked know what it has open.
        mine = path if workers else Path(shutil.copytree(path, path.with_suffix(".here")))
        loaders[f"python-lmdb, {workers} workers"] = DataLoader(
            kind(mine, count),
            batch_size=batch,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            **options,
        )
    loaders["wellfed"] = ours.torch()
    return report(in_turns(loaders, rounds), count, "python-lmdb")


def images(folder: Path, samples: int, rounds: int) -> dict[str, Any]:
    photos = photographs(samples)
    values = [photos[i % len(photos)] for i in range(samples)]
    path = write(folder / "images", values)
    print(f"photographs, {samples} samples of {sum(map(len, values)) // samples // 1000} KB")
    ours = wf.lmdb(path, fields=["value", "__key__"]).shuffle(seed=1)
    ours = ours.map(T.RandomResizedCrop(224), T.RandomHorizontalFlip()).batch(BATCH)
    return compare(Images, path, samples, ours, BATCH, rounds)


def arrays(folder: Path, samples: int, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    values = [random.random(WIDTH, np.float32).tobytes() for _ in range(samples)]
    path = write(folder / "arrays", values)
    print(f"arrays of {WIDTH} numbers, {samples} samples")
    ours = wf.lmdb(path, value=f"float32[{WIDTH}]").shuffle(seed=1).batch(ROWS)
    return compare(Arrays, path, samples, ours, ROWS, rounds, collate_fn=whole)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=["images", "arrays", "both"], default="both")
    parser.add_argument("--out")
    given = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        if given.task != "arrays":
            results["photographs"] = images(Path(name), given.samples, given.rounds)
        if given.task != "images":
            results["arrays"] = arrays(Path(name), 20 * given.samples, given.rounds)
    if given.out:
        Path(given.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
