"""What `wf.keras` gives, against Keras: run by `test_keras.py`, once for each backend.

Every function whose name begins with ``case_`` is a test, here, in `keras_flow_cases.py` and in `keras_layer_cases.py`.
Prints what failed as JSON.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import random
import re
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from PIL import Image

import keras_flow_cases
import keras_layer_cases
import wellfed as wf
from keras_shared import (
    BACKEND,
    GREY,
    ON_TENSORFLOW,
    RNG,
    ROOT,
    THREE,
    THREE_JPEGS,
    TWO,
    Skipped,
    called,
    only_on_tensorflow,
    ours,
    parts,
    picture,
    printed,
    rows,
    same,
    theirs,
)


def case_image_folders_are_keras() -> None:
    only_on_tensorflow()
    draw = random.Random(3)
    for _ in range(60):
        root = draw.choice([TWO, THREE, THREE_JPEGS])
        listed = [
            draw.randrange(4) for _ in range(len(list(root.rglob("*.*g"))) + len(list(root.rglob("*.JPG"))))
        ]
        labels = draw.choice(["inferred"] * 4 + [None, listed])
        arguments: dict[str, Any] = {
            "labels": labels,
            "label_mode": draw.choice(["int", "categorical", "binary", None]),
            "class_names": draw.choice([None, None, ["b", "a"], ["dog", "cat"]]),
            "color_mode": draw.choice(["rgb", "rgb", "rgb", "grayscale"]),
            "batch_size": draw.choice([1, 4, 32]),
            "image_size": draw.choice([(16, 24), (40, 7), 33]),
            "shuffle": draw.random() < 0.5,
            "seed": draw.choice([None, 0, 123]),
            "interpolation": draw.choice(["bilinear", "nearest", "bicubic", "area", "lanczos3", "GAUSSIAN"]),
            "data_format": draw.choice([None, "channels_first", "channels_last"]),
            "verbose": draw.random() < 0.8,
        }
        arguments |= draw.choice([{}, {}, {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True}])
        if draw.random() < 0.5:
            arguments |= {"validation_split": 0.25, "subset": draw.choice(["training", "validation", "both"])}
        given = {**arguments, "labels": list(labels) if isinstance(labels, list) else labels}
        np.random.seed(5)
        found, text = called(ours, root, **arguments)
        assert labels == given["labels"], "the user's list was changed"
        np.random.seed(5)
        expected, theirs_text = called(theirs, root, **given)
        assert text == theirs_text, (arguments, text, theirs_text)
        if isinstance(expected, Exception):
            assert type(found) is type(expected), (arguments, found, expected)
            assert str(found) == str(expected), (arguments, found, expected)
            continue
        assert not isinstance(found, Exception), (arguments, found)
        pairs = (
            [(expected, found)] if not isinstance(expected, list) else list(zip(expected, found, strict=True))
        )
        for number, (one, other) in enumerate(pairs):
            wanted, _ = called(rows, one)
            if isinstance(wanted, Exception):
                # An image so narrow that it has no pixel left between zeros.
                assert arguments.get("pad_to_aspect_ratio"), wanted
                assert "output dimensions must be positive" in str(wanted)
                assert isinstance(called(rows, other)[0], Exception), arguments
                continue
            assert one.element_spec == other.element_spec, arguments
            assert (one.class_names, one.file_paths) == (other.class_names, other.file_paths)
            assert len(one) == len(other)
            if arguments["shuffle"] and number == 0:
                assert sorted(rows(one)) == sorted(rows(other)), arguments
            else:
                same(one, other)


def case_shuffled_epochs_differ_and_hold_all() -> None:
    data = ours(THREE, image_size=(8, 8), batch_size=4, seed=1, verbose=False)
    first, second = rows(data), rows(data)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(first) == len(data.file_paths) == 21
    again = ours(THREE, image_size=(8, 8), batch_size=4, seed=1, verbose=False)
    assert rows(again) == first


def case_pixels_are_those_of_the_engine_on_every_backend() -> None:
    from wellfed._tfdata._operations import TensorFlowOps

    resize = TensorFlowOps([{"op": "resize", "method": "bicubic", "size": [20, 30]}])
    for form in ("channels_last", "channels_first"):
        data = ours(
            TWO,
            image_size=(20, 30),
            interpolation="bicubic",
            shuffle=False,
            batch_size=6,
            data_format=form,
            label_mode="categorical",
            verbose=False,
        )
        layout: Any = "NHWC" if form == "channels_last" else "NCHW"
        plain = wf.image_files(data.file_paths).map(resize).with_options(mode="TENSORFLOW", layout=layout)
        expected = list(plain.numpy())
        found = [row for batch in data for row in parts(batch)[0]]
        assert all(np.array_equal(a, b) for a, b in zip(expected, found, strict=True))
        labels = np.concatenate([parts(batch)[1] for batch in data])
        assert labels.dtype == np.float32
        assert labels.tolist() == [[1, 0]] * 11 + [[0, 1]] * 8


def case_labels_of_each_kind() -> None:
    for mode, dtype, shape in (
        ("int", "int32", (4,)),
        ("binary", "float32", (4, 1)),
        ("categorical", "float32", (4, 2)),
    ):
        for batch in ours(TWO, image_size=(4, 4), batch_size=4, label_mode=mode, verbose=False).take(1):
            label = parts(batch)[1]
            assert (label.dtype, label.shape) == (np.dtype(dtype), shape)
    listed = [5, *range(20)]
    data = ours(THREE, labels=listed, image_size=(4, 4), shuffle=False, verbose=False)
    assert data.class_names == [str(label) for label in range(20)]
    assert [int(x) for batch in data for x in parts(batch)[1]] == listed
    # As of `tf.one_hot`: a label beyond the number of classes is no class.
    for batch in ours(TWO, [7] * 19, "categorical", image_size=(4, 4), shuffle=False, verbose=False):
        assert parts(batch)[1].tolist() == [[0.0]] * 19


def case_splits_are_keras() -> None:
    index = importlib.import_module("keras.src.utils.dataset_utils")
    for seed in (1, 99):
        train, validation = ours(
            THREE, image_size=(4, 4), validation_split=0.3, subset="both", seed=seed, verbose=False
        )
        paths, labels, _ = index.index_directory(
            THREE, "inferred", (".jpg", ".jpeg", ".png"), None, True, seed, False, False
        )
        assert train.file_paths == paths[:-6]
        assert validation.file_paths == paths[-6:]
        # Only the training part is shuffled.
        assert [int(x) for batch in validation for x in parts(batch)[1]] == list(labels[-6:])


def case_models_are_trained() -> None:
    train = ours(THREE, image_size=(8, 8), batch_size=4, verbose=False)
    normalised = train.map(lambda x, y: (x / 255.0, y)).prefetch(-1)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=BACKEND != "jax"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = model.fit(normalised, validation_data=normalised.take(2), epochs=2, verbose=0).history
    assert len(history["loss"]) == len(history["val_loss"]) == 2
    assert np.isfinite(history["loss"]).all()
    assert model.predict(ours(THREE, labels=None, image_size=(8, 8), verbose=False), verbose=0).shape == (
        21,
        3,
    )


def case_losses_without_randomness_are_equal() -> None:
    arguments: dict[str, Any] = {"image_size": (12, 10), "batch_size": 4, "shuffle": False, "verbose": False}
    root = THREE_JPEGS
    data = ours(root, **arguments)
    layers = wf.keras.layers
    labels = np.concatenate([parts(batch)[1] for batch in data])
    images = np.concatenate([parts(batch)[0] for batch in data])
    piped = wf.image_files(data.file_paths, labels).with_options(mode="TENSORFLOW", layout="NHWC")

    def losses(given: Any, **more: Any) -> list[float]:
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [keras.layers.Flatten(), keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss, jit_compile=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = model.fit(given, epochs=3, shuffle=False, verbose=0, **more).history
        return list(history["loss"])

    # Without TensorFlow, Keras has none; its pixels are those of `data`, by other cases.
    keras_own = (theirs(root, **arguments),) if ON_TENSORFLOW else (images,)
    expected = losses(*keras_own, **({} if ON_TENSORFLOW else {"y": labels, "batch_size": 4}))
    assert len(set(expected)) == 3
    assert losses(data) == expected
    assert losses(piped.map(layers.Resizing(12, 10)).batch(4).keras()) == expected
    if ON_TENSORFLOW:
        assert losses(wf.feed(theirs(root, **arguments))) == expected


def case_verbs() -> None:
    data = ours(THREE, image_size=(8, 8), batch_size=4, shuffle=False, verbose=False)
    assert len(data) == int(data.cardinality()) == 6
    assert len(list(data.take(2))) == 2
    assert rows(data.skip(2)) == rows(data)[8:]
    assert len(rows(data.repeat(2))) == 42
    assert "resize Bilinear to 8x8" in data.explain()
    single = ours(THREE, image_size=(8, 8), batch_size=None, shuffle=False, verbose=False)
    assert len(single) == 21
    assert [parts(one)[0].shape for one in single.take(1)] == [(8, 8, 3)]
    assert rows(single.batch(4)) == rows(data)
    assert type(single.batch(4)) is type(single), "made by the engine"
    assert len(list(single.batch(4, drop_remainder=True))) == 5
    assert [parts(one)[0].tobytes() for one in data.unbatch()] == [row[0] for row in rows(data)]
    assert rows(single.batch(5).unbatch().batch(4)) == rows(data)
    assert sorted(rows(data.cache().shuffle(100, seed=1))) == sorted(rows(data))
    for x, y in data.take(1).as_numpy_iterator():
        assert isinstance(x, np.ndarray)
        assert y.tolist() == [0, 0, 0, 0]
    # Two iterations under way at once do not take each other's batches.
    pairs = [(parts(a)[1].tolist(), parts(b)[1].tolist()) for a, b in zip(data, data)]
    assert len(pairs) == 6
    assert all(a == b for a, b in pairs)


def case_verbs_that_are_refused_on_arrays() -> None:
    if ON_TENSORFLOW:
        raise Skipped("there they are those of tf.data")
    data = ours(THREE, image_size=(8, 8), verbose=False)
    mapped = data.map(lambda x, y: (x, y))
    for call in (
        lambda: data.batch(3),
        lambda: mapped.batch(3),
        lambda: mapped.unbatch(),
        lambda: mapped.cache(),
        lambda: data.cache("file"),
    ):
        try:
            call()
        except wf.ConfigError:
            continue
        raise AssertionError(call)


def case_a_shuffle_may_have_one_order_for_all_epochs() -> None:
    data = ours(THREE, image_size=(8, 8), batch_size=None, shuffle=False, verbose=False)
    fixed = data.shuffle(1000, seed=3, reshuffle_each_iteration=False)
    first, second = ([int(parts(x)[1]) for x in fixed] for _ in range(2))
    assert first == second
    assert first != [int(parts(x)[1]) for x in data]


def case_what_is_not_the_engines_is_keras_or_an_error() -> None:
    root = ROOT / "formats"
    (root / "a").mkdir(parents=True)
    Image.fromarray(picture(9, 9)).save(root / "a" / "1.gif")
    Image.fromarray(picture(9, 9)).save(root / "a" / "2.png")
    cases: list[tuple[Path, dict[str, Any], str]] = [
        (root, {}, "1.gif is no JPEG or PNG"),
        (TWO, {"color_mode": "rgba"}, 'is no PNG, and color_mode="rgba"'),
        (TWO, {"labels": [0.5] * 19}, "labels that are not whole numbers"),
    ]
    for place, arguments, why in cases:
        found, text = called(ours, place, image_size=(4, 4), **arguments)
        if importlib.util.find_spec("tensorflow"):
            assert f"all of it is Keras': {why}" in found.explain() or why in found.explain(), found.explain()
            assert text.count("Found") == 1
        else:
            assert isinstance(found, wf.ConfigError), found
            assert why in str(found)
            assert "hint: install tensorflow" in str(found)


def case_grey() -> None:
    # PNGs are left to Keras, or must be grey.
    for root, count in ((GREY, 12), (THREE_JPEGS, 21)):
        data = ours(root, color_mode="grayscale", image_size=(9, 7), shuffle=False, verbose=False)
        assert [parts(batch)[0].shape for batch in data] == [(count, 9, 7, 1)]
        if root is THREE_JPEGS:
            assert "decode to TensorFlowL" in data.explain(), data.explain()
        if ON_TENSORFLOW:
            same(theirs(root, color_mode="grayscale", image_size=(9, 7), shuffle=False, verbose=False), data)
    found, _ = called(lambda: list(ours(TWO, color_mode="grayscale", image_size=(9, 7), shuffle=False)))
    if importlib.util.find_spec("tensorflow"):
        assert not isinstance(found, Exception), found
    else:
        assert isinstance(found, wf.UnsupportedSampleError), found
        assert "this kind of png (3 channels), as grey, is not known" in str(found)


def case_rgba() -> None:
    root = ROOT / "rgba"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    picture_of = Image.fromarray(picture(31, 20))
    alpha = Image.fromarray(picture(31, 20, 4), "RGBA")
    for name, image in (("a/1", alpha), ("a/2", picture_of), ("b/1", picture_of.convert("P"))):
        image.save(root / f"{name}.png")
    picture_of.convert("L").save(root / "b" / "2.png")
    for crop in (False, True):
        arguments = {"color_mode": "rgba", "image_size": (8, 9), "shuffle": False, "verbose": False}
        data = ours(root, **arguments, crop_to_aspect_ratio=crop)
        assert "decode to TensorFlowRgba" in data.explain(), data.explain()
        assert [parts(batch)[0].shape for batch in data] == [(4, 8, 9, 4)]
        if ON_TENSORFLOW:
            same(theirs(root, **arguments, crop_to_aspect_ratio=crop), data)


def case_arguments_that_keras_refuses() -> None:
    wrong: list[dict[str, Any]] = [
        {"labels": "other"},
        {"labels": [1, 2]},
        {"labels": [1], "class_names": ["a"]},
        {"labels": None, "class_names": ["a"]},
        {"label_mode": "ints"},
        {"label_mode": "binary"},
        {"color_mode": "RGB"},
        {"image_size": (1, 2, 3)},
        {"image_size": "12"},
        {"interpolation": "cubic"},
        {"format": "other"},
        {"class_names": ["a", "x"]},
        {"validation_split": 2.0, "subset": "training"},
        {"validation_split": 0.2},
        {"subset": "training"},
        {"subset": "all", "validation_split": 0.2, "seed": 1},
        {"validation_split": 0.2, "subset": "training"},
        {"validation_split": 0.01, "subset": "training", "seed": 1},
        {"validation_split": 0.01, "subset": "both", "seed": 1},
        {"data_format": "last"},
    ]
    for arguments in wrong:
        found, text = called(ours, THREE, **arguments)
        expected, theirs_text = called(theirs, THREE, **arguments)
        assert isinstance(found, ValueError), (arguments, found)
        if not isinstance(expected, ImportError):
            assert str(found) == str(expected), (arguments, found, expected)
            assert text == theirs_text
    assert isinstance(called(ours, ROOT / "nothing")[0], FileNotFoundError)
    empty = ROOT / "empty"
    (empty / "a").mkdir(parents=True, exist_ok=True)
    found, text = called(ours, empty)
    assert str(found).startswith(f"No images found in directory {empty}. Allowed formats: ('.bmp'"), found
    assert text == "Found 0 files belonging to 1 classes.\n"
    for option in ("layout", "mode", "decode", "exif_orientation"):
        found, _ = called(ours, THREE, **{option: "x"})
        assert isinstance(found, TypeError), found
    assert isinstance(called(ours, THREE, format="grain")[0], wf.ConfigError)


def case_options_of_the_engine() -> None:
    bad = ROOT / "bad"
    for name in "ab":
        (bad / name).mkdir(parents=True)
        Image.fromarray(picture(9, 9)).save(bad / name / "1.png")
    (bad / "b" / "2.jpg").write_bytes(b"no image")
    data = ours(bad, image_size=(4, 4), verbose=False, shuffle=False, on_error="replace", num_workers=1)
    assert len(rows(data)) == 3
    assert len(list(data.loader.errors())) == 1
    failed, _ = called(lambda: rows(ours(bad, image_size=(4, 4), verbose=False, shuffle=False)))
    assert "2.jpg" in str(failed)


def texts_folder() -> Path:
    root = ROOT / "texts"
    if not root.exists():
        for label, count in (("bad", 9), ("good", 12)):
            (root / label / "more").mkdir(parents=True)
            (root / label / "image.png").write_bytes(b"no text")
            for number in range(count):
                text = "" if number == 3 else f"{label} {number} \u00e9\u4e2d\0 " * (number + 1)
                place = root / label / ("more" if number % 3 == 0 else "") / f"{number:02}.txt"
                place.write_bytes(text.encode() + (b"\xff" if number == 4 else b""))
    return root


def text_rows(data: Any) -> list[Any]:
    """The samples of batches."""
    found = []
    for batch in data.as_numpy_iterator():
        columns = batch if isinstance(batch, tuple) else (batch,)
        found += [tuple(x if isinstance(x, bytes) else x.tobytes() for x in row) for row in zip(*columns)]
    return found


def case_texts_are_keras() -> None:
    theirs_function, root = keras.utils.text_dataset_from_directory, texts_folder()
    draw = random.Random(8)
    for _ in range(60):
        arguments: dict[str, Any] = {
            "labels": draw.choice(["inferred", "inferred", None, [number % 3 for number in range(21)], "x"]),
            "label_mode": draw.choice(["int", "categorical", "binary", None]),
            "class_names": draw.choice([None, None, ["good", "bad"], ["x"]]),
            "batch_size": draw.choice([4, 32]),
            "max_length": draw.choice([None, 0, 10]),
            "shuffle": draw.random() < 0.5,
            "seed": draw.choice([None, 3]),
        }
        if draw.random() < 0.5:
            arguments |= {"validation_split": 0.3, "subset": draw.choice(["training", "validation", "both"])}
        np.random.seed(5)
        found, text = called(wf.keras.text_dataset_from_directory, root, **arguments)
        np.random.seed(5)
        labels = arguments["labels"]
        given = {**arguments, "labels": list(labels) if isinstance(labels, list) else labels}
        expected, theirs_text = called(theirs_function, root, **given)
        assert text == theirs_text, (arguments, text, theirs_text)
        if isinstance(expected, ValueError):
            assert str(found) == str(expected), (arguments, found)
            continue
        assert not isinstance(found, Exception), (arguments, found)
        if isinstance(expected, Exception):
            if "subset" not in arguments:
                assert len(text_rows(found)) == len(found.file_paths) == 21
            continue
        pairs = (
            [(expected, found)] if not isinstance(expected, list) else list(zip(expected, found, strict=True))
        )
        for number, (one, other) in enumerate(pairs):
            assert one.element_spec == other.element_spec, arguments
            assert one.class_names == other.class_names
            wanted, seen = text_rows(one), text_rows(other)
            if arguments["shuffle"] and number == 0:
                wanted, seen = sorted(wanted), sorted(seen)
            assert wanted == seen, arguments


def case_texts_on_every_backend() -> None:
    root = texts_folder()
    data = wf.keras.text_dataset_from_directory(root, batch_size=5, verbose=False)
    first, second = text_rows(data), text_rows(data)
    assert first != second
    assert sorted(first) == sorted(second)
    assert {row[0] for row in first} == {path.read_bytes() for path in root.rglob("*.txt")}
    single = wf.keras.text_dataset_from_directory(
        root, batch_size=None, labels=None, shuffle=False, verbose=False
    )
    assert [bytes(one) for one in single.as_numpy_iterator()] == [
        Path(p).read_bytes() for p in single.file_paths
    ]
    if not ON_TENSORFLOW:
        numbers = data.map(lambda texts, y: (np.array([[len(text)] for text in texts], np.float32), y))
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        assert len(model.fit(numbers, verbose=0).history["loss"]) == 1
    found, _ = called(wf.keras.text_dataset_from_directory, root, max_length=-1)
    assert isinstance(found, wf.ConfigError)


def case_time_series_are_keras() -> None:
    theirs_function = keras.utils.timeseries_dataset_from_array
    draw = random.Random(2)
    windows = 0
    for _ in range(300):
        length = draw.choice([4, 30, 57])
        series = RNG.normal(size=draw.choice([(length,), (length, 3), (length, 2, 2)])).astype(
            draw.choice(["float32", "float64", "int16"])
        )
        data: Any = draw.choice(
            [series, series, series.tolist(), np.asfortranarray(series), list(range(length))]
        )
        targets: Any = draw.choice(
            [None, np.arange(length), list(map(float, range(length))), np.eye(length)[:20]]
        )
        arguments: dict[str, Any] = {
            "sequence_length": draw.choice([1, 3, 8]),
            "sequence_stride": draw.choice([1, 1, 1, 2, 2, 5, 5, 0, 40]),
            "sampling_rate": draw.choice([1, 1, 1, 1, 3, 3, 3, -1]),
            "batch_size": draw.choice([None, 1, 4, 128]),
            "shuffle": draw.random() < 0.4,
            "seed": draw.choice([None, 4]),
            "start_index": draw.choice([None, None, None, 0, 2, 5, -1]),
            "end_index": draw.choice([None, None, None, None, 0, 29, 3]),
        }
        found, _ = called(wf.keras.timeseries_dataset_from_array, data, targets, **arguments)
        expected, _ = called(theirs_function, data, targets, **arguments)
        what = (series.shape, arguments, found, expected)
        if isinstance(expected, ValueError):
            assert str(found) == str(expected), what
            continue
        if isinstance(expected, Exception):
            if isinstance(found, Exception):
                assert isinstance(found, ValueError), what
                continue
            assert not ON_TENSORFLOW, what
            # Without TensorFlow: by the definition.
            lists = isinstance(data, list)
            begin, end = arguments["start_index"] or 0, arguments["end_index"]
            array = np.asarray(data)[begin : len(data) if end is None else end]
            if lists:
                array = array.astype("int32" if array.dtype.kind == "i" else "float32")
            rate, stride, size = (
                arguments[name] for name in ("sampling_rate", "sequence_stride", "sequence_length")
            )
            count = len(array) - (size - 1) * rate
            count = count if targets is None else min(count, len(targets))
            starts = range(0, count, stride)
            wanted = [(array[start : start + (size - 1) * rate + 1 : rate].tobytes(),) for start in starts]
            if targets is not None:
                goals = np.asarray(targets, "float32" if isinstance(targets, list) else None)[begin:]
                wanted = [(*one, goals[start].tobytes()) for one, start in zip(wanted, starts)]
        else:
            try:
                batches = list(expected)
            except Exception:
                batches = []
            if not batches:
                # Keras has no windows, or not enough targets, of which it finds out now.
                assert isinstance(found, ValueError), what
                continue
            assert not isinstance(found, Exception), what
            for one, other in zip(
                keras.tree.flatten(expected.element_spec), keras.tree.flatten(found.element_spec)
            ):
                assert one.dtype == other.dtype
                assert one.is_compatible_with(other), (one, other)
            wanted = (
                rows(batches)
                if arguments["batch_size"]
                else [tuple(p.tobytes() for p in parts(b)) for b in batches]
            )
            assert len(found) == len(batches)
        given = (
            rows(found) if arguments["batch_size"] else [tuple(p.tobytes() for p in parts(b)) for b in found]
        )
        if arguments["shuffle"]:
            wanted, given = sorted(wanted), sorted(given)
        assert given == wanted, what
        windows += len(given)
    assert windows > 1000, windows


def case_time_series_train_models() -> None:
    series = RNG.normal(size=(60, 2)).astype(np.float32)
    data = wf.keras.timeseries_dataset_from_array(series, series[5:, 0], 5, batch_size=8, shuffle=True)
    first, second = rows(data), rows(data)
    assert first != second
    assert sorted(first) == sorted(second)
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.fit(data, epochs=2, verbose=0).history["loss"]).all()
    for wrong in (
        {"data": np.array(["a"] * 9), "targets": None},
        {"data": [2**40] * 9, "targets": None},
        {"data": series, "targets": None, "format": "grain"},
    ):
        found, _ = called(wf.keras.timeseries_dataset_from_array, sequence_length=2, **wrong)
        assert isinstance(found, wf.ConfigError), (wrong, found)


def case_the_guide() -> None:
    place = Path(tempfile.mkdtemp())
    for name in ("cat", "dog", "fox"):
        (place / "data" / "train" / name).mkdir(parents=True)
        for number in range(8):
            Image.fromarray(picture(60 + number, 50)).save(place / "data" / "train" / name / f"{number}.jpg")
    text = (Path(__file__).parents[2] / "docs" / "keras.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    before = Path.cwd()
    os.chdir(place)
    try:
        for block in blocks:
            with printed(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(block, "docs/keras.md", "exec"), {"__name__": "guide"})
    finally:
        os.chdir(before)


def case_docstrings() -> None:
    from wellfed.keras import _generator, _images, _labels, _text, _timeseries, layers

    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    modules: list[Any] = [wf.keras, _generator, _images, _labels, _text, _timeseries, layers]
    for module in modules:
        for test in doctest.DocTestFinder().find(module):
            runner.run(test)
    assert runner.tries > 8
    assert runner.failures == 0


def main() -> None:
    named = {**globals(), **vars(keras_flow_cases), **vars(keras_layer_cases)}
    cases = {name.removeprefix("case_"): call for name, call in named.items() if name.startswith("case_")}
    chosen = {name: call for name, call in cases.items() if not sys.argv[1:] or name in sys.argv[1:]}
    failures: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for name, call in chosen.items():
        try:
            call()
        except Skipped as why:
            skipped[name] = str(why)
        except BaseException:
            failures[name] = traceback.format_exc()
    print("FAILURES" + json.dumps({"cases": list(cases), "failures": failures, "skipped": skipped}))


if __name__ == "__main__":
    main()
