"""Kept productions of loaders, steps and limits: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from grammar import KEPT, SIZE, Production, Script, Text
from limits import Limits, NoLimits, more_workers, read_container
from loaders import Loader
from steps import Net, Step, milliseconds
from storages import storage


@dataclass(frozen=True)
class BalancedBatches(Loader):
    """A sampler of batches looks through all labels for each class. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form != "stream"

    def arguments(self, text: Text, script: Script) -> list[str]:
        text.need("import random")
        first, among = "", "[i for i, other in enumerate(self.labels) if other == label]"
        if self.once:
            text.need("import collections")
            first = (
                "self.places = collections.defaultdict(list)\n"
                "                    for place, label in enumerate(labels):\n"
                "                        self.places[label].append(place)"
            )
            among = "self.places[label]"
        text.add(
            "top",
            f'''
            class BalancedBatches:
                """Batches of so many classes, with as many samples of each."""

                def __init__(self, labels, classes, each):
                    self.labels, self.classes, self.each = labels, classes, each
                    self.random, self.all = random.Random(0), sorted(set(labels))
                    {first}

                def __len__(self):
                    return len(self.labels) // (self.classes * self.each)

                def __iter__(self):
                    for _ in range(len(self)):
                        batch = []
                        for label in self.random.sample(self.all, self.classes):
                            among = {among}
                            batch += self.random.sample(among, self.each)
                        yield batch
            '''.replace("                    \n\n", "\n"),
        )
        text.add("setup", f"labels = [index % 10 for index in range({script.about.count})]")
        dropped = ("batch_size=", "shuffle=")
        data, *told = (s for s in super().arguments(text, script) if not s.startswith(dropped))
        return [data, f"batch_sampler=BalancedBatches(labels, 4, {self.batch // 4})", *told]

    def cost_of_step(self, script: Script) -> float:
        return 0.02 if self.once else script.about.count * 4 * 2.5e-5

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.once else {"sampler-once": {"loader": replace(self, once=True)}}


@dataclass(frozen=True)
class ConfigObject(Loader):
    """Settings in a dataclass: too few workers, as many as cores, too many; kept or not. Repaired: one a core, kept."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        cores = max(2, script.about.cores)
        workers = rng.choice([0, 1, cores, cores, 5 * cores])
        return cls(script.about.batch, workers, workers > 0 and rng.random() < 0.6)

    def write(self, text: Text, script: Script) -> None:
        text.need("from dataclasses import asdict, dataclass")
        data, *settings = self.arguments(text, script)
        pairs = dict(setting.split("=", 1) for setting in settings)
        more = "".join(f"{name}={pairs.pop(name)}, " for name in ("collate_fn",) if name in pairs)
        fields = "\n".join(
            f"    {name}: {'bool' if value == 'True' else 'int'} = {value}" for name, value in pairs.items()
        )
        text.add("top", f"@dataclass\nclass LoaderConfig:\n{fields}\n    drop_last: bool = False")
        text.add("setup", "config = LoaderConfig()")
        text.add("loader", f"loader = DataLoader({data}, {more}**asdict(config))")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        cores = max(2, script.about.cores)
        found: dict[str, dict[str, Production]] = {}
        if self.workers < cores:
            found["workers"] = {"loader": replace(self, workers=cores, persistent=True)}
        if self.workers > cores:
            found["fewer-workers"] = {"loader": replace(self, workers=cores)}
        if self.workers and not self.persistent:
            found["persistent"] = {"loader": replace(self, persistent=True)}
        return found


@dataclass(frozen=True)
class SpawnedWorkers(Loader):
    """Workers are spawned anew in each epoch, and import all again. Repaired: they are kept."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.5

    @classmethod
    def fits(cls, script: Script) -> bool:
        # A tensor in shared memory for each sample is more than a process may have open.
        return storage(script).form != "tensors"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, script.about.cores, False)

    def arguments(self, text: Text, script: Script) -> list[str]:
        return [*super().arguments(text, script), 'multiprocessing_context="spawn"']

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"persistent": {"loader": replace(self, persistent=True)}}


