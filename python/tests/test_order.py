"""Same plan, same data, same seed: same batches, whatever the number of workers, restarts and ranks."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from wellfed import transforms as T


def train(photos: Path) -> wf.Dataset:
    chain = (T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True))
    return wf.image_folder(photos).shuffle(seed=5).map(*chain).batch(5)


def epochs(loader: wf.Loader, count: int) -> list[list[tuple[bytes, bytes]]]:
    return [[(x.tobytes(), y.tobytes()) for x, y in loader] for _ in range(count)]


@pytest.mark.usefixtures("epochs_not_counted")
def test_any_number_of_workers_gives_the_same_bits(photos: Path) -> None:
    results = [epochs(train(photos).numpy(num_workers=n), 3) for n in (1, 2, 3, 8)]
    results.append(epochs(train(photos).numpy(num_workers=3, prefetch=1, read_ahead=2), 3))
    results.append(epochs(train(photos).numpy(), 3))
    assert all(result == results[0] for result in results)
    flat = [batch for epoch in results[0] for batch in epoch]
    assert len(set(flat)) == len(flat) == 15


@pytest.mark.usefixtures("epochs_not_counted")
def test_small_arrays_as_well() -> None:
    images = np.random.default_rng(0).integers(0, 256, (300, 8, 8, 3), dtype=np.uint8)
    ds = (
        wf.from_tensor_slices((images, np.arange(300)))
        .shuffle(seed=9)
        .map(T.RandomCrop(8, padding=2))
        .batch(32)
    )
    results = [epochs(ds.numpy(num_workers=n), 3) for n in (1, 2, 3, 8)]
    assert all(result == results[0] for result in results)


def test_epochs_differ_and_can_be_chosen(photos: Path) -> None:
    loader = train(photos).numpy()
    first, second, third = epochs(loader, 3)
    assert first != second != third
    loader.set_epoch(1)
    assert epochs(loader, 2) == [second, third]
    loader.set_epoch(0)
    assert epochs(loader, 1) == [first]
    with pytest.raises(ValueError, match="epoch is -1"):
        loader.set_epoch(-1)


@pytest.mark.usefixtures("epochs_not_counted")
def test_seeds_matter(photos: Path) -> None:
    ds = wf.image_folder(photos).map(T.RandomResizedCrop(24)).batch(24)
    (a, _), (b, _), (c, _) = (next(iter(ds.numpy(seed=seed))) for seed in (1, 2, 1))
    np.testing.assert_array_equal(a, c)
    assert not np.array_equal(a, b)


def test_repetitions_are_shuffled_anew() -> None:
    ds = wf.from_tensor_slices(np.arange(50)).shuffle(seed=2).repeat(2).batch(50)
    first, second = (batch.tolist() for batch in ds.numpy())
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


@pytest.mark.parametrize("blocks", [{}, {"block_size": 4, "window": 3}])
def test_a_shuffle_may_have_one_order_for_all_epochs(blocks: dict[str, Any]) -> None:
    source = wf.from_tensor_slices(np.arange(50))
    fixed = source.shuffle(seed=2, reshuffle_each_iteration=False, **blocks)

    def epochs_of(ds: wf.Dataset) -> list[list[int]]:
        loader = ds.batch(50).numpy()
        return [[int(x) for batch in loader for x in batch] for _ in range(3)]

    again = epochs_of(source.shuffle(seed=2, **blocks))
    assert again[0] != again[1]
    assert epochs_of(fixed) == [again[0]] * 3
    assert [int(fixed[at]) for at in range(50)] == again[0]
    # Each time round of repeat, too.
    assert epochs_of(fixed.repeat(2)) == [again[0] * 2] * 3
    # take and skip split the samples for good, and what is shuffled anew behind them stays on its side.
    kept, held = (epochs_of(part.shuffle(seed=1)) for part in (fixed.take(40), fixed.skip(40)))
    assert len({tuple(sorted(one)) for one in kept}) == len({tuple(sorted(one)) for one in held}) == 1
    assert len({tuple(one) for one in kept}) == 3
    assert all(sorted(one + other) == list(range(50)) for one, other in zip(kept, held, strict=True))
    # Behind a shuffle that changes, the order changes.
    assert (
        len(
            {
                tuple(one)
                for one in epochs_of(source.shuffle(seed=5).shuffle(reshuffle_each_iteration=False, **blocks))
            }
        )
        == 3
    )
    # What a function keeps of it holds in all epochs.
    assert epochs_of(fixed.filter(lambda x: x % 2 == 0)) == [[x for x in again[0] if x % 2 == 0]] * 3
    with pytest.raises(wf.ConfigError, match="comes after shuffle"):
        len(fixed.shuffle(seed=1).filter(lambda x: x % 2 == 0))
    text = fixed.to_json()
    assert epochs_of(wf.Dataset.from_json(text, [np.arange(50)])) == [again[0]] * 3
    assert "reshuffle_each_iteration=False" in fixed.explain()
    assert "reshuffle_each_iteration" not in source.shuffle(seed=2, **blocks).to_json()


def test_a_fixed_shuffle_leaves_draws_random_and_is_another_pipeline() -> None:
    images = wf.from_tensor_slices(np.random.default_rng(0).integers(0, 256, (20, 6, 6, 3), np.uint8))
    fixed = images.shuffle(seed=2, reshuffle_each_iteration=False)
    loader = fixed.map(T.RandomHorizontalFlip()).batch(20).numpy()
    (first,), (second,) = list(loader), list(loader)
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first, -1), np.sort(second, -1)), "only mirrored, where they stood"
    state = fixed.batch(4).numpy().state_dict()
    with pytest.raises(wf.StateError, match="shuffle"):
        images.shuffle(seed=2).batch(4).numpy().load_state_dict(state)


def test_a_source_that_is_opened_again_is_no_news_for_a_fixed_shuffle() -> None:
    def order(again: bool) -> list[int]:
        ds = wf.from_tensor_slices(np.arange(31)).shuffle(seed=7, reshuffle_each_iteration=again)
        return [int(x) for batch in ds.batch(31).numpy() for x in batch]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert order(False) == order(False)
        first = order(True)
    with pytest.warns(UserWarning, match="starts at epoch 0 again"):
        assert order(True) == first


@pytest.mark.usefixtures("epochs_not_counted")
def test_a_half_read_epoch_is_left_for_the_next(photos: Path) -> None:
    expected = epochs(train(photos).numpy(), 2)
    loader = train(photos).numpy()
    for number, (x, y) in enumerate(loader):
        assert (x.tobytes(), y.tobytes()) == expected[0][number]
        if number == 2:
            break
    assert epochs(loader, 1) == expected[1:]


def test_iterators_that_were_overtaken_say_so(photos: Path) -> None:
    loader = train(photos).numpy()
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    with pytest.raises(RuntimeError, match="no longer valid"):
        next(old)
    assert len(list(new)) == 4
    assert next(new, "over") == "over"
    list(loader)
    assert next(new, "over") == "over"


@pytest.mark.usefixtures("epochs_not_counted")
def test_state_is_small_and_moves_between_loaders(photos: Path) -> None:
    expected = [batch for epoch in epochs(train(photos).numpy(), 3) for batch in epoch]
    for stop in range(len(expected) + 1):
        loader = train(photos).numpy(num_workers=2)
        seen = 0
        while seen < stop:
            for _ in loader:
                seen += 1
                if seen == stop:
                    break
        state = json.loads(json.dumps(loader.state_dict()))
        assert len(json.dumps(state)) < 300
        other = train(photos).numpy(num_workers=3)
        other.load_state_dict(state)
        assert other.state_dict() == state
        rest: list[tuple[bytes, bytes]] = []
        while len(rest) + stop < len(expected):
            rest += [(x.tobytes(), y.tobytes()) for x, y in other]
        assert rest == expected[stop:]


RESUME = """
import hashlib, json, sys
import wellfed as wf
plan, state, workers, count = json.loads(sys.stdin.read())
loader = wf.Dataset.from_json(plan).numpy(num_workers=workers)
if state is not None:
    loader.load_state_dict(state)
