"""The advice of `explain()` is followed here as it is written: it must run, and make more of the loader native."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pictures import write_folder
from wellfed.torch import DataLoader


class Texts(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return "word " * i


class Lines(IterableDataset):
    def __iter__(self):
        return iter(["a", "b"])


def rotated(image):
    """Of Pillow images only."""
    return image.rotate(10)


def halved(image):
    """Of tensors only."""
    return image / torch.tensor(2.0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_folder(tmp_path, 6)


def advice(loader) -> list[tuple[str, str]]:
    return [
        (line.part, line.change) for _, line in loader._planned().lines if not line.native and line.change
    ]


CHAINS = {
    "pillow": [
        transforms.Resize((16, 16)),
        rotated,
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ],
    "to tensor": [transforms.Resize((16, 16)), rotated, transforms.ToTensor()],
    "normalize": [
        rotated,
        transforms.Resize((8, 8)),
        transforms.ToTensor(),
        transforms.Normalize((0.5,) * 3, (0.5,) * 3),
    ],
    "tensors": [
        transforms.Resize((8, 8)),
        transforms.ToTensor(),
        halved,
        transforms.Normalize((0.5,) * 3, (0.5,) * 3),
    ],
    "augment": [transforms.Resize((8, 8)), rotated, transforms.AutoAugment(), transforms.ToTensor()],
}


@pytest.mark.parametrize("name", CHAINS)
def test_nothing_is_moved_before_functions_that_may_do_anything(name, photos: Path):
    chain = transforms.Compose(CHAINS[name])
    loader = DataLoader(ImageFolder(str(photos), chain), batch_size=2)
    assert [change for _, change in advice(loader)] == []
    function = rotated if rotated in chain.transforms else halved
    assert f"comes after {function.__name__}, which is Python" in loader.explain()


def test_transforms_are_moved_only_where_that_runs_and_gives_the_same(photos: Path):
    stopped = v2.RandomChannelPermutation()
    flip = transforms.RandomHorizontalFlip()
    chain = [transforms.Resize((16, 16)), stopped, flip, transforms.RandomCrop(8), transforms.ToTensor()]
    loader = DataLoader(ImageFolder(str(photos), transforms.Compose(chain)), batch_size=2)
    before = loader.explain().count("  native ")
    moves = [(part, change) for part, change in advice(loader) if change.startswith("move it before ")]
    assert moves == [(str(flip), "move it before RandomChannelPermutation")], loader.explain()
    followed = [chain[0], flip, stopped, *chain[3:]]
    again = DataLoader(ImageFolder(str(photos), transforms.Compose(followed)), batch_size=2)
    assert next(iter(again))[0].shape == (2, 3, 8, 8)
    assert again.explain().count("  native ") > before


def test_a_pipeline_of_albumentations_is_not_told_to_take_torchvisions_transforms(photos: Path):
    A = pytest.importorskip("albumentations")
    from albumentations.pytorch import ToTensorV2

    from wellfed.torch import Albumentations

    for first in (A.RandomResizedCrop((16, 16)), A.CenterCrop(16, 16, pad_if_needed=True)):
        pipeline = A.Compose([first, A.HorizontalFlip(), A.Normalize(), ToTensorV2()])
        loader = DataLoader(ImageFolder(str(photos), Albumentations(pipeline)), batch_size=2)
        changes = [change for _, change in advice(loader)]
        assert all(change == f"move it before {type(first).__name__}" for change in changes), loader.explain()
        assert [part for part, change in advice(loader) if part.startswith(("Normalize", "ToTensor"))] == []


@pytest.mark.parametrize("dataset", [Texts(), Lines()])
def test_a_data_set_of_text_is_not_told_to_become_a_folder_of_images(dataset):
    text = DataLoader(dataset, batch_size=2).explain()
    assert "ImageFolder" not in text
    assert "to make more of it native" not in text
