"""MNIST as everybody begins with it."""

from pathlib import Path
from typing import Any

import made
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import MNIST


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    data = MNIST(made.mnist(folder, count * 50), train=True, transform=chain)
    return DataLoader(data, batch_size=64, num_workers=workers, shuffle=True)
