"""`wellfed.torch.Augment` on the device: its bits, and its kernels by themselves against the memory's bandwidth.

    python benches/gpu/augment_kernels.py --out OUT

Batches of 256 x 3 x 256 x 256 uint8. "equal" compares random chains on the device with the CPU, bit by bit. "kernels"
launches one batch's plan again and again, so that nothing is measured but the device; `of_memory` is the share of what
a copy within the device reaches, counted in the bytes that must be read and written: the crops once, the result once.
`augment.py` beside this times whole calls, with draws and planning on the CPU.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from common import MEAN, SIZE, STD, Results, arguments

from wellfed import _native
from wellfed import transforms as T
from wellfed.torch import Augment

SIDE = 256


def tail(dtype: str) -> list[T.Transform]:
    return [T.RandomHorizontalFlip(), T.ToDtype("float32", True), T.Normalize(MEAN, STD), T.ToDtype(dtype)]


def chains() -> dict[str, tuple[list[T.Transform], bool, int | None]]:
    """By name: transforms, whether the result is channels_last, and source pixels that an image reads (None: drawn)."""
    crop, resize, drawn = T.RandomCrop(SIZE), T.Resize((SIZE, SIZE)), T.RandomResizedCrop(SIZE)
    colours, jitter = T.ColorJitter(0.4, 0, 0.4, 0.1), T.ColorJitter(0.4, 0.4, 0.4, 0.1)
    return {
        "RandomCrop, float32": ([crop, *tail("float32")], False, SIZE * SIZE),
        "Resize, float32": ([resize, *tail("float32")], False, SIDE * SIDE),
        "Resize, bfloat16 channels_last": ([resize, *tail("bfloat16")], True, SIDE * SIDE),
        "RandomResizedCrop, float32": ([drawn, *tail("float32")], False, None),
        "RandomResizedCrop, bfloat16 channels_last": ([drawn, *tail("bfloat16")], True, None),
        "RandomResizedCrop, colours, bfloat16": ([drawn, colours, *tail("bfloat16")], False, None),
        "RandomResizedCrop, ColorJitter, bfloat16": ([drawn, jitter, *tail("bfloat16")], False, None),
    }


def read_pixels(transforms: list[T.Transform], batch: int) -> int:
    """Pixels of the crops that RandomResizedCrop draws, on average: scale is uniform between 0.08 and 1."""
    crop = transforms[0]
    assert isinstance(crop, T.RandomResizedCrop)
    return round(batch * SIDE * SIDE * sum(crop.scale) / 2)


class Planned:
    """One batch's plan and its memory."""

    def __init__(self, transforms: list[T.Transform], last: bool, images: torch.Tensor) -> None:
        augment = Augment(transforms, seed=0, channels_last=last)
        count, *size = images.shape
        made = _native.Augmentation(augment._plan, tuple(size), last, 0)
        *sides, dtype = made.output
        form = torch.channels_last if last else torch.contiguous_format
        self.out = torch.empty(
            (count, *sides), dtype=getattr(torch, dtype), device=images.device, memory_format=form
        )
        self.images = images
        self.plan = made.plan(
            list(range(count)), 0, images.data_ptr(), list(images.stride()), self.out.data_ptr()
        )
        self.memory = torch.empty(self.plan.memory, dtype=torch.uint8, device=images.device)
        self.scratch = torch.empty(self.plan.scratch, dtype=torch.uint8, device=images.device)
        given = torch.empty(self.plan.copied, dtype=torch.uint8)
        self.plan.write(given.data_ptr(), given.nbytes)
        self.memory[: given.nbytes].copy_(given)
        self.cuda = images.is_cuda

    def run(self) -> None:
        device = self.images.device.index if self.cuda else None
        stream = torch.cuda.current_stream().cuda_stream if self.cuda else 0
        self.plan.run(device, stream, self.memory.data_ptr(), self.scratch.data_ptr())

    def milliseconds(self, times: int) -> float:
        """Of the device, for one batch."""
        return milliseconds(self.run, times, self.cuda)


