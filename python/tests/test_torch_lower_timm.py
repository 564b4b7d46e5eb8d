"""Transforms that timm's `create_transform` makes: what is native gives what timm gives."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader as Stock
from torchvision.datasets import ImageFolder

from torch_same import apart
from wellfed import transforms as T
from wellfed.torch import DataLoader
from wellfed.torch._lower import lower
from wellfed.torch._lower.forms import Form
from wellfed.torch._lower.transforms import lower_one

timm_data = pytest.importorskip("timm.data")
from timm.data import auto_augment  # noqa: E402
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


AUTOMATIC = [
    "rand-m9-mstd0.5",
    "rand-m9-n3-mstd0.5-inc1",
    "rand-m9-mstd101-inc1",
    "rand-m12-mmax15-p0.8",
    "rand-n2-mstd1-tweights",
    "rand-n2-inc1-t3aw",
    "v0",
    "v0r-mstd0.5",
    "original-mstd0.5",
    "originalr",
    "3a",
    "augmix-m5-w4-d2",
    "augmix-mstd2",
    "augmix-b1",
]


def test_training_is_native(folder: Path) -> None:
    make = timm_data.create_transform
    for options in (
        {},
        {"interpolation": "random"},
        {"re_prob": 0.3, "re_mode": "pixel"},
        {"re_prob": 0.3, "re_mode": "rand", "re_count": 3},
        {
            "color_jitter": (0.3, 0.2, 0.1, 0.05),
            "color_jitter_prob": 0.8,
            "grayscale_prob": 0.2,
            "vflip": 0.5,
        },
        {"no_aug": True},
        *({"auto_augment": auto, "re_prob": 0.25} for auto in AUTOMATIC),
        {"auto_augment": "rand-m9", "interpolation": "bicubic", "use_prefetcher": True},
    ):
        lines = native(folder, make(32, is_training=True, **options))
        assert all(lines), (options, lines)
    transform = make(
        32, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", interpolation="random", re_prob=1
    )
    [(images, _)] = DataLoader(ImageFolder(str(folder), transform), 6)
    assert images.shape == (6, 3, 32, 32)


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
    [lowered], _, _ = lower_one(RandomResizedCropAndInterpolation(9, interpolation="random"), Form())
    assert lowered == T.RandomResizedCrop(9, interpolation=("bilinear", "bicubic"))
    assert T.Transform.from_plan(lowered.to_plan()) == lowered
    for mode, value in (("const", 0), ("pixel", "random"), ("rand", "random-color")):
        erase = RandomErasing(0.6, 0.1, 0.4, 0.5, 1.5, mode, device="cpu")
        [lowered], _, _ = lower_one(erase, form.turned("tensor", "float32"))
        assert (lowered.p, lowered.scale, lowered.value) == (0.6, (0.1, 0.4), value)
        assert lowered.ratio == pytest.approx((0.5, 1.5))
    erase = RandomErasing(1, 0.1, 0.4, mode="rand", min_count=2, max_count=5, device="cpu")
    [lowered], _, _ = lower_one(erase, form.turned("tensor", "float32"))
    assert lowered.count == (2, 5)
    assert T.Transform.from_plan(lowered.to_plan()) == lowered


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
    crop = RandomResizedCropAndInterpolation(12, interpolation="random")
    erase = RandomErasing(0.6, 0.1, 0.4, device="cpu")
    several = RandomErasing(0.9, 0.1, 0.4, mode="rand", max_count=3, device="cpu")
    random.seed(0)
    torch.manual_seed(0)
    for transform, seen in (
        (
            Compose([crop, MaybeToTensor()]),
            lambda loader: torch.cat([x[:, :2, ::11, ::11] for x, _ in loader]),
        ),
        (Compose([CenterCrop((40, 60)), MaybeToTensor(), erase]), erased),
        (
            Compose([CenterCrop((40, 60)), MaybeToTensor(), several]),
            lambda loader: torch.cat([x[:, :, ::7, ::11] for x, _ in loader]),
        ),
    ):
        data = ImageFolder(str(tmp_path), transform)
        assert lower(Stock(data)).kind == "native"
        ours = torch.cat([seen(DataLoader(data, 50)).flatten(1).double() for _ in range(3)])
        theirs = torch.cat([seen(Stock(data, 50)).flatten(1).double() for _ in range(3)])
        for power in (1, 2):
            one, other = ours**power, theirs**power
            error = ((one.var(0) + other.var(0)) / len(one)).sqrt()
            assert ((one.mean(0) - other.mean(0)).abs() < 5 * error + 1e-9).all()


@pytest.fixture
def older_posterize(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ImageOps.posterize` as timm expects it: from version 13 on Pillow refuses to keep no bits."""
    posterize = ImageOps.posterize
    black = lambda image: Image.new(image.mode, image.size)  # noqa: E731
    monkeypatch.setattr(
        ImageOps, "posterize", lambda image, bits: posterize(image, bits) if bits > 0 else black(image)
    )


