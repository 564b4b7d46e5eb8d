"""Writes the hashes of TensorFlow's resized images: `python tensorflow_golden.py > ../golden/tensorflow.txt`."""

import numpy as np
import tensorflow as tf

METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
SIZES = [
    (1, 1, 1, 3, 4),
    (3, 5, 7, 5, 7),
    (3, 40, 61, 17, 33),
    (3, 17, 33, 40, 61),
    (4, 31, 8, 9, 30),
    (1, 100, 90, 7, 5),
    (2, 12, 13, 25, 3),
    (3, 224, 199, 96, 128),
]


def pixels(count):
    state, out = 1, bytearray()
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append(state >> 24)
    return np.frombuffer(bytes(out), np.uint8)


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main():
    print(f"# method antialias channels height width new_height new_width fnv1a; TensorFlow {tf.__version__}")
    for channels, height, width, rows, columns in SIZES:
        image = pixels(channels * height * width).reshape(height, width, channels)
        for method in METHODS:
            for antialias in (False, True):
                if antialias and method in ("nearest", "area"):
                    continue
                resized = tf.image.resize(image, (rows, columns), method, antialias=antialias)
                resized = tf.cast(resized, tf.float32).numpy()
                digest = fnv(resized.astype("<f4").tobytes())
                print(method, int(antialias), channels, height, width, rows, columns, f"{digest:016x}")


if __name__ == "__main__":
    main()
