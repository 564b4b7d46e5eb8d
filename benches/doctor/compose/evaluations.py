"""Besides training: what is logged of steps, what is evaluated, what is saved."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, Production, Script, Text
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
    of: ClassVar[str] = OPEN

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form not in ("stream", "tensors")

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
            evaluation = DataLoader(part, batch_size={loader.batch}{more})
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


LOGGINGS: list[type[Production]] = [
    NoLog,
    Every50,
    ItemEachStep,
    NormsCsv,
    PrintedSteps,
    JsonHistory,
]

EVALUATIONS: list[type[Production]] = [
    NoEvaluation,
    SlowEvaluation,
    PythonMetric,
    CheckpointOften,
    CheckpointPacked,
]
