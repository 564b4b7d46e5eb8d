"""The flows of `wf.keras.ImageDataGenerator` against Keras': cases of `keras_cases.py`."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from PIL import Image

import wellfed as wf
from keras_shared import (
    BACKEND,
    RNG,
    ROOT,
    THREE,
    TWO,
    Skipped,
    called,
    ours,
    picture,
    printed,
    rows,
)

HAS_SCIPY = importlib.util.find_spec("scipy") is not None
HAS_PANDAS = importlib.util.find_spec("pandas") is not None


def generators() -> tuple[Any, Any]:
    """Keras' class and ours."""
    return importlib.import_module(
        "keras.src.legacy.preprocessing.image"
    ).ImageDataGenerator, wf.keras.ImageDataGenerator


def noisy(image: Any) -> Any:
    """A function that draws."""
    return image + np.random.normal(size=image.shape).astype(image.dtype)


def random_generator(draw: random.Random) -> dict[str, Any]:
    """Arguments of a generator."""
    choices: dict[str, list[Any]] = {
        "featurewise_center": [True],
        "samplewise_center": [True],
        "featurewise_std_normalization": [True],
        "samplewise_std_normalization": [True],
        "brightness_range": [(0.5, 1.5)],
        "channel_shift_range": [30.0],
        "horizontal_flip": [True],
        "vertical_flip": [True],
        "rescale": [1 / 255],
        "preprocessing_function": [noisy, np.square],
        "data_format": ["channels_first", "channels_last"],
        "dtype": ["float64", "float64", "float16"],
    }
    if HAS_SCIPY:
        choices |= {
            "rotation_range": [40],
            "width_shift_range": [0.3, 3, [1, 2]],
            "height_shift_range": [0.2, 5.0],
            "shear_range": [20.0],
            "zoom_range": [0.3, (0.5, 0.9)],
            "fill_mode": ["nearest", "constant", "reflect", "wrap"],
            "cval": [7.0],
            "interpolation_order": [0, 3],
        }
    chosen = {name: draw.choice(given) for name, given in choices.items() if draw.random() < 0.2}
    return {**chosen, "validation_split": draw.choice([0.0, 0.3])}


def leaves(batch: Any) -> list[Any]:
    if isinstance(batch, tuple | list):
        return [leaf for one in batch for leaf in leaves(one)]
    return [batch]


def drained(items: Iterator[Any]) -> tuple[list[Any], str]:
    """What comes, and the error that ends it."""
    found = []
    try:
        for item in items:
            found.append(item)
    except Exception as error:
        return found, repr(error)
    return found, ""


def same_flows(expected: Any, found: Any, arguments: Any) -> None:
    """Fails unless both flows give the same batches, however they are asked, and leave the same generator."""
    assert type(found).__mro__[2 if type(found).__name__ == "ArrayFlow" else 3] is type(expected)
    for name in (
        "n",
        "batch_size",
        "samples",
        "filenames",
        "class_indices",
        "image_shape",
        "filepaths",
        "num_classes",
    ):
        assert hasattr(expected, name) == hasattr(found, name)
        assert getattr(expected, name, None) == getattr(found, name, None)
    assert list(getattr(expected, "classes", [])) == list(getattr(found, "classes", []))
    assert len(expected) == len(found)

    def asked(flow: Any) -> Iterator[Any]:
        np.random.seed(17)
        for _ in range(len(flow) + 2):
            yield next(flow)
        flow.reset()
        yield next(flow)
        for index in reversed(range(len(flow))):
            yield flow[index]
        flow.on_epoch_end()
        yield flow[0]
        yield np.random.random(3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted, error = drained(asked(expected))
        given, other_error = drained(asked(found))
    # Keras cannot do everything either: float16 in SciPy, three channels as the brightness has them.
    assert error == other_error, (arguments, error, other_error)
    for one, other in zip(wanted, given, strict=True):
        assert type(one) is type(other)
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), arguments
            assert a.tobytes() == b.tobytes(), arguments


def formats() -> Path:
    """Files of every format and mode that Keras opens."""
    root = ROOT / "modes"
    if not root.exists():
        for number, mode in enumerate(["RGB", "L", "RGBA", "P", "LA", "I;16", "I", "1", "CMYK"]):
            place = root / "xyz"[number % 3]
            place.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(picture(30 + number, 41))
            if mode == "I;16":
                image = Image.fromarray(RNG.integers(0, 65536, (23, 31), dtype=np.uint16))
            elif mode == "I":
                image = Image.fromarray(RNG.integers(0, 65536, (23, 31), dtype=np.int32))
            else:
                image = image.convert(mode)
            image.save(place / f"{number}.{'tif' if mode in ('I', 'CMYK') else 'png'}")
            if mode in ("RGB", "L", "CMYK"):
                image.save(place / f"{number}.jpg")
            if mode in ("RGB", "L", "P"):
                image.save(place / f"{number}.bmp")
    return root


