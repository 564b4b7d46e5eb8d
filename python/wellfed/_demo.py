"""`python -m wellfed demo`: one small training, fed twice, and where its time went.

Generates photographs, trains the same network from the same seed first with torch's DataLoader and
torchvision on Pillow, then with wellfed, and compares samples per second, the share of each step spent
waiting for data, and accuracy on held-out photographs. Draws both step timelines into one picture.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _photos

CLASSES = 10
HELD_OUT = 5
"""One photograph in so many is kept for measuring accuracy."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Settings:
    """What both trainings share."""

    train: Path
    held_out: Path
    epochs: int
    batch: int
    size: int
    """Side of the training images, pixels."""
    workers: int
    seed: int = 0


@dataclass
class Run:
    """What one training did: a (wait, compute) pair of seconds per step, and what it learned."""

    name: str
    steps: list[tuple[float, float]] = field(default_factory=list)
    samples: int = 0
    accuracy: float = 0.0

    @property
    def seconds(self) -> float:
        """Time in training steps; measuring accuracy is not in it."""
        return sum(wait + compute for wait, compute in self.steps)

    @property
    def waiting(self) -> float:
        """Seconds of it spent waiting for data."""
        return sum(wait for wait, _ in self.steps)

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def share(self) -> float:
        """The part of the time spent waiting for data, 0..1."""
        return self.waiting / self.seconds if self.seconds else 0.0


Loaders = tuple[Iterable[Any], Iterable[Any]]
"""The training loader and the held-out one; each gives (images, labels) batches, as often as asked."""


