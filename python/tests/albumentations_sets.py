"""Data sets of images and masks that go through a pipeline of Albumentations."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

import several_sets as sets


class WithMask(sets.Base):
    def __getitem__(self, i: int) -> Any:
        image = np.array(Image.open(self.images[i]).convert("RGB"))
        mask = np.array(Image.open(self.masks[i]))
        if self.transforms is not None:
            augmented = self.transforms(image=image, mask=mask)
            image, mask = augmented["image"], augmented["mask"]
        return image, mask


class WithFloats(sets.Base):
    def __getitem__(self, i: int) -> Any:
        image = np.array(Image.open(self.images[i]).convert("RGB"))
        mask = np.array(Image.open(self.masks[i]).convert("L"), dtype=np.float32)
        augmentations = self.transforms(image=image, mask=mask)
        return augmentations["image"], augmentations["mask"].unsqueeze(0)
