"""One pickle a sample."""

import pickle
from pathlib import Path
from typing import Any

import torch
from made import pickles
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        with open(self.paths[i], "rb") as file:
            sample = pickle.load(file)
        return torch.as_tensor(sample["x"]), sample["y"]


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(pickles(folder, count)), batch_size=32, num_workers=workers, shuffle=True)
