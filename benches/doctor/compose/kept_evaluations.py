"""Kept productions of logging and evaluation: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from evaluations import CheckpointOften, Evaluation, Logging, SlowEvaluation
from grammar import KEPT, SIZE, Production, Script, Text
from loaders import Loader
from steps import Net, Step
from storages import storage


@dataclass(frozen=True)
class SyncedLines(Logging):
    """A line of JSON in each step, which is synced to the disk. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'line = {"time": time.time(), "epoch": epoch, "step": step, "loss": loss.item(), "size": len(x)}\n'
            'metrics.write(json.dumps(line) + "\\n")\n'
            "metrics.flush()\n"
            "os.fsync(metrics.fileno())"
        )
        return ["import json", "import os"], 'metrics = (HERE / "metrics.jsonl").open("a")', lines

    def cost_of_step(self, script: Script) -> float:
        return 1.0 / self.every


@dataclass(frozen=True)
class GradientNorms(Logging):
    """Norms of all gradients are taken one by one in each step. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and isinstance(script["step"], Net)

    def noting(self) -> tuple[list[str], str, str]:
        lines = (
            'norms = {"total": 0.0}\n'
            "for name, weights in model.named_parameters():\n"
            "    if weights.grad is not None:\n"
            "        norms[name] = weights.grad.detach().norm(2).item()\n"
            '        norms["total"] += norms[name] ** 2\n'
            "gradients.append(norms)"
        )
        return ["from collections import deque"], "gradients = deque(maxlen=1000)", lines

    def cost_of_step(self, script: Script) -> float:
        return 0.2 / self.every


@dataclass(frozen=True)
class ActivationHooks(Logging):
    """Hooks note mean and spread of what all layers give in each step. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and isinstance(script["step"], Net)

    def write(self, text: Text, script: Script) -> None:
        text.need("from collections import Counter, defaultdict")
        skip = (
            ""
            if self.every == 1
            else f"if self.calls[name] % {self.every} != 1:\n                            return"
        )
        text.add(
            "top",
            f"""
            class Watcher:
                def __init__(self, model):
                    self.calls, self.seen = Counter(), defaultdict(list)
                    for name, layer in model.named_modules():
                        if not list(layer.children()):
                            layer.register_forward_hook(self.hook(name))

                def hook(self, name):
                    def note(layer, inputs, output):
                        self.calls[name] += 1
                        {skip}
                        if torch.is_tensor(output):
                            values = output.detach().float().cpu().numpy()
                            self.seen[name].append((float(values.mean()), float(values.std())))

                    return note
            """.replace("                        \n", ""),
        )
        text.add("before", "watcher = Watcher(model)")

    def cost_of_step(self, script: Script) -> float:
        return 0.4 / self.every


@dataclass(frozen=True)
class CollectsEachStep(Logging):
    """Garbage is collected in each step, as against leaks. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.7

    def noting(self) -> tuple[list[str], str, str]:
        return ["import gc"], "", "gc.collect()\ntorch.cuda.empty_cache()"

    def cost_of_step(self, script: Script) -> float:
        return 40.0 / self.every

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"collect-less": {"logging": replace(self, every=50)}}


@dataclass(frozen=True)
class TableOfSteps(Logging):
    """A line of CSV with the loss in each step, nothing of which is forced to the disk. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT

    def noting(self) -> tuple[list[str], str, str]:
        before = (
            'file = (HERE / "steps.csv").open("w")\n'
            'table = csv.DictWriter(file, ["epoch", "step", "loss"])\n'
            "table.writeheader()"
        )
        return ["import csv"], before, 'table.writerow({"epoch": epoch, "step": step, "loss": loss.item()})'

    def cost_of_step(self, script: Script) -> float:
        return 0.02 / self.every


@dataclass(frozen=True)
class Meters(Production):
    """Meters of times, of which some are printed now and then: nothing to repair."""

    slot: ClassVar[str] = "logging"
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.8

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            """
            class AverageMeter:
                def __init__(self, name):
                    self.name, self.value, self.sum, self.count = name, 0.0, 0.0, 0

                def update(self, value, number=1):
                    self.value = value
                    self.sum += value * number
                    self.count += number

                def __str__(self):
                    return f"{self.name} {self.value:.4f} ({self.sum / max(self.count, 1):.4f})"
            """,
        )
        text.add("before", 'batch_time, last = AverageMeter("time"), time.perf_counter()')
        text.add(
            "log",
            """
            now = time.perf_counter()
            batch_time.update(now - last)
            last = now
            if step % 80 == 79:
                print(f"[{epoch}][{step}] {batch_time}", flush=True)
            """,
        )


