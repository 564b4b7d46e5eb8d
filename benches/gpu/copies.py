"""Copies to the device: their speed against the pinned limit, whether they overlap compute, and synchronizations.

    python benches/gpu/copies.py --out OUT

Batches of 256 x 3 x 224 x 224 as uint8 and float32. For each loader three measurements: steps that only take batches;
steps that also multiply matrices on the current stream; and a profile of some of those, whose trace has each copy's
bytes and time, what ran beside it, and each call that waits. "again" hands out one batch of the engine again and
again, so that nothing is measured but the hand-over and the copy; the others also make their batches on the CPU.
The loop itself waits for the event of the step four before (cudaEventSynchronize), as a loop that reads its loss now
and then: without that it would queue batches without end.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from common import BUDGET, ENDLESS, Again, Results, arguments, close, cores, synchronize
from machine import copies as pinned_copies
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

import wellfed as wf
from wellfed.torch import DataLoader as WellfedDataLoader

SHAPE = (3, 224, 224)
AHEAD = 4
"""Steps that the loop may be ahead of the device."""


class Rows(Dataset):
    """Samples made one by one, so that worker processes are needed."""

    def __init__(self, images: torch.Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images) * 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.images[index % len(self.images)]


def loaders(images: torch.Tensor, batch: int, device: str, workers: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name: each gives endless batches (or tuples of one tensor)."""

    def pipeline(again: bool = False) -> Any:
        dataset = wf.from_tensor_slices(images.numpy()).repeat(100_000).batch(batch, drop_last=True)
        loader = dataset.torch(device=device, memory_budget=BUDGET)
        if again:
            loader._native = Again(loader._native, loader._pages)
        return loader

    def stock() -> Iterable[Any]:
        loader = DataLoader(Rows(images), batch, num_workers=workers, pin_memory=device != "cpu")
        return (rows.to(device, non_blocking=True) for rows in loader)

    rows = TensorDataset(images)
    order = RandomSampler(rows, replacement=True, num_samples=ENDLESS)
    return {
        "ds.torch(device), again": lambda: pipeline(again=True),
        "ds.torch(device)": pipeline,
        "wellfed DataLoader(device), in memory": lambda: WellfedDataLoader(
            rows, batch, sampler=order, device=device, drop_last=True
        ),
        "wellfed DataLoader(device), workers": lambda: WellfedDataLoader(
            Rows(images), batch, num_workers=workers, device=device, drop_last=True, native=False
        ),
        "feed(loader, device)": lambda: wf.feed(DataLoader(rows, batch, sampler=order), device=device),
        "torch DataLoader, pin_memory, workers": stock,
    }


class Steps:
    """The training loop: takes a batch, reads one number of it, and multiplies matrices so many times."""

    def __init__(self, batches: Iterable[Any], device: str, products: int) -> None:
        self.source, self.device, self.products = iter(batches), device, products
        self.cuda = device.startswith("cuda")
        self.events: deque[Any] = deque()
        size = 8192 if self.cuda else 64
        self.a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
        self.out = torch.empty_like(self.a)

    def step(self) -> int:
        """One step; gives the bytes of its batch."""
        batch = next(self.source)
        while isinstance(batch, list | tuple):
            batch = batch[0]
        if batch.device.type != torch.device(self.device).type:
            raise ValueError(f"a batch is on {batch.device}, not on {self.device}")
        batch[-1, -1, -1, -1].add_(1)
        self.compute()
        return batch.nbytes

    def compute(self) -> None:
        for _ in range(self.products):
            torch.mm(self.a, self.a, out=self.out)
        if self.cuda:
            event = torch.cuda.Event()
            event.record()
            self.events.append(event)
            if len(self.events) > AHEAD:
                self.events.popleft().synchronize()

    def timed(self, seconds: float) -> dict[str, float]:
        """Milliseconds of a step, and GB/s."""
        for _ in range(5):
            self.step()
        synchronize(self.device)
        nbytes = steps = 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            nbytes += self.step()
            steps += 1
        synchronize(self.device)
        took = time.perf_counter() - begin
        return {"ms": 1e3 * took / steps, "gbps": nbytes / took / 1e9}


def products_for(device: str, seconds: float) -> tuple[int, float]:
    """How many products take so long on the device, and the milliseconds that they take."""
    one = Steps([], device, 1)
    if not one.cuda:
        return 1, 0.0

    def each(count: int) -> float:
        one.products = count
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            one.compute()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / 20

    each(2)
    count = max(1, round(seconds / each(1)))
    return count, 1e3 * each(count)


def profiled(steps: Steps, count: int, nbytes: int) -> dict[str, Any]:
    """What the trace of some steps says."""
    from torch.profiler import ProfilerActivity, profile, record_function

    for _ in range(5):
        steps.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        steps.step()
        with record_function("steady state"):
            for _ in range(count):
                steps.step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return read_trace(json.loads(path.read_text())["traceEvents"], count, nbytes)


