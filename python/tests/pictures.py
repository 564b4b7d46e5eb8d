"""Pictures that tests share, and folders of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def picture(seed: int, height: int, width: int, channels: int = 3) -> Pixels:
    """Smooth shapes with some noise: like a photograph for resampling and JPEG."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(channels):
        waves = sum(
            random.uniform(20, 50) * np.sin(x * random.uniform(0.01, 0.2) + y * random.uniform(0.01, 0.2) + k)
            for k in range(3)
        )
        planes.append(128 + waves + random.normal(0, 6, (height, width)))
    return np.clip(np.stack(planes, 2), 0, 255).astype(np.uint8)


def write_folder(root: Path, count: int = 24, classes: int = 3) -> Path:
    """`count` JPEG and PNG files of various sizes in class folders."""
    random = np.random.default_rng(7)
    for i in range(count):
        folder = root / f"class{i % classes}"
        folder.mkdir(parents=True, exist_ok=True)
        height, width = random.integers(40, 160, 2)
        image = Image.fromarray(picture(i, int(height), int(width)))
        if i % 5 == 4:
            image.save(folder / f"{i:03}.png")
        else:
            image.save(folder / f"{i:03}.jpg", quality=85, subsampling=i % 3)
    return root
