"""Transforms that timm's `create_transform` makes: what is native gives what timm gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision.datasets import ImageFolder

from torch_same import apart
from wellfed import transforms as T
from wellfed.torch import DataLoader
from wellfed.torch._lower import lower
from wellfed.torch._lower.forms import Form
from wellfed.torch._lower.transforms import lower_one

timm_data = pytest.importorskip("timm.data")
from timm.data.random_erasing import RandomErasing  # noqa: E402
from timm.data.transforms import (  # noqa: E402
    MaybePILToTensor,
    MaybeToTensor,
    RandomResizedCropAndInterpolation,
)
from torchvision.transforms import CenterCrop, Compose, PILToTensor  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("timm")
    draw = np.random.default_rng(0)
    for i in range(6):
        (root / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = draw.integers(0, 256, (60 + 7 * i, 75, 3), np.uint8)
        Image.fromarray(pixels).save(root / "ab"[i % 2] / f"{i}.png")
    return root


def native(folder: Path, transform: Any) -> list[bool]:
    lines = lower(Stock(ImageFolder(str(folder), transform))).lines
    return [line.native for section, line in lines if section == "transform"]


def test_evaluation_is_native_with_timms_values(folder: Path) -> None:
    for options in ({}, {"interpolation": "bicubic", "crop_pct": 0.9}, {"crop_mode": "squash"}):
        transform = timm_data.create_transform(32, is_training=False, **options)
        assert native(folder, transform) == [True] * 4
        data = ImageFolder(str(folder), transform)
        [(ours, labels)], [(theirs, expected)] = DataLoader(data, 6), Stock(data, 6)
        assert apart(ours, theirs) < 1e-6
        assert torch.equal(labels, expected)


def test_training_is_native_up_to_what_timm_draws_otherwise(folder: Path) -> None:
    make = timm_data.create_transform
    assert native(folder, make(32, is_training=True)) == [True] * 5
    assert native(folder, make(32, is_training=True, re_prob=0.3, re_mode="pixel")) == [True] * 6
    assert native(folder, make(32, is_training=True, re_prob=0.3, re_mode="rand")) == [True] * 5 + [False]
    assert native(folder, make(32, is_training=True, re_prob=0.3, re_count=2))[-1] is False
    assert native(folder, make(32, is_training=True, interpolation="random"))[0] is False
    assert native(folder, make(32, is_training=True, auto_augment="rand-m9-mstd0.5"))[:3] == [
        True,
        True,
        False,
    ]


def test_a_crop_of_all_is_timms_to_the_bit(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (50, 50, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a" / "0.png")
    for interpolation in ("bilinear", "bicubic"):
        crop = RandomResizedCropAndInterpolation((31, 20), (1, 1), (1, 1), interpolation)
        for last in (MaybeToTensor(), MaybePILToTensor(), Compose([PILToTensor(), MaybeToTensor()])):
            data = ImageFolder(str(tmp_path), Compose([crop, last]))
            [(ours, _)], [(theirs, _)] = DataLoader(data, 1), Stock(data, 1)
            assert torch.equal(ours, theirs)
            assert ours.dtype == theirs.dtype


def test_parameters_are_timms() -> None:
    crop = RandomResizedCropAndInterpolation((9, 7), (0.2, 0.6), (0.5, 1.5), "bicubic")
    [lowered], form, _ = lower_one(crop, Form())
    assert lowered == T.RandomResizedCrop((9, 7), (0.2, 0.6), (0.5, 1.5), "bicubic")
    assert form.sized
    for mode, value in (("const", 0), ("pixel", "random")):
        erase = RandomErasing(0.6, 0.1, 0.4, 0.5, 1.5, mode, device="cpu")
        [lowered], _, _ = lower_one(erase, form.turned("tensor", "float32"))
        assert (lowered.p, lowered.scale, lowered.value) == (0.6, (0.1, 0.4), value)
        assert lowered.ratio == pytest.approx((0.5, 1.5))


def erased(loader: Any) -> torch.Tensor:
    """Of each sample: left, top, width and height of what is erased, in pixels; zeros for nothing."""
    found = []
    for images, _ in loader:
        for image in images:
            rows, columns = (image == 0).all(0).any(1).nonzero(), (image == 0).all(0).any(0).nonzero()
            box = [0.0] * 4
            if len(rows):
                top, left = int(rows.min()), int(columns.min())
                box = [left, top, int(columns.max()) - left + 1, int(rows.max()) - top + 1]
            found.append(torch.tensor(box, dtype=torch.float64))
    return torch.stack(found)


def test_draws_have_timms_distribution(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    # Where a pixel is, is what it holds.
    rows, columns = np.mgrid[0:40, 0:60]
    ramp = np.stack([1 + 3 * columns, 1 + 3 * rows, np.full_like(rows, 255)], 2).astype(np.uint8)
    for i in range(400):
        Image.fromarray(ramp).save(tmp_path / "a" / f"{i}.png")
    crop = RandomResizedCropAndInterpolation(12)
    erase = RandomErasing(0.6, 0.1, 0.4, device="cpu")
    random.seed(0)
    torch.manual_seed(0)
    for transform, seen in (
        (
            Compose([crop, MaybeToTensor()]),
            lambda loader: torch.cat([x[:, :2, ::11, ::11] for x, _ in loader]),
        ),
        (Compose([CenterCrop((40, 60)), MaybeToTensor(), erase]), erased),
    ):
        data = ImageFolder(str(tmp_path), transform)
        assert lower(Stock(data)).kind == "native"
        ours = torch.cat([seen(DataLoader(data, 50)).flatten(1).double() for _ in range(3)])
        theirs = torch.cat([seen(Stock(data, 50)).flatten(1).double() for _ in range(3)])
        for power in (1, 2):
            one, other = ours**power, theirs**power
            error = ((one.var(0) + other.var(0)) / len(one)).sqrt()
            assert ((one.mean(0) - other.mean(0)).abs() < 5 * error + 1e-9).all()


def dataset(folder: Path, **options: Any) -> Any:
    made = timm_data.create_dataset("", str(folder), **options)
    made.transform = timm_data.create_transform(32, is_training=False)
    return made


# It leaves it to the collector to close files.
left_open = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@left_open
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_its_own_data_set_is_native_with_its_values(folder: Path, mode: str) -> None:
    data = dataset(folder, input_img_mode=mode)
    if mode == "L":
        data.transform = Compose([CenterCrop(32), MaybeToTensor()])
    loader = DataLoader(data, 4, shuffle=True)
    assert loader.explain().startswith("DataLoader, native"), loader.explain()
    batches = []
    for kind in (DataLoader, Stock):
        torch.manual_seed(0)
        batches.append(list(kind(data, 4, shuffle=True)))
    for (ours, labels), (theirs, expected) in zip(*batches, strict=True):
        assert apart(ours, theirs) < 1e-6
        assert torch.equal(labels, expected)


@left_open
def test_files_that_cannot_be_opened_are_passed_over_as_timm_does_it(tmp_path: Path) -> None:
    for i in range(6):
        (tmp_path / "a").mkdir(exist_ok=True)
        Image.new("RGB", (40, 40), (i, i, i)).save(tmp_path / "a" / f"{i}.png")
    (tmp_path / "a" / "2.png").write_bytes(b"nothing")
    data = dataset(tmp_path)
    loader = DataLoader(data, 6)
    [(ours, _)], [(theirs, _)] = list(loader), list(Stock(data, 6))
    assert apart(ours, theirs) < 1e-6
    assert loader.explain().startswith("DataLoader, native")


@pytest.mark.parametrize(
    "options", [{"load_bytes": True}, {"input_img_mode": None}, {"input_img_mode": "RGBA"}]
)
def test_its_data_set_with_other_samples_stays_in_python(folder: Path, options: Any) -> None:
    assert DataLoader(dataset(folder, **options), 4).explain().startswith("DataLoader, Python")


def test_its_data_set_sees_new_samples(folder: Path) -> None:
    data = dataset(folder)
    loader = DataLoader(data, 6)
    [(_, labels)] = list(loader)
    data.reader.samples = data.reader.samples[:2]
    assert [len(labels) for _, labels in loader] == [2]
    assert len(labels) == 6
