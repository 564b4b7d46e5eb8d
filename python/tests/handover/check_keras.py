"""`Dataset.keras` with a real Keras, on the backend that `KERAS_BACKEND` names."""

from __future__ import annotations

import doctest
import os
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import pytest

import wellfed as wf
from wellfed._handover import methods
from wellfed.exceptions import WellfedError

BACKEND = keras.backend.backend()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 8)).astype(np.float32)
Y = RNG.integers(0, 3, 50)
W = RNG.random(50).astype(np.float32)
CLASSES = {0: 1.0, 1: 5.0, 2: 0.1}
pytestmark = [
    pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again"),
    pytest.mark.filterwarnings("ignore:.*shuffle=True. was passed"),
]


def model(compiled: bool = False) -> Any:
    """A small model. Not compiling it for the device saves seconds, and Keras advances the data in another way."""
    keras.utils.set_random_seed(0)
    made = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("adam", loss, metrics=["accuracy"], run_eagerly=not compiled)
    return made


def fitted(*data: Any, compiled: bool = False, **arguments: Any) -> dict[str, list[float]]:
    history: dict[str, list[float]] = model(compiled).fit(*data, verbose=0, **arguments).history
    return history


def from_arrays(**arguments: Any) -> dict[str, list[float]]:
    """Of the same batches, as Keras itself makes them of arrays: what its `tf.data` gives too."""
    return fitted(X, Y, batch_size=8, shuffle=False, **arguments)


def pairs() -> wf.Dataset:
    return wf.from_tensor_slices((X, Y)).batch(8)


def test_docstring() -> None:
    found = doctest.DocTestFinder().find(methods.Frameworks.keras, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert sum(runner.run(test).attempted for test in found) > 4
    assert runner.summarize(verbose=False).failed == 0


def test_same_losses_as_of_arrays() -> None:
    data = pairs().keras()
    assert len(data) == 7
    for compiled in (True, False):
        assert fitted(data, epochs=3, compiled=compiled) == from_arrays(epochs=3, compiled=compiled)


def test_validation_and_callbacks() -> None:
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["val_loss"]))
    ours = fitted(pairs().keras(), epochs=2, validation_data=pairs().keras(), callbacks=[callback])
    assert seen == ours["val_loss"]
    assert ours == from_arrays(epochs=2, validation_data=(X, Y), validation_batch_size=8)
    both = pairs().keras()
    assert fitted(both, epochs=2, validation_data=both) == ours


def test_class_weight_and_sample_weight() -> None:
    assert fitted(pairs().keras(), epochs=2, class_weight=CLASSES) == from_arrays(
        epochs=2, class_weight=CLASSES
    )
    weighted = wf.from_tensor_slices((X, Y, W)).batch(8).keras()
    assert fitted(weighted, epochs=2) == from_arrays(epochs=2, sample_weight=W)
    with pytest.raises(ValueError, match="class_weight"):
        fitted(weighted, class_weight=CLASSES)


def test_steps_per_epoch() -> None:
    endless = pairs().repeat().keras(on_error="raise")
    ours = fitted(endless, epochs=3, steps_per_epoch=7)
    assert len(ours["loss"]) == 3
    ours = fitted(pairs().keras(), epochs=2, steps_per_epoch=3)
    # Keras goes on where it was, as with arrays.
    assert ours == from_arrays(epochs=2, steps_per_epoch=3)


def test_evaluate_and_predict() -> None:
    made = model()
    made.fit(pairs().keras(), verbose=0)
    data = pairs().keras()
    for _ in range(2):
        ours = made.evaluate(data, verbose=0)
        np.testing.assert_allclose(ours, made.evaluate(X, Y, batch_size=8, verbose=0), rtol=1e-6)
        np.testing.assert_allclose(made.predict(data, verbose=0), made.predict(X, verbose=0), atol=1e-6)
    # A pass that was given up leaves nothing behind.
    made.evaluate(data, steps=2, verbose=0)
    np.testing.assert_allclose(made.evaluate(data, verbose=0), ours, rtol=1e-6)
    only = wf.from_tensor_slices(X).batch(8).keras()
    np.testing.assert_allclose(made.predict(only, verbose=0), made.predict(X, verbose=0), atol=1e-6)


