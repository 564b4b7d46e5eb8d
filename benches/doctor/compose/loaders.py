"""Loaders: settings of torch's `DataLoader`."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

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
class OneWorker(Loader):
    """A single worker, whatever the cores. Repaired: as many as cores."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(script.about.batch, 1)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"workers": {"loader": Tuned(self.batch, max(2, script.about.cores))}}


@dataclass(frozen=True)
class TooMany(Loader):
    """Several times as many workers as cores, started anew in each epoch. Repaired: one a core, kept."""

    of: ClassVar[str] = OPEN

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
class Locked(Loader):
    """Workers share a lock around reading and decoding. Repaired: they do not."""

    of: ClassVar[str] = OPEN

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
class Configured(Loader):
    """Settings in a dict: no worker, one, or several times as many as cores. Repaired: one a core."""

    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN

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

    of: ClassVar[str] = OPEN

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

    of: ClassVar[str] = OPEN

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
class BalancedBatches(Loader):
    """A sampler of batches looks through all labels for each class. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = OPEN

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

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN

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


LOADERS: list[type[Production]] = [
    Tuned,
    Serial,
    OneWorker,
    TooMany,
    Restarted,
    ThreadsSet,
    Locked,
    Configured,
    AnewEachEpoch,
    Reproducible,
    Weighted,
    BalancedBatches,
    ConfigObject,
    SpawnedWorkers,
    ThreadAhead,
]
