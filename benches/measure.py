"""One measurement in one process: build a loader, warm it up for one epoch, time whole epochs after that.

Run by `run.py` with the peer's own interpreter; prints one line of JSON. Standard library only, apart from
what the peer imports. Epochs follow one another without a pause, so a loader that works ahead across the
end of an epoch gains nothing at the start of the clock that it has not paid for before its stop.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import math
import os
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from spec import PEERS, WORKS, Job, Skip, touch

MARK = "wellfed-bench:"
"""Starts the one line of output that the driver reads."""


def tree_cpu_seconds() -> float:
    """CPU time of this process and all its descendants, including dead ones that were waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended while we looked
        parents[int(entry.name)] = int(fields[1])
        ticks[int(entry.name)] = sum(int(n) for n in fields[11:15])
    ours = {os.getpid()}
    grew = True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        grew = bool(more)
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def check(shape: tuple[int, ...], dtype: str, job: Job) -> None:
    """Every batch must be float32 NCHW of the work's size, never larger than asked for."""
    size = job.work.size
    if dtype != "float32" or len(shape) != 4 or shape[1:] != (3, size, size) or shape[0] > job.work.batch:
        raise ValueError(f"a batch is {shape} {dtype}, not ({job.work.batch}, 3, {size}, {size}) float32")


def warm_up(epoch: Any, job: Job) -> dict[str, float]:
    """One epoch outside the clock; returns the mean and spread of its pixels, which peers must share."""
    import numpy as np

    seen = 0
    means: list[float] = []
    squares: list[float] = []
    for batch in epoch():
        shape, dtype, _ = touch(batch)
        check(shape, dtype, job)
        seen += shape[0]
        if len(means) < 64:
            array = np.asarray(batch, dtype=np.float64)
            means.append(float(array.mean()))
            squares.append(float((array**2).mean()))
    if not job.images <= seen < job.images + job.work.batch:
        raise ValueError(f"the warm-up epoch gave {seen} images, not {job.images}")
    mean = sum(means) / len(means)
    return {"pixel_mean": mean, "pixel_std": math.sqrt(sum(squares) / len(squares) - mean**2)}


def timed(epoch: Any, job: Job, seconds: float) -> dict[str, float]:
    """Whole epochs until `seconds` have passed, at least one."""
    images = epochs = 0
    cpu = tree_cpu_seconds()
    start = time.perf_counter()
    while True:
        before = images
        for batch in epoch():
            shape, dtype, value = touch(batch)
            check(shape, dtype, job)
            if not math.isfinite(value):
                raise ValueError(f"a batch ends in {value}")
            images += shape[0]
        epochs += 1
        if not job.images <= images - before < job.images + job.work.batch:
            raise ValueError(f"an epoch gave {images - before} images, not {job.images}")
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            break
    cpu = tree_cpu_seconds() - cpu
    return {"images": images, "epochs": epochs, "seconds": elapsed, "cpu_seconds": cpu}


def version(package: str) -> str:
    """The installed version of a distribution."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def main() -> None:
    """Measure and print; a failure is printed as JSON too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=sorted(PEERS), required=True)
    parser.add_argument("--work", choices=sorted(WORKS), required=True)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    if hasattr(os, "sched_setaffinity"):  # as many cores as workers, so that machines compare
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.workers])
    job = Job(WORKS[args.work], args.photos, args.images, args.workers)
    result: dict[str, Any] = {"peer": args.peer, "work": args.work}
    try:
        start = time.perf_counter()
        peer = importlib.import_module(f"peers.{PEERS[args.peer][1]}")
        result["versions"] = {name: version(name) for name in peer.PACKAGES}
        result["versions"]["python"] = platform.python_version()
        result["import_seconds"] = time.perf_counter() - start
        epoch = peer.build(job)
        result.update(warm_up(epoch, job))
        result.update(timed(epoch, job, args.seconds))
    except (Skip, ImportError) as error:
        result["skipped"] = str(error)
    except Exception as error:
        result["failed"] = f"{type(error).__name__}: {error}"
    print(f"\n{MARK}{json.dumps(result)}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # some peers hang or complain while they are torn down; that is not what is measured


if __name__ == "__main__":
    main()
