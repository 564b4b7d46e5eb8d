"""The loop: the loader's settings, the step, what is logged, what is evaluated and saved, what the machine allows."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from grammar import OPEN, Production, Script, Text
from storages import storage


@dataclass(frozen=True)
class Loader(Production):
    """Arguments of torch's `DataLoader`."""

    slot: ClassVar[str] = "loader"
    batch: int = 16
    workers: int = 2
    persistent: bool = True

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores)

    def arguments(self, text: Text, script: Script) -> list[str]:
        """All of them, as they are written."""
        access = script["access"]
        told = [text.told.get("dataset", "Samples()"), f"batch_size={self.batch}"]
        if getattr(access, "shuffle", False):
            told.append("shuffle=True")
        if self.workers:
            told.append(f"num_workers={self.workers}")
            told += ["persistent_workers=True"] if self.persistent else []
        if name := text.told.get("collate"):
            told.append(f"collate_fn={name}")
        return told

    def write(self, text: Text, script: Script) -> None:
        arguments = "".join(f"    {argument},\n" for argument in self.arguments(text, script))
        text.add("loader", f"loader = DataLoader(\n{arguments})")

    @property
    def tuned(self) -> Tuned:
        """What is right for most."""
        return Tuned(self.batch, self.workers)


@dataclass(frozen=True)
class Tuned(Loader):
    """As many workers as cores, kept between epochs."""


@dataclass(frozen=True)
class Serial(Loader):
    """Batches are made in the training process. Repaired: by workers."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, 0)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"workers": {"loader": Tuned(self.batch, script.about.cores)}}


@dataclass(frozen=True)
class Restarted(Loader):
    """Workers are started anew in each epoch. Repaired: they are kept."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, False)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"persistent": {"loader": Tuned(self.batch, self.workers)}}


@dataclass(frozen=True)
class ThreadsSet(Loader):
    """Each worker is told to use many threads. Repaired: it is not."""

    threads: int = 8
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, threads=script.about.cores * rng.choice([2, 4]))

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.add("top", f"def start(worker):\n    torch.set_num_threads({self.threads})")
        return [*super().arguments(text, script), "worker_init_fn=start"]

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"one-thread": {"loader": self.tuned}}


@dataclass(frozen=True)
class Step(Production):
    """Forward, backward and update; `loss` has `.item()`, `total` sums over samples."""

    slot: ClassVar[str] = "step"

    def evaluating(self, script: Script) -> str:
        """An expression for what is computed of a batch `x`, `y` in evaluation; a float."""
        raise NotImplementedError


def milliseconds(rng: random.Random, script: Script) -> float:
    """How long a device takes a step: a third to three times as long as loading a batch; calm scripts twice or more."""
    about = script.about
    each = sum(part.cost(script) for part in script.parts.values())
    load = each * about.batch / max(1, min(getattr(script["loader"], "workers", 1), about.cores))
    most = 3.0 if about.small else 60.0
    times = 3 ** rng.uniform(-1, 1) if not about.calm else rng.uniform(2, 5)
    return round(min(max(load * times, 0.5 if not about.calm else 3.0), most), 2)


DEVICE = '''
class Result:
    """A number that the device is still working on."""

    def __init__(self, device, ready, value):
        self.device, self.ready, self.value = device, ready, value

    def item(self):
        self.device.wait(self.ready)
        return self.value


class Device:
    """Works on its own while the host goes on, as a GPU does."""

    def __init__(self):
        self.busy_until = 0.0

    def launch(self, batch, seconds):
        self.busy_until = max(time.perf_counter(), self.busy_until) + seconds
        return Result(self, self.busy_until, float(batch.float().mean()))

    def wait(self, until):
        left = until - time.perf_counter()
        if left > 0:
            time.sleep(left)
'''


@dataclass(frozen=True)
class AsyncDevice(Step):
    """A sleeping stand-in of a device, whose steps run in order while the host goes on."""

    ms: float = 5.0
    width: int = 64
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([16, 256, 1024]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        text.add("top", DEVICE)
        text.add("constants", f"STEP = {self.ms / 1000:.5f}")
        text.add(
            "model",
            f"device = Device()\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add(
            "step",
            """
            loss = device.launch(x, STEP)
            device.wait(device.busy_until - 3 * STEP)  # its queue is not endless
            total += loss.value * len(x)
            """,
        )

    def evaluating(self, script: Script) -> str:
        return "device.launch(x, STEP / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class Net(Step):
    """A network on the CPU, with torch's threads or so many. Repaired: one."""

    threads: int = field(default=0, kw_only=True)

    def head(self, script: Script, width: int) -> str:
        """Layers that make so many numbers of a sample."""
        kind, features = script.about.kind, getattr(storage(script), "features", 0)
        if kind == "image":
            return f"nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, {width})"
        return f"nn.Linear({features}, {width})" if kind == "vector" else f"nn.EmbeddingBag(10_000, {width})"

    def model(self, script: Script) -> str:
        """Lines that set `model`."""
        raise NotImplementedError

    def cost_of_step(self, script: Script) -> float:
        return 1.5

    def called(self, script: Script) -> str:
        """The model on a batch."""
        return "model(x.float() / 255)" if script.about.kind == "image" else "model(x)"

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        if self.threads:
            text.add("setup", f"torch.set_num_threads({self.threads})")
        text.add(
            "model",
            f"{self.model(script)}\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
            "criterion = nn.CrossEntropyLoss()",
        )
        text.add(
            "step",
            f"""
            loss = criterion({self.called(script)}, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            """,
        )

    def evaluating(self, script: Script) -> str:
        return f"float(({self.called(script)}.argmax(1) == y).float().mean())"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"fewer-threads": {"step": replace(self, threads=1)}}


