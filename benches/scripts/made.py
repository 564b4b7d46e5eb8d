"""The data of the cases: made once, in a folder that may be deleted at any time."""

from __future__ import annotations

import csv
import pickle
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def photographs(folder: Path, count: int, width: int = 500, height: int = 375) -> str:
    """`count` JPEGs in four classes, of the size that photographs in data sets have."""
    root = folder / f"photographs-{count}"
    rows, columns = np.mgrid[0:height, 0:width]

    def write(path: Path, i: int) -> None:
        random = np.random.default_rng(i)
        waves = [
            np.sin(columns * random.uniform(0.01, 0.1) + rows * random.uniform(0.01, 0.1)) for _ in range(3)
        ]
        pixels = 128 + 90 * np.stack(waves, 2) + random.normal(0, 8, (height, width, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(path, quality=90)

    _files(root, count, lambda i: f"class{i % 4}/{i:05}.jpg", write)
    return str(root)


def arrays(folder: Path, count: int) -> list[Path]:
    """Files of float32 arrays."""

    def write(path: Path, i: int) -> None:
        np.save(path, np.random.default_rng(i).random((3, 96, 96), np.float32))

    return _files(folder / f"arrays-{count}", count, lambda i: f"{i:05}.npy", write)


def sounds(folder: Path, count: int) -> list[Path]:
    """A second of sound a file."""

    def write(path: Path, i: int) -> None:
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(np.random.default_rng(i).integers(-9999, 9999, 16000).astype(np.int16).tobytes())

    return _files(folder / f"sounds-{count}", count, lambda i: f"{i:05}.wav", write)


def pickles(folder: Path, count: int) -> list[Path]:
    """A dictionary a file."""

    def write(path: Path, i: int) -> None:
        x = np.random.default_rng(i).random((64, 64), np.float32)
        path.write_bytes(pickle.dumps({"x": x, "y": i % 10}))

    return _files(folder / f"pickles-{count}", count, lambda i: f"{i:05}.pkl", write)


def matrix(folder: Path, rows: int) -> str:
    """One file of rows."""

    def write(path: Path, _: int) -> None:
        np.save(path, np.random.default_rng(0).random((rows, 256), np.float32))

    return str(_files(folder / f"matrix-{rows}", 1, lambda _: "rows.npy", write)[0])


def table(folder: Path, rows: int) -> str:
    """One file of comma-separated values, the last of which is the label."""

    def write(path: Path, _: int) -> None:
        values = np.random.default_rng(0).random((rows, 16))
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([*row, i % 10] for i, row in enumerate(values.tolist()))

    return str(_files(folder / f"table-{rows}", 1, lambda _: "rows.csv", write)[0])


def database(folder: Path, count: int) -> tuple[str, int]:
    """The photographs in LMDB, under their numbers."""
    import lmdb

    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    target = folder / f"database-{count}"
    with lmdb.open(str(target), map_size=1 << 30) as opened, opened.begin(write=True) as writing:
        if writing.stat()["entries"] != count:
            for number, path in enumerate(paths):
                writing.put(b"%d" % number, path.read_bytes())
    return str(target), count


def _files(
    root: Path, count: int, name: Callable[[int], str], write: Callable[[Path, int], None]
) -> list[Path]:
    """`count` files under `root`; the last thing that is made says that all of them are there."""
    paths = [root / name(i) for i in range(count)]
    done = root / "done"
    if not done.exists():
        for i, path in enumerate(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, i)
        done.touch()
    return paths
