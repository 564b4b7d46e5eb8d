"""Cases of `wf.keras.layers`, which `keras_cases.py` runs with its own."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import wellfed as wf
from keras_shared import RNG, THREE, called, only_on_tensorflow, picture

FILLS = ("reflect", "wrap", "constant", "nearest")
RAMP = np.stack(np.broadcast_arrays(*np.mgrid[:64, :64][::-1], 0), -1).astype(np.uint8)
"""Each pixel holds its column and its row."""


def paths() -> list[str]:
    return [str(path) for path in sorted(THREE.rglob("*")) if path.suffix in (".png", ".JPG", ".jpeg")]


def pictures() -> Any:
    return wf.image_files(paths()).with_options(mode="TENSORFLOW", layout="NHWC")


def images_of(array: Any, *layers: Any, seed: int = 0, epoch: int = 0) -> Any:
    """What layers make of an array of images, in its order."""
    ds = wf.from_tensor_slices(array).map(*layers).batch(len(array))
    loader = ds.with_options(seed=seed).numpy(layout="NHWC")
    for _ in range(epoch):
        for _ in loader:
            pass
    (batch,) = list(loader)
    return np.asarray(batch)


def resizing(draw: random.Random) -> dict[str, Any]:
    return {
        "height": draw.choice([5, 40]),
        "width": draw.choice([9, 33]),
        "interpolation": draw.choice(["bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area"]),
        "antialias": draw.random() < 0.4,
        "crop_to_aspect_ratio": draw.random() < 0.4,
    }


def settled(draw: random.Random) -> tuple[str, dict[str, Any]]:
    """A layer that leaves nothing to chance, and its arguments."""
    sampling = {
        "fill_mode": draw.choice(FILLS),
        "interpolation": draw.choice(["bilinear", "nearest"]),
        "fill_value": draw.choice([0.0, 7.3]),
    }

    def one(*choices: float) -> tuple[float, float]:
        number = draw.choice(choices)
        return number, number

    rescaling = {
        "scale": draw.choice([1 / 255, [0.5, 1.0, -2.0]]),
        "offset": draw.choice([0.0, -1, [1.0, 2.0, 3.3]]),
    }
    zoom = {"height_factor": one(-0.6, 0.0, 0.33), "width_factor": draw.choice([None, one(-0.21, 1.0)])}
    shift = {"height_factor": one(-1.0, 0.0, 0.35), "width_factor": one(-0.5, 0.17, 1.0)}
    return draw.choice(
        [
            ("Resizing", resizing(draw)),
            ("Rescaling", rescaling),
            ("CenterCrop", {"height": draw.choice([3, 12, 50]), "width": draw.choice([4, 21, 60])}),
            # Larger than all images: no place is drawn.
            ("RandomCrop", {"height": draw.choice([91, 100]), "width": draw.choice([2, 30, 120])}),
            ("RandomZoom", zoom | sampling),
            ("RandomTranslation", shift | sampling),
            ("RandomBrightness", {"factor": one(-0.4, 0.2), "value_range": draw.choice([(0, 255), [1, -1]])}),
        ]
    )


def case_layers_are_keras() -> None:
    only_on_tensorflow()
    decoded = pictures()
    draw = random.Random(4)
    for _ in range(60):
        chain = [settled(draw) for _ in range(draw.choice([1, 1, 2, 3]))]
        found = decoded.map(*(getattr(wf.keras.layers, name)(**arguments) for name, arguments in chain))
        theirs = [getattr(keras.layers, name)(**arguments) for name, arguments in chain]
        for index in draw.sample(range(len(paths())), 8):
            image: Any = decoded.sample(index).astype(np.float32)
            for layer in theirs:
                training = {} if layer.__class__.__name__ in ("Resizing", "Rescaling") else {"training": True}
                image = layer(image, **training)
            wanted, given = np.asarray(image), found.sample(index)
            assert (wanted.dtype, wanted.shape) == (given.dtype, given.shape), chain
            assert wanted.tobytes() == given.tobytes(), (chain, np.abs(wanted - given).max())


def case_rotations_are_keras() -> None:
    only_on_tensorflow()
    layers = wf.keras.layers
    array = np.stack([picture(31, 45) for _ in range(3)])
    for number in range(24):
        factor = (RNG.uniform(-1, 1),) * 2
        named: dict[str, Any] = {
            "fill_mode": FILLS[number % 4],
            "interpolation": ["bilinear", "nearest"][number // 4 % 2],
            "fill_value": 3.5,
        }
        layer = keras.layers.RandomRotation(factor, **named)
        drawn = layer.get_random_transformation(array)
        # The matrix in Keras' steps, of a sine and a cosine that are rounded from float64.
        angle = np.float32(factor[0] * 360) * np.float32(np.pi / 180)
        cos, sin = np.float32(np.cos(np.float64(angle))), np.float32(np.sin(np.float64(angle)))
        x, y = np.float32(22), np.float32(15)
        matrix = np.array([cos, -sin, x - x * cos + y * sin, sin, cos, y - x * sin - y * cos, 0, 0])
        theirs = np.asarray(drawn["rotation_matrix"])
        assert np.allclose(theirs, matrix, rtol=1e-6, atol=1e-5), (theirs, matrix)
        given = {**drawn, "rotation_matrix": np.tile(matrix.astype(np.float32), (3, 1))}
        expected = np.asarray(layer.transform_images(array, given))
        found = images_of(array, layers.RandomRotation(factor, **named))
        assert found.dtype == expected.dtype == np.float32
        assert found.tobytes() == expected.tobytes(), (factor, named)
        # The layer as a whole: its sine may have another last bit.
        if named["interpolation"] == "bilinear" and named["fill_mode"] != "wrap":
            whole = np.asarray(layer(array, training=True))
            assert np.mean(np.abs(whole - found) > 0.01) < 0.01, (factor, named)


def near(number: float) -> list[Any]:
    """The float32 next to a number, and some around it."""
    found = np.float32(number)
    around = [found]
    for towards in (np.float32(-np.inf), np.float32(np.inf)):
        step = found
        for _ in range(24):
            step = np.nextafter(step, towards)
            around.append(step)
    return around


def case_contrast_is_keras() -> None:
    only_on_tensorflow()
    layers = wf.keras.layers
    sizes = [(9, 30, 3), (16, 8, 3), (32, 224, 3), (61, 33, 3), (50, 43, 1), (50, 43, 4)]
    for seed, (height, width, channels) in enumerate(sizes):
        arguments: Any = ((0.5, 0.75), (0, 250)) if seed % 2 else (0.75, (-20, 300))
        array = np.stack(
            [picture(height, width, channels).reshape(height, width, channels) for _ in range(8)]
        )
        found = images_of(array, layers.Rescaling(1.1), layers.RandomContrast(*arguments), seed=seed)
        layer = keras.layers.RandomContrast(*arguments)
        factors = set()
        for image, given in zip(array.astype(np.float32) * np.float32(1.1), found, strict=True):
            away = image.astype(np.float64) - image.mean((0, 1), dtype=np.float64)
            kept = (given > arguments[1][0]) & (given < arguments[1][1]) & (np.abs(away) > 20)
            factor = np.median((given - image + away)[kept] / away[kept])
            expected = [
                np.asarray(layer.transform_images(image, {"contrast_factor": f})) for f in near(factor)
            ]
            if channels == 3:
                assert any(one.tobytes() == given.tobytes() for one in expected), (height, width, factor)
            assert min(np.abs(one - given).max() for one in expected) < 1e-4
            factors.add(float(factor))
        assert len(factors) == 8


def case_brightness_is_keras() -> None:
    only_on_tensorflow()
    layers = wf.keras.layers
    array = np.stack([picture(12, 17) for _ in range(20)])
    for seed, limits in enumerate([(0, 255), (-1, 1)]):
        scale = layers.Rescaling(1 / 127.5, -1) if seed else layers.Rescaling(1)
        layer = keras.layers.RandomBrightness((-0.3, 0.6), limits)
        found = images_of(array, scale, layers.RandomBrightness((-0.3, 0.6), limits), seed=seed)
        deltas = set()
        for image, given in zip(images_of(array, scale), found, strict=True):
            kept = (given > limits[0]) & (given < limits[1])
            delta = np.median(given[kept].astype(np.float64) - image[kept])
            expected = [np.asarray(layer.transform_images(image, {"rgb_delta": d})) for d in near(delta)]
            assert any(one.tobytes() == given.tobytes() for one in expected), delta
            deltas.add(float(delta))
        assert len(deltas) == 20


def case_random_crops_are_keras() -> None:
    only_on_tensorflow()
    layers = wf.keras.layers
    array = np.tile(picture(7, 9), (400, 1, 1, 1))
    found = images_of(array, layers.RandomCrop(4, 6))
    layer = keras.layers.RandomCrop(4, 6)
    places = {
        np.asarray(layer.transform_images(array[0], (top, left))).tobytes(): (top, left)
        for top in range(4)
        for left in range(4)
    }
    counts = dict.fromkeys(places.values(), 0)
    for image in found:
        counts[places[image.tobytes()]] += 1
    assert min(counts.values()) > 5, counts
    assert max(counts.values()) < 60, counts
    # As Keras, at one place where there is room on one side only.
    for size in ((7, 4), (3, 9), (7, 9)):
        expected = np.asarray(keras.layers.RandomCrop(*size)(array[0], training=True))
        assert images_of(array[:1], layers.RandomCrop(*size))[0].tobytes() == expected.tobytes()


def reached(images: Any, layer: str) -> list[Any]:
    """What was drawn, as read off images that were `RAMP`."""
    middle, beside, below = images[:, 31, 31, :2], images[:, 31, 36, :2], images[:, 36, 31, :2]
    if layer == "RandomRotation":
        return [np.arctan2(*(beside - middle).T[::-1])]
    if layer == "RandomZoom":
        return [(beside - middle)[:, 0], (below - middle)[:, 1]]
    if layer == "RandomTranslation":
        return [middle[:, 0], middle[:, 1]]
    return [images[:, 40, 40, 0]]


def case_draws_are_as_of_keras() -> None:
    only_on_tensorflow()
    count = 600
    cases: list[tuple[str, tuple[Any, ...]]] = [
        ("RandomRotation", ((-0.1, 0.2),)),
        ("RandomZoom", ((-0.4, 0.1), (-0.1, 0.3))),
        ("RandomZoom", ((-0.4, 0.1),)),
        ("RandomTranslation", (0.2, (-0.1, 0.3))),
        ("RandomContrast", (0.5,)),
        ("RandomContrast", ((0.2, 0.6),)),
        ("RandomBrightness", (0.3, (-500, 500))),
    ]
    ramps = np.tile(RAMP, (count, 1, 1, 1))
    for name, arguments in cases:
        found = images_of(ramps, getattr(wf.keras.layers, name)(*arguments), seed=3)
        theirs = getattr(keras.layers, name)(*arguments, seed=1)
        expected = np.asarray(theirs(ramps.astype(np.float32), training=True))
        for one, other in zip(reached(found, name), reached(expected, name), strict=True):
            merged = np.concatenate([one, other])
            ranks = [np.searchsorted(np.sort(part), merged, side="right") / count for part in (one, other)]
            # Two samples of one distribution differ by more in one of 10,000.
            assert np.abs(ranks[0] - ranks[1]).max() < 2.23 * np.sqrt(2 / count), (name, arguments)
        again = images_of(ramps, getattr(wf.keras.layers, name)(*arguments), seed=3)
        assert again.tobytes() == found.tobytes()
        later = images_of(ramps, getattr(wf.keras.layers, name)(*arguments), seed=3, epoch=1)
        assert np.mean((later == found).all((1, 2, 3))) < 0.05, "each epoch has draws of its own"


def case_flips_both_ways() -> None:
    image = picture(6, 5)
    found = images_of(np.tile(image, (100, 1, 1, 1)), wf.keras.layers.RandomFlip())
    turned = [np.array_equal(one, image[::-1, ::-1]) for one in found]
    assert all(turn or np.array_equal(one, image) for turn, one in zip(turned, found, strict=True))
    assert 30 < sum(turned) < 70


def case_layers_on_every_backend() -> None:
    layers = wf.keras.layers
    decoded = wf.image_files(paths(), np.arange(21) % 3).with_options(mode="TENSORFLOW")
    steps = layers.Resizing(16, 16), layers.RandomFlip("horizontal"), layers.Rescaling(1 / 127.5, -1)
    flipped = decoded.shuffle(seed=1).map(*steps)
    plain = decoded.shuffle(seed=1).map(steps[0], steps[2])
    batches = [np.asarray(batch[0]) for batch in flipped.batch(4).numpy(layout="NHWC")]
    straight = [np.asarray(batch[0]) for batch in plain.batch(4).numpy(layout="NHWC")]
    mirrored = 0
    for one, other in zip(np.concatenate(batches), np.concatenate(straight), strict=True):
        assert np.array_equal(one, other) or np.array_equal(one, other[:, ::-1])
        mirrored += not np.array_equal(one, other)
    assert 2 <= mirrored <= 19
    many = decoded.shuffle(seed=1).map(
        layers.Resizing(24, 20),
        layers.RandomCrop(16, 16),
        layers.RandomRotation(0.1),
        layers.RandomZoom(0.2),
        layers.RandomTranslation(0.1, 0.1),
        layers.RandomContrast(0.3),
        layers.RandomBrightness(0.2),
        layers.Rescaling(1 / 255),
    )
    data = many.batch(4).keras()
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(model.fit(data, epochs=1, verbose=0).history["loss"]).all()


def case_layers_that_are_refused() -> None:
    layers = wf.keras.layers
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: layers.RandomFlip("horizontal", seed=1), wf.ConfigError),
        (lambda: layers.RandomFlip("across"), ValueError),
        (lambda: layers.RandomFlip(data_format="last"), ValueError),
        (lambda: layers.Resizing(3, 3, "cubic"), ValueError),
        (lambda: layers.Resizing(3, 3, pad_to_aspect_ratio=True), wf.ConfigError),
        (lambda: layers.Resizing(3, 3, "area", True, True), ValueError),
        (lambda: layers.Rescaling(1, dtype="float16"), wf.ConfigError),
        (lambda: layers.Rescaling(float("nan")), wf.ConfigError),
        (lambda: layers.Rescaling(1, trainabel=True), TypeError),
        (lambda: layers.RandomRotation(0.1, seed=1), wf.ConfigError),
        (lambda: layers.RandomRotation(1.5), ValueError),
        (lambda: layers.RandomRotation((0.1, 0.2, 0.3)), ValueError),
        (lambda: layers.RandomRotation(0.1, "mirror"), NotImplementedError),
        (lambda: layers.RandomRotation(0.1, interpolation="bicubic"), NotImplementedError),
        (lambda: layers.RandomRotation(0.1, fill_value=float("inf")), wf.ConfigError),
        (lambda: layers.RandomZoom(-1.0), ValueError),
        (lambda: layers.RandomZoom((0.1, 2)), ValueError),
        (lambda: layers.RandomZoom(0.1, "0.2"), ValueError),
        (lambda: layers.RandomZoom(0.1, seed=0), wf.ConfigError),
        (lambda: layers.RandomTranslation(0.1, 1.1), ValueError),
        (lambda: layers.RandomTranslation(0.1, 0.1, seed=0), wf.ConfigError),
        (lambda: layers.RandomContrast(-0.1), ValueError),
        (lambda: layers.RandomContrast(0.1, seed=0), wf.ConfigError),
        (lambda: layers.RandomContrast(0.1, (255, 0)), wf.ConfigError),
        (lambda: layers.RandomBrightness(1.1), ValueError),
        (lambda: layers.RandomBrightness(0.1, 255), ValueError),
        (lambda: layers.RandomBrightness(0.1, data_format="last"), ValueError),
        (lambda: layers.RandomBrightness(0.1, bounding_box_format="xyxy"), TypeError),
        (lambda: layers.RandomCrop(3, 3, seed=0), wf.ConfigError),
        (lambda: layers.CenterCrop(3, 3.5), TypeError),
    ]
    for number, (call, kind) in enumerate(refused):
        found, _ = called(call)
        assert type(found) is kind, (number, found)