def read_trace(events: list[dict[str, Any]], count: int, nbytes: int) -> dict[str, Any]:
    """Of the window "steady state" with so many steps, whose batches have so many bytes."""
    events = [event for event in events if event.get("ph") == "X"]
    window = next(e for e in events if e["name"] == "steady state" and e.get("cat") == "user_annotation")
    begin, end = window["ts"], window["ts"] + window["dur"]
    calls = Counter(
        event["name"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and begin <= event["ts"] < end
    )
    big = [e for e in events if e.get("cat") == "gpu_memcpy" and e["args"].get("bytes", 0) >= nbytes // 2]
    to_device = [e for e in big if "HtoD" in e["name"]]
    kernels = merged([(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "kernel"])
    copying = sum(e["dur"] for e in to_device)
    beside = sum(overlap((e["ts"], e["ts"] + e["dur"]), kernels) for e in to_device)
    waits = {name: number for name, number in calls.items() if "Synchronize" in name}
    rates = [e["args"]["bytes"] / e["dur"] / 1e3 for e in to_device if e["dur"]]
    return {
        "copies_seen": len(to_device),
        "copy_gbps_median": statistics.median(rates) if rates else None,
        "copies_beside_kernels_share": beside / copying if copying else None,
        "device_wide_synchronizations_per_step": calls.get("cudaDeviceSynchronize", 0) / count,
        "calls_that_wait_per_step": {name: number / count for name, number in waits.items()},
        "allocations": {n: c for n, c in calls.items() if "Malloc" in n or "Free" in n or "HostAlloc" in n},
        "kinds": dict(Counter(e["name"] for e in big)),
        "streams_of_copies": sorted({str(e["args"].get("stream")) for e in to_device}),
        "copies_a_step": {n: c / count for n, c in calls.items() if "Memcpy" in n},
    }


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that do not overlap, in order."""
    out: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(end, out[-1][1])
        else:
            out.append((begin, end))
    return out


def overlap(one: tuple[float, float], spans: list[tuple[float, float]]) -> float:
    return sum(max(0.0, min(one[1], end) - max(one[0], begin)) for begin, end in spans)


def measured(
    make: Callable[[], Any], device: str, seconds: float, products: int, computing: float, nbytes: int
) -> dict[str, Any]:
    """All of one loader."""
    loader = make()
    try:
        steps = Steps(loader, device, 0)
        alone = steps.timed(seconds)
        steps.products = products
        busy = steps.timed(seconds)
        found: dict[str, Any] = {
            "alone_ms": alone["ms"],
            "alone_gbps": alone["gbps"],
            "with_compute_ms": busy["ms"],
            "compute_only_ms": computing,
        }
        if steps.cuda:
            # 1: the shorter of taking a batch and computing is hidden behind the other; 0: one after the other.
            hidden = (alone["ms"] + computing - busy["ms"]) / min(alone["ms"], computing)
            found["hidden_share"] = hidden
            found |= profiled(steps, 12, nbytes)
            found["device_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
            del steps
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return found
    finally:
        close(loader)


def main() -> None:
    args = arguments(__doc__, seconds=1.0, limit=100, workers={"type": int, "default": min(8, cores())})
    batch = 8 if args.small else args.batch
    with Results("copies", args) as results:
        for dtype in (torch.uint8, torch.float32):
            kind = str(dtype).removeprefix("torch.")
            images = torch.randint(0, 255, (8 * batch, *SHAPE), dtype=torch.uint8).to(dtype)
            nbytes = images[:batch].nbytes
            limit = None
            if args.device != "cpu":
                limit = results.attempt(f"{kind} pinned limit, GB/s", lambda n=nbytes: pinned_copies(n, 30))
            gbps = limit["pinned_to_device"] if limit else 50.0
            # Somewhat longer than the copy, so that a copy can hide behind it.
            products, computing = products_for(args.device, 1.3 * nbytes / gbps / 1e9)
            for name, make in loaders(images, batch, args.device, args.workers).items():
                found = results.attempt(
                    f"{kind} {name}",
                    lambda make=make, p=products, c=computing, n=nbytes: measured(
                        make, args.device, args.seconds, p, c, n
                    ),
                    quiet=True,
                )
                if found is None:
                    continue
                for key in ("alone_gbps", "copy_gbps_median"):
                    if limit and found.get(key):
                        found[f"{key}_of_limit"] = found[key] / gbps
                results.put(f"{kind} {name}", found)
                line(f"{kind} {name}", found)


def line(name: str, found: dict[str, Any]) -> None:
    """The figures that the bars are about."""

    def number(key: str) -> str:
        return "-" if found.get(key) is None else f"{found[key]:.2f}"

    print(
        f"{name:46} alone {number('alone_gbps')} GB/s ({number('alone_gbps_of_limit')} of limit)"
        f"  copies {number('copy_gbps_median')} GB/s ({number('copy_gbps_median_of_limit')})"
        f"  with compute {number('with_compute_ms')} ms of {number('compute_only_ms')}"
        f"  hidden {number('hidden_share')}  beside kernels {number('copies_beside_kernels_share')}"
        f"  device-wide syncs {number('device_wide_synchronizations_per_step')}"
        f"  waits {found.get('calls_that_wait_per_step')}",
        flush=True,
    )


if __name__ == "__main__":
    main()
