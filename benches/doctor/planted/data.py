"""Data the planted scripts train on: photograph-like JPEGs, arrays in several wrappings, tiny files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from common import folder


def picture(rng: np.random.Generator, width: int, height: int) -> np.ndarray:
    """Something that costs what a photograph costs to decode: soft areas, edges, grain."""
    from PIL import Image

    image = np.zeros((height, width, 3), np.float32)
    for cells, weight in ((4, 90), (16, 60), (64, 40)):
        coarse = rng.integers(0, 255, (cells, cells, 3), np.uint8)
        image += np.asarray(Image.fromarray(coarse).resize((width, height), 3), np.float32) * (weight / 190)
    image += rng.normal(0, 6, image.shape).astype(np.float32)
    return image.clip(0, 255).astype(np.uint8)


def jpegs(width: int, count: int, distinct: int = 24) -> Path:
    """A folder `a`, `b` (two classes) of JPEGs of width x 3/4 width; only some are distinct, the others are links."""
    from PIL import Image

    def make(at: Path) -> None:
        rng = np.random.default_rng(width)
        for i in range(count):
            place = at / "ab"[i % 2] / f"{i:05}.jpg"
            place.parent.mkdir(exist_ok=True)
            if i < distinct:
                Image.fromarray(picture(rng, width, width * 3 // 4)).save(place, quality=90)
            else:
                j = i % distinct
                os.link(at / "ab"[j % 2] / f"{j:05}.jpg", place)

    return folder(f"jpeg-{width}-{count}", make)


def arrays(size: int, count: int) -> Path:
    """A folder of `00000.bin`, …: files of so many random bytes each."""

    def make(at: Path) -> None:
        rng = np.random.default_rng(size)
        for i in range(count):
            (at / f"{i:05}.bin").write_bytes(rng.bytes(size))

    return folder(f"bin-{size}-{count}", make)
