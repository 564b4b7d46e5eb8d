"""NVIDIA DALI's CPU operators; it never touches a GPU here.

Batches come from `Pipeline.run` without the copy that DALI's PyTorch iterator would add. DALI's reader
always fills the last batch from the next epoch, so an epoch may consume up to one batch more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia.dali import fn, math, pipeline_def, types

from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("nvidia-dali-cuda120",)


def _finish(images: Any, size: int, mean: tuple[float, ...], std: tuple[float, ...], mirror: Any) -> Any:
    return fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(size, size),
        mean=[m * 255 for m in mean],
        std=[s * 255 for s in std],
        mirror=mirror,
    )


@pipeline_def
def _train(root: str) -> Any:
    jpegs, labels = fn.readers.file(file_root=root, random_shuffle=True, name="reader")
    images = fn.decoders.image_random_crop(
        jpegs,
        device="cpu",
        output_type=types.RGB,
        random_aspect_ratio=[3 / 4, 4 / 3],
        random_area=[0.08, 1.0],
    )
    images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
    return _finish(images, 224, MEAN, STD, fn.random.coin_flip(probability=0.5)), labels


@pipeline_def
def _eval(root: str) -> Any:
    jpegs, labels = fn.readers.file(file_root=root, random_shuffle=False, name="reader")
    images = fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
    images = fn.resize(images, resize_shorter=256, interp_type=types.INTERP_LINEAR, antialias=True)
    return _finish(images, 224, MEAN, STD, 0), labels


class _ShuffledBatches:
    """Endless shuffled uint8 NHWC batches for `external_source`."""

    def __init__(self, count: int, batch: int) -> None:
        self.images, self.labels = small_images(count)
        self.batch = batch
        self.rng = np.random.default_rng(0)
        self.order = self.rng.permutation(count)
        self.at = 0

    def __call__(self) -> tuple[Any, Any]:
        if self.at >= len(self.order):
            self.order, self.at = self.rng.permutation(len(self.images)), 0
        picked = self.order[self.at : self.at + self.batch]
        self.at += self.batch
        return self.images[picked], self.labels[picked]


@pipeline_def
def _cifar(source: _ShuffledBatches) -> Any:
    images, labels = fn.external_source(
        source=source,
        num_outputs=2,
        batch=True,
        layout=["HWC", ""],
        dtype=[types.UINT8, types.INT64],
        ndim=[3, 0],
    )
    start = fn.cast(math.floor(fn.random.uniform(range=(-4.0, 5.0), shape=(2,))), dtype=types.INT32)
    images = fn.slice(images, start, (32, 32), axes=(0, 1), out_of_bounds_policy="pad", fill_values=0)
    return _finish(images, 32, CIFAR_MEAN, CIFAR_STD, fn.random.coin_flip(probability=0.5)), labels


def build(job: Job) -> EpochFn:
    """The pipeline for `job`."""
    common = {
        "batch_size": job.work.batch,
        "num_threads": job.workers,
        "device_id": None,
        "seed": 0,
        "prefetch_queue_depth": 2,
    }
    match job.work.name:
        case "train":
            pipeline = _train(str(job.photos), **common)
        case "eval":
            pipeline = _eval(str(job.photos), **common)
        case _:
            pipeline = _cifar(_ShuffledBatches(job.images, job.work.batch), **common)
    pipeline.build()

    def epoch() -> Iterator[Any]:
        seen = 0
        while seen < job.images:
            images, _ = pipeline.run()
            batch = np.asarray(images.as_tensor())
            seen += len(batch)
            yield batch

    return epoch
