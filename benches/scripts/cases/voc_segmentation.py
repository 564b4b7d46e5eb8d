"""Segmentation of VOC, with image and mask transformed together as torchvision's references do it."""

from pathlib import Path
from typing import Any

import torch
from made import voc
from torch.utils.data import DataLoader
from torchvision import datasets, tv_tensors
from torchvision.transforms import v2

RANDOM_SIZES = True


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = v2.Compose(
        [
            v2.RandomResize(min_size=260, max_size=1040),
            v2.RandomHorizontalFlip(0.5),
            v2.RandomCrop(480, pad_if_needed=True, fill={tv_tensors.Mask: 255, "others": 0}),
            v2.ToImage(),
            v2.ToDtype(
                {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
            ),
            v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    dataset = datasets.VOCSegmentation(voc(folder, count), transforms=chain)
    dataset = datasets.wrap_dataset_for_transforms_v2(dataset)
    return DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=True, drop_last=True)
