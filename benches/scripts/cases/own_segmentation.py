"""Segmentation of one's own: an image and its mask, through one transform of v2, as torchvision's tutorials do it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from made import voc
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

RANDOM_SIZES = True


class Samples(Dataset[Any]):
    def __init__(self, root: Path, transforms: Any) -> None:
        self.images = sorted((root / "JPEGImages").glob("*.jpg"))
        self.masks = sorted((root / "SegmentationClass").glob("*.png"))
        self.transforms = transforms

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        mask = tv_tensors.Mask(np.array(Image.open(self.masks[i])))
        return self.transforms(image, mask)


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = v2.Compose(
        [
            v2.RandomResizedCrop((256, 256), scale=(0.5, 1)),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(
                {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
            ),
            v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    dataset = Samples(Path(voc(folder, count)) / "VOCdevkit" / "VOC2012", chain)
    return DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=True, drop_last=True)
