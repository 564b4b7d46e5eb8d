"""Kept productions of scripts on TensorFlow: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
import material
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from pipelines import DenseNet, Pipeline, WeightsEachBatch
from storages import INFLATE


@dataclass(frozen=True)
class RecordJpegs(Pipeline):
    """TFRecords of JPEGs are parsed, decoded and resized. Repaired: side by side, or stored smaller."""

    size: int = 256
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, 96 if script.about.small else rng.choice([128, 256, 400]))

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}.tfrecord"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "constants",
            """
            FIELDS = {
                "image": tf.io.FixedLenFeature([], tf.string),
                "label": tf.io.FixedLenFeature([], tf.int64),
            }
            """,
        )
        text.add(
            "top",
            f"""
            def parse(record):
                fields = tf.io.parse_single_example(record, FIELDS)
                image = tf.image.decode_jpeg(fields["image"], channels=3)
                return tf.image.resize(image, [{SIZE}, {SIZE}]), fields["label"]
            """,
        )
        text.add(
            "pipeline",
            f"""
            records = tf.data.TFRecordDataset([str(DATA / "{self.name(script)}")])
            dataset = records.map(parse{self.calls()}).batch({script.about.batch}){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = self.side_by_side()
        if self.size > SIZE:
            found["smaller-images"] = {"storage": replace(self, size=SIZE)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.jpeg_records(script.about.count, self.size)}

    def cost(self, script: Script) -> float:
        return 0.25 + self.size**2 * 1e-5


@dataclass(frozen=True)
class NumpyFunction(Pipeline):
    """A function of Python's loads an npz for each image. Repaired: side by side, uncompressed, or in one array."""

    compressed: bool = True
    packed: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, rng.random() < 0.6)

    def name(self, script: Script) -> str:
        if self.packed:
            return f"images-{script.about.count}.npy"
        return f"{'npz' if self.compressed else 'stored-npz'}-{script.about.count}"

    def write(self, text: Text, script: Script) -> None:
        if self.packed:
            text.add("top", "def load(image):\n    return tf.cast(image, tf.float32), tf.constant(0)")
            source = f'np.load(DATA / "{self.name(script)}")'
        else:
            text.add(
                "top",
                f"""
                def read(path):
                    with np.load(path.decode()) as stored:
                        return stored["image"]


                def load(path):
                    image = tf.numpy_function(read, [path], tf.uint8)
                    image.set_shape(({SIZE}, {SIZE}, 3))
                    return tf.cast(image, tf.float32), tf.constant(0)
                """,
            )
            source = f'sorted(str(path) for path in (DATA / "{self.name(script)}").glob("*.npz"))'
        text.add(
            "pipeline",
            f"""
            samples = {source}
            dataset = tf.data.Dataset.from_tensor_slices(samples).map(load{self.calls()})
            dataset = dataset.batch({script.about.batch}, drop_remainder=True){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = self.side_by_side()
        found["pack"] = {"storage": replace(self, packed=True)}
        if self.compressed:
            found["uncompressed"] = {"storage": replace(self, compressed=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        count = script.about.count
        made = (
            material.image_array(count, SIZE)
            if self.packed
            else material.npz_folder(count, SIZE, self.compressed)
        )
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.4 + (SIZE**2 * 3 * 6 * INFLATE if self.compressed else 0.0)


@dataclass(frozen=True)
class FixedRecords(Pipeline):
    """Records of one length in a file: each is cheap to take apart."""

    features: int = 64
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.6, rng.choice([32, 128, 512]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"records-{script.about.count}-{self.features}.bin"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            def take_apart(record):
                x = tf.io.decode_raw(tf.strings.substr(record, 1, {4 * self.features}), tf.float32)
                label = tf.io.decode_raw(tf.strings.substr(record, 0, 1), tf.uint8)[0]
                return tf.ensure_shape(x, [{self.features}]), tf.cast(label, tf.int32)
            """,
        )
        text.add(
            "pipeline",
            f"""
            path = str(DATA / "{self.name(script)}")
            dataset = tf.data.FixedLengthRecordDataset(path, {4 * self.features + 1})
            dataset = dataset.map(take_apart{self.calls()}).batch({script.about.batch}){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return self.side_by_side()

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.06


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
    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT

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
class ProbesEachBatch(WeightsEachBatch):
    """A callback that runs the model on some fixed samples after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> str:
        return "spread = float(np.std(self.model(PROBE, training=False)))\n" + self.writing("spread")

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add("constants", f"PROBE = np.ones((4, {', '.join(map(str, shape))}), np.float32)")
        super().write(text, script)


@dataclass(frozen=True)
class HistogramsEachBatch(WeightsEachBatch):
    """A callback that counts all weights into bins after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> str:
        return (
            "for variable in self.model.trainable_variables:\n"
            "    counts, edges = np.histogram(variable.numpy(), bins=50)\n"
            "    " + self.writing("variable.name, *counts")
        )


PIPELINES: list[type[Production]] = [
    RecordJpegs, NumpyFunction, FixedRecords, ResidualNet, SubclassedNet, ProbesEachBatch, HistogramsEachBatch,
]  # fmt: skip
