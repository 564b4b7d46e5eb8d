"""One .npy file a sample."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from made import arrays
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(np.load(self.paths[i])), i


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(arrays(folder, count)), batch_size=32, num_workers=workers, shuffle=True)
