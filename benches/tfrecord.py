"""TFRecords of photographs and of numbers: wellfed beside tf.data, in turns.

    python benches/tfrecord.py [--samples 2000] [--rounds 5] [--out FILE.json]

It runs where TensorFlow, Pillow and wellfed are all installed, and skips without TensorFlow. Two tasks: JPEGs with a
label, decoded, cropped at random and resized to 224x224, in shuffled batches of 64; and records of 40 numeric
features, 20 of int64 and 20 of float32, as batches of 256. tf.data has `num_parallel_calls` and `prefetch` of
AUTOTUNE, parses the numbers batch by batch (`parse_example`), and decodes the crop only (`decode_and_crop_jpeg`).
Each round runs all of them once, in turn; medians are over rounds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import wellfed as wf
from turns import in_turns, report
from wellfed import transforms as T

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
try:
    import tensorflow as tf
except ImportError:
    print("skipped: TensorFlow is not installed here")
    sys.exit(0)

BATCH, ROWS = 64, 256
SHARDS = 4
AUTO = tf.data.AUTOTUNE


class Each:
    """An iterable that begins anew each time."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self.make = make

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make())


def ints(*values: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values: float) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def strings(*values: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def write(folder: Path, name: str, samples: int, features: Callable[[int], dict[str, Any]]) -> list[str]:
    """Shards of examples, and their paths."""
    paths = [str(folder / f"{name}-{shard:05}-of-{SHARDS:05}") for shard in range(SHARDS)]
    for shard, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(shard, samples, SHARDS):
                example = tf.train.Example(features=tf.train.Features(feature=features(i)))
                writer.write(example.SerializeToString())
    return paths


def photographs(samples: int) -> list[bytes]:
    """JPEGs of about 500 x 375: those in WELLFED_TEST_DATA, or smooth noise."""
    given = os.environ.get("WELLFED_TEST_DATA")
    every = sorted(Path(given).rglob("*")) if given else []
    found = [path for path in every if path.suffix.lower() in (".jpg", ".jpeg")][:samples]
    if found:
        return [path.read_bytes() for path in found]
    random, files = np.random.default_rng(0), []
    for _ in range(min(samples, 64)):
        small = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8))
        file = io.BytesIO()
        small.resize((500, 375), Image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
        files.append(file.getvalue())
    return files


def images(folder: Path, samples: int, rounds: int) -> dict[str, Any]:
    photos = photographs(samples)
    paths = write(
        folder,
        "images",
        samples,
        lambda i: {"image": strings(photos[i % len(photos)]), "label": ints(i % 1000)},
    )
    spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(record: Any) -> Any:
        one = tf.io.parse_single_example(record, spec)
        shape = tf.io.extract_jpeg_shape(one["image"])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.zeros([1, 0, 4]),
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            max_attempts=10,
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.decode_and_crop_jpeg(one["image"], window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, (224, 224), antialias=True))
        return tf.cast(image, tf.uint8), one["label"]

    def tf_data() -> Any:
        ds = tf.data.TFRecordDataset(paths, num_parallel_reads=AUTO).shuffle(1000)
        return ds.map(parse, num_parallel_calls=AUTO).batch(BATCH).prefetch(AUTO)

    ours = wf.tfrecord(paths, spec, images="image", fields=["image", "label"])
    ours = ours.shuffle(seed=1).map(T.RandomResizedCrop(224), T.RandomHorizontalFlip()).batch(BATCH)
    print(f"photographs, {samples} samples")
    loaders = {"tf.data": Each(lambda: tf_data()), "wellfed": Each(lambda: ours.numpy())}
    return report(in_turns(loaders, rounds), samples, "tf.data")


def numbers(folder: Path, samples: int, rounds: int) -> dict[str, Any]:
    random = np.random.default_rng(0)

    def features(i: int) -> dict[str, Any]:
        whole = {f"int_{j:02}": ints(int(random.integers(0, 100_000))) for j in range(20)}
        return {**whole, **{f"float_{j:02}": floats(float(random.random())) for j in range(20)}}

    paths = write(folder, "numbers", samples, features)
    spec = {f"int_{j:02}": tf.io.FixedLenFeature([], tf.int64) for j in range(20)}
    spec.update({f"float_{j:02}": tf.io.FixedLenFeature([], tf.float32) for j in range(20)})

    def tf_data() -> Any:
        ds = tf.data.TFRecordDataset(paths, num_parallel_reads=AUTO).batch(ROWS)
        return ds.map(lambda records: tf.io.parse_example(records, spec), num_parallel_calls=AUTO).prefetch(
            AUTO
        )

    print(f"40 numeric features, {samples} samples")
    plain = wf.tfrecord(paths, spec).batch(ROWS)
    mixed = wf.tfrecord(paths, spec).shuffle(seed=1).batch(ROWS)
    loaders = {
        "tf.data": Each(tf_data),
        "wellfed": Each(lambda: plain.numpy()),
        "wellfed, shuffled": Each(lambda: mixed.numpy()),
    }
    return report(in_turns(loaders, rounds), samples, "tf.data")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--task", choices=["images", "numbers", "both"], default="both")
    parser.add_argument("--out")
    given = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        if given.task != "numbers":
            results["photographs"] = images(Path(name), given.samples, given.rounds)
        if given.task != "images":
            results["numbers"] = numbers(Path(name), 20 * given.samples, given.rounds)
    if given.out:
        Path(given.out).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
