"""Workers chosen by measuring: data sets that stay in Python, with torch's loader and with wellfed's.

    python benches/workers.py                  # all cases
    python benches/workers.py --case cheap     # one

- `cheap`: a row of an array and a little arithmetic: handing a batch over takes longer than making it.
- `random`: the same with noise from NumPy's default generator, whose numbers are those of torch's workers.
- `heavy`: Python code that takes its time, which processes share.
- `hdf5`: rows of a compressed HDF5 file that each worker opens: not safe anywhere else.

Each loader runs in turns with the others. The epoch in which wellfed measures is outside of the clock. Both must
give the same batches.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import data as stock

sys.path[:0] = [str(Path(__file__).resolve().parent)]
import wellfed  # noqa: E402
from turns import in_turns, report  # noqa: E402
from wellfed.torch import DataLoader  # noqa: E402


class Rows(stock.Dataset[Any]):
    """Windows of a series, scaled by what is in them."""

    def __init__(self, count: int) -> None:
        self.series = np.random.default_rng(0).normal(size=count + 16).astype(np.float32)

    def __len__(self) -> int:
        return len(self.series) - 16

    def __getitem__(self, i: int) -> Any:
        window = self.series[i : i + 16]
        return window - window.min(), i


class Noisy(Rows):
    """The same, with noise."""

    def __getitem__(self, i: int) -> Any:
        window, i = super().__getitem__(i)
        return window + np.float32(np.random.rand()), i


class Heavy(Rows):
    """A loop in Python for each sample."""

    def __getitem__(self, i: int) -> Any:
        window, i = super().__getitem__(i)
        total = 0
        for k in range(20_000):
            total = (total * 31 + k) % 1_000_003
        return window * (1 + total % 2), i


class Hdf5(stock.Dataset[Any]):
    """Opened when the first sample is asked for."""

    def __init__(self, path: str, count: int) -> None:
        self.path, self.count = path, count
        self.file: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        import h5py

        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["rows"][i]), i


def data_sets(folder: Path, count: int) -> dict[str, Any]:
    """All cases."""
    sets: dict[str, Any] = {
        "cheap": Rows(count),
        "random": Noisy(count),
        "heavy": Heavy(max(64, count // 20)),
    }
    try:
        import h5py
    except ImportError:
        print("hdf5 left out: there is no h5py")
        return sets
    path = folder / "rows.h5"
    with h5py.File(path, "w") as file:
        rows = np.random.default_rng(0).normal(size=(count // 4, 1024)).astype(np.float32)
        file.create_dataset("rows", data=rows, chunks=(1, 1024), compression="gzip")
    return {**sets, "hdf5": Hdf5(str(path), count // 4)}


def different(one: Any, other: Any) -> bool:
    """Whether two loaders differ in an epoch from the same seed."""
    epochs = []
    for loader in (one, other):
        torch.manual_seed(1)
        epochs.append(list(loader))
    return len(epochs[0]) != len(epochs[1]) or any(
        not torch.equal(a, b) for one, other in zip(*epochs) for a, b in zip(one, other)
    )


def main() -> int:
    """Run the cases; the status says whether batches are equal."""
    known = ["cheap", "random", "heavy", "hdf5"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", choices=known, default=known)
    parser.add_argument("--count", type=int, default=20_000, help="samples of the cheap cases")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="raw numbers as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="worker processes are forked while")
    results, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for name, data in data_sets(Path(folder), options.count).items():
            if name not in options.case:
                continue
            setting: Any = {"batch_size": 64, "shuffle": True}
            loaders: dict[str, Any] = {
                "torch, 0 workers": stock.DataLoader(data, **setting),
                f"torch, {options.workers} workers": stock.DataLoader(
                    data, num_workers=options.workers, **setting
                ),
                # What is compared is where Python runs: none of these is read and made natively.
                f"wellfed, {options.workers} workers": DataLoader(
                    data, num_workers=options.workers, native=False, **setting
                ),
                "wellfed, auto": DataLoader(data, num_workers="auto", native=False, **setting),
            }
            _, theirs, ours, _ = loaders.values()
            for _ in range(3):  # measured, tried, and measured once more
                unequal = different(theirs, ours)
                failed += unequal
            print(f"{name}: {'OTHER VALUES' if unequal else 'equal'}")
            print("  " + next(line for line in ours.explain().splitlines() if "num_workers" in line).strip())
            results[name] = report(in_turns(loaders, options.rounds), len(data))
    if options.out:
        versions = {"torch": torch.__version__, "wellfed": wellfed.__version__}
        options.out.write_text(json.dumps({"versions": versions, "results": results}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
