"""Detection on COCO with SSD's augmentation, as torchvision's references have it but for the colours."""

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
            v2.RandomZoomOut(fill=(123, 117, 104)),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(p=0.5),
            v2.Resize((300, 300)),
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
        dataset, batch_size=16, num_workers=workers, shuffle=True, collate_fn=lambda batch: tuple(zip(*batch))
    )
