"""Chunks of LitData, with a class derived from its data set that calls torchvision's chain."""

from pathlib import Path
from typing import Any

import litdata
from made import chunks
from torch.utils.data import DataLoader
from torchvision import transforms


class Samples(litdata.StreamingDataset):
    def __init__(self, folder: str) -> None:
        super().__init__(folder, shuffle=True, seed=1)
        self.chain = transforms.Compose(
            [
                transforms.Resize((224, 224)),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __getitem__(self, index: Any) -> Any:
        image, label = super().__getitem__(index)
        return self.chain(image.convert("RGB")), label


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(chunks(folder, count)), batch_size=32, num_workers=workers)
