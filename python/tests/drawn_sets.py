"""Data sets of one's own that draw flips and crops themselves, for an image and what belongs to it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as TF
from PIL import Image, ImageOps
from torchvision.transforms import InterpolationMode

import several_sets as sets


class Base(sets.Base):
    training = True

    def opened(self, i: int) -> Any:
        return Image.open(self.images[i]).convert("RGB"), Image.open(self.masks[i])

    def __getitem__(self, i: int) -> Any:
        image, mask = self.opened(i)
        image, mask = self.transform(image, mask)
        return TF.to_tensor(image), torch.from_numpy(np.array(mask)).long()

    def transform(self, image: Any, mask: Any) -> Any:
        raise NotImplementedError


class Flipped(Base):
    """As torch's guides have it."""

    def transform(self, image: Any, mask: Any) -> Any:
        image = TF.resize(image, (30, 36))
        mask = TF.resize(mask, (30, 36), InterpolationMode.NEAREST)
        if random.random() > 0.5:
            image = TF.hflip(image)
            mask = TF.hflip(mask)
        if self.training and torch.rand(1) < 0.25:
            image, mask = TF.vflip(image), TF.vflip(mask)
        return image, mask


class Cropped(Base):
    """With what `get_params` draws, and colours that change by chance; these are what they were then."""

    jitter = T.ColorJitter((1.0, 1.0))

    def transform(self, image: Any, mask: Any) -> Any:
        i, j, h, w = T.RandomCrop.get_params(image, output_size=(30, 36))
        image = TF.crop(image, i, j, h, w)
        mask = TF.crop(mask, i, j, h, w)
        flip = np.random.rand() < 0.5
        if flip:
            image = ImageOps.mirror(image)
        if np.random.rand() < 0.7:
            image = self.jitter(image)
        if flip:
            mask = mask.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image, mask


class Tensors(Base):
    """Flips tensors, between calculations."""

    def __getitem__(self, i: int) -> Any:
        image, opened = self.opened(i)
        image = TF.pil_to_tensor(TF.resize(image, (30, 36)))
        mask = TF.pil_to_tensor(TF.resize(opened, (30, 36), InterpolationMode.NEAREST)).squeeze(0).long()
        mask[mask == 20] = 255
        sample = {"image": image, "mask": mask}
        if random.randint(0, 1):
            sample["image"] = TF.hflip(sample["image"])
            sample["mask"] = TF.hflip(sample["mask"])
        sample["mask"] = sample["mask"] - 1
        sample["image"] = TF.convert_image_dtype(sample["image"], torch.float32)
        return sample


class Pairs(Base):
    """From one image to another, as in image translation."""

    def __getitem__(self, i: int) -> Any:
        one = Image.open(self.images[i]).convert("RGB")
        other = Image.open(self.images[i]).convert("L")
        one, other = TF.resize(one, (33, 41)), TF.resize(other, (33, 41))
        one = TF.normalize(TF.to_tensor(one), (0.0,), (1.0,)) if self.training is None else one
        i_, j, h, w = T.RandomCrop.get_params(one, (30, 36))
        one, other = TF.crop(one, i_, j, h, w), TF.crop(other, i_, j, h, w)
        if random.random() < 0.5:
            one, other = TF.hflip(one), TF.hflip(other)
        if np.random.randint(2):
            one, other = TF.vflip(one), TF.vflip(other)
        return TF.to_tensor(one), TF.to_tensor(other)


class Zoomed(Base):
    """Parts of any size, and a place more of what does nothing to the other image."""

    def __getitem__(self, i: int) -> Any:
        one = Image.open(self.images[i]).convert("RGB")
        other = Image.open(self.images[i]).convert("L")
        one = TF.resize(TF.resize(one, (50, 60)), (40, 44))
        other = TF.resize(other, (40, 44))
        where = T.RandomResizedCrop.get_params(one, scale=(0.3, 0.9), ratio=(0.8, 1.25))
        one = TF.resized_crop(one, *where, (30, 36))
        other = TF.resized_crop(other, *where, (30, 36))
        return TF.to_tensor(one), TF.to_tensor(other)


class Alone(Base):
    """An image by itself; its label is looked up."""

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        top, left, height, width = T.RandomCrop.get_params(image, output_size=(30, 36))
        image = TF.crop(image, top, left, height, width)
        if random.random() < 0.5:
            image = TF.hflip(image)
        if random.random() > 0.8:
            image = TF.vflip(image)
        return TF.to_tensor(image), i


# What stays in Python, with a part of the reason.


class OneNumber(Base):
    """One number decides both flips."""

    def transform(self, image: Any, mask: Any) -> Any:
        number = random.random()
        if number < 0.5:
            image, mask = TF.hflip(image), TF.hflip(mask)
        if number < 0.25:
            image, mask = TF.vflip(image), TF.vflip(mask)
        return image, mask


class Else(Base):
    def transform(self, image: Any, mask: Any) -> Any:
        if random.random() < 0.5:
            image, mask = TF.hflip(image), TF.hflip(mask)
        else:
            image, mask = TF.vflip(image), TF.vflip(mask)
        return image, mask


class Unlike(Base):
    """One of the two is flipped the other way."""

    def transform(self, image: Any, mask: Any) -> Any:
        if random.random() < 0.5:
            image, mask = TF.hflip(image), TF.vflip(mask)
        return image, mask


class Only(Base):
    """The image is flipped without its mask."""

    def transform(self, image: Any, mask: Any) -> Any:
        if random.random() < 0.5:
            image = TF.hflip(image)
        return image, mask


class Each(Base):
    """Each by a number of its own."""

    def transform(self, image: Any, mask: Any) -> Any:
        if random.random() < 0.5:
            image = TF.hflip(image)
        if random.random() < 0.5:
            mask = TF.hflip(mask)
        return image, mask


class Label(Base):
    """What was drawn becomes a part of the sample."""

    def __getitem__(self, i: int) -> Any:
        image = TF.to_tensor(TF.resize(Image.open(self.images[i]).convert("RGB"), (30, 36)))
        number = random.random()
        if number < 0.5:
            image = TF.hflip(image)
        return image, number


class Unsized(Base):
    """Images that may differ in size."""

    def __getitem__(self, i: int) -> Any:
        one = Image.open(self.images[i]).convert("RGB")
        other = Image.open(self.images[i]).convert("L")
        where = T.RandomCrop.get_params(one, (30, 36))
        return TF.to_tensor(TF.crop(one, *where)), TF.to_tensor(TF.crop(other, *where))


class Masked(Base):
    """Pillow's nearest pixel of a mask is another one than torch's."""

    def transform(self, image: Any, mask: Any) -> Any:
        where = T.RandomResizedCrop.get_params(image, [0.5, 0.9], [0.8, 1.2])
        image = TF.resized_crop(image, *where, [30, 36])
        return image, TF.resized_crop(mask, *where, [30, 36], InterpolationMode.NEAREST)


REFUSED: dict[Any, str] = {
    OneNumber: "decides two things",
    Else: "decides more than a flip",
    Unlike: "decides two things",
    Only: "without what belongs to it",
    Each: "without what belongs to it",
    Label: "a part of its samples|a number that it draws|not known",
    Unsized: "may differ in size",
    Masked: "by another rule",
}
