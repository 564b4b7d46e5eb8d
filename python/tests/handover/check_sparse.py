"""`Dataset.tf(sparse=...)` with a real TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import wellfed as wf

# Another process opens its source anew, too; of which wellfed warns where both are one process.
pytestmark = pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again")
DTYPES = [
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", ml_dtypes.bfloat16),
]
RAGGED = [[1, 0], [], [3, 0, 4], [0]]


def assert_same(one: Any, other: Any) -> None:
    assert isinstance(one, tf.SparseTensor)
    assert one.dtype == other.dtype
    for part in ("indices", "values", "dense_shape"):
        found, expected = getattr(one, part).numpy(), getattr(other, part).numpy()
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes(), part


def both_ways(data: Any) -> list[list[Any]]:
    """What Python is given, and what TensorFlow is."""
    return [list(data), list(data.map(lambda *parts: parts if len(parts) > 1 else parts[0]).prefetch(2))]


@pytest.mark.parametrize("seed", range(13))
def test_as_from_dense_and_to_sparse(seed: int) -> None:
    """Batches and single samples, over random shapes, sizes and dtypes, against TensorFlow of the same arrays."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[seed % len(DTYPES)])
    count, size = int(random.integers(1, 9)), int(random.integers(1, 5))
    rest = tuple(random.integers(1, 4, random.integers(0, 3)))

    def drawn(*shape: int) -> Any:
        return (random.integers(-3, 4, shape) * random.integers(0, 2, shape)).astype(dtype)

    dense = drawn(count, *rest)
    if dtype.kind == "f" and dense.size:
        dense.flat[0] = -0.0
        dense.flat[-1] = np.nan
    lengths = random.integers(0, 4, count) * random.integers(0, 2, count)
    ragged = [drawn(int(n), *rest) for n in lengths]
    ds = wf.from_tensor_slices({"d": dense, "r": wf.Ragged.from_arrays(ragged)})
    # Of arrays that are taken for images the sides come in another order.
    batches = list(ds.ragged_batch(size).tf())
    for made in both_ways(ds.ragged_batch(size).tf(sparse=["r", "d"])):
        for place, (element, plain) in enumerate(zip(made, batches, strict=True)):
            assert_same(element["d"], tf.sparse.from_dense(plain["d"]))
            rows = ragged[place * size : (place + 1) * size]
            stacked = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), [len(one) for one in rows])
            assert_same(element["r"], stacked.to_sparse())
            assert_same(tf.sparse.reorder(element["r"]), element["r"])
    samples = list(ds.tf())
    names = ["r", "d"] if rest else ["r"]
    for undone in (ds, ds.ragged_batch(size).unbatch(), ds.padded_batch(size).unbatch()):
        for values, plain, element in zip(ragged, samples, undone.tf(sparse=names), strict=True):
            assert element["r"].dense_shape.numpy().tolist() == list(values.shape)
            assert element["r"].indices.numpy().tolist() == [list(at) for at in np.ndindex(values.shape)]
            assert element["r"].values.numpy().tobytes() == values.tobytes()
            if rest:
                assert_same(element["d"], tf.sparse.from_dense(plain["d"]))
    padded = ds.padded_batch(size).tf(sparse=["r"])
    for element, same in zip(padded, ds.padded_batch(size).tf()):
        assert_same(element["r"], tf.sparse.from_dense(same["r"]))


def test_specs_are_what_comes() -> None:
    ds = wf.from_tensor_slices({"r": RAGGED, "d": np.eye(4, 3), "n": {"p": (np.eye(4), np.arange(4))}})
    data = ds.ragged_batch(2, drop_last=True).tf(sparse=["r", "n.p.0"])
    assert data.element_spec["r"] == tf.SparseTensorSpec((2, None), tf.int64)
    assert data.element_spec["d"] == tf.TensorSpec((2, 3), tf.float64)
    assert data.element_spec["n"]["p"] == (
        tf.SparseTensorSpec((2, 4), tf.float64),
        tf.TensorSpec((2,), tf.int64),
    )
    for made in both_ways(data):
        for element in made:
            tf.nest.assert_same_structure(data.element_spec, element)
            pairs = zip(tf.nest.flatten(data.element_spec), tf.nest.flatten(element))
            assert all(spec.is_compatible_with(one) for spec, one in pairs)
    assert ds.ragged_batch(3).tf(sparse=["r"]).element_spec["r"] == tf.SparseTensorSpec(
        (None, None), tf.int64
    )
    assert ds.tf(sparse=["r"]).element_spec["r"] == tf.SparseTensorSpec((None,), tf.int64)
    pair = wf.from_tensor_slices((np.eye(4), np.arange(4))).batch(2)
    assert isinstance(pair.tf(sparse=[0]).element_spec[0], tf.SparseTensorSpec)
    assert isinstance(pair.tf(sparse=["1"]).element_spec[1], tf.SparseTensorSpec)


