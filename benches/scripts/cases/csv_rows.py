"""Rows of a CSV file in lists."""

import csv
from pathlib import Path
from typing import Any

import torch
from made import table
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, path: Any) -> None:
        with open(path, newline="") as file:
            self.rows = list(csv.reader(file))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        *values, label = self.rows[i]
        return torch.tensor([float(value) for value in values]), int(label)


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(table(folder, count * 20)), batch_size=64, num_workers=workers, shuffle=True)
