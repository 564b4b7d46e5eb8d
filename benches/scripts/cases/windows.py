"""Windows of a time series."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, count: Any) -> None:
        self.series = torch.randn(count * 20, 8, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.series) - 96

    def __getitem__(self, i: int) -> Any:
        return self.series[i : i + 96], self.series[i + 96]


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(count), batch_size=64, num_workers=workers, shuffle=True)
