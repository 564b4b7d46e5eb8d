"""Transforms that are done at once on lazy images: the draws, images and errors of the libraries that they are from."""

from __future__ import annotations

import io
import random
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed._accelerate import steps as at_once_steps
from wellfed._accelerate.images import pillow

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision.transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402


def _file(width: int, height: int, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(7).integers(0, 256, (height, width, len(mode)), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, kind)
    return file.getvalue()


FILES = [
    _file(61, 47),
    _file(9, 90),
    _file(90, 4, "PNG"),
    _file(50, 50, mode="L"),
    _file(33, 40, mode="CMYK"),
]


def _random_step(of: Any, rng: random.Random) -> Any:
    filters = [v1.InterpolationMode.NEAREST, v1.InterpolationMode.BICUBIC, v1.InterpolationMode.BILINEAR]
    some = {"interpolation": rng.choice(filters)}
    sizes = [rng.randint(1, 60), (rng.randint(1, 60), rng.randint(1, 60)), [rng.randint(1, 60)]]
    scale = rng.choice([(0.08, 1.0), (0.5, 0.5), [0.9, 1.0], (5, 9), (1, 1), (0.01, 0.02)])
    ratio = rng.choice([(3 / 4, 4 / 3), (1, 1), [0.2, 5], (20, 30), (0.01, 0.02)])
    make = [
        lambda: of.RandomResizedCrop(rng.choice(sizes), scale, ratio, **some),
        lambda: of.RandomResizedCrop(32),
        lambda: of.RandomHorizontalFlip(rng.choice([0.5, 0, 1, 0.3])),
        lambda: of.RandomVerticalFlip(rng.choice([0.5, 0.7])),
        lambda: of.Resize(rng.choice(sizes), **some),
        lambda: of.Resize(rng.randint(1, 40), max_size=rng.randint(41, 60)),
        lambda: of.CenterCrop(rng.choice(sizes)),
        lambda: of.RandomCrop(rng.randint(1, 9), pad_if_needed=True),
        lambda: of.Pad(2),
        lambda: of.ColorJitter(0.4, rng.choice([0, 0.4]), (0.5, 1.5), rng.choice([0, 0.2, 0.5])),
        lambda: of.RandomApply([of.ColorJitter(0.3, 0.3, 0.3, 0.1), of.RandomHorizontalFlip()], p=0.7),
    ]
    return rng.choice(make)()


def _outcome(steps: Any, data: bytes, mode: str, seed: int, lazy: bool) -> Any:
    """Bytes of the image and what all generators give next; or the error."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # timm draws from it
    with wf.accelerate() if lazy else warnings.catch_warnings():
        try:
            image = steps(Image.open(io.BytesIO(data)).convert(mode))
        except Exception as error:
            return type(error), str(error)
        made = image.tolist() if isinstance(image, torch.Tensor) else (image.size, image.tobytes())
    return made, torch.rand(3).tolist(), random.random()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_random_transforms_draw_and_give_the_same(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of: Any = v1 if version == "v1" else v2
    done = []
    at_once = at_once_steps.at_once

    def counted(step: Any, image: Any) -> Any:
        made = at_once(step, image)
        done.append(made is not None)
        return made

    monkeypatch.setattr("wellfed._accelerate.tensors.at_once", counted)
    for seed in range(250):
        rng = random.Random(seed)
        chain = [_random_step(of, rng) for _ in range(rng.randint(1, 4))]
        data, mode = rng.choice(FILES), rng.choice(["RGB", "L"])
        steps = of.Compose(chain)
        theirs = _outcome(steps, data, mode, seed, lazy=False)
        ours = _outcome(steps, data, mode, seed, lazy=True)
        assert ours == theirs, f"seed {seed}: {steps}"
    assert sum(done) > 200


def test_probabilities_are_compared_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.open(io.BytesIO(FILES[0]))
    drawn = torch.tensor([0.7], dtype=torch.float32)  # less than 0.7 as a float64
    monkeypatch.setattr(torch, "rand", lambda *_: drawn)
    for of in (v1, v2):
        flip = of.Compose([of.RandomHorizontalFlip(0.7)])
        expected = flip(image).tobytes()
        with wf.accelerate():
            assert flip(Image.open(io.BytesIO(FILES[0]))).tobytes() == expected
        assert expected == image.tobytes()


@pytest.mark.parametrize("of", [v1, v2])
def test_what_was_changed_or_is_listened_to_runs_as_it_is(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(crop: Any) -> Any:
        with wf.accelerate():
            return of.Compose([crop])(Image.open(io.BytesIO(FILES[0])).convert("RGB"))

    heard: list[Any] = []
    crop = of.CenterCrop(20)
    crop.register_forward_hook(lambda *_: heard.append(1))
    made(crop)
    assert heard == [1]
    crop = of.CenterCrop(20)
    crop.forward = lambda *_: "mine"
    assert made(crop) == "mine"

    class Mine(of.CenterCrop):  # type: ignore[misc]
        def forward(self, *_: Any) -> str:
            return "a subclass"

    assert made(Mine(20)) == "a subclass"
    with monkeypatch.context() as patch:
        patch.setattr(of.CenterCrop, "forward", lambda *_: "replaced")
        assert made(of.CenterCrop(20)) == "replaced"
    if of is v1:
        with monkeypatch.context() as patch:
            patch.setattr(v1.RandomResizedCrop, "get_params", staticmethod(lambda *_: (1, 2, 3, 4)))
            patch.setattr(v1.functional, "resized_crop", lambda *given, **_: given[1:5])
            assert made(v1.RandomResizedCrop(20)) == (1, 2, 3, 4)
    assert made(of.CenterCrop(20)).size == (20, 20)


def test_warnings_are_torchvisions() -> None:
    for of in (v1, v2):
        for step in (of.Resize((9, 9), antialias=False), of.RandomResizedCrop(9, antialias=False)):
            with wf.accelerate(), pytest.warns(UserWarning, match="Anti-alias option is always applied"):
                of.Compose([step])(Image.open(io.BytesIO(FILES[0])).convert("RGB"))


@pytest.mark.parametrize(
    "options",
    [
        {"is_training": False},
        {"is_training": True, "color_jitter": None},
        {"is_training": True, "color_jitter": None, "interpolation": "bicubic", "re_prob": 0.5},
        {"is_training": True, "auto_augment": "rand-m9-mstd0.5-inc1"},
        {"is_training": True, "train_crop_mode": "rkrc"},
    ],
)
def test_timms_create_transform_gives_the_same(options: dict[str, Any]) -> None:
    data = pytest.importorskip("timm.data")
    steps = data.create_transform((3, 40, 40), **options)
    for seed in range(12):
        for file in FILES[:2]:
            theirs = _outcome(steps, file, "RGB", seed, lazy=False)
            assert _outcome(steps, file, "RGB", seed, lazy=True) == theirs


@pytest.mark.parametrize("form", ["v1", "v1 alone", "v2"])
def test_images_that_a_python_step_made_become_the_same_tensors(form: str) -> None:
    mean, std = wf.IMAGENET_MEAN, wf.IMAGENET_STD
    kinds: list[Any] = [
        lambda image: Image.fromarray(255 - np.asarray(image)),
        lambda image: image.point(lambda value: value // 2),
        lambda image: image.convert("L"),
        lambda image: image.convert("RGBA"),
        lambda image: image.convert("1"),
        lambda image: image.resize((1, 1)).crop((0, 0, 0, 0)),
        lambda image: image.convert("F"),
    ]
    for step in kinds:
        if form == "v2":
            scaled = v2.ToDtype(torch.float32, scale=True)
            steps: Any = v2.Compose([v2.Resize(30), step, v2.ToImage(), scaled, v2.Normalize([0.4], [0.2])])
        elif form == "v1":
            steps = v1.Compose([v1.Resize(30), step, v1.ToTensor(), v1.Normalize(mean, std)])
        else:
            steps = v1.Compose([step, lambda image: v1.functional.to_tensor(image) * 2])
        for data in FILES[:2]:
            theirs = _outcome(steps, data, "RGB", 1, lazy=False)
            assert _outcome(steps, data, "RGB", 1, lazy=True) == theirs
    with wf.accelerate():
        closed = Image.new("RGB", (3, 3))
        closed.close()
        with pytest.raises(ValueError, match="Operation on closed image"):
            v1.functional.to_tensor(closed)


def test_timms_tensors_of_means_are_part_of_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm.data")
    from timm.data import create_transform

    steps = create_transform((3, 40, 40), is_training=False)
    with wf.accelerate():
        monkeypatch.setattr(v1.Normalize, "__call__", None)
        image = Image.open(io.BytesIO(FILES[0])).convert("RGB")
        assert type(image) in pillow().kinds
        assert steps(image).shape == (3, 40, 40)
