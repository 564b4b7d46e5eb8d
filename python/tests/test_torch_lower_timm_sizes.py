"""timm's transforms that keep the aspect ratio, pad, or aim at a number of patches, and its loaders around a loader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision.datasets import ImageFolder, wrap_dataset_for_transforms_v2
from torchvision.transforms import Compose, InterpolationMode, Lambda, v2

import joint_sets
import wellfed as wf
from torch_same import apart, same
from wellfed import _timm as M
from wellfed import transforms as T
from wellfed.torch import DataLoader
from wellfed.torch._lower import lower
from wellfed.torch._lower.forms import Form, RefusalError
from wellfed.torch._lower.transforms import lower_one

timm_data = pytest.importorskip("timm.data")
naflex = pytest.importorskip("timm.data.naflex_transforms")
from timm.data import loader as timm_loader  # noqa: E402
from timm.data import transforms as timm_transforms  # noqa: E402
from timm.data.naflex_dataset import NaFlexCollator  # noqa: E402

FILTERS = "nearest", "bilinear", "bicubic", "lanczos"
MODES = "constant", "edge", "reflect", "symmetric"


# timm's data set leaves it to the collector to close files.
left_open = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("timm")
    draw = np.random.default_rng(0)
    for i in range(7):
        (root / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = draw.integers(0, 256, (20 + 17 * i, 75 - 4 * i, 3), np.uint8)
        Image.fromarray(pixels).save(root / "ab"[i % 2] / f"{i}.png")
    return root


def natives(dataset: Any, **options: Any) -> list[bool]:
    lines = lower(Stock(dataset, **options)).lines
    return [line.native for section, line in lines if section == "transform"]


def lowered(*transforms: Any, mode: str = "RGB") -> T.Transform:
    """What the engine does for transforms of timm, which reads back from its plan."""
    steps, form = [], Form(mode=mode)
    for transform in transforms:
        added, form, note = lower_one(transform, form)
        assert not note
        steps += added
    for step in steps:
        assert T.Transform.from_plan(step.to_plan()) == step
    return T.Compose(steps)


def picture(draw: random.Random, mode: str = "RGB") -> Image.Image:
    width, height = (draw.choice([1, 2, draw.randint(3, 90)]) for _ in range(2))
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / (3 + c) + y / (2 + c)) for c in range(3)]
    return Image.fromarray(np.stack(planes, 2).astype(np.uint8)).convert(mode)


def jitter(draw: random.Random) -> dict[str, Any]:
    """Settings of which nothing is left to draw."""
    scale, aspect = draw.uniform(0.4, 1.6), draw.uniform(0.5, 2.0)
    return {
        "longest": draw.choice([0.0, 1.0, draw.random()]),
        "interpolation": draw.choice(FILTERS),
        "random_scale_prob": draw.randint(0, 1),
        "random_scale_range": (scale, scale),
        "random_scale_area": draw.random() < 0.5,
        "random_aspect_prob": float(draw.randint(0, 1)),
        "random_aspect_range": (aspect, aspect),
    }


def patches(draw: random.Random, most: str) -> dict[str, Any]:
    return {
        "patch_size": draw.choice([1, 4, 7, (3, 8)]),
        most: draw.choice([1, 5, 16, 40]),
        "divisible_by_patch": draw.random() < 0.6,
    }


def padding(draw: random.Random, mode: str) -> dict[str, Any]:
    fill: Any = draw.choice([0, 77, [9, 130, 255] if mode == "RGB" else [9], (12,)])
    return {"fill": fill, "padding_mode": draw.choice(MODES)}


def sides(draw: random.Random) -> Any:
    return draw.choice([draw.randint(1, 60), (draw.randint(1, 60), draw.randint(1, 60))])


def settled(draw: random.Random, mode: str) -> Iterator[Any]:
    """Transforms of timm with settings of which nothing is left to draw."""
    yield timm_transforms.ResizeKeepRatio(sides(draw), **jitter(draw))
    yield timm_transforms.CenterCropOrPad(sides(draw), **padding(draw, mode))
    yield timm_transforms.TrimBorder(draw.choice([0, 1, 3, 20]))
    max_ratio = draw.choice([None, 1.0, draw.uniform(0.1, 3)])
    fit = {"max_ratio": max_ratio, "interpolation": draw.choice(FILTERS)}
    yield naflex.ResizeToSequence(**patches(draw, "max_seq_len"), **fit)
    more = jitter(draw) | {"max_ratio": max_ratio}
    yield naflex.ResizeKeepRatioToSequence(**patches(draw, "max_sequence_len"), **more)
    yield naflex.CenterCropToSequence(**patches(draw, "max_seq_len"), **padding(draw, mode))
    ratio, final = draw.uniform(0.3, 3), draw.choice([None, draw.uniform(0, 1)])
    aim = patches(draw, "max_seq_len") | {
        "interpolation": draw.choice(FILTERS),
        "final_scale_range": final if final is None else (final, final),
    }
    whole = {"scale": (1, 1), "ratio": (1, 1)}
    yield naflex.RandomResizedCropToSequence(
        **aim, **draw.choice([whole, {"ratio": (ratio, ratio), "attempts": 0}])
    )


def outcome(transform: Any, image: Image.Image) -> Any:
    """Size and pixels; or that there are none, in whichever words."""
    try:
        made = transform(image)
    except (ValueError, ZeroDivisionError, wf.ShapeError, OSError):
        return None
    return None if 0 in made.size else (made.mode, made.size, made.tobytes())


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.filterwarnings("ignore:Final scale randomization")
def test_pixels_are_timms(mode: str) -> None:
    draw = random.Random(3)
    made = 0
    for _ in range(60):
        for transform in settled(draw, mode):
            image = picture(draw, mode)
            expected = outcome(transform, image)
            assert outcome(lowered(transform, mode=mode), image) == expected, (transform, image.size)
            made += expected is not None
    assert made > 300


def test_chains_are_timms_to_the_bit() -> None:
    """As the engine folds them: a resize, what is cropped on one axis and added on the other, a border."""
    draw = random.Random(4)
    for _ in range(80):
        image = picture(draw)
        chain = [timm_transforms.TrimBorder(1)] if draw.random() < 0.3 else []
        chain += [
            timm_transforms.ResizeKeepRatio(sides(draw), **jitter(draw)),
            timm_transforms.CenterCropOrPad(sides(draw), **padding(draw, "RGB")),
        ]
        if draw.random() < 0.3:
            chain.append(naflex.ResizeToSequence(4, 16, interpolation=draw.choice(FILTERS)))
        assert outcome(lowered(*chain), image) == outcome(Compose(chain), image), (chain, image.size)


EVALUATION: list[dict[str, Any]] = [
    {"crop_mode": "border"},
    {"crop_mode": "border", "crop_pct": 0.6, "interpolation": "bicubic", "crop_border_pixels": 4},
    {"input_size": (3, 32, 48), "crop_mode": "border"},
    {"input_size": (3, 32, 48), "crop_pct": 1.0},  # whose sides differ, so that it keeps the ratio itself
    {"crop_border_pixels": 3, "crop_mode": "squash"},
]


@pytest.mark.parametrize("options", EVALUATION, ids=str)
def test_evaluation_is_native_with_timms_values(folder: Path, options: dict[str, Any]) -> None:
    options = {"input_size": 32, **options}
    for prefetched in (False, True):
        transform = timm_data.create_transform(**options, is_training=False, use_prefetcher=prefetched)
        data = ImageFolder(str(folder), transform)
        assert all(natives(data))
        loader = DataLoader(data, 4)
        assert loader.explain().startswith("DataLoader, native")
        for (ours, labels), (theirs, expected) in zip(loader, Stock(data, 4), strict=True):
            assert apart(ours, theirs) < 1e-6
            assert same(labels, expected)


TRAINING: list[dict[str, Any]] = [
    {"train_crop_mode": "rkrc"},
    {"train_crop_mode": "rkrr", "interpolation": "random", "re_prob": 0.3},
    {"train_crop_mode": "rkrr", "scale": (0.3, 1.7), "ratio": (0.5, 2), "auto_augment": "rand-m9"},
    {"train_crop_mode": "rkrc", "use_prefetcher": True, "vflip": 0.5},
]


@pytest.mark.parametrize("options", TRAINING, ids=str)
def test_training_is_native(folder: Path, options: dict[str, Any]) -> None:
    data = ImageFolder(str(folder), timm_data.create_transform((3, 32, 40), is_training=True, **options))
    assert all(natives(data))
    loader = DataLoader(data, 7)
    assert loader.explain().startswith("DataLoader, native")
    [(images, labels)] = loader
    [(expected, same_labels)] = Stock(data, 7)
    assert (images.shape, images.dtype) == (expected.shape, expected.dtype)
    assert same(labels, same_labels)


def anywhere(transform: Any, image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """What a transform makes for each pair of numbers that it may draw."""
    found = set()
    with monkeypatch.context() as patch:
        drawn: list[float] = []
        patch.setattr(random, "randint", lambda low, high: round(low + (high - low) * drawn.pop()))
        for share in np.linspace(0, 1, 13):
            for other in np.linspace(0, 1, 13):
                drawn[:] = [share, other]
                found.add(outcome(transform, image))
    return found


@pytest.mark.parametrize("mode", MODES)
def test_windows_lie_where_timm_puts_them(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    for width, height, size in ((9, 7, (5, 11)), (4, 6, (9, 4)), (8, 8, (8, 8)), (7, 3, (3, 5))):
        image = picture(draw).resize((width, height))
        for transform in (
            timm_transforms.RandomCropOrPad(size, fill=(1, 2, 3), padding_mode=mode),
            naflex.RandomCropToSequence((2, 3), 4, fill=9, padding_mode=mode),
        ):
            expected = anywhere(transform, image, monkeypatch)
            ours = lowered(transform)
            made = {outcome(partial(ours, seed=seed), image) for seed in range(150)}
            assert made == expected


def ramp(width: int = 60, height: int = 44) -> Image.Image:
    """Where a pixel is, is what it holds."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([1 + 4 * x, 1 + 5 * y, np.full_like(x, 255)], 2).astype(np.uint8))


