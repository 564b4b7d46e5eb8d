"""Distortions held against torchvision on Pillow images, bit for bit, for the parameters that were drawn."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms import functional as F
from torchvision.transforms import v2

from pictures import picture
from test_masks_boxes import Sample
from wellfed import transforms as T


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def pixels(image: Any) -> np.ndarray:
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array


def places(height: int, width: int) -> np.ndarray:
    """Pixels that hold their column and row, counted from 1: 0 is what comes in from outside."""
    y, x = np.mgrid[1 : height + 1, 1 : width + 1]
    return np.stack([x, y, 0 * x], 2).astype(np.uint8)


def corners(seen: np.ndarray) -> list[list[int]]:
    """Where the corners came to lie, from what became of `places` under nearest neighbours.

    Least squares over all pixels finds the map to a fraction of a pixel, and corners lie on whole ones.
    """
    height, width = seen.shape[:2]
    y, x = np.nonzero(seen[:, :, 0])
    u, v = seen[y, x, 0] - 0.5, seen[y, x, 1] - 0.5
    x, y = x + 0.5, y + 0.5
    one, zero = np.ones_like(x), np.zeros_like(x)
    across = np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], 1)
    down = np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], 1)
    found = np.linalg.lstsq(np.concatenate([across, down]), np.concatenate([u, v]), rcond=None)[0]
    back = np.linalg.inv(np.append(found, 1).reshape(3, 3))
    start = [[0, 0, 1], [width - 1, 0, 1], [width - 1, height - 1, 1], [0, height - 1, 1]]
    end = np.array(start) @ back.T
    return np.rint(end[:, :2] / end[:, 2:]).astype(int).tolist()


@pytest.mark.parametrize("scale", [0.2, 0.5, 0.6])
@pytest.mark.parametrize("shape", [(60, 80), (33, 47), (120, 100)])
def test_perspective_gives_pillows_pixels(shape: tuple[int, int], scale: float) -> None:
    height, width = shape
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    drawn = set()
    for seed in range(4):

        def ours(image: np.ndarray, mode: str, fill: Any = 0, seed: int = seed) -> np.ndarray:
            return T.RandomPerspective(scale, 1, mode, fill)(image, seed=seed)

        for channels, fill in ((3, (9, 80, 255)), (1, 77), (4, (1, 2, 3, 200))):
            # Draws depend on the number of channels, too.
            parts = (
                np.split(places(*shape), 3, 2)
                if channels == 1
                else [places(*shape)[:, :, [0, 1, 2, 1][:channels]]]
            )
            end = corners(np.concatenate([ours(part, "nearest") for part in parts], 2))
            drawn.add(str(end))
            for mode in ("nearest", "bilinear", "bicubic"):
                image = picture(seed, *shape, channels)
                made = F.perspective(pillow(image), start, end, F.InterpolationMode(mode), fill)
                np.testing.assert_array_equal(ours(image, mode, fill), pixels(made), f"{mode} {end}")
    assert len(drawn) == 12


def test_perspective_draws_every_place_of_every_corner_alike() -> None:
    # With a share of 0.03 of half of 80 and 70 pixels each number is 0 or 1: 256 images, all equally likely.
    image = picture(3, 70, 80)
    known: Counter[bytes] = Counter()
    start, last = [[0, 0], [79, 0], [79, 69], [0, 69]], (79, 69)
    for moved in itertools.product((0, 1), repeat=8):
        end = [
            [
                abs(x - moved[2 * i]) if x else moved[2 * i],
                abs(y - moved[2 * i + 1]) if y else moved[2 * i + 1],
            ]
            for i, (x, y) in enumerate(start)
        ]
        assert all(0 <= v <= most for corner in end for v, most in zip(corner, last, strict=True))
        known[F.perspective(pillow(image), start, end).tobytes()] = 0
    perspective = T.RandomPerspective(0.03, p=1)
    for seed in range(2000):
        made = perspective(image, seed=seed).tobytes()
        # A corner that stays: torchvision's solver rounds there, and its pixels may differ.
        if made in known:
            known[made] += 1
    assert sum(known.values()) > 1700
    assert sum(count > 0 for count in known.values()) > 0.9 * len(known)


def test_perspective_stays_away_with_probability_p() -> None:
    image = picture(4, 20, 30)
    kept = sum(
        np.array_equal(T.RandomPerspective(0.5, p=0.3)(image, seed=seed), image) for seed in range(600)
    )
    assert abs(kept / 600 - 0.7) < 0.08
    moved = {T.RandomPerspective(0.5, p=1)(Image.fromarray(image), seed=s).tobytes() for s in range(5)}
    assert len(moved) == 5


def test_perspective_says_where_there_is_none() -> None:
    with pytest.raises(ValueError, match=r"image of \(1, 9\) has no perspective"):
        T.RandomPerspective(p=1)(np.zeros((1, 9, 3), np.uint8))

    def many() -> None:
        for seed in range(200):
            T.RandomPerspective(1, p=1)(np.zeros((2, 2, 3), np.uint8), seed=seed)

    with pytest.raises(ValueError, match="come to lie at"):
        many()


def photometric(image: np.ndarray, chosen: Any, order: Any) -> bytes:
    """What torchvision makes of an image for the parameters that it may draw."""
    brightness, contrast, saturation, hue = chosen
    params = {
        "brightness_factor": 1.1 if brightness else None,
        "contrast_factor": 0.6 if contrast else None,
        "saturation_factor": 1.4 if saturation else None,
        "hue_factor": 0.04 if hue else None,
        "contrast_before": contrast == "before",
        "channel_permutation": order,
    }
    return v2.RandomPhotometricDistort().transform(pillow(image), params).tobytes()


@pytest.mark.parametrize("channels", [1, 3])
def test_photometric_distortions_are_torchvisions(channels: int) -> None:
    image = picture(5, 21, 34, channels)
    orders = [None, *itertools.permutations(range(channels))]
    chosen = list(itertools.product((0, 1), (0, "before", "after"), (0, 1), (0, 1)))
    known = {photometric(image, one, order) for one in chosen for order in orders}
    certain = {photometric(image, one, order) for one in chosen if all(one) for order in orders[1:]}
    factors = {
        "brightness": (1.1, 1.1),
        "contrast": (0.6, 0.6),
        "saturation": (1.4, 1.4),
        "hue": (0.04, 0.04),
    }

    def made(p: float) -> set[bytes]:
        distort = T.RandomPhotometricDistort(**factors, p=p)  # type: ignore[arg-type]
        return {distort(image, seed=seed).tobytes() for seed in range(900)}

    some = made(0.5)
    assert some <= known
    assert len(some) > 0.9 * len(known)
    assert made(1) == certain
    assert made(0) == {image.tobytes()}


class Places(Sample):
    """A sample whose image holds the places of its pixels, and which has a point in each of them."""

    def __init__(self, folder: Any, seed: int) -> None:
        super().__init__(folder, seed)
        Image.fromarray(places(self.height, self.width)).save(self.image)

    @property
    def points(self) -> torch.Tensor:
        y, x = torch.meshgrid(torch.arange(self.height), torch.arange(self.width), indexing="ij")
        return torch.stack([x, y], 2).reshape(-1, 2).float()


@pytest.mark.parametrize("seed", range(4))
def test_boxes_and_points_follow_perspectives_as_in_torchvision(tmp_path: Path, seed: int) -> None:
    sample = Places(tmp_path, seed)
    given = sample.run(T.RandomPerspective(0.4, 1, "nearest"), seed=seed)
    height, width = sample.height, sample.width
    end = corners(given["image"].permute(1, 2, 0).numpy())
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    for name, value in sample.tv().items():
        want = v2.functional.perspective(value, start, end).as_subclass(torch.Tensor)
        if name == "mask":
            # Pillow's nearest neighbours and those of torch are not always the same.
            assert (given[name] == want).float().mean() > 0.99
        else:
            assert torch.allclose(given[name], want, atol=1e-2), name


@pytest.mark.parametrize("sigma", [(0.0, 0.0), (1.5, 0.8)])
@pytest.mark.parametrize("seed", range(3))
def test_all_fields_follow_elastic_transforms_as_in_torchvision(
    tmp_path: Path, seed: int, sigma: tuple[float, float]
) -> None:
    sample = Places(tmp_path, seed)
    alpha = (30.0, 18.0) if max(sigma) else (4.0, 7.0)
    given = sample.run(T.ElasticTransform(alpha, sigma, fill=3), seed=seed)
    height, width = sample.height, sample.width
    # Points say how far each pixel moves, up to rounding.
    size = torch.tensor([width, height], dtype=torch.float32)
    still = [torch.linspace((1 - n) / n, (n - 1) / n, n) for n in (height, width)]
    grid = torch.stack(torch.meshgrid(*still, indexing="ij")[::-1], 2)
    moved = grid - ((given["keypoints"].reshape(height, width, 2) + 0.5) / (0.5 * size) - 1)
    assert moved.abs().max() * max(height, width) > 2
    tv = {**sample.tv(), "image": tv_tensors.Image(Image.open(sample.image))}
    for name, value in tv.items():
        want = v2.functional.elastic(value, moved[None], fill=3).as_subclass(torch.Tensor)
        apart = (given[name].double() - want.double()).abs()
        if name in ("boxes", "keypoints"):
            assert apart.numel() == 0 or apart.max() < 1e-3, name
        else:
            assert (apart > 0).float().mean() < 0.005, name
            assert apart.max() <= 1 or name == "mask"


def test_elastic_transforms_need_room_for_their_blur() -> None:
    with pytest.raises(
        ValueError, match=r"needs an image of more than 20 pixels a side, this one is \(20, 30\)"
    ):
        T.ElasticTransform()(np.zeros((20, 30, 3), np.uint8))
    image = picture(1, 25, 30)
    np.testing.assert_array_equal(T.ElasticTransform(alpha=0)(image), image)


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_gaussian_noise_is_distributed_as_torchvisions(dtype: torch.dtype, clip: bool) -> None:
    flat = torch.full((3, 200, 150), 30 if dtype == torch.uint8 else 30 / 255, dtype=dtype)
    steps = [] if dtype == torch.uint8 else [T.ToDtype("float32", scale=True)]
    ours = T.Compose([*steps, T.GaussianNoise(0.02, 0.1, clip)])(np.full((200, 150, 3), 30, np.uint8), seed=3)
    theirs = v2.GaussianNoise(0.02, 0.1, clip)(flat)
    a, b = (np.sort(np.asarray(x, np.float64).reshape(-1)) for x in (ours, theirs))
    values = np.concatenate([a, b])
    below = [np.searchsorted(x, values, side="right") / len(x) for x in (a, b)]
    # Smirnov's bound for a level of 0.001.
    assert np.abs(below[0] - below[1]).max() < 1.95 * np.sqrt(2 / len(a))
    assert abs(np.corrcoef(ours[:, 1:].reshape(-1), ours[:, :-1].reshape(-1))[0, 1]) < 0.02


@pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning")
@pytest.mark.parametrize("channels", [1, 3])
def test_compression_leaves_the_pixels_that_pillow_leaves(channels: int) -> None:
    for seed, quality in enumerate((1, 5, 24, 49, 50, 51, 75, 90, 95, 99, 100)):
        for shape in ((1, 1), (8, 8), (16, 16), (7, 41), (33, 18), (50, 67)):
            image = picture(seed, *shape, channels)
            if seed % 2:
                image = np.random.default_rng(seed).integers(0, 256, image.shape, np.uint8)
            made = v2.functional.jpeg(pillow(image), quality)
            np.testing.assert_array_equal(T.JPEG(quality)(image), pixels(made), f"{quality} {shape}")
            tensor = v2.functional.jpeg(torch.as_tensor(image).permute(2, 0, 1).contiguous(), quality)
            np.testing.assert_array_equal(pixels(made), tensor.permute(1, 2, 0).numpy())


def test_qualities_of_compression_are_drawn() -> None:
    image = picture(2, 40, 40)
    known = {v2.functional.jpeg(pillow(image), quality).tobytes() for quality in (40, 41, 42)}
    assert {T.JPEG((40, 42))(image, seed=seed).tobytes() for seed in range(30)} == known


SHAPES = [(19, 23), (8, 8), (2, 31)]


def operations(image: np.ndarray, version: str, mode: str, fill: Any) -> dict[bytes, str]:
    """What each operation of AugMix makes of an image, at every magnitude."""
    module = v1 if version == "v1" else v2
    mix: Any = module.AugMix(interpolation=v1.InterpolationMode(mode), fill=fill)
    tensor = torch.as_tensor(image).permute(2, 0, 1).contiguous()
    if version == "v1":
        space = mix._augmentation_space(10, image.shape[:2])
    else:
        space = {
            name: (make(10, *image.shape[:2]), signed)
            for name, (make, signed) in mix._AUGMENTATION_SPACE.items()
        }
    made = {}
    for name, (table, signed) in space.items():
        for magnitude in [0.0] if table is None or table.ndim == 0 else table.tolist():
            for sign in (1, -1) if signed else (1,):
                if version == "v1":
                    arguments = (tensor, name, sign * magnitude, mix.interpolation, fill)
                    after = v1.autoaugment._apply_op(*arguments)
                else:
                    arguments = (tensor, name, sign * magnitude, mix.interpolation, mix._fill)
                    after = mix._apply_image_or_video_transform(*arguments)
                made[after.permute(1, 2, 0).contiguous().numpy().tobytes()] = f"{name} {sign * magnitude}"
    return made


@pytest.mark.parametrize(
    ("version", "mode", "fill", "channels"),
    [
        ("v2", "bilinear", None, 3),
        ("v1", "bilinear", None, 3),
        ("v2", "nearest", [90.0], 1),
        ("v1", "bilinear", [7.0, 120.0, 250.0], 3),
        ("v2", "bilinear", [7.0, 120.0, 250.0], 3),
        ("v1", "nearest", None, 1),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_operations_of_aug_mix_are_torchvisions_on_tensors(
    shape: tuple[int, int], version: str, mode: str, fill: Any, channels: int
) -> None:
    image = picture(7, *shape, channels)
    # One chain of one operation, and weights of 0 and 1.
    ours = T.AugMix(10, 1, 1, 1e-7, interpolation=mode, fill=fill, version=version)
    known = operations(image, version, mode, fill)
    known[image.tobytes()] = "the image itself"
    found = Counter()
    for seed in range(500):
        made = ours(image, seed=seed)
        assert made.tobytes() in known, seed
        found[known[made.tobytes()]] += 1
    assert 0.3 < found["the image itself"] / 500 < 0.75
    # In two rows some operations do nothing.
    assert len({name.split()[0] for name in found}) > 8


def test_aug_mix_says_what_is_wrong() -> None:
    image = picture(8, 30, 40)
    for wrong, words in [
        ({"severity": 11}, "severity is 11"),
        ({"mixture_width": 0}, "mixture_width is 0"),
        ({"chain_depth": 101}, "chain_depth is 101"),
        ({"alpha": 0}, "alpha is 0"),
        ({"interpolation": "bicubic"}, "nearest and bilinear"),
        ({"version": "v3"}, "version is 'v3'"),
    ]:
        with pytest.raises(ValueError, match=words):
            T.AugMix(**wrong)(image)  # type: ignore[arg-type]


def test_aug_mix_refuses_what_would_have_to_move(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="says nothing of the masks beside them"):
        Sample(tmp_path, 0).run(T.AugMix())