def test_as_sparse_batch_of_tf_data() -> None:
    """`sparse_batch` has a shape of rows that is given; all else is the same."""
    ragged = wf.Ragged.from_arrays(RAGGED)
    stock = tf.data.Dataset.from_generator(
        lambda: iter(RAGGED), output_signature=tf.TensorSpec([None], tf.int64)
    )
    ours = wf.from_tensor_slices(ragged).ragged_batch(3).tf(sparse=[0])
    widened = ours.map(lambda one: tf.sparse.reset_shape(one, tf.stack([tf.shape(one)[0], 5])))
    assert len(list(ours)) == 2
    for found, expected in zip(
        widened, stock.apply(tf.data.experimental.dense_to_sparse_batch(3, [5])), strict=True
    ):
        assert_same(found, expected)


def test_texts() -> None:
    ds = wf.from_dataset(["one", "", "three"]).batch(3)
    pytest.importorskip("torch")
    (batch,) = ds.tf(sparse=[0], num_workers=0)
    assert batch.indices.numpy().tolist() == [[0], [2]]
    assert batch.values.numpy().tolist() == [b"one", b"three"]


@tf.function
def total(iterator: Any) -> Any:
    return tf.sparse.reduce_sum(iterator.get_next())


def test_in_functions_distributed_and_saved(tmp_path: Path) -> None:
    dense = np.arange(48).reshape(12, 4) % 3
    data = wf.from_tensor_slices(dense).shuffle(seed=2).batch(4).tf(sparse=[0])
    reference = [one.sum() for one in wf.from_tensor_slices(dense).shuffle(seed=2).batch(4).numpy()]
    iterator = iter(data)
    assert [int(total(iterator)) for _ in range(3)] == reference
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    replicated = strategy.experimental_distribute_dataset(
        wf.from_tensor_slices(dense).batch(4).tf(sparse=[0])
    )
    sums = [int(strategy.run(lambda one: tf.sparse.reduce_sum(one), args=(one,))) for one in replicated]
    assert sums == [int(dense[at : at + 4].sum()) for at in (0, 4, 8)]

    def fresh() -> Any:
        return iter(wf.from_tensor_slices(dense).shuffle(seed=2).batch(4).tf(sparse=[0]))

    saved = fresh()
    next(saved)
    path = tf.train.Checkpoint(iterator=saved).save(str(tmp_path / "at"))
    rest = list(saved)
    restored = fresh()
    tf.train.Checkpoint(iterator=restored).restore(path)
    again = list(restored)
    assert len(again) == len(rest) == 2
    for one, other in zip(again, rest):
        assert_same(one, other)


def halved(sample: Any) -> Any:
    return {"x": sample // 2, "text": f"nr {int(sample[0])}", "one": 1}


def test_python_steps() -> None:
    pytest.importorskip("torch")
    dense = np.arange(12).reshape(6, 2) % 4
    ds = wf.from_tensor_slices(dense).map(halved).batch(4)
    spec = {
        "x": tf.TensorSpec((None, 2), tf.int64),
        "text": tf.TensorSpec((None,), tf.string),
        "one": tf.TensorSpec((None,), tf.int64),
    }
    for given in (None, spec, spec | {"x": tf.SparseTensorSpec((None, 2), tf.int64)}):
        data = ds.tf(sparse=["x", "text"], num_workers=0, element_spec=given)
        assert data.element_spec["x"] == tf.SparseTensorSpec((None, 2), tf.int64)
        for made in both_ways(data):
            for element, rows in zip(made, (slice(0, 4), slice(4, 6)), strict=True):
                assert_same(element["x"], tf.sparse.from_dense(dense[rows] // 2))
                assert element["one"].shape.rank == 1


def test_what_cannot_be() -> None:
    ds = wf.from_tensor_slices({"r": RAGGED, "d": np.eye(4), "y": np.arange(4)})
    with pytest.raises(ValueError, match=r"no column 'z'; elements have 'r', 'd', 'y'"):
        ds.ragged_batch(2).tf(sparse=["z"])
    with pytest.raises(ValueError, match="no column '-1'"):
        ds.ragged_batch(2).tf(sparse=[-1])
    with pytest.raises(TypeError, match="comes with its lengths"):
        ds.padded_batch(2, lengths=True).tf(sparse=["r"])
    with pytest.raises(TypeError, match="y is a single value"):
        ds.tf(sparse=["y"])
    for wrong in ("r", 0, None):
        with pytest.raises(TypeError, match="takes a list of fields"):
            ds.ragged_batch(2).tf(sparse=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="True is no field"):
        ds.ragged_batch(2).tf(sparse=[True])
    assert isinstance(ds.ragged_batch(2).tf(sparse=[]).element_spec["d"], tf.TensorSpec)
