"""Kept productions of loaders, steps and limits: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from grammar import KEPT, Production, Script, Text
from kept_images import ClassTree, VolumeSlices
from limits import Limits, NoLimits, more_workers, read_container
from loaders import Loader
from steps import Net, Step, milliseconds
from storages import storage


def settings_repaired(loader: Loader, script: Script) -> dict[str, dict[str, Production]]:
    """As many workers as cores, and kept, where they are not."""
    cores = max(2, script.about.cores)
    found: dict[str, dict[str, Production]] = {}
    if loader.workers < cores:
        found["workers"] = {"loader": replace(loader, workers=cores, persistent=True)}
    if loader.workers > cores:
        found["fewer-workers"] = {"loader": replace(loader, workers=cores)}
    if loader.workers and not loader.persistent:
        found["persistent"] = {"loader": replace(loader, persistent=True)}
    return found


@dataclass(frozen=True)
class CommandLine(Loader):
    """Settings from the command line: no worker, one, as many as cores, too many. Repaired: one a core, kept."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        cores = max(2, script.about.cores)
        workers = rng.choice([0, 1, cores, cores, 3 * cores, 6 * cores])
        return cls(script.about.batch, workers, workers > 0 and rng.random() < 0.5)

    def write(self, text: Text, script: Script) -> None:
        text.need("import argparse")
        keep = ", default=True" if self.persistent else ""
        text.add(
            "top",
            f"""
            def parse_args():
                parser = argparse.ArgumentParser()
                parser.add_argument("epochs", type=int, nargs="?")
                parser.add_argument("--batch-size", type=int, default={self.batch})
                parser.add_argument("--workers", "-j", type=int, default={self.workers})
                parser.add_argument("--keep-workers", action="store_true"{keep})
                return parser.parse_args()
            """,
        )
        text.add("setup", "args = parse_args()")
        data, *told = self.arguments(text, script)
        kept = [setting for setting in told if setting.startswith(("shuffle=", "collate_fn="))]
        own = ["batch_size=args.batch_size", "num_workers=args.workers"]
        if self.workers:
            own.append("persistent_workers=args.keep_workers")
        lines = "".join(f"    {setting},\n" for setting in [data, *own, *kept])
        text.add("loader", f"loader = DataLoader(\n{lines})")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return settings_repaired(self, script)


@dataclass(frozen=True)
class DrawnOneByOne(Loader):
    """A sampler draws one index after the other by weights. Repaired: all at once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form != "stream"

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("import numpy as np", "from torch.utils.data import DataLoader, Sampler")
        drawn = (
            "yield from self.random.choice(len(self), len(self), p=self.shares).tolist()"
            if self.once
            else "for _ in range(len(self)):\n"
            "                        yield int(self.random.choice(len(self), p=self.shares))"
        )
        text.add(
            "top",
            f"""
            class ByShare(Sampler):
                def __init__(self, weights):
                    self.shares, self.random = weights / weights.sum(), np.random.RandomState(0)

                def __len__(self):
                    return len(self.shares)

                def __iter__(self):
                    {drawn}
            """,
        )
        text.add("setup", f"weights = 1.0 + np.arange({script.about.count}) % 4")
        told = [setting for setting in super().arguments(text, script) if setting != "shuffle=True"]
        return [*told, "sampler=ByShare(weights)"]

    def cost_of_step(self, script: Script) -> float:
        return 0.0 if self.once else self.batch * (0.03 + script.about.count * 1.2e-5)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.once else {"sampler-once": {"loader": replace(self, once=True)}}


@dataclass(frozen=True)
class CountedAgain(Loader):
    """A sampler counts classes sample by sample in each epoch. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form != "stream"

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("from torch.utils.data import DataLoader, Sampler")
        counted = (
            "counts = {label: self.labels.count(label) for label in set(self.labels)}\n"
            "                    return torch.tensor([1 / counts[label] for label in self.labels])"
            if self.once
            else "return torch.tensor([1 / self.labels.count(label) for label in self.labels])"
        )
        text.add(
            "top",
            f"""
            class Balanced(Sampler):
                def __init__(self, labels):
                    self.labels, self.generator = labels, torch.Generator().manual_seed(0)
                    {"self.known = self.weights()" if self.once else "self.known = None"}

                def __len__(self):
                    return len(self.labels)

                def weights(self):
                    {counted}

                def __iter__(self):
                    weights = self.weights() if self.known is None else self.known
                    drawn = torch.multinomial(weights, len(self), True, generator=self.generator)
                    return iter(drawn.tolist())
            """,
        )
        text.add("setup", f"labels = [index % 10 for index in range({script.about.count})]")
        told = [setting for setting in super().arguments(text, script) if setting != "shuffle=True"]
        return [*told, "sampler=Balanced(labels)"]

    def cost_of_step(self, script: Script) -> float:
        return 0.0 if self.once else self.batch * script.about.count * 1.2e-5

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.once else {"sampler-once": {"loader": replace(self, once=True)}}


