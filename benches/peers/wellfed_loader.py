"""wellfed itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import wellfed as wf
from spec import CIFAR_MEAN, CIFAR_STD, EpochFn, Job, Skip, small_images
from wellfed import transforms as T

PACKAGES = ("wellfed", "torch", "numpy")


def build(job: Job, row_index: str = "memory", cache: bool = False) -> EpochFn:
    """The loader for `job`; with neither row indexes nor a cache, nothing is kept from one epoch to the next."""
    finish = (T.ToDtype("float32", scale=True), T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD))
    match job.work.name:
        case "train" | "eval":
            dataset = wf.image_folder(str(job.photos)).with_options(row_index=row_index)
            if cache:
                dataset = dataset.cache("coefficients")
        case _ if cache or row_index != "memory":
            raise Skip("the same as wellfed: there are no JPEGs")
    match job.work.name:
        case "train":
            dataset = dataset.shuffle(seed=0)
            dataset = dataset.map(T.RandomResizedCrop(224), T.RandomHorizontalFlip(), *finish)
        case "eval":
            dataset = dataset.map(T.Resize(256), T.CenterCrop(224), *finish)
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
