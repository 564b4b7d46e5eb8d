"""Tensors of lazy images that worker processes put where their batch is to lie: batches are torch's all the same."""

from __future__ import annotations

import io
import os
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import _offer
from wellfed._accelerate.places import Places

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision.transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from wellfed.torch import DataLoader  # noqa: E402

SIDE, BATCH = 48, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for i in range(20):
        pixels = rng.integers(0, 256, (60 + i, 90 - i, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.jpg")
    return folder


def _steps(form: str) -> Any:
    normalize = wf.IMAGENET_MEAN, wf.IMAGENET_STD
    if form == "v2":
        scaled = v2.ToDtype(torch.float32, scale=True)
        steps = [v2.RandomResizedCrop(SIDE), v2.RandomHorizontalFlip(), v2.ToImage(), scaled]
        return v2.Compose([*steps, v2.Normalize(*normalize)])
    more = [v1.RandomErasing(0.5)] if form == "erasing" else []
    return v1.Compose([v1.RandomResizedCrop(SIDE), v1.ToTensor(), v1.Normalize(*normalize), *more])


class Photos(torch.utils.data.Dataset[Any]):
    """A data set that does with its tensors what `habits` says."""

    def __init__(self, folder: Path, form: str, habits: frozenset[str]) -> None:
        self.paths = sorted(folder.iterdir())
        self.steps = _steps(form)
        self.habits = habits
        self.kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        habits = self.habits
        if i in self.kept:
            return self.kept[i]
        image = Image.open(self.paths[i]).convert("RGB")
        if "early errors" in habits and i % 5 == 3:
            raise ValueError("no sample")
        tensor = self.steps(image)
        if "late errors" in habits and i % 7 == 2:
            raise ValueError("no sample after all")
        sample: tuple[Any, ...] = tensor, i
        if "two views" in habits:
            sample = tensor, self.steps(image), i
        if "one twice" in habits:
            sample = tensor, tensor, i
        if "an extra one" in habits and i % 3 == 0:
            self.steps(image)
        if "as array" in habits:
            sample = tensor.numpy(), i
        if "a part" in habits:
            sample = tensor[:, 1:], tensor, i
        if "writes" in habits:
            tensor.mul_(2)
        if "keeps" in habits:
            self.kept[i] = sample
        return {"sample": sample, "at": i} if "as dict" in habits else sample


HABITS = ["two views", "one twice", "an extra one", "as array", "a part", "writes", "keeps", "as dict"]


def _as_list(samples: list[Any]) -> list[Any]:
    return samples


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in _leaves(part)]
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def _same(theirs: Any, ours: Any, what: str) -> None:
    for expected, found in zip(_leaves(theirs), _leaves(ours), strict=True):
        assert type(found) is type(expected), what
        if isinstance(expected, torch.Tensor):
            assert found.dtype is expected.dtype, what
            assert torch.equal(found, expected), what
        elif isinstance(expected, np.ndarray):
            assert np.array_equal(found, expected), what
        else:
            assert found == expected, what


def _epochs(dataset: Any, accelerate: bool, workers: int, **arguments: Any) -> list[Any]:
    """Two epochs, whose batches are copied and then spoilt."""
    torch.manual_seed(7)
    loader: Any = DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=workers,
        accelerate=accelerate,
        persistent_workers=True,
        multiprocessing_context="fork",
        **arguments,
    )
    found = []
    for _ in range(2):
        for batch in loader:
            leaves = [leaf for leaf in _leaves(batch) if isinstance(leaf, (torch.Tensor, np.ndarray))]
            found.append([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf.copy() for leaf in leaves])
            for leaf in leaves:
                leaf[:] = 77
    return found


