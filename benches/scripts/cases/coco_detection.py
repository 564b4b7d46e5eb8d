"""Detection on COCO, with image and boxes transformed together as torchvision's references do it."""

from pathlib import Path
from typing import Any

import torch
from made import coco
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

RANDOM_SIZES = True


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = v2.Compose(
        [
            v2.RandomShortestSize(min_size=(320, 352, 384, 416, 448, 480), max_size=640),
            v2.RandomHorizontalFlip(0.5),
            v2.ToImage(),
            v2.ToDtype(torch.float, scale=True),
            v2.SanitizeBoundingBoxes(),
            v2.ToPureTensor(),
        ]
    )
    dataset = datasets.wrap_dataset_for_transforms_v2(
        datasets.CocoDetection(*coco(folder, count), transforms=chain)
    )
    return DataLoader(
        dataset, batch_size=8, num_workers=workers, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch))
    )
