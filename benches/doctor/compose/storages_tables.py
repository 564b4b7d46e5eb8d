"""Storages of rows and of texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from accesses import Kept
from grammar import OPEN, Maker, Production, Script, Text
from storages import INFLATE, MappedRows, Storage


@dataclass(frozen=True)
class WholeNpz(Storage):
    """An npz of all rows, loaded whole for each sample. Repaired: loaded once."""

    features: int = 256
    once: bool = False
    compressed: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([128, 512, 2048]), compressed=rng.random() < 0.2)

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}{'-packed' if self.compressed else ''}.npz"

    def reading(self, script: Script, source: str) -> str:
        if self.once:
            return "x = self.rows[index]\nlabel = index % 10"
        return f'x = np.load(DATA / "{self.name(script)}")["x"][index]\nlabel = index % 10'

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.once:
            text.add("init", f'self.rows = np.load(DATA / "{self.name(script)}")["x"]')

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {"load-once": {"storage": replace(self, once=True)}}
        if self.compressed:
            found["uncompressed"] = {"storage": replace(self, compressed=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_npz(script.about.count, self.features, self.compressed)}

    def cost(self, script: Script) -> float:
        return 0.4 + script.about.count * self.features * 4 * (INFLATE if self.compressed else 6e-7)

    def bytes_each(self, script: Script) -> float:
        return self.features * 4.0


@dataclass(frozen=True)
class CsvRows(Storage):
    """A CSV file that is read from its beginning and parsed in each epoch. Repaired: parsed once into an npy."""

    features: int = 64
    zipped: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "stream"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.csv{'.gz' if self.zipped else ''}"

    def opening(self, script: Script) -> str:
        place = f'DATA / "{self.name(script)}"'
        return f'gzip.open({place}, "rt")' if self.zipped else f"open({place})"

    def reading(self, script: Script, source: str) -> str:
        return (
            f'fields = {source}.rstrip().split(",")\n'
            "x = np.array([float(field) for field in fields[1:]], np.float32)\n"
            "label = int(fields[0])"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", *(["import gzip"] if self.zipped else []))

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {
            "parse-once": {"storage": MappedRows(self.features), "access": Kept(False)}
        }
        if self.zipped:
            found["uncompressed"] = {"storage": replace(self, zipped=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        made = material.vector_csv(script.about.count, self.features, self.zipped)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.02 + self.features * (1.4e-4 if self.zipped else 1.1e-4)

    def bytes_each(self, script: Script) -> float:
        return self.features * 7.0


@dataclass(frozen=True)
class CsvGzRows(CsvRows):
    """The same by gzip."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]), True)


@dataclass(frozen=True)
class H5Rows(MappedRows):
    """Rows in a contiguous HDF5 data set: nothing to repair but how often it is opened."""

    of: ClassVar[str] = OPEN

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.h5"

    def opening(self, script: Script) -> str:
        return f'h5py.File(DATA / "{self.name(script)}", "r")'

    def reading(self, script: Script, source: str) -> str:
        return f'x = {source}["x"][index]\nlabel = int({source}["labels"][index])'

    def write(self, text: Text, script: Script) -> None:
        text.need("import h5py")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_h5(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.25


@dataclass(frozen=True)
class SqliteRows(MappedRows):
    """Rows as bytes in a table of SQLite."""

    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 1.5

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.db"

    def opening(self, script: Script) -> str:
        return f'sqlite3.connect(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return (
            f'row = {source}.execute("SELECT x, label FROM samples WHERE id = ?", (index,)).fetchone()\n'
            "x = np.frombuffer(row[0], np.float32).copy()\n"
            "label = row[1]"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import sqlite3", "import numpy as np")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_sqlite(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.03


@dataclass(frozen=True)
class FrameRows(Storage):
    """A pandas DataFrame, of which a row is taken by `iloc` for each sample. Repaired: arrays instead."""

    features: int = 64
    arrays: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 128]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.csv"

    def reading(self, script: Script, source: str) -> str:
        if self.arrays:
            return "x = self.x[index]\nlabel = int(self.y[index])"
        return (
            "row = self.frame.iloc[index]\n"
            'x = row.drop("label").to_numpy(dtype="float32")\n'
            'label = int(row["label"])'
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import pandas as pd")
        names = f'["label", *(f"x{{i}}" for i in range({self.features}))]'
        text.add("init", f'frame = pd.read_csv(DATA / "{self.name(script)}", names={names})')
        if self.arrays:
            text.add("init", 'self.x = frame.drop(columns="label").to_numpy(dtype="float32")')
            text.add("init", 'self.y = frame["label"].to_numpy()')
        else:
            text.add("init", "self.frame = frame")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, arrays=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_csv(script.about.count, self.features, False)}

    def cost(self, script: Script) -> float:
        return 0.25


@dataclass(frozen=True)
class Tensors(Storage):
    """A `TensorDataset`, taken apart and put together row by row. Repaired: rows of a batch are taken at once."""

    features: int = 32
    whole: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "tensors"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torch.utils.data import DataLoader, TensorDataset")
        text.told["dataset"] = "Rows" if self.whole else "TensorDataset"
        text.add("setup", f'x = torch.from_numpy(np.load(DATA / "{self.name(script)}"))')
        text.add("setup", "y = torch.arange(len(x)) % 10")
        text.told["dataset"] = f"{'Rows' if self.whole else 'TensorDataset'}(x, y)"
        if self.whole:
            text.told["collate"] = "whole"
            text.add(
                "top",
                """
                class Rows(TensorDataset):
                    def __getitems__(self, indices):
                        return [tensor[indices] for tensor in self.tensors]


                def whole(batch):
                    return batch
                """,
            )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"batch-at-once": {"storage": replace(self, whole=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.006


@dataclass(frozen=True)
class TextLines(Storage):
    """A file of one text a line, held in memory."""

    words: int = 60
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([30, 100, 300]))

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}.txt"

    def write(self, text: Text, script: Script) -> None:
        text.add("init", f'self.lines = (DATA / "{self.name(script)}").read_text().splitlines()')
        text.add("methods", "def text(self, index):\n    return self.lines[index]")

    def reading(self, script: Script, source: str) -> str:
        return "label = index % 10"

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_lines(script.about.count, self.words)}


@dataclass(frozen=True)
class JsonLines(TextLines):
    """A file of one JSON object a line, of which each is parsed when it is asked for."""

    of: ClassVar[str] = OPEN

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}.jsonl"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add("init", f'self.lines = (DATA / "{self.name(script)}").read_text().splitlines()')
        text.add("methods", 'def text(self, index):\n    return json.loads(self.lines[index])["text"]')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_jsonl(script.about.count, self.words)}


STORAGES: list[type[Production]] = [
    WholeNpz,
    CsvRows,
    CsvGzRows,
    H5Rows,
    SqliteRows,
    FrameRows,
    Tensors,
    TextLines,
    JsonLines,
]
