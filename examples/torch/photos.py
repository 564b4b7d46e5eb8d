"""What the examples share: a folder of photographs (yours, or generated ones) and a small network."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from torch import nn


def folder(count: int = 60) -> Path:
    """The folder named on the command line, or a new one with `count` generated photographs of three classes."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    root = Path(tempfile.mkdtemp(prefix="photos-"))
    random = np.random.default_rng(0)
    for i in range(count):
        # Smooth noise in the colour of its class, so that there is something to learn.
        coarse = random.integers(0, 128, (6, 8, 3), dtype=np.uint8)
        coarse[..., i % 3] += 127
        path = root / ["red", "green", "blue"][i % 3] / f"{i:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(coarse).resize((160, 120)).save(path, quality=90)
    return root


def network(classes: int) -> nn.Module:
    """Small enough for a processor."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, classes),
    )
