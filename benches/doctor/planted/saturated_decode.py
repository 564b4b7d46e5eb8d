"""All cores decode photographs and it is not enough. Fixed: wellfed decodes them."""

from __future__ import annotations

import itertools

import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from data import jpegs
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder


def photos(root: str) -> ImageFolder:
    steps = [T.RandomResizedCrop(160), T.RandomHorizontalFlip(), T.ToTensor()]
    return ImageFolder(root, T.Compose([*steps, T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]))


def prepare(draw: Draw) -> dict:
    torch.set_num_threads(1)
    batch = draw.choice([16, 32])
    root = jpegs(draw.choice([960, 1280, 1600]), 32 if draw.small else 384)
    dataset = photos(str(root))
    decode = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    workers = CORES * draw.choice([1, 1, 2])
    return {"root": str(root), "batch": batch, "workers": workers, "step": decode / CORES / draw.gain(2.2)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        photos(s.root), batch_size=s.batch, shuffle=True, num_workers=s.workers, persistent_workers=True
    )
    if args.fixed:
        import wellfed.torch

        loader = wellfed.torch.feed(loader)
    clock = Clock(args)
    for _ in itertools.count():
        for images, _labels in loader:
            loss = device_step(images, s.step)
            if clock.step(len(images), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
