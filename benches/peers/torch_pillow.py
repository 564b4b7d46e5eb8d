"""torch's DataLoader with torchvision's transforms on Pillow images: what most people run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("torch", "torchvision", "pillow")


class SmallImages(Dataset[Any]):
    """Arrays in memory, handed to the transforms as Pillow images, as torchvision's CIFAR10 does."""

    def __init__(self, count: int, transform: Callable[[Any], Any]) -> None:
        self.images, self.labels = small_images(count)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.images[index])), int(self.labels[index])


def data_loader(dataset: Dataset[Any], job: Job) -> EpochFn:
    """Worker processes stay alive between epochs: the kindest setting for short epochs."""
    loader = DataLoader(
        dataset,
        batch_size=job.work.batch,
        shuffle=job.work.name != "eval",
        num_workers=job.workers,
        persistent_workers=job.workers > 0,
    )

    def epoch() -> Iterator[Any]:
        return (images for images, _ in loader)

    return epoch


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    finish = [T.ToTensor(), T.Normalize(MEAN, STD)]
    match job.work.name:
        case "train":
            steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *finish]
            return data_loader(ImageFolder(str(job.photos), T.Compose(steps)), job)
        case "eval":
            steps = [T.Resize(256), T.CenterCrop(224), *finish]
            return data_loader(ImageFolder(str(job.photos), T.Compose(steps)), job)
        case _:
            steps = [
                T.RandomCrop(32, padding=4),
                T.RandomHorizontalFlip(),
                T.ToTensor(),
                T.Normalize(CIFAR_MEAN, CIFAR_STD),
            ]
            return data_loader(SmallImages(job.images, T.Compose(steps)), job)
