"""Writes pillow_golden.txt: hashes of what Pillow 13 makes of synthetic images.

Run from this folder: python pillow_golden.py > ../pillow_golden.txt
"""

import random

from PIL import Image, __version__

assert __version__.startswith("13."), __version__
MODES = {1: "L", 3: "RGB", 4: "CMYK"}
FILTERS = {
    "Nearest": Image.Resampling.NEAREST,
    "Box": Image.Resampling.BOX,
    "Bilinear": Image.Resampling.BILINEAR,
    "Hamming": Image.Resampling.HAMMING,
    "Bicubic": Image.Resampling.BICUBIC,
    "Lanczos": Image.Resampling.LANCZOS,
}


def pixels(count):
    """Noise from a linear congruential generator; every third value is pushed to 0 or 255, for overshoot."""
    state = 1
    out = bytearray()
    for i in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        value = state >> 24
        out.append((value >> 7) * 255 if i % 3 == 0 else value)
    return bytes(out)


def fnv(data):
    """64-bit FNV-1a."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


random.seed(7)
geometries = [
    (33, 47, 33, 47),
    (33, 47, 20, 47),
    (33, 47, 33, 20),
    (140, 60, 20, 55),
    (140, 30, 130, 64),
    (64, 64, 32, 32),
    (9, 7, 70, 90),
    (1, 1, 5, 3),
    (1, 90, 1, 11),
    (117, 90, 112, 112),
]
print(f"# filter channels height width -> height width, FNV-1a of the pixels. Pillow {__version__}")
for index in range(60):
    if index < len(geometries):
        h, w, oh, ow = geometries[index]
    else:
        h, w, oh, ow = (random.randint(1, 120) for _ in range(4))
    channels = (3, 1, 4)[index % 3]
    image = Image.frombytes(MODES[channels], (w, h), pixels(h * w * channels))
    for name, method in FILTERS.items():
        if (index + len(name)) % 2 and name != "Bilinear":
            continue
        print(name, channels, h, w, oh, ow, f"{fnv(image.resize((ow, oh), method).tobytes()):016x}")
