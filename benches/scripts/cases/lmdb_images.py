"""JPEGs in LMDB, opened where they are read."""

import io
from pathlib import Path
from typing import Any

import lmdb
from made import database
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Samples(Dataset[Any]):
    def __init__(self, path_and_count: Any) -> None:
        self.path, self.count = path_and_count
        self.opened: Any = None
        self.chain = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        if self.opened is None:
            self.opened = lmdb.open(self.path, readonly=True, lock=False)
        with self.opened.begin() as reading:
            data = reading.get(b"%d" % i)
        return self.chain(Image.open(io.BytesIO(data)).convert("RGB")), i


def loader(folder: Path, count: int, workers: int) -> Any:
    # A process may open a database once only, and both loaders are alive at the same time.
    return DataLoader(
        Samples(database(folder, count)), batch_size=32, num_workers=max(1, workers), shuffle=True
    )
