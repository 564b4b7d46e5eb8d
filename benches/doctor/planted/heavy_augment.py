"""Augments each sample in pure Python (even seeds) or wasteful NumPy (odd seeds). Fixed: by whole arrays, or not."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from torch.utils.data import DataLoader, Dataset


def solarize(image: np.ndarray, threshold: int) -> np.ndarray:
    """Inverts bright pixels of the first channel, pixel by pixel."""
    out = image.copy()
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            if out[y, x, 0] > threshold:
                out[y, x, 0] = 255 - out[y, x, 0]
    return out


def blur(image: np.ndarray, radius: int) -> np.ndarray:
    """Mean of the neighbourhood, by one shifted copy for each neighbour."""
    total = np.zeros(image.shape, np.float64)
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            total += np.roll(image.astype(np.float64), (dy, dx), (0, 1))
    return (total / (2 * radius + 1) ** 2).astype(np.uint8)


def solarize_whole(image: np.ndarray, threshold: int) -> np.ndarray:
    first = image[..., :1]
    return np.concatenate([np.where(first > threshold, 255 - first, first), image[..., 1:]], -1)


class Scans(Dataset):
    def __init__(self, size: int, kind: str, slow: bool) -> None:
        self.images = np.random.default_rng(0).integers(0, 256, (256, size, size, 3), np.uint8)
        self.kind, self.slow = kind, slow

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.images[index % 256]
        if self.kind == "pixels":
            image = solarize(image, 128) if self.slow else solarize_whole(image, 128)
        elif self.slow:
            image = blur(image, 2)
        return torch.from_numpy(np.ascontiguousarray(image))


def prepare(draw: Draw) -> dict:
    kind = "neighbours" if draw.case_seed % 2 else "pixels"
    size, batch = draw.choice([32, 48] if kind == "pixels" else [64, 96]), draw.choice([8, 16])
    dataset = Scans(size, kind, True)
    cost = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    return {"size": size, "kind": kind, "batch": batch, "step": cost / CORES / draw.gain()}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    dataset = Scans(s.size, s.kind, slow=not args.fixed)
    loader = DataLoader(
        dataset,
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
        pin_memory=False,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for images in loader:
            loss = device_step(images, s.step)
            if clock.step(len(images), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
