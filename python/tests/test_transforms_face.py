"""Names, parameters, defaults, checks and text forms of transforms, held against torchvision v2."""

from __future__ import annotations

import copy
import inspect
import json
import pickle

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import wellfed as wf
from wellfed import _audio, _effects, _recordings
from wellfed import transforms as T
from wellfed._passes import Pipeline

# Transforms of sounds are held against torchaudio, in test_audio.py.
OTHERS = {
    "AutoAugmentPolicy",
    "InterpolationMode",
    "Transform",
    *_audio.__all__,
    *_effects.__all__,
    *_recordings.__all__,
}
NAMES = [n for n in T.__all__ if n not in OTHERS]

EXAMPLES = [
    T.Compose([T.Resize(256), T.Compose([T.CenterCrop((224, 200))])]),
    T.ToImage(),
    T.ToTensor(),
    T.PILToTensor(),
    T.Identity(),
    T.ToDtype(torch.bfloat16, scale=True),
    T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
    T.Resize(None, max_size=300),
    T.Resize([256], interpolation="bicubic", max_size=400),
    T.Resize((20, 30), T.InterpolationMode.LANCZOS),
    T.CenterCrop([5]),
    T.FiveCrop((3, 4)),
    T.TenCrop(5, vertical_flip=True),
    T.RandomCrop(32, padding=4),
    T.RandomCrop((32, 30), padding=(1, 2, 3, 4), pad_if_needed=True, fill=(1, 2, 3), padding_mode="reflect"),
    T.Pad((1, 2), fill=7, padding_mode="edge"),
    T.RandomResizedCrop(224, scale=(0.2, 0.9), ratio=[0.5, 2], interpolation="nearest-exact"),
    T.RandomCrop(30, padding=(1, 2, 3, 4), mask_fill=255),
    T.Pad(3, fill=(1, 2, 3), mask_fill=7),
    T.RandomResize(10, 20, interpolation="nearest"),
    T.RandomShortestSize(12),
    T.RandomShortestSize([12, 13], max_size=40, interpolation="bicubic"),
    T.ScaleJitter((50, 60), scale_range=(0.5, 1)),
    T.RandomZoomOut(fill=(1, 2, 3), side_range=(1, 1.5), p=0.2),
    T.RandomZoomOut(mask_fill=9),
    T.RandomHorizontalFlip(0.25),
    T.RandomVerticalFlip(),
    T.RandomRotation(30, interpolation="bilinear", expand=True, center=(3, 4.5), fill=9),
    T.ColorJitter(0.4, (0.5, 1.5), 0.1, 0.2),
    T.Grayscale(3),
    T.RandomGrayscale(0.3),
    T.GaussianBlur((3, 5), sigma=1.5),
    T.RandomErasing(0.7, value="random"),
    T.RandomErasing(value=(1, 2.5, 3)),
    T.RandomErasing(value="random-color", count=[1, 3]),
    T.RandomResizedCrop(9, interpolation=["bilinear", "bicubic"]),
    T.RandomAffine(30, translate=(0.1, 0.2), scale=(0.5, 2), shear=(1, 2, 3, 4), fill=(1, 2, 3)),
    T.RandomAffine((1, 2), shear=5, interpolation="bilinear", center=(3, 4.5)),
    T.RandomInvert(0.1),
    T.RandomPosterize(4),
    T.RandomSolarize(192.5),
    T.RandomAdjustSharpness(2, 0.3),
    T.RandomAutocontrast(),
    T.RandomEqualize(),
    T.RandAugment(3, 5, 11, fill=(1, 2, 3)),
    T.RandAugment(thresholds="v1"),
    T.TrivialAugmentWide(interpolation="bilinear"),
    T.AutoAugment(T.AutoAugmentPolicy.SVHN),
    T.AugMix(5, 2, 4, 0.5, False, "nearest", fill=(1, 2, 3)),
    T.AugMix(fill=9, version="v1"),
    T.AugMix(),
    T.JPEG(50),
    T.JPEG((10, 90)),
    T.ElasticTransform(30, (2, 3.5), "nearest", fill=None),
    T.ElasticTransform(sigma=0, fill=(1, 2, 3)),
    T.GaussianNoise(0.1, 0.3, clip=False),
    T.RandomPerspective(0.3, 0.9, "bicubic", fill=(1, 2, 3)),
    T.RandomPhotometricDistort((0.5, 2), hue=(0, 0.2), p=0.1),
    T.RandomApply([T.GaussianBlur(3), T.RandomGrayscale()], 0.8),
    T.RandomChoice([T.RandomInvert(), T.Compose([T.RandomEqualize(), T.Identity()])], p=[1, 2.5]),
    T.RandomOrder([T.RandomInvert(), T.RandomEqualize()]),
]


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_defaults_are_torchvisions(name: str) -> None:
    ours = dict(inspect.signature(getattr(T, name)).parameters)
    # Which of torchvision's two classes of the name it is; v2's like the rest.
    version = ours.pop("thresholds", None) or ours.pop("version", None)
    assert version is None or (version.kind, version.default) == (inspect.Parameter.KEYWORD_ONLY, "v2")
    # What torchvision takes a dictionary for.
    mask_fill = ours.pop("mask_fill", None)
    assert mask_fill is None or (mask_fill.kind, mask_fill.default) == (inspect.Parameter.KEYWORD_ONLY, None)
    # What timm has, and torchvision has not.
    count = ours.pop("count", None)
    assert count is None or (count.kind, count.default) == (inspect.Parameter.KEYWORD_ONLY, (1, 1))
    theirs = inspect.signature(getattr(v2, name)).parameters
    if list(theirs) == ["args", "kwargs"]:
        theirs = {}
    assert list(ours) == list(theirs)
    for parameter in ours:
        given, default = ours[parameter].default, theirs[parameter].default
        assert getattr(given, "value", given) == getattr(default, "value", default), parameter


