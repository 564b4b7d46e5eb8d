"""A few small photographs in two class folders."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from PIL import Image


def few_photographs(root: Path) -> str:
    """Writes 18 pictures of several sizes into `root`, JPEGs but for a PNG, one of them grey; returns it as text."""
    draw = random.Random(1)
    for k in range(18):
        size = draw.randrange(30, 120), draw.randrange(30, 120)
        noise = np.random.default_rng(k).integers(0, 256, (8, 8, 3), np.uint8)
        image = Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)
        folder = root / f"class_{k % 2}"
        folder.mkdir(exist_ok=True)
        if k == 15:
            image.save(folder / f"{k:02d}.png")
        else:
            image.convert("L" if k == 16 else "RGB").save(folder / f"{k:02d}.jpg", quality=70 + k)
    return str(root)
