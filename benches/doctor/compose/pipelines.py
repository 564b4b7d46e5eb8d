"""Scripts on TensorFlow: pipelines of tf.data that Keras trains from, with a smaller grammar of their own.

Their networks and callbacks lie in `pipelines_models.py`.

The productions are told from those on torch by their kind, `tensorflow`. A pipeline is the storage of its script, since
it reads, decodes and batches in one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
import material_records
from grammar import OPEN, SIZE, About, Line, Maker, Production, Script, Text, plain
from storages import INFLATE

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
class RecordJpegs(Pipeline):
    """TFRecords of JPEGs are parsed, decoded and resized. Repaired: side by side, or stored smaller."""

    size: int = 256
    of: ClassVar[str] = OPEN

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
        return {self.name(script): material_records.jpeg_records(script.about.count, self.size)}

    def cost(self, script: Script) -> float:
        return 0.25 + self.size**2 * 1e-5


@dataclass(frozen=True)
class NumpyFunction(Pipeline):
    """A function of Python's loads an npz for each image. Repaired: side by side, uncompressed, or in one array."""

    compressed: bool = True
    packed: bool = False
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN

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
        return {self.name(script): material.records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.06


@dataclass(frozen=True)
class PythonBatches(Pipeline):
    """A class of Keras' makes batches of images in Python. Repaired: by threads, or stored smaller."""

    size: int = 256
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN

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
            masks: material.mask_folder(count, self.size),
        }

    def cost(self, script: Script) -> float:
        return 0.3 + self.size**2 * 3e-5


@dataclass(frozen=True)
class ShuffledArrays(Pipeline):
    """Arrays in memory, shuffled and batched: nothing to repair."""

    features: int = 32
    of: ClassVar[str] = OPEN

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


PRODUCTIONS: list[type[Production]] = [
    Dataflow,
    GraphJpegs,
    GeneratedRows,
    CsvColumns,
    ResizedArrays,
    RecordJpegs,
    NumpyFunction,
    FixedRecords,
    PythonBatches,
    MappedRowByRow,
    MaskedPngs,
    ShuffledArrays,
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
