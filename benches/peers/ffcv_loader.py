"""FFCV from its own file format, written once beside the photographs.

FFCV's writer decodes and encodes every photograph anew (JPEG, quality 90), and its batches are NCHW in
shape but channels-last in memory: its own, cheapest form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import (
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, RandomTranslate, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from torchvision.datasets import ImageFolder

from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("ffcv", "torch", "numba")


class _SmallImages:
    """The in-memory images, indexable for FFCV's writer."""

    def __init__(self, count: int) -> None:
        self.images, self.labels = small_images(count)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.images[index], int(self.labels[index])


def _file(job: Job) -> str:
    """The FFCV file for `job`, written if it is not there yet."""
    small = job.work.name == "cifar"
    path = job.photos.parent / (f"small-{job.images}.beton" if small else f"{job.photos.name}.beton")
    if not path.exists():
        partial = path.with_suffix(".partial")
        mode = "raw" if small else "jpg"
        fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=90), "label": IntField()}
        writer = DatasetWriter(str(partial), fields, num_workers=job.workers)
        writer.from_indexed_dataset(_SmallImages(job.images) if small else ImageFolder(str(job.photos)))
        partial.replace(path)
    return str(path)


def _normalize(mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    return NormalizeImage(np.array(mean) * 255, np.array(std) * 255, np.float32)


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    match job.work.name:
        case "train":
            steps = [
                RandomResizedCropRGBImageDecoder((224, 224)),
                RandomHorizontalFlip(),
                _normalize(MEAN, STD),
            ]
        case "eval":
            steps = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256), _normalize(MEAN, STD)]
        case _:
            steps = [
                SimpleRGBImageDecoder(),
                RandomHorizontalFlip(),
                RandomTranslate(padding=4),
                _normalize(CIFAR_MEAN, CIFAR_STD),
            ]
    order = OrderOption.SEQUENTIAL if job.work.name == "eval" else OrderOption.RANDOM
    loader = Loader(
        _file(job),
        batch_size=job.work.batch,
        num_workers=job.workers,
        order=order,
        os_cache=True,
        drop_last=False,
        seed=0,
        pipelines={"image": [*steps, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor()]},
    )

    def epoch() -> Iterator[Any]:
        return (images for images, _ in loader)

    return epoch
