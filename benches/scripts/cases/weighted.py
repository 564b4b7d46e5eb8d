"""Classes drawn by weight."""

from pathlib import Path
from typing import Any

from made import photographs
from torch.utils.data import DataLoader, WeightedRandomSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose([transforms.Resize((160, 160)), transforms.ToTensor()])
    whole = ImageFolder(photographs(folder, count), chain)
    weights = [1.0 + label for label in whole.targets]
    return DataLoader(
        whole, batch_size=32, num_workers=workers, sampler=WeightedRandomSampler(weights, len(whole))
    )
