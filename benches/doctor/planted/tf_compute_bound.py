"""A real network in Keras takes the time; the data lies in memory. Nothing to fix."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from common import Clock, Draw, arguments, settings
from tf_common import Clocked, compiled


def prepare(draw: Draw) -> dict:
    return {"width": draw.choice([32, 48]), "batch": draw.choice([16, 32])}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((1024, 32, 32, 3), np.float32), rng.integers(0, 10, 1024)
    dataset = (
        tf.data.Dataset.from_tensor_slices((images, labels)).batch(s.batch, drop_remainder=True).prefetch(2)
    )
    layers = [keras.Input((32, 32, 3))]
    layers += [keras.layers.Conv2D(s.width, 3, padding="same", activation="relu") for _ in range(4)]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    clock = Clock(args)
    compiled(keras.Sequential(layers)).fit(
        dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)]
    )
    clock.report()


if __name__ == "__main__":
    main()
