"""Colours, padded batches and compressed records against TensorFlow: cases of `feed_tensorflow_cases.py`.

That script runs them in its own process: a function whose name begins with ``case_`` is a test.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import wellfed as wf
from feed_tensorflow_cases import (
    AUTOTUNE,
    FOLDER,
    PATHS,
    RECORDS,
    before_an_operation,
    equal,
    fed,
    left,
    load,
    native,
    parsed,
    paths,
    picture,
    small,
)
from wellfed._tfdata._operations import TensorFlowOps

image = tf.image


def adjustments(rng: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of an image, with parameters that are drawn here."""
    factor, delta = float(rng.uniform(0, 3)), float(rng.uniform(-1, 1))
    return {
        "brightness": lambda x: image.adjust_brightness(x, delta),
        "contrast": lambda x: image.adjust_contrast(x, factor * float(rng.choice([-1, 1]))),
        "saturation": lambda x: image.adjust_saturation(x, factor),
        "hue": lambda x: image.adjust_hue(x, delta),
        "grey": image.rgb_to_grayscale,
        "grey in three channels": lambda x: image.grayscale_to_rgb(image.rgb_to_grayscale(x)),
        "standardized": image.per_image_standardization,
        "two": lambda x: image.adjust_contrast(image.adjust_hue(x, delta), factor),
        "saturated hue": lambda x: image.adjust_saturation(image.adjust_hue(x, delta), factor),
    }


def case_colours_have_tensorflows_bits() -> None:
    rng = np.random.default_rng(3)
    for number in range(27):
        functions = adjustments(rng)
        name = list(functions)[number % len(functions)]
        kind, sides = int(rng.integers(5)), [int(side) for side in rng.integers(1, 200, 2)]
        sized = bool(rng.integers(2))

        def make(
            path: Any,
            _: Any,
            change: Any = functions[name],
            kind: int = kind,
            sides: Any = sides,
            sized: bool = sized,
        ) -> Any:
            given = before_an_operation(kind)(path)
            if sized:
                given = tf.image.resize(given, sides)
                given = given / 255.0 if kind in (0, 2, 3) else given
            result = change(given)
            return result if sized else tf.image.resize(result, sides)

        dataset = paths().map(make).batch(7)
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError((number, name, kind, sides, sized)) from error


def case_colours_of_any_floats_have_tensorflows_bits() -> None:
    rng = np.random.default_rng(4)
    ops: list[tuple[dict[str, Any], Callable[[Any], Any]]] = [
        ({"op": "adjust_contrast", "factor": 1.75}, lambda x: image.adjust_contrast(x, 1.75)),
        ({"op": "adjust_saturation", "factor": 1.375}, lambda x: image.adjust_saturation(x, 1.375)),
        ({"op": "adjust_hue", "delta": -0.5625}, lambda x: image.adjust_hue(x, -0.5625)),
        ({"op": "grayscale"}, image.rgb_to_grayscale),
        ({"op": "standardize"}, image.per_image_standardization),
    ]
    for number in range(21):
        # One, few, and so many pixels that sums are cut in parts. Values of both signs, and many that are equal.
        height, width = ([1, 1], [1, 5], [2, 2], [31, 33], [64, 43], [97, 131], [256, 301])[number % 7]
        pixels = rng.integers(0, int(rng.choice([2, 4, 256])), (1, height, width, 3), dtype=np.uint8)
        shift = float(rng.choice([0, 1, 100.5]))
        before = [
            {"op": "cast", "dtype": "float32"},
            {"op": "arithmetic", "operator": "sub", "constants": [shift]},
            {"op": "arithmetic", "operator": "div", "constants": [7.0]},
        ]
        for op, function in ops:
            source = wf.from_tensor_slices(pixels, pixels="hwc").map(TensorFlowOps([*before, op]))
            found = source.with_options(layout="NHWC").sample(0)
            given = tf.data.Dataset.from_tensors((tf.cast(pixels[0], tf.float32) - shift) / 7.0)
            expected = next(iter(given.map(function))).numpy()
            assert expected.shape == found.shape, op
            assert expected.tobytes() == found.tobytes(), (op, height, width, shift)
            assert np.array_equal(source.sample(0), np.moveaxis(found, -1, 0))


