"""torch's DataLoader with AlbumentationsX on OpenCV arrays (AGPL: a benchmark peer only).

OpenCV's bilinear resize does not antialias, so this peer does less work per image than Pillow does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
os.environ.setdefault("ALBUMENTATIONS_NO_TELEMETRY", "1")

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder

from peers.torch_pillow import data_loader
from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("albumentationsx", "opencv-python-headless", "torch")


def _decode(path: str) -> Any:
    image = cv2.imread(path, cv2.IMREAD_COLOR)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


class _Transform:
    """An Albumentations pipeline with torchvision's calling convention."""

    def __init__(self, *steps: Any) -> None:
        self.pipeline = A.Compose(list(steps))

    def __call__(self, image: Any) -> Any:
        return self.pipeline(image=image)["image"]


class SmallArrays(Dataset[Any]):
    """uint8 HWC arrays in memory."""

    def __init__(self, count: int, transform: Callable[[Any], Any]) -> None:
        self.images, self.labels = small_images(count)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(self.images[index]), int(self.labels[index])


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    cv2.setNumThreads(0)  # two worker processes already fill two cores
    finish = [A.Normalize(MEAN, STD), ToTensorV2()]
    match job.work.name:
        case "train":
            steps = _Transform(A.RandomResizedCrop(size=(224, 224)), A.HorizontalFlip(p=0.5), *finish)
            return data_loader(ImageFolder(str(job.photos), steps, loader=_decode), job)
        case "eval":
            steps = _Transform(A.SmallestMaxSize(256), A.CenterCrop(224, 224), *finish)
            return data_loader(ImageFolder(str(job.photos), steps, loader=_decode), job)
        case _:
            steps = _Transform(
                A.Pad(4),
                A.RandomCrop(32, 32),
                A.HorizontalFlip(p=0.5),
                A.Normalize(CIFAR_MEAN, CIFAR_STD),
                ToTensorV2(),
            )
            return data_loader(SmallArrays(job.images, steps), job)
