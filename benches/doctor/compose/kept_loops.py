"""Kept productions of loops and limits: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from evaluations import CheckpointOften, Evaluation, Logging, SlowEvaluation
from grammar import KEPT, Production, Script, Text
from limits import Limits, NoLimits, more_workers
from loaders import Loader
from steps import Net, Step, milliseconds
from storages import storage


@dataclass(frozen=True)
class Configured(Loader):
    """Settings in a dict: no worker, one, or several times as many as cores. Repaired: one a core."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        workers = rng.choice([0, 0, 1, 4 * script.about.cores, 6 * script.about.cores])
        return cls(script.about.batch, workers)

    def write(self, text: Text, script: Script) -> None:
        data, *settings = self.arguments(text, script)
        pairs = [setting.split("=", 1) for setting in settings]
        written = ", ".join(f'"{name}": {value}' for name, value in pairs if name != "collate_fn")
        text.add("constants", f"LOADING = {{{written}}}")
        more = "".join(f", {name}={value}" for name, value in pairs if name == "collate_fn")
        text.add("loader", f"loader = DataLoader({data}{more}, **LOADING)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        right = replace(self, workers=max(2, script.about.cores))
        return {"fewer-workers" if self.workers > script.about.cores else "workers": {"loader": right}}


@dataclass(frozen=True)
class AnewEachEpoch(Loader):
    """The loader is made in each epoch, with its workers. Repaired: it is made once, and keeps them."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, False)

    def write(self, text: Text, script: Script) -> None:
        data, *settings = self.arguments(text, script)
        text.add("setup", f"dataset = {data}")
        text.add("loader", f"loader = DataLoader(dataset, {', '.join(settings)})")
        if not self.once:
            text.told["anew"] = "yes"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"loader-once": {"loader": replace(self, once=True, persistent=True)}}


@dataclass(frozen=True)
class Reproducible(Loader):
    """As PyTorch's notes on reproducibility write it, with workers that start anew. Repaired: they are kept."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, False)

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("import random", "import numpy as np")
        text.add(
            "top",
            """
            def seed_worker(worker_id):
                seed = torch.initial_seed() % 2**32
                np.random.seed(seed)
                random.seed(seed)
            """,
        )
        text.add("setup", "generator = torch.Generator()\ngenerator.manual_seed(0)")
        return [*super().arguments(text, script), "worker_init_fn=seed_worker", "generator=generator"]

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"persistent": {"loader": replace(self, persistent=True)}}


@dataclass(frozen=True)
class Weighted(Loader):
    """Samples are drawn by weights, with workers or, repaired by them, without."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form != "stream"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, 0 if rng.random() < 0.4 else script.about.cores)

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("from torch.utils.data import DataLoader, WeightedRandomSampler")
        count = script.about.count
        text.add("setup", f"weights = 1 + (torch.arange({count}) % 3)")
        text.add("setup", f"sampler = WeightedRandomSampler(weights.double(), {count})")
        told = [setting for setting in super().arguments(text, script) if setting != "shuffle=True"]
        return [*told, "sampler=sampler"]

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.workers else {"workers": {"loader": replace(self, workers=script.about.cores)}}


@dataclass(frozen=True)
class ThreadDevice(Step):
    """A stand-in of a device that a thread of an executor's plays, with a queue that is not endless."""

    ms: float = 5.0
    width: int = 64
    depth: int = 2
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([32, 128, 384]), rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need(
            "import threading", "from concurrent.futures import ThreadPoolExecutor", "from torch import nn"
        )
        text.add("constants", f"SECONDS = {self.ms / 1000:.5f}")
        text.add(
            "top",
            '''
            class Later:
                """What a device will have computed."""

                def __init__(self, future, value):
                    self.future, self.value = future, value

                def item(self):
                    self.future.result()
                    return self.value


            class Accelerator:
                """Works through what is queued while the host goes on."""

                def __init__(self, depth):
                    self.pool = ThreadPoolExecutor(1)
                    self.places = threading.BoundedSemaphore(depth)

                def run(self, batch, seconds):
                    self.places.acquire()
                    return Later(self.pool.submit(self.work, seconds), float(batch.float().mean()))

                def work(self, seconds):
                    time.sleep(seconds)
                    self.places.release()
            ''',
        )
        text.add(
            "model",
            f"accelerator = Accelerator({self.depth})\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add("step", "loss = accelerator.run(x, SECONDS)\ntotal += loss.value * len(x)")

    def evaluating(self, script: Script) -> str:
        return "accelerator.run(x, SECONDS / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class Accumulated(Net):
    """A batch is learnt from in small parts, whose gradients add up. Repaired: at once."""

    parts: int = 4
    width: int = 48
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([2, 4, 8]), rng.choice([32, 64]))

    def model(self, script: Script) -> str:
        return (
            f"blocks = [nn.Sequential(nn.Linear({self.width}, {self.width}), nn.LayerNorm({self.width}), nn.GELU())\n"
            "          for _ in range(4)]\n"
            f"model = nn.Sequential({self.head(script, self.width)}, *blocks, nn.Linear({self.width}, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.parts == 1:
            return
        called = self.called(script).replace("x", "part")
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            optimizer.zero_grad()
            for part, labels in zip(x.chunk({self.parts}), y.chunk({self.parts})):
                loss = criterion({called}, labels) / {self.parts}
                loss.backward()
                total += loss.detach() * len(x)
            optimizer.step()
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 0.4 + 0.5 * self.parts

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "larger-batch": {"step": replace(self, parts=1)}}


