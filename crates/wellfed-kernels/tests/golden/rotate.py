"""Makes rotate.txt: hashes of what Pillow's Image.rotate gives for a synthetic image.

Run with Pillow 13: python rotate.py > rotate.txt
"""

import random

from PIL import Image

HEIGHT, WIDTH = 23, 31


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


pixels = bytes((i * i // 11 + i * 7) & 255 for i in range(HEIGHT * WIDTH * 3))
image = Image.frombytes("RGB", (WIDTH, HEIGHT), pixels)
filters = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
random.seed(0)
angles = [0.0, 45.0, 90.0, 180.0, 270.0, -30.0, 720.5] + [random.uniform(-400, 400) for _ in range(8)]
for angle in angles:
    for name, resample in filters.items():
        for expand in (False, True):
            for center in (None, (3.0, 20.5)):
                out = image.rotate(angle, resample, expand, center, fillcolor=(7, 8, 9))
                where = "none none" if center is None else f"{center[0]} {center[1]}"
                print(repr(angle), name, expand, where, out.height, out.width, f"{fnv1a(out.tobytes()):016x}")
