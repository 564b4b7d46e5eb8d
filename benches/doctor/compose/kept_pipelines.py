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
from pipelines import Pipeline
from pipelines_models import DenseNet, WeightsEachBatch


@dataclass(frozen=True)
class PythonBatches(Pipeline):
    """A class of Keras' makes batches of images in Python. Repaired: by threads, or stored smaller."""

    size: int = 256
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.4, 96 if script.about.small else rng.choice([96, 192, 320]))

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}"

    def write(self, text: Text, script: Script) -> None:
        text.need("from PIL import Image")
        batch = script.about.batch
        text.add(
            "top",
            f"""
            class Batches(keras.utils.PyDataset):
                def __init__(self, files, **more):
                    super().__init__(**more)
                    self.files = files

                def __len__(self):
                    return len(self.files) // {batch}

                def image(self, path):
                    with Image.open(path) as opened:
                        return np.asarray(opened.convert("RGB").resize(({SIZE}, {SIZE})), np.float32)

                def __getitem__(self, index):
                    part = self.files[index * {batch} : (index + 1) * {batch}]
                    return np.stack([self.image(path) for path in part]), np.zeros(len(part), np.int32)
            """,
        )
        more = f", workers={script.about.cores}, max_queue_size=16" if self.parallel else ""
        text.add(
            "pipeline",
            f"""
            files = sorted((DATA / "{self.name(script)}").glob("*.jpg"))
            dataset = Batches(files{more})
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {}
        if not self.parallel:
            found["sequence-workers"] = {"storage": replace(self, parallel=True)}
        if self.size > SIZE:
            found["smaller-images"] = {"storage": replace(self, size=SIZE)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_folder(script.about.count, self.size, "jpg")}

    def cost(self, script: Script) -> float:
        return 0.25 + self.size**2 * 1.4e-5

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class MappedRowByRow(Pipeline):
    """Rows in memory go through a function one by one. Repaired: a batch at once, or side by side."""

    features: int = 32
    rounds: int = 2
    batched: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, rng.choice([16, 128]), rng.choice([2, 6]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            def squash(x, y):
                for _ in range({self.rounds}):
                    x = tf.math.tanh(tf.clip_by_value((x - 0.1) / 2.3, -3.0, 3.0)) * 2.0
                return tf.where(tf.math.is_finite(x), x, 0.0), y
            """,
        )
        mapped, batched = f".map(squash{self.calls()})", f".batch({script.about.batch})"
        steps = batched + mapped if self.batched else mapped + batched
        text.add(
            "pipeline",
            f"""
            x = np.load(DATA / "{self.name(script)}")
            dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(len(x)) % 10))
            dataset = dataset{steps}{self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**self.side_by_side(), "batch-at-once": {"storage": replace(self, batched=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.03 + self.rounds * 0.01


@dataclass(frozen=True)
class MaskedPngs(Pipeline):
    """PNGs with a mask each are decoded and resized. Repaired: side by side, or stored smaller."""

    size: int = 128
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, 80 if script.about.small else rng.choice([SIZE, 128, 224]))

    def folders(self, script: Script) -> tuple[str, str]:
        """Names of the folders of images and of masks."""
        return f"png-{self.size}px-{script.about.count}", f"mask-{self.size}px-{script.about.count}"

    def write(self, text: Text, script: Script) -> None:
        images, masks = self.folders(script)
        text.add(
            "top",
            f"""
            def listed(name):
                return tf.data.Dataset.from_tensor_slices(sorted(map(str, (DATA / name).glob("*.png"))))


            def load(image_path, mask_path):
                image = tf.io.decode_png(tf.io.read_file(image_path), channels=3)
                mask = tf.io.decode_png(tf.io.read_file(mask_path), channels=1)
                image = tf.image.resize(image, ({SIZE}, {SIZE}))
                mask = tf.image.resize(mask, ({SIZE}, {SIZE}), method="nearest")
                return image * tf.cast(mask > 127, tf.float32), tf.constant(0)
            """,
        )
        text.add(
            "pipeline",
            f"""
            pairs = tf.data.Dataset.zip((listed("{images}"), listed("{masks}")))
            dataset = pairs.map(load{self.calls()}).batch({script.about.batch}){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = self.side_by_side()
        if self.size > SIZE:
            found["smaller-images"] = {"storage": replace(self, size=SIZE)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        images, masks = self.folders(script)
        count = script.about.count
        return {
            images: material.image_folder(count, self.size, "png"),
            masks: kept_material.mask_folder(count, self.size),
        }

    def cost(self, script: Script) -> float:
        return 0.3 + self.size**2 * 3e-5


@dataclass(frozen=True)
class ShuffledArrays(Pipeline):
    """Arrays in memory, shuffled and batched: nothing to repair."""

    features: int = 32
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(True, rng.choice([32, 256]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "pipeline",
            f"""
            x = np.load(DATA / "{self.name(script)}")
            dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(len(x)) % 10))
            dataset = dataset.shuffle(256, seed=1).batch({script.about.batch}){self.ahead()}
            """,
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.01


def sequence(shape: tuple[int, ...]) -> str:
    """Layers that make a sequence of a sample."""
    if len(shape) == 3:
        return "keras.layers.AveragePooling2D(4), keras.layers.Reshape((16, 48))"
    return f"keras.layers.Reshape((8, {shape[0] // 8}))"


@dataclass(frozen=True)
class RecurrentLayers(DenseNet):
    """A recurrent layer over rows of images, or parts of rows."""

    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT
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


PIPELINES: list[type[Production]] = [
    PythonBatches, MappedRowByRow, MaskedPngs, ShuffledArrays, RecurrentLayers, OwnTrainStep, MomentsAsJson,
    SavedEveryFew,
]  # fmt: skip
