"""Besides training: what is logged of steps, what is evaluated, what is saved."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text
from loaders import Loader
from steps import Step
from storages import storage


@dataclass(frozen=True)
class Logging(Production):
    """What is noted of steps."""

    slot: ClassVar[str] = "logging"
    every: int = 1

    def cost_of_step(self, script: Script) -> float:
        return 0.3 / self.every

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls()

    def noting(self) -> tuple[list[str], str, str]:
        """Imports, lines before the loop, lines in it."""
        raise NotImplementedError

    def write(self, text: Text, script: Script) -> None:
        imports, before, lines = self.noting()
        text.need(*imports)
        if before:
            text.add("before", before)
        if self.every == 1:
            text.add("log", lines)
        else:
            text.add(
                "log",
                f"if step % {self.every} == 0:\n" + "".join(f"    {line}\n" for line in lines.split("\n")),
            )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"log-less": {"logging": replace(self, every=50)}}


@dataclass(frozen=True)
class NoLog(Production):
    """Nothing but the epoch's line."""

    slot: ClassVar[str] = "logging"


@dataclass(frozen=True)
class Every50(Logging):
    """The loss of each 50th step."""

    def noting(self) -> tuple[list[str], str, str]:
        return [], "losses = []", "losses.append(loss.item())"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(50)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}


@dataclass(frozen=True)
class ItemEachStep(Logging):
    """The loss of each step is taken from the device. Repaired: of each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> tuple[list[str], str, str]:
        return [], "losses = []", "losses.append(loss.item())"


@dataclass(frozen=True)
class NormsCsv(Logging):
    """A line of CSV with the loss and the norms of all weights in each step."""

    of: ClassVar[str] = OPEN

    def noting(self) -> tuple[list[str], str, str]:
        before = 'log_file = (HERE / "log.csv").open("w")\nlog = csv.writer(log_file)'
        lines = (
            "norms = [float(weights.detach().norm()) for weights in model.parameters()]\n"
            "log.writerow([epoch, step, loss.item(), *norms])\nlog_file.flush()"
        )
        return ["import csv"], before, lines


@dataclass(frozen=True)
class PrintedSteps(Logging):
    """Loss and spread of all weights are printed in each step."""

    of: ClassVar[str] = OPEN

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            "spread = max(weights.detach().std().item() for weights in model.parameters() if weights.numel() > 1)\n"
            'print(f"step {step}: loss {loss.item():.4f}, spread {spread:.4f}", flush=True)'
        )
        return [], "", lines


@dataclass(frozen=True)
class JsonHistory(Logging):
    """The last losses are written as one JSON in each step."""

    of: ClassVar[str] = OPEN

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'history.append({"epoch": epoch, "step": step, "loss": loss.item()})\n'
            '(HERE / "history.json").write_text(json.dumps(history[-300:], indent=1))'
        )
        return ["import json"], "history = []", lines


@dataclass(frozen=True)
class Evaluation(Production):
    """What is done besides training."""

    slot: ClassVar[str] = "evaluation"


@dataclass(frozen=True)
class NoEvaluation(Evaluation):
    """Nothing."""


@dataclass(frozen=True)
class SlowEvaluation(Evaluation):
    """After each epoch a part of the samples is evaluated, loaded without workers. Repaired: by workers."""

    every: int = 2
    workers: int = 0
    size: int = 0
    """Samples of a batch; 0 for as many as in training."""
    of: ClassVar[str] = OPEN

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form not in ("stream", "tensors") and not storage(script).single

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import DataLoader, Dataset, Subset")
        loader, step = script["loader"], script["step"]
        assert isinstance(loader, Loader)
        assert isinstance(step, Step)
        more = f", num_workers={self.workers}, persistent_workers=True" if self.workers else ""
        if name := text.told.get("collate"):
            more += f", collate_fn={name}"
        text.add(
            "before",
            f"""
            part = Subset(Samples(), range(0, {script.about.count}, {self.every}))
            evaluation = DataLoader(part, batch_size={self.size or loader.batch}{more})
            """,
        )
        text.add("epoch", "scores = []\nmodel.eval()\nwith torch.no_grad():\n    for x, y in evaluation:")
        inner = [
            *(line for line, _ in text.sections.get("loop", [])),
            f"scores.append({step.evaluating(script)})",
        ]
        for line in inner:
            text.sections["epoch"].append((f"        {line}", self.slot))
        text.add("epoch", "model.train()\nscore = sum(scores) / len(scores)")

    def cost(self, script: Script) -> float:
        parts = [part for slot, part in script.parts.items() if slot not in ("evaluation", "limits")]
        return sum(part.cost(script) for part in parts) / self.every

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"evaluation-workers": {"evaluation": replace(self, workers=script.about.cores)}}


@dataclass(frozen=True)
class PythonMetric(Evaluation):
    """Pairs of scores are compared in pure Python after each step. Repaired: by NumPy."""

    scores: int = 64
    at_once: bool = False
    of: ClassVar[str] = OPEN

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
class CheckpointOften(Evaluation):
    """All weights are saved every ten steps. Repaired: a tenth as often, whatever an epoch's length."""

    millions: float = 1.0
    often: bool = True
    steps: ClassVar[int] = 10
    ms: ClassVar[float] = 4.0
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.1 if script.about.small else rng.choice([0.5, 2.0, 6.0]))

    def saving(self) -> tuple[list[str], str]:
        """Imports, and lines that save `state`."""
        return [], 'torch.save(state, HERE / "checkpoint.pt")'

    def write(self, text: Text, script: Script) -> None:
        imports, saving = self.saving()
        text.need(*imports)
        text.add("before", f"backbone = torch.ones({round(self.millions * 1e6):_})")
        lines = f'state = {{"model": model.state_dict(), "backbone": backbone}}\n{saving}'
        body = "".join(f"    {line}\n" for line in lines.split("\n"))
        if self.often:
            text.add("after", f"if step % {self.steps} == {self.steps - 1}:\n{body}")
        else:
            text.add("before", "done = 0")
            text.add("after", f"done += 1\nif done % {10 * self.steps} == 0:\n{body}")

    def cost_of_step(self, script: Script) -> float:
        return self.millions * self.ms / self.steps

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"checkpoint-less": {"evaluation": replace(self, often=False)}}


