"""Kept productions of logging and evaluation: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from evaluations import CheckpointOften, Evaluation, Logging, SlowEvaluation
from grammar import KEPT, SIZE, Production, Script, Text


@dataclass(frozen=True)
class PreviewEachStep(Logging):
    """Some images of the batch are saved as a PNG in each step. Repaired: in each 50th."""

    images: int = 8
    of: ClassVar[str] = KEPT
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

    of: ClassVar[str] = KEPT
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

    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT
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


@dataclass(frozen=True)
class SingleSamples(SlowEvaluation):
    """Samples are evaluated one by one, without workers. Repaired: in batches, or by workers."""

    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT
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


LOGGINGS: list[type[Production]] = [PreviewEachStep, RewrittenTable, SystemMetrics, Throughput]
EVALUATIONS: list[type[Production]] = [
    SingleSamples, NearestInBank, SnapshotsInMemory, ConfusionCounts, SavedAfterEpochs,
]  # fmt: skip