def picture(mode: str, width: int = 23, height: int = 17) -> Image.Image:
    """Soft shapes, so that filters and small differences of magnitudes show."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / (3 + c) + y / (2 + c)) for c in range(3)]
    image = Image.fromarray(np.stack(planes, 2).astype(np.uint8))
    return image.convert(mode)


def settings(fill: Any, resample: Any, **more: Any) -> dict[str, Any]:
    return {"translate_const": 9, "img_mean": fill, "interpolation": resample, **more}


@pytest.mark.usefixtures("older_posterize")
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", sorted(auto_augment.NAME_TO_OP))
def test_operations_give_timms_pixels(name: str, mode: str) -> None:
    image, fill = picture(mode), (124, 116, 104) if mode == "RGB" else 97
    for resample in Image.Resampling.NEAREST, Image.Resampling.BILINEAR, Image.Resampling.BICUBIC:
        for magnitude in (0, 1, 3.3, 7, 9, 10, 14):
            op = auto_augment.AugmentOp(name, 1.0, magnitude, settings(fill, resample, magnitude_max=20))
            expected = set()
            # Signs by chance, and the radius of a blur; the sign of the first is not negated.
            for drawn in (0.1, 0.9):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(random, "random", lambda drawn=drawn: drawn)
                    patch.setattr(random, "uniform", lambda low, high, at=drawn: low + (high - low) * at)
                    expected.add(op(image).tobytes())
            [lowered], _, note = lower_one(auto_augment.RandAugment([op], 1), Form(mode=mode))
            assert not note
            made = {lowered(image, seed).tobytes() for seed in range(12)}
            if name == "GaussianBlurRand":
                assert len(made) > 6 or magnitude < 7
            else:
                assert made == expected, (resample, magnitude)


def test_the_radius_of_a_blur_may_be_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for magnitude in np.linspace(0, 10, 37):
        for size in ((23, 17), (1, 9), (3, 2), (40, 5)):
            image = picture("RGB", *size)
            op = auto_augment.AugmentOp("GaussianBlur", 1.0, float(magnitude), settings((0, 0, 0), 2))
            [lowered], _, _ = lower_one(auto_augment.RandAugment([op], 1), Form())
            assert lowered(image).tobytes() == op(image).tobytes(), (magnitude, size)


@pytest.mark.parametrize("blended", [False, True])
def test_a_mix_of_one_chain_is_a_blend_with_it(blended: bool) -> None:
    image = picture("RGB", 60, 40)
    op = auto_augment.AugmentOp("Invert", 1.0, 5, settings((0, 0, 0), 2))
    mix = auto_augment.AugMixAugment([op], width=1, depth=1, blended=blended)
    [lowered], _, _ = lower_one(mix, Form())
    before, other = np.asarray(image).astype(int), 255 - np.asarray(image).astype(int)
    for seed in range(20):
        made = np.asarray(lowered(image, seed)).astype(int)
        weight = np.median(((made + 0.5 - before) / (other - before))[abs(other - before) > 100])
        # Of the weights around it, one gives all pixels, as Pillow blends.
        near = np.float32(weight) + np.linspace(-0.01, 0.01, 4001, dtype=np.float32)
        inverted = Image.fromarray(other.astype(np.uint8))
        found = any((np.asarray(Image.blend(image, inverted, float(w))) == made).all() for w in near)
        assert found, seed


@pytest.mark.usefixtures("older_posterize")
@pytest.mark.parametrize("config", AUTOMATIC)
def test_automatic_augmentations_have_timms_distribution(config: str) -> None:
    image = picture("RGB", 16, 12)
    transform = timm_data.create_transform(12, is_training=True, auto_augment=config).transforms[2]
    [lowered], _, _ = lower_one(transform, Form())
    assert T.Transform.from_plan(lowered.to_plan()) == lowered
    random.seed(0)
    np.random.seed(0)
    ours, theirs = (
        np.stack([np.asarray(made) for made in each]).astype(float)
        for each in ([lowered(image, seed) for seed in range(800)], [transform(image) for _ in range(800)])
    )
    for power in (1, 2):
        one, other = ours**power, theirs**power
        error = np.sqrt((one.var(0) + other.var(0)) / len(one))
        assert (abs(one.mean(0) - other.mean(0)) < 5 * error + 1e-9).all()


def test_operations_that_are_not_timms_stay_in_python(folder: Path) -> None:
    def made(**changes: Any) -> Any:
        augment = timm_data.create_transform(12, is_training=True, auto_augment="rand-m9").transforms[2]
        for name, value in changes.items():
            setattr(augment.ops[3], name, value)
        return augment

    class Own(auto_augment.AugmentOp):
        pass

    assert native(folder, made()) == [True]
    for changes in (
        {"aug_fn": lambda image, *_, **__: image},
        {"level_fn": lambda level, _: (level,)},
        {"__class__": Own},
        {"kwargs": {"fillcolor": (1, 2, 3), "resample": Image.Resampling.LANCZOS}},
        {"kwargs": {"fillcolor": 5, "resample": Image.Resampling.BICUBIC}},
        {"kwargs": {"fillcolor": (1, 2, 3), "resample": Image.Resampling.BICUBIC, "fill": 1}},
        {"magnitude_max": 3},
    ):
        assert native(folder, made(**changes)) == [False], changes


def test_draws_repeat_by_the_seed_after_a_resume_and_differ_between_epochs(folder: Path) -> None:
    transform = timm_data.create_transform(
        16,
        is_training=True,
        auto_augment="augmix-m5",
        interpolation="random",
        re_prob=0.7,
        re_mode="rand",
        re_count=3,
    )
    data = ImageFolder(str(folder), transform)

    def epochs(n: int) -> tuple[Any, list[list[torch.Tensor]]]:
        torch.manual_seed(3)
        loader = DataLoader(data, 2, shuffle=True)
        return loader, [[images for images, _ in loader] for _ in range(n)]

    _, [first, second] = epochs(2)
    _, [again] = epochs(1)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    torch.manual_seed(3)
    loader = DataLoader(data, 2, shuffle=True)
    batches = iter(loader)
    assert torch.equal(next(batches)[0], first[0])
    state = loader.state_dict()
    del batches
    torch.manual_seed(99)
    resumed = DataLoader(data, 2, shuffle=True)
    resumed.load_state_dict(state)
    rest = [images for images, _ in resumed]
    assert all(torch.equal(one, other) for one, other in zip(rest, first[1:], strict=True))


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