sums, states = [], []
while len(sums) < count:
    for images, labels in loader:
        sums.append(hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest())
        states.append(loader.state_dict())
        if len(sums) == count:
            break
print(json.dumps([sums, states]))
"""


def in_new_process(plan: str, state: object, workers: int, count: int) -> tuple[list[str], list[object]]:
    done = subprocess.run(
        [sys.executable, "-c", RESUME],
        input=json.dumps([plan, state, workers, count]),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sums, states = json.loads(done.stdout)
    return sums, states


def test_resuming_in_a_new_process_is_exact(photos: Path) -> None:
    plan = train(photos).to_json()
    sums, states = in_new_process(plan, None, 2, 30)
    for position in random.Random(3).sample(range(1, 30), 20):
        workers = 1 + position % 3
        rest, _ = in_new_process(plan, states[position - 1], workers, 30 - position)
        assert rest == sums[position:], position


def test_foreign_states_are_refused(photos: Path) -> None:
    loader = train(photos).numpy()
    state = loader.state_dict()
    with pytest.raises(wf.StateError, match=r"pipeline: shuffle\(\) has other arguments"):
        wf.image_folder(photos).shuffle(seed=6).map(T.CenterCrop(9)).batch(5).numpy().load_state_dict(state)
    with pytest.raises(ValueError, match="version"):
        loader.load_state_dict({**state, "version": 99})
    for wrong in ({}, {"epoch": 3}, {**state, "epoch": -1}, []):
        with pytest.raises(ValueError, match="no state of a loader"):
            loader.load_state_dict(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
@pytest.mark.parametrize("count", [21, 40])
@pytest.mark.parametrize("drop_last", [True, False])
def test_shards_are_equal_and_cover_everything(world_size: int, count: int, drop_last: bool) -> None:
    ds = wf.from_tensor_slices(np.arange(count)).shuffle(seed=8)
    loaders = [ds.shard(r, world_size).batch(4, drop_last=drop_last).numpy() for r in range(world_size)]
    assert len({len(loader) for loader in loaders}) == 1
    for _ in range(2):
        parts = [[batch.tolist() for batch in loader] for loader in loaders]
        assert len({tuple(map(len, part)) for part in parts}) == 1
        values = [value for part in parts for batch in part for value in batch]
        if not drop_last:
            assert set(values) == set(range(count))
            assert len(values) - count < world_size
        else:
            assert len(values) - len(set(values)) < world_size
    # Together they are the order of one process.
    whole = [int(x) for x in ds.numpy()]
    sharded = [[int(x) for x in ds.shard(r, world_size).numpy()] for r in range(world_size)]
    assert [x for turn in zip(*sharded) for x in turn][:count] == whole


def test_a_state_survives_another_number_of_ranks() -> None:
    ds = wf.from_tensor_slices(np.arange(120)).shuffle(seed=8)
    two = [iter(ds.shard(r, 2).batch(5).numpy()) for r in range(2)]
    seen = [value for _ in range(4) for it in two for value in next(it).tolist()]
    state = two[0]._loader.state_dict()  # type: ignore[attr-defined]
    for rank in range(4):
        loader = ds.shard(rank, 4).batch(5).numpy()
        loader.load_state_dict(state)
        seen += [value for batch in loader for value in batch.tolist()]
    assert sorted(seen) == list(range(120))
