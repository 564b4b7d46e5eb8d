"""ResNet-50 in bfloat16, channels_last, batch 256: images a second on synthetic device tensors and with loaders.

    python benches/gpu/training.py --out OUT --photos FOLDER [--cores 2]

In turns. The synthetic batch lies on the device already: no loader can be faster. `--cores` leaves the process so many
cores, for the case of small machines; its figures are kept apart.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from common import (
    ONLY,
    SIZE,
    Results,
    arguments,
    chosen,
    close,
    cores,
    in_turns,
    moved,
    photographs,
    synchronize,
    torch_loader,
    wellfed_loader,
)

CLASSES = 1000


class Trainer:
    """The model and its step, kept from case to case."""

    def __init__(self, device: str, small: bool) -> None:
        import torch
        import torchvision

        torch.backends.cudnn.benchmark = True
        self.torch, self.device = torch, device
        make = torchvision.models.resnet18 if small else torchvision.models.resnet50
        self.model = make(num_classes=CLASSES).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)

    def step(self, images: Any, labels: Any) -> None:
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.partition(":")[0], dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()

    def rate(self, batches: Iterable[Any], seconds: float, warm: int) -> float:
        """Images a second. The loop is at most some steps ahead of the device, as loops that read their loss are."""
        source = iter(batches)
        events: list[Any] = []

        def one() -> int:
            images, labels = next(source)
            self.step(images.to(memory_format=self.torch.channels_last), labels)
            if self.device.startswith("cuda"):
                events.append(self.torch.cuda.Event())
                events[-1].record()
                if len(events) > 4:
                    events.pop(0).synchronize()
            return len(labels)

        for _ in range(warm):
            one()
        synchronize(self.device)
        done, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            done += one()
        synchronize(self.device)
        return done / (time.perf_counter() - begin)

    def synthetic(self, batch: int) -> Iterator[Any]:
        images = self.torch.randn(batch, 3, SIZE, SIZE, device=self.device)
        images = images.to(memory_format=self.torch.channels_last)
        labels = self.torch.randint(0, CLASSES, (batch,), device=self.device)
        return itertools.repeat((images, labels))


def main() -> None:
    args = arguments(
        __doc__,
        seconds=4,
        limit=110,
        rounds={"type": int, "default": 2},
        only=ONLY,
        cores={"type": int, "default": 0, "help": "use only so many cores; 0: all"},
    )
    if args.cores:
        # Before torch makes any thread.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
        os.environ["OMP_NUM_THREADS"] = str(args.cores)
    batch, threads = 8 if args.small else args.batch, cores()
    part = f"training on {threads} cores" if args.cores else "training"
    with Results(part, args) as results:
        root = photographs(args)
        trainer = Trainer(args.device, args.small)
        results.put("cores", threads)

        def synthetic() -> float:
            return trainer.rate(trainer.synthetic(batch), args.seconds, 5)

        def wellfed(kind: str) -> float:
            # The bytes of a batch are NHWC, which as NCHW is channels_last.
            loader = wellfed_loader(kind, root, batch, threads, args.device, layout="NHWC")
            try:
                seen = ((images.permute(0, 3, 1, 2), labels) for images, labels in loader)
                # Rows are found, and coefficients packed, while images are first read.
                for _ in range(2 * args.images // batch if " " in kind else 0):
                    next(seen)
                return trainer.rate(seen, args.seconds, 5)
            finally:
                synchronize(args.device)
                close(loader)

        def torch() -> float:
            loader = torch_loader(root, batch, threads, pin=args.device != "cpu")
            # Each worker's first batch comes at the same time as the others'.
            return trainer.rate(moved(loader, args.device), 1.5 * args.seconds, threads)

        def warm_up() -> float:
            return trainer.rate(trainer.synthetic(batch), 1.0, 10)

        results.attempt("warm-up", warm_up)
        cases: dict[str, Callable[[], float]] = {
            "synthetic": synthetic,
            f"wellfed cpu, {threads} threads": lambda: wellfed("cpu"),
            **{
                f"wellfed {kind}, {threads} threads": lambda kind=kind: wellfed(kind)  # type: ignore[misc]
                for kind in ("indexed decode", "packed decode", "indexed auto", "packed auto")
                if args.device.startswith("cuda")
            },
            f"torch DataLoader, {threads} workers": torch,
        }
        cases = chosen(cases, args.only)
        medians = in_turns(results, cases, args.rounds, "images/s")
        if "synthetic" in medians:
            shares = {name: one / medians["synthetic"] for name, one in medians.items()}
            results.put("of synthetic", shares)
            print("of synthetic:", ", ".join(f"{n}: {100 * s:.1f} %" for n, s in shares.items()), flush=True)


if __name__ == "__main__":
    main()
