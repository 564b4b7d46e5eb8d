"""Tables: wellfed beside pyarrow, torch over pyarrow, and Hugging Face's `datasets`, in turns.

    python benches/parquet.py [--rows 2000000] [--photos DIR] [--images 2000] [--rounds 5] [--out FILE.json]

Numbers: ten float32 columns and a label in row groups of 65,536, in batches of 1,024: pyarrow's own scan of the file
into NumPy arrays, and torch's DataLoader over that (an iterable data set of rows, with 0 and 2 workers).

Images: photographs as `{bytes, path}` in row groups of 100, batched by 64, as whole images resized to 224x224 and, as
training has it, cropped at random, resized and flipped: `datasets` under torch's DataLoader with 0, 1 and 2 workers.

Shuffled: wellfed by blocks of a row group, and numbers also as a whole, and with their columns stacked to one array.
Each round runs all of them once, in turn; medians are over rounds.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import wellfed as wf
from turns import in_turns, report
from wellfed import transforms as T

BATCH = 1024
GROUP = 65536


class Scan:
    """pyarrow's own scan: batches of a column each as NumPy arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[list[np.ndarray[Any, Any]]]:
        for batch in pyarrow.dataset.dataset(self.path).scanner(batch_size=BATCH).to_batches():
            yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]


class RowsOfPyarrow(IterableDataset[tuple[torch.Tensor, int]]):
    """Rows of row groups, those of each worker its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        file, info = pq.ParquetFile(self.path), get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for group in range(first, file.num_row_groups, step):
            columns = [column.to_numpy() for column in file.read_row_group(group).columns]
            features = torch.from_numpy(np.stack(columns[:-1], 1))
            yield from zip(features, columns[-1].tolist())


def numbers(folder: Path, rows: int, rounds: int) -> Any:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"x{i}": rng.normal(size=rows).astype(np.float32) for i in range(10)}
    path = folder / "numbers.parquet"
    pq.write_table(pa.table(columns | {"label": rng.integers(0, 10, rows)}), path, row_group_size=GROUP)
    ds = wf.parquet(path)
    stacked = ds.stack([f"x{i}" for i in range(10)])
    loaders: dict[str, Any] = {
        "wellfed": ds.batch(BATCH).numpy(),
        "wellfed, blocks shuffled": ds.shuffle(block_size=GROUP, window=2).batch(BATCH).numpy(),
        "wellfed, shuffled": ds.shuffle().batch(BATCH).numpy(),
        "wellfed, stacked, blocks shuffled": stacked.shuffle(block_size=GROUP, window=2).batch(BATCH).numpy(),
        "wellfed, stacked, shuffled": stacked.shuffle().batch(BATCH).numpy(),
        "pyarrow scan": Scan(path),
    }
    for workers in (0, 2):
        loaders[f"torch, {workers} workers"] = DataLoader(
            RowsOfPyarrow(path), batch_size=BATCH, num_workers=workers
        )
    times = in_turns(loaders, rounds)
    print(f"{rows} rows of numbers")
    return {stock: report(times, rows, stock) for stock in ("pyarrow", "torch")}


def images(folder: Path, photos: Path, count: int, rounds: int) -> Any:
    import datasets
    from torchvision.transforms import v2

    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    rows = [{"bytes": files[i % len(files)].read_bytes(), "path": None} for i in range(count)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)})
    data = datasets.Dataset.from_dict(
        {"image": rows, "label": [i % 10 for i in range(count)]}, features=features
    )
    path = folder / "images.parquet"
    data.to_parquet(path, batch_size=100)
    theirs = datasets.load_dataset(
        "parquet", data_files=str(path), cache_dir=str(folder / "cache"), split="train"
    )
    ds = wf.parquet(path, columns=["image", "label"]).shuffle(block_size=100, window=4)
    tasks: dict[str, tuple[list[Any], Any]] = {
        "resized": ([T.Resize((224, 224))], v2.Resize((224, 224), antialias=True)),
        "cropped at random": (
            [T.RandomResizedCrop(224), T.RandomHorizontalFlip()],
            v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]),
        ),
    }
    found = {}
    for task, (mine, chain) in tasks.items():
        theirs.set_transform(functools.partial(transformed, v2.Compose([v2.ToImage(), chain])))
        loaders: dict[str, Any] = {"wellfed, blocks shuffled": ds.map(*mine).batch(64).numpy()}
        for workers in (0, 1, 2):
            loaders[f"datasets, {workers} workers"] = DataLoader(
                theirs, batch_size=64, shuffle=True, num_workers=workers, persistent_workers=workers > 0
            )
        times = in_turns(loaders, rounds)
        print(f"{count} images, {task}")
        found[task] = report(times, count, "datasets")
    return found


def transformed(chain: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """What `datasets` makes of some rows."""
    return {"image": [chain(image.convert("RGB")) for image in batch["image"]], "label": batch["label"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--only-images", action="store_true")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results: dict[str, Any] = {}
        if not options.only_images:
            results["numbers"] = numbers(Path(folder), options.rows, options.rounds)
        if options.photos is not None:
            results["images"] = images(Path(folder), options.photos, options.images, options.rounds)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
