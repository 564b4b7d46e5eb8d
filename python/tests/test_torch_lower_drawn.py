"""Flips and crops that data sets draw themselves: samples are such as they might have made, and are drawn as often."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as T
from PIL import Image
from torch.utils import data as stock

import drawn_sets as drawn
import several_sets as sets
import wellfed as wf
import wellfed.torch as wt
from test_torch_lower_several import native
from torch_same import same


class Choices:
    """Stands for what draws, and gives what it is told; each outcome of a data set can be had so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.below = [False] * 4
        self.at = 0, 0
        self._place = 0
        # Whatever the bound is, 0 is below it, and 0.999 is not.
        monkeypatch.setattr(random, "random", self._number)
        monkeypatch.setattr(random, "randint", lambda low, high: high if self._next() else low)
        monkeypatch.setattr(np.random, "rand", self._number)
        monkeypatch.setattr(np.random, "randint", lambda high: high - 1 if self._next() else 0)
        monkeypatch.setattr(torch, "rand", lambda size: torch.full((size,), self._number()))
        for kind in (T.RandomCrop, T.RandomResizedCrop):
            monkeypatch.setattr(kind, "get_params", staticmethod(lambda *a, **k: (*self.at, 30, 36)))

    def _next(self) -> bool:
        self._place += 1
        return self.below[self._place - 1]

    def _number(self) -> float:
        return 0.0 if self._next() else 0.999

    def sample(self, dataset: Any, row: int, *below: bool, at: tuple[int, int] = (0, 0)) -> Any:
        self.below, self.at, self._place = [*below, *[False] * 4], at, 0
        return dataset[row]


def drawn_by(dataset: Any, **more: Any) -> list[Any]:
    """Samples of one epoch, in order, that the engine has made."""
    loader = wf.feed(stock.DataLoader(dataset, batch_size=4, **more))
    assert native(loader), loader.explain()
    found: list[Any] = []
    for batch in loader:
        keys = list(batch) if isinstance(batch, dict) else range(len(batch))
        values = batch.values() if isinstance(batch, dict) else batch
        for parts in zip(*values, strict=True):
            found.append(dict(zip(keys, parts, strict=True)) if isinstance(batch, dict) else parts)
    assert loader._planned().native_source.in_python == 0
    return found


def equal(sample: Any, made: Any) -> bool:
    if isinstance(made, dict):
        return same(sample, made)
    parts = [torch.as_tensor(part) for part in made]
    return all(map(torch.equal, sample, parts))


@pytest.mark.parametrize(
    ("kind", "flips"), [(drawn.Flipped, 2), (drawn.Tensors, 1)], ids=lambda x: getattr(x, "__name__", str(x))
)
def test_samples_are_flipped_with_their_masks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, flips: int
) -> None:
    dataset = kind(sets.write(tmp_path))
    torch.manual_seed(2)
    epochs = [drawn_by(dataset) for _ in range(3)]
    choices = Choices(monkeypatch)
    seen: set[Any] = set()
    ways = [[bool(n >> bit & 1) for bit in range(flips)] for n in range(1 << flips)]
    for samples in epochs:
        for row, sample in enumerate(samples):
            fits = [way for way in ways if equal(sample, choices.sample(dataset, row, *way))]
            assert len(fits) == 1
            seen.add(tuple(fits[0]))
    assert len(seen) == len(ways)


def places(sample: torch.Tensor, whole: torch.Tensor) -> list[tuple[int, int, bool, bool]]:
    """Where an image was cut out of another one, and how it was flipped then."""
    (_, height, width), (_, high, wide) = sample.shape, whole.shape
    found = []
    for way in range(4):
        across, down = bool(way & 1), bool(way & 2)
        turned = sample.flip([axis for axis, flip in ((2, across), (1, down)) if flip])
        parts = whole.unfold(1, height, 1).unfold(2, width, 1)
        equal = (parts == turned[:, None, None]).all(-1).all(-1).all(0)
        found += [(i, j, across, down) for i, j in equal.nonzero().tolist()]
    assert parts.shape[1:3] == (high - height + 1, wide - width + 1)
    return found


@pytest.mark.parametrize("mode", ["P", "I;16", "1"])
def test_masks_are_cut_and_flipped_with_their_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    dataset = drawn.Cropped(sets.write(tmp_path, mode))
    torch.manual_seed(1)
    samples = drawn_by(dataset)
    choices = Choices(monkeypatch)
    seen = set()
    for row, sample in enumerate(samples):
        ((i, j, way, down),) = places(
            sample[0], drawn.TF.to_tensor(Image.open(dataset.images[row]).convert("RGB"))
        )
        assert not down
        assert equal(sample, choices.sample(dataset, row, way, at=(i, j)))
        seen.add((i, j, way))
    assert len(seen) > 5


