"""Data sets of one's own whose samples are more than an image: masks, boxes, other images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.transforms.functional as F1
from PIL import Image
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from pictures import picture

MODES = ("P", "L", "1", "I;16")


def write(root: Path, mode: str = "P", count: int = 11) -> Path:
    """Images of several sizes, with masks of theirs."""
    for folder in ("images", "masks"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for i in range(count):
        height, width = 40 + i % 5, 52 - i % 4
        Image.fromarray(picture(i, height, width)).save(root / "images" / f"{i:03}.jpg", quality=90)
        values = np.random.default_rng(i).integers(0, 21, (height, width), np.uint8)
        mask(values, mode).save(root / "masks" / f"{i:03}.png")
    return root


def mask(values: Any, mode: str) -> Image.Image:
    if mode == "1":
        return Image.fromarray(values > 9)
    if mode == "I;16":
        return Image.fromarray(values.astype(np.uint16) * 1000)
    found = Image.frombytes(mode, values.shape[::-1], values.tobytes())
    if mode == "P":
        found.putpalette([7 * number % 256 for number in range(768)])
    return found


class Base(Dataset[Any]):
    def __init__(self, root: Path, transforms: Any = None, mask_transform: Any = None) -> None:
        self.images = sorted(map(str, Path(root).glob("images/*")))
        self.masks = sorted(map(str, Path(root).glob("masks/*")))
        self.transforms, self.mask_transform = transforms, mask_transform
        count = len(self.images)
        self.boxes = [[[1.5 * (i % 5), 2.0, 10.0 + i % 7, 12.0]] * (1 + i % 3) for i in range(count)]
        self.labels = [[1 + (i + n) % 4 for n in range(1 + i % 3)] for i in range(count)]

    def __len__(self) -> int:
        return len(self.images)


class Tutorial(Base):
    """As torchvision's tutorials have it."""

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        mask = tv_tensors.Mask(np.array(Image.open(self.masks[i])))
        if self.transforms is not None:
            image, mask = self.transforms(image, mask)
        return image, mask


class Wrapped(Base):
    """Both are tv_tensors; what comes out is a dictionary."""

    def __getitem__(self, i: int) -> Any:
        image = tv_tensors.Image(Image.open(self.images[i]).convert("RGB"))
        mask = tv_tensors.Mask(Image.open(self.masks[i]))
        image, mask = self.transforms(image, mask)
        return {"image": image, "mask": mask.squeeze(0).long(), "name": os.path.basename(self.images[i])}


class Nested(Base):
    """One dictionary goes through the transforms, with what they do not change."""

    def __getitem__(self, i: int) -> Any:
        sample = {
            "image": Image.open(self.images[i]).convert("RGB"),
            "mask": tv_tensors.Mask(torch.from_numpy(np.array(Image.open(self.masks[i]).convert("L")))),
            "more": (i, [float(i), f"{i}"]),
        }
        return self.transforms(sample)


class Apart(Base):
    """As U-Nets' data sets are written: each has its own transforms."""

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        mask = Image.open(self.masks[i]).convert("L")
        if self.transforms is not None:
            image = self.transforms(image)
        if self.mask_transform is not None:
            mask = self.mask_transform(mask)
        return image, mask


class Classes(Base):
    """Numbers of classes."""

    def __getitem__(self, i: int) -> Any:
        image = F1.to_tensor(F1.resize(Image.open(self.images[i]).convert("RGB"), [30, 36]))
        mask = F1.resize(Image.open(self.masks[i]), [30, 36], interpolation=InterpolationMode.NEAREST)
        return image, torch.from_numpy(np.array(mask)).long()


class Binary(Base):
    """Calculates with masks."""

    def __getitem__(self, i: int) -> Any:
        image = F1.to_tensor(F1.resize(Image.open(self.images[i]).convert("RGB"), [30, 36]))
        grey = F1.resize(Image.open(self.masks[i]).convert("L"), [30, 36], InterpolationMode.NEAREST)
        mask = (np.array(grey, dtype=np.float32) / 255 > 0.05).astype(np.float32)
        return image, torch.from_numpy(mask).unsqueeze(0), self.labels[i][0]


