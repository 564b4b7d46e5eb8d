"""ImageFolder with TrivialAugmentWide."""

from pathlib import Path
from typing import Any

from made import photographs
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

RANDOM = True


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.TrivialAugmentWide(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return DataLoader(
        ImageFolder(photographs(folder, count), chain), batch_size=32, num_workers=workers, shuffle=True
    )
