"""A pipeline of webdataset that calls a function of one's own on samples."""

from pathlib import Path
from typing import Any

import webdataset as wds
from made import shards
from torch.utils.data import DataLoader
from torchvision import transforms

chain = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])


def sample(fields: Any) -> Any:
    return chain(fields["jpg"]), fields["cls"]


def loader(folder: Path, count: int, workers: int) -> Any:
    data = (
        wds.WebDataset(shards(folder, count), shardshuffle=False)
        .shuffle(100, seed=0)
        .decode("pil")
        .map(sample)
    )
    return DataLoader(data, batch_size=32, num_workers=workers)
