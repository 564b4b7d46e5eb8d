"""Rows of a memory-mapped file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from made import matrix
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, path: Any) -> None:
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(np.array(self.rows[i])), i % 10


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(matrix(folder, count * 20)), batch_size=128, num_workers=workers, shuffle=True)
