"""Automatic augmentations and their operations, held against torchvision on Pillow images, bit for bit."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import autoaugment as v1
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import wellfed as wf
from pictures import picture
from wellfed import transforms as T
from wellfed._loader import to_numpy

SHAPES = [(1, 1), (1, 9), (9, 1), (2, 2), (7, 5), (32, 32), (224, 224)]
SPACE = v1.RandAugment()._augmentation_space(2, (1, 1))
NAMES = list(SPACE)
SAMPLES = 1000
SIGNED = [name for name, (_, signed) in SPACE.items() if signed]


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def pixels(image: Any) -> np.ndarray:
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array


Samples = Callable[[int], np.ndarray]


@functools.cache
def source(noise: bool) -> wf.Dataset:
    """One image many times over. It takes 170 MB, so there are no more of them than need be."""
    image = picture(1, 230, 250)
    if noise:
        image = np.random.default_rng(1).integers(0, 256, image.shape, np.uint8)
    return wf.from_tensor_slices(np.broadcast_to(image, (SAMPLES, *image.shape)), pixels="hwc")


def samples(
    transform: T.Transform, shape: tuple[int, int], channels: int = 3, noise: bool = False
) -> Samples:
    """What the transform makes of sample `i` of many of `base`; it draws the same for every shape."""
    gray = T.Grayscale(1) if channels == 1 else T.Identity()
    ds = source(noise).map(T.CenterCrop(shape), gray, transform)
    native = ds.with_options(layout="NHWC")._native
    return lambda row: to_numpy(native.sample(row, 0)[0])


def base(shape: tuple[int, int], channels: int = 3, noise: bool = False) -> np.ndarray:
    """The image of `samples`, before it is transformed."""
    return samples(T.Identity(), shape, channels, noise)(0)


def theirs(
    name: str, magnitude: float, image: np.ndarray, mode: str = "nearest", fill: Any = None
) -> np.ndarray:
    """What torchvision's operation makes of a Pillow image."""
    return pixels(v1._apply_op(pillow(image), name, magnitude, F.InterpolationMode(mode), fill))


def magnitudes(space: dict[str, Any], name: str, version: str) -> list[float]:
    """Those of an operation, in a space of torchvision's first version."""
    table = space[name][0]
    if table.ndim == 0:
        return [0.0]
    if name == "Solarize" and version == "v2":
        return [255.0 * float(m) for m in torch.linspace(1.0, 0.0, len(table))]
    return [float(m) for m in table]


@functools.cache
def rows() -> dict[tuple[str, int], int]:
    """A sample for each operation and sign that a RandAugment of one operation may draw."""
    image = base((48, 48))
    space = v1.RandAugment()._augmentation_space(31, (48, 48))
    known = {}
    for name in NAMES:
        table = magnitudes(space, name, "v2")
        for sign in (1, -1) if name in SIGNED else (1,):
            made = theirs(name, sign * table[20 if len(table) > 1 else 0], image).tobytes()
            assert made not in known, (name, known.get(made))
            known[made] = name, sign
    ds = samples(T.RandAugment(1, 20, 31), (48, 48))
    found = {known[ds(row).tobytes()]: row for row in range(SAMPLES)}
    assert set(found) == set(known.values())
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_operation_at_every_magnitude(shape: tuple[int, int], channels: int) -> None:
    image, bins = base(shape, channels), 31
    space = v1.RandAugment()._augmentation_space(bins, shape)
    for place in range(bins):
        ds = samples(T.RandAugment(1, place, bins), shape, channels)
        for (name, sign), row in rows().items():
            table = magnitudes(space, name, "v2")
            made = theirs(name, sign * table[place if len(table) > 1 else 0], image)
            np.testing.assert_array_equal(ds(row), made, f"{name} {place} {sign}")


@pytest.mark.parametrize("bins", [2, 10, 31, 50])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_thresholds_and_bits_of_both_versions(bins: int, version: str) -> None:
    image = base((90, 90), noise=True)
    assert len(np.unique(image)) == 256
    space = v1.RandAugment()._augmentation_space(bins, (90, 90))
    for place in range(bins):
        ds = samples(T.RandAugment(1, place, bins, thresholds=version), (90, 90), noise=True)
        for name in ("Solarize", "Posterize", "TranslateX"):
            made = theirs(name, magnitudes(space, name, version)[place], image)
            np.testing.assert_array_equal(ds(rows()[name, 1]), made, f"{name} {place}")


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(1, 9), (7, 5), (33, 40)])
def test_filters_and_fills(shape: tuple[int, int], mode: str) -> None:
    image, fill = base(shape), (7, 99, 200)
    space = v1.RandAugment()._augmentation_space(31, shape)
    for place in (0, 4, 9, 17, 30):
        ds = samples(T.RandAugment(1, place, 31, mode, fill), shape)
        for name in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
            for sign in (1, -1):
                made = theirs(name, sign * float(space[name][0][place]), image, mode, list(fill))
                np.testing.assert_array_equal(ds(rows()[name, sign]), made, f"{name} {place}")