class Whole(Base):
    """Files of one size, or batches of one."""

    def __getitem__(self, i: int) -> Any:
        return F1.to_tensor(Image.open(self.images[i]).convert("RGB")), F1.pil_to_tensor(
            Image.open(self.masks[i])
        )


class Twice(Base):
    """Two images that have nothing to do with each other."""

    def __getitem__(self, i: int) -> Any:
        high = Image.open(self.images[i]).convert("RGB")
        low = Image.open(self.images[(i + 1) % len(self.images)]).convert("RGB")
        return self.mask_transform(low), self.transforms(high), [self.labels[i][0], {"place": i}]


class Detection(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        target: dict[str, Any] = {}
        target["boxes"] = tv_tensors.BoundingBoxes(
            self.boxes[i], format="XYXY", canvas_size=F.get_size(image)
        )
        target["labels"] = torch.tensor(self.labels[i], dtype=torch.int64)
        target["image_id"] = i
        if self.transforms is not None:
            image, target = self.transforms(image, target)
        return image, target


class Sized(Base):
    """The size is asked of Pillow, and boxes are whole numbers."""

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        width, height = image.size
        boxes = torch.as_tensor(self.boxes[i]).long()
        target = {
            "labels": torch.as_tensor(self.labels[i]),
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYWH", canvas_size=(height, width)),
            "area": torch.tensor(self.boxes[i])[:, 2],
        }
        return self.transforms(tv_tensors.Image(image), target)


# What stays in Python, with a part of the reason.


class TwoImages(Base):
    """torchvision takes a Pillow mask for an image."""

    def __getitem__(self, i: int) -> Any:
        return self.transforms(
            Image.open(self.images[i]).convert("RGB"), Image.open(self.masks[i]).convert("L")
        )


class Instances(Base):
    """One mask for each object."""

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        mask = torch.from_numpy(np.array(Image.open(self.masks[i])))
        numbers = torch.unique(mask)[1:]
        masks = tv_tensors.Mask((mask == numbers[:, None, None]).to(torch.uint8))
        return self.transforms(image, masks)[0]


class Canvas(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        boxes = tv_tensors.BoundingBoxes(self.boxes[i], format="XYXY", canvas_size=(40, 50))
        return self.transforms(image, {"boxes": boxes})


class Drawn(Base):
    """Turns in Python."""

    def __getitem__(self, i: int) -> Any:
        image, mask = Image.open(self.images[i]).convert("RGB"), Image.open(self.masks[i]).convert("L")
        if torch.rand(1) < 0.5:
            angle = 10 * torch.rand(1).item()
            image, mask = F1.rotate(image, angle), F1.rotate(mask, angle)
        return F1.to_tensor(F1.resize(image, [30, 36])), F1.to_tensor(F1.resize(mask, [30, 36]))


class Changed(Base):
    """Changes a part of a mask in place."""

    def __getitem__(self, i: int) -> Any:
        image = F1.to_tensor(F1.resize(Image.open(self.images[i]).convert("RGB"), [30, 36]))
        mask = np.array(F1.resize(Image.open(self.masks[i]).convert("L"), [30, 36]))
        mask[:3] = 1
        return image, mask


class Hidden(Base):
    """Something that is transformed too lies in a list."""

    def __init__(self, root: Path, transforms: Any = None, mask_transform: Any = None) -> None:
        super().__init__(root, transforms, mask_transform)
        self.more = [tv_tensors.Mask(torch.full((40, 50), i, dtype=torch.uint8)) for i in range(len(self))]

    def __getitem__(self, i: int) -> Any:
        return self.transforms(Image.open(self.images[i]).convert("RGB"), self.more[i])


REFUSED: dict[Any, str] = {
    TwoImages: "tv_tensors.Mask.mask. is moved as a mask",
    Instances: "calls .*unique|the method|slice|None|is not known",
    Canvas: "another canvas_size",
    Drawn: "a number that it draws",
    Changed: "changes an object in place",
    Hidden: "NotPlainError|transformed with it",
}
