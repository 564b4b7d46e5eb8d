"""tf.data decodes photographs one after the other in a Python generator. Fixed: by a map on all cores."""

from __future__ import annotations

import glob
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from common import CORES, Clock, Draw, arguments, cpu_seconds, settings
from data import jpegs
from PIL import Image
from tf_common import Clocked, on_device


def photo(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB").resize((160, 160)), np.float32)


def photos(root: str) -> Iterator[tuple[np.ndarray, int]]:
    for path in sorted(glob.glob(f"{root}/*/*.jpg")):
        yield photo(path), 0


def decode(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
    return tf.image.resize(image, (160, 160)), tf.constant(0)


def prepare(draw: Draw) -> dict:
    batch, root = draw.choice([8, 16]), jpegs(draw.choice([480, 640]), 32 if draw.small else 768)
    files = sorted(glob.glob(f"{root}/*/*.jpg"))[:batch]
    cost = cpu_seconds(lambda: [photo(path) for path in files])
    return {"root": str(root), "batch": batch, "step": cost / draw.gain(0.9 * CORES)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    if args.fixed:
        files = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{s.root}/*/*.jpg")))
        dataset = files.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        kinds = (tf.TensorSpec((160, 160, 3), tf.float32), tf.TensorSpec((), tf.int32))
        dataset = tf.data.Dataset.from_generator(lambda: photos(s.root), output_signature=kinds)
    dataset = dataset.batch(s.batch, drop_remainder=True)
    if args.fixed:
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    clock = Clock(args)
    on_device(s.step, (160, 160, 3)).fit(dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)])
    clock.report()


if __name__ == "__main__":
    main()
