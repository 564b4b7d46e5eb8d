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


LOADERS: list[type[Production]] = [
    Tuned,
    Serial,
    OneWorker,
    TooMany,
    Restarted,
    ThreadsSet,
    Locked,
]