@dataclass(frozen=True)
class SortedByLength(Loader):
    """A sampler of batches asks all texts for their lengths in each epoch. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return script.about.kind == "text"

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("import random")
        asked = "self.lengths = self.ask()" if self.once else "self.lengths = None"
        text.add(
            "top",
            f"""
            class ByLength:
                def __init__(self, dataset, size):
                    self.dataset, self.size, self.random = dataset, size, random.Random(0)
                    {asked}

                def __len__(self):
                    return -(-len(self.dataset) // self.size)

                def ask(self):
                    return [len(self.dataset.text(index).split()) for index in range(len(self.dataset))]

                def __iter__(self):
                    lengths = self.lengths or self.ask()
                    order = sorted(range(len(lengths)), key=lengths.__getitem__)
                    batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
                    self.random.shuffle(batches)
                    return iter(batches)
            """,
        )
        dropped = ("batch_size=", "shuffle=")
        data, *told = (s for s in super().arguments(text, script) if not s.startswith(dropped))
        text.add("setup", f"dataset = {data}")
        return ["dataset", f"batch_sampler=ByLength(dataset, {self.batch})", *told]

    def cost_of_step(self, script: Script) -> float:
        kind = storage(script)
        return 0.0 if self.once else self.batch * (kind.cost(script) + getattr(kind, "words", 60) * 5e-5)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.once else {"sampler-once": {"loader": replace(self, once=True)}}


@dataclass(frozen=True)
class EndlessBatches(Loader):
    """Batches go on from epoch to epoch, with few workers that may start anew. Repaired: one a core, kept."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form != "stream"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        workers = rng.choice([0, 1, script.about.cores, script.about.cores])
        return cls(script.about.batch, workers, workers > 0 and rng.random() < 0.5)

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            """
            class Endless:
                def __init__(self, loader, steps):
                    self.loader, self.steps, self.batches = loader, steps, iter(())

                def __iter__(self):
                    for _ in range(self.steps):
                        try:
                            batch = next(self.batches)
                        except StopIteration:
                            self.batches = iter(self.loader)
                            batch = next(self.batches)
                        yield batch
            """,
        )
        text.add("loader", f"loader = DataLoader({', '.join(self.arguments(text, script))})")
        # After it was given to `wellfed.feed`, which takes loaders of torch's alone.
        text.add("feed", f"loader = Endless(loader, {-(-script.about.count // self.batch)})")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return settings_repaired(self, script)


@dataclass(frozen=True)
class Prudent(Loader):
    """Workers with a time limit that load further ahead: nothing to repair."""

    ahead: int = 4
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, ahead=rng.choice([2, 4, 8]))

    def arguments(self, text: Text, script: Script) -> list[str]:
        more = [f"prefetch_factor={self.ahead}", "timeout=120", "pin_memory=torch.cuda.is_available()"]
        return [*super().arguments(text, script), *more]