@pytest.mark.parametrize("seed", range(8))
def test_batches_are_torchs_whatever_is_done_to_samples(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    form = ["v1", "v2", "erasing"][seed % 3]
    habits = {habit for habit in HABITS if rng.random() < 0.25}
    arguments: dict[str, Any] = {}
    if seed % 2 and "keeps" not in habits:
        habits.add(rng.choice(["early errors", "late errors"]))
        arguments["on_error"] = rng.choice(["skip", "replace"])
    if rng.random() < 0.25:
        arguments["collate_fn"] = _as_list
    workers = rng.choice([1, 2])
    what = f"{form}, {sorted(habits)}, {arguments}, {workers} workers"
    theirs, ours = (
        _epochs(Photos(folder, form, frozenset(habits)), accelerate, workers, **arguments)
        for accelerate in (False, True)
    )
    assert len(ours) == len(theirs) > 4
    _same(theirs, ours, what)


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_what_a_data_set_keeps_stays_as_it_was(folder: Path, form: str) -> None:
    theirs, ours = (
        _epochs(Photos(folder, form, frozenset({"keeps", "two views"})), accelerate, 1)
        for accelerate in (False, True)
    )
    _same(theirs, ours, form)


class Counting(Photos):
    """Says how many columns of batches were made where their samples were put."""

    def __getitem__(self, i: int) -> Any:
        return super().__getitem__(i), _offer.current.collated


def test_a_data_set_that_keeps_samples_gets_no_more_places(folder: Path) -> None:
    class Keeping(Photos):
        def __getitem__(self, i: int) -> Any:
            tensor, _ = super().__getitem__(i)
            if i % BATCH == 0:
                self.kept[len(self.kept) + 1000] = tensor
            return tensor, _offer.current.collated, tensor.data_ptr()

    dataset = torch.utils.data.Subset(Keeping(folder, "v1", frozenset()), [*range(18)] * 3)
    batches = [batch[1:] for batch in DataLoader(dataset, BATCH, num_workers=1)]
    assert all((collated == 0).all() for collated, _ in batches), "every batch was copied after all"
    apart = [(addresses.diff() == 4 * 3 * SIDE * SIDE).all().item() for _, addresses in batches]
    assert apart == [True] * 4 + [False] * 5


@pytest.mark.parametrize("form", ["v1", "v2"])
@pytest.mark.parametrize("views", [1, 2])
def test_samples_lie_where_their_batch_does(folder: Path, form: str, views: int) -> None:
    habits = frozenset({"two views"} if views == 2 else ())
    dataset = torch.utils.data.Subset(Counting(folder, form, habits), [*range(18), *range(18)])
    counts = [count.max().item() for _, count in DataLoader(dataset, BATCH, num_workers=1)]
    # How many views there are is known from the second batch on.
    first = 0 if views == 2 else 1
    assert counts == [0, *(first + views * batch for batch in range(5))]


def _doubled(samples: list[Any]) -> Any:
    batch = torch.utils.data.default_collate(samples)
    batch[0][0] *= 2
    return batch, samples[0]


def test_collate_functions_of_ones_own_may_look_at_samples_again(folder: Path) -> None:
    theirs, ours = (
        _epochs(Photos(folder, "v1", frozenset()), accelerate, 1, collate_fn=_doubled)
        for accelerate in (False, True)
    )
    _same(theirs, ours, "doubled")


class Arena:
    """What a worker offers, without a worker."""

    collated = 0

    def place(self, size: int) -> Any:
        return np.zeros(size + 100, np.uint8)


def test_no_place_is_given_twice() -> None:
    places = Places(Arena())
    shape = (3, SIDE, SIDE)
    assert places.of(shape) is None, "no batch has begun"
    for _ in range(2):
        places.begin(8)
        found = [places.of(shape) for _ in range(16)]
        places.end()
        found = [place for place in found if place is not None]
        for number, place in enumerate(found):
            place[:] = number
        assert all((place == number).all() for number, place in enumerate(found))
    assert len(found) == 16, "there are two for each sample"
    places.begin(8)
    others: list[Any] = []
    thread = threading.Thread(target=lambda: others.append(places.of(shape)))
    thread.start()
    thread.join()
    assert others == [None]
    assert places.of((1, 2, 3)) is None, "small ones are copied"


def test_places_that_nobody_wants_are_not_given_for_ever() -> None:
    places = Places(Arena())
    given = []
    for _ in range(6):
        places.begin(8)
        given.append(places.of((3, SIDE, SIDE)) is not None)
        places.end()
    assert given == [True] * 4 + [False] * 2


class Forking(Photos):
    """Has a child make a tensor in the middle of a batch."""

    def __getitem__(self, i: int) -> Any:
        tensor, _ = super().__getitem__(i)
        child = os.fork()
        if child == 0:
            super().__getitem__(0)[0].fill_(5)
            os._exit(0)
        os.waitpid(child, 0)
        return tensor, i


def test_a_child_writes_nothing_into_the_batch_of_its_parent(folder: Path) -> None:
    theirs, ours = (
        _epochs(Forking(folder, "v1", frozenset()), accelerate, 1) for accelerate in (False, True)
    )
    _same(theirs, ours, "forked")


def test_a_saved_sample_is_no_larger_than_it_is(folder: Path) -> None:
    class Saved(Photos):
        def __getitem__(self, i: int) -> Any:
            tensor, _ = super().__getitem__(i)
            file = io.BytesIO()
            torch.save(tensor, file)
            return tensor, len(file.getvalue())

    for _, sizes in DataLoader(Saved(folder, "v1", frozenset()), BATCH, num_workers=1):
        assert sizes.max() < 2 * 4 * 3 * SIDE * SIDE
