"""Kept productions of storages of rows and texts: for final figures, not to develop rules with.

Invariant: nothing imports these but `drawing.py` and other kept files, and no rule is changed after a look at them
(README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
import material
from accesses import read_from
from grammar import KEPT, Maker, Production, Script, Text
from storages import Storage
from storages_tables import CsvRows
from storages_texts import TextLines


@dataclass(frozen=True)
class DatedRows(Storage):
    """Lines in memory with a date each, taken apart for each sample. Repaired: all once."""

    features: int = 64
    once: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([8, 40, 160]))

    def name(self, script: Script) -> str:
        return f"dated-{script.about.count}-{self.features}.csv"

    def reading(self, script: Script, source: str) -> str:
        return "x, label = self.rows[index]" if self.once else "x, label = parsed(self.lines[index])"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from datetime import datetime")
        text.add(
            "top",
            """
            def parsed(line):
                date, label, *values = line.split(",")
                moment = datetime.strptime(date, "%Y-%m-%d %H:%M:%S")
                known = [moment.hour / 24, moment.weekday() / 7, *(float(value) for value in values)]
                return np.array(known, np.float32), int(label)
            """,
        )
        text.add("init", f'lines = (DATA / "{self.name(script)}").read_text().splitlines()[1:]')
        text.add(
            "init", f"self.{'rows = [parsed(line) for line in lines]' if self.once else 'lines = lines'}"
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"parse-once": {"storage": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.dated_rows(script.about.count, self.features - 2)}

    def cost(self, script: Script) -> float:
        return 0.002 if self.once else 0.02 + self.features * 1.2e-4


@dataclass(frozen=True)
class Transitions(Storage):
    """What an agent saw, as tuples of lists in a deque. Repaired: arrays."""

    features: int = 32
    arrays: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([8, 64, 400]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def reading(self, script: Script, source: str) -> str:
        if self.arrays:
            return "x = np.concatenate([self.states[index], self.following[index]])\nlabel = int(self.actions[index])"
        return (
            "state, action, reward, following, done = self.memory[index]\n"
            "x = np.concatenate([np.array(state, np.float32), np.array(following, np.float32)])\n"
            "label = action"
        )

    def write(self, text: Text, script: Script) -> None:
        half = self.features // 2
        text.need("import numpy as np")
        text.add("init", f'seen = np.load(DATA / "{self.name(script)}")')
        if self.arrays:
            text.add("init", f"self.states, self.following = seen[:, :{half}], seen[:, {half}:]")
            text.add("init", "self.actions = np.arange(len(seen)) % 10")
            return
        text.need("from collections import deque")
        text.add(
            "init",
            f"""
            self.memory = deque(maxlen=len(seen))
            for moment, row in enumerate(seen.tolist()):
                done = moment % 200 == 199
                self.memory.append((row[:{half}], moment % 10, sum(row) / len(row), row[{half}:], done))
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, arrays=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.003 if self.arrays else 0.005 + self.features * 3e-5 + script.about.count * 1e-7


