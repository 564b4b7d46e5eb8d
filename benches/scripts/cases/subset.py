"""The parts of random_split."""

from pathlib import Path
from typing import Any

import torch
from made import photographs
from torch.utils.data import DataLoader, random_split
from torchvision import transforms
from torchvision.datasets import ImageFolder


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose([transforms.Resize((160, 160)), transforms.ToTensor()])
    whole = ImageFolder(photographs(folder, count), chain)
    train, _ = random_split(whole, [0.75, 0.25], torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size=32, num_workers=workers, shuffle=True)
