"""A collate function that mixes the batch."""

from pathlib import Path
from typing import Any

from made import photographs
from torch.utils.data import DataLoader, default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

RANDOM = True

mix = v2.MixUp(num_classes=4)


def collate(batch: Any) -> Any:
    return mix(*default_collate(batch))


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    return DataLoader(
        ImageFolder(photographs(folder, count), chain),
        batch_size=32,
        num_workers=workers,
        shuffle=True,
        collate_fn=collate,
    )