@pytest.mark.parametrize("channels", [1, 3])
def test_trivial_augment_takes_every_operation_at_every_magnitude(channels: int) -> None:
    image, bins = base((37, 41), channels), 5
    space = v1.TrivialAugmentWide()._augmentation_space(bins)
    expected = {}
    for name in NAMES:
        for magnitude in magnitudes(space, name, "v2"):
            for sign in (1, -1) if name in SIGNED else (1,):
                expected[theirs(name, sign * magnitude, image).tobytes()] = name, magnitude, sign
    ds = samples(T.TrivialAugmentWide(bins), (37, 41), channels)
    found = Counter(ds(row).tobytes() for row in range(SAMPLES))
    assert set(found) <= set(expected)
    assert len(found) > 0.95 * len(expected)


@pytest.mark.parametrize("policy", ["imagenet", "cifar10", "svhn"])
def test_auto_augment_gives_what_torchvision_may_give(policy: str) -> None:
    image = base((32, 32))
    theirs_ = v2.AutoAugment(v2.AutoAugmentPolicy(policy))
    space = v1.AutoAugment()._augmentation_space(10, (32, 32))
    expected: Counter[bytes] = Counter()

    def follow(made: np.ndarray, left: Any, chance: float) -> None:
        if not left:
            expected[made.tobytes()] += chance  # type: ignore[assignment]
            return
        (name, p, place), *rest = left
        follow(made, rest, chance * (1 - p))
        signs = (1, -1) if name in SIGNED else (1,)
        for sign in signs if p else ():
            magnitude = 0.0 if place is None else magnitudes(space, name, "v2")[place]
            follow(theirs(name, sign * magnitude, made), rest, chance * p / len(signs))

    for pair in theirs_._policies:
        follow(image, pair, 1 / 25)
    ds = samples(T.AutoAugment(policy), (32, 32))
    found = Counter(ds(row).tobytes() for row in range(SAMPLES))
    assert set(found) <= set(expected)
    for made, chance in expected.items():
        deviation = abs(found[made] - SAMPLES * chance)
        assert deviation <= 4.5 * (SAMPLES * chance * (1 - chance)) ** 0.5 + 1, (
            found[made],
            SAMPLES * chance,
        )


OPERATIONS = [
    ("RandomInvert", {}),
    *(("RandomPosterize", {"bits": bits}) for bits in range(1, 9)),
    *(("RandomSolarize", {"threshold": t}) for t in (0, 1, 127.5, 128, 255, 256)),
    *(("RandomAdjustSharpness", {"sharpness_factor": f}) for f in (0, 0.3, 1, 1.7, 2, 9)),
    ("RandomAutocontrast", {}),
    ("RandomEqualize", {}),
]


@pytest.mark.parametrize(("name", "parameters"), OPERATIONS, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_by_themselves(name: str, parameters: dict[str, Any], channels: int) -> None:
    for shape in (*SHAPES, (3, 3), (61, 59)):
        # Dark ones, too: tables of autocontrast and equalize depend on what there is.
        for image in (picture(6, *shape, channels), picture(7, *shape, channels) // 5 + 30):
            made = getattr(v2, name)(**parameters, p=1)(pillow(image))
            np.testing.assert_array_equal(getattr(T, name)(**parameters, p=1)(image), pixels(made))
            np.testing.assert_array_equal(getattr(T, name)(**parameters, p=0)(image), image)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 5), (60, 41)])