def case_powers_are_tensorflows() -> None:
    """The same numbers have other bits in a vector register than behind the last full one."""
    numbers = tf.constant(np.random.default_rng(0).random(4096, dtype=np.float32))
    alone = tf.stack([tf.pow(number, 2.2) for number in tf.unstack(numbers[:256])])
    assert tf.reduce_any(alone != tf.pow(numbers, 2.2)[:256])
    for prepare in map(before_an_operation, (0, 1)):

        def make(path: Any, _: Any, prepare: Any = prepare) -> Any:
            return image.adjust_gamma(image.resize(prepare(path), [30, 31]) / 255.0, 2.2)

        dataset = paths().map(make).batch(6)
        result = fed(dataset)
        assert "a power" in result.explain(), result.explain()
        equal(dataset, result)


def case_casts_to_bytes_are_known_where_values_fit() -> None:
    known = {
        "resized": lambda x: tf.cast(x, tf.uint8),
        "saturated": lambda x: tf.saturate_cast(x * 3.0 - 200.0, tf.uint8),
        "clipped": lambda x: tf.cast(tf.clip_by_value(x * -2.0 + 300.0, 3.0, 250.0), tf.uint8),
        "converted": lambda x: image.convert_image_dtype(x / 255.0, tf.uint8),
        "brighter": lambda x: image.adjust_brightness(tf.cast(x, tf.uint8), 0.3),
        "more contrast": lambda x: image.adjust_contrast(tf.cast(x, tf.uint8), 1.5),
        "other hue": lambda x: image.adjust_hue(tf.cast(x, tf.uint8), 0.3),
        "saturation": lambda x: image.adjust_saturation(tf.cast(x, tf.uint8), 2.5),
        "clipped to zero": lambda x: tf.clip_by_value(x - 100.0, 0.0, 90.0),
        "no more than zero": lambda x: tf.maximum(tf.minimum(100.0 - x, 0.0), -20.0),
    }
    for name, function in known.items():
        dataset = paths().map(lambda p, _: function(image.resize(load(p), [30, 31]))).batch(6)  # noqa: B023
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError(name) from error
    for function in (
        lambda x: tf.cast(x + 1.0, tf.uint8),
        lambda x: tf.cast(x - 1.0, tf.uint8),
        lambda x: tf.cast(image.adjust_contrast(x, 1.5), tf.uint8),
        lambda x: tf.cast(image.resize(x, [9, 9], "bicubic"), tf.uint8),
    ):
        dataset = paths().map(lambda p, _: function(image.resize(load(p), [30, 31]))).batch(6)  # noqa: B023
        assert "beyond 0 to 255" in fed(dataset).explain()
    for function in (
        lambda x: tf.clip_by_value(x * -1.0, 0.0, 200.0),
        lambda x: tf.maximum(x / -2.0, 0.0),
        lambda x: tf.minimum(tf.minimum(x, -0.0), 0.0),
    ):
        dataset = paths().map(lambda p, _: function(image.resize(load(p), [30, 31]))).batch(6)  # noqa: B023
        result = fed(dataset)
        assert "may be -0" in result.explain()
        equal(dataset, result)


def case_images_are_decoded_in_grey() -> None:
    pngs = []
    for number, channels in enumerate([1, 1]):
        path = FOLDER / f"grey{number}.png"
        path.write_bytes(tf.io.encode_png(picture(31, 45, channels)).numpy())
        pngs.append(str(path))
    for decode in (
        lambda data: tf.io.decode_jpeg(data, 1),
        lambda data: tf.io.decode_image(data, 1, expand_animations=False),
    ):
        files = tf.data.Dataset.from_tensor_slices([*PATHS, *pngs])
        dataset = files.map(lambda p: image.resize(decode(tf.io.read_file(p)), [40, 33])).batch(7)  # noqa: B023
        equal(dataset, native(dataset))
    rgb = files.map(lambda p: image.resize(image.grayscale_to_rgb(load(p, 1)), [40, 33])).batch(7)
    equal(rgb, native(rgb))
    # libpng mixes the colours of PNGs in its own way.
    colour = FOLDER / "colour.png"
    colour.write_bytes(tf.io.encode_png(picture(9, 7)).numpy())
    dataset = tf.data.Dataset.from_tensor_slices([str(colour)]).map(
        lambda p: image.resize(tf.io.decode_png(tf.io.read_file(p), 1), [8, 8])
    )
    left(dataset, "png")
    for wrong in ([{"op": "grayscale"}], [{"op": "cast", "dtype": "float32"}, {"op": "grayscale"}]):
        grey = wf.image_files(PATHS[:1]).with_options(mode="TENSORFLOW_L")
        try:
            grey.map(TensorFlowOps(wrong)).sample(0)
        except wf.WellfedError as error:
            text = str(error)
        else:
            text = ""
        assert ("uint8" if len(wrong) == 1 else "3 channels") in text, text


