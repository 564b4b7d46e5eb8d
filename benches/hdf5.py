"""HDF5: wellfed beside h5py under torch's DataLoader, random rows, in turns.

    python benches/hdf5.py [--rows 4000] [--rounds 5] [--out FILE.json]

Images (uint8, 96 x 96 x 3, noise over a gradient, so that gzip has work to do) with labels, in batches of 64, shuffled:
one image a chunk, and 16 images a chunk; each with gzip (level 4) and with gzip behind shuffle, and contiguous.

h5py has the data set's `__getitem__`, and `__getitems__`, which asks for the sorted rows of a batch at once; with 0, 1
and 2 workers that each open the file, and a chunk cache that has room for all of it. Each round runs all of them once,
in turn; medians are over rounds.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import wellfed as wf
from turns import in_turns, report

BATCH = 64
SIDE = 96
FORMS: dict[str, dict[str, Any]] = {
    "1 a chunk, gzip": {"chunks": (1, SIDE, SIDE, 3), "compression": "gzip"},
    "1 a chunk, gzip+shuffle": {"chunks": (1, SIDE, SIDE, 3), "compression": "gzip", "shuffle": True},
    "16 a chunk, gzip": {"chunks": (16, SIDE, SIDE, 3), "compression": "gzip"},
    "contiguous": {},
}


class Rows(Dataset[tuple[torch.Tensor, int]]):
    """The usual data set over an HDF5 file: opened by whoever reads first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: h5py.File | None = None
        with h5py.File(path) as file:
            self.rows = len(file["labels"])

    def opened(self) -> h5py.File:
        if self.file is None:
            self.file = h5py.File(self.path, rdcc_nbytes=2 << 30, rdcc_nslots=100_003)
        return self.file

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.opened()
        return torch.from_numpy(file["images"][index]), int(file["labels"][index])


class Batches(Rows):
    """The rows of a batch are asked for at once."""

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        file = self.opened()
        order = np.argsort(indices)
        wanted = np.asarray(indices)[order]
        images, labels = torch.from_numpy(file["images"][wanted]), file["labels"][wanted].tolist()
        back = np.argsort(order)
        return [(images[at], labels[at]) for at in back.tolist()]


def write(path: Path, rows: int, form: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    gradient = np.linspace(0, 200, SIDE, dtype=np.uint8)
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", (rows, SIDE, SIDE, 3), "u1", **form)
        for start in range(0, rows, 256):
            count = min(256, rows - start)
            noise = rng.integers(0, 32, (count, SIDE, SIDE, 3), dtype=np.uint8)
            images[start : start + count] = noise + gradient[None, :, None, None]
        file["labels"] = rng.integers(0, 10, rows)


def measure(path: Path, rows: int, rounds: int) -> Any:
    ds = wf.hdf5(path, fields=["images", "labels"], pixels="never")
    loaders: dict[str, Any] = {
        "wellfed": ds.shuffle(seed=0).batch(BATCH).torch(),
        "wellfed, blocks shuffled": ds.shuffle(seed=0, block_size=16, window=64).batch(BATCH).torch(),
    }
    for name, kind in (("rows", Rows), ("batches", Batches)):
        for workers in (0, 1, 2):
            loaders[f"h5py, {name}, {workers} workers"] = DataLoader(
                kind(path),
                batch_size=BATCH,
                shuffle=True,
                num_workers=workers,
                persistent_workers=workers > 0,
            )
    return report(in_turns(loaders, rounds), rows, "h5py")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"h5py": h5py.version.info}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, form) in enumerate(FORMS.items()):
            path = Path(folder) / f"{number}.h5"
            write(path, options.rows, form)
            print(f"{options.rows} images, {name}, {path.stat().st_size >> 20} MiB")
            results[name] = measure(path, options.rows, options.rounds)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
