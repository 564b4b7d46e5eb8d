"""What `wf.feed` makes of ``tf.data`` pipelines, against TensorFlow: run by `test_feed_tensorflow.py`.

Every function whose name begins with ``case_`` is a test. Prints what failed as JSON.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import traceback
import weakref
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

import wellfed as wf
from wellfed._tfdata import _function
from wellfed._tfdata._operations import TensorFlowOps

AUTOTUNE = tf.data.AUTOTUNE
FOLDER = Path(tempfile.mkdtemp())
RNG = np.random.default_rng(5)


def picture(height: int, width: int, channels: int = 3) -> Any:
    """Waves with noise: all frequencies, and values at both ends."""
    y, x = np.mgrid[:height, :width].astype(float)
    waves = [128 + 150 * np.sin(x / RNG.uniform(2, 30) + y / RNG.uniform(2, 30)) for _ in range(channels)]
    noisy = np.stack(waves, -1) + RNG.normal(0, RNG.choice([0, 5, 60]), (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def jpegs() -> list[str]:
    """JPEGs of all kinds that TensorFlow writes."""
    paths = []
    for number in range(24):
        height, width = (int(side) for side in RNG.integers(1, 160, 2))
        image = picture(height, width, 1 if number % 6 == 5 else 3)
        data = tf.io.encode_jpeg(
            image,
            quality=int(RNG.choice([10, 60, 95, 100])),
            progressive=bool(number % 3 == 1),
            chroma_downsampling=bool(number % 2),
        )
        path = FOLDER / f"{number:02}.jpg"
        path.write_bytes(data.numpy())
        paths.append(str(path))
    return paths


PATHS = jpegs()
LABELS = np.arange(len(PATHS), dtype=np.int32)


def records() -> list[str]:
    """Two files of examples; every third lacks a feature."""
    paths = [str(FOLDER / name) for name in ("a.tfrecord", "b.tfrecord")]
    for which, path in enumerate(paths):
        with tf.io.TFRecordWriter(path) as writer:
            for number, image in list(enumerate(PATHS))[which::2]:
                feature = {
                    "image": tf.train.Feature(bytes_list={"value": [Path(image).read_bytes()]}),
                    "label": tf.train.Feature(int64_list={"value": [number]}),
                }
                if number % 3:
                    feature["weights"] = tf.train.Feature(float_list={"value": [number / 10, 2]})
                writer.write(tf.train.Example(features={"feature": feature}).SerializeToString())
    return paths


RECORDS = records()


def equal(expected: Any, found: Any, count: int | None = None) -> None:
    """Fails unless two data sets give the same bits, twice over the second."""
    assert found.element_spec == expected.element_spec
    for _ in range(2):
        seen = 0
        for one, other in zip(expected, found, strict=True):
            tf.nest.assert_same_structure(one, other)
            for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(other), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert a.dtype == tf.string or a.numpy().tobytes() == b.numpy().tobytes()
                assert np.array_equal(a.numpy(), b.numpy())
            seen += 1
        assert seen if count is None else seen == count, seen


def fed(dataset: Any, **arguments: Any) -> Any:
    """The data set that wellfed makes; fails if it makes none."""
    result = wf.feed(dataset, **arguments)
    assert result is not dataset, dataset.explain()
    assert result.explain().startswith("wellfed makes")
    return result


def left(dataset: Any, why: str, **arguments: Any) -> None:
    """Fails unless wellfed gives the data set itself back, and says why."""
    assert wf.feed(dataset, **arguments) is dataset
    assert why in dataset.explain(), dataset.explain()


def load(path: Any, channels: int = 3) -> Any:
    """The usual function."""
    return tf.io.decode_jpeg(tf.io.read_file(path), channels=channels)


def paths() -> Any:
    """Paths and labels."""
    return tf.data.Dataset.from_tensor_slices((PATHS, LABELS))


def case_decoded_pixels_are_tensorflows() -> None:
    pngs = []
    for number, channels in enumerate([1, 3, 4]):
        (FOLDER / f"{number}.png").write_bytes(tf.io.encode_png(picture(31, 45, channels)).numpy())
        pngs.append(str(FOLDER / f"{number}.png"))
    for path in PATHS + pngs:
        expected = tf.io.decode_jpeg(tf.io.read_file(path), 3, dct_method="INTEGER_ACCURATE").numpy()
        accurate = wf.image_files([path]).with_options(mode="TENSORFLOW_ACCURATE", layout="NHWC")
        assert np.array_equal(expected, accurate.sample(0)), path
        for channels, mode in ((3, "TENSORFLOW"), (0, "TENSORFLOW_UNCHANGED")):
            expected = tf.io.decode_image(tf.io.read_file(path), channels, expand_animations=False).numpy()
            found = wf.image_files([path]).with_options(mode=mode, layout="NHWC").sample(0)
            assert np.array_equal(expected, found), (path, mode)
    # The accurate transform gives other pixels, so this compares what it should.
    other = wf.image_files(PATHS[:1]).with_options(layout="NHWC").sample(0)
    assert not np.array_equal(load(PATHS[0]), other)


def case_images_that_tensorflow_reads_otherwise_are_refused() -> None:
    deep = FOLDER / "deep.png"
    deep.write_bytes(tf.io.encode_png(RNG.integers(0, 65536, (9, 7, 3), dtype=np.uint16)).numpy())
    try:
        wf.image_files([deep]).with_options(mode="TENSORFLOW").sample(0)
    except wf.UnsupportedSampleError as error:
        found = str(error)
    else:
        found = "nothing was raised"
    assert "what TensorFlow reads of this kind of png" in found, found


def case_resizes_have_tensorflows_bits() -> None:
    for number in range(60):
        sides = [int(side) for side in RNG.integers(1, 90, 4)]
        image = RNG.integers(0, 256, (1, sides[0], sides[1], int(RNG.choice([1, 3, 4]))), dtype=np.uint8)
        for method in (
            "bilinear",
            "nearest",
            "bicubic",
            "area",
            "lanczos3",
            "lanczos5",
            "gaussian",
            "mitchellcubic",
        ):
            antialias = bool(number % 2) and method not in ("nearest", "area")
            given, ops = tf.constant(image[0]), []
            if number % 3 == 0:
                given = tf.cast(given, tf.float32) / 7
                ops = [{"op": "cast", "dtype": "float32"}]
                ops.append({"op": "arithmetic", "operator": "div", "constants": [7.0]})
            ops.append({"op": "resize", "method": method, "size": sides[2:], "antialias": antialias})
            expected = tf.image.resize(given, sides[2:], method, antialias=antialias).numpy()
            source = wf.from_tensor_slices(image, pixels="hwc").map(TensorFlowOps(ops))
            found = source.with_options(layout="NHWC").sample(0)
            assert (expected.dtype, expected.shape) == (found.dtype, found.shape)
            assert expected.tobytes() == found.tobytes(), (method, antialias, sides, number)
            planes = source.sample(0)
            assert np.array_equal(planes, np.moveaxis(found, -1, 0))


def case_paths_are_read_and_batched() -> None:
    def make(path: Any, label: Any) -> Any:
        return tf.image.resize(load(path), [64, 48]) / 255.0, tf.one_hot(label, 50)

    dataset = paths().map(make, num_parallel_calls=AUTOTUNE).batch(7).prefetch(2)
    result = fed(dataset)
    assert "2 were compared" in result.explain()
    assert result.cardinality() == 4
    equal(dataset, result, 4)
    dropped = paths().map(make).batch(7, drop_remainder=True)
    equal(dropped, fed(dropped), 3)
    single = paths().map(make)
    equal(single, fed(single), len(PATHS))


def case_the_accurate_transform_is_known() -> None:
    def make(path: Any, _: Any) -> Any:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
        return tf.image.resize(image, [40, 33])

    dataset = paths().map(make).batch(5)
    result = fed(dataset)
    assert "decode to TensorFlowAccurate" in result.explain(), result.explain()
    equal(dataset, result)
    fast = paths().map(lambda path, _: tf.image.resize(load(path), [40, 33])).batch(5)
    assert not np.array_equal(next(iter(result)), next(iter(fast)))


def case_slices_are_zipped() -> None:
    names = tf.data.Dataset.from_tensor_slices(PATHS)
    labels = tf.data.Dataset.from_tensor_slices(LABELS).map(lambda x: tf.one_hot(x, 30))
    zipped = (
        tf.data.Dataset.zip((names, labels)).map(lambda p, y: (tf.image.resize(load(p), [9, 8]), y)).batch(6)
    )
    equal(zipped, fed(zipped), 4)
    images = names.map(lambda p: tf.image.resize(load(p), [9, 8]))
    pairs = tf.data.Dataset.zip({"y": labels, "x": images, "y2": labels}).batch(6)
    equal(pairs, fed(pairs), 4)


def case_keras_directories_are_read() -> None:
    for number, path in enumerate(PATHS):
        folder = FOLDER / "classes" / f"class{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.jpeg").write_bytes(Path(path).read_bytes())
    for mode in ("int", "categorical", "binary"):
        dataset = tf.keras.utils.image_dataset_from_directory(
            FOLDER / "classes",
            label_mode=mode if mode != "binary" else None,
            image_size=(20, 24),
            batch_size=5,
            shuffle=False,
            verbose=False,
        )
        result = fed(dataset)
        assert "TensorFlow goes on" not in result.explain(), result.explain()
        equal(dataset, result, 5)


def case_arithmetic_has_the_bits_of_map_functions() -> None:
    functions = {
        "mean and deviation": lambda x: (x - [123.7, 116.3, 103.5]) / [58.4, 57.1, 57.4],
        "to -1 and 1": lambda x: x / 127.5 - 1.0,
        "products are folded": lambda x: x * (1 / 3) * (1 / 7),
        "sums are folded": lambda x: x + 3.3 + 5.7,
        "from a constant": lambda x: 1.0 - x * 0.3,
        "quotients are not folded": lambda x: x / 7.0 / 3.0,
        "clipped": lambda x: tf.minimum(tf.maximum(x, 20.0), 200.5),
        "converted": lambda x: tf.image.convert_image_dtype(tf.cast(x, tf.uint8), tf.float32),
        "mirrored": lambda x: tf.image.flip_up_down(tf.image.flip_left_right(x)),
        "transposed order": lambda x: tf.reverse(x, [0, 1]),
        "cut": lambda x: x[3:20, 5:-4],
        "cut and resized": lambda x: tf.image.resize(x[2:40], [20, 30], "bicubic", antialias=True),
        "boxed": lambda x: tf.image.crop_to_bounding_box(x, 3, 4, 20, 22),
        "padded": lambda x: tf.image.resize_with_crop_or_pad(x, 50, 20),
        "central": lambda x: tf.image.central_crop(x, 0.7),
        "standardized": tf.image.per_image_standardization,
        "brighter": lambda x: tf.image.adjust_brightness(x / 255.0, -0.2),
        "more contrast": lambda x: tf.image.adjust_contrast(x, 1.7),
        "saturated": lambda x: tf.image.adjust_saturation(x / 255.0, 0.5),
    }
    for name, function in functions.items():

        def make(path: Any, _: Any, function: Any = function) -> Any:
            return function(tf.image.resize(load(path), [40, 44]))

        dataset = paths().map(make).batch(5)
        try:
            equal(dataset, fed(dataset))
        except AssertionError as error:
            raise AssertionError(name) from error


def case_records_are_parsed() -> None:
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "weights": tf.io.FixedLenFeature([2], tf.float32, default_value=[0.5, 0.25]),
    }

    def make(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        image = tf.image.convert_image_dtype(
            tf.io.decode_image(example["image"], 3, expand_animations=False), tf.float32
        )
        image = tf.image.resize(image, [32, 40], "lanczos3", antialias=True)
        return {"x": image, "y": tf.cast(example["label"], tf.int32), "w": example["weights"]}

    dataset = tf.data.TFRecordDataset(RECORDS).map(make, num_parallel_calls=AUTOTUNE).batch(8)
    equal(dataset, fed(dataset), 3)
    endless = tf.data.TFRecordDataset(RECORDS[0]).repeat().map(make).batch(8).take(5)
    equal(endless, fed(endless), 5)
    some = tf.data.TFRecordDataset(RECORDS).skip(3).take(10).repeat(2).map(make).batch(6)
    equal(some, fed(some), 4)
    shuffled = (
        tf.data.Dataset.list_files(RECORDS)
        .interleave(tf.data.TFRecordDataset, num_parallel_calls=AUTOTUNE)
        .shuffle(100)
        .map(make)
        .batch(8)
    )
    orders = [np.concatenate([batch["y"] for batch in fed(shuffled, shuffle="global")]) for _ in range(2)]
    assert sorted(orders[0]) == sorted(orders[1]) == list(LABELS)
    assert list(orders[0]) != list(LABELS)


def case_what_is_not_known_runs_in_tensorflow() -> None:
    def make(path: Any, label: Any) -> Any:
        image = tf.image.resize(load(path), [40, 44]) / 255.0
        tf.debugging.assert_less_equal(tf.reduce_max(image), 1.5)
        return {"x": tf.sqrt(image), "path": tf.strings.length(path), "label": label, "one": 1.0}

    dataset = paths().map(make, num_parallel_calls=AUTOTUNE).batch(5, drop_remainder=True).repeat(2)
    result = fed(dataset)
    assert "TensorFlow goes on in ParallelMapDatasetV2" in result.explain()
    equal(dataset, result, 8)
    table = tf.constant([[1.0, 2.0, 3.0]])
    batches = (
        paths().map(make).map(lambda x: x["x"]).batch(5).map(lambda x: x @ tf.transpose(table)).unbatch()
    )
    equal(batches, fed(batches), len(PATHS))


def case_random_flips_are_tensorflows_unless_asked() -> None:
    def plain(path: Any, _: Any) -> Any:
        return tf.image.resize(load(path), [30, 34])

    dataset = paths().map(lambda *x: tf.image.random_flip_left_right(plain(*x), seed=3)).batch(6)
    result = fed(dataset)
    assert "random='native'" in result.explain() or "RandomUniform" in result.explain(), result.explain()
    ours = fed(dataset, random="native")
    assert "TensorFlow goes on" not in ours.explain()
    whole = np.concatenate(list(paths().map(plain).batch(6)))
    for source in (result, ours):
        flipped = 0
        for one, other in zip(whole, np.concatenate(list(source)), strict=True):
            assert np.array_equal(one, other) or np.array_equal(one[:, ::-1], other)
            flipped += not np.array_equal(one, other)
        assert 0 < flipped < len(PATHS)


def case_global_shuffles_give_every_sample_once() -> None:
    dataset = paths().shuffle(4).map(lambda p, y: (tf.image.resize(load(p), [8, 8]), y)).batch(5).repeat(2)
    result = fed(dataset, shuffle="global")
    order = np.concatenate([labels for _, labels in result])
    first, second = order[: len(PATHS)], order[len(PATHS) :]
    assert sorted(first) == sorted(second) == list(LABELS)
    assert list(first) != list(second)
    images = dict(
        zip(
            LABELS,
            np.concatenate(
                [x for x, _ in paths().map(lambda p, y: (tf.image.resize(load(p), [8, 8]), y)).batch(5)]
            ),
            strict=True,
        )
    )
    for batch, labels in result:
        for image, label in zip(batch.numpy(), labels.numpy(), strict=True):
            assert np.array_equal(image, images[label])


def small(path: Any, label: Any) -> Any:
    """An image of a known size."""
    return tf.image.resize(load(path), [8, 8]), label


def parsed(record: Any) -> Any:
    """The same of a record."""
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(record, features)
    return tf.image.resize(tf.io.decode_jpeg(example["image"], 3), [8, 8]), example["label"]


def ordered(rng: Any) -> Any:
    """A pipeline of random verbs, of which some are shuffles with seeds."""
    kind, seed = rng.integers(5), int(rng.integers(1000))
    # Where threads of TensorFlow's read ahead, they may draw seeds for a repetition that is cut off.
    ahead = False
    if kind == 0:
        dataset = paths()
    elif kind == 1:
        dataset = tf.data.Dataset.from_tensor_slices(PATHS).enumerate(start=3)
        dataset = dataset.map(lambda number, path: (path, number))
    elif kind == 2:
        pattern = str(FOLDER / "??.jpg")
        dataset = tf.data.Dataset.list_files(pattern, seed=seed).map(lambda path: (path, 1))
    else:
        files = tf.data.Dataset.list_files(RECORDS, shuffle=bool(rng.integers(2)), seed=seed)
        if rng.integers(3) == 0:
            files = files.repeat(2)
        if kind == 3:
            dataset = files.flat_map(tf.data.TFRecordDataset)
        else:
            ahead = bool(rng.integers(2))
            dataset = files.interleave(
                tf.data.TFRecordDataset,
                cycle_length=int(rng.integers(1, 4)),
                block_length=int(rng.integers(1, 4)),
                num_parallel_calls=AUTOTUNE if ahead else None,
            )
    mapped = False
    for _ in range(int(rng.integers(1, 6))):
        verb = rng.choice(["shuffle", "shuffle", "repeat", "take", "skip", "map", "prefetch"])
        if verb == "shuffle":
            again = bool(rng.integers(3))
            size, seed = int(rng.integers(1, 40)), int(rng.integers(1000))
            dataset = dataset.shuffle(size, seed=seed, reshuffle_each_iteration=again)
        elif verb == "repeat":
            dataset = dataset.repeat(int(rng.integers(1, 3)))
        elif verb == "take" and not ahead:
            dataset = dataset.take(int(rng.integers(5, 60)))
        elif verb == "skip":
            dataset = dataset.skip(int(rng.integers(4)))
        elif verb == "prefetch":
            dataset, ahead = dataset.prefetch(2), True
        elif verb == "map" and not mapped:
            dataset, mapped = dataset.map(parsed if kind > 2 else small), True
            if rng.integers(3) == 0:
                dataset = dataset.map(lambda image, label: (tf.sqrt(image), label))
    if not mapped:
        dataset = dataset.map(parsed if kind > 2 else small, num_parallel_calls=AUTOTUNE)
    if rng.integers(4):
        dataset = dataset.batch(int(rng.integers(1, 9)), drop_remainder=bool(rng.integers(2)))
    if rng.integers(4) == 0:
        dataset = dataset.repeat(2)
    return dataset


def case_shuffles_have_tensorflows_order() -> None:
    for number in range(60):
        theirs, again, other = (ordered(np.random.default_rng(number)) for _ in range(3))
        result = fed(again)
        if theirs.cardinality() >= 0:
            assert result.cardinality() == theirs.cardinality()
        try:
            if list(other.take(1)):
                equal(theirs, result)
            else:
                assert not list(result)
        except AssertionError as error:
            raise AssertionError(number) from error


def case_shuffles_without_a_seed_are_buffers() -> None:
    result = fed(paths().shuffle(6).map(small).batch(5))
    assert "TensorFlow's own shuffles" in result.explain()
    orders = [np.concatenate([labels for _, labels in result]) for _ in range(3)]
    for order in orders:
        assert sorted(order) == list(LABELS)
        assert all(label < place + 6 for place, label in enumerate(order))
    assert len({tuple(order) for order in orders}) == 3
    fixed = fed(paths().shuffle(6, reshuffle_each_iteration=False).map(small).batch(5))
    equal(fixed, fixed)


def case_the_global_seed_counts() -> None:
    def make() -> Any:
        tf.random.set_seed(11)
        return paths().shuffle(9).map(small).batch(5)

    equal(make(), fed(make()))


def case_bad_samples_of_a_shuffle_are_skipped() -> None:
    cut = FOLDER / "cut2.jpg"
    cut.write_bytes(Path(PATHS[2]).read_bytes()[:-200])
    dataset = tf.data.Dataset.from_tensor_slices([str(cut), *PATHS[:9], str(cut)])
    dataset = dataset.shuffle(4, seed=2).map(lambda p: small(p, 1)[0])
    result = fed(dataset.batch(4, drop_remainder=True), on_error="skip", check=False)
    equal(dataset.ignore_errors().batch(4, drop_remainder=True), result, 2)
    assert len(result.loader.errors()) == 4
    assert result.loader.stats()["samples"] > 0


def case_iterators_of_a_shuffle_do_not_disturb_each_other() -> None:
    def make() -> Any:
        return paths().shuffle(9, seed=4).map(small).batch(5)

    theirs, ours = make(), fed(make())
    first, other = iter(theirs), iter(ours)
    # One that is never asked, and two that are asked in turns.
    iter(theirs), iter(ours)
    for one, two in ((first, other), (iter(theirs), iter(ours))):
        assert np.array_equal(next(one)[1], next(two)[1])
    assert np.array_equal(next(first)[1], next(other)[1])
    equal(tf.data.Dataset.zip((theirs, theirs)), tf.data.Dataset.zip((ours, ours)))


def case_what_cannot_be_equal_is_left() -> None:
    left(paths().shuffle(5, reshuffle_each_iteration=False).map(small), "same order", shuffle="global")
    left(paths().map(lambda p, _: load(p)), "differ in size")
    left(paths().map(lambda p, _: tf.image.resize(load(p, 4), [8, 8])), "channels=4")
    left(
        paths().map(
            lambda p, _: tf.image.resize(
                tf.io.decode_jpeg(tf.io.read_file(p), 3, fancy_upscaling=False), [8, 8]
            )
        ),
        "other options",
    )
    left(tf.data.Dataset.range(5).map(lambda x: x + 1).batch(2), "AddV2")
    left(tf.data.Dataset.zip((paths(), paths().take(3))).map(lambda a, b: small(*a)), "a zip of")
    drawn = paths().map(lambda p, y: (small(p, y)[0] + tf.random.uniform([]), y)).shuffle(4)
    assert "TensorFlow's in part" in fed(drawn).explain()
    left(tf.data.Dataset.from_tensor_slices(["/there/is/none"]).map(lambda p: small(p, 1)), "No such file")
    for scheme in ("gs", "s3", "http"):
        far = f"{scheme}://127.0.0.1:9/x"
        left(tf.data.Dataset.from_tensor_slices([far]).map(lambda p: small(p, 1)), "not local")
        left(tf.data.TFRecordDataset([far]).map(parsed).batch(2), "not local")
    outside = tf.Variable(2.0)
    left(paths().map(lambda p, _: tf.image.resize(load(p), [8, 8]) * outside), "")
    tables = tf.data.Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32))
    left(tables, "")


def case_options_that_would_change_pixels_are_refused() -> None:
    dataset = paths().map(lambda p, _: tf.image.resize(load(p), [8, 8])).batch(4)
    equal(dataset, fed(dataset, num_workers=1, on_error="skip"))
    for wrong in ({"mode": "RGB"}, {"exif_orientation": True}, {"shuffle": "buffer"}):
        try:
            wf.feed(dataset, **wrong)
        except (TypeError, ValueError) as error:
            text = str(error)
        else:
            text = ""
        assert next(iter(wrong)) in text, wrong


def native(dataset: Any, **arguments: Any) -> Any:
    """As `fed`; fails if TensorFlow has to go on."""
    result = fed(dataset, **arguments)
    assert "TensorFlow goes on" not in result.explain(), result.explain()
    return result


def before_an_operation(kind: int) -> Any:
    """An image of bytes or floats, of a size that is known or not."""
    if kind == 0:
        return load
    if kind == 1:
        return lambda path: tf.image.convert_image_dtype(load(path), tf.float32)
    if kind == 2:
        return lambda path: tf.io.decode_image(tf.io.read_file(path), 3, expand_animations=False)
    return lambda path: tf.image.resize(load(path), [31, 46], "nearest" if kind == 3 else "bicubic")


def case_crops_and_pads_have_tensorflows_bits() -> None:
    rng = np.random.default_rng(8)
    for number in range(60):
        height, width = (int(side) for side in rng.integers(1, 130, 2))
        kind, which = int(rng.integers(5)), number % 4
        method = str(rng.choice(["bilinear", "nearest", "bicubic", "area", "lanczos3", "gaussian"]))
        antialias = method not in ("nearest", "area") and bool(rng.integers(2))
        fraction = float(rng.choice([0.5, 0.875, 1.0, rng.uniform(0.01, 1)]))
        place = [int(x) for x in rng.integers(0, 9, 2)]

        def change(
            image: Any,
            which: int = which,
            size: Any = (height, width),
            how: Any = (method, antialias),
            fraction: float = fraction,
            place: Any = place,
        ) -> Any:
            if which == 0:
                return tf.image.resize(tf.image.central_crop(image, fraction), size)
            if which == 1:
                return tf.image.resize_with_crop_or_pad(image, *size)
            if which == 2:
                return tf.image.resize_with_pad(image, size[0] + 90, size[1] + 90, *how)
            return tf.image.pad_to_bounding_box(image, *place, size[0] + 170, size[1] + 170)

        prepare = before_an_operation(kind)
        dataset = paths().map(lambda path, _: change(prepare(path))).batch(7)  # noqa: B023
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError((number, which, kind, height, width, method, antialias)) from error


def case_boxes_are_cut() -> None:
    large = [path for path in PATHS if min(load(path).shape[:2]) > 40]
    assert len(large) > 3
    for kind in range(4):
        prepare = before_an_operation(kind)
        for box in ([0, 0, 31, 40], [3, 0, 20, 17], [5, 6, 1, 2]):
            dataset = tf.data.Dataset.from_tensor_slices(large)
            dataset = dataset.map(lambda p: tf.image.crop_to_bounding_box(prepare(p), *box)).batch(3)  # noqa: B023
            equal(dataset, native(dataset))


def case_random_crops_lie_inside() -> None:
    large = [path for path in PATHS if min(load(path).shape[:2]) > 40]
    dataset = tf.data.Dataset.from_tensor_slices(large)
    dataset = dataset.repeat(8).map(lambda p: tf.image.random_crop(load(p), [38, 39, 3])).batch(4)
    assert "random='native'" in str(wf.feed(dataset).explain())
    ours = native(dataset, random="native")
    images = [load(path).numpy() for path in large] * 8
    places = set()
    for whole, part in zip(images, np.concatenate(list(ours)), strict=True):
        found = [
            (y, x)
            for y in range(whole.shape[0] - 37)
            for x in range(whole.shape[1] - 38)
            if np.array_equal(whole[y : y + 38, x : x + 39], part)
        ]
        assert found
        places.add(found[0])
    assert len(places) > len(large)


def case_what_only_looks_like_a_crop_is_tensorflows() -> None:
    def almost(image: Any) -> Any:
        # As central_crop, but for one number.
        height = tf.cast(tf.shape(image)[0], tf.float64)
        start = tf.cast((height - height * tf.cast(0.5, tf.float64)) / 3, tf.int32)
        return tf.slice(image, tf.stack([start, 0, 0]), tf.stack([tf.shape(image)[0] - start * 2, -1, -1]))

    dataset = paths().map(lambda p, _: tf.image.resize(almost(load(p)), [8, 8])).batch(4)
    left(dataset, "in MapDataset")

    def two(path: Any, other: Any) -> Any:
        return tf.image.resize_with_crop_or_pad(load(path) + load(other)[:1, :1], 9, 9)

    both = tf.data.Dataset.from_tensor_slices((PATHS, PATHS)).map(two).batch(4)
    left(both, "")


def case_images_that_are_too_small_are_errors_on_both_sides() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(PATHS[:4])
    for function in (
        lambda p: tf.image.crop_to_bounding_box(load(p), 2, 3, 200, 3),
        lambda p: tf.image.pad_to_bounding_box(load(p), 2, 3, 9, 8),
    ):
        cut = dataset.map(function).batch(2)
        for source in (cut, fed(cut, check=False)):
            try:
                list(source)
            except tf.errors.OpError:
                continue
            raise AssertionError("a box outside of the image is no error")


def case_features_of_one_value_keep_their_shape() -> None:
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([1], tf.int64),
    }

    def make(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        return tf.image.resize(tf.io.decode_jpeg(example["image"], 3), [9, 8]), example["label"]

    dataset = tf.data.TFRecordDataset(RECORDS).map(make).batch(8)
    equal(dataset, fed(dataset), 3)


def case_a_difference_in_the_first_samples_leaves_the_pipeline() -> None:
    dataset = paths().map(lambda p, _: tf.image.resize(load(p), [8, 8]) - 3.0).batch(4)
    equal(dataset, fed(dataset))
    _function._ARITHMETIC["Sub"] = "add"
    try:
        left(dataset, "sample 0 differs")
    finally:
        _function._ARITHMETIC["Sub"] = "sub"


def case_bad_images_are_errors_on_both_sides() -> None:
    cut = FOLDER / "cut.jpg"
    cut.write_bytes(Path(PATHS[2]).read_bytes()[:-200])
    dataset = tf.data.Dataset.from_tensor_slices([*PATHS[:4], str(cut)])
    dataset = dataset.map(lambda p: tf.image.resize(load(p), [8, 8])).batch(2)
    for source in (dataset, fed(dataset)):
        try:
            list(source)
        except tf.errors.OpError:
            continue
        raise AssertionError("a JPEG that was cut is no error")


def case_iterators_do_not_disturb_each_other() -> None:
    dataset = paths().map(lambda p, y: (tf.image.resize(load(p), [8, 8]), y)).batch(5)
    result = fed(dataset)
    next(iter(result))
    equal(tf.data.Dataset.zip((dataset, dataset)), tf.data.Dataset.zip((result, result)))


def case_functions_of_tensorflow_1_are_left() -> None:
    from tensorflow.python.framework import function

    @function.Defun(tf.int64)  # type: ignore[untyped-decorator]
    def more(x: Any) -> Any:
        return x + 1000

    dataset = tf.data.Dataset.range(3).map(more)
    left(dataset, "a map function: Op type not registered 'more_")
    assert [int(x) for x in dataset] == [1000, 1001, 1002]


def case_data_sets_of_graphs_are_left() -> None:
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.range(3)
        left(dataset, "in a graph")

    @tf.function  # type: ignore[untyped-decorator]
    def total() -> Any:
        found = tf.constant(0, tf.int64)
        for number in wf.feed(tf.data.Dataset.range(4)):
            found += number
        return found

    assert int(total()) == 6


def case_data_sets_that_are_left_end_with_their_last_reference() -> None:
    gc.collect()
    gc.disable()
    try:
        for make in (
            lambda: tf.data.Dataset.range(9).cache().batch(2),
            lambda: paths().map(lambda p, y: (load(p), y)).shuffle(3).batch(1),
        ):
            dataset = make()
            held = weakref.ref(dataset)
            left(dataset, "")
            del dataset
            assert held() is None, gc.get_referrers(held())
    finally:
        gc.enable()


def main() -> None:
    """Runs the cases that are named, or all; prints their failures."""
    tf.autograph.set_verbosity(0)
    # Its cases use what is in here, once.
    sys.modules["feed_tensorflow_cases"] = sys.modules[__name__]
    import feed_tensorflow_colours
    import feed_tensorflow_images
    import feed_tensorflow_places

    parts = (feed_tensorflow_colours, feed_tensorflow_images, feed_tensorflow_places)
    every = {**globals(), **{name: run for part in parts for name, run in vars(part).items()}}
    cases = {name.removeprefix("case_"): run for name, run in every.items() if name.startswith("case_")}
    failures = {}
    for name in sys.argv[1:] or cases:
        try:
            cases[name]()
        except Exception:
            failures[name] = traceback.format_exc()
    print("FAILURES" + json.dumps({"cases": list(cases), "failures": failures}))


if __name__ == "__main__":
    main()
