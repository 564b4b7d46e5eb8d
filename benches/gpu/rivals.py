"""Photographs to finished batches on the device: torchvision's CUDA decoder and transforms v2 beside wellfed.

    python benches/gpu/rivals.py --out OUT --photos FOLDER

torchvision: `decode_jpeg(list, device="cuda")` of the whole batch, then RandomResizedCrop and flip for each image, as
sizes and draws differ, and conversion and normalization of the batch at once, which is the kindest way. "from memory"
has the encoded bytes in memory; "reading" reads the next batch's files in threads meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from common import (
    MEAN,
    SIZE,
    STD,
    Results,
    arguments,
    close,
    cores,
    images_of,
    in_turns,
    photographs,
    rate,
    synchronize,
    wellfed_loader,
)
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


def waited(batches: Any, device: str) -> Iterator[Any]:
    """Batches, each asked for once the device has done the one before the last."""
    before: Any = None
    for batch in batches:
        if device.startswith("cuda"):
            if before is not None:
                before.synchronize()
            before = torch.cuda.Event()
            before.record()
        yield batch


class Torchvision:
    """Batches by torchvision on the device."""

    def __init__(self, paths: list[Path], batch: int, device: str) -> None:
        self.paths, self.batch, self.device = paths, batch, device
        self.each = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])
        self.whole = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])
        self.random = random.Random(0)

    def chosen(self) -> list[Path]:
        return self.random.choices(self.paths, k=self.batch)

    def memory(self) -> Iterator[list[torch.Tensor]]:
        encoded = [read_file(str(path)) for path in self.paths]
        while True:
            yield self.random.choices(encoded, k=self.batch)

    def files(self) -> Iterator[list[torch.Tensor]]:
        with ThreadPoolExecutor(min(16, cores())) as pool:
            ahead = [pool.submit(read_file, str(path)) for path in self.chosen()]
            while True:
                this, ahead = ahead, [pool.submit(read_file, str(path)) for path in self.chosen()]
                yield [one.result() for one in this]

    def decoded(self, encoded: Iterator[list[torch.Tensor]]) -> Iterator[list[torch.Tensor]]:
        for batch in encoded:
            yield decode_jpeg(batch, mode=ImageReadMode.RGB, device=self.device)

    def finished(self, encoded: Iterator[list[torch.Tensor]]) -> Iterator[torch.Tensor]:
        for images in self.decoded(encoded):
            yield self.whole(torch.stack([self.each(image) for image in images]))


def main() -> None:
    args = arguments(__doc__, seconds=2.5, limit=110, rounds={"type": int, "default": 2})
    device = args.device
    with Results("rivals", args) as results:
        root = photographs(args)
        paths = sorted(root.glob("*/*.jpg"))
        # Encoded bytes of a hundred batches would tell no more than those of some.
        paths = random.Random(1).sample(paths, min(len(paths), 2048))

        def torchvision(batch: int, what: str) -> float:
            ours = Torchvision(paths, batch, device)
            encoded = ours.files() if "reading" in what else ours.memory()
            batches = ours.decoded(encoded) if what == "decode only" else ours.finished(encoded)
            try:
                return rate(waited(batches, device), args.seconds, 3)
            finally:
                synchronize(device)

        def wellfed(kind: str, threads: int, batch: int) -> float:
            loader = wellfed_loader(kind, root, batch, threads, device)
            try:
                return rate(waited(loader, device), args.seconds, 4, images_of)
            finally:
                synchronize(device)
                close(loader)

        sizes = [8] if args.small else [256, 128, 32]
        cases: dict[str, Any] = {}
        for what in ("decode and v2, from memory", "decode and v2, reading", "decode only"):
            for size in sizes:
                name = f"torchvision {what}, batch {size}"
                cases[name] = lambda size=size, what=what: torchvision(size, what)
        for threads in sorted({2, cores()}):
            name = f"wellfed cpu, {threads} threads, batch {sizes[0]}"
            cases[name] = lambda threads=threads: wellfed("cpu", threads, sizes[0])
        in_turns(results, cases, args.rounds, "images/s")


if __name__ == "__main__":
    main()
