"""Colours of lazy images, and images that are made small in place: Pillow's, without its pixels."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance

import wellfed as wf
from wellfed._accelerate.images import pillow

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision.transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402


@pytest.fixture(params=["RGB", "L"])
def file(request: pytest.FixtureRequest) -> bytes:
    y, x = np.mgrid[0:70, 0:90]
    planes = [127 + 120 * np.sin(x / (5 + c) + y / (9 - c)) for c in range(3)]
    written = io.BytesIO()
    Image.fromarray(np.stack(planes, 2).astype(np.uint8)).convert(request.param).save(
        written, "JPEG", dpi=(9, 9)
    )
    return written.getvalue()


def opened(file: bytes) -> Any:
    return Image.open(io.BytesIO(file))


def is_lazy(image: Any) -> bool:
    return type(image) in pillow().kinds


NAMES = ("Brightness", "Contrast", "Color")


@pytest.mark.parametrize("name", NAMES)
def test_enhanced_images_stay_lazy_with_pillows_pixels(file: bytes, name: str) -> None:
    for factor in (0, 0.4, 1, 1.7, -0.5, 9.0):
        expected = getattr(ImageEnhance, name)(opened(file)).enhance(factor)
        for ready in (
            lambda image: image,
            lambda image: image.convert("RGB"),
            lambda image: image.crop((3, 4, 50, 60)),
        ):
            expected = getattr(ImageEnhance, name)(ready(opened(file))).enhance(factor)
            with wf.accelerate():
                enhancer = getattr(ImageEnhance, name)(ready(opened(file)))
                made = enhancer.enhance(factor)
            assert is_lazy(made)
            assert (made.size, made.mode, made.info) == (expected.size, expected.mode, expected.info)
            turned = made.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            assert is_lazy(turned)
            assert turned.tobytes() == expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT).tobytes()
            assert made.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_an_enhancer_is_pillows_to_those_who_look(file: bytes, name: str) -> None:
    kind = getattr(ImageEnhance, name)
    theirs = kind(opened(file).convert("RGB"))
    with wf.accelerate():
        ours, second, third, fourth = (kind(opened(file).convert("RGB")) for _ in range(4))
    assert isinstance(ours, kind)
    assert (type(ours).__name__, type(ours).__module__) == (name, "PIL.ImageEnhance")
    assert ours.degenerate.tobytes() == theirs.degenerate.tobytes()
    assert type(ours) is kind
    assert ours.enhance(0.3).tobytes() == theirs.enhance(0.3).tobytes()
    # What happens to the image later, happens to one half of the blend only.
    for one in (theirs, second):
        one.image.paste((9, 200, 3), (0, 0, 30, 30))
    assert second.enhance(0.3).tobytes() == theirs.enhance(0.3).tobytes()
    for made in (copy.copy(third), pickle.loads(pickle.dumps(fourth))):
        expected = kind(opened(file).convert("RGB")).enhance(1.5)
        assert made.enhance(1.5).tobytes() == expected.tobytes()
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = third.nothing


def test_pillows_constructors_come_back() -> None:
    before = [getattr(ImageEnhance, name).__init__ for name in NAMES]
    with wf.accelerate():
        assert [getattr(ImageEnhance, name).__init__ for name in NAMES] != before
    assert [getattr(ImageEnhance, name).__init__ for name in NAMES] == before


@pytest.mark.parametrize("of", [v1, v2])
def test_a_training_with_colours_has_one_pass(of: Any, file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = of.Compose(
        [
            of.RandomResizedCrop(40),
            of.RandomHorizontalFlip(),
            of.ColorJitter(0.4, 0.4, 0.4, 0.1),
            *([v1.ToTensor()] if of is v1 else [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
            of.Normalize([0.5], [0.25]),
        ]
    )
    expected = []
    for seed in range(12):
        torch.manual_seed(seed)
        expected.append(steps(opened(file).convert("RGB")))

    def never(*_: Any) -> Any:
        raise AssertionError("Pillow was asked for pixels")

    monkeypatch.setattr(Image, "frombytes", never)
    monkeypatch.setattr(Image, "blend", never)
    for seed in range(12):
        torch.manual_seed(seed)
        with wf.accelerate():
            made = steps(opened(file).convert("RGB"))
        assert torch.equal(made, expected[seed]), seed


def test_thumbnails_stay_lazy_where_nothing_is_reduced_first(file: bytes) -> None:
    for size in ((60, 60), (200, 30), (45.5, 80), (90, 70), (300, 300)):
        theirs = opened(file).convert("RGB")
        assert theirs.thumbnail(size) is None
        with wf.accelerate():
            ours = opened(file).convert("RGB")
        assert ours.thumbnail(size) is None
        assert is_lazy(ours)
        assert ours.size == theirs.size
        assert ours.tobytes() == theirs.tobytes()
    with wf.accelerate():
        small, large = opened(file).convert("RGB"), opened(file).convert("RGB")
    pixels = large.tobytes()
    other = large.copy()
    large.thumbnail((50, 50))
    assert other.tobytes() == pixels, "what was made of it before stays"
    small.thumbnail((9, 9))
    theirs = opened(file).convert("RGB")
    theirs.thumbnail((9, 9))
    assert not is_lazy(small)
    assert small.tobytes() == theirs.tobytes()


def test_a_gap_that_reduces_nothing_is_remembered(file: bytes) -> None:
    for gap, lazy in ((None, True), (1.0, False), (2.0, False), (3.0, True), (5, True)):
        expected = opened(file).convert("RGB").resize((38, 30), Image.Resampling.BILINEAR, reducing_gap=gap)
        with wf.accelerate():
            image = opened(file).convert("RGB")
        made = image.resize((38, 30), Image.Resampling.BILINEAR, reducing_gap=gap)
        assert is_lazy(made) == (lazy or gap == 2.0), gap
        assert made.tobytes() == expected.tobytes()
    with wf.accelerate():
        image = opened(file).convert("RGB")
    with pytest.raises(ValueError, match=r"reducing_gap must be 1\.0 or greater"):
        image.resize((38, 30), reducing_gap=0.5)
