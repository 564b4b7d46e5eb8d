"""Whether the engine resamples 8-bit tensors as torch does on this machine.

torch has several ways to, by processor and version. So it is not asked for its version: the engine's pixels are
compared with those of this very one.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from wellfed import transforms as T

__all__ = ["different_tensors"]

_SIZES = [((37, 53), (19, 40)), ((37, 53), (61, 70)), ((90, 31), (30, 31)), ((200, 20), (7, 19))]


@functools.cache
def different_tensors() -> str:
    """Why the engine cannot stand in for torchvision v2's ``resize`` of uint8 tensors; empty if it can.

    Found out once.
    """
    from torchvision.transforms.v2 import functional as F

    for (height, width), to in _SIZES:
        # Not a generator of anybody's, whose state would change.
        i = np.arange(height * width * 3, dtype=np.int64)
        image = ((((i * i * 31) >> 3) ^ (i % 251)) & 255).astype(np.uint8).reshape(height, width, 3)
        tensor = torch.from_numpy(image).permute(2, 0, 1)
        for mode in ("bilinear", "bicubic"):
            theirs = F.resize(tensor, list(to), F.InterpolationMode(mode), antialias=True)
            ours = T.Resize(to, f"torch-{mode}")(image)
            if not np.array_equal(theirs.permute(1, 2, 0).numpy(), ours):
                return f"torch {torch.__version__} resamples tensors in another way on this machine"
    return ""
