"""Samples are dictionaries."""

from pathlib import Path
from typing import Any

from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        self.chain = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = self.chain(Image.open(self.paths[i]).convert("RGB"))
        return {"image": image, "name": self.paths[i].name, "index": i}


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=32, num_workers=workers, shuffle=True)
