"""A pipeline of webdataset with torchvision's training chain; the pipeline makes the batches."""

from pathlib import Path
from typing import Any

import webdataset as wds
from made import shards
from torch.utils.data import DataLoader
from torchvision import transforms

RANDOM = True

chain = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


def loader(folder: Path, count: int, workers: int) -> Any:
    data = (
        wds.WebDataset(shards(folder, count), shardshuffle=4, seed=0)
        .shuffle(100, seed=0)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(chain)
        .batched(32)
    )
    return DataLoader(data, batch_size=None, num_workers=workers)