@dataclass(frozen=True)
class CheckpointPacked(CheckpointOften):
    """Weights are pickled by gzip every twenty steps."""

    steps: ClassVar[int] = 20
    ms: ClassVar[float] = 30.0
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.05 if script.about.small else rng.choice([0.5, 1.0, 3.0]))

    def saving(self) -> tuple[list[str], str]:
        opened = 'gzip.open(HERE / "checkpoint.pkl.gz", "wb", compresslevel=6)'
        return ["import gzip", "import pickle"], f"with {opened} as saved:\n    pickle.dump(state, saved)"


@dataclass(frozen=True)
class EventFile(Logging):
    """Loss and histograms of all weights as events of a writer's, in each step. Repaired: in each 50th."""

    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.need("import struct", "import zlib", "import numpy as np")
        text.add(
            "top",
            """
            class EventWriter:
                def __init__(self, path):
                    self.file = path.open("wb")

                def scalar(self, tag, value, step):
                    self.event(tag, struct.pack("<qd", step, value))

                def histogram(self, tag, values, step):
                    counts, edges = np.histogram(values.numpy(), bins=64)
                    self.event(tag, struct.pack("<q", step) + counts.tobytes() + edges.tobytes())

                def event(self, tag, body):
                    body = tag.encode() + body
                    self.file.write(struct.pack("<QI", len(body), zlib.crc32(body)) + body)
                    self.file.flush()
            """,
        )
        super().write(text, script)

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'writer.scalar("loss", loss.item(), step)\n'
            "for name, weights in model.named_parameters():\n"
            "    writer.histogram(name, weights.detach().flatten()[:20_000], step)"
        )
        return [], 'writer = EventWriter(HERE / "events.log")', lines


@dataclass(frozen=True)
class CommittedRows(Logging):
    """A row of a database in each step, which is committed. Repaired: in each 50th."""

    of: ClassVar[str] = OPEN

    def noting(self) -> tuple[list[str], str, str]:
        before = (
            'runs = sqlite3.connect(HERE / "runs.db")\n'
            'runs.execute("CREATE TABLE IF NOT EXISTS steps (epoch INTEGER, step INTEGER, loss REAL)")'
        )
        lines = (
            'with runs:\n    runs.execute("INSERT INTO steps VALUES (?, ?, ?)", (epoch, step, loss.item()))'
        )
        return ["import sqlite3"], before, lines


