"""Data sets put together, their states, and which epoch comes next."""

from __future__ import annotations

import json
import pickle
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from wellfed import transforms as T


def images(count: int, first: int) -> wf.Dataset:
    pixels = np.random.default_rng(first).integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    return wf.from_tensor_slices((pixels, np.arange(first, first + count))).shuffle(seed=first)


def mixture() -> wf.Dataset:
    parts = [images(97, 1000), images(41, 2000), images(13, 3000)]
    mixed = wf.sample_from_datasets(parts, weights=[0.6, 0.3, 0.1], seed=4)
    return mixed.map(T.RandomCrop(6, padding=2), T.RandomHorizontalFlip())


def samples(loader: wf.Loader) -> list[tuple[int, bytes]]:
    return [(int(y), x.tobytes()) for xs, ys in loader for x, y in zip(xs, ys, strict=True)]


@pytest.mark.usefixtures("epochs_not_counted")
def test_a_mixture_of_three_goes_on_from_anywhere_on_any_number_of_ranks() -> None:
    ds = mixture()
    whole = samples(ds.batch(8).numpy())
    assert len(whole) == len(set(whole)) == 151
    choose = random.Random(7)
    for _ in range(50):
        before, after = choose.randint(1, 5), choose.randint(1, 5)
        size, other = choose.randint(1, 9), choose.randint(1, 9)
        given: list[tuple[int, bytes]] = []
        taken = choose.randint(0, 151 // (before * size))
        for rank in range(before):
            loader = ds.shard(rank, before).batch(size).numpy(num_workers=1)
            for _, (xs, ys) in zip(range(taken), loader):
                given += [(int(y), x.tobytes()) for x, y in zip(xs, ys, strict=True)]
            state = json.loads(json.dumps(loader.state_dict()))
        for rank in range(after):
            loader = ds.shard(rank, after).batch(other).numpy(num_workers=1)
            loader.load_state_dict(state)
            given += samples(loader)
        assert set(given) == set(whole), (before, after, size, other, taken)
        assert len(given) - len(whole) < max(before, after)


def test_weights_hold_and_the_order_is_new_in_every_epoch() -> None:
    parts = [wf.from_tensor_slices(np.full(10, i)).repeat() for i in range(3)]
    ds = wf.Dataset.sample_from_datasets(parts, [5, 3, 2], seed=1).batch(1000).take(1)
    first, second = (next(iter([batch.tolist() for batch in loader])) for loader in [ds.numpy()] * 2)
    assert first != second
    for values in (first, second):
        counts = Counter(values)
        assert all(abs(counts[i] - share) <= 5 for i, share in enumerate((500, 300, 200))), counts


def test_structures_nest_and_fields_of_one_name_are_told_apart() -> None:
    pixels = np.zeros((4, 6, 6, 3), np.uint8)
    one = wf.from_tensor_slices({"image": pixels, "x": np.arange(4)})
    two = wf.from_tensor_slices((pixels, np.arange(10, 14)))
    ds = wf.zip(one, wf.zip(two, one)).map(T.CenterCrop(3), field="0.image").enumerate().batch(4)
    (
        numbers,
        (a, (b, c)),
    ) = next(iter(ds.numpy()))
    assert numbers.tolist() == [0, 1, 2, 3]
    assert list(a) == list(c) == ["image", "x"]
    assert a["image"].shape == (4, 3, 3, 3)
    assert b[0].shape == c["image"].shape == (4, 3, 6, 6)
    assert b[1].tolist() == [10, 11, 12, 13]
    with pytest.raises(ValueError, match="there is no image field"):
        wf.zip(one, one).map(T.CenterCrop(3), field="image")


def test_zip_of_a_data_set_has_its_elements_first() -> None:
    one, two = wf.from_tensor_slices(np.arange(3)), wf.from_tensor_slices(np.arange(5, 9))
    for ds in (one.zip(two), wf.Dataset.zip(one, two), wf.zip(one, two)):
        assert [(int(a), int(b)) for a, b in ds.numpy()] == [(0, 5), (1, 6), (2, 7)]


@pytest.mark.usefixtures("epochs_not_counted")
def test_trees_can_be_pickled_written_and_read() -> None:
    ds = wf.interleave([mixture(), mixture()], block_length=3).skip(2).batch(4)
    again = pickle.loads(pickle.dumps(ds))
    assert again.to_json() == ds.to_json()
    assert repr(again) == repr(ds)
    assert samples(again.numpy()) == samples(ds.numpy())
    assert "sample_from_datasets([" in repr(ds)
    assert "interleave(block_length=3) of 2" in ds.explain()
    state = ds.numpy().state_dict()
    again.numpy().load_state_dict(state)


def test_what_cannot_be_put_together_is_refused() -> None:
    one, two = wf.from_tensor_slices(np.arange(3)), wf.from_tensor_slices(np.arange(3.0))
    with pytest.raises(ValueError, match='field "0" is'):
        one.concatenate(two)
    with pytest.raises(ValueError, match="batches"):
        one.batch(2).concatenate(one)
    with pytest.raises(TypeError, match="type int"):
        wf.zip(one, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 weights were given for 1"):
        wf.sample_from_datasets([one], [1, 2])
    with pytest.raises(ValueError, match="at least one data set"):
        wf.zip()
    with pytest.raises(ValueError, match="seed is"):
        wf.zip(one.with_options(seed=1), one)


def test_a_buffer_size_is_not_taken_for_a_seed() -> None:
    with pytest.raises(TypeError, match="size of a buffer"):
        wf.from_tensor_slices(np.arange(3)).shuffle(1000)  # type: ignore[arg-type]


def test_blocks_stay_together() -> None:
    values = [
        int(x) for x in wf.from_tensor_slices(np.arange(100)).shuffle(seed=1, block_size=10, window=2).numpy()
    ]
    assert sorted(values) == list(range(100))
    assert all(len({v // 10 for v in values[i : i + 20]}) == 2 for i in range(0, 100, 20))


def test_a_state_that_cannot_be_carried_over_names_the_verb() -> None:
    ds = wf.from_tensor_slices(np.arange(64))
    loader = ds.shard(0, 4).shuffle(seed=1).batch(4).numpy()
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(wf.StateError, match=r"shuffle\(\) comes after shard\(\)"):
        ds.shard(0, 8).shuffle(seed=1).batch(4).numpy().load_state_dict(state)
    taken = ds.shard(0, 4).take(8).batch(4).numpy()
    next(iter(taken))
    with pytest.raises(wf.StateError, match=r"take\(\) comes after shard\(\)"):
        ds.shard(0, 8).take(8).batch(4).numpy().load_state_dict(taken.state_dict())
    with pytest.raises(ValueError, match="batch_size 0"):
        ds.shard(0, 4).shuffle(seed=1).batch(4).numpy().load_state_dict({**state, "batch_size": 0})


def test_loaders_made_in_the_loop_give_new_epochs() -> None:
    source = wf.from_tensor_slices(np.arange(50))
    ds = source.shuffle(seed=1).batch(50)
    expected = [next(iter(loader)).tolist() for loader in [ds.numpy()] * 3]
    fresh = source.shuffle(seed=2).batch(50)
    found = [next(iter(source.shuffle(seed=2).batch(50).torch(num_workers=1))).tolist() for _ in range(3)]
    assert len({tuple(epoch) for epoch in found}) == 3
    loader = fresh.numpy()
    loader.set_epoch(0)
    assert [next(iter(loader)).tolist() for _ in range(3)] == found
    loader = ds.numpy()
    loader.set_epoch(1)
    assert next(iter(loader)).tolist() == expected[1]
    # Ranks in one process count each for itself.
    parts = [next(iter(ds.unbatch().shard(rank, 2).batch(25).numpy())).tolist() for rank in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(50))


def test_a_source_opened_again_is_warned_of() -> None:
    def epoch() -> list[int]:
        loader = wf.from_tensor_slices(np.arange(51)).shuffle(seed=1).batch(51).numpy()
        values: list[int] = next(iter(loader)).tolist()
        return values

    first = epoch()
    with pytest.warns(UserWarning, match="opened again starts at epoch 0"):
        assert epoch() == first


def test_batches_are_zipped_as_in_tf_data() -> None:
    one, two = wf.from_tensor_slices(np.arange(10)), wf.from_tensor_slices((np.arange(9), np.arange(9) * 10))
    pairs = list(wf.zip(one.batch(4, drop_last=True), two.batch(4, drop_last=True)).numpy())
    assert [(a.tolist(), b.tolist(), c.tolist()) for a, (b, c) in pairs] == [
        ([0, 1, 2, 3], [0, 1, 2, 3], [0, 10, 20, 30]),
        ([4, 5, 6, 7], [4, 5, 6, 7], [40, 50, 60, 70]),
    ]
    steps = wf.zip(one.map(abs).batch(5), one.map(str).batch(5)).numpy(num_workers=0)
    assert [(a.tolist(), list(b)) for a, b in steps] == [
        ([*range(start, start + 5)], [str(i) for i in range(start, start + 5)]) for start in (0, 5)
    ]
    for other in (two.batch(4), two.batch(3, drop_last=True), two):
        with pytest.raises(wf.ConfigError):
            wf.zip(one.batch(4, drop_last=True), other)


def countdown() -> Iterator[int]:
    yield from range(23)


PIPELINES: dict[str, Callable[[], Any]] = {
    "native": lambda: wf.from_tensor_slices(np.arange(53)).shuffle(seed=1).batch(53).torch(),
    "native on a device": lambda: (
        wf.from_tensor_slices(np.arange(54)).shuffle(seed=1).batch(54).torch(device="cpu")
    ),
    "steps": lambda: (
        wf.from_tensor_slices(np.arange(55)).map(abs).shuffle(seed=1).batch(55).torch(num_workers=0)
    ),
    "steps on a device": lambda: (
        wf.from_tensor_slices(np.arange(56))
        .map(abs)
        .shuffle(seed=1)
        .batch(56)
        .torch(num_workers=0, device="cpu")
    ),
    "a stream": lambda: (
        wf.from_generator(countdown).shuffle(seed=1, buffer_size=5).batch(23).torch(num_workers=0)
    ),
}


@pytest.mark.parametrize("kind", PIPELINES)
def test_the_warning_of_a_source_opened_again_points_at_the_loop(kind: str) -> None:
    for _ in PIPELINES[kind]():
        pass
    loader = PIPELINES[kind]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        for _ in loader:
            pass
    [(filename, lineno)] = [(w.filename, w.lineno) for w in caught if "opened again" in str(w.message)]
    assert (filename, lineno) == (__file__, line)


def test_everything_public_is_listed() -> None:
    listed = dir(wf)
    assert {"feed", "doctor", "zip", "concatenate", "sample_from_datasets", "interleave"} <= set(listed)


def test_what_mixes_a_list_is_refused_on_a_data_set() -> None:
    ds = wf.from_tensor_slices(np.arange(3))
    for verb in ("interleave", "sample_from_datasets"):
        with pytest.raises(TypeError, match=f"would leave this data set out.*\n.*wf.{verb}"):
            getattr(ds, verb)([ds, ds])
        assert len(getattr(wf.Dataset, verb)([ds, ds])) == 6


def test_a_filter_of_what_ranks_have_for_themselves_is_refused() -> None:
    labels = np.array([0, 1, 1, 1, 1, 1])
    ds = wf.from_tensor_slices({"x": np.arange(6), "y": labels})
    assert len(ds.shard(0, 1).filter(field="y", values=[1])) == 5
    kept: list[dict[str, Any]] = [
        {"field": "y", "values": [1]},
        {"predicate": lambda sample: sample["y"] == 1},
    ]
    for keep in kept:
        assert len(ds.filter(**keep).shard(0, 2)) == 3
        with pytest.raises(wf.ConfigError, match=r"comes after shard.*\n.*call shard\(\) after filter"):
            len(ds.shard(0, 2).filter(**keep))
