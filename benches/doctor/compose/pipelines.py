"""Scripts on TensorFlow: pipelines of tf.data that Keras trains from, with a smaller grammar of their own.

The productions are told from those on torch by their kind, `tensorflow`. A pipeline is the storage of its script, since
it reads, decodes and batches in one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import OPEN, PLAIN, SIZE, About, Line, Maker, Production, Script, Text, plain

AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"


@dataclass(frozen=True)
class Dataflow(Production):
    """tf.data and Keras. Repaired, where images are decoded: the data set is given to `wellfed.feed`."""

    slot: ClassVar[str] = "framework"
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    feed: bool = False

    def write(self, text: Text, script: Script) -> None:
        text.need("import os", "import sys", "import time", "from pathlib import Path")
        text.arrange = arranged
        if self.feed:
            text.add("feed", "import wellfed\n\ndataset = wellfed.feed(dataset)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        if self.feed or not isinstance(script["storage"], GraphJpegs):
            return {}
        return {"feed": {"framework": replace(self, feed=True)}}


def arranged(text: Text, script: Script) -> list[Line]:
    """A training script of Keras'."""
    lines = plain('"""Trains a small model with Keras on data beside this file: `train.py [EPOCHS]`."""')
    lines += [("", ""), *text.sorted_imports()]
    # TensorFlow reads this when it is imported.
    lines += plain("""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    import keras
    import numpy as np
    import tensorflow as tf

    HERE = Path(__file__).resolve().parent
    DATA = HERE / "data"
    EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    """)
    lines += text.take("constants") + text.take("top")
    lines += [("", ""), ("", "")]
    lines += plain('''
    class Epochs(keras.callbacks.Callback):
        """A line for each epoch."""

        def on_epoch_begin(self, epoch, logs=None):
            self.begin = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            took = time.perf_counter() - self.begin
            print(f"epoch {epoch}: loss {logs['loss']:.6f}, {took:.4f} s", flush=True)


    def main():
        keras.utils.set_random_seed(0)
    ''')
    lines += text.take("pipeline", 1) + text.take("feed", 1) + text.take("model", 1)
    loss = "keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
    lines += [(f'    model.compile(optimizer="sgd", loss={loss}, jit_compile=False)', "step")]
    callbacks = ", ".join(["Epochs()", *filter(None, [text.told.get("callback")])])
    lines += [(f"    model.fit(dataset, epochs=EPOCHS, verbose=0, callbacks=[{callbacks}])", "")]
    return [*lines, ("", ""), ("", ""), *plain('if __name__ == "__main__":\n    main()')]


@dataclass(frozen=True)
class Pipeline(Production):
    """What all pipelines have: the shape of a sample."""

    slot: ClassVar[str] = "storage"
    kinds: ClassVar[tuple[str, ...]] = ("tensorflow",)
    in_memory: ClassVar[bool] = False
    """Whether it holds all its images."""
    parallel: bool = True

    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return (SIZE, SIZE, 3)

    def calls(self) -> str:
        """The further argument of `map`."""
        return f", {AUTOTUNE}" if self.parallel else ""

    def ahead(self) -> str:
        """The pipeline's last step."""
        return ".prefetch(tf.data.AUTOTUNE)" if self.parallel else ""

    def side_by_side(self) -> dict[str, dict[str, Production]]:
        """Calls in parallel, if they are not."""
        return {} if self.parallel else {"parallel-calls": {"storage": replace(self, parallel=True)}}