@dataclass(frozen=True)
class SensorEach(Storage):
    """A CSV for each sample, read by pandas or NumPy. Repaired: all in one array."""

    features: int = 128
    by: str = "pandas"
    packed: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)
    ending: ClassVar[str] = "csv"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([32, 128, 512]), rng.choice(["pandas", "genfromtxt", "loadtxt"]))

    @property
    def form(self) -> str:  # type: ignore[override]
        """Files, or all in memory."""
        return "memory" if self.packed else "files"

    def name(self, script: Script) -> str:
        return f"sensors-{script.about.count}-{self.features}{'.npy' if self.packed else ''}"

    def reading(self, script: Script, source: str) -> str:
        taken = {
            "pandas": f'pd.read_csv({source})["value"].to_numpy(np.float32)',
            "genfromtxt": f'np.genfromtxt({source}, delimiter=",", skip_header=1)[:, 1].astype(np.float32)',
            "loadtxt": f'np.loadtxt({source}, delimiter=",", skiprows=1, usecols=1).astype(np.float32)',
        }[self.by]
        return f"x = {'self.rows[index]' if self.packed else taken}\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.packed:
            text.add("init", f'self.rows = np.load(DATA / "{self.name(script)}")')
        elif self.by == "pandas":
            text.need("import pandas as pd")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": read_from(replace(self, packed=True), script)}

    def data(self, script: Script) -> dict[str, Maker]:
        made = kept_material.sensor_array if self.packed else kept_material.sensor_folder
        return {self.name(script): made(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        if self.packed:
            return 0.002
        each = {"pandas": (0.35, 5e-4), "genfromtxt": (0.15, 4e-3), "loadtxt": (0.08, 7e-4)}[self.by]
        return each[0] + each[1] * self.features

    def bytes_each(self, script: Script) -> float:
        return self.features * 12.0


@dataclass(frozen=True)
class CachedShards(Storage):
    """Rows in npz of many, of which the last two are cached. Repaired: all are loaded once."""

    features: int = 64
    rows: int = 256
    once: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]), 16 if script.about.small else rng.choice([64, 200, 1000]))

    def name(self, script: Script) -> str:
        return f"shards-{script.about.count}-{self.features}-{self.rows}"

    def reading(self, script: Script, source: str) -> str:
        shard = "self.shards[number]" if self.once else "shard(number)"
        return f"number, row = divmod(index, {self.rows})\nx = {shard}[row].copy()\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        cache = "" if self.once else "@functools.lru_cache(maxsize=2)\n"
        text.need(*([] if self.once else ["import functools"]))
        text.add(
            "top",
            f"{cache}def shard(number):\n"
            f'    with np.load(DATA / "{self.name(script)}" / f"shard_{{number:04}}.npz") as stored:\n'
            '        return stored["x"]',
        )
        if self.once:
            number = -(-script.about.count // self.rows)
            text.add("init", f"self.shards = [shard(number) for number in range({number})]")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"load-once": {"storage": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.shard_folder(script.about.count, self.features, self.rows)}

    def cost(self, script: Script) -> float:
        load = 0.3 + self.rows * self.features * 4 * 6e-7
        missed = max(0.0, 1 - 2 * self.rows / script.about.count)
        in_order = not getattr(script.parts.get("access"), "shuffle", True)
        return 0.002 if self.once else 0.005 + load * (1 / self.rows if in_order else missed)


@dataclass(frozen=True)
class UserHistories(Storage):
    """Events of users in a DataFrame, of which those of one are looked for. Repaired: grouped once."""

    features: int = 16
    grouped: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([8, 16, 32]))

    def name(self, script: Script) -> str:
        return f"histories-{script.about.count}-{self.features}.csv"

    def reading(self, script: Script, source: str) -> str:
        user = 'f"u{index:05}"'
        taken = f"self.users[{user}]" if self.grouped else f'self.events[self.events["user"] == {user}]'
        return f'history = {taken}\nx = history.sort_values("time")["value"].to_numpy(np.float32)\nlabel = index % 10'

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "import pandas as pd")
        text.add("init", f'events = pd.read_csv(DATA / "{self.name(script)}")')
        kept = 'users = dict(list(events.groupby("user")))' if self.grouped else "events = events"
        text.add("init", f"self.{kept}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.grouped else {"index-rows": {"storage": replace(self, grouped=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.histories(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.2 if self.grouped else 0.4 + script.about.count * self.features * 3e-5


@dataclass(frozen=True)
class HalfRows(Storage):
    """Rows of float16 in memory: nothing to repair."""

    features: int = 64
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([32, 128, 768]))

    def name(self, script: Script) -> str:
        return f"half-{script.about.count}-{self.features}.npy"

    def reading(self, script: Script, source: str) -> str:
        return "x = self.embeddings[index].astype(np.float32)\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("init", f'self.embeddings = np.load(DATA / "{self.name(script)}")')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.half_rows(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.004


@dataclass(frozen=True)
class LoggedRows(CsvRows):
    """Lines of a log, of `name=value`, read from their beginning. Repaired: parsed once into an npy."""

    of: ClassVar[str] = KEPT

    def name(self, script: Script) -> str:
        return f"logged-{script.about.count}-{self.features}.log"

    def reading(self, script: Script, source: str) -> str:
        return (
            f'pairs = dict(pair.split("=", 1) for pair in {source}.split())\n'
            f'x = np.array([float(pairs[f"f{{i}}"]) for i in range({self.features})], np.float32)\n'
            'label = int(pairs["label"])'
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.logged_rows(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.02 + self.features * 3.5e-4

    def bytes_each(self, script: Script) -> float:
        return 20.0 + self.features * 11.0


@dataclass(frozen=True)
class StrippedPages(TextLines):
    """Pages of HTML, of which a parser of Python's takes the text for each sample. Repaired: all once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([15, 60, 150]))

    def name(self, script: Script) -> str:
        return f"pages-{script.about.count}-{self.words}.html"

    def write(self, text: Text, script: Script) -> None:
        text.need("from html.parser import HTMLParser")
        text.add(
            "top",
            """
            class Stripper(HTMLParser):
                def __init__(self):
                    super().__init__()
                    self.parts = []

                def handle_data(self, data):
                    self.parts.append(data)


            def stripped(page):
                stripper = Stripper()
                stripper.feed(page)
                return " ".join(" ".join(stripper.parts).split())
            """,
        )
        read = f'(DATA / "{self.name(script)}").read_text().splitlines()'
        if self.once:
            text.add("init", f"self.texts = [stripped(page) for page in {read}]")
            text.add("methods", "def text(self, index):\n    return self.texts[index]")
        else:
            text.add("init", f"self.pages = {read}")
            text.add("methods", "def text(self, index):\n    return stripped(self.pages[index])")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"parse-once": {"storage": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.pages(script.about.count, self.words)}

    def cost(self, script: Script) -> float:
        return 0.0 if self.once else 0.04 + self.words * 3e-3


@dataclass(frozen=True)
class CorpusList(TextLines):
    """A JSON list of texts, held in memory: nothing to repair."""

    of: ClassVar[str] = KEPT

    def name(self, script: Script) -> str:
        return f"corpus-{script.about.count}-{self.words}.json"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add("init", f'self.documents = json.loads((DATA / "{self.name(script)}").read_text())')
        text.add("methods", 'def text(self, index):\n    return self.documents[index]["text"]')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.corpus(script.about.count, self.words)}


STORAGES: list[type[Production]] = [
    DatedRows, Transitions, SensorEach, CachedShards, UserHistories, HalfRows, LoggedRows, StrippedPages, CorpusList,
]  # fmt: skip
