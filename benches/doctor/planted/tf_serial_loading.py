"""tf.data decodes photographs one after the other. Fixed: several at a time, ahead of the step."""

from __future__ import annotations

import glob

import tensorflow as tf
from common import CORES, Clock, Draw, arguments, cpu_seconds, settings
from data import jpegs
from tf_common import Clocked, on_device


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    # As it draws, tf.data does not make several at a time on its own.
    return tf.image.random_flip_left_right(tf.image.resize(image, (160, 160))), tf.constant(0)


def prepare(draw: Draw) -> dict:
    batch, root = draw.choice([8, 16]), jpegs(draw.choice([480, 640]), 32 if draw.small else 768)
    files = sorted(glob.glob(f"{root}/*/*.jpg"))[:batch]
    cost = cpu_seconds(lambda: [decode(path) for path in files])
    return {"root": str(root), "batch": batch, "step": cost / draw.gain(0.9 * CORES)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    files = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{s.root}/*/*.jpg")))
    dataset = files.map(decode, num_parallel_calls=tf.data.AUTOTUNE if args.fixed else None)
    dataset = dataset.batch(s.batch, drop_remainder=True)
    if args.fixed:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    clock = Clock(args)
    on_device(s.step, (160, 160, 3)).fit(dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)])
    clock.report()


if __name__ == "__main__":
    main()
