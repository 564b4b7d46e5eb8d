"""Photographs whose decoding or resizing is left to the device, beside the CPU alone, and the kernels by themselves.

    python benches/gpu/decode.py --out OUT --photos FOLDER

"equal" compares batches of the device with those of the CPU, bit by bit. Rates are of float32 batches on the device, by
so many threads. "kernels" are the times of each on one batch that lies in device memory, by the profiler.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import (
    MEAN,
    ONLY,
    SIZE,
    STD,
    Results,
    arguments,
    chosen,
    close,
    cores,
    images_of,
    in_turns,
    photographs,
    rate,
    synchronize,
    wellfed_loader,
)
from rivals import waited

import wellfed as wf
from wellfed import transforms as T

KINDS = ("resize", "decode", "indexed copy", "indexed decode", "packed resize", "packed decode", "nvjpeg")


def equal(root: Any, device: str) -> dict[str, Any]:
    """Batches with and without the device, over shapes, types and geometry."""
    found: dict[str, Any] = {}
    ends = {
        "float32": [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)],
        "bfloat16": [T.ToDtype("bfloat16", scale=True)],
        "uint8": [],
    }
    for dtype, end in ends.items():
        for name, steps in {
            "RandomResizedCrop": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()],
            "Resize": [T.Resize(256, interpolation="bicubic"), T.CenterCrop(SIZE)],
            "large": [T.Resize((700, 900)), T.RandomVerticalFlip()],
        }.items():
            for layout in ("NCHW", "NHWC"):
                plain = wf.image_folder(str(root)).shuffle(seed=1).map(*steps, *end).batch(32).take(3)
                for kind in ("resize", "decode"):
                    wanted = list(plain.torch(device, layout=layout))
                    got = list(plain.torch(device, on_device=kind, layout=layout))
                    same = [torch.equal(a, b) for (a, _), (b, _) in zip(wanted, got, strict=True)]
                    found[f"{dtype} {name} {layout} {kind}"] = all(same)
    cached = wf.image_folder(str(root)).take(200).cache().shuffle(seed=1)
    steps = [T.RandomResizedCrop(SIZE), *ends["float32"]]
    loaders = [cached.map(*steps).batch(32).torch(device, on_device=k) for k in ("copy", "decode")]
    for loader in loaders:
        loader.set_epoch(0)
    for epoch in range(2):
        same = [torch.equal(a, b) for (a, _), (b, _) in zip(*loaders, strict=True)]
        found[f"cached, epoch {epoch}"] = all(same)
    wrong = [name for name, same in found.items() if not same]
    return {"compared": len(found), "different": wrong}


def kernels(kind: str, root: Any, batch: int, device: str) -> dict[str, Any]:
    """Times of the kernels on one batch, in microseconds, and the bytes that are copied for it."""
    loader = wellfed_loader(kind, root, batch, cores(), device)
    native = loader._native
    if loader._pages is not None:
        loader._pages.begin()
    native.start_epoch()
    # Coefficients are packed from the second epoch on.
    for _ in range(2 * 10_000 // batch if " " in kind else 1):
        columns = native.next()
    left = loader._build(columns)[0]
    for _ in range(3):
        out = left.to(device)
    synchronize(device)
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.startswith("cuda"):
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    rounds = 10
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(rounds):
            out = left.to(device)
        synchronize(device)
    times: dict[str, float] = {}
    for event in profile.events():
        if "cuda" in str(event.device_type).lower() and "Activity" not in event.name:
            times[event.name[:40]] = times.get(event.name[:40], 0.0) + event.device_time / rounds
    begin = time.perf_counter()
    for _ in range(rounds):
        left.to(device)
    submitted = (time.perf_counter() - begin) / rounds
    synchronize(device)
    took = (time.perf_counter() - begin) / rounds
    close(loader)
    return {
        "copied_MB": left.nbytes / 1e6,
        "out_MB": out.nbytes / 1e6,
        "submit_us": submitted * 1e6,
        "whole_us": took * 1e6,
        "images_per_s": batch / took,
        **dict(sorted(times.items(), key=lambda item: -item[1])[:9]),
    }


def main() -> None:
    args = arguments(__doc__, seconds=2.5, limit=140, rounds={"type": int, "default": 2}, only=ONLY)
    device = args.device
    with Results("decode", args) as results:
        root = photographs(args)
        if device.startswith("cuda") and not args.only:
            results.attempt("equal", lambda: equal(root, device))
            for kind in ("indexed decode", "packed decode", "decode", "resize", "nvjpeg"):
                results.attempt(f"kernels, {kind}", lambda kind=kind: kernels(kind, root, args.batch, device))

        def wellfed(kind: str, threads: int) -> float:
            loader = wellfed_loader(kind, root, args.batch, threads, device)
            # Coefficients are packed, and rows found, while images are first read.
            warm = 3 + 2 * 10_000 // args.batch if " " in kind else 4
            try:
                return rate(waited(loader, device), args.seconds, warm, images_of)
            finally:
                synchronize(device)
                close(loader)

        cases: dict[str, Any] = {}
        kinds = ("cpu", *KINDS) if device.startswith("cuda") else ("cpu",)
        for threads in sorted({2, cores()}):
            for kind in kinds:
                cases[f"wellfed {kind}, {threads} threads"] = lambda k=kind, t=threads: wellfed(k, t)
        in_turns(results, chosen(cases, args.only), args.rounds, "images/s")


if __name__ == "__main__":
    main()
