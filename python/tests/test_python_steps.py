"""Python steps in a pipeline: callables before and after native ones, orders, states, errors, random numbers."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch

import wellfed as wf
from wellfed import transforms as T

# More workers than cores are what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ROWS = np.arange(40)


def doubled(x: Any) -> Any:
    return {"x": x, "twice": 2 * x}


def noisy(x: Any) -> Any:
    draw = torch.rand(()).item() + np.random.rand() + random.random()
    return {"x": x, "draw": draw, "more": torch.rand(3)}


def odd_only(x: Any) -> Any:
    if x % 7 == 3:
        raise ValueError(f"{x} is bad")
    return x


def every_third(x: Any) -> bool:
    return bool(x % 3 == 0)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


def rows(n: int = 40) -> wf.Dataset:
    return wf.from_tensor_slices(np.arange(n))


def images(n: int = 12) -> wf.Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (n, 24, 20, 3), np.uint8)
    return wf.from_tensor_slices((pixels, np.arange(n)))


class Squares(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 30

    def __getitem__(self, i: int) -> Any:
        return i, torch.full((2,), float(i * i)), random.random()


def pipelines() -> dict[str, wf.Dataset]:
    return {
        "map": rows().map(noisy).batch(7),
        "shuffled": rows().shuffle(seed=3).map(noisy).batch(6),
        "shuffled after": rows().map(noisy).shuffle(seed=3).batch(6),
        "native before": images().map(T.RandomCrop(8), T.RandomHorizontalFlip()).map(with_noise).batch(5),
        "native after": images().map(brighter).map(T.RandomCrop(8), T.RandomHorizontalFlip()).batch(5),
        "zip": wf.zip(rows().map(noisy), rows().shuffle(seed=1)).batch(4),
        "mixture": wf.sample_from_datasets(
            [rows().map(noisy), rows(30).map(noisy)], weights=[0.7, 0.3], seed=2
        ).batch(8),
        "repeat": rows(10).map(noisy).repeat(3).batch(4, drop_last=True),
        "take": rows().shuffle(seed=1).map(noisy).skip(3).take(20).batch(4),
        "enumerate": rows().map(noisy).enumerate().batch(4),
        "filter": rows().filter(every_third).shuffle(seed=5).map(noisy).batch(4),
        "on batches": rows().batch(4).map(on_batch).take(6),
        "collate": rows().map(noisy).batch(4, collate_fn=draws_of),
        "torch data set": wf.from_dataset(Squares())
        .shuffle(seed=4)
        .map(lambda s: (*s, torch.rand(1)))
        .batch(4),
    }


def with_noise(sample: Any) -> Any:
    image, label = sample
    return {"image": image + np.random.randint(0, 3, image.shape, np.uint8), "target": (label, "name")}


def brighter(sample: Any) -> Any:
    image, label = sample
    return np.minimum(image, 200) + np.uint8(20), label


def on_batch(batch: Any) -> Any:
    return {"x": batch, "noise": torch.rand(len(batch))}


def draws_of(samples: list[Any]) -> Any:
    return torch.tensor([s["draw"] for s in samples]) + torch.rand(1)


@pytest.mark.parametrize("name", list(pipelines()))
def test_the_same_bits_for_every_number_of_workers(name: str) -> None:
    ds = pipelines()[name]
    expected = [list(epoch) for epoch in two_epochs(ds, 0)]
    assert len(expected[0]) == len(ds)
    assert not same(expected[0], expected[1])
    for workers in (1, 2, 3):
        assert same(expected, [list(epoch) for epoch in two_epochs(ds, workers)]), workers


def two_epochs(ds: wf.Dataset, workers: int) -> list[list[Any]]:
    with ds.torch(num_workers=workers) as loader:
        loader.set_epoch(0)
        return [list(loader), list(loader)]


@pytest.mark.parametrize("name", list(pipelines()))
def test_resuming_gives_the_same_bits_at_every_position(name: str) -> None:
    ds = pipelines()[name]
    loader = ds.torch(num_workers=0)
    whole = list(loader)
    for position in range(len(whole) + 1):
        before = ds.torch(num_workers=0)
        before.set_epoch(0)
        batches = iter(before)
        for _ in range(position):
            next(batches)
        after = ds.torch(num_workers=0)
        after.load_state_dict(before.state_dict())
        assert same(list(after), whole[position:]), position


@pytest.mark.usefixtures("epochs_not_counted")
def test_resuming_with_workers_and_after_the_end() -> None:
    ds = rows().shuffle(seed=0).map(noisy).batch(6)
    with ds.torch(num_workers=2) as loader:
        first, second = list(loader), list(loader)
        assert loader.state_dict()["epoch"] == 2
    with ds.torch(num_workers=2) as loader:
        batches = iter(loader)
        taken = [next(batches) for _ in range(3)]
        state = loader.state_dict()
    assert same(taken, first[:3])
    with ds.torch(num_workers=1) as loader:
        loader.load_state_dict(state)
        assert same(list(loader), first[3:])
        assert same(list(loader), second)


def test_the_order_is_that_of_the_native_loader() -> None:
    native = rows().shuffle(seed=9).shard(1, 2).batch(3).repeat(2)
    steps = rows().shuffle(seed=9).map(doubled).shard(1, 2).batch(3).repeat(2)
    with native.numpy() as a, steps.numpy(num_workers=0) as b:
        for _ in range(2):
            assert same([batch.tolist() for batch in a], [batch["x"].tolist() for batch in b])


@pytest.mark.parametrize(("old", "new"), [(4, 2), (2, 4), (4, 1)])
def test_a_state_goes_to_another_number_of_ranks(old: int, new: int) -> None:
    ds = rows(48).shuffle(seed=1).map(doubled)
    seen: list[int] = []
    states = []
    for rank in range(old):
        loader = ds.shard(rank, old).batch(3).numpy(num_workers=0)
        batches = iter(loader)
        for _ in range(2):
            seen += next(batches)["x"].tolist()
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    for rank in range(new):
        loader = ds.shard(rank, new).batch(3).numpy(num_workers=0)
        loader.load_state_dict(states[0])
        seen += [x for batch in loader for x in batch["x"].tolist()]
    assert sorted(seen) == list(range(48))


def test_native_steps_give_what_they_give_without_python_ones() -> None:
    crops = images().shuffle(seed=2).map(T.RandomCrop(8), T.RandomHorizontalFlip())
    with crops.batch(4).numpy() as native:
        expected = [[list(b) for b in native] for _ in range(2)]
    with crops.map(lambda s: s).batch(4).numpy(num_workers=1) as steps:
        assert same(expected, [[list(b) for b in steps] for _ in range(2)])


def test_a_map_may_return_whatever_can_be_collated() -> None:
    def nest(x: Any) -> Any:
        return {"a": (torch.ones(2) * int(x), [np.float32(x), "text"]), "b": {"c": float(x), "d": int(x)}}

    batch = next(iter(rows().map(nest).batch(2).torch(num_workers=1)))
    assert batch["a"][1][1] == ("text", "text")
    assert batch["b"]["c"].dtype == torch.float64
    assert batch["b"]["d"].tolist() == [0, 1]
    single = next(iter(rows().map(nest).numpy(num_workers=0)))
    assert single["b"] == {"c": 0.0, "d": 0}
    assert isinstance(single["a"][0], np.ndarray)


def test_the_callers_generators_are_left_alone() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = torch.rand(1), np.random.rand(), random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    for workers in (0, 1):
        list(rows(8).map(noisy).batch(4).torch(num_workers=workers))
    assert same(expected, (torch.rand(1), np.random.rand(), random.random()))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_sample_is_raised_with_its_place_and_cause(workers: int) -> None:
    ds = rows().map(odd_only).batch(5)
    with ds.torch(num_workers=workers) as loader:
        batches = iter(loader)
        with pytest.raises(wf.StepError, match="3 is bad") as caught:
            next(batches)
        error = caught.value
        assert (error.index, error.key, error.stage) == (3, "3", "odd_only")
        assert isinstance(error.__cause__, ValueError)
        assert "odd_only" in str(error.__cause__.__cause__)
        # The batch after it comes, and the position says so.
        assert next(batches).tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_samples_are_skipped_or_replaced(workers: int) -> None:
    ds = rows().take(20).map(odd_only).batch(5)
    with ds.torch(num_workers=workers, on_error="skip") as loader:
        assert [b.tolist() for b in loader] == [
            [0, 1, 2, 4], [5, 6, 7, 8, 9], [11, 12, 13, 14], [15, 16, 18, 19],
        ]  # fmt: skip
        assert [(bad.index, bad.stage, bad.batch) for bad in loader.errors()] == [
            (3, "odd_only", 0), (10, "odd_only", 2), (17, "odd_only", 3),
        ]  # fmt: skip
        assert all(isinstance(bad.error.__cause__, ValueError) for bad in loader.errors())
    with ds.torch(num_workers=workers, on_error="replace") as loader:
        batches = [b.tolist() for b in loader]
        assert [len(b) for b in batches] == [5, 5, 5, 5]
        # From what `take` left, and not from the rest of the source.
        assert all(x < 20 and x % 7 != 3 for b in batches for x in b)
        assert all(bad.replaced for bad in loader.errors())


def interrupt(x: Any) -> Any:
    raise KeyboardInterrupt


def offline(x: Any) -> Any:
    raise ConnectionResetError("the store is gone")


def test_what_is_no_bad_sample_is_never_skipped() -> None:
    with pytest.raises(KeyboardInterrupt):
        list(rows().map(interrupt).batch(4).torch(num_workers=0, on_error="skip"))
    for workers in (0, 1):
        with pytest.raises(wf.StepError, match="the store is gone"):
            list(rows().map(offline).batch(4).torch(num_workers=workers, on_error="skip"))
    with pytest.raises(wf.StepError, match="boom"):
        list(rows().batch(4, collate_fn=boom).torch(num_workers=1, on_error="skip"))


def boom(samples: Any) -> Any:
    raise RuntimeError("boom")


def all_bad(x: Any) -> Any:
    raise ValueError("bad")


def test_an_epoch_without_a_good_sample_is_an_error() -> None:
    with pytest.raises(wf.CorruptSampleError, match="no sample"):
        list(rows().map(all_bad).batch(4).torch(num_workers=0, on_error="skip"))
    with pytest.raises(wf.CorruptSampleError, match="no end"):
        list(rows().map(all_bad).batch(4).repeat().torch(num_workers=0, on_error="skip"))


class Unpicklable(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")
        self.lock = __import__("threading").Lock()


def raises_unpicklable(x: Any) -> Any:
    raise Unpicklable(1, 2)


def test_an_exception_that_cannot_travel_does_as_text() -> None:
    with pytest.raises(wf.StepError, match="Unpicklable: 1 and 2") as caught:
        list(rows().map(raises_unpicklable).batch(4).torch(num_workers=1))
    assert "raises_unpicklable" in str(caught.value.__cause__)


def test_filter_keeps_the_order_and_is_computed_once() -> None:
    calls = []

    def keep(x: Any) -> bool:
        calls.append(int(x))
        return every_third(x)

    ds = rows().filter(keep).with_options(num_workers=0)
    assert calls == []
    assert "not computed yet" in repr(ds)
    assert len(ds) == 14
    assert sorted(calls) == list(range(40))
    assert [int(x) for x in ds.numpy(num_workers=1)] == list(range(0, 40, 3))
    shuffled = ds.shuffle(seed=1).batch(4)
    assert sorted(x for b in shuffled.numpy(num_workers=1) for x in b.tolist()) == list(range(0, 40, 3))
    assert "14 of 40" in ds.explain()


@pytest.mark.parametrize("workers", [1, 3])
def test_filter_is_the_same_with_workers(workers: int) -> None:
    ds = rows(200).with_options(num_workers=workers).map(doubled).filter(lambda e: e["twice"] % 8 == 0)
    assert [int(e["x"]) for e in ds.numpy(num_workers=0)] == list(range(0, 200, 4))


def test_filter_of_filter_and_of_bad_samples() -> None:
    ds = rows(60).with_options(num_workers=0)
    both = ds.filter(every_third).filter(lambda x: x % 2 == 0)
    assert [int(x) for x in both.numpy(num_workers=1)] == list(range(0, 60, 6))
    with pytest.raises(wf.StepError):
        len(ds.map(odd_only).filter(every_third))
    kept = ds.with_options(on_error="skip").map(odd_only).filter(every_third)
    assert [int(x) for x in kept.numpy()] == [x for x in range(0, 60, 3) if x % 7 != 3]


def test_filter_is_refused_where_it_would_not_hold() -> None:
    with pytest.raises(wf.ConfigError, match="before shuffle"):
        rows().shuffle(seed=0).filter(every_third)
    with pytest.raises(wf.ConfigError, match="random transforms"):
        images().map(T.RandomCrop(8)).filter(every_third)
    with pytest.raises(wf.ConfigError, match="batch"):
        rows().batch(4).filter(every_third)


def test_steps_that_cannot_stand_where_they_are() -> None:
    with pytest.raises(TypeError, match="not a transform"):
        rows().map(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot be called"):
        rows().batch(2, collate_fn=3)  # type: ignore[arg-type]
    with pytest.raises(wf.ConfigError, match="unbatch"):
        list(rows().batch(4).map(on_batch).unbatch().torch(num_workers=0))
    with pytest.raises(wf.ConfigError, match="cache"):
        images().map(brighter).cache()


def test_a_step_after_batches_that_python_does_not_make_is_refused() -> None:
    rows = wf.from_tensor_slices(wf.Ragged(np.arange(9), np.array([0, 3, 4, 9])))
    batched = {
        "padded_batch": rows.padded_batch(2),
        "ragged_batch": rows.ragged_batch(2),
        "bucket_by_sequence_length": rows.bucket_by_sequence_length(None, [4], [2, 2]),
        "batch_by_tokens": rows.batch_by_tokens(6),
    }
    for verb, ds in batched.items():
        for data in (ds, ds.shard(0, 2)):
            with pytest.raises(wf.ConfigError, match=rf"map\(\) .* comes after {verb}\(\)"):
                data.map(len)
    lengths = rows.padded_batch(2).unbatch().map(len)
    assert [int(length) for length in lengths.numpy(num_workers=0)] == [3, 1, 5]


def test_explain_says_where_python_begins() -> None:
    ds = images().map(T.CenterCrop(8)).map(brighter).shuffle(seed=0).batch(4)
    text = ds.with_options(num_workers=2).explain()
    assert "map(brighter)" in text
    assert "  2 worker processes\n" in text
    measured = ds.explain(analyze=True)
    assert "us a sample" in measured
    assert "brighter" in measured


@pytest.mark.usefixtures("epochs_not_counted")
def test_pickling_keeps_callables() -> None:
    ds = rows().map(doubled).filter(is_even).shuffle(seed=1).batch(4)
    again = pickle.loads(pickle.dumps(ds))
    assert same(list(again.numpy(num_workers=0)), list(ds.numpy(num_workers=0)))
    assert repr(again) == repr(ds)
    with pytest.raises(TypeError, match="callables"):
        wf.Dataset.from_json(ds.to_json(), [ROWS])


@pytest.mark.usefixtures("epochs_not_counted")
def test_what_a_filter_kept_is_part_of_the_plan() -> None:
    ds = rows().filter(lambda x: x % 5 == 2).shuffle(seed=1).with_options(num_workers=1)
    again = wf.Dataset.from_json(ds.to_json(), [ROWS])
    assert [int(x) for x in again.numpy()] == [int(x) for x in ds.numpy()]
    assert [int(x) for x in pickle.loads(pickle.dumps(ds)).map(int).numpy(num_workers=0)] == [
        int(x) for x in ds.numpy()
    ]


def test_a_loader_for_each_epoch_goes_through_epochs() -> None:
    ds = rows().map(noisy).batch(4)
    with ds.torch(num_workers=0) as loader:
        expected = [list(loader) for _ in range(3)]
    again = rows().map(noisy).batch(4)
    assert same(expected, [list(again.torch(num_workers=workers)) for workers in (0, 1, 0)])


def is_even(e: Any) -> bool:
    return bool(e["x"] % 2 == 0)


def test_spawned_workers() -> None:
    ds = rows(8).map(doubled).batch(4)
    with ds.torch(num_workers=1, multiprocessing_context="spawn") as loader:
        assert [b["twice"].tolist() for b in loader] == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_threads_on_request() -> None:
    ds = rows(20).map(doubled).batch(4)
    with ds.torch(num_workers=2, multiprocessing_context="thread") as loader:
        assert [b["x"].tolist() for b in loader] == [list(range(i, i + 4)) for i in range(0, 20, 4)]
    with pytest.raises(ValueError, match="Python steps"):
        rows().batch(4).torch(multiprocessing_context="thread")


def test_from_dataset() -> None:
    ds = wf.from_dataset(Squares())
    assert len(ds) == 30
    index, square, _ = ds[3]
    assert (index, square.tolist()) == (3, [9.0, 9.0])
    with ds.batch(10).torch(num_workers=2) as loader:
        assert [b[0].tolist() for b in loader] == [list(range(i, i + 10)) for i in range(0, 30, 10)]
    both = wf.zip(ds, rows(30)).batch(5)
    (index, _, _), row = next(iter(both.torch(num_workers=1)))
    assert index.tolist() == row.tolist()


def test_one_field() -> None:
    pixels = np.zeros((4, 6, 6, 3), np.uint8)
    ds = wf.from_tensor_slices({"image": pixels, "y": np.arange(4)})
    batch = next(iter(ds.map(lambda i: i + 1, field="image").batch(4).numpy(num_workers=0)))
    assert batch["image"].min() == 1
    assert batch["y"].tolist() == [0, 1, 2, 3]


def test_breaking_off_and_set_epoch() -> None:
    ds = rows().shuffle(seed=0).map(doubled).batch(8)
    with ds.torch(num_workers=2) as loader:
        epochs = [[b["x"].tolist() for b in loader] for _ in range(3)]
        loader.set_epoch(1)
        for batch in loader:
            assert batch["x"].tolist() == epochs[1][0]
            break
        assert [b["x"].tolist() for b in loader] == epochs[2]
        old = iter(loader)
        iter(loader)
        with pytest.raises(wf.exceptions.StateError, match="no longer valid"):
            next(old)
    with pytest.raises(wf.exceptions.StateError, match="closed"):
        iter(loader)
