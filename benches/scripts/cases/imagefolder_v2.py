"""ImageFolder with transforms of v2."""

from pathlib import Path
from typing import Any

import torch
from made import photographs
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

RANDOM = True


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = v2.Compose(
        [
            v2.RandomResizedCrop(224),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    return DataLoader(
        ImageFolder(photographs(folder, count), chain), batch_size=32, num_workers=workers, shuffle=True
    )