DRAWN = [
    [
        timm_transforms.ResizeKeepRatio(
            20,
            interpolation="random",
            random_scale_prob=0.7,
            random_scale_range=(0.4, 1.6),
            random_scale_area=True,
            random_aspect_prob=0.4,
            random_aspect_range=(0.5, 2),
        )
    ],
    [
        timm_transforms.ResizeKeepRatio(24, 0.4, random_scale_prob=0.5, random_scale_range=(0.6, 1.3)),
        timm_transforms.RandomCropOrPad((22, 30), padding_mode="reflect"),
    ],
    [naflex.RandomResizedCropToSequence(4, 30, scale=(0.1, 0.9), interpolation="random")],
    [naflex.RandomResizedCropToSequence(3, 40, ratio=(0.3, 4), final_scale_range=(0.3, 1), attempts=3)],
    [
        naflex.ResizeKeepRatioToSequence(
            4,
            40,
            random_scale_prob=0.8,
            random_scale_range=(0.5, 1.1),
            random_aspect_prob=0.5,
            random_aspect_range=(0.4, 2),
        )
    ],
    [naflex.RandomCropToSequence(4, 40)],
]


@pytest.mark.filterwarnings("ignore:Final scale randomization")
@pytest.mark.parametrize("chain", DRAWN, ids=lambda chain: type(chain[0]).__name__)
def test_draws_have_timms_distribution(chain: list[Any]) -> None:
    image, ours = ramp(), lowered(*chain)
    random.seed(6)

    def features(made: Image.Image) -> list[float]:
        width, height = made.size
        corners = [made.getpixel((0, 0))[:2], made.getpixel((width - 1, height - 1))[:2]]
        return [width, height, width * height / 100, *corners[0], *corners[1]]

    theirs = Compose(chain)
    one, other = (
        np.array([features(made) for made in each], float)
        for each in ([ours(image, seed) for seed in range(700)], [theirs(image) for _ in range(700)])
    )
    for power in (1, 2):
        a, b = one**power, other**power
        error = np.sqrt((a.var(0) + b.var(0)) / len(a))
        assert (abs(a.mean(0) - b.mean(0)) < 5 * error + 1e-9).all(), (a.mean(0), b.mean(0))


