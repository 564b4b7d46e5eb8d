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
class WindowedSeries(Pipeline):
    """Windows of a series by `window` and `flat_map`. Repaired: by NumPy, before."""

    features: int = 32
    arrays: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(True, rng.choice([16, 48, 160]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"series-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.add("pipeline", f'series = np.load(DATA / "{self.name(script)}")')
        if self.arrays:
            text.add(
                "pipeline",
                f"""
                x = np.lib.stride_tricks.sliding_window_view(series, {self.features}).copy()
                dataset = tf.data.Dataset.from_tensor_slices((x, (x[:, -1] > 0).astype(np.int32)))
                """,
            )
        else:
            text.add(
                "top",
                "def labelled(window):\n    return window, tf.cast(window[-1] > 0, tf.int32)",
            )
            text.add(
                "pipeline",
                f"""
                dataset = tf.data.Dataset.from_tensor_slices(series)
                dataset = dataset.window({self.features}, shift=1, drop_remainder=True)
                dataset = dataset.flat_map(lambda window: window.batch({self.features}, drop_remainder=True))
                dataset = dataset.map(labelled)
                """,
            )
        text.add("pipeline", f"dataset = dataset.batch({script.about.batch}).prefetch(tf.data.AUTOTUNE)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, arrays=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.series(script.about.count + self.features - 1)}

    def cost(self, script: Script) -> float:
        return 0.15 + self.features * 2e-3


@dataclass(frozen=True)
class DecodedLines(Pipeline):
    """Lines of CSV are decoded one by one. Repaired: a batch at once, or side by side."""

    features: int = 32
    batched: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, rng.choice([8, 32, 128]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.csv"

    def write(self, text: Text, script: Script) -> None:
        text.add("constants", f"DEFAULTS = [0] + [0.0] * {self.features}")
        text.add(
            "top",
            """
            def decode(lines):
                label, *values = tf.io.decode_csv(lines, DEFAULTS)
                return tf.stack(values, axis=-1), label
            """,
        )
        mapped, batched = f".map(decode{self.calls()})", f".batch({script.about.batch})"
        steps = batched + mapped if self.batched else mapped + batched
        text.add(
            "pipeline",
            f"""
            lines = tf.data.TextLineDataset(str(DATA / "{self.name(script)}"))
            dataset = lines{steps}{self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**self.side_by_side(), "batch-at-once": {"storage": replace(self, batched=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_csv(script.about.count, self.features, False)}

    def cost(self, script: Script) -> float:
        return 0.04 + self.features * 1.5e-3


@dataclass(frozen=True)
class FunctionEachRow(Pipeline):
    """A function of Python's is called for each row. Repaired: for a batch at once, or side by side."""

    features: int = 64
    batched: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, rng.choice([16, 64, 512]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        shape = f"(None, {self.features})" if self.batched else f"({self.features},)"
        text.add(
            "top",
            f"""
            def whiten(rows):
                rows = rows.numpy()
                rows = rows - rows.mean(-1, keepdims=True)
                return (rows / (rows.std(-1, keepdims=True) + 1e-6)).astype(np.float32)


            def prepare(x, y):
                x = tf.py_function(whiten, [x], tf.float32)
                return tf.ensure_shape(x, {shape}), y
            """,
        )
        mapped, batched = f".map(prepare{self.calls()})", f".batch({script.about.batch})"
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
        return 0.25


@dataclass(frozen=True)
class CachedPngs(Pipeline):
    """PNGs of the size in use are decoded side by side and kept in memory: nothing to repair."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(True)

    def name(self, script: Script) -> str:
        return f"png-{SIZE}px-{script.about.count}"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            """
            def load(path):
                image = tf.io.decode_png(tf.io.read_file(path), channels=3)
                return tf.cast(image, tf.float32), tf.constant(0)
            """,
        )
        text.add(
            "pipeline",
            f"""
            paths = tf.data.Dataset.list_files(str(DATA / "{self.name(script)}" / "*.png"), shuffle=False)
            dataset = paths.map(load{self.calls()}).cache().batch({script.about.batch}){self.ahead()}
            dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, (None, {SIZE}, {SIZE}, 3)), y))
            """,
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_folder(script.about.count, SIZE, "png")}

    def cost(self, script: Script) -> float:
        return 0.03


@dataclass(frozen=True)
class AttendingPatches(DenseNet):
    """Patches of images, or parts of rows, attend to each other."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8 if script.about.small else rng.choice([16, 48, 96]))

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        cut = (
            f"keras.layers.Conv2D({self.width}, 8, strides=8)(inputs / 255)"
            if len(shape) == 3
            else f"keras.layers.Dense({self.width})(keras.layers.Reshape((8, {shape[0] // 8}))(inputs))"
        )
        text.add(
            "model",
            f"""
            inputs = keras.Input({shape})
            x = keras.layers.Reshape((-1, {self.width}))({cut})
            x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(2, {self.width // 2})(x, x))
            x = keras.layers.GlobalAveragePooling1D()(x)
            model = keras.Model(inputs, keras.layers.Dense(10)(x))
            """,
        )


@dataclass(frozen=True)
class JoinedBranches(DenseNet):
    """Several branches of layers that are joined."""

    branches: int = 3
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8, 2) if script.about.small else cls(rng.choice([16, 128, 512]), rng.choice([2, 6]))

    def write(self, text: Text, script: Script) -> None:
        images = len(script["storage"].shape()) == 3  # type: ignore[attr-defined]
        pooled = "keras.layers.Flatten()(keras.layers.AveragePooling2D(8)(inputs / 255))"
        text.add(
            "model",
            f"""
            inputs = keras.Input({script["storage"].shape()})
            x = {pooled if images else "inputs"}
            branches = [keras.layers.Dense({self.width}, activation="relu")(x) for _ in range({self.branches})]
            x = keras.layers.Concatenate()(branches)
            model = keras.Model(inputs, keras.layers.Dense(10)(x))
            """,  # type: ignore[attr-defined]
        )


@dataclass(frozen=True)
class PredictsEachBatch(WeightsEachBatch):
    """A callback that calls `predict` on some fixed samples after each batch. Repaired: after each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> str:
        return "logits = self.model.predict(SOME, verbose=0)\n" + self.writing("*logits.argmax(1)")

    def write(self, text: Text, script: Script) -> None:
        shape = script["storage"].shape()  # type: ignore[attr-defined]
        text.add("constants", f"SOME = np.full((6, {', '.join(map(str, shape))}), 0.5, np.float32)")
        super().write(text, script)


@dataclass(frozen=True)
class UsualCallbacks(Production):
    """A log of epochs and a rate that sinks if the loss does not: nothing to repair."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)

    def write(self, text: Text, script: Script) -> None:
        text.told["callback"] = "*usual"
        text.add(
            "model",
            """
            usual = [
                keras.callbacks.CSVLogger(str(HERE / "epochs.csv")),
                keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=100),
                keras.callbacks.TerminateOnNaN(),
            ]
            """,
        )


PIPELINES: list[type[Production]] = [
    WindowedSeries, DecodedLines, FunctionEachRow, CachedPngs, AttendingPatches, JoinedBranches, PredictsEachBatch,
    UsualCallbacks,
]  # fmt: skip
