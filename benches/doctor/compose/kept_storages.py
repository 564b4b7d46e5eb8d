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
from storages import MappedRows, Storage
from storages_tables import CsvRows
from storages_texts import TextLines


@dataclass(frozen=True)
class SeriesWindows(Storage):
    """Windows of a series in a DataFrame, by time or by row. Repaired: of an array."""

    length: int = 48
    channels: int = 4
    how: str = "time"
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([24, 96, 192]), rng.choice([1, 4, 8]), rng.choice(["time", "row"]))

    @property
    def features(self) -> int:
        """Numbers of a sample."""
        return self.length * self.channels

    def name(self, script: Script) -> str:
        return f"series-{script.about.count + self.length}-{self.channels}.csv"

    def reading(self, script: Script, source: str) -> str:
        taken = {
            "time": (
                'begin = self.frame["time"].iloc[index]\n'
                f"ends = begin + pd.Timedelta(minutes={self.length})\n"
                'window = self.frame[(self.frame["time"] >= begin) & (self.frame["time"] < ends)]\n'
                "x = window[self.columns].to_numpy(np.float32).ravel()"
            ),
            "row": (
                f"window = self.frame.iloc[index : index + {self.length}]\n"
                'x = window.drop(columns=["time", "station"]).to_numpy(np.float32).ravel()'
            ),
            "array": f"x = self.values[index : index + {self.length}].flatten()",
        }[self.how]
        return f"{taken}\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "import pandas as pd")
        text.add("init", f'frame = pd.read_csv(DATA / "{self.name(script)}", parse_dates=["time"])')
        columns = f'[f"c{{i}}" for i in range({self.channels})]'
        if self.how == "array":
            text.add("init", f"self.values = frame[{columns}].to_numpy(np.float32)")
        else:
            text.add("init", f"self.frame, self.columns = frame, {columns}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, how="array")}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.series_csv(script.about.count + self.length, self.channels)}

    def cost(self, script: Script) -> float:
        return {"time": 0.45 + script.about.count * 2e-6, "row": 0.25, "array": 0.005}[self.how]


@dataclass(frozen=True)
class GraphsAsJson(Storage):
    """A JSON of edges for each graph, of which a matrix is made. Repaired: all edges in arrays."""

    nodes: int = 16
    edges: int = 100
    packed: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    ending: ClassVar[str] = "json"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([8, 16, 24]), rng.choice([10, 60, 300]))

    @property
    def form(self) -> str:  # type: ignore[override]
        """Files, or all in memory."""
        return "memory" if self.packed else "files"

    @property
    def features(self) -> int:
        """Numbers of a sample."""
        return self.nodes**2

    def name(self, script: Script) -> str:
        return f"graphs-{script.about.count}-{self.nodes}-{self.edges}{'.npz' if self.packed else ''}"

    def reading(self, script: Script, source: str) -> str:
        if self.packed:
            lines = (
                "part = slice(self.begins[index], self.begins[index + 1])\n"
                f"x = np.zeros(({self.nodes}, {self.nodes}), np.float32)\n"
                "np.add.at(x, (self.sources[part], self.targets[part]), self.weights[part])\n"
            )
        else:
            lines = (
                f"graph = json.loads({source}.read_text())\n"
                'x = np.zeros((graph["nodes"], graph["nodes"]), np.float32)\n'
                'for edge in graph["edges"]:\n'
                '    x[edge["source"], edge["target"]] += edge["weight"]\n'
            )
        return lines + "x = x.ravel()\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.packed:
            text.add(
                "init",
                f"""
                with np.load(DATA / "{self.name(script)}") as graphs:
                    self.begins, self.weights = graphs["begins"], graphs["weights"]
                    self.sources, self.targets = graphs["sources"], graphs["targets"]
                """,
            )
        else:
            text.need("import json")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": read_from(replace(self, packed=True), script)}

    def data(self, script: Script) -> dict[str, Maker]:
        made = kept_material.graph_arrays if self.packed else kept_material.graph_folder
        return {self.name(script): made(script.about.count, self.nodes, self.edges)}

    def cost(self, script: Script) -> float:
        return 0.02 + self.edges * 3e-5 if self.packed else 0.06 + self.edges * 9e-4

    def bytes_each(self, script: Script) -> float:
        return self.edges * 48.0


@dataclass(frozen=True)
class SoundCrops(Storage):
    """A WAV for each sample, read whole before a part of it is cut out. Repaired: only that part is read."""

    features: int = 512
    times: int = 20
    part: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    ending: ClassVar[str] = "wav"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([256, 1024]), rng.choice([1, 20, 120]))

    def name(self, script: Script) -> str:
        return f"sounds-{script.about.count}-{self.features * self.times}"

    def reading(self, script: Script, source: str) -> str:
        opened = f"with wave.open(str({source})) as sound:"
        begin = f"begin = index * 37 % (sound.getnframes() - {self.features - 1})"
        if self.part:
            lines = [begin, "sound.setpos(begin)", f"stored = sound.readframes({self.features})"]
            end = "x = np.frombuffer(stored, np.int16).astype(np.float32) / 32768"
        else:
            lines = [begin, "stored = sound.readframes(sound.getnframes())"]
            end = (
                "heard = np.frombuffer(stored, np.int16).astype(np.float32) / 32768\n"
                f"x = heard[begin : begin + {self.features}].copy()"
            )
        return "\n".join([opened, *(f"    {line}" for line in lines), end, "label = index % 10"])

    def write(self, text: Text, script: Script) -> None:
        text.need("import wave", "import numpy as np")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"read-part": {"storage": replace(self, part=True)}} if self.times > 1 else {}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.wav_folder(script.about.count, self.features * self.times)}

    def cost(self, script: Script) -> float:
        return 0.06 + (0.0 if self.part else self.features * self.times * 2e-6)

    def bytes_each(self, script: Script) -> float:
        return self.features * (1 if self.part else self.times) * 2.0