def test_what_is_calculated_in_another_way_stays_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    keep, crop = timm_transforms.ResizeKeepRatio, naflex.RandomResizedCropToSequence

    class Own(keep):  # type: ignore[misc, valid-type]
        pass

    for transform in (
        keep((20.5, 20)),
        keep(20, random_scale_prob=0.5, random_scale_range=(1.2, 0.8)),
        keep(20, interpolation="box"),
        Own(20),
        timm_transforms.CenterCropOrPad(20, fill=300),
        timm_transforms.CenterCropOrPad(20, padding_mode="circular"),
        timm_transforms.TrimBorder(2.0),
        crop(4, 30, max_ratio=1.0),
        naflex.ResizeToSequence(4, 30.0),
        naflex.ResizeToSequence(4, 30, interpolation=(InterpolationMode.BOX,)),
        naflex.Patchify(4),
    ):
        with pytest.raises(RefusalError):
            lower_one(transform, Form())
    for transform in (keep(20), timm_transforms.RandomCropOrPad(20), timm_transforms.ToNumpy()):
        with pytest.raises(RefusalError, match="stands on"):
            lower_one(transform, Form("tensor"))

    def older(img: Any, *settings: Any) -> Any:
        return [1, 1]

    older.__module__ = timm_transforms.__name__
    random_aspect = keep(20, random_aspect_prob=0.5)
    assert lower_one(random_aspect, Form())
    monkeypatch.setattr(keep, "get_params", staticmethod(older))
    with pytest.raises(RefusalError, match="drawn in another way"):
        lower_one(random_aspect, Form())


