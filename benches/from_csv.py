"""CSV: wellfed beside pyarrow, and TensorFlow's `make_csv_dataset`, in turns.

    python benches/from_csv.py [--rows 2000000] [--rounds 3] [--tf PYTHON] [--texts] [--out FILE.json]

A file of 30 columns: 14 of whole numbers, 12 of floats, and 4 more floats, or with `--texts` 4 of short texts.
wellfed reads batches of 1,024, in order, shuffled by blocks of a group, and shuffled as a whole, by a new loader
for each epoch, which parses the file anew; and by one that keeps what it has parsed, as far as there is room.
"Stacked" has the numbers of up to 32 bits in one array of float32, and texts as places in a vocabulary.
Opening the file (finding where rows begin) is a line of its own. pyarrow's `read_csv` reads
all of it into memory at once, on all cores; its `open_csv` gives batches. Each round runs all of them once, in
turn; medians are over rounds.

`--tf` names an interpreter that has TensorFlow, which reads the first 100,000 rows: batches of 1,024 of
`make_csv_dataset`, unshuffled, with `num_parallel_reads=2`. It runs apart, before the others.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

import wellfed as wf
from turns import in_turns, report
from wellfed import tables

BATCH = 1024
TF_ROWS = 100_000
WORDS = ["red", "green", "blue", "a longer text", "two words", "x"]
SLICE = 500_000
"""Rows that are made at once."""


def rows_of(first: int, rows: int, texts: bool) -> Any:
    rng = np.random.default_rng(first)
    columns: dict[str, Any] = {"id": np.arange(first, first + rows)}
    for i in range(9):
        columns[f"count{i}"] = rng.integers(0, 10 ** (1 + i % 5), rows).astype(np.int32)
    for i in range(4):
        columns[f"key{i}"] = rng.integers(-(10**12), 10**12, rows)
    for i in range(12 if texts else 16):
        columns[f"x{i}"] = np.round(rng.normal(0, 10 ** (i % 4), rows), 4 + i % 3)
    if texts:
        for i in range(4):
            columns[f"text{i}"] = np.array(WORDS)[rng.integers(0, len(WORDS), rows)]
    return pa.table(columns)


def write(path: Path, rows: int, texts: bool) -> None:
    writer = None
    for first in range(0, rows, SLICE):
        part = rows_of(first, min(SLICE, rows - first), texts)
        writer = writer or pc.CSVWriter(
            path, part.schema, write_options=pc.WriteOptions(quoting_style="needed")
        )
        writer.write(part)
    if writer is not None:
        writer.close()


class Each:
    """Runs something anew for each epoch."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run

    def __iter__(self) -> Iterator[Any]:
        yield from self.run()


TENSORFLOW = """
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
path, rows, batch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def epoch():
    ds = tf.data.experimental.make_csv_dataset(
        path, batch, num_epochs=1, shuffle=False, num_parallel_reads=2, prefetch_buffer_size=2)
    count = 0
    for features in ds:
        count += len(features["id"])
    assert count == rows, count
epoch()
times = []
for _ in range(3):
    since = time.perf_counter()
    epoch()
    times.append(time.perf_counter() - since)
print(json.dumps({"version": tf.__version__, "rows": rows, "seconds": times}))
"""


def tensorflow(python: str, path: Path, folder: Path) -> Any:
    """Seconds of an epoch over the first rows."""
    short = folder / "short.csv"
    with open(path) as all_, open(short, "w") as some:
        some.writelines(line for _, line in zip(range(TF_ROWS + 1), all_))
    rows = short.read_bytes().count(b"\n") - 1
    command = [python, "-c", textwrap.dedent(TENSORFLOW), str(short), str(rows), str(BATCH)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--tf", metavar="PYTHON")
    parser.add_argument("--budget", default=None, type=int, help="memory_budget of wellfed, in MiB")
    parser.add_argument("--folder", type=Path, help="where the file is made, and left")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        path = folder / f"table-{options.rows}-{'texts' if options.texts else 'numbers'}.csv"
        if not path.exists():
            write(path, options.rows, options.texts)
        size = path.stat().st_size
        print(f"{options.rows} rows of 30 columns, {size / 1e6:.0f} MB, {os.cpu_count()} cores")
        results: dict[str, Any] = {"rows": options.rows, "bytes": size, "pyarrow": pa.__version__}
        if options.tf:
            found = results["tensorflow"] = tensorflow(options.tf, path, folder)
            rate = found["rows"] / sorted(found["seconds"])[1]
            print(f"{'TensorFlow ' + found['version']:24} {rate:10.1f} samples/s", flush=True)
        since = time.perf_counter()
        ds = wf.csv(path)
        results["opening"] = time.perf_counter() - since
        print(f"opening: {results['opening']:.2f} s")
        if options.budget is not None:
            ds = ds.with_options(memory_budget=options.budget << 20)
        rows = ds._native.group_samples() or 1
        # All but the whole numbers of 64 bits, and texts as places in a vocabulary.
        numbers = [name for name in ds._native.fields if name.startswith(("count", "x"))]
        words = [tables.Category(name, WORDS) for name in ds._native.fields if name.startswith("text")]
        stacked = ds.stack([*numbers, *words], "float32")
        loaders: dict[str, Any] = {
            "wellfed": Each(ds.batch(BATCH).numpy),
            "wellfed, blocks shuffled": Each(ds.shuffle(block_size=rows, window=4).batch(BATCH).numpy),
            "wellfed, shuffled": Each(ds.shuffle().batch(BATCH).numpy),
            "wellfed, shuffled, kept": ds.shuffle().batch(BATCH).numpy(),
            "stacked, blocks shuffled": Each(stacked.shuffle(block_size=rows, window=4).batch(BATCH).numpy),
            "stacked, shuffled": Each(stacked.shuffle().batch(BATCH).numpy),
            "pyarrow read_csv": Each(lambda: [pc.read_csv(path)]),
            "pyarrow open_csv": Each(lambda: pc.open_csv(path)),
        }
        results["turns"] = report(in_turns(loaders, options.rounds), options.rows, "pyarrow")
        results["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
