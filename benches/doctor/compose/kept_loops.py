"""Kept productions of loops, limits and pipelines of TensorFlow: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import material
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from loops import (
    CheckpointOften,
    Evaluation,
    Launching,
    Limits,
    Loader,
    Logging,
    Net,
    NoLimits,
    Step,
    Tuned,
    milliseconds,
    more_workers,
)
from pipelines import DenseNet, Pipeline, WeightsEachBatch
from storages import storage


@dataclass(frozen=True)
class OneWorker(Loader):
    """A single worker, whatever the cores. Repaired: as many as cores."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, 1)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"workers": {"loader": Tuned(self.batch, max(2, script.about.cores))}}


@dataclass(frozen=True)
class TooMany(Loader):
    """Several times as many workers as cores, started anew in each epoch. Repaired: one a core, kept."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores * rng.choice([3, 5]), rng.random() < 0.5)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {
            "fewer-workers": {"loader": replace(self, workers=script.about.cores)}
        }
        if not self.persistent:
            found["persistent"] = {"loader": replace(self, persistent=True)}
        return found


@dataclass(frozen=True)
class Locked(Loader):
    """Workers share a lock around reading and decoding. Repaired: they do not."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form not in ("stream", "tensors") and script.about.kind != "text"

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        text.need("import multiprocessing")
        text.add("init", "self.lock = multiprocessing.Lock()")
        text.told["lock"] = "self.lock"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"no-lock": {"loader": self.tuned}}


@dataclass(frozen=True)
class BlockingDevice(Step):
    """The same as a function that returns when the device is done."""

    ms: float = 5.0
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        text.add(
            "top",
            '''
            def train_step(batch, seconds):
                """Forward, backward and update on a device that takes so long."""
                time.sleep(seconds)
                return batch.float().mean()
            ''',
        )
        text.add("model", "model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 10))")
        text.add("step", f"loss = train_step(x, {self.ms / 1000:.5f})\ntotal += loss.item() * len(x)")

    def evaluating(self, script: Script) -> str:
        return f"train_step(x, {self.ms / 3000:.5f}).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class LargerNet(Net):
    """Layers that keep the cores busy."""

    width: int = 512
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(32 if script.about.small else rng.choice([256, 512, 1024]))

    def model(self, script: Script) -> str:
        if script.about.kind == "image":
            channels = self.width // 32
            return (
                f"first = [nn.Conv2d(3, {channels}, 5, stride=2), nn.ReLU()]\n"
                f"second = [nn.Conv2d({channels}, {channels}, 3, padding=1), nn.ReLU()]\n"
                f"last = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear({4 * channels}, 10)]\n"
                "model = nn.Sequential(*first, *second, *last)"
            )
        return (
            f"first = [{self.head(script, self.width)}, nn.ReLU()]\n"
            f"second = [nn.Linear({self.width}, {self.width}), nn.ReLU(), nn.Linear({self.width}, 10)]\n"
            "model = nn.Sequential(*first, *second)"
        )

    def cost_of_step(self, script: Script) -> float:
        return 2.0 + (self.width / 256) ** 2 * script.about.batch / 16


@dataclass(frozen=True)
class LoopedCell(Launching):
    """A recurrent cell that is called step by step in Python. Repaired: a larger batch."""

    times: int = 30
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([10, 30, 60]))

    def model(self, script: Script) -> str:
        return f"model = Recurrent(nn.Sequential({self.head(script, 24)}), {self.times})"

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + 0.25 * self.times

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            """
            class Recurrent(nn.Module):
                def __init__(self, head, times):
                    super().__init__()
                    self.head, self.times = head, times
                    self.cell, self.out = nn.GRUCell(24, 24), nn.Linear(24, 10)

                def forward(self, x):
                    x = state = self.head(x)
                    for _ in range(self.times):
                        state = self.cell(x, state)
                    return self.out(state)
            """,
        )
        super().write(text, script)


