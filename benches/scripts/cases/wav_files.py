"""Sounds by the standard library."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch
from made import sounds
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        with wave.open(str(self.paths[i])) as file:
            samples = np.frombuffer(file.readframes(16000), np.int16)
        return torch.from_numpy(samples.astype(np.float32) / 32768), i


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(sounds(folder, count)), batch_size=32, num_workers=workers, shuffle=True)
