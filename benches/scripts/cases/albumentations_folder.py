"""A folder that OpenCV reads, with a chain of Albumentations."""

from pathlib import Path
from typing import Any

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from made import photographs
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder

RANDOM = True


def load(path: str) -> Any:
    return cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)


def loader(folder: Path, count: int, workers: int) -> Any:
    cv2.setNumThreads(0)
    chain = A.Compose(
        [
            A.RandomResizedCrop((224, 224)),
            A.HorizontalFlip(),
            A.RandomBrightnessContrast(),
            A.Normalize(),
            ToTensorV2(),
        ]
    )
    data = ImageFolder(photographs(folder, count), lambda image: chain(image=image)["image"], loader=load)
    return DataLoader(data, batch_size=32, num_workers=workers, shuffle=True)