def test_every_pass_is_a_fresh_epoch_with_each_sample_once() -> None:
    numbers = np.arange(50, dtype=np.float32)[:, None]
    data = wf.from_tensor_slices((numbers, numbers)).shuffle(seed=3).batch(8).keras()

    @keras.saving.register_keras_serializable()
    class Same(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x

    made = keras.Sequential([keras.Input((1,)), Same()])
    made.compile(loss="mse")
    passes = [made.predict(data, verbose=0)[:, 0].tolist() for _ in range(3)]
    assert all(sorted(one) == list(range(50)) for one in passes)
    assert passes[0] != passes[1] != passes[2]
    loader = wf.from_tensor_slices((numbers, numbers)).shuffle(seed=3).batch(8).numpy()
    epochs = {number: order(loader, number) for number in range(12)}
    assert all(one in epochs.values() for one in passes)


@pytest.mark.skipif(BACKEND == "tensorflow", reason="it is a tf.data.Dataset there")
def test_a_new_generator_is_a_new_pass_whatever_it_asks_for_first() -> None:
    data = wf.from_tensor_slices(np.arange(50)).shuffle(seed=3).batch(8).keras()

    def asked(indices: Any) -> Any:
        for index in indices:
            yield np.asarray(data[index][0]).tolist()

    orders = [[3, 0, 6, 1, 5, 2, 4], range(7), [6, 5, 4, 3, 2, 1, 0]]
    for given_up in (1, 3, 6, 7):
        for indices in orders:
            first = asked(indices)
            for _ in range(given_up):
                next(first)
            assert sorted(value for part in asked(indices) for value in part) == list(range(50))


def order(loader: Any, number: int) -> list[float]:
    loader.set_epoch(number)
    return [value for x, _ in loader for value in x[:, 0].tolist()]


def test_fields_by_name() -> None:
    ds = wf.from_tensor_slices({"image": X, "label": Y, "weight": W}).batch(8)
    assert fitted(ds.keras(x="image", y="label"), epochs=2) == from_arrays(epochs=2)
    assert fitted(ds.keras("image", "label", "weight"), epochs=2) == from_arrays(epochs=2, sample_weight=W)
    four = wf.from_tensor_slices((W, Y, X, W)).batch(8)
    assert fitted(four.keras(x=2, y=1), epochs=1) == from_arrays(epochs=1)
    keras.utils.set_random_seed(0)
    inputs = {"image": keras.Input((8,), name="image"), "weight": keras.Input((1,), name="weight")}
    joined = keras.layers.Concatenate()([inputs["image"], inputs["weight"]])
    several = keras.Model(inputs, keras.layers.Dense(3)(joined))
    several.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    ds = wf.from_tensor_slices({"image": X, "label": Y, "weight": W[:, None]}).batch(8)
    history = several.fit(ds.keras(x=["image", "weight"], y="label"), verbose=0).history
    assert np.isfinite(history["loss"][0])


def test_images_are_as_keras_wants_them(tmp_path: Any) -> None:
    from PIL import Image

    paths = []
    for i in range(4):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (8, 6), (i, 2 * i, 3 * i)).save(paths[-1])
    ds = wf.image_files(paths, labels=list(range(4))).batch(2)

    def shape(data: Any) -> tuple[int, ...]:
        first = next(iter(data)) if BACKEND == "tensorflow" else data[0]
        return tuple(first[0].shape)

    assert shape(ds.keras()) == (2, 6, 8, 3)
    assert shape(ds.keras(layout="NCHW")) == (2, 3, 6, 8)
    keras.backend.set_image_data_format("channels_first")
    try:
        assert shape(ds.keras()) == (2, 3, 6, 8)
    finally:
        keras.backend.set_image_data_format("channels_last")


def test_wrong_use() -> None:
    named = wf.from_tensor_slices({"image": X, "label": Y}).batch(8)
    with pytest.raises(ValueError, match="no field 'lable'"):
        named.keras(x="image", y="lable")
    with pytest.raises(ValueError, match="x="):
        named.keras(y="label")
    with pytest.raises(ValueError, match="y="):
        named.keras(x="image", sample_weight="label")
    with pytest.raises(TypeError, match="is no field"):
        named.keras(x=X)
    with pytest.raises(ValueError, match="4 parts"):
        wf.from_tensor_slices((X, Y, W, W)).batch(8).keras()
    with pytest.raises(ValueError, match="no batch"):
        wf.from_tensor_slices((X[:0], Y[:0])).batch(8).keras()
    with pytest.raises(ValueError):
        fitted(named.keras())
    if BACKEND != "tensorflow":
        ragged = wf.from_tensor_slices(([[1.0], [2.0, 3.0]], Y[:2])).ragged_batch(2)
        with pytest.raises(TypeError, match="padded_batch"):
            ragged.keras()


def test_bad_samples(tmp_path: Any) -> None:
    from PIL import Image

    paths = [str(tmp_path / f"{i}.png") for i in range(6)]
    for path in paths:
        Image.new("RGB", (4, 4)).save(path)
    (tmp_path / "2.png").write_bytes(b"no image")
    (tmp_path / "3.png").write_bytes(b"no image")
    ds = wf.image_files(paths, labels=list(range(6)))

    def predicted(data: Any) -> int:
        # A new one each time: with JAX, Keras' models do not survive an error.
        made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
        made.compile(loss="mse", run_eagerly=True)
        return len(made.predict(data, verbose=0))

    data = ds.batch(4).keras(on_error="skip")
    assert predicted(data) == 4
    # Also of the epoch after it, which the loader began to make.
    assert {bad.index for bad in data.loader.errors()} == {2, 3}
    with pytest.raises(Exception, match=r"2\.png"):
        predicted(ds.batch(4).keras())
    # A batch of bad samples alone is left out: that is known to TensorFlow, and elsewhere an error.
    fewer = ds.batch(2).keras(on_error="skip")
    if BACKEND == "tensorflow":
        assert predicted(fewer) == 4
    else:
        with pytest.raises(WellfedError, match="2 of 3 batches"):
            predicted(fewer)
    assert predicted(ds.batch(2).keras(on_error="replace")) == 6


def doubled(sample: Any) -> Any:
    return 2 * sample[0], sample[1]


def test_python_steps() -> None:
    pytest.importorskip("torch")
    data = wf.from_tensor_slices((X, Y)).map(doubled).batch(8).keras(num_workers=0)
    assert fitted(data, epochs=2) == fitted(2 * X, Y, batch_size=8, shuffle=False, epochs=2)
