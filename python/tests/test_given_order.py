"""Batches whose samples the caller chooses: the door through which samplers of other frameworks come in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wellfed as wf
from wellfed import _loader, _native
from wellfed import transforms as T
from wellfed._loader import BadSample, to_numpy


def given(ds: wf.Dataset, **options: Any) -> _native.Loader:
    return ds.with_options(**options)._native.loader_given()


def photo_set(photos: Path) -> wf.Dataset:
    return wf.image_folder(photos).map(T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor())


def drain(loader: _native.Loader) -> Iterator[tuple[Any, ...]]:
    while (columns := loader.next()) is not None:
        yield tuple(map(to_numpy, columns))


def run(loader: _native.Loader, batches: Sequence[Any], seed: int = 3, position: int = 0) -> list[Any]:
    loader.begin(seed, position)
    for batch in batches:
        loader.submit(batch)
    loader.finish()
    return list(drain(loader))


def equal(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


BATCHES = [[5, 0, 5, 23], [1], [7, 7, 7], [20, 19, 18, 17, 16], [2, 3]]


def test_batches_come_as_submitted_with_the_same_bits_whatever_runs(photos: Path) -> None:
    expected = run(given(photo_set(photos), num_workers=1), BATCHES)
    assert [len(labels) for _, labels in expected] == [len(batch) for batch in BATCHES]
    labels = [int(wf.image_folder(photos).sample(i)[1]) for batch in BATCHES for i in batch]
    assert np.concatenate([labels for _, labels in expected]).tolist() == labels
    for workers, readers, prefetch in ((2, 0, 1), (3, 2, 4), (3, 0, 64)):
        loader = given(photo_set(photos), num_workers=workers, read_ahead=readers, prefetch=prefetch)
        for _ in range(2):
            assert equal(run(loader, BATCHES), expected)


def test_a_sample_that_occurs_twice_draws_twice_and_seeds_differ(photos: Path) -> None:
    loader = given(photo_set(photos), num_workers=2)
    images = run(loader, [[7, 7, 7]])[0][0]
    assert not np.array_equal(images[0], images[1])
    assert not np.array_equal(images[1], images[2])
    assert not np.array_equal(run(loader, [[7, 7, 7]], seed=4)[0][0], images)


def test_a_pass_goes_on_from_any_position_however_it_is_cut(photos: Path) -> None:
    loader = given(photo_set(photos), num_workers=2)
    flat = [index for batch in BATCHES for index in batch]
    whole = np.concatenate([images for images, _ in run(loader, BATCHES)])
    for position in (1, 4, 9, len(flat) - 1):
        rest = np.concatenate([images for images, _ in run(loader, [flat[position:]], position=position)])
        assert np.array_equal(rest, whole[position:])


def test_a_pass_can_be_abandoned_and_fed_while_it_runs(photos: Path) -> None:
    loader = given(photo_set(photos), num_workers=2)
    expected = run(loader, BATCHES)
    loader.begin(9)
    for _ in range(20):
        loader.submit(list(range(24)))
    loader.next()
    loader.begin(3)
    got = []
    for batch in BATCHES:
        loader.submit(batch)
        columns = loader.next()
        assert columns is not None
        got.append(tuple(map(to_numpy, columns)))
    loader.finish()
    assert [loader.next(), loader.next()] == [None, None]
    assert equal(got, expected)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_indices_may_be_lists_arrays_or_tensors(dtype: type) -> None:
    loader = given(wf.from_tensor_slices(np.arange(100)))
    order = np.random.default_rng(0).permutation(100)
    batches: list[Any] = [
        order[:10].tolist(),
        order[10:20].astype(dtype),
        torch.from_numpy(order[20:30].astype(dtype)),
        order[30:90:3],
        tuple(order[90:]),
        list(torch.from_numpy(order[:3])),
    ]
    got = run(loader, batches)
    for (values,), batch in zip(got, batches):
        assert values.tolist() == [int(i) for i in batch]
    assert loader.depth >= 1


def test_what_is_no_sample_is_an_index_error_and_spoils_nothing() -> None:
    loader = given(wf.from_tensor_slices(np.arange(10)))
    loader.begin(0)
    for bad in ([1, -3], np.array([1, -3])):
        with pytest.raises(IndexError, match=r"index -3 \(place 1") as caught:
            loader.submit(bad)
        assert isinstance(caught.value, wf.SampleIndexError)
    with pytest.raises(IndexError, match=r"index 10 .*from 0 to 9"):
        loader.submit([10])
    with pytest.raises(ValueError, match="without samples"):
        loader.submit([])
    for wrong in (np.zeros(2), np.zeros((2, 2), np.int64), "ab"):
        with pytest.raises(TypeError):
            loader.submit(wrong)
    loader.submit([4])
    loader.finish()
    assert [values.tolist() for (values,) in drain(loader)] == [[4]]


def test_asking_out_of_turn_is_an_error_not_a_hang() -> None:
    ds = wf.from_tensor_slices(np.arange(10))
    loader = given(ds)
    for call in (loader.next, loader.finish, lambda: loader.submit([1])):
        with pytest.raises(wf.StateError, match="pass"):
            call()
    loader.begin(0)
    with pytest.raises(wf.StateError, match="not finished"):
        loader.next()
    loader.submit([3])
    assert loader.next() is not None
    with pytest.raises(wf.StateError, match="not finished"):
        loader.next()
    loader.finish()
    assert loader.next() is None
    with pytest.raises(wf.StateError, match="outside of a pass"):
        loader.submit([1])
    for call in (loader.start_epoch, loader.state_dict, lambda: loader.set_epoch(1)):
        with pytest.raises(wf.StateError, match="order from the caller"):
            call()
    with pytest.raises(wf.StateError, match="order of its plan"):
        ds._native.loader().begin(0)
    with pytest.raises(ValueError, match="order of its own"):
        given(ds.shuffle())
    assert loader.length() is None


def test_a_batch_above_the_budget_is_refused_with_numbers() -> None:
    loader = given(wf.from_tensor_slices(np.zeros((1000, 1000), np.float32)), memory_budget=1 << 20)
    loader.begin(0)
    with pytest.raises(wf.LimitExceededError, match=r"200 samples take 1600000 bytes.*1048576"):
        loader.submit(list(range(200)))
    for size in (100, 3, 64, 100, 1) * 20:
        loader.submit([0] * size)
    loader.finish()
    for (values,) in drain(loader):
        assert not values.any()
        assert _loader.Stats(*loader.stats())["memory"] <= 1 << 20


@pytest.fixture
def damaged(own_photos: Path) -> Path:
    victim = sorted(own_photos.glob("*/*.jpg"))[3]
    victim.write_bytes(victim.read_bytes()[:300])
    return own_photos


def test_bad_samples_are_listed_with_their_place(damaged: Path) -> None:
    ds = wf.image_folder(damaged).map(T.RandomResizedCrop(24))
    loader = given(ds, on_error="raise")
    (bad,) = (i for i in range(12) if not readable(ds, i))
    others = [i for i in range(12) if i != bad]

    loader.begin(0)
    for batch in ([others[0], bad], [others[1]]):
        loader.submit(batch)
    loader.finish()
    with pytest.raises(wf.CorruptSampleError) as caught:
        loader.next()
    assert caught.value.index == bad
    assert len(list(drain(loader))) == 1, "the batch after it comes"

    loader = given(ds, on_error="skip")
    got = run(loader, [[others[0], bad], [bad], [others[1]]])
    assert [len(labels) for _, labels in got] == [1, 0, 1], "every batch is answered"
    assert got[1][0].shape == (0, 3, 24, 24)
    first, second = (BadSample(*fields) for fields in loader.errors())
    assert (first.index, first.position, first.batch, first.replaced) == (bad, 1, 0, False)
    assert (second.index, second.position, second.batch) == (bad, 2, 1)
    assert first.epoch != second.epoch, "that of its draws, for dataset.sample"

    loader = given(ds, on_error="replace")
    images, labels = run(loader, [[others[0], bad, others[0]]])[0]
    assert (labels == labels[0]).all(), "replacements are of the same batch"
    assert not np.array_equal(images[0], images[1])
    assert BadSample(*loader.errors()[0]).replaced


def readable(ds: wf.Dataset, index: int) -> bool:
    try:
        ds.sample(index)
    except wf.CorruptSampleError:
        return False
    return True


def test_the_listed_epoch_replays_the_draws(photos: Path) -> None:
    """`BadSample.epoch` under a given order is what `Dataset.sample` takes."""
    ds = photo_set(photos)
    whole = run(given(ds), [[7, 8, 9]])[0][0]
    narrow = wf.image_folder(photos).map(T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor())
    loader = given(narrow.with_options(max_pixels=1), on_error="skip")
    run(loader, [[7, 8, 9]])
    for fields, image in zip(loader.errors(), whole):
        bad = BadSample(*fields)
        assert bad.index is not None
        assert np.array_equal(ds.sample(bad.index, bad.epoch)[0], image)


def test_caches_and_row_indexes_work_for_a_given_order(photos: Path) -> None:
    ds = wf.image_folder(photos)
    transforms = [T.RandomCrop(24), T.ToTensor()]
    plain = run(given(ds.map(*transforms), row_index="off"), BATCHES)
    indexed = given(ds.map(*transforms))
    cached = given(ds.cache().map(*transforms))
    for loader in (indexed, cached):
        for _ in range(2):
            assert equal(run(loader, BATCHES), plain)
    assert _loader.Stats(*indexed.stats())["row_index"]["used"] > 0
    assert _loader.Stats(*cached.stats())["cache"]["samples"] > 0
