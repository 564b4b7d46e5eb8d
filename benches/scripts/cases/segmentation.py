"""Images and masks through one transform of v2."""

from pathlib import Path
from typing import Any

import torch
from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        self.chain = v2.Compose(
            [v2.RandomResizedCrop(160), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = tv_tensors.Image(Image.open(self.paths[i]).convert("RGB"))
        mask = tv_tensors.Mask((image[:1] > 128).to(torch.uint8))
        return self.chain(image, mask)


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=16, num_workers=workers, shuffle=True)
