"""Fields of every kind and their columns: padded, ragged, bucketed, by tokens, compared with a model in NumPy."""

from __future__ import annotations

import gc
import json
import pickle
import random
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import wellfed as wf
from wellfed import _native

Tokens = list[npt.NDArray[Any]]

DTYPES = ["bool", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64"]


def texts(rng: random.Random, count: int, longest: int, dtype: str = "int64") -> Tokens:
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    return [(numbers.integers(0, 100, rng.randint(0, longest))).astype(dtype) for _ in range(count)]


def pad(rows: Tokens, value: Any = 0, multiple_of: int = 1, to: int | None = None) -> npt.NDArray[Any]:
    """The model of a padded batch."""
    longest = max((len(row) for row in rows), default=0)
    side = to if to is not None else -(-longest // multiple_of) * multiple_of
    batch = np.full((len(rows), side), value, rows[0].dtype)
    for i, row in enumerate(rows):
        batch[i, : len(row)] = row
    return batch


def order(ds: wf.Dataset, count: int, epoch: int = 0) -> list[int]:
    """The order of samples, by way of their labels."""
    loader = ds.ragged_batch(max(count, 1)).numpy()
    loader.set_epoch(epoch)
    return [int(label) for _, labels in loader for label in labels]


def buckets(picks: list[int], lengths: list[int], ends: list[int], sizes: list[int]) -> list[list[int]]:
    """The model of tf.data's bucket_by_sequence_length."""
    batches, under_way = [], [[] for _ in sizes]  # type: ignore[var-annotated]
    for pick in picks:
        bucket = sum(end <= lengths[pick] for end in ends)
        under_way[bucket].append(pick)
        if len(under_way[bucket]) == sizes[bucket]:
            batches.append(under_way[bucket])
            under_way[bucket] = []
    return batches + [rest for rest in under_way if rest]


def by_tokens(picks: list[int], lengths: list[int], limit: int, multiple_of: int) -> list[list[int]]:
    batches: list[list[int]] = [[]]
    for pick in picks:
        longest = max(1, *(lengths[p] for p in [*batches[-1], pick]))
        cost = -(-longest // multiple_of) * multiple_of * (len(batches[-1]) + 1)
        if cost > limit and batches[-1]:
            batches.append([])
        batches[-1].append(pick)
    return [batch for batch in batches if batch]


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("seed", range(12))
def test_padded_batches_are_those_of_a_model(seed: int) -> None:
    rng = random.Random(seed)
    count, size = rng.randint(1, 40), rng.randint(1, 9)
    rows = texts(rng, count, rng.choice([0, 3, 50]), rng.choice(DTYPES))
    multiple_of, drop_last = rng.choice([1, 4, 7]), rng.random() < 0.5
    value = rng.choice([0, 1]) if rows[0].dtype == bool else rng.choice([0, 1, 77])
    ds = wf.from_tensor_slices((wf.Ragged.from_arrays(rows), np.arange(count))).shuffle(seed=seed)
    batched = ds.padded_batch(
        size, padding_values=(value, None), multiple_of=multiple_of, drop_last=drop_last, lengths=True
    )
    for workers in (1, 2, 3, 8):
        loader = batched.numpy(num_workers=workers)
        for epoch in range(2):
            picks = []
            for (tokens, lengths), labels in loader:
                expected = [rows[label] for label in labels]
                np.testing.assert_array_equal(tokens, pad(expected, value, multiple_of))
                assert tokens.dtype == rows[0].dtype
                assert lengths.tolist() == [len(row) for row in expected]
                picks += labels.tolist()
            whole = count // size * size if drop_last else count
            assert picks == order(ds, count, epoch)[:whole]


@pytest.mark.parametrize("seed", range(8))
def test_ragged_batches_are_those_of_a_model(seed: int) -> None:
    rng = random.Random(seed)
    rows = texts(rng, rng.randint(1, 30), 9, rng.choice(DTYPES))
    ds = wf.from_tensor_slices({"x": wf.Ragged.from_arrays(rows), "y": np.arange(len(rows))}).shuffle(seed=1)
    for batch in ds.ragged_batch(rng.randint(1, 7)).numpy(num_workers=rng.choice([1, 2, 8])):
        ragged, labels = batch["x"], batch["y"]
        assert len(ragged) == len(labels)
        assert ragged.values.dtype == rows[0].dtype
        for i, label in enumerate(labels):
            np.testing.assert_array_equal(ragged[i], rows[label])
        for part, label in zip(ragged, labels):
            np.testing.assert_array_equal(part, rows[label])
        assert ragged.offsets.dtype == np.int64
        assert int(ragged.offsets[-1]) == len(ragged.values)


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("seed", range(8))
def test_buckets_are_tf_datas_for_any_workers_and_resume_position(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(1, 120)
    rows = texts(rng, count, 30)
    lengths = [len(row) for row in rows]
    ends, sizes = [5, 12, 20], [rng.randint(1, 8) for _ in range(4)]
    ds = wf.from_tensor_slices((wf.Ragged.from_arrays(rows), np.arange(count))).shuffle(seed=seed)
    bucketed = ds.bucket_by_sequence_length(0, ends, sizes)
    expected = [buckets(order(ds, count, epoch), lengths, ends, sizes) for epoch in range(2)]
    for workers in (1, 2, 3, 8):
        loader = bucketed.numpy(num_workers=workers)
        assert len(loader) == len(expected[0])
        for epoch in range(2):
            batches = list(loader)
            assert [labels.tolist() for _, labels in batches] == expected[epoch]
            for tokens, labels in batches:
                np.testing.assert_array_equal(tokens, pad([rows[label] for label in labels]))
    for position in {rng.randint(0, len(expected[0])) for _ in range(4)}:
        loader = bucketed.numpy()
        batches_of = iter(loader)
        for _ in range(position):
            next(batches_of)
        state = loader.state_dict()
        other = bucketed.numpy(num_workers=2)
        other.load_state_dict(state)
        rest = [labels.tolist() for _, labels in other]
        assert rest == expected[0][position:] or (not expected[0][position:] and rest in (expected[1], []))


def test_batches_of_tokens_stay_below_their_limit() -> None:
    rng = random.Random(4)
    rows = texts(rng, 200, 60)
    lengths = [len(row) for row in rows]
    ds = wf.from_tensor_slices((wf.Ragged.from_arrays(rows), np.arange(200))).shuffle(seed=2)
    for limit, multiple_of in [(60, 1), (300, 8), (10_000, 1)]:
        loader = ds.batch_by_tokens(limit, field=0, multiple_of=multiple_of).numpy()
        batches = list(loader)
        assert len(loader) == len(batches)
        assert all(tokens.size <= limit for tokens, _ in batches)
        expected = by_tokens(order(ds, 200), lengths, limit, multiple_of)
        assert [labels.tolist() for _, labels in batches] == expected
    bucketed = ds.batch_by_tokens(300, field=0, bucket_boundaries=[20, 40])
    seen = []
    for tokens, labels in bucketed.numpy():
        assert tokens.size <= 300
        assert len({sum(e <= lengths[i] for e in (20, 40)) for i in labels}) == 1
        seen += labels.tolist()
    assert sorted(seen) == list(range(200))


def test_a_sample_that_no_batch_can_hold_is_a_bad_sample() -> None:
    rows = [np.arange(n) for n in (3, 50, 4)]
    ds = wf.from_tensor_slices((rows, np.arange(3))).batch_by_tokens(10, field=0)
    with pytest.raises(wf.LimitExceededError, match="50"):
        list(ds.numpy())
    loader = ds.numpy(on_error="skip")
    assert [labels.tolist() for _, labels in loader] == [[0, 2]]
    assert [bad.index for bad in loader.errors()] == [1]
    padded = wf.from_tensor_slices((rows, np.arange(3))).padded_batch(3, padded_shapes=([10], None))
    with pytest.raises(wf.ShapeError, match="50"):
        list(padded.numpy())
    tokens, labels = next(iter(padded.numpy(on_error="skip")))
    assert tokens.shape == (2, 10)
    assert labels.tolist() == [0, 2]


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_ranks_share_whole_batches_and_get_as_many(world_size: int) -> None:
    rng = random.Random(9)
    rows = texts(rng, 100, 30)
    lengths = [len(row) for row in rows]
    ds = wf.from_tensor_slices((wf.Ragged.from_arrays(rows), np.arange(100))).shuffle(seed=3)
    bucketed = ds.bucket_by_sequence_length(0, [10, 20], [8, 4, 2])
    expected = buckets(order(ds, 100), lengths, [10, 20], [8, 4, 2])
    share = -(-len(expected) // world_size)
    for rank in range(world_size):
        loader = bucketed.shard(rank, world_size).numpy()
        assert len(loader) == share
        mine = [labels.tolist() for _, labels in loader]
        assert mine == [expected[(i * world_size + rank) % len(expected)] for i in range(share)]


def test_a_shard_before_buckets_is_refused() -> None:
    ds = wf.from_tensor_slices(([np.arange(3), np.arange(1)], np.arange(2)))
    with pytest.raises(ValueError, match="shard"):
        ds.shard(0, 2).bucket_by_sequence_length(0, [2], [2, 2])
    with pytest.raises(ValueError, match="shard"):
        ds.shard(0, 2).batch_by_tokens(8, field=0)


def test_an_epoch_of_buckets_goes_on_with_other_ranks() -> None:
    rng = random.Random(5)
    rows = texts(rng, 96, 30)
    ds = wf.from_tensor_slices((wf.Ragged.from_arrays(rows), np.arange(96))).shuffle(seed=3)
    bucketed = ds.bucket_by_sequence_length(0, [10, 20], [8, 4, 2])
    whole = [labels.tolist() for _, labels in bucketed.numpy()]
    seen, states = [], []
    for rank in range(4):
        loader = bucketed.shard(rank, 4).numpy()
        batches = iter(loader)
        seen += [next(batches)[1].tolist() for _ in range(2)]
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    rest = [[], []]  # type: ignore[var-annotated]
    for rank in range(2):
        loader = bucketed.shard(rank, 2).numpy()
        loader.load_state_dict(states[0])
        rest[rank] = [labels.tolist() for _, labels in loader]
    assert len(rest[0]) == len(rest[1])
    assert sorted(seen) == sorted(whole[:8])
    left = [batch for pair in zip(*rest) for batch in pair]
    assert left[: len(whole) - 8] == whole[8:]


def test_fixed_and_varying_fields_stand_side_by_side_in_any_structure() -> None:
    rows = [np.arange(n, dtype=np.float32) for n in (2, 0, 3)]
    tree = {"a": (rows, np.arange(3)), "b": {"c": np.eye(3), "d": np.array([True, False, True])}}
    ds = wf.from_tensor_slices(tree)
    batch = next(iter(ds.padded_batch(3, padding_values={"a": (-1.5, None)}).numpy()))
    np.testing.assert_array_equal(batch["a"][0], pad(rows, -1.5))
    np.testing.assert_array_equal(batch["b"]["c"], np.eye(3))
    assert batch["b"]["d"].tolist() == [True, False, True]
    assert batch["a"][1].tolist() == [0, 1, 2]
    again = pickle.loads(pickle.dumps(ds.ragged_batch(3)))
    assert next(iter(again.numpy()))["a"][0].offsets.tolist() == [0, 2, 2, 5]
    assert ds.sample(2)["a"][0].tolist() == [0, 1, 2]


def test_padded_shapes_and_values_are_checked() -> None:
    ds = wf.from_tensor_slices(([np.arange(3), np.arange(1)], np.eye(2)))
    batch = next(iter(ds.padded_batch(2, padded_shapes=([5], [3]), padding_values=9).numpy()))
    assert batch[0].tolist() == [[0, 1, 2, 9, 9], [0, 9, 9, 9, 9]]
    assert batch[1].tolist() == [[1, 0, 9], [0, 1, 9]]
    for shapes, error in [
        (([5],), ValueError),
        ([5], ValueError),
        (([5], 3), TypeError),
        (([5], [1]), ValueError),
    ]:
        with pytest.raises(error):
            list(ds.padded_batch(2, padded_shapes=shapes).numpy())
    with pytest.raises(ValueError, match="int64"):
        list(ds.padded_batch(2, padding_values=(0.5, 0)).numpy())
    with pytest.raises(ValueError, match="padded_batch"):
        list(ds.batch(2).numpy())
    with pytest.raises(TypeError, match="field"):
        ds.bucket_by_sequence_length(len, [2], [1, 1])
    with pytest.raises(ValueError):
        ds.bucket_by_sequence_length(0, [3, 2], [1, 1, 1])


def test_padding_to_bucket_boundaries() -> None:
    rows = [np.arange(n) for n in (3, 1, 7, 6)]
    ds = wf.from_tensor_slices(rows)
    shapes = [
        b.shape
        for b in ds.bucket_by_sequence_length(None, [5, 9], [2, 2, 2], pad_to_bucket_boundary=True).numpy()
    ]
    assert shapes == [(2, 4), (2, 8)]
    ragged = list(ds.bucket_by_sequence_length(None, [5, 9], [2, 2, 2], no_padding=True).numpy())
    assert [r.lengths.tolist() for r in ragged] == [[3, 1], [7, 6]]


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    rows = [np.arange(n) for n in (3, 1, 7)]
    ds = wf.from_tensor_slices((rows, np.arange(3)))
    (tokens, lengths), _ = next(iter(ds.padded_batch(3, lengths=True).torch()))
    expected = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)
    assert torch.equal(tokens, expected)
    assert lengths.tolist() == [3, 1, 7]
    ragged, _ = next(iter(ds.ragged_batch(3).torch()))
    assert isinstance(ragged.values, torch.Tensor)
    assert ragged[2].tolist() == list(range(7))
    nested = ragged.to_nested()
    assert [part.tolist() for part in nested.unbind()] == [row.tolist() for row in rows]
    assert [part.tolist() for part in ragged[1:].to_nested().unbind()] == [row.tolist() for row in rows[1:]]


def test_ragged_memory_is_used_where_it_lies() -> None:
    values, offsets = np.arange(6), np.array([0, 4, 6])
    ds = wf.from_tensor_slices(wf.Ragged(values, offsets))
    values[0] = 77
    assert ds.sample(0).tolist() == [77, 1, 2, 3]


def test_ragged_is_a_sequence() -> None:
    ragged = wf.Ragged.from_arrays([[1, 2], [], [3]])
    assert [part.tolist() for part in ragged] == [[1, 2], [], [3]]
    assert ragged[-1].tolist() == [3]
    assert ragged[1:].lengths.tolist() == [0, 1]
    assert np.shares_memory(ragged[0], ragged.values)
    with pytest.raises(IndexError):
        ragged[3]
    with pytest.raises(ValueError):
        wf.Ragged.from_arrays([np.zeros((2, 3)), np.zeros((2, 4))])
    for bad in ([0, 3, 1], [-1, 2], [0, 9]):
        with pytest.raises(ValueError):
            wf.from_tensor_slices(wf.Ragged(np.arange(4), np.array(bad)))


def test_numbers_above_int64_stay_what_they_are() -> None:
    ids = [1, 2**64 - 1]
    for given in (np.array(ids, np.uint64), ids):
        (got,) = wf.from_tensor_slices(given).batch(2).numpy()
        assert got.dtype == np.uint64
        assert got.tolist() == ids
    with pytest.raises(ValueError, match="18446744073709551615"):
        wf.image_files(["a.jpg"], labels=np.array([2**64 - 1], np.uint64))
    with pytest.raises(ValueError):
        wf.from_tensor_slices([-1, 2**63])


def test_what_a_subclass_says_of_its_memory_is_not_believed() -> None:
    other = np.full(4, 99)

    class Lying(np.ndarray):
        @property
        def __array_interface__(self) -> Any:  # type: ignore[override]
            return other.__array_interface__

        @property
        def nbytes(self) -> int:  # type: ignore[override]
            return other.nbytes

    array = np.arange(4).view(Lying)
    spec = (
        '{"type": "tensor_slices", "structure": {"field": 0}, '
        '"fields": [{"name": "x", "dtype": "int64", "shape": [4]}]}'
    )
    held = _native.Dataset.open(spec, [(array, "int64")])
    assert np.asarray(held.sample(2, 0)[0]) == 2


BUCKETS: dict[str, Any] = {
    "bucket_boundaries": [5, 12],
    "bucket_batch_sizes": [4, 3, 2],
    "pad_to_bucket_boundary": False,
    "drop_remainder": False,
}
TOKENS: dict[str, Any] = {
    "max_tokens": 64,
    "multiple_of": None,
    "bucket_boundaries": [],
    "drop_last": False,
}


@pytest.mark.parametrize(
    ("verb", "rules", "name", "other"),
    [
        ("bucket_by_sequence_length", BUCKETS, "bucket_boundaries", [6, 12]),
        ("bucket_by_sequence_length", BUCKETS, "bucket_batch_sizes", [4, 3, 1]),
        ("bucket_by_sequence_length", BUCKETS, "pad_to_bucket_boundary", True),
        ("bucket_by_sequence_length", BUCKETS, "drop_remainder", True),
        ("batch_by_tokens", TOKENS, "max_tokens", 65),
        ("batch_by_tokens", TOKENS, "multiple_of", 8),
        ("batch_by_tokens", TOKENS, "bucket_boundaries", [9]),
        ("batch_by_tokens", TOKENS, "drop_last", True),
    ],
)
def test_a_state_of_other_rules_is_refused_with_what_differs(
    verb: str, rules: dict[str, Any], name: str, other: Any
) -> None:
    rows = texts(random.Random(1), 30, 11)
    ds = wf.from_tensor_slices(wf.Ragged.from_arrays(rows)).shuffle(seed=2)

    def loader(rules: dict[str, Any]) -> Any:
        return getattr(ds, verb)(field=None, **rules).numpy(num_workers=1)

    was = loader(rules)
    next(iter(was))
    state = was.state_dict()
    loader(rules).load_state_dict(state)
    before, now = (json.dumps(value, separators=(",", ":")) for value in (rules[name], other))
    with pytest.raises(wf.StateError) as caught:
        loader({**rules, name: other}).load_state_dict(state)
    assert f"{name} of {verb}() was {before}, and is {now} here" in str(caught.value)


def test_arrays_are_given_back_with_their_data_set() -> None:
    """And not when Python next collects garbage, which may be long after."""
    array = np.zeros((4, 9), np.float32)
    kept = weakref.ref(array)
    gc.disable()
    try:
        ds = wf.from_tensor_slices({"some": (array, np.arange(4))}).batch(2)
        assert len(list(ds.numpy())) == 2
        del ds, array
        assert kept() is None
    finally:
        gc.enable()
