"""How fast photographs are written as tar shards, beside what the disk writes and what `tar` takes for the same files.

    python benches/convert.py --images 5000

Every way writes to a folder of its own, one after the other, in turns; figures are medians. "disk" writes as many bytes
into one file and waits until they are safe, which is what each shard does as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import wellfed as wf
from photos import prepare

ROOT = Path(__file__).resolve().parent.parent


def disk(to: Path, size: int) -> None:
    """Writes and syncs `size` bytes."""
    piece = os.urandom(1 << 20)
    with open(to / "file", "wb") as file:
        for _ in range(-(-size // len(piece))):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--home", type=Path, default=ROOT / ".bench")
    args = parser.parse_args()
    data, count, described = prepare(args.home, args.images, Path(sys.executable))
    ds = wf.image_folder(data)
    size = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    ways: dict[str, Callable[[Path], object]] = {
        "disk": lambda to: disk(to, size),
        "tar": lambda to: subprocess.run(["tar", "cf", to / "all.tar", "-C", data, "."], check=True),
        "write": lambda to: ds.write(to / "t-{}.tar", max_bytes=200_000_000),
        "write, shuffled": lambda to: ds.shuffle(seed=0).write(to / "t-{}.tar", max_bytes=200_000_000),
        "write, packed": lambda to: ds.write(to / "t-{}.tar", max_bytes=200_000_000, packed=True),
        "write, 256 pixels": lambda to: ds.write(to / "t-{}.tar", max_bytes=200_000_000, resize_shorter=256),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    written: dict[str, int] = {}
    for _ in range(args.runs):
        for name, way in ways.items():
            to = args.home / "converted"
            shutil.rmtree(to, ignore_errors=True)
            to.mkdir(parents=True)
            start = time.perf_counter()
            way(to)
            seconds[name].append(time.perf_counter() - start)
            written[name] = sum(path.stat().st_size for path in to.iterdir())
    shutil.rmtree(args.home / "converted")
    report = {
        name: {
            "seconds": seconds[name],
            "images_per_second": count / statistics.median(seconds[name]),
            "megabytes_per_second": written[name] / 1e6 / statistics.median(seconds[name]),
            "megabytes": written[name] / 1e6,
        }
        for name in ways
    }
    print(
        json.dumps(
            {"images": count, "photographs": described, "cores": os.cpu_count(), "ways": report}, indent=1
        )
    )


if __name__ == "__main__":
    main()