@dataclass(frozen=True)
class QueuedDevice(Step):
    """A stand-in of a device that a thread plays, with a queue of steps and an event for each."""

    ms: float = 5.0
    width: int = 64
    depth: int = 2
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([24, 160, 640]), rng.choice([1, 2, 5]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import queue", "import threading", "from torch import nn")
        text.add("constants", f"STEP_TIME = {self.ms / 1000:.5f}")
        text.add(
            "top",
            '''
            class Ticket:
                """A step that the device was given."""

                def __init__(self, seconds, value):
                    self.seconds, self.value, self.done = seconds, value, threading.Event()

                def item(self):
                    self.done.wait()
                    return self.value


            class Card(threading.Thread):
                def __init__(self, depth):
                    super().__init__(daemon=True)
                    self.tickets = queue.Queue(depth)
                    self.start()

                def run(self):
                    while True:
                        ticket = self.tickets.get()
                        time.sleep(ticket.seconds)
                        ticket.done.set()

                def submit(self, batch, seconds):
                    ticket = Ticket(seconds, float(batch.float().mean()))
                    self.tickets.put(ticket)
                    return ticket
            ''',
        )
        text.add(
            "model",
            f"card = Card({self.depth})\n"
            f"layers = nn.Linear({self.width}, {self.width}), nn.ReLU(), nn.Linear({self.width}, 10)\n"
            "model = nn.Sequential(*layers)",
        )
        text.add("step", "loss = card.submit(x, STEP_TIME)\ntotal += loss.value * len(x)")

    def evaluating(self, script: Script) -> str:
        return "card.submit(x, STEP_TIME / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class PolledDevice(Step):
    """A stand-in of a device that the host asks again and again whether it is done."""

    ms: float = 5.0
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        text.add(
            "top",
            '''
            class Chip:
                """Takes so long for a step, and tells when it is asked whether it is ready."""

                def __init__(self, seconds):
                    self.seconds, self.ready_at = seconds, 0.0

                def start(self, share=1.0):
                    self.ready_at = time.monotonic() + self.seconds * share

                def ready(self):
                    return time.monotonic() >= self.ready_at


            def run_step(chip, batch, share=1.0):
                chip.start(share)
                value = batch.float().mean()
                while not chip.ready():
                    time.sleep(0.0004)
                return value
            ''',
        )
        text.add(
            "model",
            f"chip = Chip({self.ms / 1000:.5f})\n"
            "model = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 10))",
        )
        text.add("step", "loss = run_step(chip, x)\ntotal += loss.item() * len(x)")

    def evaluating(self, script: Script) -> str:
        return "run_step(chip, x, 0.3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class NormalizedLayers(Net):
    """Wide layers with normalization."""

    width: int = 128
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16 if script.about.small else rng.choice([48, 192, 768]))

    def model(self, script: Script) -> str:
        return (
            f"blocks = [nn.Sequential(nn.Linear({self.width}, {self.width}), nn.BatchNorm1d({self.width}), nn.SiLU())\n"
            "          for _ in range(3)]\n"
            f"model = nn.Sequential({self.head(script, self.width)}, *blocks, nn.Linear({self.width}, 10))"
        )

    def cost_of_step(self, script: Script) -> float:
        return 1.8 + (self.width / 256) ** 2 * script.about.batch / 12


@dataclass(frozen=True)
class PairedLoss(Net):
    """A loss is added up pair by pair. Repaired: for all pairs at once."""

    pairs: int = 8
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(4 if script.about.small else rng.choice([4, 8, 14]))

    def model(self, script: Script) -> str:
        return f"model = nn.Sequential({self.head(script, 40)}, nn.ReLU(), nn.Linear(40, 10))"

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.at_once:
            body = """
                far = (points[:, None] - points[None]).pow(2).sum(-1)
                costs = torch.where(labels[:, None] == labels[None], far, (1 - far).clamp(min=0))
                first, second = torch.triu_indices(len(points), len(points), 1)
                return costs[first, second].mean()
            """
        else:
            body = """
                total, pairs = 0.0, 0
                for i in range(len(points)):
                    for j in range(i + 1, len(points)):
                        far = (points[i] - points[j]).pow(2).sum()
                        total = total + (far if labels[i] == labels[j] else (1 - far).clamp(min=0))
                        pairs += 1
                return total / pairs
            """
        text.add("top", "def contrastive(points, labels):" + body.rstrip().replace("\n            ", "\n"))
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            outputs = {self.called(script)}
            loss = criterion(outputs, y) + 0.1 * contrastive(outputs[:{self.pairs}], y[:{self.pairs}])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 1.6 if self.at_once else 1.2 + self.pairs**2 / 2 * 0.12

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "loss-at-once": {"step": replace(self, at_once=True)}}


