"""torch's DataLoader with torchvision's own JPEG decoder and v2 transforms on tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2 as T

from peers.torch_pillow import data_loader
from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("torch", "torchvision")


def _decode(path: str) -> torch.Tensor:
    return decode_image(path, mode=ImageReadMode.RGB)


class SmallTensors(Dataset[Any]):
    """uint8 CHW tensors in memory."""

    def __init__(self, count: int, transform: Callable[[Any], Any]) -> None:
        images, labels = small_images(count)
        self.images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
        self.labels = torch.from_numpy(labels)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.transform(self.images[index]), self.labels[index]


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    finish = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
    match job.work.name:
        case "train":
            steps = [T.RandomResizedCrop(224, antialias=True), T.RandomHorizontalFlip(), *finish]
            return data_loader(ImageFolder(str(job.photos), T.Compose(steps), loader=_decode), job)
        case "eval":
            steps = [T.Resize(256, antialias=True), T.CenterCrop(224), *finish]
            return data_loader(ImageFolder(str(job.photos), T.Compose(steps), loader=_decode), job)
        case _:
            steps = [
                T.RandomCrop(32, padding=4),
                T.RandomHorizontalFlip(),
                T.ToDtype(torch.float32, scale=True),
                T.Normalize(CIFAR_MEAN, CIFAR_STD),
            ]
            return data_loader(SmallTensors(job.images, T.Compose(steps)), job)
