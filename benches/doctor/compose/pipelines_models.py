"""Networks and callbacks of scripts on TensorFlow, whose pipelines lie in `pipelines.py`."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, PLAIN, Production, Script, Text


@dataclass(frozen=True)
class SleepingLayer(Production):
    """A layer that lets a batch pass after the time that a device would take."""

    slot: ClassVar[str] = "step"
    of: ClassVar[str] = PLAIN
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    ms: float = 5.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        load = script["storage"].cost(script) * script.about.batch / script.about.cores
        return cls(
            round(min(max(load * 3 ** rng.uniform(-1, 1), 0.5), 3.0 if script.about.small else 60.0), 2)
        )

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add(
            "top",
            f"""
            class Device(keras.layers.Layer):
                def call(self, x):
                    def wait(first):
                        time.sleep({self.ms / 1000:.5f})
                        return first

                    # Of the batch, so that it does not begin to wait before there is one.
                    first = tf.reshape(tf.cast(x, tf.float32), [-1])[:1]
                    with tf.control_dependencies([tf.numpy_function(wait, [first], tf.float32, stateful=True)]):
                        return tf.identity(x)
            """,
        )
        pool = "keras.layers.AveragePooling2D(16), keras.layers.Flatten(), " if len(shape) == 3 else ""
        text.add("model", f"inputs = [keras.Input({shape}), Device()]")
        text.add("model", f"model = keras.Sequential([*inputs, {pool}keras.layers.Dense(10)])")


@dataclass(frozen=True)
class DenseNet(Production):
    """A network on the CPU: layers of a width."""

    slot: ClassVar[str] = "step"
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    width: int = 64

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16 if script.about.small else rng.choice([32, 256, 1024]))

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        pool = "keras.layers.AveragePooling2D(8), keras.layers.Flatten(), " if len(shape) == 3 else ""
        scale = "keras.layers.Rescaling(1 / 255), " if len(shape) == 3 else ""
        text.add("model", f"inputs = [keras.Input({shape}), {scale}{pool}]".replace(", ]", "]"))
        text.add(
            "model",
            f'hidden = [keras.layers.Dense({self.width}, activation="relu") for _ in range(2)]\n'
            "model = keras.Sequential([*inputs, *hidden, keras.layers.Dense(10)])",
        )


@dataclass(frozen=True)
class ConvNet(DenseNet):
    """Convolutions of images, a wide layer of rows."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(4 if script.about.small else rng.choice([8, 16, 32]))

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        if len(shape) == 1:
            hidden = f'keras.layers.Dense({self.width * 32}, activation="relu")'
        else:
            hidden = (
                f'keras.layers.Conv2D({self.width}, 3, strides=2, activation="relu"), '
                "keras.layers.GlobalAveragePooling2D()"
            )
        text.add("model", f"inputs = [keras.Input({shape}), {hidden}]")
        text.add("model", "model = keras.Sequential([*inputs, keras.layers.Dense(10)])")


def flat(shape: tuple[int, ...]) -> str:
    """Layers that make one row of a sample."""
    pool = (
        "keras.layers.Rescaling(1 / 255)(x)",
        "keras.layers.AveragePooling2D(8)(x)",
        "keras.layers.Flatten()(x)",
    )
    return "".join(f"x = {layer}\n" for layer in pool) if len(shape) == 3 else ""


