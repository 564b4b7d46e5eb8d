"""Transforms of torchvision and Albumentations: what is native gives what stock gives; the rest says why not."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from torch import nn
from torch.utils.data import DataLoader as Stock
from torchvision import tv_tensors
from torchvision.transforms import v2

import torchvision_sets as sets
import wellfed.torch as wt
from torch_same import apart, same
from wellfed.torch._lower import Hybrid, lower

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLOAT = v2.ToDtype(torch.float32, scale=True)
CUBIC = v2.InterpolationMode.BICUBIC


def turned(image: Any) -> Any:
    return image.rotate(90)


# Equal to the bit.
EXACT: list[Any] = [
    v1.ToTensor(),
    v1.PILToTensor(),
    v2.ToImage(),
    v1.Compose([v1.PILToTensor(), v1.ConvertImageDtype(torch.float32)]),
    v2.Compose([v2.PILToTensor(), v2.ConvertImageDtype(torch.float32)]),
    v2.Compose([v2.ToImage(), FLOAT]),
    v2.Compose([v2.ToImage(), FLOAT, v2.ToPureTensor()]),
    v2.Compose([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)]),
    v2.Compose([v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True)]),
    v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32)]),
    v2.Compose([v2.ToImage(), v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True)]),
    v2.Compose([v2.ToDtype(torch.float32), v2.ToImage(), v2.ToDtype({"others": None})]),
    v1.Compose([v1.Resize(40), v1.CenterCrop(33), v1.ToTensor()]),
    v1.Compose([v1.Compose([v1.Resize((40, 20), CUBIC)]), nn.Sequential(v1.CenterCrop(33)), v1.ToTensor()]),
    v2.Compose([v2.Resize([19], max_size=21), v2.RandomCrop((19, 19), pad_if_needed=True), v2.ToImage()]),
    v2.Compose([v2.ToImage(), v2.CenterCrop(41), v2.Pad((1, 2, 3, 4), fill=9), v2.RandomHorizontalFlip(1)]),
    v2.Compose(
        [v2.ToImage(), v2.Pad([3, 1], padding_mode="reflect"), v2.RandomVerticalFlip(1), v2.Identity()]
    ),
    v2.Compose([v2.Pad(3, fill=(1, 2, 3)), v2.RandomCrop(38), v2.RGB(), v2.ToImage()]),
    v2.Compose(
        [v2.Pad(2, fill={"others": 1}), v2.ToImage(), v2.Pad(1, fill={tv_tensors.Image: 7, "others": 1})]
    ),
    v2.Compose([v2.RandomCrop(44, padding=(5, 6, 7, 8)), v2.ToImage()]),
    v2.Compose([v2.Grayscale(3), v2.ToImage()]),
    v1.Compose([v1.Grayscale(), v1.ToTensor(), v1.Normalize(0.5, 0.5)]),
    v1.Compose([v1.RandomGrayscale(1), v1.ToTensor(), v1.RandomErasing(0)]),
    v2.Compose([v2.RandomRotation((30, 30), v2.InterpolationMode.BILINEAR, fill=7), v2.ToImage()]),
    v1.Compose([v1.ColorJitter((1.2, 1.2)), v1.ColorJitter(contrast=(0.7, 0.7)), v1.ToTensor()]),
    v2.Compose([v2.ColorJitter(saturation=(1.4, 1.4)), v2.ColorJitter(hue=(0.2, 0.2)), v2.ToImage()]),
    v2.Compose([v2.ToImage(), v2.ToPILImage(), v2.Resize(20), v2.ToImage()]),
    v1.Compose([v1.RandomInvert(1), v1.RandomPosterize(3, 1), v1.RandomSolarize(99, 1), v1.PILToTensor()]),
    v2.Compose([v2.RandomSolarize(128, p=1), v2.RandomInvert(0), v2.RandomPosterize(2, 1), v2.ToImage()]),
    v1.Compose([v1.RandomAdjustSharpness(1.8, 1), v1.RandomAutocontrast(1), v1.ToTensor()]),
    v2.Compose([v2.RandomEqualize(1), v2.RandomAdjustSharpness(0.2, 1), v2.ToImage()]),
    v1.Compose([v1.RandomAffine((20, 20), scale=(0.7, 0.7), shear=(3, 3, 5, 5)), v1.ToTensor()]),
    v2.Compose([v2.ToImage(), v2.Resize(20)]),
    v2.Compose([v2.ToImage(), v2.Resize((50, 60), CUBIC)]),
    v2.Compose([v2.PILToTensor(), v2.CenterCrop(28), v2.Resize((9, 30)), v2.ToDtype(torch.float32, True)]),
    v2.Compose([v2.RandomAffine((9, 9), interpolation=v2.InterpolationMode.BILINEAR, fill=8), v2.ToImage()]),
    v1.Compose([v1.RandomApply(nn.ModuleList([v1.Grayscale(3), v1.RandomInvert(1)]), 1), v1.ToTensor()]),
    v2.Compose(
        [v2.RandomApply([v2.RandomInvert(1)], 0), v2.RandomChoice([v2.RandomInvert(1)]), v2.ToImage()]
    ),
    v1.Compose(
        [v1.RandomOrder([v1.RandomPosterize(2, 1)]), v1.RandomChoice([v1.Grayscale(3)]), v1.ToTensor()]
    ),
    v1.Compose([v1.RandAugment(0), v1.ToTensor()]),
    v2.Compose([v2.CenterCrop(27), v2.RandomOrder([v2.JPEG(35)]), v2.JPEG([80, 80]), v2.ToImage()]),
    v2.Compose([v2.ToImage(), v2.GaussianNoise(0.1, 0.0)]),
    v2.Compose([v2.ToImage(), FLOAT, v2.GaussianNoise(0.1, 0.0), v2.GaussianNoise(-0.7, 0.0, clip=False)]),
    v1.Compose([v1.RandomApply([v1.RandomPerspective(p=0)], 1), v1.ToTensor()]),
    v2.Compose([v2.RandomChoice([v2.RandomPhotometricDistort(p=0)]), v2.ToImage()]),
    v2.Compose([v2.RandAugment(0, 3), v2.RandomOrder([v2.Compose([v2.RandomInvert(1)])]), v2.ToImage()]),
]

# Equal but for rounding: by how much.
NEAR: list[tuple[Any, float]] = [
    (v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)]), 1e-6),
    (v2.Compose([v2.ToImage(), FLOAT, v2.Normalize(MEAN, STD, inplace=True)]), 1e-6),
    (v1.Compose([v1.PILToTensor(), v1.Resize(20)]), 1),
    (v1.Compose([v1.PILToTensor(), v1.Resize((50, 60), CUBIC)]), 2),
    (v2.Compose([v2.ToImage(), v2.GaussianBlur(3, 1.2)]), 1),
    (v1.Compose([v1.GaussianBlur(5, 0.8), v1.ToTensor()]), 1 / 255 + 1e-6),
    (v1.Compose([v1.ElasticTransform(0.0), v1.PILToTensor()]), 1),
    (v2.Compose([v2.ToImage(), v2.ElasticTransform(0.0, [2.0, 3.0], fill=None)]), 1),
]

# Native as far as it goes; then Python, on what it expects.
CUT: list[tuple[Any, int]] = [
    (v1.Compose([v1.Resize(40), turned, v1.ToTensor()]), 1),
    (v1.Compose([v1.Lambda(turned), v1.ToTensor()]), 0),
    (v2.Compose([v2.Resize((20, 20)), v2.ToImage(), v2.Grayscale(3), FLOAT]), 2),
    (v2.Compose([v2.ToImage(), FLOAT, v2.Resize(20), v2.Normalize(MEAN, STD)]), 2),
    (v1.Compose([v1.CenterCrop(30), v1.PILToTensor(), v1.ColorJitter(hue=(0.1, 0.1))]), 2),
    (v2.Compose([v2.CenterCrop(30), v2.RandomApply([turned], p=1.0), v2.ToImage()]), 1),
    (v2.Compose([v2.ToImage(), v2.Resize(20, antialias=False)]), 1),
    (v2.Compose([v2.ToImage(), v2.Resize(20, v2.InterpolationMode.NEAREST)]), 1),
    (v2.Compose([v2.ToImage(), v2.RandomSolarize(128, p=1.0)]), 1),
    (v2.Compose([v2.ToImage(), FLOAT, v2.ToDtype(torch.uint8, scale=True)]), 2),
    (v1.Compose([v1.Resize(40)]), 1),
    (v2.Compose([v2.CenterCrop(30), v2.RandomApply([v2.CenterCrop(9)], p=1.0), v2.ToImage()]), 1),
    (v2.Compose([v2.CenterCrop(30), v2.RandomChoice([v2.ToImage()])]), 1),
    (v1.Compose([v1.CenterCrop(30), v1.RandomApply([v1.Grayscale(1)], p=1), v1.ToTensor()]), 1),
    (v1.Compose([v1.PILToTensor(), v1.RandAugment(0)]), 1),
    (v1.Compose([v1.PILToTensor(), v1.RandomPerspective(p=0)]), 1),
]


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sets.cifar10(tmp_path_factory.mktemp("cifar"))


def one_line(value: Any) -> str:
    return " ".join(repr(value).split())[:60]


def parts(dataset: Any) -> list[Any]:
    """What became of each transform."""
    return [line for section, line in lower(Stock(dataset)).lines if section == "transform"]


@pytest.mark.parametrize("transform", EXACT, ids=one_line)
def test_native_transforms_equal_torchvisions(cifar: Any, transform: Any) -> None:
    cifar.transform = transform
    made = Hybrid(cifar)
    assert all(line.native for line in parts(cifar))
    drawn = "RandomCrop" in repr(transform)
    for i in range(len(cifar)):
        ours, theirs = made[i], cifar[i]
        assert (
            (ours[0].shape == theirs[0].shape and type(ours) is type(theirs)) if drawn else same(ours, theirs)
        )


@pytest.mark.parametrize(("transform", "most"), NEAR, ids=one_line)
def test_native_transforms_that_round_differently_say_so(cifar: Any, transform: Any, most: float) -> None:
    cifar.transform = transform
    made = Hybrid(cifar)
    words = " ".join(line.why for line in parts(cifar))
    assert "round" in words
    for i in range(len(cifar)):
        assert type(made[i][0]) is type(cifar[i][0])
        assert apart(made[i][0], cifar[i][0]) <= most


@pytest.mark.parametrize(("transform", "native"), CUT, ids=one_line)
def test_python_takes_over_what_it_expects(cifar: Any, transform: Any, native: int) -> None:
    cifar.transform = transform
    lines = parts(cifar)
    assert [line.native for line in lines] == [True] * native + [False] * (len(lines) - native)
    assert all(line.why for line in lines if not line.native)
    made = Hybrid(cifar)
    for i in range(len(cifar)):
        ours, theirs = made[i], cifar[i]
        assert type(ours[0]) is type(theirs[0])
        if "Resize(size=[20]" in repr(transform) and "ToDtype" not in repr(transform):
            assert same(ours, theirs)  # only the last transform resizes, and it is Python
        elif isinstance(ours[0], torch.Tensor) and ours[0].is_floating_point():
            assert apart(ours[0], theirs[0]) <= 1e-6
        else:
            assert same(ours, theirs)


AUTOMATIC = [
    kind
    for module in (v1, v2)
    for kind in (
        module.RandAugment(1, 20),
        module.TrivialAugmentWide(4, v2.InterpolationMode.BILINEAR, fill=9),
        module.AutoAugment(v2.AutoAugmentPolicy.CIFAR10, fill=[1, 2, 3]),
        module.AutoAugment(v2.AutoAugmentPolicy.SVHN),
    )
]


@pytest.mark.parametrize("transform", AUTOMATIC, ids=one_line)
def test_automatic_augmentations_give_what_torchvisions_may_give(cifar: Any, transform: Any) -> None:
    cifar.transform = None
    image = cifar[0][0]
    draws = 300
    theirs = Counter(transform(image).tobytes() for _ in range(4 * draws))
    module = v1 if type(transform) in (v1.RandAugment, v1.TrivialAugmentWide, v1.AutoAugment) else v2
    preset = [v2.RandomHorizontalFlip(0), transform, v2.PILToTensor(), v2.ConvertImageDtype(torch.float32)]
    preset += [module.Normalize((0.0,) * 3, (1 / 255,) * 3), module.RandomErasing(0)]
    cifar.transform = module.Compose(preset)
    assert all(line.native for line in parts(cifar))
    made = Hybrid(cifar)
    ours = Counter(
        made[0][0].round().to(torch.uint8).permute(1, 2, 0).numpy().tobytes() for _ in range(draws)
    )
    # What comes up often on one side comes up on the other one.
    assert sum(count for made_, count in ours.items() if made_ not in theirs) < 0.1 * draws
    often = {made_ for made_, count in theirs.items() if count > 0.04 * 4 * draws}
    assert often <= set(ours)


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_aug_mix_gives_what_torchvisions_may_give(cifar: Any, module: Any) -> None:
    cifar.transform = None
    image = cifar[0][0]
    # One chain of one weak operation, and weights of 0 and 1.
    mix, other = (module.AugMix(1, 1, 1, 1e-7, fill=[5.0]) for _ in range(2))
    halves = torch.eye(2)[:, None]
    other._sample_dirichlet = lambda given: (
        halves[torch.randint(2, ())] if given.shape[1] == 2 else torch.ones(1, 1)
    )
    theirs = {other(image).tobytes() for _ in range(400)}
    cifar.transform = module.Compose([mix, module.PILToTensor()])
    assert all(line.native for line in parts(cifar))
    made = Hybrid(cifar)
    ours = {made[0][0].permute(1, 2, 0).numpy().tobytes() for _ in range(300)}
    assert ours == theirs
    cifar.transform = other
    assert "replaced" in parts(cifar)[0].why
    cifar.transform = mix
    mix._PARAMETER_MAX = 30
    assert "operations were changed" in parts(cifar)[0].why


STAYING = [
    (v1.FiveCrop(9), "makes five images of one"),
    (v2.TenCrop(9), "makes ten images of one"),
    (v2.GaussianNoise(), "put it after ToImage"),
    (v1.ElasticTransform(interpolation=CUBIC), "nearest and bilinear"),
    (v2.RandomPerspective(fill={"others": 1}), "fill is a dict"),
]


@pytest.mark.parametrize(("transform", "words"), STAYING, ids=one_line)
def test_what_the_engine_does_not_do_says_why(cifar: Any, transform: Any, words: str) -> None:
    cifar.transform = v2.Compose([v1.CenterCrop(24), transform])
    line = parts(cifar)[-1]
    assert not line.native
    assert words in f"{line.why}, {line.change}"


def test_matrices_of_all_values_are_torchs(cifar: Any) -> None:
    whiten = v2.LinearTransformation(torch.eye(48) * 2, torch.ones(48))
    cifar.transform = v2.Compose([v2.CenterCrop(4), v2.ToImage(), FLOAT, whiten])
    assert [line.native for line in parts(cifar)] == [True] * 3 + [False]
    assert "a row and a column for each value" in parts(cifar)[-1].why
    assert same(Hybrid(cifar)[0], cifar[0])


@pytest.mark.parametrize("module", [v1, v2], ids=["v1", "v2"])
def test_what_comes_before_a_matrix_is_native(tmp_path: Path, module: Any) -> None:
    whiten = module.LinearTransformation(torch.rand(192, 192), torch.rand(192))
    chain = module.Compose([module.Resize((8, 8)), v1.ToTensor(), whiten])
    folder = sets.image_folder(tmp_path, transform=chain)
    plan = lower(Stock(folder))
    assert plan.kind == "hybrid"
    assert [line.native for section, line in plan.lines if section == "transform"] == [True, True, False]
    assert all(same(plan.dataset[i], folder[i]) for i in range(len(folder)))


class Rand(v2.RandAugment):
    pass


def test_changed_automatic_augmentations_are_python(cifar: Any) -> None:
    changed = v2.AutoAugment()
    changed._policies = changed._policies[:3]
    other = v2.RandAugment()
    other._AUGMENTATION_SPACE = {"Identity": (lambda *_: None, False)}
    own = v1.RandAugment()
    own._augmentation_space = lambda *_: {}  # type: ignore[method-assign]
    for transform, words in [
        (Rand(), "subclass of RandAugment"),
        (changed, "policies were changed"),
        (own, "replaced"),
        (other, "operations were changed"),
        (v2.RandAugment(fill={"others": 1}), "fill is a dict"),
        (v1.RandAugment(magnitude=31), "magnitude is 31"),
    ]:
        cifar.transform = v2.Compose([transform, v2.ToImage()])
        assert words in wt.DataLoader(cifar).explain()


class Flip(v2.RandomHorizontalFlip):
    pass


def test_what_only_looks_like_torchvisions_is_python(cifar: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked, replaced = v2.CenterCrop(8), v2.CenterCrop(8)
    hooked.register_forward_hook(lambda module, args, result: result)
    replaced.forward = turned  # type: ignore[method-assign]
    for transform, words in [
        (Flip(), "subclass of RandomHorizontalFlip"),
        (hooked, "hooks"),
        (replaced, "replaced"),
    ]:
        cifar.transform = v2.Compose([transform, v2.ToImage()])
        assert words in wt.DataLoader(cifar).explain()
    cifar.transform = v1.ToTensor()
    monkeypatch.setattr(v1.ToTensor, "__call__", lambda self, image: torch.ones(1))
    assert "replaced" in wt.DataLoader(cifar).explain()
    assert next(iter(wt.DataLoader(cifar, batch_size=2)))[0].tolist() == [[1.0], [1.0]]


def test_the_engines_own_words_are_the_reason(cifar: Any) -> None:
    for transform, words in [
        (v1.RandomCrop(40), "(40, 40) is larger"),
        (v1.Pad(3, fill=(1, 2)), "channels"),
        (v2.Pad(-1), "negative"),
    ]:
        cifar.transform = v1.Compose([v1.CenterCrop(32), transform])
        line = parts(cifar)[-1]
        assert not line.native
        assert words in line.why


def test_grey_images_are_not_normalized_as_colours(tmp_path: Path) -> None:
    digits = sets.READ["MNIST"](
        tmp_path, transform=v1.Compose([v1.ToTensor(), v1.Normalize((0.5,) * 3, (0.5,) * 3)])
    )
    assert "grey" in wt.DataLoader(digits).explain()
    with pytest.raises(RuntimeError) as theirs:
        digits[0]
    with pytest.raises(RuntimeError, match=re.escape(str(theirs.value))):
        next(iter(wt.DataLoader(digits)))


def test_a_cut_names_what_stays_in_python(cifar: Any) -> None:
    cifar.transform = v1.Compose([v1.Resize(40), turned, v1.RandomCrop(8), v1.ToTensor()])
    text = wt.DataLoader(cifar).explain()
    assert "turned" in text
    assert "comes after function, which is Python" in text or "comes after turned" in text
    # What a function does to an image need not be the same after a crop.
    assert "to make more of it native" not in text


A = pytest.importorskip("albumentations")


def pipeline(*transforms: Any, **extra: Any) -> wt.Albumentations:
    return wt.Albumentations(A.Compose(list(transforms), **extra))


def test_albumentations_are_native_as_far_as_they_are_exact(cifar: Any) -> None:
    from albumentations.pytorch import ToTensorV2

    cifar.transform = pipeline(
        A.Pad(2, fill=9), A.HorizontalFlip(p=1), A.VerticalFlip(p=0), A.Normalize(), ToTensorV2()
    )
    assert all(line.native for line in parts(cifar))
    made = Hybrid(cifar)
    for i in range(len(cifar)):
        assert apart(made[i][0], cifar[i][0]) < 2e-6
    cifar.transform = pipeline(A.NoOp(), A.ToFloat())
    assert same([Hybrid(cifar)[i] for i in range(15)], [cifar[i] for i in range(15)])
    cifar.transform = pipeline(A.RandomCrop(8, 9), ToTensorV2())
    assert tuple(Hybrid(cifar)[0][0].shape) == (3, 8, 9)


@pytest.mark.parametrize(
    ("transforms", "native", "words"),
    [
        ([A.HorizontalFlip(p=1), A.Resize(20, 20, interpolation=2), A.Normalize()], 1, "INTER_LINEAR"),
        ([A.HorizontalFlip(p=1), A.CenterCrop(40, 9, pad_if_needed=True)], 1, "pads in its own way"),
        ([A.Normalize(p=1), A.HorizontalFlip(p=1)], 1, "before Normalize"),
        ([A.Pad(2, border_mode=1)], 0, "BORDER_CONSTANT"),
        ([A.ToGray(p=1)], 0, "no transform that is equal"),
    ],
)
def test_albumentations_that_are_not_exact_stay(cifar: Any, transforms: Any, native: int, words: str) -> None:
    cifar.transform = pipeline(*transforms)
    lines = parts(cifar)
    assert [line.native for line in lines] == [True] * native + [False] * (len(lines) - native)
    assert words in wt.DataLoader(cifar).explain()
    for i in range(3):
        ours, theirs = Hybrid(cifar)[i][0], cifar[i][0]
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        assert np.abs(ours.astype(float) - theirs.astype(float)).max() < 2e-6


def test_an_albumentations_pipeline_in_a_function_is_found(cifar: Any) -> None:
    compose = A.Compose([A.HorizontalFlip()])
    cifar.transform = lambda image: compose(image=np.asarray(image)[:9])["image"]
    assert "wellfed.torch.Albumentations(compose)" in wt.DataLoader(cifar).explain()
    cifar.transform = pipeline(A.HorizontalFlip(), p=0.5)
    assert "Python" in wt.DataLoader(cifar).explain()


def test_pixels_in_memory_stay_in_python_where_nothing_is_done_to_them_before(tmp_path: Path) -> None:
    keep = v1.Lambda(lambda image: image)
    for chain, kind in [
        ([keep, v1.ToTensor()], "python"),
        ([v1.CenterCrop(9), keep, v1.ToTensor()], "hybrid"),
    ]:
        folder = tmp_path / kind
        folder.mkdir()
        cifar = sets.cifar10(folder, transform=v1.Compose(chain))
        loader = wt.DataLoader(cifar, batch_size=2)
        assert lower(loader).kind == kind
        assert ("as they are" in loader.explain()) == (kind == "python")
        for (x, _), (y, _) in zip(loader, Stock(cifar, batch_size=2), strict=True):
            assert torch.equal(x, y)
