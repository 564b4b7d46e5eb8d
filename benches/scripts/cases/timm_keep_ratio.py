"""timm's data set over folders with those of its transforms for training that keep the aspect ratio."""

from pathlib import Path
from typing import Any

from made import photographs
from timm.data import create_dataset, create_transform
from torch.utils.data import DataLoader

RANDOM = True


def loader(folder: Path, count: int, workers: int) -> Any:
    data = create_dataset("", photographs(folder, count))
    data.transform = create_transform(224, is_training=True, train_crop_mode="rkrc", color_jitter=None)
    return DataLoader(data, batch_size=32, num_workers=workers, shuffle=True)
