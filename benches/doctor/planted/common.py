"""What the planted scripts share: arguments, magnitudes drawn by seed, the device whose speed is known, the clock.

A script is a plain training script. Its data and settings are made once (`--prepare`, or at the first run) and
kept, so that the plain, the diagnosed and the fixed run differ in nothing but the doctor and the fix.
Standard library only: what a script does not import must not be imported for it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
CORES = len(os.sched_getaffinity(0))


def cache() -> Path:
    """Where data and settings are kept between runs."""
    return Path(os.environ.get("PLANTED_CACHE", HERE.parents[2] / ".bench" / "doctor" / "data")).resolve()


def arguments(fixes: list[str] | None = None) -> argparse.Namespace:
    """The command line that all planted scripts have."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--seed", type=int, default=0, help="draws the magnitudes; every fifth is near the threshold"
    )
    parser.add_argument("--fixed", nargs="?", const="yes", default="", choices=["", "yes", *(fixes or [])])
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to train")
    parser.add_argument("--small", action="store_true", help="little data, for tests")
    parser.add_argument("--prepare", action="store_true", help="make data, print settings and end")
    return parser.parse_args()


class Draw(random.Random):
    """Magnitudes of one case and seed."""

    def __init__(self, name: str, seed: int, small: bool) -> None:
        super().__init__(f"{name}-{seed}")
        self.case_seed = seed
        self.near = seed % 5 == 4
        self.small = small

    def gain(self, most: float = 3.0, least: float = 1.3) -> float:
        """What the fix shall gain; next to nothing for the seeds that are near the threshold."""
        return self.uniform(1.06, 1.16) if self.near else least * (most / least) ** self.random()


def settings(args: argparse.Namespace, prepare: Callable[[Draw], dict[str, Any]]) -> SimpleNamespace:
    """Settings of this script for this seed: made by `prepare` the first time, the same ever after."""
    name = Path(sys.argv[0]).stem
    # Settings of another version of the script are not its own.
    version = hashlib.sha256(Path(sys.argv[0]).read_bytes()).hexdigest()[:8]
    size = "-small" if args.small else ""
    kept = cache() / "settings" / f"{name}-{args.seed}{size}-{CORES}-{version}.json"
    if not kept.exists():
        draw = Draw(name, args.seed, args.small)
        made = {"near": draw.near, **prepare(draw)}
        write_whole(kept, json.dumps(made))
    read = json.loads(kept.read_text())
    if args.prepare:
        print(json.dumps(read))
        sys.exit(0)
    return SimpleNamespace(**read)


def write_whole(path: Path, data: str | bytes) -> None:
    """Writes a file so that no other process ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_bytes(data.encode() if isinstance(data, str) else data)
    half.replace(path)


def folder(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of data in the cache, made by `make` if it is not there."""
    made = cache() / name
    if not made.exists():
        half = made.with_name(f"{made.name}.{os.getpid()}")
        half.mkdir(parents=True)
        make(half)
        try:
            half.rename(made)
        except OSError:
            if not made.exists():
                raise
    return made


def cpu_seconds(work: Callable[[], Any], repeat: int = 5) -> float:
    """CPU seconds that `work` takes in all threads: the least of some tries, after one that does not count."""
    work()
    tries = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        tries.append(time.process_time() - start)
    return min(tries)


def rested_seconds(work: Callable[[], Any], repeat: int = 15, between: float = 5e-3) -> float:
    """Seconds that `work` takes after a sleep, as in a step after the device's: the median."""
    work()
    tries = []
    for _ in range(repeat):
        time.sleep(between)
        start = time.perf_counter()
        work()
        tries.append(time.perf_counter() - start)
    return sorted(tries)[repeat // 2]


def loading_seconds(loader: Any, batches: int = 30, between: float = 0.0) -> float:
    """Seconds between the batches of a loader: the median, or without `between`, which is slept after each, the mean.

    What a process does after a sleep costs more than what it does again and again, as caches are cold.
    """
    took = []
    start = begin = time.perf_counter()
    while len(took) < batches:
        for _ in loader:
            took.append(time.perf_counter() - start)
            if len(took) == 5:
                begin = time.perf_counter()
            time.sleep(between)
            start = time.perf_counter()
            if len(took) == batches:
                break
    return sorted(took)[len(took) // 2] if between else (time.perf_counter() - begin) / (batches - 5)


def slow_reads(under: Path, open_us: float = 0, read_us: float = 0, rate: float = 0) -> dict[str, str]:
    """Environment in which reads of files under a folder are slow; see slowread.c."""
    source = HERE / "slowread.c"
    code = source.read_bytes()
    library = cache() / f"slowread-{hashlib.sha256(code).hexdigest()[:12]}.so"
    if not library.exists():
        compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
        half = library.with_name(f"{library.name}.{os.getpid()}")
        half.parent.mkdir(parents=True, exist_ok=True)
        command = ["-O2", "-fPIC", "-shared", "-o", str(half), str(source), "-ldl"]
        try:
            subprocess.run([compiler, *command], check=True)
        except FileNotFoundError:
            subprocess.run(["cc", *command], check=True)
        half.replace(library)
    state = under.with_name(f"{under.name}.state")
    write_whole(state, bytes(8))
    return {
        "LD_PRELOAD": str(library),
        "SLOWREAD_PREFIX": f"{under}/",
        "SLOWREAD_OPEN_US": str(round(open_us)),
        "SLOWREAD_READ_US": str(round(read_us)),
        "SLOWREAD_RATE": str(round(rate)),
        "SLOWREAD_STATE": str(state),
    }


def device_step(batch: Any, seconds: float) -> float:
    """Forward, backward and optimizer on a device that takes so long; the host only waits. Returns the loss."""
    time.sleep(seconds)
    return float(batch.flatten()[:64].float().mean())


class Clock:
    """Measures the script's own speed, ends it when its time is over, and tells."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.seconds = args.seconds
        self.begin = time.perf_counter()
        self.times: list[float] = []
        self.samples: list[int] = []
        self.epochs: list[int] = []
        self.losses: list[str] = []

    def step(self, samples: int, loss: float = 0.0) -> bool:
        """Call after each step; whether the time is over."""
        self.times.append(time.perf_counter())
        self.samples.append(samples)
        if len(self.losses) < 10:
            self.losses.append(float(loss).hex())
        return self.times[-1] - self.times[0] > self.seconds

    def epoch(self) -> None:
        """Call after each epoch."""
        self.epochs.append(len(self.times) - 1)

    def report(self) -> None:
        """Says the steady speed: of whole epochs after the first if there are two such, else of the last 75 %."""
        if len(self.epochs) >= 3:
            first, last = self.epochs[0], self.epochs[-1]
        else:
            last = len(self.times) - 1
            start = self.times[0] + (self.times[-1] - self.times[0]) * 0.25
            first = next((i for i, t in enumerate(self.times) if t >= start), 0)
            first = min(first, max(last - 1, 0))
        took = self.times[last] - self.times[first] or float("nan")
        told = {
            "steps_per_s": (last - first) / took,
            "samples_per_s": sum(self.samples[first + 1 : last + 1]) / took,
            "steps": len(self.times),
            "epochs": len(self.epochs),
            "first_step_s": self.times[0] - self.begin,
            "losses": hashlib.sha256(" ".join(self.losses).encode()).hexdigest()[:16],
        }
        if place := os.environ.get("PLANTED_RESULT"):
            write_whole(Path(place), json.dumps(told))
        else:
            print(json.dumps(told), flush=True)
