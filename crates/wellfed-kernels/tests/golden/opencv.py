"""Makes opencv.txt: hashes of what Albumentations' colour functions give on images that are made from their indexes.

Run with Albumentations 2.0.8 and OpenCV 5.0.0 on x86-64 with AVX2: python opencv.py > opencv.txt
"""

import albumentations.augmentations.pixel.functional as F
import numpy as np


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def image(height: int, width: int) -> np.ndarray:
    i = np.arange(height * width * 3)
    return (((i * i * 31) >> 3) & 255 ^ (i % 251)).astype(np.uint8).reshape(height, width, 3)


for height, width in [(40, 64), (33, 75), (50, 31), (7, 300)]:
    for factor in [0.0, 0.31, 0.8, 1.0, 1.2, 1.9371]:
        for name in ("brightness", "contrast", "saturation"):
            out = getattr(F, f"adjust_{name}_torchvision")(image(height, width), factor)
            print(name, height, width, factor, f"{fnv1a(out.tobytes()):016x}")
    for factor in [-0.5, -0.31, -0.001, 0.05, 0.2, 0.4999]:
        out = F.adjust_hue_torchvision(image(height, width), factor)
        print("hue", height, width, factor, f"{fnv1a(out.tobytes()):016x}")
    for shifts in [
        (-20.0, 30.5, -20.0),
        (12.75, -30.0, 7.3),
        (0.0, 0.0, 19.9),
        (179.5, 255.0, -255.0),
        (-0.5, 0.0, 0.0),
    ]:
        out = F.shift_hsv(image(height, width), *shifts)
        print("hsv", height, width, *shifts, f"{fnv1a(out.tobytes()):016x}")