@dataclass(frozen=True)
class PairsInList(Storage):
    """A list of pairs of tensor and label as data set, collated row by row. Repaired: rows of a batch at once."""

    features: int = 32
    whole: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "tensors"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torch.utils.data import DataLoader, Dataset")
        text.add("setup", f'rows = np.load(DATA / "{self.name(script)}")')
        if not self.whole:
            text.told["dataset"] = "pairs"
            text.add("setup", "pairs = [(torch.tensor(row), index % 10) for index, row in enumerate(rows)]")
            return
        text.told["dataset"] = "Table(torch.from_numpy(rows), torch.arange(len(rows)) % 10)"
        text.told["collate"] = "tuple"
        text.add(
            "top",
            """
            class Table(Dataset):
                def __init__(self, x, y):
                    self.x, self.y = x, y

                def __len__(self):
                    return len(self.x)

                def __getitems__(self, indices):
                    return self.x[indices], self.y[indices]
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"batch-at-once": {"storage": replace(self, whole=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.003


@dataclass(frozen=True)
class NamedRows(MappedRows):
    """A table of SQLite that is searched by a column without an index. Repaired: it has one."""

    indexed: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]), rng.random() < 0.3)

    def name(self, script: Script) -> str:
        return f"named-{script.about.count}-{self.features}{'-indexed' if self.indexed else ''}.db"

    def opening(self, script: Script) -> str:
        return f'sqlite3.connect(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return (
            'query = "SELECT label, x FROM samples WHERE name = ?"\n'
            f'label, stored = {source}.execute(query, (f"sample-{{index:06}}",)).fetchone()\n'
            "x = np.frombuffer(stored, np.float32).copy()"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import sqlite3", "import numpy as np")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.indexed else {"index-rows": {"storage": replace(self, indexed=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        made = kept_material.named_rows(script.about.count, self.features, self.indexed)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.02 + (0.0 if self.indexed else script.about.count / 2 * (8e-5 + self.features * 5e-7))


@dataclass(frozen=True)
class EventLines(CsvRows):
    """Lines of JSON whose numbers have names, read from their beginning. Repaired: parsed once into an npy."""

    of: ClassVar[str] = KEPT

    def name(self, script: Script) -> str:
        return f"events-{script.about.count}-{self.features}.jsonl"

    def reading(self, script: Script, source: str) -> str:
        return (
            f"event = json.loads({source})\n"
            'x = np.array([event["features"][name] for name in NAMES], np.float32)\n'
            'label = event["label"]'
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import json", "import numpy as np")
        text.add("constants", f'NAMES = [f"f{{i}}" for i in range({self.features})]')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.row_records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.02 + self.features * 2.2e-4

    def bytes_each(self, script: Script) -> float:
        return self.features * 14.0


@dataclass(frozen=True)
class TextEach(TextLines):
    """A file for each text. Repaired: all in one, which is held in memory."""

    packed: bool = False
    of: ClassVar[str] = KEPT

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}{'.txt' if self.packed else '-files'}"

    def write(self, text: Text, script: Script) -> None:
        if self.packed:
            super().write(text, script)
            return
        text.add("init", f'self.paths = sorted((DATA / "{self.name(script)}").glob("*.txt"))')
        text.add(
            "methods",
            """
            def text(self, index):
                with open(self.paths[index], encoding="utf-8") as file:
                    return file.read().strip()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": {"storage": replace(self, packed=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        if self.packed:
            return super().data(script)
        return {self.name(script): kept_material.text_folder(script.about.count, self.words)}

    def cost(self, script: Script) -> float:
        return 0.0 if self.packed else 0.03


@dataclass(frozen=True)
class ReviewTable(TextLines):
    """Texts in a DataFrame, of which the one with an id is looked for, or a row taken. Repaired: a list."""

    how: str = "id"
    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("pandas",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([15, 60, 200]), rng.choice(["id", "row"]))

    def name(self, script: Script) -> str:
        return f"reviews-{script.about.count}-{self.words}.tsv"

    def write(self, text: Text, script: Script) -> None:
        text.need("import pandas as pd")
        text.add("init", f'reviews = pd.read_csv(DATA / "{self.name(script)}", sep="\\t")')
        kept = 'self.texts = reviews["text"].tolist()' if self.how == "list" else "self.reviews = reviews"
        text.add("init", kept)
        taken = {
            "id": 'self.reviews.loc[self.reviews["id"] == index, "text"].item()',
            "row": 'self.reviews.iloc[index]["text"]',
            "list": "self.texts[index]",
        }[self.how]
        text.add("methods", f"def text(self, index):\n    return {taken}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, how="list")}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.text_table(script.about.count, self.words)}

    def cost(self, script: Script) -> float:
        return {"id": 0.18, "row": 0.04, "list": 0.0}[self.how]


STORAGES: list[type[Production]] = [
    SeriesWindows, GraphsAsJson, SoundCrops, PairsInList, NamedRows, EventLines, TextEach, ReviewTable,
]  # fmt: skip
