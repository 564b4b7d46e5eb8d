"""wellfed itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import wellfed as wf
from spec import CIFAR_MEAN, CIFAR_STD, EpochFn, Job, small_images
from wellfed import transforms as T

PACKAGES = ("wellfed", "torch", "numpy")


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    finish = (T.ToDtype("float32", scale=True), T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD))
    match job.work.name:
        case "train":
            dataset = wf.image_folder(str(job.photos)).shuffle(seed=0)
            dataset = dataset.map(T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *finish)
        case "eval":
            dataset = wf.image_folder(str(job.photos)).map(T.Resize(256), T.CenterCrop(224), *finish)
        case _:
            dataset = wf.from_tensor_slices(small_images(job.images)).shuffle(seed=0)
            dataset = dataset.map(
                T.RandomCrop(32, padding=4),
                T.RandomHorizontalFlip(),
                T.ToDtype("float32", scale=True),
                T.Normalize(CIFAR_MEAN, CIFAR_STD),
            )
    loader = dataset.batch(job.work.batch, drop_last=False).torch(num_workers=job.workers)

    def epoch() -> Iterator[Any]:
        return (images for images, _ in loader)

    return epoch
