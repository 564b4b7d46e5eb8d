"""Storages: where samples lie, and how one is read from there.

A storage says how its file is opened and how a sample is read from what is open; when that happens is for the access to
say (`accesses.py`), which writes the lines of both. Formats lie in `storages_images.py` and `storages_tables.py`; those
that others are repaired to lie here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import material
from grammar import SIZE, Maker, Production, Script, Text

INFLATE = 4e-6
"""Milliseconds of CPU that a byte takes to inflate, about."""


@dataclass(frozen=True)
class Storage(Production):
    """What all storages say of themselves."""

    slot: ClassVar[str] = "storage"
    form: ClassVar[str] = "files"
    """`files` (one a sample), `container` (one that is opened), `stream` (read from its beginning), `memory`."""
    encoded: ClassVar[bool] = False
    """Whether images come as `coded` that a decoding must open: a path, or what `held` says."""
    held: ClassVar[bool] = False
    """Whether `coded` is a file in memory."""
    single: ClassVar[bool] = False
    """Whether a process can have it open once only."""

    def name(self, script: Script) -> str:
        """Of its data, under the folder of data."""
        raise NotImplementedError

    def opening(self, script: Script) -> str:
        """An expression that opens a container or a stream."""
        return f'open(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        """Lines that read sample `index` from a source; they set `image`, `x` or `coded`, and `label`."""
        raise NotImplementedError

    def bytes_each(self, script: Script) -> float:
        """Bytes of a sample, about."""
        return SIZE * SIZE * 3.0

    def open_ms(self, script: Script) -> float:
        """Milliseconds of CPU that it takes to open a container, about."""
        return 0.1


def storage(script: Script) -> Storage:
    """Its storage."""
    part = script["storage"]
    assert isinstance(part, Storage)
    return part


@dataclass(frozen=True)
class MappedImages(Storage):
    """All images in one npy that is mapped: nothing to repair."""

    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "container"
    weight: ClassVar[float] = 0.6

    def name(self, script: Script) -> str:
        return f"images-{script.about.count}.npy"

    def opening(self, script: Script) -> str:
        return f'np.load(DATA / "{self.name(script)}", mmap_mode="r")'

    def reading(self, script: Script, source: str) -> str:
        return f"image = np.array({source}[index])\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_array(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.02


@dataclass(frozen=True)
class MappedRows(Storage):
    """Rows in one npy that is mapped: nothing to repair."""

    features: int = 256
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "container"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([64, 256, 1024]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def opening(self, script: Script) -> str:
        return f'np.load(DATA / "{self.name(script)}", mmap_mode="r")'

    def reading(self, script: Script, source: str) -> str:
        return f"x = np.array({source}[index])\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.02

    def bytes_each(self, script: Script) -> float:
        return self.features * 4.0


STORAGES: list[type[Production]] = [
    MappedRows,
    MappedImages,
]
