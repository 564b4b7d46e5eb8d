"""A TensorDataset."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset


def loader(folder: Path, count: int, workers: int) -> Any:
    make = torch.Generator().manual_seed(0)
    x = torch.randn(count * 100, 32, generator=make)
    y = torch.arange(len(x)) % 10
    return DataLoader(TensorDataset(x, y), batch_size=128, num_workers=workers, shuffle=True)