@dataclass(frozen=True)
class SmallNet(Net):
    """Two layers."""

    of: ClassVar[str] = OPEN

    def model(self, script: Script) -> str:
        return f"model = nn.Sequential({self.head(script, 32)}, nn.ReLU(), nn.Linear(32, 10))"


@dataclass(frozen=True)
class Launching(Net):
    """One whose parts compute next to nothing. Repaired: a larger batch."""

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        loader = script["loader"]
        assert isinstance(loader, Loader)
        larger = replace(loader, batch=loader.batch * 4)
        return {**super().repairs(script), "larger-batch": {"loader": larger}}


@dataclass(frozen=True)
class ManyLayers(Launching):
    """Many layers that compute next to nothing. Repaired: a larger batch."""

    layers: int = 60
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(4 if script.about.small else rng.choice([20, 60, 120]))

    def model(self, script: Script) -> str:
        return (
            f"layers = [nn.Sequential(nn.Linear(24, 24), nn.Tanh()) for _ in range({self.layers})]\n"
            f"model = nn.Sequential({self.head(script, 24)}, *layers, nn.Linear(24, 10))"
        )

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + 0.12 * self.layers


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
class CheckpointOften(Evaluation):
    """All weights are saved every ten steps. Repaired: once an epoch."""

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
        if self.often:
            body = "".join(f"    {line}\n" for line in lines.split("\n"))
            text.add("after", f"if step % {self.steps} == {self.steps - 1}:\n{body}")
        else:
            text.add("epoch", lines)

    def cost_of_step(self, script: Script) -> float:
        return self.millions * self.ms / self.steps

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"checkpoint-less": {"evaluation": replace(self, often=False)}}


@dataclass(frozen=True)
class Limits(Production):
    """What stands around the script: it writes no lines."""

    slot: ClassVar[str] = "limits"

    def around(self, script: Script) -> dict[str, Any]:
        """For `running.surroundings`: `slow` (arguments of `slow_reads`), `neighbours`, `cores`."""
        return {}


@dataclass(frozen=True)
class NoLimits(Limits):
    """Nothing."""


def more_workers(script: Script) -> dict[str, dict[str, Production]]:
    """More workers than cores, where they mostly wait, unless there are that many."""
    loader = script["loader"]
    assert isinstance(loader, Loader)
    if not loader.workers or loader.workers > 2 * script.about.cores:
        return {}
    return {"more-workers": {"loader": replace(loader, workers=4 * script.about.cores)}}


@dataclass(frozen=True)
class SlowOpens(Limits):
    """Each open and each read of a file waits. Repaired: a local copy, or more workers."""

    open_us: int = 1000
    read_us: int = 500
    of: ClassVar[str] = OPEN

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form == "files"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([200, 1000, 4000]), rng.choice([100, 500, 2000]))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"open_us": self.open_us, "read_us": self.read_us}}

    def cost(self, script: Script) -> float:
        return (self.open_us + 2 * self.read_us) / 1000

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class Neighbour(Limits):
    """Another process keeps a core busy. Repaired: it is gone."""

    of: ClassVar[str] = OPEN

    def around(self, script: Script) -> dict[str, Any]:
        return {"neighbours": 1}

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"no-neighbour": {"limits": NoLimits()}}


LOADERS: list[type[Production]] = [Tuned, Serial, Restarted, ThreadsSet]
STEPS: list[type[Production]] = [
    AsyncDevice, SmallNet, ManyLayers,
]  # fmt: skip
LOGGINGS: list[type[Production]] = [NoLog, Every50, ItemEachStep, NormsCsv]
EVALUATIONS: list[type[Production]] = [
    NoEvaluation, SlowEvaluation, CheckpointOften,
]  # fmt: skip
LIMITS: list[type[Production]] = [NoLimits, SlowOpens, Neighbour]