def moved(kind: str, made: Any, plain: Any) -> np.ndarray[Any, Any]:
    """What was drawn for each image, found by what it did to it."""
    found = []
    for after, before in zip(made, plain, strict=True):
        if kind == "brightness":
            found.append(float(np.median(after - before)))
        elif kind == "contrast":
            found.append(float(np.std(after[..., 0]) / np.std(before[..., 0])))
        elif kind == "hue":
            turns = [image.rgb_to_hsv(x).numpy()[..., 0] for x in (after, before)]
            grey = np.ptp(before, -1) < 0.2
            angles = (turns[0] - turns[1])[~grey]
            found.append(float(np.median((angles + 0.5) % 1 - 0.5)))
        else:
            values = [image.rgb_to_hsv(x).numpy()[..., 1] for x in (after, before)]
            fits = (values[1] > 0.1) & (values[0] < 0.999)
            found.append(float(np.median(values[0][fits] / values[1][fits])))
    return np.array(found)


def case_random_colours_are_drawn_for_every_sample() -> None:
    rng = np.random.default_rng(9)
    colours = np.clip(
        rng.uniform(0, 255, (8, 8, 1)) * [1.0, 0.7, 0.4] + rng.uniform(0, 20, (8, 8, 3)), 0, 255
    )
    path = FOLDER / "drawn.png"
    path.write_bytes(tf.io.encode_png(colours.astype(np.uint8)).numpy())
    count = 300
    files = tf.data.Dataset.from_tensor_slices([str(path)] * count)
    for kind, function, span in (
        ("brightness", lambda x: image.random_brightness(x, 0.2), (-0.2, 0.2)),
        ("contrast", lambda x: image.random_contrast(x, 0.5, 1.5), (0.5, 1.5)),
        ("saturation", lambda x: image.random_saturation(x, 0.4, 1.2), (0.4, 1.2)),
        ("hue", lambda x: image.random_hue(x, 0.1), (-0.1, 0.1)),
    ):

        def floats(path: Any, change: Any = function) -> Any:
            return change(image.resize(tf.io.decode_png(tf.io.read_file(path), 3), [8, 8]) / 255.0)

        dataset = files.map(floats).batch(50)
        explained = fed(dataset).explain()
        assert f"a random_{kind}, whose random numbers" in explained, explained
        ours = native(dataset, random="native")
        assert "not compared, as they are random" in ours.explain()
        plain = [image.resize(tf.io.decode_png(path.read_bytes(), 3), [8, 8]).numpy() / 255] * count
        first, second = (moved(kind, np.concatenate(list(ours)), plain) for _ in range(2))
        low, high = span
        rim = 0.002 * (high - low)
        for draws in (first, second):
            assert low - rim <= draws.min() < low + 0.05 * (high - low), (kind, draws.min())
            assert high - 0.05 * (high - low) < draws.max() <= high + rim, (kind, draws.max())
            assert abs(draws.mean() - (low + high) / 2) < 0.08 * (high - low), (kind, draws.mean())
            assert abs(draws.std() - (high - low) / 12**0.5) < 0.05 * (high - low), (kind, draws.std())
        # Another epoch draws others; the same loader again draws the same.
        assert np.abs(first - second).max() > 0.1 * (high - low)
        again = native(dataset, random="native")
        assert np.array_equal(next(iter(again)), next(iter(native(dataset, random="native", num_workers=1))))


def case_random_colours_of_bytes_stay_bytes() -> None:
    def make(path: Any, _: Any) -> Any:
        given = image.resize(load(path), [12, 13], "nearest")
        given = image.random_brightness(image.random_hue(given, 0.2), 0.5)
        return image.random_saturation(image.random_contrast(given, 0.2, 3.0), 0.0, 2.0)

    dataset = paths().map(make).batch(6)
    ours = list(native(dataset, random="native"))
    assert {batch.dtype for batch in ours} == {tf.uint8}
    assert sum(len(batch) for batch in ours) == len(PATHS)


