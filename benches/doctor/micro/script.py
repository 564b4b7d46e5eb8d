"""A training loop whose samples consist of known parts, each timed by the clocks of the thread that makes it.

    python benches/doctor/micro/script.py CASE [--workers N] [--seconds S]

What each part took is written to `$WELLFED_MICRO_TRUTH/PID.json`, if that is set: processor time and time of waiting,
seconds, by the name of the part's function.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What threads of BLAS do the clock of the one that calls it does not tell.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

DRAW = random.Random(0)
NUMBERS = [DRAW.random() for _ in range(20_000)]
TEXT = " ".join(str(n) for n in NUMBERS[:6_000])
RECORDS = json.dumps([{"id": i, "x": n, "tags": ["a", "b"]} for i, n in enumerate(NUMBERS[:3_000])])
PACKED = zlib.compress(TEXT.encode() * 8, 1)
BLOCK = os.urandom(2 << 20)
MATRIX = np.random.default_rng(0).random((320, 320))
LOCK = multiprocessing.Lock()
FOLDER = Path(tempfile.gettempdir(), f"wellfed-micro-{os.getpid()}")


def part_sort() -> None:
    sorted(NUMBERS)


def part_regex() -> None:
    re.findall(r"0\.(\d)\d*5", TEXT)


def part_json() -> None:
    json.loads(RECORDS)


def part_inflate() -> None:
    zlib.decompress(PACKED)


def part_hash() -> None:
    hashlib.sha256(BLOCK).digest()


def part_dot() -> None:
    MATRIX.dot(MATRIX)


def part_python() -> int:
    total = 0
    for i in range(60_000):
        total += i * i % 7
    return total


def add(a: int, b: int) -> int:
    return a + b


def part_short_calls() -> int:
    total = 0
    for i in range(30_000):
        total = add(total, i)
    return total


def part_short_reads() -> None:
    descriptor = OPEN["small"]
    for i in range(2_000):
        os.pread(descriptor, 512, 512 * (i % 200))


def part_small_inflate() -> None:
    for _ in range(400):
        zlib.decompress(SMALL)


def part_lock() -> None:
    with LOCK:
        time.sleep(0.003)


def part_disk() -> None:
    descriptor = OPEN["large"]
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(8):
        os.pread(descriptor, 1 << 16, DRAW.randrange(900) << 16)


def part_child() -> None:
    subprocess.run(["sleep", "0.01"], check=True)


def part_sleep() -> None:
    time.sleep(0.004)


def part_socket() -> None:
    OPEN["socket"].sendall(b"x")
    OPEN["socket"].recv(1)


SMALL = zlib.compress(TEXT.encode()[:2_000], 1)
OPEN: dict[str, Any] = {}


def prepare() -> None:
    """Opens what parts need, in the process that makes samples."""
    for name in ("small", "large"):
        OPEN[name] = os.open(FOLDER / name, os.O_RDONLY)
    ours, theirs = socket.socketpair()
    OPEN["socket"] = ours
    code = "import os, time\nwhile os.read(0, 1): time.sleep(0.004); os.write(0, b'y')"
    OPEN["server"] = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=theirs)


CASES: dict[str, list[Callable[[], Any]]] = {
    "keeps the lock": [part_sort, part_regex, part_json, part_python],
    "gives it up": [part_inflate, part_hash, part_dot],
    "one of each": [part_sort, part_inflate],
    "Python and what gives it up": [part_python, part_hash, part_small_inflate],
    "many short calls": [part_short_calls, part_short_reads, part_small_inflate],
    "mixture": [
        part_sort,
        part_inflate,
        part_python,
        part_hash,
        part_short_calls,
        part_short_reads,
        part_json,
    ],
    "waits": [part_disk, part_child, part_sleep, part_socket, part_sort],
    "a lock": [part_lock, part_python],
}


class Parts(Dataset):  # type: ignore[type-arg]
    """Samples that consist of parts."""

    def __init__(self, parts: list[Callable[[], Any]], length: int) -> None:
        self.parts = parts
        self.length = length
        self.pid = 0
        self.told = 0.0
        self.taken: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.taken = {part.__name__: [0.0, 0.0] for part in self.parts}
            prepare()
        for part in self.parts:
            wall, cpu = time.perf_counter(), time.thread_time()
            part()
            cpu = time.thread_time() - cpu
            taken = self.taken[part.__name__]
            taken[0] += cpu
            taken[1] += time.perf_counter() - wall - cpu
        if time.monotonic() - self.told > 0.5:
            self.told = time.monotonic()
            self.tell()
        return torch.zeros(1)

    def tell(self) -> None:
        folder = os.environ.get("WELLFED_MICRO_TRUTH")
        if folder:
            Path(folder, f"{os.getpid()}.json").write_text(json.dumps(self.taken))


class Lines(Dataset):  # type: ignore[type-arg]
    """Lines of a compressed file, parsed: every other time they are not, which tells what unpacking costs."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.pid = 0
        self.told = 0.0
        self.taken: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.taken = {"part_lines": [0.0, 0.0], "part_parse": [0.0, 0.0]}
        # Without parsing every other time, so that both are known as they are in turns.
        begin = time.thread_time()
        (self.part_lines if i % 2 else self.both)()
        self.taken["part_lines" if i % 2 else "part_parse"][0] += time.thread_time() - begin
        if time.monotonic() - self.told > 0.5:
            self.told = time.monotonic()
            folder = os.environ.get("WELLFED_MICRO_TRUTH")
            if folder:
                lines, both = self.taken["part_lines"][0], self.taken["part_parse"][0]
                told = {"part_lines": [2 * lines, 0.0], "part_parse": [both - lines, 0.0]}
                Path(folder, f"{os.getpid()}.json").write_text(json.dumps(told))
        return torch.zeros(1)

    def part_lines(self) -> None:
        with gzip.open(FOLDER / "lines.gz", "rt") as file:
            for _ in file:
                pass

    def both(self) -> None:
        for line in self.part_lines_of():
            self.part_parse(line)

    def part_lines_of(self) -> Any:
        return gzip.open(FOLDER / "lines.gz", "rt")

    def part_parse(self, line: str) -> None:
        [float(word) for word in line.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=[*CASES, "lines of gzip"])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=12)
    options = parser.parse_args()
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "small").write_bytes(BLOCK[: 1 << 17])
    (FOLDER / "large").write_bytes(BLOCK * 32)
    os.sync()
    with gzip.open(FOLDER / "lines.gz", "wt", 1) as file:
        for i in range(0, 3_000, 10):
            file.write(",".join(map(str, NUMBERS[i : i + 10])) + "\n")
    length = 1_000_000
    data = Lines(length) if options.case == "lines of gzip" else Parts(CASES[options.case], length)
    loader = DataLoader(data, batch_size=16, num_workers=options.workers)
    end = 0.0
    for _ in loader:
        # What is imported before the first batch takes its time.
        end = end or time.monotonic() + options.seconds
        if time.monotonic() > end:
            break
    for path in FOLDER.iterdir():
        path.unlink()
    FOLDER.rmdir()


if __name__ == "__main__":
    main()
