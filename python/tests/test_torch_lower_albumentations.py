"""Pipelines of Albumentations and OpenCV's loading: what is native gives what they give; the rest says why not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision import datasets

import torchvision_sets as sets
import wellfed.torch as wt
from torch_same import same
from wellfed.torch._lower import Hybrid, lower, opencv
from wellfed.torch._lower.functions import call_of, loads_rgb

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
A = pytest.importorskip("albumentations")
cv2 = pytest.importorskip("cv2")
from albumentations.pytorch import ToTensorV2  # noqa: E402


def pipeline(*transforms: Any, **extra: Any) -> wt.Albumentations:
    return wt.Albumentations(A.Compose(list(transforms), **extra))


def rgb(path: str) -> Any:
    """Reads a file."""
    image = cv2.imread(path)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def backwards(path: str) -> Any:
    image = cv2.imread(path)
    return cv2.cvtColor(image, cv2.COLOR_RGB2BGR)[::-1]


@pytest.fixture
def cifar(tmp_path: Path) -> Any:
    return sets.cifar10(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of several sizes, some of which are turned by their EXIF data, grey, or no plain JPEG."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(3)
    for i in range(12):
        (root / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = cv2.GaussianBlur(
            rng.integers(0, 256, (40 + 3 * i, 70 - 2 * i, 3), dtype=np.uint8), (5, 5), 2
        )
        image, exif = Image.fromarray(pixels), Image.Exif()
        if i % 4 == 1:
            exif[0x0112] = 6
        if i == 5:
            image = image.convert("L")
        if i == 7:
            image = image.convert("CMYK")
        image.save(root / "ab"[i % 2] / f"{i:02}.jpg", quality=80, exif=exif)
    return root


def natives(dataset: Any) -> list[bool]:
    lines = lower(wt.DataLoader(dataset, batch_size=4)).lines
    return [line.native for section, line in lines if section in ("transform", "data")]


def shift_scale_rotate(*args: Any, **options: Any) -> Any:
    with pytest.warns(UserWarning, match="special case of Affine"):
        return A.ShiftScaleRotate(*args, **options)


# What is done to pixels, with numbers that are not random.
SAME: list[list[Any]] = [
    [A.Resize(20, 27)],
    [A.Resize(50, 33), A.HorizontalFlip(p=1)],
    [A.Resize(9, 8, interpolation=cv2.INTER_AREA), A.VerticalFlip(p=1)],
    [A.Resize(19, 11, interpolation=cv2.INTER_NEAREST)],
    [A.Resize(20, 50, area_for_downscale="image")],
    [A.Resize(50, 40, area_for_downscale="image"), A.SmallestMaxSize(21, area_for_downscale="image_mask")],
    [A.LongestMaxSize(45, area_for_downscale="image"), A.CenterCrop(12, 41)],
    [A.RandomScale((-0.4, -0.4), area_for_downscale="image", p=1), A.Resize(30, 30)],
    [A.RandomResizedCrop((24, 40), (1, 1), (1, 1), cv2.INTER_AREA, area_for_downscale="image")],
    [A.RandomResizedCrop((24, 40), (1, 1), (1, 1), area_for_downscale="image")],
    [A.SmallestMaxSize(21), A.CenterCrop(20, 18)],
    [A.LongestMaxSize(45, interpolation=cv2.INTER_AREA), A.CenterCrop(12, 41), A.Normalize(), ToTensorV2()],
    [A.RandomResizedCrop((24, 20), scale=(1, 1), ratio=(1, 1))],
    [A.RandomBrightnessContrast((0.15, 0.15), (-0.2, -0.2), p=1)],
    [A.RandomBrightnessContrast((0.15, 0.15), (0.2, 0.2), brightness_by_max=False, p=1), A.Resize(31, 31)],
    [A.HueSaturationValue((11, 11), (-20, -20), (13, 13), p=1)],
    [A.ColorJitter((1.2, 1.2), (1, 1), (1, 1), (0, 0), p=1), A.HorizontalFlip(p=0)],
    [A.ColorJitter((1, 1), (0.7, 0.7), (1, 1), (0, 0), p=1)],
    [A.ColorJitter((1, 1), (1, 1), (1.4, 1.4), (0, 0), p=1)],
    [A.ColorJitter((1, 1), (1, 1), (1, 1), (0.2, 0.2), p=1)],
    [A.CoarseDropout((1, 1), (999, 999), (999, 999), fill=(4, 5, 6), p=0), A.NoOp()],
    [A.Resize(16, 16), A.CoarseDropout((1, 2), (16, 16), (16, 16), fill=7, p=1), A.Normalize()],
    [A.Affine(rotate=17, scale=0.8, shear=(5, 5), translate_px=(2, 2), p=1), A.HorizontalFlip(p=1)],
    [A.Affine(rotate=-170, translate_percent={"x": 0.3}, border_mode=cv2.BORDER_REFLECT_101, p=1)],
    [shift_scale_rotate((0.1, 0.1), (0.2, 0.2), (30, 30), fill=7, p=1), A.Normalize(), ToTensorV2()],
    [A.Rotate((40, 40), interpolation=cv2.INTER_NEAREST, fill=(1, 2, 3), p=1)],
    [A.SafeRotate((75, 75), border_mode=cv2.BORDER_REFLECT_101, p=1), A.Resize(20, 20)],
    [A.RandomScale((0.5, 0.5), p=1), A.Resize(30, 30)],
    [A.Normalize(), ToTensorV2()],
    [A.Normalize(mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3)), ToTensorV2()],
    [A.Resize(24, 24), A.HueSaturationValue(0, 0, (9, 9), p=1), A.Normalize(0.5, 0.25), ToTensorV2()],
]


@pytest.mark.parametrize(
    "transforms", SAME, ids=lambda transforms: "-".join(type(t).__name__ for t in transforms)
)
def test_what_is_native_is_equal_to_the_bit(cifar: Any, transforms: list[Any]) -> None:
    cifar.transform = pipeline(*transforms)
    assert all(natives(cifar)), wt.DataLoader(cifar).explain()
    made = Hybrid(cifar)
    assert same([made[i] for i in range(len(cifar))], [cifar[i] for i in range(len(cifar))])


STAY: list[tuple[Any, str]] = [
    (A.RandomBrightnessContrast(ensure_safe_range=True), "ensure_safe_range=False"),
    (A.CoarseDropout(fill="random"), "fills with numbers"),
    (A.CoarseDropout(fill="inpaint_ns"), "fills with numbers"),
    (A.Resize(9, 9, interpolation=cv2.INTER_CUBIC), "cv2.INTER_LINEAR"),
    (
        A.RandomResizedCrop((9, 9), interpolation=cv2.INTER_NEAREST, area_for_downscale="image"),
        "area_for_downscale=None",
    ),
    (A.Resize(9, 9, p=0.5), "p is 0.5"),
    (A.SmallestMaxSize([9, 10]), "max_size=256"),
    (A.Affine(rotate=10, fit_output=True), "fit_output=False"),
    (A.Affine(interpolation=cv2.INTER_CUBIC), "interpolation=cv2.INTER_LINEAR"),
    (A.Rotate(border_mode=cv2.BORDER_WRAP), "cv2.BORDER_REFLECT_101"),
    (A.Rotate(crop_border=True), "crop_border=False"),
    (A.SafeRotate(fill=0.5), "whole numbers of 0 to 255"),
    (A.Perspective(), "no transform that is equal"),
    (A.Normalize(normalization="image"), "standard"),
]


@pytest.mark.parametrize(("transform", "words"), STAY)
def test_what_is_not_known_stays(cifar: Any, transform: Any, words: str) -> None:
    cifar.transform = pipeline(A.HorizontalFlip(p=1), transform)
    assert words in wt.DataLoader(cifar).explain()
    assert Hybrid(cifar)[0][0].dtype == cifar[0][0].dtype


def test_other_versions_stay_but_for_what_draws_nothing(cifar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(A, "__version__", "3.1.0")
    for transform in (
        A.ColorJitter(),
        A.RandomResizedCrop((9, 9)),
        A.Normalize(),
        A.Affine(),
        A.RandomScale(),
    ):
        cifar.transform = pipeline(transform)
        assert "Albumentations is 3.1.0" in wt.DataLoader(cifar).explain()


def test_an_opencv_that_rounds_otherwise_is_left_alone(cifar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opencv._different.cache_clear()
    resize, convert, warp = cv2.resize, cv2.cvtColor, cv2.warpAffine
    monkeypatch.setattr(cv2, "warpAffine", lambda *a, **k: warp(*a, **k) ^ 1)
    monkeypatch.setattr(cv2, "resize", lambda *a, **k: resize(*a, **k) ^ 1)
    monkeypatch.setattr(cv2, "cvtColor", lambda *a, **k: convert(*a, **k) ^ 1)
    try:
        for transform in (A.Resize(9, 9), A.HueSaturationValue(p=1), A.ColorJitter(p=1), A.Rotate()):
            cifar.transform = pipeline(transform)
            assert "other pixels here" in wt.DataLoader(cifar).explain()
    finally:
        opencv._different.cache_clear()


def test_probabilities_are_kept(cifar: Any) -> None:
    cifar.transform = pipeline(A.RandomBrightnessContrast((0.5, 0.5), (0, 0), p=0.3))
    made, plain = Hybrid(cifar), cifar.data
    changed = sum(not np.array_equal(made[i % len(cifar)][0], plain[i % len(cifar)]) for i in range(600))
    assert 120 < changed < 240  # 180 is expected, and the deviation is 11


# Functions of users.


def test_functions_that_load_are_known_by_what_they_do() -> None:
    assert loads_rgb(rgb)
    assert loads_rgb(lambda p: cv2.cvtColor(cv2.imread(str(p)), cv2.COLOR_BGR2RGB))
    assert loads_rgb(lambda p: cv2.imread(p, cv2.IMREAD_COLOR)[:, :, ::-1])
    assert not loads_rgb(backwards)
    assert not loads_rgb(cv2.imread)
    assert not loads_rgb(lambda p: cv2.cvtColor(cv2.imread(p), cv2.COLOR_RGB2BGR))
    assert not loads_rgb(lambda p: cv2.imread(p, cv2.IMREAD_UNCHANGED)[:, :, ::-1])
    assert not loads_rgb(lambda p: cv2.imread(p)[:, ::-1, ::-1])
    space: dict[str, Any] = {"cv2": np}  # another module of this name
    exec("def load(path):\n    return cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)", space)
    assert not loads_rgb(space["load"])


def test_a_replaced_imread_is_not_opencv_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cv2, "imread", lambda path: None)
    assert not loads_rgb(rgb)


class Called:
    def __init__(self, chain: Any) -> None:
        self.chain = chain

    def __call__(self, image: Any) -> Any:
        """Calls the chain."""
        made = self.chain(image=np.array(image))
        return made["image"]


class Masked(Called):
    def __call__(self, image: Any) -> Any:
        return self.chain(mask=np.array(image))["mask"]


class Hidden(Called):
    @property
    def chain(self) -> Any:
        return 3

    @chain.setter
    def chain(self, value: Any) -> None:
        pass


def test_functions_that_call_a_pipeline_are_known_by_what_they_do() -> None:
    chain = A.Compose([A.HorizontalFlip()])
    for function, converts in [
        (lambda image: chain(image=np.asarray(image))["image"], True),
        (lambda image: chain(image=image)["image"], False),
        (Called(chain), True),
    ]:
        call = call_of(function)
        assert call is not None
        assert call.held is chain
        assert call.converts == converts
    for function in (
        Masked(chain),
        Hidden(chain),
        lambda image: chain(image=np.asarray(image)[::-1])["image"],
        lambda image: chain(image=np.asarray(image))["mask"],
        lambda image, more=0: chain(image=np.asarray(image))["image"],
        lambda *image: chain(image=np.asarray(image))["image"],
        np.asarray,
        chain,
    ):
        assert call_of(function) is None


def test_a_pipeline_in_a_function_is_taken_apart(cifar: Any) -> None:
    chain = A.Compose([A.Resize(20, 27), A.Normalize(), ToTensorV2()])
    plain = [chain(image=np.asarray(cifar[i][0]))["image"] for i in range(len(cifar))]
    for transform in (lambda image: chain(image=np.array(image))["image"], Called(chain)):
        cifar.transform = transform
        assert all(natives(cifar))
        made = Hybrid(cifar)
        assert all(torch.equal(made[i][0], plain[i]) for i in range(len(cifar)))
    cifar.transform = lambda image: chain(image=image)["image"]  # which raises, and so does ours
    assert "np.array(image)" in wt.DataLoader(cifar).explain()
    with pytest.raises(TypeError):
        Hybrid(cifar)[0]


# Folders that OpenCV reads.

CHAIN = [A.Resize(32, 28), A.HorizontalFlip(p=1), A.Normalize(), ToTensorV2()]


@pytest.mark.parametrize("workers", [0, 2])
def test_folders_read_by_opencv_are_native(folder: Path, workers: int) -> None:
    chain = A.Compose(CHAIN)
    data = datasets.ImageFolder(str(folder), lambda image: chain(image=image)["image"], loader=rgb)
    loader = wt.DataLoader(data, batch_size=5, num_workers=workers)
    assert lower(loader).kind == "native", loader.explain()
    ours, theirs = list(loader), list(Stock(data, batch_size=5))
    assert same(ours, theirs)


def test_folders_read_by_another_function_stay(folder: Path) -> None:
    data = datasets.ImageFolder(str(folder), pipeline(*CHAIN), loader=backwards)
    loader = wt.DataLoader(data, batch_size=5)
    assert lower(loader).kind == "python"
    assert "its loader is backwards" in loader.explain()
    assert same(list(loader), list(Stock(data, batch_size=5)))


def test_what_opencv_reads_otherwise_is_left_to_it(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))
    for name in ("1.png", "2.png"):
        image.save(tmp_path / "a" / name)
    image.save(tmp_path / "a" / "3.jpg", "PNG")  # another format than its name says
    image.save(tmp_path / "a" / "4.jpg")
    chain = A.Compose(CHAIN)
    for files in ("12", "34", "1234"):
        data = datasets.ImageFolder(
            str(tmp_path),
            lambda image: chain(image=image)["image"],
            loader=rgb,
            is_valid_file=lambda path, files=files: Path(path).stem in files,
        )
        ours = list(wt.DataLoader(data, batch_size=2))
        assert same(ours, list(Stock(data, batch_size=2)))
