"""Two folders as one."""

from pathlib import Path
from typing import Any

from made import photographs
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose([transforms.Resize((160, 160)), transforms.ToTensor()])
    root = photographs(folder, count)
    return DataLoader(
        ConcatDataset([ImageFolder(root, chain), ImageFolder(root, chain)]),
        batch_size=32,
        num_workers=workers,
        shuffle=True,
    )
