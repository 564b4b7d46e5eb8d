"""Collate functions of the user's own that stack samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision import datasets, transforms

import wellfed as wf
from pictures import picture
from torch_same import same

CHAIN = transforms.Compose([transforms.Resize((20, 24)), transforms.ToTensor()])


class Rows(stock.Dataset[Any]):
    """Samples that are dictionaries."""

    def __init__(self, paths: list[Path], labels: Any = None) -> None:
        self.paths, self.labels = paths, list(range(len(paths))) if labels is None else labels

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = CHAIN(Image.open(self.paths[index]).convert("RGB"))
        return {"pixel_values": image, "label": self.labels[index]}


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    for number in range(7):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        Image.fromarray(picture(number, 30 + number, 40)).save(folder / f"{number}.jpg")
    return sorted(tmp_path.rglob("*.jpg"))


def of_hugging_face(batch: Any) -> Any:
    return {
        "pixel_values": torch.stack([sample["pixel_values"] for sample in batch]),
        "label": torch.tensor([sample["label"] for sample in batch]),
    }


def through_variables(batch: Any) -> Any:
    images = [x["pixel_values"] for x in batch]
    labels = torch.tensor([x["label"] for x in batch], dtype=torch.long)
    pixels = torch.stack(images, dim=0)
    return {"pixel_values": pixels, "label": labels}


def renamed(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch])
    return {"pixel_values": stacked, "labels": torch.tensor([sample["label"] for sample in batch])}


def side_by_side(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch])
    return torch.tensor([sample["label"] for sample in batch]), stacked


def twice(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch])
    return {"pixel_values": stacked, "again": torch.stack([sample["pixel_values"] for sample in batch])}


def of_floats(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch])
    labels = torch.tensor([sample["label"] for sample in batch], dtype=torch.float32)
    return {"pixel_values": stacked, "label": labels}


def last_first(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch], -1)
    return {"pixel_values": stacked, "label": torch.tensor([sample["label"] for sample in batch])}


def shifted(batch: Any) -> Any:
    stacked = torch.stack([sample["pixel_values"] for sample in batch])
    return {"pixel_values": stacked, "label": torch.tensor([sample["label"] + 1 for sample in batch])}


def feeds(dataset: Any, collate: Any, native: bool) -> None:
    theirs: Any = stock.DataLoader(dataset, batch_size=3, collate_fn=collate)
    ours = wf.feed(theirs)
    assert ("the engine makes whole batches" in ours.explain()) == native, ours.explain()
    for one, other in zip(theirs, ours, strict=True):
        assert type(one) is type(other)
        assert same(one, other)


@pytest.mark.parametrize(
    ("collate", "native"),
    [
        (of_hugging_face, True),
        (through_variables, True),
        (renamed, True),
        (side_by_side, True),
        (twice, False),
        (of_floats, False),
        (last_first, False),
        (shifted, False),
    ],
)
def test_dictionaries(paths: list[Path], collate: Any, native: bool) -> None:
    feeds(Rows(paths), collate, native)


def test_labels_that_are_no_whole_numbers_are_left_to_the_function(paths: list[Path]) -> None:
    feeds(Rows(paths, [0.5] * len(paths)), of_hugging_face, False)
    feeds(Rows(paths, [True] * len(paths)), of_hugging_face, False)


def pairs(batch: Any) -> Any:
    images, labels = zip(*batch)
    return torch.stack(images), torch.tensor(labels)


def by_place(batch: Any) -> Any:
    images = torch.stack([item[0] for item in batch], 0)
    labels = torch.LongTensor([item[1] for item in batch])
    return [images, labels]


def swapped(batch: Any) -> Any:
    images, labels = zip(*batch)
    return torch.tensor(labels), torch.stack(images)


def arrays(batch: Any) -> Any:
    images, labels = zip(*batch)
    return torch.stack([torch.as_tensor(image) for image in images]), torch.tensor(labels)


@pytest.mark.parametrize(
    ("collate", "native"), [(pairs, True), (by_place, True), (swapped, True), (arrays, False)]
)
def test_samples_of_torchvision(paths: list[Path], collate: Any, native: bool) -> None:
    dataset: Any = datasets.ImageFolder(str(paths[0].parents[1]), CHAIN)
    feeds(dataset, collate, native)
    feeds(stock.Subset(dataset, [4, 1, 1, 6]), collate, native)
    dataset.target_transform = str
    if collate is pairs:
        with pytest.raises((TypeError, ValueError)):
            next(iter(wf.feed(stock.DataLoader(dataset, batch_size=3, collate_fn=collate))))


def test_a_function_that_was_changed_is_read_again(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours: Any = wf.feed(stock.DataLoader(Rows(paths), batch_size=3, collate_fn=of_hugging_face))
    first = next(iter(ours))
    assert "native" in ours.explain().splitlines()[0]

    stack = torch.stack
    doubled = SimpleNamespace(stack=lambda images: stack(images) * 2, tensor=torch.tensor)
    monkeypatch.setitem(of_hugging_face.__globals__, "torch", doubled)
    second = next(iter(ours))
    assert same(first["pixel_values"] * 2, second["pixel_values"])


def test_the_collators_of_transformers(paths: list[Path]) -> None:
    collators = pytest.importorskip("transformers.data.data_collator")
    for collate in (collators.default_data_collator, collators.DefaultDataCollator()):
        feeds(Rows(paths), collate, True)
        feeds(Rows(paths, [0.5] * len(paths)), collate, False)
    ours: Any = wf.feed(stock.DataLoader(Rows(paths), batch_size=3, collate_fn=(held := collate)))
    assert list(next(iter(ours))) == ["labels", "pixel_values"]
    held.return_tensors = "np"
    assert "the engine makes whole batches" not in ours.explain()


def test_images_of_bytes_are_collated_as_timm_does(paths: list[Path]) -> None:
    loader = pytest.importorskip("timm.data.loader")
    for last, native in ((transforms.PILToTensor(), True), (transforms.ToTensor(), False)):
        chain = transforms.Compose([transforms.Resize((20, 24)), last])
        dataset: Any = datasets.ImageFolder(str(paths[0].parents[1]), chain)
        feeds(dataset, loader.fast_collate, native)


def test_rows_that_keep_the_image_that_was_transformed(paths: list[Path]) -> None:
    """As in Hugging Face's example of image classification."""
    hugging = pytest.importorskip("datasets")

    def transform(rows: Any) -> Any:
        rows["pixel_values"] = [CHAIN(image.convert("RGB")) for image in rows["image"]]
        return rows

    given = {"image": [str(path) for path in paths], "label": list(range(len(paths)))}
    dataset = hugging.Dataset.from_dict(given).cast_column("image", hugging.Image())
    dataset.set_transform(transform)
    feeds(dataset, renamed, True)
    feeds(dataset, of_hugging_face, True)
    feeds(dataset, lambda batch: [sample["image"].size for sample in batch], False)
    with pytest.raises(TypeError):
        next(iter(wf.feed(stock.DataLoader(dataset, batch_size=3))))
