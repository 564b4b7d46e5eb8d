"""Images in an HDF5 file, opened by each worker."""

from pathlib import Path
from typing import Any

import h5py
import made
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset[Any]):
    def __init__(self, path: str) -> None:
        self.path = path
        self.file: Any = None
        with h5py.File(path, "r") as file:
            self.length = len(file["labels"])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        image = torch.from_numpy(self.file["images"][i]).permute(2, 0, 1).float() / 255
        return image, int(self.file["labels"][i])


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Images(made.hdf5(folder, count * 5)), batch_size=32, num_workers=workers, shuffle=True)