@dataclass(frozen=True)
class PrintedSteps(Logging):
    """Loss and spread of all weights are printed in each step."""

    of: ClassVar[str] = KEPT

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            "spread = max(weights.detach().std().item() for weights in model.parameters() if weights.numel() > 1)\n"
            'print(f"step {step}: loss {loss.item():.4f}, spread {spread:.4f}", flush=True)'
        )
        return [], "", lines


@dataclass(frozen=True)
class JsonHistory(Logging):
    """The last losses are written as one JSON in each step."""

    of: ClassVar[str] = KEPT

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'history.append({"epoch": epoch, "step": step, "loss": loss.item()})\n'
            '(HERE / "history.json").write_text(json.dumps(history[-300:], indent=1))'
        )
        return ["import json"], "history = []", lines


@dataclass(frozen=True)
class CheckpointPacked(CheckpointOften):
    """Weights are pickled by gzip every twenty steps."""

    steps: ClassVar[int] = 20
    ms: ClassVar[float] = 30.0
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.05 if script.about.small else rng.choice([0.5, 1.0, 3.0]))

    def saving(self) -> tuple[list[str], str]:
        opened = 'gzip.open(HERE / "checkpoint.pkl.gz", "wb", compresslevel=6)'
        return ["import gzip", "import pickle"], f"with {opened} as saved:\n    pickle.dump(state, saved)"


@dataclass(frozen=True)
class PythonMetric(Evaluation):
    """Pairs of scores are compared in pure Python after each step. Repaired: by NumPy."""

    scores: int = 64
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([60, 120, 200]))

    def write(self, text: Text, script: Script) -> None:
        if self.at_once:
            text.need("import numpy as np")
            body = "order = np.array(scores)\n    return float(np.mean(order[:, None] > order[None, :]))"
        else:
            body = (
                "above = 0\n    for one in scores:\n        for other in scores:\n"
                "            above += one > other\n    return above / len(scores) ** 2"
            )
        text.add("top", f"def concordance(scores):\n    {body}")
        text.add("before", "metrics = []")
        text.add("after", f"metrics.append(concordance(x.flatten()[:{self.scores}].tolist()))")

    def cost_of_step(self, script: Script) -> float:
        return self.scores**2 * 3e-5

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class SlowLink(Limits):
    """Storage delivers so many bytes a second to all readers together. Repaired: a local copy."""

    rate: int = 10_000_000
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form in ("files", "stream")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(round(storage(script).bytes_each(script) * 100 * 15 ** rng.random()))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"rate": self.rate}}

    def cost(self, script: Script) -> float:
        # Shared by all workers, so that it is not divided among them.
        return storage(script).bytes_each(script) / self.rate * 1000 * script.about.cores

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class OneCore(Limits):
    """The script may use one core only: nothing in it can repair that."""

    of: ClassVar[str] = KEPT

    def around(self, script: Script) -> dict[str, Any]:
        return {"cores": 1}


@dataclass(frozen=True)
class CsvColumns(Pipeline):
    """`make_csv_dataset` parses record by record. Repaired: parsed once, or by wellfed."""

    features: int = 32
    form: str = "csv"
    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT

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
class ConvNet(DenseNet):
    """Convolutions of images, a wide layer of rows."""

    of: ClassVar[str] = KEPT

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
class SavesEachBatch(WeightsEachBatch):
    """A callback that copies all weights after each batch, as averages of them need it. Repaired: after each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> str:
        copied = 'np.savez(HERE / "weights.npz", *self.model.get_weights())'
        return f"{copied}\n" + self.writing('"saved"')


LOADERS: list[type[Production]] = [OneWorker, TooMany, Locked]
STEPS: list[type[Production]] = [BlockingDevice, LargerNet, LoopedCell]
LOGGINGS: list[type[Production]] = [PrintedSteps, JsonHistory]
EVALUATIONS: list[type[Production]] = [PythonMetric, CheckpointPacked]
LIMITS: list[type[Production]] = [SlowLink, OneCore]
PIPELINES: list[type[Production]] = [CsvColumns, ResizedArrays, ConvNet, SavesEachBatch]
