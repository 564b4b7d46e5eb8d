"""The distribution of random parameters, held against torchvision by two-sample Kolmogorov-Smirnov tests.

Each parameter is read off the result: pixels of the input tell where they were. Both sides run on the same input
with fixed seeds, so a test either always passes or always fails; a wrong distribution passes with less than 0.1 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

import wellfed as wf
from wellfed import transforms as T

DRAWS = 1500
Measure = Callable[[np.ndarray], tuple[float, ...]]


def grid(height: int, width: int) -> np.ndarray:
    """Pixels that hold their row, their column, and their distance from the upper left corner."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([y, x, (x + y) // 2], 2).astype(np.uint8)


def ours(transform: T.Transform, image: np.ndarray, measure: Measure) -> np.ndarray:
    ds = wf.from_tensor_slices(np.broadcast_to(image, (DRAWS, *image.shape)), pixels="hwc")
    batches = ds.map(transform).with_options(layout="NHWC", seed=11).batch(100).numpy()
    return np.array([measure(one) for batch in batches for one in batch])


def theirs(transform: Callable[[object], object], image: np.ndarray, measure: Measure) -> np.ndarray:
    torch.manual_seed(5)
    pillow = Image.fromarray(image)
    return np.array([measure(np.asarray(transform(pillow))) for _ in range(DRAWS)])


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Greatest distance of the two empirical distribution functions."""
    values = np.concatenate([a, b])
    below = [np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def assert_same_distribution(a: np.ndarray, b: np.ndarray) -> None:
    # Smirnov's bound for a level of 0.001.
    limit = 1.95 * np.sqrt(2 / DRAWS)
    assert [distance(x, y) < limit for x, y in zip(a.T, b.T)] == [True] * a.shape[1]


def compare(name: str, image: np.ndarray, measure: Measure, *args: object, **kwargs: object) -> None:
    a = ours(getattr(T, name)(*args, **kwargs), image, measure)
    b = theirs(getattr(v2, name)(*args, **kwargs), image, measure)
    assert_same_distribution(a, b)
    # Neighbours in the data set are independent, and so are the parameters of one sample.
    if a.std(0).min() > 0 and a.shape[0] > 2:
        for column in a.T:
            assert abs(np.corrcoef(column[1:], column[:-1])[0, 1]) < 0.1


def corner(pixels: np.ndarray) -> tuple[float, ...]:
    return float(pixels[0, 0, 0]), float(pixels[0, 0, 1])


def window(pixels: np.ndarray) -> tuple[float, ...]:
    """Centre and size of the part that was resized, and its area and aspect ratio."""
    rows, columns = pixels[:, :, 0].astype(float).mean(1), pixels[:, :, 1].astype(float).mean(0)
    height, width = rows.max() - rows.min() + 1, columns.max() - columns.min() + 1
    return rows.mean(), columns.mean(), height, width, height * width, np.log(width / height)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"scale": (0.3, 0.6), "ratio": (0.5, 0.9)},
        {"scale": (0.9, 1.0), "ratio": (3.0, 4.0)},
    ],
    ids=["default", "tall", "fallback"],
)
def test_random_resized_crop(arguments: dict[str, object]) -> None:
    compare("RandomResizedCrop", grid(200, 150), window, 24, **arguments)


def test_random_crop() -> None:
    compare("RandomCrop", grid(60, 90), corner, (40, 31))


def test_random_crop_with_padding() -> None:
    compare("RandomCrop", grid(32, 32), lambda p: (*corner(p), float(p[-1, -1, 0])), 32, padding=4)


def test_random_crop_that_pads_if_needed() -> None:
    compare(
        "RandomCrop", grid(20, 90), lambda p: (float(p[:, 0].any(1).argmax()),), (40, 31), pad_if_needed=True
    )


@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
@pytest.mark.parametrize("p", [0.5, 0.1])
def test_flips(name: str, p: float) -> None:
    compare(name, grid(4, 4), corner, p=p)


def test_random_grayscale() -> None:
    image = np.zeros((2, 2, 3), np.uint8)
    image[:, :, 0] = 255
    compare("RandomGrayscale", image, lambda p: (float(p[0, 0, 0]),), p=0.3)


def test_random_rotation() -> None:
    image = np.zeros((101, 101, 3), np.uint8)
    image[45:56, 90:101] = 255  # a spot to the right of the middle

    def angle(pixels: np.ndarray) -> tuple[float, ...]:
        y, x = np.nonzero(pixels[:, :, 0] > 100)
        return (float(np.degrees(np.arctan2(50 - y.mean(), x.mean() - 50))),)

    compare("RandomRotation", image, angle, (-20, 60))


def test_color_jitter_factors() -> None:
    image = np.full((2, 2, 3), 100, np.uint8)
    compare("ColorJitter", image, lambda p: (float(p[0, 0, 0]),), brightness=0.4)
    image[0] = 200
    compare("ColorJitter", image, lambda p: (float(p[0, 0, 0]), float(p[1, 0, 0])), contrast=(0.3, 1.2))
    image[:, :, 1] = 50
    compare("ColorJitter", image, lambda p: tuple(map(float, p[0, 0])), saturation=(0.2, 1.1))
    compare("ColorJitter", image, lambda p: tuple(map(float, p[0, 0])), hue=0.3)


def test_color_jitter_order() -> None:
    # Saturated values make the result depend on the order of all four.
    image = np.array([[[250, 120, 10], [3, 90, 240]], [[130, 130, 20], [255, 0, 60]]], np.uint8)
    compare("ColorJitter", image, lambda p: tuple(map(float, p.reshape(-1))), 0.8, 0.8, 0.8, 0.4)


def test_blur_width() -> None:
    image = np.zeros((9, 9, 3), np.uint8)
    image[4, 4] = 255
    compare("GaussianBlur", image, lambda p: (float(p[4, 4, 0]), float(p[4, 3, 0])), 9, sigma=(0.3, 3.0))


def test_elastic_displacements() -> None:
    def middle(pixels: np.ndarray) -> tuple[float, ...]:
        return float(pixels[12, 15, 0]), float(pixels[12, 15, 1])

    compare("ElasticTransform", grid(25, 30), middle, alpha=[90.0, 60.0], sigma=[1.5, 1.0])


def test_sums_of_aug_mix() -> None:
    image = grid(20, 24) * 8 + 20
    compare("AugMix", image, lambda p: (float(p[9, 11, 1]), float(p.mean())), severity=8)


@pytest.mark.parametrize("arguments", [{}, {"scale": (0.3, 0.9), "ratio": (1.5, 2.5), "p": 0.9}], ids=str)
def test_random_erasing(arguments: dict[str, object]) -> None:
    def box(pixels: np.ndarray) -> tuple[float, ...]:
        rows, columns = np.nonzero(pixels[:, :, 0] == 0)
        if not len(rows):
            return -1.0, -1.0, -1.0, -1.0
        return float(rows.min()), float(columns.min()), float(np.ptp(rows)), float(np.ptp(columns))

    image = np.full((40, 60, 3), 9, np.uint8)
    chain = v2.Compose([v2.PILToTensor(), v2.RandomErasing(**arguments), lambda t: t.permute(1, 2, 0)])
    assert_same_distribution(ours(T.RandomErasing(**arguments), image, box), theirs(chain, image, box))