def case_draws_that_are_used_twice_are_tensorflows() -> None:
    def twice(path: Any, _: Any) -> Any:
        drawn = tf.random.uniform([], -0.2, 0.2)
        return image.adjust_brightness(image.resize(load(path), [8, 8]), drawn), drawn

    def other(path: Any, _: Any) -> Any:
        drawn = tf.identity(tf.random.uniform([], 0.1, 0.2))
        return image.adjust_contrast(image.adjust_hue(image.resize(load(path), [8, 8]), drawn), drawn)

    def uneven(path: Any, _: Any) -> Any:
        return image.resize(load(path), [8, 8]) + tf.random.uniform([], -0.2, 0.3)

    for function in (twice, other, uneven):
        result = fed(paths().map(function).batch(4), random="native")
        assert "TensorFlow goes on" in result.explain(), result.explain()
        list(result)


def case_maps_after_maps_are_one() -> None:
    def read(path: Any, label: Any) -> Any:
        return load(path), label

    def parse(record: Any) -> Any:
        names = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        example = tf.io.parse_single_example(record, names)
        return example["image"], example["label"]

    scaled = paths().map(read).map(lambda x, y: (image.resize(x, [30, 20]), y)).shuffle(9, seed=3)
    # What TensorFlow folds in one function it does not fold across two.
    scaled = scaled.map(lambda x, y: (x * (1 / 3), y)).map(lambda x, y: (x * (1 / 7), y)).batch(5)
    equal(scaled, native(scaled), 5)
    names = (
        paths()
        .map(lambda p, y: (tf.io.read_file(p), y))
        .map(lambda x, y: (image.resize(tf.io.decode_jpeg(x, 3), [9, 8]), y))
    )
    equal(names.batch(5), native(names.batch(5)), 5)
    records = (
        tf.data.TFRecordDataset(RECORDS)
        .map(parse)
        .map(lambda x, y: (image.resize(tf.io.decode_jpeg(x, 3), [8, 8]), y), num_parallel_calls=AUTOTUNE)
    )
    equal(records.batch(5), native(records.batch(5)), 5)
    equal(records, native(records), len(PATHS))
    left(paths().map(read), "differ in size")
    left(paths().map(read).shuffle(4), "differ in size")


def case_padded_batches_are_filled_with_zeros() -> None:
    rng = np.random.default_rng(6)
    for number in range(14):
        sides = [int(side) for side in rng.integers(1, 50, 2)]
        more = [int(side) for side in rng.integers(0, 9, 2)]
        wanted = [None if rng.integers(2) else a + b for a, b in zip(sides, more, strict=True)]
        batch, drop, floats = int(rng.integers(1, 9)), bool(rng.integers(2)), bool(rng.integers(2))
        hot = None if rng.integers(2) else 50 + int(rng.integers(9))
        filling = float(rng.choice([0, -1, 0.5]))

        def make(path: Any, label: Any, sides: Any = sides, floats: bool = floats) -> Any:
            return image.resize(load(path), sides, "bilinear" if floats else "nearest"), tf.one_hot(label, 50)

        dataset = paths().map(make)
        if rng.integers(2):
            dataset = dataset.shuffle(7, seed=number)
        zero = np.float32(0) if floats else np.uint8(0)
        dataset = dataset.padded_batch(
            batch,
            padded_shapes=([*wanted, rng.choice([None, 3])], [hot]),
            padding_values=(zero, np.float32(filling)),
            drop_remainder=drop,
        )
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError((number, sides, wanted, batch, drop, hot)) from error
    whole = paths().map(lambda p, y: (load(p), y)).padded_batch(4, ([170, 165, 3], []))
    equal(whole, native(whole), 6)
    shuffled = paths().map(lambda p, y: (load(p), y)).shuffle(5, seed=1).padded_batch(4, ([170, 165, 3], []))
    equal(shuffled, native(shuffled), 6)


def case_padded_batches_of_another_kind_are_left() -> None:
    plain = paths().map(small)
    minus = plain.padded_batch(4, ([9, 9, 3], []), padding_values=(-1.0, np.int32(0)))
    assert "other values than 0" in fed(minus).explain()
    equal(minus, fed(minus), 6)
    signed = plain.padded_batch(4, ([9, 9, 3], []), padding_values=(-0.0, np.int32(0)))
    equal(signed, fed(signed), 6)
    channels = plain.padded_batch(4, ([8, 8, 4], []))
    assert "padded shape" in fed(channels).explain()
    equal(channels, fed(channels), 6)
    open_ = paths().map(lambda p, y: (load(p), y))
    left(open_.padded_batch(4, ([None, None, 3], [])), "differ in size")
    too_small = open_.padded_batch(4, ([170, 40, 3], []))
    for source in (too_small, fed(too_small, check=False)):
        try:
            list(source)
        except tf.errors.OpError:
            continue
        raise AssertionError("a padded shape that is too small is no error")


