"""`tf`, `keras` and `jax` of `wellfed.from_generator`, with the frameworks that there are."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import pytest

import wellfed as wf
from wellfed.exceptions import ConfigError, StateError, WellfedError

pytest.importorskip("torch")
X = np.random.default_rng(0).normal(size=(22, 3)).astype(np.float32)
Y = np.arange(22) % 2
BATCHES = [list(range(at, min(22, at + 4))) for at in range(0, 22, 4)]
calls = 0
pytestmark = [
    pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again"),
    # Keras says this of all data whose length it is not told.
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed"),
    pytest.mark.filterwarnings("ignore:__array__ implementation"),
]


def pairs() -> Iterator[Any]:
    global calls
    calls += 1
    yield from zip(X, np.arange(22))


def stream() -> wf._steps.stream.StreamDataset:
    return wf.from_generator(pairs).batch(4).with_options(num_workers=0)


def labels(batches: Any) -> list[list[int]]:
    return [np.asarray(y).tolist() for _, y in batches]


tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="no TensorFlow here")
jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="no JAX here")


@tensorflow
def test_tf() -> None:
    import tensorflow as tf

    data = stream().tf()
    assert data.element_spec == (tf.TensorSpec((None, 3), tf.float32), tf.TensorSpec((None,), tf.int64))
    assert data.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert labels(data) == BATCHES
    assert labels(data.map(lambda x, y: (x, y)).prefetch(2)) == BATCHES
    np.testing.assert_array_equal(tf.concat([x for x, _ in data], 0), X)
    whole = wf.from_generator(pairs).batch(4, drop_last=True)
    assert whole.tf(num_workers=0).element_spec[0].shape == (4, 3)
    assert whole.tf(num_workers=0, on_error="skip").element_spec[0].shape[0] is None
    assert labels(
        wf.from_generator(pairs).shuffle(seed=1, buffer_size=9).batch(4).tf(num_workers=0)
    ) == labels(wf.from_generator(pairs).shuffle(seed=1, buffer_size=9).batch(4).numpy(num_workers=0))
    single = wf.from_generator(pairs).tf(num_workers=0)
    assert single.element_spec == (tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.int64))
    assert len(list(single)) == 22
    sparse = wf.from_generator(pairs).batch(4).tf(num_workers=0, sparse=[1])
    assert next(iter(sparse))[1].values.numpy().tolist() == [1, 2, 3]
    assert len(labels(wf.from_generator(pairs).batch(4).tf(num_workers=1))) == 6


@tensorflow
def test_tf_spec() -> None:
    import tensorflow as tf

    def growing() -> Iterator[Any]:
        yield from (np.zeros(n + 1, np.float32) for n in range(3))

    with pytest.raises(TypeError, match="element_spec"):
        list(wf.from_generator(growing).tf(num_workers=0))
    before = calls
    data = stream().tf(element_spec=(tf.TensorSpec((None, 3)), tf.TensorSpec((None,), tf.int64)))
    assert calls == before
    assert len(list(data)) == 6
    data = wf.from_generator(growing).tf(num_workers=0, element_spec=tf.TensorSpec((None,)))
    assert [one.shape[0] for one in data] == [1, 2, 3]
    with pytest.raises(ValueError, match=r"a generator makes them\nhint: tf\(element_spec"):
        wf.from_generator(lambda: iter(())).tf()
    assert list(wf.from_generator(lambda: iter(())).tf(num_workers=0, element_spec=tf.TensorSpec(()))) == []


@tensorflow
def test_tf_places(tmp_path: Path) -> None:
    import tensorflow as tf

    def mixed() -> Any:
        ds = wf.from_generator(pairs).shuffle(seed=3, buffer_size=8).batch(4)
        return ds.tf(num_workers=0)

    iterator = iter(mixed())
    next(iterator)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "at"))
    rest = labels(iterator)
    again = iter(mixed())
    tf.train.Checkpoint(iterator=again).restore(path)
    assert labels(again) == rest
    assert len(rest) == 4


def test_a_stream_that_got_shorter_is_an_error() -> None:
    left = 22
    ds = wf.from_generator(lambda: iter(range(left))).batch(4)
    loader = ds.numpy(num_workers=0)
    batches = iter(loader)
    for _ in range(6):
        next(batches)
    state = loader.state_dict()
    again = ds.numpy(num_workers=0)
    again.load_state_dict(state)
    assert list(again) == []
    left = 9
    again.load_state_dict(state)
    with pytest.raises(WellfedError, match="ended after 3 batches, but the state is of batch 6"):
        list(again)


def broken() -> Iterator[Any]:
    yield 0
    raise OSError("the line is dead")


def test_wrong_use() -> None:
    loader = stream().numpy()
    assert "from_generator(pairs)" in loader.explain()
    with pytest.raises(StateError, match="no trace"):
        loader.write_trace("trace")
    with pytest.raises(ConfigError, match="not made in a thread"):
        stream().keras(multiprocessing_context="thread")
    if importlib.util.find_spec("tensorflow"):
        with pytest.raises(WellfedError, match="the line is dead"):
            list(wf.from_generator(broken).tf(num_workers=0))
        with pytest.raises(WellfedError, match="the line is dead"):
            wf.from_generator(broken).batch(2).tf(num_workers=0)


@jax
def test_jax() -> None:
    import jax

    mesh = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for place in (None, mesh):
        loader = stream().jax(place)
        batches = iter(loader)
        first = next(batches)
        assert isinstance(first[0], jax.Array)
        assert first[1].dtype == np.int32
        state = json.loads(json.dumps(batches.get_state()))
        assert [BATCHES[0], *labels(batches)] == BATCHES
        assert labels(loader) == BATCHES
        again = iter(stream().jax(place))
        again.set_state(state)
        assert labels(again) == BATCHES[1:]
        with pytest.raises(TypeError, match="a stream has no length"):
            len(loader)
    assert "from_generator(pairs)" in loader.explain()


def labelled() -> Iterator[Any]:
    yield from ({"x": x, "y": y, "name": "a"} for x, y in zip(X, Y))


def fitted(*args: Any, **options: Any) -> list[float]:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses: list[float] = model.fit(*args, **options, verbose=0).history["loss"]
    return losses


def test_keras() -> None:
    data = wf.from_generator(labelled).batch(4).keras(x="x", y="y", num_workers=0)
    expected = fitted(X, Y, batch_size=4, shuffle=False, epochs=3)
    assert fitted(data, epochs=3) == expected
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.predict(data, verbose=0).shape == (22, 2)
    assert model.evaluate(data, verbose=0) == model.evaluate(X, Y, batch_size=4, verbose=0)
    assert fitted(data, validation_data=data, epochs=2) == expected[:2]
    assert data.loader.stats()["batches"] > 0
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(TypeError, match="a batch has a str"):
            fitted(wf.from_generator(labelled).batch(4).keras(x="name", y="y", num_workers=0))
        with pytest.raises(ValueError, match="element_spec"):
            stream().keras(element_spec=1)