@pytest.mark.parametrize("transform", EXAMPLES, ids=lambda t: type(t).__name__)
def test_text_forms_survive(transform: T.Transform) -> None:
    plan = json.loads(json.dumps(transform.to_plan()))
    assert T.Transform.from_plan(plan) == transform
    assert eval(repr(transform), vars(T).copy()) == transform
    assert pickle.loads(pickle.dumps(transform)) == transform
    assert copy.deepcopy(transform) == transform
    assert hash(copy.copy(transform)) == hash(transform)
    # What the engine writes after reading it means the same.
    written = json.loads(wf.from_tensor_slices(np.zeros((1, 400, 400, 3), np.uint8)).map(transform).to_json())
    assert T.Transform.from_plan(written["root"]["transforms"][0]) == transform


def test_all_that_draws_makes_epochs_differ() -> None:
    drawing = {type(transform) for transform in EXAMPLES if transform.random}
    # Those that work on batches, or look at boxes.
    others = [T.CutMix(num_classes=2), T.MixUp(num_classes=2), T.RandomIoUCrop()]
    known = {kind.__name__ for kind in drawing} | {type(other).__name__ for other in others}
    assert {name for name in NAMES if getattr(T, name)._random} <= known
    for transform in [*EXAMPLES, *others]:
        assert Pipeline(0, json.dumps(transform.to_plan())).random == transform.random, transform


def test_transforms_cannot_be_changed() -> None:
    flip = T.RandomHorizontalFlip()
    with pytest.raises(AttributeError, match="cannot be changed"):
        flip.p = 1.0
    with pytest.raises(AttributeError, match="cannot be changed"):
        del flip.p
    assert T.RandomHorizontalFlip(0.5) == flip != T.RandomVerticalFlip(0.5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Resize", {"size": "large"}),
        ("Resize", {"size": (1, 2, 3)}),
        ("Resize", {"size": None}),
        ("CenterCrop", {"size": (1, 2, 3)}),
        ("CenterCrop", {"size": None}),
        ("RandomCrop", {"size": 3, "padding": (1, 2, 3)}),
        ("RandomCrop", {"size": 3, "padding": "a"}),
        ("RandomCrop", {"size": 3, "padding": 1, "padding_mode": "wrap"}),
        ("RandomCrop", {"size": 3, "fill": "red"}),
        ("Pad", {"padding": 1.5}),
        ("Pad", {"padding": 1, "padding_mode": "wrap"}),
        ("RandomResizedCrop", {"size": 3, "scale": 0.5}),
        ("RandomResizedCrop", {"size": 3, "ratio": (1, 2, 3)}),
        ("RandomZoomOut", {"side_range": (0.5, 2)}),
        ("RandomZoomOut", {"side_range": (3, 2)}),
        ("RandomZoomOut", {"p": 2}),
        ("RandomZoomOut", {"fill": "red"}),
        ("RandomHorizontalFlip", {"p": 2}),
        ("RandomVerticalFlip", {"p": -0.1}),
        ("RandomGrayscale", {"p": 1.1}),
        ("RandomErasing", {"p": 1.1}),
        ("RandomErasing", {"value": "black"}),
        ("RandomErasing", {"value": None}),
        ("RandomErasing", {"scale": 0.1}),
        ("RandomErasing", {"scale": (0.1, 1.1)}),
        ("RandomRotation", {"degrees": -1}),
        ("RandomRotation", {"degrees": (1, 2, 3)}),
        ("RandomRotation", {"degrees": None}),
        ("RandomRotation", {"degrees": 1, "center": 3}),
        ("RandomRotation", {"degrees": 1, "center": (1, 2, 3)}),
        ("RandomAffine", {"degrees": -1}),
        ("RandomAffine", {"degrees": 1, "translate": (0.1, 1.1)}),
        ("RandomAffine", {"degrees": 1, "translate": 0.1}),
        ("RandomAffine", {"degrees": 1, "scale": (0, 1)}),
        ("RandomAffine", {"degrees": 1, "shear": (1, 2, 3)}),
        ("RandomPerspective", {"distortion_scale": 1.1}),
        ("ElasticTransform", {"alpha": None}),
        ("ElasticTransform", {"sigma": (1, 2, 3)}),
        ("AugMix", {"severity": 11}),
        ("JPEG", {"quality": 0}),
        ("JPEG", {"quality": 1.5}),
        ("JPEG", {"quality": (20, 101)}),
        ("RandomApply", {"transforms": []}),
        ("RandomApply", {"transforms": [], "p": 2}),
        ("RandomChoice", {"transforms": []}),
        ("RandomOrder", {"transforms": 3}),
        ("RandAugment", {"num_ops": -1}),
        ("ColorJitter", {"brightness": -1}),
        ("ColorJitter", {"brightness": "some"}),
        ("ColorJitter", {"contrast": (2, 1)}),
        ("ColorJitter", {"hue": 0.6}),
        ("GaussianBlur", {"kernel_size": 4}),
        ("GaussianBlur", {"kernel_size": 3, "sigma": 0}),
        ("GaussianBlur", {"kernel_size": 3, "sigma": None}),
        ("GaussianBlur", {"kernel_size": 3, "sigma": (1, 2, 3)}),
        ("ToDtype", {"dtype": "float32x"}),
        ("Compose", {"transforms": []}),
        ("Compose", {"transforms": 3}),
    ],
)
def test_senseless_arguments_raise_what_torchvision_raises(name: str, arguments: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        getattr(v2, name)(**arguments)
    with pytest.raises(theirs.type):
        getattr(T, name)(**arguments)


def test_what_is_not_supported_is_refused_with_a_reason() -> None:
    with pytest.raises(ValueError, match="antialias=False"):
        T.Resize(3, antialias=False)
    with pytest.raises(TypeError, match="images only"):
        T.Pad(1, fill={"others": 0})
    with pytest.raises(ValueError, match="images only"):
        T.ToDtype({"others": torch.float32})
    with pytest.raises(ValueError, match="nearest, bilinear and bicubic"):
        T.RandomRotation(3, interpolation="lanczos")
    with pytest.raises(TypeError, match=r"hint: use wellfed.transforms.RandomCrop"):
        wf.from_tensor_slices(np.zeros((1, 9, 9, 3), np.uint8)).map(v2.RandomCrop(3))
    with pytest.raises(TypeError, match="one by one"):
        wf.from_tensor_slices(np.zeros((1, 9, 9, 3), np.uint8)).map([T.Identity()])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("float32", "float32"),
        (torch.float32, "float32"),
        (torch.half, "float16"),
        (torch.bfloat16, "bfloat16"),
        (np.float16, "float16"),
        (np.dtype("uint8"), "uint8"),
        ("half", "float16"),
        ("torch.float", "float32"),
    ],
)
def test_dtypes_of_every_house_are_understood(given: object, name: str) -> None:
    assert T.ToDtype(given).dtype == name