def test_a_transform_of_images_is_not_one_of_masks(tmp_path: Path) -> None:
    chain = v2.Compose([v2.ToImage(), timm_transforms.RandomCropOrPad(20)])
    other = v2.Compose([timm_transforms.CenterCropOrPad(20), v2.ToImage()])
    for transforms in (chain, other):
        data = wrap_dataset_for_transforms_v2(joint_sets.voc(tmp_path, transforms=transforms))
        loader = DataLoader(data, 2)
        assert "takes an image alone" in loader.explain()
        with pytest.raises(TypeError):
            next(iter(loader))


def test_draws_repeat_after_a_resume_with_any_number_of_workers(folder: Path) -> None:
    transform = timm_data.create_transform(
        24, is_training=True, train_crop_mode="rkrr", interpolation="random", scale=(0.4, 1.5)
    )
    data = ImageFolder(str(folder), transform)

    def loader(workers: int) -> Any:
        torch.manual_seed(3)
        return DataLoader(data, 2, shuffle=True, num_workers=workers)

    for workers in (0, 2):
        made = loader(workers)
        first, second = [[images for images, _ in made] for _ in range(2)]
        assert not any(torch.equal(one, other) for one, other in zip(first, second, strict=True))
        begun = loader(workers)
        batches = iter(begun)
        again = [next(batches)[0] for _ in range(2)]
        state = begun.state_dict()
        del batches
        torch.manual_seed(99)
        resumed = DataLoader(data, 2, shuffle=True, num_workers=workers)
        resumed.load_state_dict(state)
        again += [images for images, _ in resumed]
        assert all(torch.equal(one, other) for one, other in zip(again, first, strict=True))