def milliseconds(work: Any, times: int, cuda: bool) -> float:
    if not cuda:
        work()
        return float("nan")
    for _ in range(3):
        work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def different(device: str, count: int) -> dict[str, int]:
    """Elements that differ from the CPU's, over random chains."""
    draw = random.Random(0)
    found = {"chains": 0, "elements": 0, "different": 0}
    for seed in range(count):
        chain = [
            T.RandomResizedCrop(
                (draw.randint(5, 300), draw.randint(5, 300)),
                interpolation=draw.choice(["nearest", "bilinear", "bicubic", "lanczos"]),
            ),
            *draw.sample(
                [
                    T.ColorJitter(0.4, 0.4, 0.4, 0.2),
                    T.RandomPhotometricDistort(),
                    T.RandomGrayscale(0.5),
                    T.RandomEqualize(),
                    T.RandomAutocontrast(),
                    T.RandomSolarize(100),
                    T.RandomCrop(40, 8, pad_if_needed=True, padding_mode="reflect"),
                    T.RandomVerticalFlip(),
                    T.RandomErasing(0.5, value=9),
                ],
                draw.randint(0, 5),
            ),
            *tail(draw.choice(["float32", "float16", "bfloat16"])),
            T.RandomErasing(0.5, value=draw.choice([0, "random"])),
        ]
        images = torch.randint(
            0, 256, (9, 3, draw.randint(30, 900), draw.randint(30, 900)), dtype=torch.uint8
        )
        augment = Augment(chain, seed=seed, channels_last=draw.random() < 0.5)
        expected = augment(images, range(9))
        made = augment._run(images.to(device), range(9), kernels=True).cpu()
        found["chains"] += 1
        found["elements"] += made.numel()
        # Values of such ranges have no two zeros and no infinities to tell apart.
        found["different"] += int((made != expected).sum())
    # Hues of all colours: on the device they are integers and float32, on the CPU as Pillow's.
    colour = torch.arange(1 << 24, dtype=torch.int32).view(1, 1 << 12, 1 << 12)
    images = torch.stack([colour & 255, colour >> 8 & 255, colour >> 16], 1).to(torch.uint8)
    augment = Augment([T.ColorJitter(hue=(0.07, 0.07))], seed=0)
    found["different"] += int(
        (augment._run(images.to(device), [0], kernels=True).cpu() != augment(images)).sum()
    )
    found["elements"] += images.numel()
    return found


def main() -> None:
    args = arguments(__doc__, seconds=1.0, limit=100)
    device, cuda = args.device, args.device.startswith("cuda")
    batch, times = (8, 1) if args.small else (args.batch, 50)
    with Results("augment_kernels", args) as results:
        results.attempt("equal", lambda: different(device, 5 if args.small else 60))
        images = torch.randint(0, 256, (batch, 3, SIDE, SIDE), dtype=torch.uint8, device=device)
        if cuda:
            one = torch.empty(1 << 28, dtype=torch.uint8, device=device)
            other = torch.empty_like(one)

            def copied() -> float:
                return 2 * one.nbytes / milliseconds(lambda: other.copy_(one), times, cuda) / 1e6

            memory = results.attempt("copy within the device, GB/s", copied)
            del one, other
        else:
            memory = None
        for name, (transforms, last, pixels) in chains().items():

            def kernels(
                transforms: Any = transforms, last: bool = last, pixels: Any = pixels
            ) -> dict[str, Any]:
                planned = Planned(transforms, last, images)
                took = planned.milliseconds(times)
                read = batch * pixels if pixels else read_pixels(transforms, batch)
                nbytes = 3 * read + planned.out.nbytes
                rate_ = nbytes / took / 1e6
                return {
                    "ms": took,
                    "gbps": rate_,
                    "of_memory": rate_ / memory if memory else None,
                    "kernels": len(planned.plan.kernels),
                }

            results.attempt(f"kernels: {name}", kernels)


if __name__ == "__main__":
    main()
