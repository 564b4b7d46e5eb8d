"""tf.data with the fused `decode_and_crop_jpeg` and AUTOTUNE, as TensorFlow's own ResNet recipe has it.

`tf.image.resize` does not antialias, so this peer does less work per image than Pillow does. The pipeline
repeats without end and keeps one iterator, so that AUTOTUNE does not start over at every epoch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from spec import CIFAR_MEAN, CIFAR_STD, MEAN, STD, EpochFn, Job, small_images

PACKAGES = ("tensorflow-cpu",)


def _normalize(image: Any, mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    image = tf.cast(image, tf.float32)
    image = (image - tf.constant([m * 255 for m in mean])) * tf.constant([1 / (s * 255) for s in std])
    return tf.transpose(image, (2, 0, 1))


def _train(path: Any, label: Any) -> Any:
    data = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(data),
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        min_object_covered=0.0,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, (224, 224)))
    return _normalize(image, MEAN, STD), label


def _eval(path: Any, label: Any) -> Any:
    """Resize(256) then CenterCrop(224) is the central 224/256 square of the short side, resized to 224."""
    data = tf.io.read_file(path)
    shape = tf.io.extract_jpeg_shape(data)
    height, width = shape[0], shape[1]
    side = tf.cast(tf.math.round(tf.cast(tf.minimum(height, width), tf.float32) * (224 / 256)), tf.int32)
    window = tf.stack([(height - side) // 2, (width - side) // 2, side, side])
    image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
    return _normalize(tf.image.resize(image, (224, 224)), MEAN, STD), label


def _cifar(image: Any, label: Any) -> Any:
    image = tf.image.random_crop(tf.pad(image, ((4, 4), (4, 4), (0, 0))), (32, 32, 3))
    return _normalize(tf.image.random_flip_left_right(image), CIFAR_MEAN, CIFAR_STD), label


def build(job: Job) -> EpochFn:
    """The pipeline for `job`."""
    tf.config.threading.set_intra_op_parallelism_threads(job.workers)
    tf.config.threading.set_inter_op_parallelism_threads(job.workers)
    if job.work.name == "cifar":
        dataset, step = tf.data.Dataset.from_tensor_slices(small_images(job.images)), _cifar
    else:
        folders = sorted(p for p in job.photos.iterdir() if p.is_dir())
        files = [(str(f), k) for k, folder in enumerate(folders) for f in sorted(folder.iterdir())]
        paths, labels = zip(*files, strict=True)
        dataset = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
        step = _train if job.work.name == "train" else _eval
    if job.work.name != "eval":
        dataset = dataset.shuffle(min(job.images, 10_000), seed=0)
    dataset = dataset.map(step, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    dataset = dataset.batch(job.work.batch).repeat().prefetch(tf.data.AUTOTUNE)
    options = tf.data.Options()
    options.threading.private_threadpool_size = job.workers
    batches = iter(dataset.with_options(options))

    def epoch() -> Iterator[Any]:
        for _ in range(-(-job.images // job.work.batch)):
            images, _ = next(batches)
            yield np.asarray(memoryview(images))

    return epoch