@dataclass(frozen=True)
class AdamByHand(Net):
    """Weights are updated one by one by an optimizer of the script's own. Repaired: by torch's, all at once."""

    layers: int = 8
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(2 if script.about.small else rng.choice([2, 10, 30]))

    def model(self, script: Script) -> str:
        return (
            f"layers = [layer for _ in range({self.layers}) for layer in (nn.Linear(36, 36), nn.Tanh())]\n"
            f"model = nn.Sequential({self.head(script, 36)}, *layers, nn.Linear(36, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        made = (
            "torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)"
            if self.at_once
            else "Adam(model, 1e-3)"
        )
        lines = text.sections["model"]
        place = next(i for i, (line, _) in enumerate(lines) if line.startswith("optimizer ="))
        lines[place] = (f"optimizer = {made}", self.slot)
        if self.at_once:
            return
        text.add(
            "top",
            """
            class Adam:
                def __init__(self, model, rate, betas=(0.9, 0.999), eps=1e-8):
                    self.weights, self.rate, self.betas, self.eps = list(model.parameters()), rate, betas, eps
                    self.means = [torch.zeros_like(weights) for weights in self.weights]
                    self.squares = [torch.zeros_like(weights) for weights in self.weights]
                    self.steps = 0

                def zero_grad(self):
                    for weights in self.weights:
                        weights.grad = None

                @torch.no_grad()
                def step(self):
                    self.steps += 1
                    first, second = self.betas
                    for i, weights in enumerate(self.weights):
                        self.means[i] = first * self.means[i] + (1 - first) * weights.grad
                        self.squares[i] = second * self.squares[i] + (1 - second) * weights.grad**2
                        mean = self.means[i] / (1 - first**self.steps)
                        square = self.squares[i] / (1 - second**self.steps)
                        weights -= self.rate * mean / (torch.sqrt(square) + self.eps)
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 1.2 + self.layers * (0.13 if self.at_once else 0.22)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "update-at-once": {"step": replace(self, at_once=True)}}


@dataclass(frozen=True)
class Adversarial(Net):
    """A classifier, with a generator of its features and a critic, that learn in turns."""

    width: int = 64
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16 if script.about.small else rng.choice([32, 128, 400]))

    def model(self, script: Script) -> str:
        return (
            f"model = nn.Sequential({self.head(script, self.width)}, nn.ReLU(), nn.Linear({self.width}, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        text.need("from torch.nn import functional as N")
        text.add(
            "top",
            """
            def perceptron(*widths):
                layers = [(nn.Linear(a, b), nn.LeakyReLU(0.2)) for a, b in zip(widths, widths[1:])]
                return nn.Sequential(*[layer for pair in layers for layer in pair][:-1])


            def improve(optimizer, loss):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """,
        )
        text.add(
            "model",
            f"""
            generator, critic = perceptron(16, {self.width}, {self.width}), perceptron({self.width}, {self.width}, 1)
            generator_optimizer = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
            critic_optimizer = torch.optim.Adam(critic.parameters(), 2e-4, betas=(0.5, 0.999))
            noise = torch.Generator().manual_seed(1)
            """,
        )
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            features = {self.called(script).replace("model(", "model[:-1](")}
            made = generator(torch.randn(len(features), 16, generator=noise))
            apart = N.softplus(critic(made.detach())) + N.softplus(-critic(features.detach()))
            improve(critic_optimizer, apart.mean())
            improve(generator_optimizer, N.softplus(-critic(made)).mean())
            loss = criterion(model[-1](features), y)
            improve(optimizer, loss)
            total += loss.detach() * len(x)
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 3.5 + (self.width / 256) ** 2 * script.about.batch / 6


def reads_files(script: Script) -> bool:
    """Whether a file is read for each sample, also where the data set lists them itself."""
    return storage(script).form == "files" or isinstance(storage(script), ClassTree | VolumeSlices)


@dataclass(frozen=True)
class NetworkHome(Limits):
    """Opens and reads wait, and bytes come at a rate that all share. Repaired: a local copy, or more workers."""

    open_us: int = 800
    read_us: int = 300
    rate: int = 20_000_000
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 2.0

    @classmethod
    def fits(cls, script: Script) -> bool:
        return reads_files(script)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        rate = round(storage(script).bytes_each(script) * 250 * 12 ** rng.random())
        return cls(rng.choice([150, 800, 3000]), rng.choice([50, 300, 1200]), rate)

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"open_us": self.open_us, "read_us": self.read_us, "rate": self.rate}}

    def cost(self, script: Script) -> float:
        shared = storage(script).bytes_each(script) / self.rate * 1000 * script.about.cores
        return (self.open_us + 2 * self.read_us) / 1000 + shared

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class NearlyLocal(Limits):
    """Opens and reads wait a little. Repaired: a local copy, which gains little."""

    open_us: int = 60
    read_us: int = 20
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return reads_files(script) or read_container(script)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([20, 60, 200]), rng.choice([10, 30, 80]))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"open_us": self.open_us, "read_us": self.read_us}}

    def cost(self, script: Script) -> float:
        return (self.open_us + 2 * self.read_us) / 1000

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class SharedCores(Limits):
    """The script may use one core only, or other processes keep some busy. Repaired: they are gone."""

    cores: int = 1
    neighbours: int = 1
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(*rng.choice([(1, 1), (1, script.about.cores), (0, 1), (0, script.about.cores + 1)]))

    def around(self, script: Script) -> dict[str, Any]:
        few = {"cores": self.cores} if self.cores else {}
        return {**few, "neighbours": self.neighbours}

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"no-neighbour": {"limits": replace(self, neighbours=0)}}


@dataclass(frozen=True)
class BoundToAll(Limits):
    """The script is bound to all cores that there are, as schedulers of clusters do: nothing to repair."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    def around(self, script: Script) -> dict[str, Any]:
        return {"cores": script.about.cores}


LOADERS: list[type[Production]] = [
    CommandLine, DrawnOneByOne, CountedAgain, SortedByLength, EndlessBatches, Prudent,
]  # fmt: skip
STEPS: list[type[Production]] = [
    QueuedDevice, PolledDevice, NormalizedLayers, PairedLoss, AdamByHand, Adversarial,
]  # fmt: skip
LIMITS: list[type[Production]] = [NetworkHome, NearlyLocal, SharedCores, BoundToAll]