@dataclass(frozen=True)
class GraphJpegs(Pipeline):
    """JPEGs are read, decoded and resized, one by one or side by side. Repaired: side by side, or stored smaller."""

    size: int = 256
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, SIZE if script.about.small else rng.choice([128, 256, 400]))

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            def load(path):
                image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
                return tf.image.resize(image, ({SIZE}, {SIZE})), tf.constant(0)
            """,
        )
        text.add(
            "pipeline",
            f"""
            files = sorted(str(path) for path in (DATA / "{self.name(script)}").iterdir())
            dataset = tf.data.Dataset.from_tensor_slices(files).map(load{self.calls()})
            dataset = dataset.batch({script.about.batch}){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = self.side_by_side()
        if self.size > SIZE:
            found["smaller-images"] = {"storage": replace(self, size=SIZE)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_folder(script.about.count, self.size, "jpg")}

    def cost(self, script: Script) -> float:
        return 0.2 + self.size**2 * 1e-5


@dataclass(frozen=True)
class GeneratedRows(Pipeline):
    """A Python generator standardizes row by row. Repaired: arrays, at once."""

    features: int = 64
    arrays: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(True, rng.choice([32, 128, 512]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        source = f'np.load(DATA / "{self.name(script)}")'
        if self.arrays:
            text.add("pipeline", f"rows = {source}\nx = ((rows - 0.1) / 2.3).astype(np.float32)")
            text.add("pipeline", "y = np.arange(len(rows)) % 10")
            text.add("pipeline", "dataset = tf.data.Dataset.from_tensor_slices((x, y))")
        else:
            text.add(
                "top",
                f"""
                def rows():
                    for index, row in enumerate({source}):
                        yield [(value - 0.1) / 2.3 for value in row.tolist()], index % 10
                """,
            )
            text.add(
                "pipeline",
                f"""
                signature = (tf.TensorSpec(({self.features},), tf.float32), tf.TensorSpec((), tf.int64))
                dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
                """,
            )
        text.add("pipeline", f"dataset = dataset.batch({script.about.batch}).prefetch(tf.data.AUTOTUNE)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, arrays=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.15 + self.features * 4e-4


@dataclass(frozen=True)
class CsvColumns(Pipeline):
    """`make_csv_dataset` parses record by record. Repaired: parsed once, or by wellfed."""

    features: int = 32
    form: str = "csv"
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(True, rng.choice([8, 32, 96]))

    def shape(self) -> tuple[int, ...]:
        return (self.features,)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.{'npy' if self.form == 'npy' else 'csv'}"

    def write(self, text: Text, script: Script) -> None:
        batch = script.about.batch
        if self.form == "npy":
            text.add(
                "pipeline",
                f"""
                x = np.load(DATA / "{self.name(script)}")
                dataset = tf.data.Dataset.from_tensor_slices((x, np.arange(len(x)) % 10))
                dataset = dataset.batch({batch}).prefetch(tf.data.AUTOTUNE)
                """,
            )
            return
        if self.form == "wellfed":
            text.add("pipeline", "import wellfed\n")
        call, end = (
            ("wellfed.csv", ".tf()")
            if self.form == "wellfed"
            else ("tf.data.experimental.make_csv_dataset", "")
        )
        text.add(
            "pipeline",
            f"""
            columns = ["label", *(f"x{{i}}" for i in range({self.features}))]
            dataset = {call}(
                str(DATA / "{self.name(script)}"),
                {batch},
                column_names=columns,
                column_defaults=[0] + [0.0] * {self.features},
                label_name="label",
                header=False,
                num_epochs=1,
                shuffle=False,
            ){end}
            dataset = dataset.map(lambda row, label: (tf.stack(list(row.values()), 1), label))
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {
            "parse-once": {"storage": replace(self, form="npy")},
            "wellfed-csv": {"storage": replace(self, form="wellfed")},
        }

    def data(self, script: Script) -> dict[str, Maker]:
        if self.form == "npy":
            return {self.name(script): material.vector_array(script.about.count, self.features)}
        return {self.name(script): material.vector_csv(script.about.count, self.features, False)}

    def cost(self, script: Script) -> float:
        return 0.05 + self.features * 3e-3


@dataclass(frozen=True)
class ResizedArrays(Pipeline):
    """Images in memory are resized in each epoch. Repaired: side by side, or stored smaller."""

    size: int = 192
    in_memory: ClassVar[bool] = True
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5, 80 if script.about.small else rng.choice([128, 192, 256]))

    def name(self, script: Script) -> str:
        return f"images-{self.size}px-{script.about.count}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"def resize(image):\n    return tf.image.resize(image, ({SIZE}, {SIZE})), tf.constant(0)",
        )
        text.add(
            "pipeline",
            f"""
            images = np.load(DATA / "{self.name(script)}", mmap_mode="r")
            dataset = tf.data.Dataset.from_tensor_slices(images).map(resize{self.calls()})
            dataset = dataset.batch({script.about.batch}){self.ahead()}
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = self.side_by_side()
        if self.size > SIZE:
            found["resize-once"] = {"storage": replace(self, size=SIZE)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_array(script.about.count, self.size)}

    def cost(self, script: Script) -> float:
        return 0.1 + self.size**2 * 2e-6


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


PRODUCTIONS: list[type[Production]] = [
    Dataflow,
    GraphJpegs,
    GeneratedRows,
    CsvColumns,
    ResizedArrays,
    SleepingLayer,
    DenseNet,
    ConvNet,
    NoCallback,
    WeightsEachBatch,
    SavesEachBatch,
]


def draw(rng: random.Random, about: About, some: list[type[Production]]) -> Script:
    """A script on TensorFlow, of some productions."""
    script = Script(
        replace(about, count=4 * about.batch) if about.small else about, {"framework": Dataflow()}
    )
    for slot in ("storage", "step", "logging"):
        fitting = [part for part in some if part.slot == slot]
        picked = rng.choices(fitting, [part.weight for part in fitting])[0]
        script = script.having({slot: picked.draw(rng, script)})
    if about.small:
        return script
    pipeline = script["storage"]
    assert isinstance(pipeline, Pipeline)
    each = pipeline.cost(script)
    counts = [count for count in (512, 1024) if count * each / about.cores < 1000]
    # What lies in memory as images must not be much; a step of Keras' takes some milliseconds anyway.
    return Script(replace(about, count=256 if pipeline.in_memory else max([512, *counts])), script.parts)
