"""A pipeline of webdataset for evaluation; torch's loader makes the batches."""

from pathlib import Path
from typing import Any

import webdataset as wds
from made import shards
from torch.utils.data import DataLoader
from torchvision import transforms

chain = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


def loader(folder: Path, count: int, workers: int) -> Any:
    data = wds.WebDataset(shards(folder, count), shardshuffle=False)
    data = data.decode("pilrgb").to_tuple("jpg", "cls").map_tuple(chain, lambda label: label)
    return DataLoader(data, batch_size=32, num_workers=workers)
