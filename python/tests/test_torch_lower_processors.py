"""Image processors of Hugging Face in data sets of `datasets`, and of the user's own."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from transformers import BitImageProcessor, CLIPImageProcessor, SiglipImageProcessor, ViTImageProcessor

import wellfed as wf
from pictures import picture
from wellfed.torch._lower.resampling import different_tensors

pytestmark = pytest.mark.skipif(bool(different_tensors()), reason=different_tensors() or "equal")

SMALL = {"height": 40, "width": 32}
PROCESSORS: list[Any] = [
    ViTImageProcessor(size=SMALL),
    CLIPImageProcessor(size={"shortest_edge": 31}, crop_size={"height": 28, "width": 31}),
    SiglipImageProcessor(size=SMALL, image_mean=[0.1, 0.2, 0.3], image_std=[1.0, 0.5, 2.0]),
    BitImageProcessor(size={"shortest_edge": 40}, crop_size=24, resample=2, do_normalize=False),
    ViTImageProcessor(size=SMALL, do_rescale=False, do_normalize=False),
    ViTImageProcessor(size=SMALL, do_rescale=False),
]


def encoded(number: int) -> bytes:
    held = io.BytesIO()
    Image.fromarray(picture(number, 60 + 9 * number, 80 - 5 * number)).save(held, "JPEG")
    return held.getvalue()


def table() -> Any:
    images = [{"bytes": encoded(number), "path": None} for number in range(7)]
    rows = datasets.Dataset.from_dict({"image": images, "label": list(range(7))})
    return rows.cast_column("image", datasets.Image())


def same_batches(theirs: Any, ours: Any) -> None:
    for one, other in zip(theirs, ours, strict=True):
        assert type(one) is type(other)
        assert list(one) == list(other)
        for key in one:
            assert one[key].dtype == other[key].dtype
            assert one[key].shape == other[key].shape
            assert (one[key].double() - other[key].double()).abs().max() <= 1e-5 * one[key].abs().max()


def feeds(dataset: Any, native: bool = True) -> Any:
    theirs: Any = stock.DataLoader(dataset, batch_size=3)
    ours = wf.feed(theirs)
    assert ("the engine makes whole batches" in ours.explain()) == native, ours.explain()
    same_batches(theirs, ours)
    return ours


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda processor: type(processor).__name__)
def test_rows_with_a_transform(processor: Any) -> None:
    def transform(rows: Any) -> Any:
        inputs = processor([image.convert("RGB") for image in rows["image"]], return_tensors="pt")
        inputs["labels"] = rows["label"]
        return inputs

    ours = feeds(table().with_transform(transform))
    assert type(processor).__name__ in ours.explain()


class OfFiles(stock.Dataset[Any]):
    def __init__(self, paths: list[Path], processor: Any) -> None:
        self.paths, self.processor = paths, processor

    def __len__(self) -> int:
        return len(self.paths)


class Item(OfFiles):
    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        inputs = self.processor(images=image, return_tensors="pt")
        return {"pixel_values": inputs["pixel_values"].squeeze(0), "labels": index}


class Attribute(OfFiles):
    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return {"pixel_values": self.processor([image], return_tensors="pt").pixel_values[0], "labels": index}


class WithBatch(OfFiles):
    """The batch of one stays."""

    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        return dict(self.processor(images=image, return_tensors="pt"))


class AnyMode(OfFiles):
    """Images keep the mode of their files, of which a processor makes what it makes."""

    def __getitem__(self, index: int) -> Any:
        inputs = self.processor(Image.open(self.paths[index]), return_tensors="pt")
        return {"pixel_values": inputs["pixel_values"][0]}


class Arrays(OfFiles):
    def __getitem__(self, index: int) -> Any:
        image = Image.open(self.paths[index]).convert("RGB")
        inputs = self.processor(image, return_tensors="np")
        return {"pixel_values": inputs["pixel_values"][0]}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for number in range(5):
        (tmp_path / f"{number}.jpg").write_bytes(encoded(number))
    return sorted(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "native"),
    [(Item, True), (Attribute, True), (WithBatch, False), (AnyMode, False), (Arrays, False)],
)
def test_data_sets_of_ones_own(paths: list[Path], kind: Any, native: bool) -> None:
    feeds(kind(paths, PROCESSORS[1]), native)


def test_settings_count_when_they_are_changed(paths: list[Path]) -> None:
    processor: Any = ViTImageProcessor(size=SMALL)
    dataset = Item(paths, processor)
    ours = feeds(dataset)
    processor.image_mean = (0.0, 0.25, 1.0)
    same_batches(stock.DataLoader(dataset, batch_size=3), ours)


class Darker(ViTImageProcessor):
    def rescale_and_normalize(self, images: Any, *args: Any) -> Any:
        made: torch.Tensor = super().rescale_and_normalize(images, *args)
        return made / 2


def test_what_does_more_stays_in_python(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = feeds(Item(paths, Darker(size=SMALL)), native=False)
    assert "rescale_and_normalize() of its own" in ours.explain()
    for more, why in (
        ({"do_pad": True, "pad_size": {"height": 50, "width": 50}}, "it pads"),
        ({"resample": 0}, "resample"),
        ({"do_center_crop": True, "crop_size": 64}, "may be larger"),
        ({"do_normalize": False, "rescale_factor": 1 / 127}, "rescale_factor"),
    ):
        ours = feeds(Item(paths, ViTImageProcessor(**{"size": SMALL, **more})), native=False)
        assert why in ours.explain(), ours.explain()
    monkeypatch.setattr(ViTImageProcessor, "resize", lambda self, image, **more: image[..., :20, :20])
    feeds(Item(paths, ViTImageProcessor(size=SMALL)), native=False)


def test_pixels_that_differ_are_left_to_the_processor(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from wellfed.torch._lower import processors

    monkeypatch.setattr(processors, "_checked", {})
    monkeypatch.setattr(processors, "_FILTERS", {2: "bilinear"})
    draw = np.random.default_rng(0)
    mean = draw.random(3).tolist()
    ours = feeds(Item(paths, ViTImageProcessor(size=SMALL, image_mean=mean)), native=False)
    assert "other pixels here than is known" in ours.explain()
