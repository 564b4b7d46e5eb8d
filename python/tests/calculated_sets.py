"""Data sets of one's own that calculate with masks, as scripts for segmentation do."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torchvision.transforms.functional as F1
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode

import several_sets as sets


class Plain(sets.Base):
    """The image is the same for all; masks are what `mask` makes of a path."""

    def __getitem__(self, i: int) -> Any:
        image = F1.to_tensor(F1.resize(Image.open(self.images[i]).convert("RGB"), [30, 36]))
        return image, self.mask(self.opened(self.masks[i]), i)

    def opened(self, path: str) -> Any:
        return F1.resize(Image.open(path), [30, 36], interpolation=InterpolationMode.NEAREST)

    def mask(self, opened: Any, i: int) -> Any:
        raise NotImplementedError


class InPlace(Plain):
    """As in a U-Net's data set."""

    def opened(self, path: str) -> Any:
        return F1.resize(Image.open(path).convert("L"), [30, 36], InterpolationMode.NEAREST)

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened, dtype=np.float32)
        mask[mask == 20.0] = 1.0
        mask[(mask == 3) | ~(mask > 2)] = 0
        mask /= 7
        return mask


class Encoded(Plain):
    """Numbers of classes by a table, as for street scenes."""

    void = (0, 1, 9)
    classes: ClassVar = {7: 0, 8: 1, 11: 2, 12: 3}

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        mask = self.encode(mask)
        return torch.from_numpy(mask).long()

    def encode(self, mask: Any) -> Any:
        for number in self.void:
            mask[mask == number] = 255
        for given, wanted in self.classes.items():
            mask[mask == given] = wanted
        for place, number in enumerate([13, 14]):
            mask[mask == number] = place
        return mask


class Remade(Plain):
    """What the example of Albumentations does to trimaps."""

    def mask(self, opened: Any, i: int) -> Any:
        return self.preprocessed(np.array(opened))[None]

    @staticmethod
    def preprocessed(mask: Any) -> Any:
        mask = mask.astype(np.float32)
        mask[mask == 2.0] = 0.0
        mask[(mask == 1.0) | (mask == 3.0)] = 1.0
        return mask


class Looked(Plain):
    """A table of numbers of classes."""

    table = (np.arange(256) * 7 % 251).astype(np.uint8)
    long = torch.arange(256) * 3

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        return self.long[torch.from_numpy(self.table[mask]).long()]


class Chosen(Plain):
    """New arrays of old ones."""

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.asarray(opened)
        new = np.zeros_like(mask, dtype=np.int16)
        new[mask == 7] = -1
        new[np.isin(mask, [8, 9])] = 2
        new += np.where(mask > 12, 1, 0).astype(np.int16)
        return torch.as_tensor(np.clip(new, -1, 2), dtype=torch.int64).unsqueeze(0)


class Tensors(Plain):
    """Tensors, in place."""

    def mask(self, opened: Any, i: int) -> Any:
        mask = F1.pil_to_tensor(opened).squeeze(0).long()
        mask[mask == 20] = -100
        mask -= 1
        mask[mask > 3] -= 2
        return torch.where(mask < 0, torch.zeros_like(mask), mask.clamp(0, 9))


class Divided(Plain):
    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened) // 3 - 1
        return (mask > 2).astype(np.uint8) * mask / 255


class Moved(sets.Base):
    """Is calculated with before the image and the mask are transformed."""

    def __getitem__(self, i: int) -> Any:
        mask = np.array(Image.open(self.masks[i]))
        mask[mask == 20] = 0
        mask[mask > 1] = 3
        image, mask = self.transforms(
            Image.open(self.images[i]).convert("RGB"), tv_tensors.Mask(torch.from_numpy(mask > 2).float())
        )
        return image, mask


class Augmented(sets.Base):
    """As U-Nets with Albumentations have it."""

    def __getitem__(self, i: int) -> Any:
        image = np.array(Image.open(self.images[i]).convert("RGB"))
        mask = np.array(Image.open(self.masks[i]).convert("L"), dtype=np.float32)
        mask[mask == 20.0] = 1.0
        mask[mask > 2] = 0
        augmented = self.transforms(image=image, mask=mask)
        return augmented["image"], augmented["mask"]


# What stays in Python, with a part of the reason.


class TwoNames(Plain):
    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        other = mask
        mask[mask == 7] = 1
        other[other == 1] = 2
        view = torch.from_numpy(mask)
        mask[mask == 9] = 5
        return view


class Held(Plain):
    """The caller looks at the mask that is changed."""

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        return torch.stack([torch.from_numpy(mask), torch.from_numpy(self.ones(mask))])

    def ones(self, mask: Any) -> Any:
        mask[mask > 3] = 1
        return mask


class Before(Plain):
    """An argument that was there before the call of the next one changes it."""

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        return self.both(mask, Held.ones(self, mask))  # type: ignore[arg-type]

    def both(self, one: Any, other: Any) -> Any:
        return one - other


class ReadOnly(Plain):
    def mask(self, opened: Any, i: int) -> Any:
        mask = np.asarray(opened)
        try:
            mask[mask == 7] = 1
        except ValueError:
            return np.array(opened) - 1
        return mask


class Picked(Plain):
    """A mask of numbers picks rows, not pixels."""

    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        mask[mask] = 1
        return mask


class Summed(Plain):
    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        mask[mask > mask.mean()] = 1
        return mask


class Listed(Plain):
    def mask(self, opened: Any, i: int) -> Any:
        mask = np.array(opened)
        kept = [mask]
        mask[mask == 7] = 1
        return kept[0]


REFUSED: dict[Any, str] = {
    TwoNames: "has two names",
    Held: "that its caller has",
    Before: "that its caller has",
    ReadOnly: "may be read-only",
    Summed: "mean.. of a mask is not known",
    Listed: "has two names",
}
