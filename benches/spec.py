"""What is measured: the works, their constants, and how a loader presents itself.

Standard library only: the driver and every peer's own environment import this file.
A peer is one module in `benches/peers/` with

    PACKAGES: tuple[str, ...]           # distributions whose versions are recorded
    def build(job: Job) -> EpochFn      # ImportError or Skip if it cannot run here

`EpochFn()` starts one epoch and yields finished image batches, anything with `shape`, `dtype` and
indexing that `touch` can read. The same `EpochFn` is called once per epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
"""ImageNet's channel statistics on a 0..1 scale, as torchvision's reference recipes use them."""

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2470, 0.2435, 0.2616)
"""CIFAR-10's channel statistics on a 0..1 scale."""

EpochFn = Callable[[], Iterable[Any]]


class Skip(Exception):
    """The peer cannot do this work here; the message says why and is shown in the table."""


@dataclass(frozen=True)
class Work:
    """One unit of comparison: what goes in, what must come out."""

    name: str
    title: str
    batch: int
    size: int
    """Height and width of the finished images, pixels."""


WORKS: dict[str, Work] = {
    w.name: w
    for w in (
        Work("train", "photographs: RandomResizedCrop(224), flip, normalize", 64, 224),
        Work("eval", "photographs: Resize(256), CenterCrop(224), normalize", 64, 224),
        Work("cifar", "32x32 in memory: RandomCrop(32, padding=4), flip, normalize", 256, 32),
    )
}

PEERS: dict[str, tuple[str, str, str]] = {
    # name: (environment, module in benches/peers, how the table calls it)
    "wellfed": ("wellfed", "wellfed_loader", "wellfed"),
    "wellfed-plain": ("wellfed", "wellfed_plain", 'wellfed, row_index="off"'),
    "wellfed-cache": ("wellfed", "wellfed_cache", 'wellfed, cache("coefficients")'),
    "torch-pillow": ("torch", "torch_pillow", "torch DataLoader, torchvision on Pillow"),
    "torch-v2": ("torch", "torch_v2", "torch DataLoader, torchvision v2 tensors"),
    "dali": ("dali", "dali", "DALI (CPU)"),
    "tfdata": ("tf", "tf_data", "tf.data, decode_and_crop, AUTOTUNE"),
    "albumentationsx": ("torch", "albumentationsx", "torch DataLoader, AlbumentationsX (OpenCV)"),
    "ffcv": ("ffcv", "ffcv_loader", "FFCV, its own file"),
}


@dataclass(frozen=True)
class Job:
    """One measurement: a work, its data, and the threads or worker processes it may use."""

    work: Work
    photos: Path
    """Folder of class folders of JPEG files; unused by the in-memory work."""
    images: int
    """Images in one epoch."""
    workers: int


def touch(batch: Any) -> tuple[tuple[int, ...], str, float]:
    """Shape, dtype and the last element of a batch; reading it proves that the batch is finished."""
    value = float(batch[-1, -1, -1, -1])
    return tuple(int(n) for n in batch.shape), str(batch.dtype).removeprefix("torch."), value


def small_images(count: int) -> tuple[Any, Any]:
    """The in-memory data set: `count` seeded uint8 NHWC 32x32x3 images and int64 labels, NumPy arrays."""
    import numpy as np

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return images, rng.integers(0, 10, count, dtype=np.int64)
