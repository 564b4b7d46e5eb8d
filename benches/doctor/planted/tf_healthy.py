"""Decoded photographs kept by `cache()`: only the first epoch decodes, and the device is busy. Healthy."""

from __future__ import annotations

import glob

import tensorflow as tf
from common import Clock, Draw, arguments, settings
from data import jpegs
from tf_common import Clocked, on_device
from tf_saturated_decode import decode


def prepare(draw: Draw) -> dict:
    root = jpegs(480, 32 if draw.small else 768)
    count = 32 if draw.small else draw.randint(100, 200)
    return {
        "root": str(root),
        "count": count,
        "batch": draw.choice([8, 16]),
        "step": draw.uniform(15e-3, 30e-3),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    dataset = (
        tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{s.root}/*/*.jpg"))[: s.count])
        .map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        .cache()
        .batch(s.batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    clock = Clock(args)
    on_device(s.step, (160, 160, 3)).fit(dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)])
    clock.report()


if __name__ == "__main__":
    main()
