"""Detection of one's own: boxes and labels are looked up, and go through transforms of v2 with their image."""

from pathlib import Path
from typing import Any

import torch
from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

RANDOM_SIZES = True


def beside(batch: Any) -> Any:
    return tuple(zip(*batch))


class Samples(Dataset[Any]):
    def __init__(self, paths: Any, transforms: Any) -> None:
        self.paths, self.transforms = paths, transforms
        self.boxes = [[[4.0, 4.0, 60.0 + n, 90.0] for n in range(1 + i % 3)] for i in range(len(paths))]
        self.labels = [[1 + n for n in range(1 + i % 3)] for i in range(len(paths))]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        target = {
            "boxes": tv_tensors.BoundingBoxes(self.boxes[i], format="XYXY", canvas_size=F.get_size(image)),
            "labels": torch.tensor(self.labels[i]),
            "image_id": i,
        }
        return self.transforms(image, target)


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = v2.Compose(
        [
            v2.RandomShortestSize(min_size=(240, 288, 320), max_size=480),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    dataset = Samples(sorted(Path(photographs(folder, count)).rglob("*.jpg")), chain)
    return DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=True, collate_fn=beside)