@dataclass(frozen=True)
class GrowingScores(Evaluation):
    """What the samples gave is put behind what there is by `torch.cat` in each step. Repaired: after the epoch."""

    columns: int = 64
    at_once: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        most = SIZE * SIZE * 3 if script.about.kind == "image" else getattr(storage(script), "features", 64)
        return cls(min(rng.choice([10, 256, 3000]), most))

    def write(self, text: Text, script: Script) -> None:
        given = f"x.flatten(1)[:, :{self.columns}].float()"
        if self.at_once:
            text.add("before", "parts = []")
            text.add("after", f"parts.append({given})")
            text.add("epoch", "gathered = torch.cat(parts)\nparts.clear()\nspread = float(gathered.std())")
        else:
            text.add("before", f"gathered = torch.empty(0, {self.columns})")
            text.add("after", f"gathered = torch.cat([gathered, {given}])")
            text.add("epoch", f"spread = float(gathered.std())\ngathered = torch.empty(0, {self.columns})")

    def cost_of_step(self, script: Script) -> float:
        return 0.02 if self.at_once else 0.03 + script.about.count / 2 * self.columns * 4 * 2.5e-7

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class AreaSoFar(Evaluation):
    """An area under a curve is computed of all samples so far in each step. Repaired: after the epoch."""

    by: str = "numpy"
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice(["numpy", "python"]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.by == "numpy":
            body = """
                order = np.argsort(-scores, kind="stable")
                hits = np.cumsum(truth[order])
                misses = np.arange(1, len(truth) + 1) - hits
                return float(np.sum(np.diff(misses, prepend=0) * hits) / max(hits[-1] * misses[-1], 1))
            """
        else:
            body = """
                area = hits = misses = 0
                for _, true in sorted(zip(scores.tolist(), truth.tolist()), key=lambda pair: -pair[0]):
                    if true:
                        hits += 1
                    else:
                        misses += 1
                        area += hits
                return area / max(hits * misses, 1)
            """
        text.add(
            "top", "def area_under_curve(truth, scores):" + body.rstrip().replace("\n            ", "\n")
        )
        text.add("before", "truths, guesses, areas = [], [], []")
        text.add(
            "after",
            "truths.append((y % 2).cpu().numpy())\nguesses.append(x.flatten(1)[:, 0].float().cpu().numpy())",
        )
        noted = "areas.append(area_under_curve(np.concatenate(truths), np.concatenate(guesses)))"
        text.add("epoch" if self.at_once else "after", noted)
        text.add("epoch", "truths.clear()\nguesses.clear()")

    def cost_of_step(self, script: Script) -> float:
        each = 1.5e-4 if self.by == "numpy" else 6e-4
        return 0.03 + (0.0 if self.at_once else script.about.count / 2 * each)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class SortedTops(Evaluation):
    """The best of each sample's scores are found by `sorted` in each step. Repaired: by torch for a batch."""

    scores: int = 100
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([10, 100, 600]))

    def write(self, text: Text, script: Script) -> None:
        if self.at_once:
            body = """
                best = rows.topk(min(5, rows.shape[1])).indices
                return int((best == labels[:, None]).sum())
            """
        else:
            body = """
                hits = 0
                for row, label in zip(rows.tolist(), labels.tolist()):
                    ranked = sorted(range(len(row)), key=lambda place: row[place], reverse=True)
                    hits += label in ranked[:5]
                return hits
            """
        text.add("top", "def top_hits(rows, labels):" + body.rstrip().replace("\n            ", "\n"))
        text.add("before", "hits = []")
        text.add("after", f"hits.append(top_hits(x.flatten(1)[:, :{self.scores}].float(), y))")
        text.add("epoch", "accuracy = sum(hits) / seen\nhits.clear()")

    def cost_of_step(self, script: Script) -> float:
        return 0.04 if self.at_once else 0.02 + script.about.batch * self.scores * 1.6e-4

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"metric-at-once": {"evaluation": replace(self, at_once=True)}}


@dataclass(frozen=True)
class StatesSaved(CheckpointOften):
    """Weights and an optimizer's state are saved every few steps. Repaired: a tenth as often."""

    steps: ClassVar[int] = 12
    ms: ClassVar[float] = 12.0
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(0.05 if script.about.small else rng.choice([0.02, 0.3, 1.5]))

    def saving(self) -> tuple[list[str], str]:
        return [], (
            'state["optimizer"] = {"exp_avg": backbone * 0.1, "exp_avg_sq": backbone**2, "step": step}\n'
            'torch.save(state, HERE / f"state_{step % 2}.pt")'
        )


@dataclass(frozen=True)
class BestKept(Evaluation):
    """The best weights are copied after an epoch that was better: nothing to repair."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.7

    def write(self, text: Text, script: Script) -> None:
        text.need("import copy")
        text.add("before", 'best, best_weights, patience = float("inf"), None, 500')
        text.add(
            "epoch",
            """
            if float(total) / seen < best:
                best, patience = float(total) / seen, 500
                best_weights = copy.deepcopy(model.state_dict())
            else:
                patience -= 1
            """,
        )


@dataclass(frozen=True)
class ValidatesWithin(SlowEvaluation):
    """A part of the samples is evaluated twice within an epoch, loaded without workers. Repaired: by workers."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([4, 8, 16]))

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
            held_out = Subset(Samples(), range(1, {script.about.count}, {self.every}))
            held_out = DataLoader(held_out, batch_size={loader.batch}{more})
            """,
        )
        often = max(1, script.about.count // loader.batch // 2)
        text.add(
            "after",
            f"if (step + 1) % {often} == 0:\n    model.eval()\n    scores = []\n    with torch.no_grad():\n"
            "        for x, y in held_out:",
        )
        inner = [line for line, _ in text.sections.get("loop", [])]
        for line in [*inner, f"scores.append({step.evaluating(script)})"]:
            text.sections["after"].append((f"            {line}", self.slot))
        text.sections["after"].append(("    model.train()", self.slot))

    def cost(self, script: Script) -> float:
        return 2 * super().cost(script)


LOGGINGS: list[type[Production]] = [
    SyncedLines, GradientNorms, ActivationHooks, CollectsEachStep, TableOfSteps, Meters,
]  # fmt: skip
EVALUATIONS: list[type[Production]] = [
    GrowingScores, AreaSoFar, SortedTops, StatesSaved, BestKept, ValidatesWithin,
]  # fmt: skip
