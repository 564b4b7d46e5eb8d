"""`wellfed.torch.Augment` on batches of uint8 images on the device, beside torchvision's transforms there.

    python benches/gpu/augment.py --out OUT

Times are of the device, by events. "share of bandwidth" is the bytes that must be read (of images, what crops use on
average) and written, over the time, over what a copy on the device reaches in the same run. torchvision draws once a
batch; "per image" is the same for each image, as training wants it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from common import MEAN, SIZE, STD, Results, arguments
from torchvision.transforms import v2

from wellfed import transforms as T
from wellfed.torch import Augment


def microseconds(work: Callable[[int], Any], rounds: int = 30) -> float:
    """Median time of the device for one call; inputs differ from call to call."""
    for number in range(3):
        work(number)
    times = []
    for number in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work(number)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def main() -> None:
    args = arguments(__doc__, seconds=2, limit=60)
    with Results("augment", args) as results:
        if not args.device.startswith("cuda"):
            print("needs a CUDA device")
            return
        sides = (256, 256)
        batches = [
            torch.randint(0, 256, (args.batch, 3, *sides), dtype=torch.uint8, device=args.device)
            for _ in range(8)
        ]
        big = torch.empty(1 << 29, dtype=torch.uint8, device=args.device)
        other = torch.empty_like(big)
        copy = microseconds(lambda n: other.copy_(big))
        bandwidth = 2 * big.nbytes / copy / 1e3
        results.put("copy on the device, GB/s", bandwidth)
        print(f"copy on the device: {bandwidth:,.0f} GB/s", flush=True)
        ends = {
            "float32": [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)],
            "bfloat16": [T.ToDtype("bfloat16", scale=True), T.Normalize(MEAN, STD)],
        }
        geometry: dict[str, list[Any]] = {
            "crop + flip": [T.RandomCrop(SIZE), T.RandomHorizontalFlip()],
            "RandomResizedCrop + flip": [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()],
            "RandomResizedCrop + flip + ColorJitter": [
                T.RandomResizedCrop(SIZE),
                T.RandomHorizontalFlip(),
                T.ColorJitter(0.4, 0.4, 0.4, 0.1),
            ],
        }
        for name, steps in geometry.items():
            for dtype, end in ends.items():
                augment = Augment([*steps, *end], seed=0)

                def one(augment: Any = augment, name: str = name) -> dict[str, float]:
                    out = augment(batches[0])
                    us = microseconds(lambda n: augment(batches[n % 8]))
                    # On average a crop of RandomResizedCrop has 54 % of the image.
                    read = batches[0].nbytes * (SIZE * SIZE / 65536 if name.startswith("crop") else 0.54)
                    gbps = (read + out.nbytes) / us / 1e3
                    return {"us": us, "GB/s": gbps, "share of bandwidth": gbps / bandwidth}

                results.attempt(f"wellfed {name}, {dtype}", one)
        end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        rivals: dict[str, Any] = {
            "RandomResizedCrop + flip": v2.Compose(
                [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip(), *end]
            ),
            "RandomResizedCrop + flip + ColorJitter": v2.Compose(
                [
                    v2.RandomResizedCrop(SIZE, antialias=True),
                    v2.RandomHorizontalFlip(),
                    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
                    *end,
                ]
            ),
        }
        for name, transform in rivals.items():
            results.attempt(
                f"torchvision {name}, once a batch",
                lambda t=transform: {"us": microseconds(lambda n: t(batches[n % 8]))},
            )
            results.attempt(
                f"torchvision {name}, per image",
                lambda t=transform: {
                    "us": microseconds(lambda n: torch.stack([t(image) for image in batches[n % 8]]), 3)
                },
            )


if __name__ == "__main__":
    main()
