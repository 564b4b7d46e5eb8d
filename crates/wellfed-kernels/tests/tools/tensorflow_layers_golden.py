"""Writes the hashes of TensorFlow's affine maps, and of Keras' contrast on it, on a processor with AVX:
`python tensorflow_layers_golden.py > ../golden/tensorflow_layers.txt`."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from tensorflow_golden_pixels import fnv, pixels

# Matrices of float32, which their decimal numbers give exactly.
MATRICES = [
    (1, 0, 0, 0, 1, 0),
    (1, 0, 2.5, 0, 1, -3.25),
    (1, 0, -100.75, 0, 1, 300.5),
    (0.5, 0, 0, 0, 2, -1.5),
    (0.8125, -0.59375, 7.1875, 0.59375, 0.8125, -4.40625),
    (-1, 0, 3.5, 0, -1, 60.5),
]
SIZES = [(1, 1, 1), (3, 5, 7), (3, 40, 61), (4, 1, 30), (2, 12, 13), (3, 96, 128)]


def main():
    print(f"# affine bilinear fill value channels height width matrix fnv1a; TensorFlow {tf.__version__}")
    print(f"# contrast factor low high channels height width fnv1a; Keras {keras.__version__}")
    for channels, height, width in SIZES:
        image = pixels(channels * height * width).reshape(1, height, width, channels).astype(np.float32)
        for matrix in MATRICES:
            for fill in ("reflect", "wrap", "constant", "nearest"):
                for method in ("nearest", "bilinear"):
                    moved = keras.ops.image.affine_transform(
                        image, np.array([[*matrix, 0, 0]], np.float32), method, fill, 7.5
                    )
                    digest = fnv(np.asarray(moved).astype("<f4").tobytes())
                    numbers = " ".join(map(str, matrix))
                    print(
                        "affine",
                        int(method == "bilinear"),
                        fill,
                        7.5,
                        channels,
                        height,
                        width,
                        numbers,
                        f"{digest:016x}",
                    )
    layer = keras.layers.RandomContrast(0.5, value_range=(10, 250))
    for height, width in ((1, 1), (5, 7), (15, 16), (16, 16), (17, 21), (96, 128), (224, 224), (1030, 9)):
        image = pixels(3 * height * width).reshape(1, height, width, 3).astype(np.float32) / np.float32(3)
        for factor in (0.625, 1.0, 1.40625):
            given = {"contrast_factor": np.full((1, 1, 1, 1), factor, np.float32)}
            digest = fnv(np.asarray(layer.transform_images(image, given)).astype("<f4").tobytes())
            print("contrast", factor, 10, 250, 3, height, width, f"{digest:016x}")


main()