@dataclass(frozen=True)
class ThreadAhead(Loader):
    """A thread of the script's own makes batches ahead, without workers or, repaired, with them."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, rng.choice([0, 0, script.about.cores]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import queue", "import threading")
        text.add(
            "top",
            """
            class Ahead(threading.Thread):
                def __init__(self, batches, depth):
                    super().__init__(daemon=True)
                    self.batches, self.queue = batches, queue.Queue(depth)
                    self.start()

                def run(self):
                    for batch in self.batches:
                        self.queue.put(batch)
                    self.queue.put(None)

                def __iter__(self):
                    while (batch := self.queue.get()) is not None:
                        yield batch


            class InBackground:
                def __init__(self, loader, depth=6):
                    self.loader, self.depth = loader, depth

                def __iter__(self):
                    return iter(Ahead(iter(self.loader), self.depth))
            """,
        )
        text.add("loader", f"loader = DataLoader({', '.join(self.arguments(text, script))})")
        # After it was given to `wellfed.feed`, which takes loaders of torch's alone.
        text.add("feed", "loader = InBackground(loader)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.workers else {"workers": {"loader": replace(self, workers=script.about.cores)}}


@dataclass(frozen=True)
class RemoteDevice(Step):
    """A stand-in of a device that another process plays, which is told of steps through a pipe."""

    ms: float = 5.0
    width: int = 64
    depth: int = 2
    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([48, 200, 512]), rng.choice([1, 2, 3]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import multiprocessing", "from torch import nn")
        text.add("constants", f"STEP_SECONDS = {self.ms / 1000:.5f}")
        text.add(
            "top",
            '''
            def serve(pipe):
                """What a device does: one step after the other."""
                while True:
                    time.sleep(pipe.recv())
                    pipe.send("done")


            class Pending:
                def __init__(self, remote, value):
                    self.remote, self.value = remote, value

                def item(self):
                    self.remote.finish()
                    return self.value


            class Remote:
                def __init__(self, depth):
                    self.depth, self.running = depth, 0
                    self.pipe, theirs = multiprocessing.Pipe()
                    multiprocessing.Process(target=serve, args=(theirs,), daemon=True).start()

                def finish(self, left=0):
                    while self.running > left:
                        self.pipe.recv()
                        self.running -= 1

                def step(self, batch, seconds):
                    self.finish(self.depth - 1)
                    self.pipe.send(seconds)
                    self.running += 1
                    return Pending(self, float(batch.float().mean()))
            ''',
        )
        text.add(
            "model",
            f"remote = Remote({self.depth})\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add("step", "loss = remote.step(x, STEP_SECONDS)\ntotal += loss.value * len(x)")

    def evaluating(self, script: Script) -> str:
        return "remote.step(x, STEP_SECONDS / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class SequenceNet(Net):
    """Some rows of an image, or parts of a row, one after the other through a recurrent layer."""

    width: int = 32
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8 if script.about.small else rng.choice([16, 64, 128]))

    def model(self, script: Script) -> str:
        return f"model = SequenceNet({self.width})"

    def write(self, text: Text, script: Script) -> None:
        image = script.about.kind == "image"
        inputs = SIZE if image else getattr(storage(script), "features", 64) // 8
        cut = "x.mean(1)[:, ::4]" if image else "x.unflatten(1, (8, -1))"
        text.add(
            "top",
            f"""
            class SequenceNet(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.layer = nn.GRU({inputs}, width, batch_first=True)
                    self.out = nn.Linear(width, 10)

                def forward(self, x):
                    _, last = self.layer({cut})
                    return self.out(last[0])
            """,
        )
        super().write(text, script)

    def cost_of_step(self, script: Script) -> float:
        steps = SIZE // 4 if script.about.kind == "image" else 8
        return 1.0 + steps * (0.06 + script.about.batch * self.width * 2e-5)


@dataclass(frozen=True)
class OneByOne(Net):
    """Samples of a batch go through the model one by one. Repaired: all together."""

    width: int = 48
    together: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64]))

    def model(self, script: Script) -> str:
        return (
            f"hidden = [nn.Linear({self.width}, {self.width}), nn.SiLU()]\n"
            f"model = nn.Sequential({self.head(script, self.width)}, nn.SiLU(), *hidden, nn.Linear({self.width}, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.together:
            return
        called = self.called(script).replace("x", "one[None]")
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            each = [criterion({called}, label[None]) for one, label in zip(x, y)]
            loss = torch.stack(each).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 0.8 if self.together else 0.8 + 0.25 * script.about.batch

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "forward-at-once": {"step": replace(self, together=True)}}


@dataclass(frozen=True)
class ClippedByHand(Net):
    """Norms of gradients are taken one by one before they are clipped. Repaired: by one call."""

    layers: int = 12
    at_once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([4, 16, 40]))

    def model(self, script: Script) -> str:
        return (
            f"blocks = [nn.Sequential(nn.LayerNorm(40), nn.Linear(40, 40), nn.GELU()) for _ in range({self.layers})]\n"
            f"model = nn.Sequential({self.head(script, 40)}, *blocks, nn.Linear(40, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        lines = text.sections["step"]
        place = next(i for i, (line, _) in enumerate(lines) if line == "optimizer.step()")
        if self.at_once:
            clipping = ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
        else:
            text.add(
                "top",
                """
                def clip_gradients(model, most):
                    squares = 0.0
                    for weights in model.parameters():
                        if weights.grad is not None:
                            squares += weights.grad.data.norm(2).item() ** 2
                    for weights in model.parameters():
                        if weights.grad is not None and squares > most**2:
                            weights.grad.data = weights.grad.data * (most / squares**0.5)
                """,
            )
            clipping = ["clip_gradients(model, 1.0)"]
        lines[place:place] = [(line, self.slot) for line in clipping]

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + self.layers * (0.16 if self.at_once else 0.2)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "clip-at-once": {"step": replace(self, at_once=True)}}


@dataclass(frozen=True)
class ColdBucket(Limits):
    """Each open waits long, and bytes come at a rate that all share. Repaired: a local copy, or more workers."""

    open_us: int = 4000
    rate: int = 20_000_000
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form == "files"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        rate = round(storage(script).bytes_each(script) * 300 * 10 ** rng.random())
        return cls(rng.choice([1500, 4000, 9000]), rate)

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"open_us": self.open_us, "rate": self.rate}}

    def cost(self, script: Script) -> float:
        return (
            self.open_us / 1000 + storage(script).bytes_each(script) / self.rate * 1000 * script.about.cores
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}, **more_workers(script)}


@dataclass(frozen=True)
class SharedNode(Limits):
    """Another process keeps a core busy, and reads wait. Repaired: either is gone."""

    read_us: int = 500
    neighbours: int = 1
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form in ("files", "stream") or read_container(script)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([100, 600, 2000]))

    def around(self, script: Script) -> dict[str, Any]:
        slow = {"slow": {"read_us": self.read_us}} if self.read_us else {}
        return {**slow, "neighbours": self.neighbours}

    def cost(self, script: Script) -> float:
        reads = 2 if storage(script).form != "stream" else storage(script).bytes_each(script) / 8192
        return reads * self.read_us / 1000

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {
            "no-neighbour": {"limits": replace(self, neighbours=0)},
            "local-copy": {"limits": replace(self, read_us=0)},
        }


@dataclass(frozen=True)
class SlowMount(Limits):
    """A container's bytes come at a rate that all readers share. Repaired: a local copy."""

    rate: int = 20_000_000
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return read_container(script)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(round((storage(script).bytes_each(script) + 4096) * 100 * 20 ** rng.random()))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"rate": self.rate}}

    def cost(self, script: Script) -> float:
        return (storage(script).bytes_each(script) + 4096) / self.rate * 1000 * script.about.cores

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"local-copy": {"limits": NoLimits()}}


LOADERS: list[type[Production]] = [BalancedBatches, ConfigObject, SpawnedWorkers, ThreadAhead]
STEPS: list[type[Production]] = [RemoteDevice, SequenceNet, OneByOne, ClippedByHand]
LIMITS: list[type[Production]] = [ColdBucket, SharedNode, SlowMount]
