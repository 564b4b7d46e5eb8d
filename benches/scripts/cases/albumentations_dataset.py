"""A data set of one's own with a chain of Albumentations."""

from pathlib import Path
from typing import Any

import albumentations as A
import numpy as np
from albumentations.pytorch import ToTensorV2
from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset

RANDOM = True


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        self.chain = A.Compose(
            [A.RandomResizedCrop((224, 224)), A.HorizontalFlip(), A.Normalize(), ToTensorV2()]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = np.array(Image.open(self.paths[i]).convert("RGB"))
        return self.chain(image=image)["image"], i


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=32, num_workers=workers, shuffle=True)
