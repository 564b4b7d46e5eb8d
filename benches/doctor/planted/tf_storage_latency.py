"""tf.data reads files from a far disk, two at a time. Fixed: more at a time, which costs no cores."""

from __future__ import annotations

import glob

import tensorflow as tf
from common import Clock, Draw, arguments, settings, slow_reads
from data import arrays
from tf_common import Clocked, on_device

AT_ONCE = 2


def load(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    values = tf.io.decode_raw(tf.io.read_file(path), tf.uint8)
    return tf.cast(tf.reshape(values, (32, 128, 1)), tf.float32), tf.constant(0)


def prepare(draw: Draw) -> dict:
    batch, read = draw.choice([8, 16]), draw.uniform(2e-3, 10e-3)
    root, gain = arrays(4096, 64 if draw.small else 4096), draw.gain()
    return {
        "root": str(root),
        "batch": batch,
        "step": batch * read / AT_ONCE / gain,
        "more": round(AT_ONCE * gain * 2),
        "env": slow_reads(root, read_us=read * 1e6),
    }


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    tf.keras.utils.set_random_seed(args.seed)
    dataset = (
        tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{s.root}/*.bin")))
        .map(load, num_parallel_calls=s.more if args.fixed else AT_ONCE)
        .batch(s.batch, drop_remainder=True)
        .prefetch(4)
    )
    if args.fixed:
        # Its own threads are as many as the cores, and each reads one file at a time.
        options = tf.data.Options()
        options.threading.private_threadpool_size = s.more
        dataset = dataset.with_options(options)
    clock = Clock(args)
    on_device(s.step, (32, 128, 1)).fit(dataset, epochs=1000, verbose=0, callbacks=[Clocked(clock, s.batch)])
    clock.report()


if __name__ == "__main__":
    main()