@pytest.mark.parametrize("dtype", [torch.int64, np.float64, "int8", float])
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(ValueError, match="it must be one of uint8, float16, bfloat16, float32"):
        T.ToDtype(dtype)


@pytest.mark.parametrize("mode", list(v2.InterpolationMode)[:4])
def test_interpolations_of_every_house_are_understood(mode: v2.InterpolationMode) -> None:
    assert T.Resize(3, mode) == T.Resize(3, mode.value) == T.Resize(3, T.InterpolationMode(mode.value))
    assert T.Resize(3, 2).interpolation == "bilinear"
    with pytest.raises(ValueError, match="must be one of"):
        T.Resize(3, v2.InterpolationMode.BOX)


def test_senseless_parameters_are_refused_where_they_are_written() -> None:
    ds = wf.from_tensor_slices(np.zeros((4, 9, 9, 3), np.uint8))
    for transform in [T.CenterCrop(0), T.Normalize([0.5] * 5, [0.5]), T.Resize((3, 0))]:
        with pytest.raises(wf.ConfigError):
            ds.map(transform)


def test_what_would_fail_at_every_sample_is_refused_where_it_is_written() -> None:
    for make in (
        lambda: T.RandomResize(5, 5),
        lambda: T.RandomResize(0, 5),
        lambda: T.RandomShortestSize([]),
        lambda: T.RandomShortestSize([0]),
        lambda: T.RandomShortestSize(5, max_size=0),
        lambda: T.ScaleJitter((5, 5), (0, 1)),
        lambda: T.ScaleJitter((0, 20)),
        lambda: T.ScaleJitter((20, -1)),
        lambda: T.RandomIoUCrop(min_scale=0.5, max_scale=0.4),
        lambda: T.RandomIoUCrop(max_scale=1.5),
        lambda: T.RandomIoUCrop(sampler_options=[]),
        lambda: T.RandomIoUCrop(trials=0),
    ):
        with pytest.raises(ValueError, match=r"must be|must lie"):
            make()
    with pytest.raises(TypeError, match="two ints"):
        T.ScaleJitter(5)  # type: ignore[arg-type]
    crop = T.RandomIoUCrop(sampler_options=[0.5, 2], trials=3)
    assert T.Transform.from_plan(json.loads(json.dumps(crop.to_plan()))) == crop
    assert eval(repr(crop), vars(T).copy()) == crop
    fill = T.RandomZoomOut(fill=3, mask_fill=9).as_torchvision(v2).fill
    assert sorted(fill.values()) == [3, 9]