def case_compressed_records_are_unpacked_on_request() -> None:
    for number, packing in enumerate(("GZIP", "ZLIB")):
        names = []
        for record in RECORDS:
            name = str(FOLDER / f"{Path(record).stem}.{packing}")
            with tf.io.TFRecordWriter(name, packing) as writer:
                for data in tf.data.TFRecordDataset(record).as_numpy_iterator():
                    writer.write(data)
            names.append(name)

        def open_(name: Any, packing: str = packing) -> Any:
            return tf.data.TFRecordDataset(name, compression_type=packing)

        folder = FOLDER / f"unpacked{number}"
        plain = open_(names).map(parsed).batch(5)
        left(plain, "unpack_to")
        equal(plain, native(plain, unpack_to=folder), 5)
        assert folder.is_dir()
        files = tf.data.Dataset.from_tensor_slices(names)
        mixed = files.interleave(open_, cycle_length=2).shuffle(6, seed=2).map(parsed).batch(5)
        equal(mixed, native(mixed, unpack_to=folder), 5)
        # Files are of another kind than is said.
        left(tf.data.TFRecordDataset(RECORDS, compression_type=packing).map(parsed), "", unpack_to=folder)


def case_images_in_memory_are_changed_natively() -> None:
    rng = np.random.default_rng(12)
    for number in range(16):
        functions = adjustments(rng)
        channels = int(rng.choice([1, 3, 3, 4]))
        height, width = (int(side) for side in rng.integers(1, 40, 2))
        pixels = rng.integers(0, 256, (23, height, width, channels), dtype=np.uint8)
        masks = rng.integers(0, 9, (23, 5, 6, 1), dtype=np.uint8)
        change = list(functions.values())[number % len(functions)]
        if channels != 3:
            change = image.flip_left_right
        how = str(rng.choice(["bilinear", "nearest", "bicubic"]))

        def make(x: Any, y: Any, mask: Any, change: Any = change, how: str = how) -> Any:
            x = image.resize(x, [13, 17], how)
            return {"x": change(x / 255 if how != "nearest" else x), "y": tf.one_hot(y, 23), "mask": mask}

        dataset = tf.data.Dataset.from_tensor_slices((pixels, np.arange(23), masks))
        if rng.integers(2):
            dataset = dataset.shuffle(9, seed=number)
        dataset = dataset.map(make, num_parallel_calls=AUTOTUNE)
        if rng.integers(2):
            dataset = dataset.repeat(2)
        dataset = dataset.batch(int(rng.integers(1, 9)), drop_remainder=bool(rng.integers(2))).prefetch(2)
        try:
            equal(dataset, native(dataset))
        except AssertionError as error:
            raise AssertionError((number, channels, height, width, how)) from error
    pairs = tf.data.Dataset.zip(
        (tf.data.Dataset.from_tensor_slices(pixels), tf.data.Dataset.from_tensor_slices(np.arange(20)))
    )
    pairs = pairs.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y)).batch(6)
    equal(pairs, native(pairs), 4)


def case_images_in_memory_that_gain_nothing_are_left() -> None:
    pixels = np.zeros((9, 4, 5, 3), np.uint8)
    slices = tf.data.Dataset.from_tensor_slices
    left(slices((pixels, np.arange(9))).batch(2), "makes no images")
    left(slices(pixels).map(image.flip_left_right), "no whole batches")
    left(slices(pixels).map(lambda x: tf.sqrt(tf.cast(x, tf.float32))).batch(2), "Sqrt")
    left(
        slices((pixels, pixels)).map(lambda x, y: (image.flip_up_down(x), image.flip_left_right(y))).batch(2),
        "in memory",
    )
    left(slices(pixels.astype(np.float32)).map(lambda x: x / 255).batch(2), "")
    beside = slices((pixels, pixels)).map(lambda x, y: (tf.cast(x, tf.float32) / 255, y)).batch(2)
    equal(beside.map(lambda x, y: (tf.sqrt(x), y)), fed(beside.map(lambda x, y: (tf.sqrt(x), y))), 5)