def case_flows_of_folders_are_keras() -> None:
    draw = random.Random(11)
    theirs_class, ours_class = generators()
    for _ in range(60):
        arguments = random_generator(draw)
        flow = {
            "target_size": draw.choice([(16, 24), (40, 20)]),
            "color_mode": draw.choice(["rgb", "rgb", "grayscale", "rgba"]),
            "class_mode": draw.choice(["categorical", "binary", "sparse", "input", None]),
            "classes": draw.choice([None, None, ["y", "x"]]),
            "batch_size": draw.choice([1, 4, 32]),
            "shuffle": draw.random() < 0.6,
            "seed": draw.choice([None, 3]),
            "interpolation": draw.choice(["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]),
            "keep_aspect_ratio": draw.random() < 0.3,
            "subset": draw.choice(["training", "validation"]) if arguments["validation_split"] else None,
        }
        if flow["color_mode"] == "rgba":
            arguments.pop("brightness_range", None)
        flows, texts = [], []
        for kind in (theirs_class, ours_class):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                generator = kind(**arguments)
                assert isinstance(generator, theirs_class)
                channels = {"rgb": 3, "rgba": 4, "grayscale": 1}[flow["color_mode"]]
                last = generator.data_format == "channels_last"
                size = (5, *flow["target_size"], channels) if last else (5, channels, *flow["target_size"])
                generator.fit(np.random.RandomState(1).randint(0, 255, size))
            made, text = called(generator.flow_from_directory, formats(), **flow)
            flows.append(made)
            texts.append(text)
        assert texts[0] == texts[1] != ""
        assert not isinstance(flows[0], Exception), flows[0]
        same_flows(flows[0], flows[1], (arguments, flow))
        assert "threads" in flows[1].explain()


def case_flows_of_tables_are_keras() -> None:
    if not HAS_PANDAS:
        raise Skipped("no pandas")
    import pandas

    files = sorted(
        str(path.relative_to(TWO)) for path in TWO.rglob("*") if path.suffix in (".png", ".JPG", ".jpeg")
    )
    table = pandas.DataFrame(
        {
            "filename": [*files, "missing.png"],
            "class": [*(name.partition("/")[0] for name in files), "cat"],
            "several": [
                *(["cat", "dog"] if number % 3 else ["dog"] for number in range(len(files))),
                ["cat"],
            ],
            "number": np.arange(len(files) + 1) / 7,
            "weight": np.arange(len(files) + 1) * 2.0,
        }
    )
    theirs_class, ours_class = generators()
    for arguments in (
        {"class_mode": "binary", "weight_col": "weight"},
        {"class_mode": "sparse", "subset": "training"},
        {"class_mode": "categorical", "y_col": "several"},
        {"class_mode": "multi_output", "y_col": ["number", "weight"]},
        {"class_mode": "raw", "y_col": "number", "subset": "validation", "weight_col": "weight"},
        {"class_mode": "input"},
        {"class_mode": None},
    ):
        flows, texts = [], []
        for kind in (theirs_class, ours_class):
            generator = kind(validation_split=0.2, horizontal_flip=True, rescale=0.5)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made, text = called(
                    generator.flow_from_dataframe,
                    table,
                    str(TWO),
                    target_size=(9, 8),
                    batch_size=5,
                    **arguments,
                )
            flows.append(made)
            texts.append(text)
        assert texts[0] == texts[1] != ""
        assert not isinstance(flows[1], Exception), flows[1]
        same_flows(*flows, arguments)


def case_flows_of_arrays_are_keras() -> None:
    draw = random.Random(5)
    theirs_class, ours_class = generators()
    for _ in range(30):
        arguments = random_generator(draw)
        last = arguments.get("data_format", "channels_last") == "channels_last"
        images = RNG.integers(0, 256, (10, 9, 12, 3) if last else (10, 3, 9, 12)).astype(
            draw.choice(["uint8", "float32"])
        )
        given: dict[str, Any] = {
            "x": draw.choice([images, (images, np.arange(10)), [images, [np.arange(10), np.eye(10)]]]),
            "y": draw.choice([None, np.arange(10) % 2]),
            "batch_size": draw.choice([3, 32]),
            "shuffle": draw.random() < 0.5,
            "seed": draw.choice([None, 5]),
            "ignore_class_split": True,
        }
        if given["y"] is not None and draw.random() < 0.5:
            given["sample_weight"] = np.linspace(0, 1, 10)
        elif arguments["validation_split"]:
            given["subset"] = draw.choice(["training", "validation"])
        before = images.copy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flows = [kind(**arguments).flow(**given) for kind in (theirs_class, ours_class)]
        same_flows(*flows, (arguments, given))
        assert np.array_equal(before, images)


def case_flows_train_models() -> None:
    generator = wf.keras.ImageDataGenerator(rescale=1 / 255, horizontal_flip=True, validation_split=0.25)
    with printed():
        train, validation = (
            generator.flow_from_directory(
                TWO, (8, 8), classes=["cat", "dog"], class_mode="binary", batch_size=4, subset=subset
            )
            for subset in ("training", "validation")
        )
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1, activation="sigmoid")])
    model.compile("sgd", "binary_crossentropy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        history = model.fit(train, validation_data=validation, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"] + history["val_loss"]).all()
    assert model.predict(validation, verbose=0).shape == (validation.samples, 1)
    assert sum(1 for _ in zip(range(30), train)) == 30  # without end


