"""A data set of one's own over torchvision.io."""

from pathlib import Path
from typing import Any

from made import photographs
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        self.resize = v2.Resize((224, 224))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        return self.resize(decode_image(str(self.paths[i]), ImageReadMode.RGB)), i


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=32, num_workers=workers, shuffle=True)