@dataclass(frozen=True)
class Averaged(Net):
    """Averages of weights are kept by name after each step. Repaired: for all weights at once."""

    layers: int = 12
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([4, 10, 20]))

    def model(self, script: Script) -> str:
        made = "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))"
        return (
            f"layers = [m for _ in range({self.layers}) for m in (nn.Linear(32, 32), nn.ReLU())]\n"
            f"model = nn.Sequential({self.head(script, 32)}, *layers, nn.Linear(32, 10))\n"
            f"average = {made if self.at_once else 'copy.deepcopy(model)'}"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.at_once:
            text.need("from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn")
            text.add("step", "average.update_parameters(model)")
            return
        text.need("import copy")
        text.add(
            "top",
            """
            @torch.no_grad()
            def update_average(average, model, decay):
                for name, weights in model.state_dict().items():
                    kept = average.state_dict()[name]
                    kept.copy_(decay * kept + (1 - decay) * weights)
            """,
        )
        text.add("step", "update_average(average, model, 0.999)")

    def cost_of_step(self, script: Script) -> float:
        return 0.5 + 0.1 * self.layers + 0.006 * self.layers**2

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "average-at-once": {"step": replace(self, at_once=True)}}


@dataclass(frozen=True)
class AttentionNet(Net):
    """Patches of images, or parts of rows, that attend to each other."""

    width: int = 32
    layers: int = 1
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16, 1) if script.about.small else cls(rng.choice([32, 64]), rng.choice([1, 2]))

    def model(self, script: Script) -> str:
        return f"model = Attending({self.width}, {self.layers})"

    def write(self, text: Text, script: Script) -> None:
        features = getattr(storage(script), "features", 0)
        cut = (
            "nn.Sequential(nn.Conv2d(3, width, 8, stride=8), nn.Flatten(2))"
            if script.about.kind == "image"
            else f"nn.Sequential(nn.Linear({features}, 8 * width), nn.Unflatten(1, (width, 8)))"
        )
        text.add(
            "top",
            f"""
            class Attending(nn.Module):
                def __init__(self, width, layers):
                    super().__init__()
                    self.cut = {cut}
                    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
                    self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
                    self.out = nn.Linear(width, 10)

                def forward(self, x):
                    return self.out(self.layers(self.cut(x).transpose(1, 2)).mean(1))
            """,
        )
        super().write(text, script)

    def cost_of_step(self, script: Script) -> float:
        tokens = 64 if script.about.kind == "image" else 8
        return 0.6 + self.layers * (0.6 + script.about.batch * tokens * self.width * 6e-5)


@dataclass(frozen=True)
class EventFile(Logging):
    """Loss and histograms of all weights as events of a writer's, in each step. Repaired: in each 50th."""

    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "log",
            'if step % 100 == 0:\n    print(f"step {step}: mean {float(total) / seen:.4f}", flush=True)',
        )


@dataclass(frozen=True)
class ScoreEachStep(Evaluation):
    """A score of torchmetrics is computed in each step. Repaired: at the end of the epoch."""

    classes: int = 10
    at_once: bool = False
    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT

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
    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and not getattr(storage(script), "single", False)

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
class LatentReads(Limits):
    """Each read of a file waits. Repaired: a local copy, or more workers."""

    read_us: int = 500
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        # What is mapped is not read.
        mapped = "mmap" in storage(script).opening(script) if storage(script).form == "container" else False
        return storage(script).form in ("files", "container") and not mapped

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([200, 800, 3000]))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"read_us": self.read_us}}

    def cost(self, script: Script) -> float:
        return 2 * self.read_us / 1000

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class BusyHost(Limits):
    """Other processes keep as many cores busy as there are. Repaired: they are gone."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.5

    def around(self, script: Script) -> dict[str, Any]:
        return {"neighbours": script.about.cores}

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"no-neighbour": {"limits": NoLimits()}}


@dataclass(frozen=True)
class FarShare(Limits):
    """Opens wait, and bytes come at a rate that all readers share. Repaired: a local copy, or more workers."""

    open_us: int = 500
    rate: int = 20_000_000
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form in ("files", "stream")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        rate = round(storage(script).bytes_each(script) * 200 * 10 ** rng.random())
        return cls(rng.choice([300, 1000, 2500]), rate)

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"open_us": self.open_us, "rate": self.rate}}

    def cost(self, script: Script) -> float:
        kind = storage(script)
        each = kind.bytes_each(script) / self.rate * 1000 * script.about.cores
        return each + (self.open_us / 1000 if kind.form == "files" else 0.0)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


LOADERS: list[type[Production]] = [Configured, AnewEachEpoch, Reproducible, Weighted]
STEPS: list[type[Production]] = [ThreadDevice, Accumulated, Averaged, AttentionNet]
LOGGINGS: list[type[Production]] = [EventFile, CommittedRows, ProgressBar, RunningMean]
EVALUATIONS: list[type[Production]] = [ScoreEachStep, BoxOverlaps, RotatedCheckpoints, NestedValidation]
LIMITS: list[type[Production]] = [LatentReads, BusyHost, FarShare]