def stock_loaders(s: Settings) -> Loaders:
    """What most people run: ImageFolder, torchvision's transforms on Pillow images, worker processes."""
    import torch
    from torch.utils.data import DataLoader
    from torchvision import transforms as T  # type: ignore[import-untyped]
    from torchvision.datasets import ImageFolder  # type: ignore[import-untyped]

    finish = [T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    train = ImageFolder(
        str(s.train), T.Compose([T.RandomResizedCrop(s.size), T.RandomHorizontalFlip(), *finish])
    )
    held_out = ImageFolder(
        str(s.held_out), T.Compose([T.Resize(s.size * 8 // 7), T.CenterCrop(s.size), *finish])
    )
    order = torch.Generator().manual_seed(s.seed)
    return (
        DataLoader(
            train,
            s.batch,
            shuffle=True,
            num_workers=s.workers,
            generator=order,
            persistent_workers=s.workers > 0,
        ),
        DataLoader(held_out, s.batch, num_workers=s.workers),
    )


def wellfed_loaders(s: Settings) -> Loaders:
    """The same work, by wellfed."""
    import wellfed as wf
    from wellfed import transforms as T

    finish = (T.ToDtype("float32", scale=True), T.Normalize(IMAGENET_MEAN, IMAGENET_STD))
    train = wf.image_folder(str(s.train)).shuffle(seed=s.seed)
    train = train.map(T.RandomResizedCrop(s.size), T.RandomHorizontalFlip(), *finish).batch(s.batch)
    held_out = wf.image_folder(str(s.held_out))
    held_out = held_out.map(T.Resize(s.size * 8 // 7), T.CenterCrop(s.size), *finish).batch(s.batch)
    return train.torch(num_workers=s.workers), held_out.torch(num_workers=s.workers)


def _network(size: int) -> Any:
    """Four small convolutions: enough for these classes, quick enough for two cores."""
    from torch import nn

    def block(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        return [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *block(3, 16, 5, 4 if size >= 96 else 2),
        *block(16, 32, 3, 2),
        *block(32, 64, 3, 2),
        *block(64, 128, 3, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )


def train(name: str, make: Callable[[Settings], Loaders], s: Settings) -> Run:
    """Trains from scratch and measures; the loaders are made inside the first step's clock."""
    import torch
    from torch.nn import functional as F

    torch.manual_seed(s.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        # Threads of one operation wait for one another; when loaders keep taking cores away from them,
        # each step takes many times as long. Half of the cores for the model is better for both sides.
        torch.set_num_threads(max(1, _cores() // 2))
    model = _network(s.size).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.02)
    run = Run(name)
    clock = time.perf_counter()
    batches, held_out = make(s)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=s.epochs * len(batches))  # type: ignore[arg-type]
    for epoch in range(s.epochs):
        losses: list[Any] = []
        first, seen = clock, run.samples
        for images, labels in batches:
            arrived = time.perf_counter()
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            loss = F.cross_entropy(model(images), labels.to(device, non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            losses.append(loss.detach())
            if device.type == "cuda":
                torch.cuda.synchronize()  # or the device's work would be booked as waiting
            done = time.perf_counter()
            run.steps.append((arrived - clock, done - arrived))
            run.samples += len(labels)
            clock = done
        mean = float(torch.stack(losses).mean()) if losses else 0.0
        pace = (run.samples - seen) / max(clock - first, 1e-9)
        print(f"  epoch {epoch + 1}/{s.epochs}   loss {mean:5.3f}   {pace:6,.0f} samples/s", flush=True)
    right = total = 0
    model.eval()
    with torch.inference_mode():
        for images, labels in held_out:
            guess = model(images.to(device, memory_format=torch.channels_last)).argmax(1).cpu()
            right += int((guess == labels.cpu()).sum())
            total += len(labels)
    run.accuracy = right / max(total, 1)
    return run


def table(runs: Sequence[Run]) -> str:
    """The comparison, as text."""
    rows = [
        ("samples per second", [f"{r.rate:,.0f}" for r in runs]),
        ("training time", [f"{r.seconds:.1f} s" for r in runs]),
        ("of it waiting for data", [f"{100 * r.share:.0f} %" for r in runs]),
        ("accuracy, held-out photographs", [f"{100 * r.accuracy:.1f} %" for r in runs]),
    ]
    widths = [max(len(r.name), 10) for r in runs]
    lines = [" " * 32 + "   ".join(r.name.rjust(w) for r, w in zip(runs, widths, strict=True))]
    for title, cells in rows:
        lines.append(title.ljust(32) + "   ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True)))
    return "\n".join("  " + line for line in lines)


def _cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _duration(seconds: float) -> str:
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s" if seconds >= 60 else f"{seconds:.0f} s"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the process's exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wellfed demo", description="One small training, fed twice."
    )
    parser.add_argument("--root", type=Path, default=Path(".demo"), help="where photographs and picture go")
    parser.add_argument("--count", type=int, default=2000, help="photographs to generate")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=128, help="side of the training images, pixels")
    parser.add_argument("--workers", type=int, default=_cores(), help="processes or threads for each loader")
    parser.add_argument("--only", choices=("stock", "wellfed"), help="train with one of them alone")
    args = parser.parse_args(argv)
    for name in ("count", "epochs", "batch_size", "size"):
        if getattr(args, name) < (HELD_OUT * CLASSES if name == "count" else 1):
            parser.error(f"--{name.replace('_', '-')} is too small: {getattr(args, name)}")
    try:
        import torch
        import torchvision  # noqa: F401  # part of the comparison: say so now, not after a minute
    except ImportError as error:
        print(f"error: the demo trains a PyTorch model: {error}", file=sys.stderr)
        print("hint: pip install torch torchvision", file=sys.stderr)
        return 1

    started = time.perf_counter()
    kept = args.count // HELD_OUT
    print(f"1. Photographs: {args.count:,} in {CLASSES} classes, one in {HELD_OUT} held out", flush=True)
    s = Settings(
        train=_photos.generate_photos(args.root / "train", args.count - kept, CLASSES, seed=0),
        held_out=_photos.generate_photos(args.root / "held-out", kept, CLASSES, seed=1),
        epochs=args.epochs,
        batch=args.batch_size,
        size=args.size,
        workers=args.workers,
    )
    files = [f.stat().st_size for f in args.root.glob("*/*/*.jpg")]
    print(f"   {sum(files) / 1e6:.0f} MB, {sum(files) / len(files) / 1000:.0f} kB each", flush=True)

    sides: list[tuple[str, str, Callable[[Settings], Loaders]]] = [
        ("stock", "torch DataLoader, torchvision on Pillow", stock_loaders),
        ("wellfed", "wellfed", wellfed_loaders),
    ]
    runs: list[Run] = []
    for number, (key, said, make) in enumerate([x for x in sides if args.only in (None, x[0])], 2):
        print(f"{number}. Training, fed by {said} ({s.workers} workers)", flush=True)
        runs.append(train("DataLoader" if key == "stock" else key, make, s))

    print(f"\n{table(runs)}\n")
    if len(runs) == 2 and runs[0].rate:
        print(f"  The same training, {runs[1].rate / runs[0].rate:.2f}x as fast.")
    if not torch.cuda.is_available():
        threads = torch.get_num_threads()
        on = f"{threads} CPU thread" + ("s" if threads > 1 else "")
        print(f"  Here the model runs on {on} and shares the cores with its loader: a loader also slows")
        print("  the model down, and part of what is booked as computing is time lost to loading. A GPU")
        print("  computes faster and leaves the CPU to the loader: there, waiting decides even more.")
    print("  Both start from the same weights. Their crops come from different random generators, so losses")
    print("  and accuracy agree as two seeds of one training do, not to the digit.")
    picture = args.root / "timeline.png"
    from . import _demo_picture

    _demo_picture.draw(picture, [(r.name, r.steps, r.rate) for r in runs])
    print(f"\n  Where every step's time went: {picture}")
    print(f"  Done in {_duration(time.perf_counter() - started)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
