"""TFRecord, `decode_jpeg`, `resize`, a flip, batches: ``tf.data`` with AUTOTUNE against `wf.feed` of the same pipeline.

    python benches/tfdata.py FOLDER_OF_JPEGS [--rounds 5] [--batch-size 64] [--size 224] [--repeat 4]

Runs in an environment that has TensorFlow. Both take turns; the median of rounds is printed, images a second, of
batches that are iterated and not looked at.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import wellfed as wf


def written(folder: Path, target: str, repeat: int) -> int:
    """Writes the folder's JPEGs as examples; says how many."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    with tf.io.TFRecordWriter(target) as writer:
        for number, path in enumerate(paths * repeat):
            feature = {
                "image": tf.train.Feature(bytes_list={"value": [path.read_bytes()]}),
                "label": tf.train.Feature(int64_list={"value": [number]}),
            }
            writer.write(tf.train.Example(features={"feature": feature}).SerializeToString())
    return len(paths) * repeat


def pipeline(records: str, flip: str, size: int, batch_size: int) -> Any:
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def load(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        image = tf.image.resize(image, [size, size])
        if flip == "fixed":
            image = tf.image.flip_left_right(image)
        elif flip == "random":
            image = tf.image.random_flip_left_right(image)
        return image, example["label"]

    dataset = tf.data.TFRecordDataset(records)
    if flip == "shuffle":
        dataset = dataset.shuffle(1000, seed=1)
    dataset = dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def seconds(dataset: Any) -> float:
    start = time.perf_counter()
    for _ in dataset:
        pass
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--repeat", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        records = f"{temporary}/images.tfrecord"
        count = written(arguments.folder, records, arguments.repeat)
        print(
            f"{count} images, TensorFlow {tf.__version__}, wellfed {wf.__version__}, {os.cpu_count()} cores"
        )
        for name, flip, options in (
            ("flip_left_right", "fixed", {}),
            ("shuffle(1000), TensorFlow's order", "shuffle", {}),
            ("random_flip_left_right, TensorFlow's draws", "random", {}),
            ("random_flip_left_right, random='native'", "random", {"random": "native"}),
        ):
            theirs = pipeline(records, flip, arguments.size, arguments.batch_size)
            ours = wf.feed(pipeline(records, flip, arguments.size, arguments.batch_size), **options)
            rates: dict[str, list[float]] = {"tf.data": [], "wf.feed": []}
            for number in range(arguments.rounds + 1):
                for side, dataset in (("tf.data", theirs), ("wf.feed", ours)):
                    rate = count / seconds(dataset)
                    if number > 0:
                        rates[side].append(rate)
            medians = {side: statistics.median(found) for side, found in rates.items()}
            gain = medians["wf.feed"] / medians["tf.data"]
            told = ", ".join(f"{side} {rate:.0f}/s" for side, rate in medians.items())
            print(f"{name}: {told}: {gain:.2f}x")


if __name__ == "__main__":
    main()
