"""Makes color.txt: hashes of what torchvision's colour functions give on PIL images, over a grid of colours.

Run with Pillow 13 and torchvision 0.29: python color.py > color.txt
"""

from itertools import product

from PIL import Image
from torchvision.transforms import functional as F


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


levels = [min(i * 8, 255) for i in range(33)]
pixels = bytes(v for rgb in product(levels, repeat=3) for v in rgb)
image = Image.frombytes("RGB", (33, 33 * 33), pixels)
factors = [0.0, 0.25, 0.7, 0.999, 1.0, 1.3, 2.0, 5.5]
for factor in factors:
    for name in ("brightness", "contrast", "saturation"):
        out = getattr(F, f"adjust_{name}")(image, factor)
        print(name, factor, f"{fnv1a(out.tobytes()):016x}")
for factor in [-0.5, -0.31, -0.1, -0.001, 0.0, 0.05, 0.1, 0.25, 0.4999, 0.5]:
    print("hue", factor, f"{fnv1a(F.adjust_hue(image, factor).tobytes()):016x}")
print("gray", 1.0, f"{fnv1a(F.to_grayscale(image, 3).tobytes()):016x}")
