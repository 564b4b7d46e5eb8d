"""Limits: what stands around a script, which writes no lines."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from grammar import OPEN, Production, Script
from loaders import Loader
from storages import storage


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
class SlowLink(Limits):
    """Storage delivers so many bytes a second to all readers together. Repaired: a local copy."""

    rate: int = 10_000_000
    of: ClassVar[str] = OPEN

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form in ("files", "stream")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(round(storage(script).bytes_each(script) * 100 * 15 ** rng.random()))

    def around(self, script: Script) -> dict[str, Any]:
        return {"slow": {"rate": self.rate}}

    def cost(self, script: Script) -> float:
        # Shared by all workers, so that it is not divided among them.
        return storage(script).bytes_each(script) / self.rate * 1000 * script.about.cores

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


@dataclass(frozen=True)
class OneCore(Limits):
    """The script may use one core only: nothing in it can repair that."""

    of: ClassVar[str] = OPEN

    def around(self, script: Script) -> dict[str, Any]:
        return {"cores": 1}


def read_container(script: Script) -> bool:
    """Whether it has a container that is read: what is mapped is not."""
    return storage(script).form == "container" and "mmap" not in storage(script).opening(script)


@dataclass(frozen=True)
class LatentReads(Limits):
    """Each read of a file waits. Repaired: a local copy, or more workers."""

    read_us: int = 500
    of: ClassVar[str] = OPEN

    @classmethod
    def fits(cls, script: Script) -> bool:
        return storage(script).form == "files" or read_container(script)

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

    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

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


@dataclass(frozen=True)
class ColdBucket(Limits):
    """Each open waits long, and bytes come at a rate that all share. Repaired: a local copy, or more workers."""

    open_us: int = 4000
    rate: int = 20_000_000
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN

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


LIMITS: list[type[Production]] = [
    NoLimits,
    SlowOpens,
    SlowLink,
    Neighbour,
    OneCore,
    LatentReads,
    BusyHost,
    FarShare,
    ColdBucket,
    SharedNode,
    SlowMount,
]
