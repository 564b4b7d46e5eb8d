"""tf.data decodes large photographs on all cores, and it is not enough. Fixed: they were made small before."""

from __future__ import annotations

import glob

import tensorflow as tf
from common import CORES, Clock, Draw, arguments, cpu_seconds, settings
from data import jpegs
from tf_common import Clocked, on_device


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (160, 160)), tf.constant(0)


def prepare(draw: Draw) -> dict:
    batch, count = draw.choice([8, 16]), 32 if draw.small else 768
    root, small = jpegs(draw.choice([640, 800]), count), jpegs(216, count)
    files = sorted(glob.glob(f"{root}/*/*.jpg"))[:batch]
    cost = cpu_seconds(lambda: [decode(path) for path in files])
    return {"root": str(root), "small": str(small), "batch": batch, "step": cost / CORES / draw.gain()}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    root = s.small if args.fixed else s.root
    dataset = (
        tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{root}/*/*.jpg")))
        .map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(s.batch, drop_remainder=True)
        .prefetch(tf.data.AUTOTUNE)
    )
    clock = Clock(args)
    on_device(s.step, (160, 160, 3)).fit(dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)])
    clock.report()


if __name__ == "__main__":
    main()