@dataclass(frozen=True)
class ResidualNet(DenseNet):
    """Layers whose inputs are added to what they make, written as functions."""

    blocks: int = 2
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16, 1) if script.about.small else cls(rng.choice([64, 256, 768]), rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add(
            "model",
            f"x = inputs = keras.Input({shape})\n{flat(shape)}x = keras.layers.Dense({self.width})(x)",
        )
        text.add(
            "model",
            f"""
            for _ in range({self.blocks}):
                x = keras.layers.Add()([x, keras.layers.Dense({self.width}, activation="relu")(x)])
            model = keras.Model(inputs, keras.layers.Dense(10)(x))
            """,
        )


@dataclass(frozen=True)
class SubclassedNet(DenseNet):
    """A class of layers of its own, with normalization."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8 if script.about.small else rng.choice([16, 32, 64]))

    def write(self, text: Text, script: Script) -> None:
        images = len(script["storage"].shape()) == 3  # type: ignore[attr-defined]
        first = (
            f"[keras.layers.SeparableConv2D({self.width}, 3, strides=4), keras.layers.GlobalMaxPooling2D()]"
            if images
            else f"[keras.layers.Dense({self.width * 8}), keras.layers.LayerNormalization()]"
        )
        text.add(
            "top",
            f"""
            class Network(keras.Model):
                def __init__(self):
                    super().__init__()
                    self.first = {first}
                    self.normalize = keras.layers.BatchNormalization()
                    self.out = keras.layers.Dense(10)

                def call(self, x, training=False):
                    for layer in self.first:
                        x = layer(x)
                    return self.out(keras.activations.relu(self.normalize(x, training=training)))
            """,
        )
        text.add("model", "model = Network()")


@dataclass(frozen=True)
class NoCallback(Production):
    """Nothing but the epoch's line."""

    slot: ClassVar[str] = "logging"
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    weight: ClassVar[float] = 2.0


@dataclass(frozen=True)
class WeightsEachBatch(Production):
    """A callback that notes the norms of all weights after each batch. Repaired: after each 50th."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    every: int = 1

    def noting(self) -> str:
        return (
            "norms = [float(np.linalg.norm(weights)) for weights in self.model.get_weights()]\n"
            + self.writing("*norms")
        )

    def writing(self, more: str) -> str:
        return f'print(batch, logs["loss"], {more}, file=self.log, flush=True)'

    def write(self, text: Text, script: Script) -> None:
        text.told["callback"] = "Notes()"
        lines = self.noting()
        if self.every > 1:
            lines = f"if batch % {self.every} == 0:\n" + "".join(
                f"    {line}\n" for line in lines.split("\n")
            )
        body = "".join(f"        {line}\n" for line in lines.rstrip().split("\n"))
        text.add(
            "top",
            "class Notes(keras.callbacks.Callback):\n"
            "    def on_train_begin(self, logs=None):\n"
            '        self.log = (HERE / "log.txt").open("w")\n\n'
            f"    def on_train_batch_end(self, batch, logs=None):\n{body}",
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"log-less": {"logging": replace(self, every=50)}}


@dataclass(frozen=True)
class SavesEachBatch(WeightsEachBatch):
    """A callback that copies all weights after each batch, as averages of them need it. Repaired: after each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> str:
        copied = 'np.savez(HERE / "weights.npz", *self.model.get_weights())'
        return f"{copied}\n" + self.writing('"saved"')


@dataclass(frozen=True)
class ProbesEachBatch(WeightsEachBatch):
    """A callback that runs the model on some fixed samples after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> str:
        return "spread = float(np.std(self.model(PROBE, training=False)))\n" + self.writing("spread")

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add("constants", f"PROBE = np.ones((4, {', '.join(map(str, shape))}), np.float32)")
        super().write(text, script)


@dataclass(frozen=True)
class HistogramsEachBatch(WeightsEachBatch):
    """A callback that counts all weights into bins after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> str:
        return (
            "for variable in self.model.trainable_variables:\n"
            "    counts, edges = np.histogram(variable.numpy(), bins=50)\n"
            "    " + self.writing("variable.name, *counts")
        )


def sequence(shape: tuple[int, ...]) -> str:
    """Layers that make a sequence of a sample."""
    if len(shape) == 3:
        return "keras.layers.AveragePooling2D(4), keras.layers.Reshape((16, 48))"
    return f"keras.layers.Reshape((8, {shape[0] // 8}))"


@dataclass(frozen=True)
class RecurrentLayers(DenseNet):
    """A recurrent layer over rows of images, or parts of rows."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8 if script.about.small else rng.choice([16, 64, 128]))

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add(
            "model",
            f"""
            model = keras.Sequential([
                keras.Input({shape}),
                {sequence(shape)},
                keras.layers.GRU({self.width}),
                keras.layers.Dense(10),
            ])
            """,
        )


@dataclass(frozen=True)
class OwnTrainStep(DenseNet):
    """A model whose training step is written out, as guides to Keras show it."""

    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add(
            "top",
            """
            class TapedModel(keras.Model):
                def train_step(self, data):
                    x, y = data
                    with tf.GradientTape() as tape:
                        guesses = self(x, training=True)
                        loss = self.compute_loss(x=x, y=y, y_pred=guesses)
                    gradients = tape.gradient(loss, self.trainable_variables)
                    self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                    for metric in self.metrics:
                        if metric.name == "loss":
                            metric.update_state(loss)
                    return {metric.name: metric.result() for metric in self.metrics}
            """,
        )
        text.add("model", f"inputs = keras.Input({shape})")
        if len(shape) == 3:
            text.add("model", "x = keras.layers.Flatten()(keras.layers.MaxPooling2D(8)(inputs))")
        else:
            text.add("model", "x = inputs")
        text.add(
            "model",
            f"""
            x = keras.layers.Dense({self.width}, activation="gelu")(keras.layers.LayerNormalization()(x))
            model = TapedModel(inputs, keras.layers.Dense(10)(x))
            """,
        )


@dataclass(frozen=True)
class MomentsAsJson(WeightsEachBatch):
    """A callback that writes mean and spread of all weights as JSON after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> str:
        return (
            "moments = {}\n"
            "for weights in self.model.weights:\n"
            "    values = weights.numpy()\n"
            "    moments[weights.path] = float(values.mean()), float(values.std())\n"
            'json.dump({"batch": batch, **moments}, self.log)'
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        super().write(text, script)


@dataclass(frozen=True)
class SavedEveryFew(Production):
    """Weights are saved by Keras' callback every few batches. Repaired: after each epoch."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    every: int = 4

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([1, 4, 10]))

    def write(self, text: Text, script: Script) -> None:
        often = self.every or '"epoch"'
        text.told["callback"] = "saving"
        text.add(
            "model",
            f"""
            saving = keras.callbacks.ModelCheckpoint(
                str(HERE / "last.weights.h5"), save_weights_only=True, save_freq={often}
            )
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"checkpoint-less": {"logging": replace(self, every=0)}}


PRODUCTIONS: list[type[Production]] = [
    SleepingLayer,
    DenseNet,
    ConvNet,
    ResidualNet,
    SubclassedNet,
    NoCallback,
    WeightsEachBatch,
    SavesEachBatch,
    ProbesEachBatch,
    HistogramsEachBatch,
    RecurrentLayers,
    OwnTrainStep,
    MomentsAsJson,
    SavedEveryFew,
]