@pytest.mark.parametrize(
    "parameters",
    [
        {"degrees": 33},
        {"degrees": -90},
        {"scale": 1.7},
        {"scale": 0.3, "degrees": 12},
        {"shear": (20, -7)},
        {"degrees": 5, "scale": 1.2, "shear": (8, 3), "center": (3, 1.5), "fill": (5, 80, 255)},
    ],
    ids=str,
)
def test_affine(shape: tuple[int, int], mode: str, parameters: dict[str, Any]) -> None:
    image = picture(8, *shape)
    degrees, scale = parameters.get("degrees", 0), parameters.get("scale", 1)
    x, y = parameters.get("shear", (0, 0))
    rest = {key: parameters[key] for key in ("center", "fill") if key in parameters}
    made = F.affine(pillow(image), degrees, [0, 0], scale, [x, y], F.InterpolationMode(mode), **rest)
    ours = T.RandomAffine((degrees, degrees), None, (scale, scale), (x, x, y, y), mode, **rest)
    np.testing.assert_array_equal(ours(image), pixels(made))


def test_affine_moves_by_whole_pixels() -> None:
    image = picture(9, 12, 10)
    places = {
        pixels(F.affine(pillow(image), 0, [x, y], 1, [0, 0])).tobytes(): (x, y)
        for x in range(-2, 3)
        for y in range(-3, 4)
    }
    ours = T.RandomAffine(0, translate=(0.2, 0.25))
    found = Counter(places[ours(image, seed=seed).tobytes()] for seed in range(600))
    assert len(found) == 35
    # The ends of a range that is rounded are half as likely: corners come up a quarter as often as the middle.
    corners = sum(found[x, y] for x in (-2, 2) for y in (-3, 3)) / 4
    inner = sum(found[x, y] for x in (-1, 0, 1) for y in (-2, -1, 0, 1, 2)) / 15
    assert corners < 0.6 * inner


def test_containers_choose_among_their_transforms() -> None:
    image = base((20, 20))
    posterize, gray = T.RandomPosterize(2, p=1), T.Grayscale(3)
    either = {posterize(image).tobytes(): "posterize", gray(image).tobytes(): "gray", image.tobytes(): "none"}
    both = {gray(posterize(image)).tobytes(): "gray last", posterize(gray(image)).tobytes(): "posterize last"}

    def counts(transform: T.Transform, known: dict[bytes, str]) -> Counter[str]:
        ds = samples(transform, (20, 20))
        return Counter(known[ds(row).tobytes()] for row in range(SAMPLES))

    apply = counts(T.RandomApply([T.Compose([posterize, gray])], p=0.25), {**either, **both})
    assert set(apply) == {"none", "gray last"}
    assert abs(apply["gray last"] / SAMPLES - 0.25) < 0.06
    choice = counts(T.RandomChoice([posterize, gray], p=[3, 1]), either)
    assert set(choice) == {"posterize", "gray"}
    assert abs(choice["posterize"] / SAMPLES - 0.75) < 0.06
    order = counts(T.RandomOrder([posterize, gray]), both)
    assert set(order) == {"gray last", "posterize last"}
    assert abs(order["gray last"] / SAMPLES - 0.5) < 0.07


def test_what_cannot_be_augmented_is_refused() -> None:
    with pytest.raises(ValueError, match="RandomResizedCrop cannot stand in RandomApply"):
        T.RandomApply([T.RandomResizedCrop(8)])
    with pytest.raises(ValueError, match="RandomCrop cannot stand in RandomChoice"):
        T.RandomChoice([T.RandomInvert(), T.Compose([T.RandomCrop(8)])])
    with pytest.raises(ValueError, match="Resize cannot stand in RandomOrder"):
        T.RandomOrder([T.Resize(8)])
    with pytest.raises(ValueError, match="thresholds is 'v3'"):
        T.RandAugment(thresholds="v3")
    with pytest.raises(ValueError, match="4 channels; must be 1 or 3"):
        T.RandAugment()(np.zeros((4, 4, 4), np.uint8))
    with pytest.raises(ValueError, match="magnitude is 31"):
        T.RandAugment(magnitude=31)
    with pytest.raises(ValueError, match="policy is 'mnist'"):
        T.AutoAugment("mnist")


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("kind", [T.RandAugment, T.TrivialAugmentWide, T.AutoAugment])
def test_thresholds_are_shown_and_kept(kind: Any, version: str) -> None:
    augment = kind(interpolation="bilinear", fill=(1, 2, 3), thresholds=version)
    assert ("thresholds='v1'" in repr(augment)) == (version == "v1")
    assert eval(repr(augment), vars(T)) == augment
    assert T.Transform.from_plan(augment.to_plan()) == augment
    assert (augment == kind(interpolation="bilinear", fill=(1, 2, 3))) == (version == "v2")
    # What is no 8-bit image is left to torchvision's transform of this name and version.
    theirs = augment.as_torchvision(v2)
    assert type(theirs) is getattr(v1 if version == "v1" else v2, kind.__name__)
