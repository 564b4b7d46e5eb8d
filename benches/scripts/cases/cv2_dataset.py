"""A data set of one's own over OpenCV."""

from pathlib import Path
from typing import Any

import cv2
import torch
from made import photographs
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        cv2.setNumThreads(0)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = cv2.resize(cv2.cvtColor(cv2.imread(str(self.paths[i])), cv2.COLOR_BGR2RGB), (224, 224))
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, i


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=32, num_workers=workers, shuffle=True)