def test_several_images_are_moved_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = drawn.Pairs(sets.write(tmp_path))
    torch.manual_seed(5)
    samples = drawn_by(dataset, num_workers=2)
    choices = Choices(monkeypatch)
    seen = set()
    for row, sample in enumerate(samples):
        whole = drawn.TF.resize(Image.open(dataset.images[row]).convert("RGB"), (33, 41))
        ((i, j, one, other),) = places(sample[0], drawn.TF.to_tensor(whole))
        assert equal(sample, choices.sample(dataset, row, one, other, at=(i, j)))
        seen.add((i, j, one, other))
    assert len(seen) > 5


def test_parts_of_any_size_are_the_same_of_several_images(tmp_path: Path) -> None:
    """The other image is the first one in grey, resized from the same pixels: where one is bright, so is the other."""
    root = sets.write(tmp_path)
    for path in root.glob("images/*"):
        Image.fromarray(np.tile(np.arange(52, dtype=np.uint8) * 4, (40, 1))).save(path.with_suffix(".png"))
        path.unlink()
    for one, other in drawn_by(drawn.Zoomed(root)):
        assert (one[0] - other[0]).abs().max() < 3 / 255
        assert other.max() - other.min() > 0.2


def test_an_image_alone_is_drawn_as_often(tmp_path: Path) -> None:
    root = sets.write(tmp_path, count=1)
    values = np.zeros((30, 36, 3), np.uint8)
    values[0, 0] = 255
    Image.fromarray(values).save(root / "images" / "000.png")
    (root / "images" / "000.jpg").unlink()
    torch.manual_seed(0)
    samples = drawn_by(drawn.Alone(root), sampler=[0] * 1000)
    counts = torch.stack([image[0] for image, _ in samples]).round().sum(0)
    corners = [int(counts[y, x]) for y in (0, -1) for x in (0, -1)]
    assert sum(corners) == 1000
    # 0.4, 0.4, 0.1 and 0.1 of a thousand, at most five standard deviations away.
    for count, wanted in zip(corners, (400, 400, 100, 100), strict=True):
        assert abs(count - wanted) < 80


def test_what_is_not_drawn_is_that_of_the_data_set(tmp_path: Path) -> None:
    class Never(drawn.Base):
        training = False

        def transform(self, image: Any, mask: Any) -> Any:
            if self.training and random.random() < 0.5:
                image, mask = drawn.TF.hflip(image), drawn.TF.hflip(mask)
            if random.random() < 0.0:
                image, mask = drawn.TF.vflip(image), drawn.TF.vflip(mask)
            image = drawn.TF.resize(image, (30, 36))
            return image, drawn.TF.resize(mask, (30, 36), drawn.InterpolationMode.NEAREST)

    dataset = Never(sets.write(tmp_path))
    loader = wf.feed(stock.DataLoader(dataset, batch_size=4))
    assert native(loader), loader.explain()
    assert same(list(loader), list(stock.DataLoader(dataset, batch_size=4)))


def test_it_goes_on_where_it_was_with_the_same_draws(tmp_path: Path) -> None:
    for dataset in (drawn.Flipped(sets.write(tmp_path)), drawn.Pairs(tmp_path)):
        make = lambda dataset=dataset: wt.DataLoader(dataset, batch_size=3, shuffle=True, num_workers=1)  # noqa: E731
        torch.manual_seed(4)
        iterator = iter(loader := make())
        next(iterator)
        state = loader.state_dict()
        rest = list(iterator)
        again = make()
        again.load_state_dict(state)
        assert same(rest, list(again))


@pytest.mark.parametrize("kind", drawn.REFUSED, ids=lambda kind: kind.__name__)
def test_what_is_drawn_otherwise_is_drawn_by_the_data_set(tmp_path: Path, kind: Any) -> None:
    root = sets.write(tmp_path)
    theirs: Any = stock.DataLoader(kind(root), batch_size=4, collate_fn=list)
    ours = wf.feed(theirs)
    assert re.search(drawn.REFUSED[kind], ours.explain()), ours.explain()
    found = []
    for loader in (theirs, ours):
        random.seed(3)
        torch.manual_seed(3)
        found.append(list(loader))
    assert same(*found)