def case_flows_in_a_process_that_was_forked() -> None:
    if BACKEND != "torch" or not hasattr(os, "fork"):
        raise Skipped("this backend cannot be forked")
    with printed():
        flow = wf.keras.ImageDataGenerator().flow_from_directory(TWO, (8, 8), batch_size=4, shuffle=False)
    before = flow[0][0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        # Without its own threads it would wait for ever.
        signal.alarm(60)
        os._exit(0 if np.array_equal(flow[0][0], before) else 1)
    assert os.waitpid(child, 0)[1] == 0


def case_numbers_of_numpy_as_arguments() -> None:
    size = np.int64(8), np.int32(9)
    data = ours(THREE, image_size=size, batch_size=np.int64(4), seed=np.int64(3), verbose=False)
    again = ours(THREE, image_size=(8, 9), batch_size=4, seed=3, verbose=False)
    assert rows(data) == rows(again)
    found, _ = called(ours, THREE, image_size=(8.5, 9), verbose=False)
    assert isinstance(found, TypeError)


def case_methods_that_users_override_are_called_in_order() -> None:
    theirs_class, ours_class = generators()
    flows = []
    for kind in (theirs_class, ours_class):

        class Mine(kind):  # type: ignore[misc, valid-type]
            def apply_transform(self, x: Any, transform_parameters: Any) -> Any:
                return super().apply_transform(x, transform_parameters) + np.random.random()

        with printed():
            flows.append(Mine(horizontal_flip=True).flow_from_directory(TWO, (8, 8), seed=4))
    same_flows(*flows, None)
    assert "in the calling thread: apply_transform is not Keras' own" in flows[1].explain()


def case_flows_that_save_are_keras() -> None:
    theirs_class, ours_class = generators()
    written = []
    for kind in (theirs_class, ours_class):
        place = Path(tempfile.mkdtemp())
        with printed():
            flow = kind().flow_from_directory(TWO, (8, 8), seed=4, save_to_dir=str(place))
        next(flow)
        written.append({path.name: path.read_bytes() for path in place.iterdir()})
    assert written[0] == written[1] != {}
    assert "all of it is Keras'" in flow.explain()


def case_errors_of_flows_are_keras() -> None:
    theirs_class, ours_class = generators()
    for arguments in (
        {"class_mode": "other"},
        {"color_mode": "RGB"},
        {"subset": "test"},
        {"interpolation": "cubic"},
    ):
        errors = []
        for kind in (theirs_class, ours_class):
            errors.append(called(lambda k=kind, a=arguments: next(k().flow_from_directory(TWO, **a)))[0])
        assert isinstance(errors[1], ValueError)
        assert type(errors[0]) is type(errors[1])
        if "class_mode" not in arguments:  # Keras prints a set
            assert str(errors[0]) == str(errors[1])
    bad = ROOT / "broken"
    (bad / "a").mkdir(parents=True)
    (bad / "a" / "1.jpg").write_bytes(b"no image")
    for _ in range(2):
        found, _ = called(lambda: next(ours_class().flow_from_directory(bad)))
        assert type(found).__name__ == "UnidentifiedImageError", found