@dataclass(frozen=True)
class ProgressBar(Logging):
    """A bar that is drawn in each step with loss and sizes of weights. Repaired: in each 50th."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("tqdm",)

    def noting(self) -> tuple[list[str], str, str]:
        before = 'bar = tqdm(file=(HERE / "progress.txt").open("w"), mininterval=0)'
        lines = (
            'sizes = {name: f"{weights.abs().mean().item():.3f}" for name, weights in model.named_parameters()}\n'
            'bar.set_postfix(loss=f"{loss.item():.4f}", **sizes)\n'
            "bar.update()"
        )
        return ["from tqdm import tqdm"], before, lines


@dataclass(frozen=True)
class RunningMean(Production):
    """The mean of the epoch so far is printed in each hundredth step: nothing to repair."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "log",
            'if step % 100 == 0:\n    print(f"step {step}: mean {float(total) / seen:.4f}", flush=True)',
        )


@dataclass(frozen=True)
class PreviewEachStep(Logging):
    """Some images of the batch are saved as a PNG in each step. Repaired: in each 50th."""

    images: int = 8
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(images=rng.choice([2, 4, 8]))

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            f"rows = x[:{self.images}].permute(0, 2, 3, 1).reshape(-1, {SIZE}, 3)\n"
            'Image.fromarray(rows.clamp(0, 255).byte().numpy()).save(HERE / "preview.png")'
        )
        return ["from PIL import Image"], "", lines

    def cost_of_step(self, script: Script) -> float:
        return self.images * 0.6 / self.every


@dataclass(frozen=True)
class RewrittenTable(Logging):
    """All steps so far become a DataFrame, which is written in each step. Repaired: in each 50th."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("pandas",)

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'rows.append({"epoch": epoch, "step": step, "loss": loss.item(), "seen": seen})\n'
            'pd.DataFrame(rows[-500:]).set_index("step").to_csv(HERE / "steps.csv")'
        )
        return ["import pandas as pd"], "rows = []", lines

    def cost_of_step(self, script: Script) -> float:
        return 1.5 / self.every


@dataclass(frozen=True)
class SystemMetrics(Logging):
    """Memory of all processes and use of all cores are logged in each step. Repaired: in each 50th."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("psutil",)

    def noting(self) -> tuple[list[str], str, str]:
        before = (
            'logging.basicConfig(filename=HERE / "train.log", level=logging.INFO)\n'
            'logger, this = logging.getLogger("train"), psutil.Process()'
        )
        lines = (
            "own = this.memory_full_info().uss >> 20\n"
            "theirs = sum(child.memory_info().rss for child in this.children(recursive=True)) >> 20\n"
            "cores = psutil.cpu_percent(percpu=True)\n"
            'logger.info("step %d: loss %.4f, %d + %d MiB, %s", step, loss.item(), own, theirs, cores)'
        )
        return ["import logging", "import psutil"], before, lines

    def cost_of_step(self, script: Script) -> float:
        return 8.0 / self.every


