"""CIFAR-10 with its classic training chain."""

from pathlib import Path
from typing import Any

import made
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import CIFAR10

RANDOM = True


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
        ]
    )
    data = CIFAR10(made.cifar10(folder, count * 10), train=True, transform=chain)
    return DataLoader(data, batch_size=128, num_workers=workers, shuffle=True)
