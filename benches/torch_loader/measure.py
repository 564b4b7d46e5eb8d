"""One measurement of one loader in one process; prints one line of JSON. Run by `run.py`."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from cases import CASES

MARK = "wellfed-bench:"
"""Starts the one line of output that the driver reads."""


def native_photos(root: Path) -> Iterable[Any]:
    """The photographs as a pipeline of wellfed's own, which the lowered loader is held against."""
    import wellfed as wf
    from wellfed import transforms as T

    return (
        wf.image_folder(root)
        .shuffle(seed=0)
        .map(
            T.RandomResizedCrop(224),
            T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
            T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
        )
        .batch(64, drop_last=True)
        .torch()
    )


def build(name: str, loader: str, workers: int, root: Path) -> tuple[Callable[[], Iterable[Any]], float]:
    """How the loader is made anew, and the memory in MB that this process held before it."""
    case = CASES[name]
    if loader == "native":
        return lambda: native_photos(root), 0.0
    arguments = case.make(root)
    held = memory(os.getpid())["rss"]
    if loader == "stock":
        return lambda: torch.utils.data.DataLoader(**arguments, num_workers=workers), held
    import wellfed as wf

    if loader == "threads":
        stock = torch.utils.data.DataLoader
        return lambda: wf.feed(
            stock(**arguments, num_workers=workers), multiprocessing_context="thread"
        ), held
    return lambda: wf.feed(torch.utils.data.DataLoader(**arguments, num_workers=workers)), held


def memory(pid: int) -> dict[str, float]:
    """Memory in MB: `rss` with what is shared, `pss` with shared pages divided among those who share them."""
    found = {"rss": 0.0, "pss": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        key = line.partition(":")[0].lower()
        if key in found:
            found[key] = int(line.split()[1]) / 1024
    return found


def children(pid: int) -> list[int]:
    """All descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it ended while we looked
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def samples(batch: Any) -> int:
    """How many samples a batch holds."""
    if isinstance(batch, dict):
        batch = next(iter(batch.values()))
    elif isinstance(batch, list | tuple):
        batch = batch[0]
    return len(batch)


def epochs(make: Callable[[], Iterable[Any]], seconds: float) -> dict[str, Any]:
    """Samples per second over whole epochs of one loader, after one that is not counted."""
    loader = make()
    for _ in loader:
        pass
    count, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        for batch in loader:
            count += samples(batch)
    passed = time.perf_counter() - start
    return {"samples": count, "seconds": passed, "rate": count / passed}


def first_batch(make: Callable[[], Iterable[Any]], held: float) -> dict[str, Any]:
    """Seconds from making a loader to its first batch, and what its processes hold after 50 batches."""
    start = time.perf_counter()
    batches = iter(make())
    next(batches)
    passed = time.perf_counter() - start
    for _ in range(50):
        next(batches)
    found = [memory(pid) for pid in children(os.getpid())]
    return {"seconds": passed, "parent_rss": held, "processes": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--loader", choices=["stock", "feed", "native", "threads"], required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--photos", type=Path, required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    make, held = build(args.case, args.loader, args.workers, args.photos)
    result = first_batch(make, held) if CASES[args.case].first_batch else epochs(make, args.seconds)
    print(MARK + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