@dataclass(frozen=True)
class Throughput(Production):
    """How many samples a second there were is printed now and then: nothing to repair."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 0.8

    def write(self, text: Text, script: Script) -> None:
        text.need("import collections")
        text.add("before", "times = collections.deque([time.perf_counter()], maxlen=64)")
        text.add(
            "log",
            """
            times.append(time.perf_counter())
            if step % 64 == 63:
                rate = len(x) * (len(times) - 1) / (times[-1] - times[0])
                print(f"{step}: {rate:.0f} samples/s", flush=True)
            """,
        )


LOGGINGS: list[type[Production]] = [
    NoLog,
    Every50,
    ItemEachStep,
    NormsCsv,
    PrintedSteps,
    JsonHistory,
    EventFile,
    CommittedRows,
    ProgressBar,
    RunningMean,
    PreviewEachStep,
    RewrittenTable,
    SystemMetrics,
    Throughput,
]


@dataclass(frozen=True)
class ScoreEachStep(Evaluation):
    """A score of torchmetrics is computed in each step. Repaired: at the end of the epoch."""

    classes: int = 10
    at_once: bool = False
    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("torchmetrics",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torchmetrics.classification import MulticlassF1Score")
        text.add("before", f"metric = MulticlassF1Score({self.classes})\nscores = []")
        told = f"x.flatten(1)[:, :{self.classes}].float(), y"
        if self.at_once:
            text.add("after", f"metric.update({told})")
        else:
            text.add("after", f"scores.append(float(metric({told})))")
        text.add("epoch", "scores.append(float(metric.compute()))\nmetric.reset()")

    def cost_of_step(self, script: Script) -> float:
        return 0.4

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class BoxOverlaps(Evaluation):
    """Boxes are compared pair by pair in Python after each step. Repaired: by NumPy."""

    boxes: int = 24
    at_once: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([20, 32, 56]))

    def write(self, text: Text, script: Script) -> None:
        if self.at_once:
            text.need("import numpy as np")
            text.add(
                "top",
                """
                def overlaps(boxes):
                    boxes = np.array(boxes)
                    low = np.maximum(boxes[:, None, :2], boxes[None, :, :2])
                    high = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
                    shared = np.maximum(high - low, 0).prod(-1)
                    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
                    return float((shared / (areas[:, None] + areas[None, :] - shared + 1e-6)).mean())
                """,
            )
        else:
            text.add(
                "top",
                """
                def overlap(one, other):
                    width = min(one[2], other[2]) - max(one[0], other[0])
                    height = min(one[3], other[3]) - max(one[1], other[1])
                    shared = max(width, 0) * max(height, 0)
                    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
                    return shared / (sum(areas) - shared + 1e-6)


                def overlaps(boxes):
                    found = [overlap(one, other) for one in boxes for other in boxes]
                    return sum(found) / len(found)
                """,
            )
        text.add("before", "shared = []")
        text.add(
            "after",
            f"""
            corners = x.flatten()[: 4 * {self.boxes}].float().abs()
            corners = corners[: len(corners) // 4 * 4].view(-1, 2, 2).cumsum(1).flatten(1)
            shared.append(overlaps(corners.tolist()))
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return self.boxes**2 * 1.1e-3

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class RotatedCheckpoints(CheckpointOften):
    """A class that saves all weights every 15 steps, to the disk, and keeps the last three. Repaired: once an epoch."""

    steps: ClassVar[int] = 15
    ms: ClassVar[float] = 5.0
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.05 if script.about.small else rng.choice([0.3, 1.0, 3.0]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import os")
        text.add(
            "top",
            """
            class Keeper:
                def __init__(self, folder, number):
                    self.folder, self.number, self.saved = folder, number, 0
                    folder.mkdir(exist_ok=True)

                def save(self, **state):
                    half = self.folder / "half.tmp"
                    with half.open("wb") as file:
                        torch.save(state, file)
                        file.flush()
                        os.fsync(file.fileno())
                    half.replace(self.folder / f"{self.saved:06}.pt")
                    self.saved += 1
                    for old in sorted(self.folder.glob("*.pt"))[: -self.number]:
                        old.unlink()
            """,
        )
        text.add(
            "before",
            f'keeper = Keeper(HERE / "checkpoints", 3)\nbackbone = torch.randn({round(self.millions * 1e6):_})',
        )
        saving = "keeper.save(model=model.state_dict(), backbone=backbone, epoch=epoch)"
        if self.often:
            text.add("after", f"if (step + 1) % {self.steps} == 0:\n    {saving}")
        else:
            text.add("epoch", saving)


@dataclass(frozen=True)
class NestedValidation(SlowEvaluation):
    """A function in `main` that makes its loader, without workers, for each call. Repaired: one loader with workers."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([2, 3, 5]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import DataLoader, Dataset, Subset")
        loader, step = script["loader"], script["step"]
        assert isinstance(loader, Loader)
        assert isinstance(step, Step)
        more = f", collate_fn={name}" if (name := text.told.get("collate")) else ""
        made = f"DataLoader(held_out, batch_size={loader.batch}{more})"
        text.add("before", f"held_out = Subset(Samples(), range(0, {script.about.count}, {self.every}))")
        if self.workers:
            made = made[:-1] + f", num_workers={self.workers}, persistent_workers=True)"
            text.add("before", f"batches = {made}")
            made = "batches"
        text.sections["before"].append(("", ""))
        text.add(
            "before",
            f"""
            @torch.no_grad()
            def validate():
                model.eval()
                scores = []
                for x, y in {made}:
            """,
        )
        inner = [line for line, _ in text.sections.get("loop", [])]
        for line in [*inner, f"scores.append({step.evaluating(script)})"]:
            text.sections["before"].append((f"        {line}", self.slot))
        for line in ("model.train()", "return sum(scores) / len(scores)"):
            text.sections["before"].append((f"    {line}", self.slot))
        text.sections["before"].append(("", ""))
        text.add("epoch", "score = validate()")


@dataclass(frozen=True)
class SingleSamples(SlowEvaluation):
    """Samples are evaluated one by one, without workers. Repaired: in batches, or by workers."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([4, 8, 16]), size=1)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "evaluation-batch": {"evaluation": replace(self, size=0)}}


@dataclass(frozen=True)
class NearestInBank(Evaluation):
    """What was seen in an epoch is compared sample by sample in Python after it. Repaired: by torch."""

    rows: int = 200
    at_once: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(20 if script.about.small else rng.choice([80, 200, 400]))

    def write(self, text: Text, script: Script) -> None:
        if self.at_once:
            body = """
                far = torch.cdist(bank.double(), bank.double()).fill_diagonal_(float("inf"))
                return float((labels[far.argmin(1)] == labels).float().mean())
            """
        else:
            body = """
                right, rows = 0, bank.tolist()
                for place, one in enumerate(rows):
                    nearest, least = None, float("inf")
                    for other, row in enumerate(rows):
                        far = sum((a - b) ** 2 for a, b in zip(one, row))
                        if other != place and far < least:
                            nearest, least = other, far
                    right += int(labels[nearest] == labels[place])
                return right / len(rows)
            """
        text.add("top", "def agreement(bank, labels):" + body.rstrip().replace("\n            ", "\n"))
        text.add("before", "bank, owners = [], []")
        text.add("after", "bank.append(x.flatten(1)[:, :12].float())\nowners.append(y)")
        text.add(
            "epoch",
            f"""
            score = agreement(torch.cat(bank)[:{self.rows}], torch.cat(owners)[:{self.rows}])
            bank.clear()
            owners.clear()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class SnapshotsInMemory(CheckpointOften):
    """All weights are copied every four steps, to be averaged later. Repaired: a tenth as often."""

    steps: ClassVar[int] = 4
    ms: ClassVar[float] = 1.5
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.1 if script.about.small else rng.choice([1.0, 5.0, 15.0]))

    def saving(self) -> tuple[list[str], str]:
        return ["import collections", "import copy"], "snapshots.append(copy.deepcopy(state))"

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        text.add("before", "snapshots = collections.deque(maxlen=3)")


@dataclass(frozen=True)
class ConfusionCounts(Evaluation):
    """A matrix of what was taken for what is counted sample by sample. Repaired: by `bincount`."""

    at_once: bool = False
    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.add("before", "confusion = torch.zeros(10, 10, dtype=torch.long)")
        text.add("after", "guesses = x.flatten(1)[:, :10].float().argmax(1)")
        if self.at_once:
            text.add("after", "confusion += torch.bincount(y * 10 + guesses, minlength=100).view(10, 10)")
        else:
            text.add("after", "for label, guess in zip(y, guesses):\n    confusion[label, guess] += 1")
        text.add("epoch", "accuracy = float(confusion.diag().sum() / confusion.sum())\nconfusion.zero_()")

    def cost_of_step(self, script: Script) -> float:
        return 0.05 if self.at_once else script.about.batch * 0.012

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class SavedAfterEpochs(Evaluation):
    """Weights are saved after each epoch: nothing to repair."""

    millions: float = 0.2
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 0.6

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([0.05, 0.4]))

    def write(self, text: Text, script: Script) -> None:
        text.add("before", f"backbone = torch.ones({round(self.millions * 1e6):_})")
        text.add(
            "epoch",
            'torch.save({"model": model.state_dict(), "backbone": backbone, "epoch": epoch}, HERE / "last.pt")',
        )


EVALUATIONS: list[type[Production]] = [
    NoEvaluation,
    SlowEvaluation,
    PythonMetric,
    CheckpointOften,
    CheckpointPacked,
    ScoreEachStep,
    BoxOverlaps,
    RotatedCheckpoints,
    NestedValidation,
    SingleSamples,
    NearestInBank,
    SnapshotsInMemory,
    ConfusionCounts,
    SavedAfterEpochs,
]
