"""Samples with several images against TensorFlow: cases of `feed_tensorflow_cases.py`.

That script runs them in its own process: a function whose name begins with ``case_`` is a test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from feed_tensorflow_cases import FOLDER, LABELS, PATHS, equal, fed, left, load, native, paths
from feed_tensorflow_places import flat, restored, saved

METHODS = ["bilinear", "nearest", "bicubic", "area", "lanczos3"]


def masks() -> list[str]:
    """PNGs in grey of few values, one for each path."""
    rng = np.random.default_rng(11)
    found = []
    for number in range(len(PATHS)):
        height, width = (int(side) for side in rng.integers(1, 120, 2))
        pixels = rng.integers(0, 4, (height, width, 1), dtype=np.uint8)
        path = FOLDER / f"mask{number:02}.png"
        path.write_bytes(tf.io.encode_png(pixels).numpy())
        found.append(str(path))
    return found


MASKS = masks()


def mask(path: Any) -> Any:
    """A mask, as it is decoded."""
    return tf.io.decode_png(tf.io.read_file(path), channels=1)


def pairs() -> Any:
    """Paths of images and masks, and labels."""
    return tf.data.Dataset.from_tensor_slices((PATHS, MASKS, LABELS))


def segmented(path: Any, of_mask: Any, label: Any) -> Any:
    """The usual function."""
    image = tf.image.resize(load(path), [24, 31]) / 255.0
    return image, tf.image.resize(mask(of_mask), [24, 31], "nearest"), label


def fails(dataset: Any) -> str:
    """The error of a data set, without which this fails."""
    try:
        list(dataset)
    except tf.errors.OpError as error:
        return str(error)
    raise AssertionError("there is no error")


def case_images_and_masks_have_tensorflows_bits() -> None:
    rng = np.random.default_rng(12)
    for number in range(12):
        size, other = [int(side) for side in rng.integers(1, 40, 2)], int(rng.integers(1, 40))
        one, two = rng.choice(METHODS, 2)
        swapped, single = bool(rng.integers(2)), bool(rng.integers(2))

        def make(path: Any, of_mask: Any, label: Any, given: Any = (size, other, one, two, swapped)) -> Any:
            size, other, one, two, swapped = given
            parts = (
                tf.image.flip_left_right(tf.image.resize(load(path), size, one)),
                tf.image.resize(mask(of_mask), [other, other], two),
            )
            return {"images": parts[::-1] if swapped else parts, "label": tf.one_hot(label, 30)}

        dataset = pairs()
        for verb in rng.permutation(["shuffle", "take", "skip", "repeat"])[: rng.integers(4)]:
            argument = {"shuffle": 7, "take": 19, "skip": 3, "repeat": 2}[verb]
            dataset = getattr(dataset, verb)(argument, *([5] if verb == "shuffle" else []))
        dataset = dataset.map(make)
        if not single:
            dataset = dataset.batch(int(rng.integers(1, 9)), drop_remainder=bool(rng.integers(2)))
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError((number, size, other, one, two, swapped, single)) from error


def case_tensorflow_goes_on_with_images_and_masks() -> None:
    def make(path: Any, of_mask: Any, label: Any) -> Any:
        image, classes, label = segmented(path, of_mask, label)
        if tf.reduce_sum(image) > 900:
            image, classes = tf.image.flip_left_right(image), tf.image.flip_left_right(classes)
        return image, classes - 1, label

    dataset = pairs().shuffle(8, seed=2).map(make, num_parallel_calls=2).batch(5)
    result = fed(dataset)
    assert "TensorFlow goes on" in result.explain(), result.explain()
    assert result.explain().count("threads of the engine") == 2, result.explain()
    equal(dataset, result, 5)


def case_images_of_one_record_are_decoded() -> None:
    path = str(FOLDER / "pairs.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for number, (image, of_mask) in enumerate(zip(PATHS, MASKS, strict=True)):
            parts = {"image": Path(image).read_bytes(), "mask": Path(of_mask).read_bytes()}
            feature = {name: tf.train.Feature(bytes_list={"value": [data]}) for name, data in parts.items()}
            feature["label"] = tf.train.Feature(int64_list={"value": [number]})
            feature["box"] = tf.train.Feature(float_list={"value": [number, 1, 2, 3]})
            writer.write(tf.train.Example(features={"feature": feature}).SerializeToString())
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "mask": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "box": tf.io.FixedLenFeature([4], tf.float32),
    }

    def make(record: Any) -> Any:
        read = tf.io.parse_single_example(record, features)
        image = tf.image.resize(tf.io.decode_jpeg(read["image"], 3), [9, 12])
        again = tf.image.resize(tf.io.decode_jpeg(read["image"], 3), [5, 4])
        classes = tf.image.resize(tf.io.decode_png(read["mask"], 1), [9, 12], "nearest")
        return read["box"], classes, image, read["label"], again

    for dataset in (tf.data.TFRecordDataset(path), tf.data.TFRecordDataset(path).shuffle(9, seed=3)):
        dataset = dataset.map(make).batch(7)
        equal(dataset, native(dataset), 4)


def case_one_file_makes_two_images_at_most() -> None:
    def views(count: int) -> Any:
        sizes = [[8 + number, 9] for number in range(count)]
        return paths().map(lambda p, _: tuple(tf.image.resize(load(p), size) for size in sizes)).batch(6)

    equal(views(2), native(views(2)), 4)
    left(views(3), "more than 2 images of one file")
    # The same image twice is one.
    same = paths().map(lambda p, y: (tf.image.resize(load(p), [8, 8]),) * 2).batch(6)
    assert native(same).explain().count("threads of the engine") == 1
    equal(same, native(same), 4)


def case_several_images_go_on_where_they_were_saved() -> None:
    def make() -> Any:
        return fed(pairs().shuffle(7, seed=4).map(segmented).batch(5))

    data = make()
    iterator = iter(data)
    next(iterator), next(iterator)
    path = saved(iterator)
    rest = flat(iterator)
    assert len(rest) == 3
    assert flat(restored(make(), path)) == rest


def case_what_several_images_cannot_do_is_left() -> None:
    dataset = pairs().shuffle(7, seed=4).map(segmented).batch(5)
    left(dataset, "a permutation of samples with several images", shuffle="global")
    left(dataset, "bad samples", on_error="skip")
    left(dataset, "bad samples", on_error="replace")
    equal(pairs().map(segmented).batch(5), fed(pairs().map(segmented).batch(5), shuffle="global"))

    def drawn(path: Any, of_mask: Any, label: Any) -> Any:
        image, classes, label = segmented(path, of_mask, label)
        return tf.image.random_flip_left_right(image), classes, label

    left(pairs().map(drawn).batch(5), "random operations of samples", random="native")
    memory = tf.data.Dataset.from_tensor_slices((np.zeros((6, 9, 8, 3), np.uint8),) * 2)
    both = memory.map(lambda a, b: (tf.image.flip_up_down(a), tf.image.flip_left_right(b))).batch(2)
    left(both, "in memory")


def case_a_bad_image_of_several_is_an_error_on_both_sides() -> None:
    bad = FOLDER / "bad.png"
    bad.write_bytes(Path(MASKS[3]).read_bytes()[:50])
    for place in (0, 1):
        both = [list(PATHS), list(MASKS)]
        both[place][7] = str(bad)
        dataset = tf.data.Dataset.from_tensor_slices((*both, LABELS)).map(segmented).batch(3)
        result = fed(dataset)
        for source in (dataset, result):
            assert fails(source)
        # After an error the images of all samples still belong together.
        assert fails(result)
        for one, other in zip(dataset.take(2), result.take(2), strict=True):
            for a, b in zip(one, other, strict=True):
                assert a.numpy().tobytes() == b.numpy().tobytes()
