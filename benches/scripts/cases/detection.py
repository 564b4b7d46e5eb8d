"""Images and boxes as lists."""

from pathlib import Path
from typing import Any

import torch
from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2


def beside(batch: Any) -> Any:
    return tuple(zip(*batch))


class Samples(Dataset[Any]):
    def __init__(self, paths: Any) -> None:
        self.paths = paths
        self.chain = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = tv_tensors.Image(Image.open(self.paths[i]).convert("RGB"))
        height, width = image.shape[-2:]
        boxes = [[4.0, 4.0, 20.0 + n, 30.0] for n in range(1 + i % 3)]
        target = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=(height, width))
        return self.chain(image, {"boxes": target, "labels": torch.ones(len(boxes), dtype=torch.int64)})


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    return DataLoader(Samples(paths), batch_size=8, num_workers=workers, shuffle=True, collate_fn=beside)
