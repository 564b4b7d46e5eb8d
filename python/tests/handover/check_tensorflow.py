"""`Dataset.tf` with a real TensorFlow."""

from __future__ import annotations

import doctest
import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import wellfed as wf
from wellfed._handover import foreign, methods
from wellfed._handover.tensorflow import of_engine, of_python
from wellfed.exceptions import StateError

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
X = np.arange(48, dtype=np.float32).reshape(24, 2)
Y = np.arange(24)
# Another process opens its source anew, too; of which wellfed warns where both are one process.
pytestmark = pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again")
RAGGED = [[1, 2], [3], [4, 5, 6], []]


def pairs() -> wf.Dataset:
    return wf.from_tensor_slices((X, Y)).shuffle(seed=1).batch(7)


def labels(data: Any) -> list[list[int]]:
    return [y.numpy().tolist() for _, y in data]


def epochs(dataset: wf.Dataset, count: int) -> list[list[list[int]]]:
    """Labels by epoch and batch, as NumPy users get them."""
    loader = dataset.numpy()
    loader.set_epoch(0)
    return [[y.tolist() for _, y in loader] for _ in range(count)]


def test_docstring() -> None:
    found = doctest.DocTestFinder().find(methods.Frameworks.tf, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert sum(runner.run(test).attempted for test in found) > 4
    assert runner.summarize(verbose=False).failed == 0


def test_every_iteration_is_the_next_epoch_whoever_advances_it() -> None:
    expected = epochs(pairs(), 6)
    data = pairs().tf()
    assert labels(data) == expected[0]
    assert labels(data.map(lambda x, y: (x, y))) == expected[1]
    assert labels(data.repeat(2)) == expected[2] + expected[3]
    for _ in data:
        break
    assert labels(data) == expected[5]


def test_values_and_spec() -> None:
    data = pairs().tf()
    for x, y in data:
        np.testing.assert_array_equal(x, X[y.numpy()])
    assert data.element_spec == (tf.TensorSpec((None, 2), tf.float32), tf.TensorSpec((None,), tf.int64))
    assert len(data) == 4
    assert isinstance(data, tf.data.Dataset)
    assert "shuffle(seed=1)" in repr(data)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64"])
def test_whole_dtypes(dtype: str) -> None:
    array = np.arange(12).reshape(6, 2).astype(dtype)
    assert_same(wf.from_tensor_slices(array).batch(4), array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", ml_dtypes.bfloat16])
def test_other_dtypes(dtype: Any) -> None:
    array = np.linspace(-3, 3, 12).reshape(6, 2).astype(dtype)
    assert_same(wf.from_tensor_slices(array).batch(4), array)


def assert_same(dataset: wf.Dataset, array: Any) -> None:
    data = dataset.tf()
    assert data.element_spec.dtype == tf.dtypes.as_dtype(array.dtype)
    for made in (data, data.map(lambda x: x)):
        batches = list(made)
        assert all(data.element_spec.is_compatible_with(one) for one in batches)
        np.testing.assert_array_equal(tf.concat(batches, 0).numpy(), array)


def test_static_batch_dimension_only_where_all_batches_have_it() -> None:
    ds = wf.from_tensor_slices(Y)

    def front(one: wf.Dataset) -> int | None:
        return one.tf().element_spec.shape[0]

    assert front(ds.batch(8, drop_last=True)) == 8
    assert front(ds.batch(8, drop_last=True).take(2)) == 8
    assert front(ds.batch(8)) is None
    assert front(ds.batch(8, drop_last=True).with_options(on_error="skip")) is None
    assert front(ds.batch(8, drop_last=True).with_options(on_error="replace")) == 8
    both = ds.batch(8, drop_last=True).concatenate(ds.batch(6, drop_last=True))
    assert front(both) is None
    for one in (both, ds.batch(8)):
        for made in (one.tf(), one.tf().map(lambda y: y)):
            assert sum(len(y) for y in made) == (48 if one is both else 24)


def test_cardinality() -> None:
    ds = wf.from_tensor_slices(Y)
    assert ds.batch(5).tf().cardinality() == 5
    assert ds.batch(5).tf().map(lambda y: y).cardinality() == 5
    assert ds.repeat().batch(5).tf().cardinality() == tf.data.INFINITE_CARDINALITY
    assert ds.batch(5).tf(on_error="skip").cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert list(wf.from_tensor_slices(Y[:0]).batch(5).tf()) == []


def test_ragged_padded_and_lengths() -> None:
    ds = wf.from_tensor_slices({"a": RAGGED, "b": np.arange(4)})
    data = ds.ragged_batch(2, drop_last=True).tf()
    assert data.element_spec["a"] == tf.RaggedTensorSpec((2, None), tf.int64, 1, tf.int64)
    for made in (data, data.map(lambda one: one)):
        assert [row for one in made for row in one["a"].to_list()] == RAGGED
    padded = ds.padded_batch(2, lengths=True).tf()
    assert padded.element_spec["a"] == (
        tf.TensorSpec((None, None), tf.int64),
        tf.TensorSpec((None,), tf.int64),
    )
    assert next(iter(padded))["a"][1].numpy().tolist() == [2, 1]
    assert [one.numpy().tolist() for one in wf.from_tensor_slices(RAGGED).tf()] == RAGGED


def test_text_and_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": "é", "n": 1}\n{"t": "b", "n": 2}\n{"t": "", "n": 3}\n', encoding="utf-8")
    ds = wf.jsonl(str(path))
    data = ds.batch(2).tf()
    assert data.element_spec["t"] == tf.TensorSpec((None,), tf.string)
    for made in (data, data.map(lambda one: one)):
        assert [t.decode() for one in made for t in one["t"].numpy()] == ["é", "b", ""]
    assert [one["t"].numpy().decode() for one in ds.tf()] == ["é", "b", ""]
    path.write_text('{"t": {"a": 1}}\n{"t": {"a": [2]}}\n', encoding="utf-8")
    with pytest.raises(TypeError, match="JSON"):
        wf.jsonl(str(path)).batch(2).tf()


def test_samples_without_batches() -> None:
    data = wf.from_tensor_slices((X, Y)).tf()
    assert data.element_spec[0] == tf.TensorSpec((2,), tf.float32)
    assert labels(data.batch(5)) == [Y[i : i + 5].tolist() for i in range(0, 24, 5)]


def test_no_copy_and_memory_lives_as_long_as_its_tensors() -> None:
    array = np.arange(64 * 1000, dtype=np.float32).reshape(64, 1000)
    data = wf.from_tensor_slices(array).batch(8).repeat(20).tf()
    for made in (data, data.map(lambda x: x)):
        held = list(made)
        assert len(held) == 160
        for i, one in enumerate(held):
            np.testing.assert_array_equal(one, array[8 * (i % 8) : 8 * (i % 8) + 8])
        # Results that TensorFlow might write where their batch lies.
        held = [tf.nn.relu(one - 1) for one in made]
        for i, one in enumerate(held):
            np.testing.assert_array_equal(one, np.maximum(array[8 * (i % 8) : 8 * (i % 8) + 8] - 1, 0))
    # What is written to the engine's memory is seen in the tensor: they are one.
    native = wf.from_tensor_slices(array).batch(8).numpy()._native
    native.start_epoch()
    (column,) = native.next()
    tensor = of_engine(column)
    np.asarray(column)[0, 0] = 7
    assert tensor[0, 0] == 7


@tf.function
def two(iterator: Any) -> Any:
    return tf.reduce_sum(next(iterator)[1]) + tf.reduce_sum(next(iterator)[1])


def nothing(_: Any) -> None:
    pass


def one_each(iterator: Any) -> None:
    next(iterator)
    two(iterator)


def resource(iterator: Any) -> None:
    iterator.get_next_as_optional()


def ended(iterator: Any) -> None:
    assert len(labels(iterator)) == 4


def ended_in_functions(iterator: Any) -> None:
    two(iterator)
    two(iterator)
    assert not iterator.get_next_as_optional().has_value()


BEFORE = {nothing: 0, next: 1, two: 2, one_each: 3, resource: 1, ended: 4, ended_in_functions: 4}
"""What is done to an iterator before it is saved, and how many batches that takes."""


@pytest.mark.parametrize("before", BEFORE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("after", [nothing, two], ids=lambda f: f.__name__)
def test_checkpoints_are_exact(before: Any, after: Any, tmp_path: Path) -> None:
    data = pairs().tf()
    iterator = iter(data)
    before(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    rest, then = labels(iterator), labels(data)
    assert len(rest) == 4 - BEFORE[before]
    other = pairs().tf()
    iterator = iter(other)
    after(iterator)
    tf.train.Checkpoint(iterator=iterator).restore(path).assert_consumed()
    assert labels(iterator) == rest
    assert labels(other) == then


def test_a_restored_iterator_goes_on_in_a_function(tmp_path: Path) -> None:
    data = pairs().tf()
    iterator = iter(data)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    expected = two(iterator), labels(iterator)
    iterator = iter(pairs().tf())
    tf.train.Checkpoint(iterator=iterator).restore(path)
    assert (two(iterator), labels(iterator)) == expected


def test_the_data_set_itself_can_be_saved(tmp_path: Path) -> None:
    data = pairs().tf()
    next(iter(data))
    path = tf.train.Checkpoint(data=data).save(str(tmp_path / "c"))
    state = data.loader.state_dict()
    other = pairs().tf()
    tf.train.Checkpoint(data=other).restore(path).assert_consumed()
    assert other.loader.state_dict() == state
    assert len(labels(iter(other))) == 3


def test_places_of_several_iterators_under_tensorflow_are_not_guessed() -> None:
    data = pairs().tf()
    one, other = iter(data), iter(data)
    two(one)
    two(other)
    with pytest.raises(StateError, match="several iterators"):
        tf.train.Checkpoint(iterator=one).write(os.devnull)
    del other


def test_iterators_beside_each_other() -> None:
    expected = epochs(pairs(), 2)
    data = pairs().tf()
    one, other = iter(data), iter(data)
    got: list[list[list[int]]] = [[], []]
    for _ in range(4):
        got[0].append(next(one)[1].numpy().tolist())
        got[1].append(next(other)[1].numpy().tolist())
    assert got == expected
    zipped = list(tf.data.Dataset.zip((data, data)))
    assert len(zipped) == 4
    assert sorted(y for (_, ys), _ in zipped for y in ys.numpy()) == list(range(24))


def test_end_of_an_iterator() -> None:
    iterator = iter(wf.from_tensor_slices(Y).batch(24).tf())
    assert iterator.get_next().shape == (24,)
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
    with pytest.raises(StopIteration):
        next(iterator)


def test_in_functions() -> None:
    data = wf.from_tensor_slices(Y).batch(5).tf()

    @tf.function
    def total() -> Any:
        sum_ = tf.zeros((), tf.int64)
        for y in data:
            sum_ += tf.reduce_sum(y)
        return sum_

    assert total() == total() == 276
    assert data.reduce(np.int64(0), lambda s, y: s + tf.reduce_sum(y)) == 276
    assert sum(len(y) for y in data.as_numpy_iterator()) == 24


def test_distributed() -> None:
    data = wf.from_tensor_slices((X, Y)).batch(8, drop_last=True).tf()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    distributed = strategy.experimental_distribute_dataset(data)
    halves = [[part.numpy().tolist() for part in y.values] for _, y in distributed]
    assert halves == [[list(range(i, i + 4)), list(range(i + 4, i + 8))] for i in (0, 8, 16)]

    @tf.function
    def step(iterator: Any) -> Any:
        sums = strategy.run(lambda x, y: tf.reduce_sum(y), args=next(iterator))
        return strategy.reduce("SUM", sums, axis=None)

    iterator = iter(distributed)
    assert [int(step(iterator)) for _ in range(3)] == [28, 92, 156]
    ahead = data.apply(tf.data.experimental.prefetch_to_device("/CPU:1"))
    assert [(y.device[-5:], y.numpy().tolist()) for _, y in ahead] == [
        ("CPU:1", list(range(i, i + 8))) for i in (0, 8, 16)
    ]


def test_errors_have_their_text_on_both_ways(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    data = wf.image_files([str(tmp_path / "a.png"), str(tmp_path / "b.png")], labels=[0, 1]).batch(2).tf()
    with pytest.raises(wf.WellfedError, match=r"b\.png"):
        list(data)
    with pytest.raises(tf.errors.OpError, match=r"b\.png"):
        list(data.map(lambda *one: one))
    skipping = (
        wf.image_files([str(tmp_path / "a.png"), str(tmp_path / "b.png")], labels=[0, 1])
        .batch(1)
        .tf(on_error="skip")
    )
    assert len(list(skipping)) == len(list(skipping.map(lambda *one: one))) == 1
    assert len(skipping.loader.errors()) == 2


def test_wrong_use() -> None:
    with pytest.raises(TypeError, match="there is no option devce"):
        pairs().tf(devce=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="element_spec"):
        pairs().tf(element_spec=tf.TensorSpec(()))
    with pytest.raises(ValueError, match="multiprocessing_context"):
        pairs().tf(multiprocessing_context="spawn")


def test_nothing_is_left_behind() -> None:
    data = pairs().tf()
    left = weakref.ref(data.loader)
    labels(data)
    labels(data.map(lambda x, y: (x, y)))
    two(iter(data))
    del data
    gc.collect()
    assert left() is None
    chain = pairs().tf().map(lambda x, y: (x, y)).prefetch(1)
    gc.collect()
    assert len(labels(chain)) == 4


def test_states_of_threads_are_let_go_at_the_end_and_few_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `prefetch` has a thread of its own, which ends with its iterator."""
    chain = pairs().tf().map(lambda x, y: (x, y)).prefetch(1)
    labels(chain)
    before = foreign._count
    for _ in range(3):
        assert len(labels(chain)) == 4
    assert foreign._count == before
    monkeypatch.setattr(foreign, "MOST", before + 2)
    endless = wf.from_tensor_slices(Y).repeat().batch(4).tf().map(lambda y: y).prefetch(1)
    for _ in range(4):
        next(iter(endless))
    assert before < foreign._count <= before + 2
    assert len(labels(chain)) == 4
    assert foreign._count <= before + 2


def test_a_state_is_kept_and_let_go_once() -> None:
    seen = []

    def body() -> None:
        before = foreign._count
        for _ in range(3):
            foreign.keep_state()
            seen.append(foreign._count - before)
        for _ in range(3):
            foreign.let_state_go()
            seen.append(foreign._count - before)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    full = foreign._count >= foreign.MOST
    assert seen == ([0] * 6 if full else [1, 1, 1, 0, 0, 0])


def doubled(sample: Any) -> Any:
    return {"x": 2 * sample[0], "name": f"nr {sample[1]}", "parts": [sample[1], 1.5]}


def test_python_steps() -> None:
    pytest.importorskip("torch")
    ds = wf.from_tensor_slices((X, Y)).map(doubled).batch(5)
    data = ds.tf(num_workers=0)
    assert data.element_spec["x"] == tf.TensorSpec((None, 2), tf.float32)
    assert data.element_spec["name"] == tf.TensorSpec((None,), tf.string)
    assert isinstance(data.element_spec["parts"], tuple)
    for made in (data, data.map(lambda one: one)):
        batches = list(made)
        np.testing.assert_array_equal(tf.concat([one["x"] for one in batches], 0), 2 * X)
        assert batches[1]["name"][0] == b"nr 5"
    assert len(data) == 5
    grown = wf.from_tensor_slices(Y).map(lambda y: np.zeros((int(y) // 5 + 1, 2), np.float32)).batch(5)
    with pytest.raises(TypeError, match="element_spec"):
        list(grown.tf(num_workers=0))
    spec = tf.TensorSpec((None, None, 2), tf.float32)
    shapes = [one.shape for one in grown.tf(num_workers=0, element_spec=spec)]
    assert shapes == [(5, n, 2) for n in (1, 2, 3, 4)] + [(4, 5, 2)]


def test_memory_that_is_not_aligned_is_copied() -> None:
    room = np.zeros(4096, np.uint8)
    start = -room.ctypes.data % 64
    for off in (0, 4, 8, 32):
        part = room[start + off : start + off + 400].view(np.float32)
        part[:] = off
        assert tf.reduce_sum(of_python(part)[:50]) == 50 * off
    for odd in (room[::2], np.array(3.5), np.ones((4, 3)).T, np.zeros((0, 3)), np.array(["a", "b"])):
        assert of_python(odd).shape == odd.shape
    still = np.ones(3)
    still.setflags(write=False)
    assert tf.reduce_sum(of_python(still)) == 3