def test_bad_samples_are_left_out_as_in_python(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for place, source in enumerate(sorted(folder.rglob("*.png"))):
        (tmp_path / "a" / f"{place}.png").write_bytes(source.read_bytes())
    (tmp_path / "a" / "3.png").write_bytes(b"nothing")
    # One of which the border leaves nothing.
    Image.new("RGB", (9, 30)).save(tmp_path / "a" / "5.png")
    transform = timm_data.create_transform(24, crop_mode="border", crop_border_pixels=5)
    for on_error in ("skip", "replace"):
        ours, theirs = (
            DataLoader(ImageFolder(str(tmp_path), transform), 4, on_error=on_error, native=native)
            for native in (True, False)
        )
        assert ours.explain().startswith("DataLoader, native")
        for (one, labels), (other, expected) in zip(ours, theirs, strict=True):
            assert apart(one, other) < 1e-6
            assert same(labels, expected)
        assert [bad.index for bad in ours.errors()] == [bad.index for bad in theirs.errors()] == [3, 5]


@left_open
def test_arrays_are_collated_as_timm_and_torch_do(folder: Path) -> None:
    chain = Compose([timm_transforms.CenterCropOrPad((20, 30)), timm_transforms.ToNumpy()])
    data = ImageFolder(str(folder), chain)
    for options in (
        {"batch_size": 3, "collate_fn": timm_loader.fast_collate},
        {"batch_size": 3},
        {"batch_size": None},
    ):
        loader = DataLoader(data, **options)
        assert loader.explain().startswith("DataLoader, native"), loader.explain()
        assert same(list(loader), list(Stock(data, **options)))
    # What is called on such an array, Python calls.
    for last in (Lambda(lambda array: array[::-1].copy()), torch.from_numpy):
        data.transform = Compose([chain, last])
        assert natives(data) == [True, True, False]
        assert same(list(DataLoader(data, 3)), list(Stock(data, 3)))

    def stacked(batch: Any) -> Any:
        return torch.stack([image for image, _ in batch]), torch.tensor([label for _, label in batch])

    data.transform = chain
    with pytest.raises(TypeError):
        next(iter(DataLoader(data, 3, collate_fn=stacked)))
    grey = timm_data.create_dataset("", str(folder), input_img_mode="L", transform=chain)
    assert all(natives(grey))
    assert same(list(DataLoader(grey, 3)), list(Stock(grey, 3)))


def test_tensors_that_are_not_scaled_are_timms(folder: Path) -> None:
    for dtype in (torch.float32, torch.float16, torch.uint8, torch.int64):
        chain = Compose([timm_transforms.CenterCropOrPad(20), timm_transforms.ToTensor(dtype)])
        data = ImageFolder(str(folder), chain)
        assert natives(data) == [True, dtype is not torch.int64]
        assert same(list(DataLoader(data, 3)), list(Stock(data, 3)))


@left_open
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_that_fetch_ahead_are_given_batches_of_the_engine(folder: Path, workers: int) -> None:
    def made(**options: Any) -> Any:
        return timm_data.create_loader(
            timm_data.create_dataset("", str(folder)),
            (3, 24, 24),
            3,
            num_workers=workers,
            device=torch.device("cpu"),
            **options,
        )

    theirs = made(crop_mode="border")
    kept = theirs.loader
    ours = wf.feed(theirs)
    assert type(ours) is timm_loader.PrefetchLoader
    assert ours is not theirs
    assert theirs.loader is kept
    assert ours.loader.explain().startswith("DataLoader, native"), ours.loader.explain()
    assert (len(ours), ours.dataset) == (len(theirs), theirs.dataset)
    expected = list(theirs)
    for _ in range(2):
        assert same(list(ours), expected)
    training = wf.feed(made(is_training=True, train_crop_mode="rkrc", re_prob=0.5), batch_size=4)
    assert [images.shape for images, _ in training] == [(4, 3, 24, 24)]


class Rows(torch.utils.data.Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(str(path) for path in folder.rglob("*.png"))
        self.transform: Any = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return self.transform(image), index


def test_rows_of_ones_own_have_timms_workers(folder: Path) -> None:
    """`create_loader` gives each loader a function that seeds workers; a data set that was read has none."""

    options: dict[str, Any] = {"num_workers": 2, "device": torch.device("cpu"), "use_prefetcher": False}
    made = timm_data.create_loader(Rows(folder), 24, 3, crop_mode="border", **options)
    ours = wf.feed(made)
    assert ours.explain().startswith("DataLoader, native"), ours.explain()
    for (one, labels), (other, expected) in zip(ours, made, strict=True):
        assert apart(one, other) < 1e-6
        assert same(labels, expected)
    other = timm_data.create_loader(Rows(folder), 24, 3, worker_seeding=lambda info: 3, **options)
    assert "worker_init_fn may change the data set" in wf.feed(other).explain()


@pytest.mark.parametrize("workers", [0, 2])
def test_sequences_are_resized_natively(folder: Path, workers: int) -> None:
    settings: dict[str, Any] = {"naflex": True, "patch_size": 8, "max_seq_len": 20, "patchify": True}
    data = ImageFolder(str(folder), timm_data.create_transform(is_training=False, **settings))
    options: dict[str, Any] = {"collate_fn": NaFlexCollator(20), "num_workers": workers}
    assert natives(data, **options) == [True, True, True, False]
    for (ours, labels), (theirs, expected) in zip(
        DataLoader(data, 3, **options), Stock(data, 3, **options), strict=True
    ):
        assert apart(ours.pop("patches"), theirs.pop("patches")) < 1e-6
        assert same(ours, theirs)
        assert same(labels, expected)
    data.transform = timm_data.create_transform(is_training=True, **settings)
    assert natives(data, **options)[:2] == [True, True]
    for batch, _ in DataLoader(data, 3, **options):
        assert batch["patches"].shape[1:] == (20, 8 * 8 * 3)


def side_by_side(batch: list[Any]) -> Any:
    return tuple(zip(*batch))


def test_images_that_differ_by_chance_are_not_stacked(folder: Path) -> None:
    crop = naflex.RandomResizedCropToSequence(4, 9, ratio=(0.5, 2))
    data = ImageFolder(str(folder), Compose([crop, timm_transforms.MaybeToTensor()]))
    assert "differ in size" in DataLoader(data, 3).explain()
    together = DataLoader(data, 3, collate_fn=side_by_side)
    assert together.explain().startswith("DataLoader, native")
    for images, _ in together:
        assert all(image.shape[1] % 4 == 0 and image.shape[2] % 4 == 0 for image in images)
    assert M.ResizeKeepRatio(3).random is False
