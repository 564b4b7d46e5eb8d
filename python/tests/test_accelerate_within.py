"""Without workers, images are lazy while samples are made, in that thread only, and none of them stays lazy."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, JpegImagePlugin
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Dataset

import wellfed as wf
import wellfed.torch as wt
from pictures import picture
from wellfed._accelerate.images import pillow


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{i}.jpg" for i in range(5)]
    for i, path in enumerate(paths):
        Image.fromarray(picture(i, 40 + i, 50)).save(path)
    return paths


class Photos(Dataset[Any]):
    """Keeps what it opened, and looks at what it is."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths, self.kinds, self.kept = paths, set(), []
        self.elsewhere: list[type] = []

    def __len__(self) -> int:
        return len(self.paths)

    def open_elsewhere(self, i: int) -> None:
        with Image.open(self.paths[i]) as image:
            self.elsewhere.append(type(image))

    def __getitem__(self, i: int) -> Any:
        opened = Image.open(self.paths[i])
        image = opened.convert("RGB")
        self.kinds.add(type(image))
        self.kept += [opened, image, image.crop((0, 0, 9, 7))]
        thread = threading.Thread(target=self.open_elsewhere, args=(i,))
        thread.start()
        thread.join()
        return image, torch.from_numpy(np.array(image.resize((20, 10))))


def kind(path: Path) -> type:
    with Image.open(path) as image:
        return type(image)


def as_they_are(batch: list[Any]) -> Any:
    return batch[:]


def test_images_are_lazy_in_the_block_only(paths: list[Path]) -> None:
    data, other = Photos(paths), Photos(paths)
    opener = Image.OPEN["JPEG"]
    loader = wt.DataLoader(data, batch_size=2, collate_fn=as_they_are)
    seen = 0
    batches = iter(loader)
    for batch, stock in zip(batches, Stock(other, batch_size=2, collate_fn=as_they_are), strict=True):
        assert kind(paths[0]) is JpegImagePlugin.JpegImageFile
        for (image, array), (want, pixels) in zip(batch, stock, strict=True):
            assert type(image) is Image.Image
            assert image == want
            assert torch.equal(array, pixels)
            seen += 1
    assert seen == len(paths)
    assert data.kinds == {pillow().lazy}
    assert other.kinds == {Image.Image}
    assert set(data.elsewhere) == {JpegImagePlugin.JpegImageFile}
    for kept, want in zip(data.kept, other.kept, strict=True):
        assert type(kept) is type(want)
        assert kept.tobytes() == want.tobytes()
    assert Image.OPEN["JPEG"] is opener


def test_everything_is_given_back_early_too(paths: list[Path]) -> None:
    gc.collect()  # iterators of other tests may still have it
    opener = Image.OPEN["JPEG"]
    batches = iter(wt.DataLoader(Photos(paths), collate_fn=as_they_are))
    next(batches)
    assert Image.OPEN["JPEG"] is not opener
    del batches
    assert Image.OPEN["JPEG"] is opener
    # Who asked for it everywhere has it everywhere, whoever else comes and goes.
    with wf.accelerate():
        for _ in wt.DataLoader(Photos(paths), collate_fn=as_they_are):
            assert kind(paths[0]) in pillow().kinds
        assert kind(paths[0]) in pillow().kinds
    assert Image.OPEN["JPEG"] is opener


def test_it_can_be_switched_off_and_errors_are_those_of_the_data_set(paths: list[Path]) -> None:
    data = Photos(paths)
    list(wt.DataLoader(data, collate_fn=as_they_are, accelerate=False))
    assert data.kinds == {Image.Image}
    paths[1].write_bytes(paths[1].read_bytes()[:300])
    for loader in (wt.DataLoader(Photos(paths), batch_size=None), Stock(Photos(paths), batch_size=None)):
        with pytest.raises(OSError, match=r"(?i)truncated"):
            list(loader)
    assert kind(paths[0]) is JpegImagePlugin.JpegImageFile


def test_nested_loaders_keep_their_own(paths: list[Path]) -> None:
    class Outer(Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            before = Image.open(paths[i]).convert("RGB")
            inner = list(wt.DataLoader(Photos(paths), batch_size=3, collate_fn=as_they_are))
            after = Image.open(paths[i]).convert("RGB")
            kinds = {type(image) for batch in inner for image, _ in batch}
            return type(before), type(after), kinds, before == after

    (one, two) = wt.DataLoader(Outer(), batch_size=None)
    for before, after, kinds, equal in (one, two):
        assert before is after is pillow().lazy
        assert kinds == {Image.Image}
        assert equal
