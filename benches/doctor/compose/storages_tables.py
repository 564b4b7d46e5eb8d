"""Storages of rows and of texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from accesses import Kept, read_from
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
class ParquetGroups(MappedRows):
    """Parquet, of which a sample reads its whole row group. Repaired: few rows a group, or converted once."""

    group: int = 256
    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("pyarrow",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([32, 128, 256]), rng.choice([64, 256, 512]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}-by-{self.group}.parquet"

    def opening(self, script: Script) -> str:
        return f'pq.ParquetFile(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return (
            f"group, row = divmod(index, {self.group})\n"
            f"table = {source}.read_row_group(group, use_threads=False).slice(row, 1)\n"
            'x = table.column("x").combine_chunks().flatten().to_numpy().copy()\n'
            'label = table.column("label")[0].as_py()'
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import pyarrow.parquet as pq")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {
            "sample-chunks": {"storage": replace(self, group=8)},
            "parse-once": read_from(MappedRows(self.features), script),
        }

    def data(self, script: Script) -> dict[str, Maker]:
        made = material.row_groups(script.about.count, self.features, self.group)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.05 + self.group * self.features * 7e-6

    def open_ms(self, script: Script) -> float:
        return 0.2


@dataclass(frozen=True)
class ArrowRows(Storage):
    """A data set of Hugging Face's, which gives a row as numbers or tensors. Repaired: columns are arrays."""

    features: int = 64
    tensors: bool = False
    arrays: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("datasets",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([64, 1024, 4096]), rng.random() < 0.5)

    def name(self, script: Script) -> str:
        return f"arrow-{script.about.count}-{self.features}"

    def reading(self, script: Script, source: str) -> str:
        if self.arrays:
            return "x = self.x[index]\nlabel = int(self.labels[index])"
        taken = 'row["x"].numpy()' if self.tensors else 'np.array(row["x"], np.float32)'
        return f'row = self.rows[index]\nx = {taken}\nlabel = int(row["label"])'

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from datasets import load_from_disk")
        loaded = f'load_from_disk(str(DATA / "{self.name(script)}"))'
        if self.arrays:
            text.add(
                "init",
                f"""
                rows = {loaded}.with_format("numpy")
                self.x = np.asarray(rows["x"][:], np.float32)
                self.labels = np.asarray(rows["label"][:])
                """,
            )
        else:
            more = '.with_format("torch")' if self.tensors else ""
            text.add("init", f"self.rows = {loaded}{more}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, arrays=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.arrow_rows(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.1 if self.tensors else 0.02 + self.features * 3e-5

    def bytes_each(self, script: Script) -> float:
        return self.features * 4.0


@dataclass(frozen=True)
class PackedRecords(MappedRows):
    """Records of one length, found by their number; taken apart as numbers or, which is healthy, as an array."""

    unpacked: bool = True
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        unpacked = rng.random() < 0.6
        return cls(rng.choice([2048, 4096] if unpacked else [64, 256, 1024]), unpacked)

    def name(self, script: Script) -> str:
        return f"records-{script.about.count}-{self.features}.bin"

    def opening(self, script: Script) -> str:
        return f'open(DATA / "{self.name(script)}", "rb")'

    def reading(self, script: Script, source: str) -> str:
        if self.unpacked:
            taken = "label, *values = RECORD.unpack(record)\nx = np.array(values, np.float32)"
        else:
            taken = "label, x = record[0], np.frombuffer(record, np.float32, offset=1).copy()"
        return f"{source}.seek(index * RECORD.size)\nrecord = {source}.read(RECORD.size)\n{taken}"

    def write(self, text: Text, script: Script) -> None:
        text.need("import struct", "import numpy as np")
        text.add("constants", f'RECORD = struct.Struct("<B{self.features}f")')

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, unpacked=False)}} if self.unpacked else {}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.01 + (self.features * 3e-5 if self.unpacked else 0.0)

    def open_ms(self, script: Script) -> float:
        return 0.02


@dataclass(frozen=True)
class LibsvmRows(CsvRows):
    """Lines of pairs of column and value."""

    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([64, 128, 256]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.libsvm"

    def reading(self, script: Script, source: str) -> str:
        return (
            f"label, *pairs = {source}.split()\n"
            f"x = np.zeros({self.features}, np.float32)\n"
            "for pair in pairs:\n"
            '    column, value = pair.split(":")\n'
            "    x[int(column)] = float(value)\n"
            "label = int(label)"
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.libsvm(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.01 + self.features * 3e-4

    def bytes_each(self, script: Script) -> float:
        return self.features * 9.5


@dataclass(frozen=True)
class ManagedRows(Storage):
    """Rows in a list of a manager's process, which workers ask for one by one. Repaired: a tensor in shared memory."""

    features: int = 64
    shared: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([32, 256, 1024]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def reading(self, script: Script, source: str) -> str:
        taken = "self.rows[index].numpy()" if self.shared else "self.rows[index]"
        return f"x = {taken}\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        loaded = f'np.load(DATA / "{self.name(script)}")'
        if self.shared:
            text.add("init", f"self.rows = torch.from_numpy({loaded}).share_memory_()")
        else:
            text.need("import multiprocessing")
            text.add("init", "self.manager = multiprocessing.Manager()")
            text.add("init", f"self.rows = self.manager.list({loaded})")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, shared=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.07

    def bytes_each(self, script: Script) -> float:
        return self.features * 4.0


@dataclass(frozen=True)
class ConcatShards(Storage):
    """Several `TensorDataset`s behind each other, read row by row. Repaired: rows of a batch are taken at once."""

    features: int = 32
    shards: int = 8
    whole: bool = False
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    form: ClassVar[str] = "tensors"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]), rng.choice([4, 10, 20]))

    def name(self, script: Script) -> str:
        return f"rows-{script.about.count}-{self.features}.npy"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torch.utils.data import DataLoader, TensorDataset")
        text.add("setup", f'rows = torch.from_numpy(np.load(DATA / "{self.name(script)}"))')
        text.add("setup", "labels = torch.arange(len(rows)) % 10")
        if self.whole:
            text.told["dataset"] = "Gathered(rows, labels)"
            text.told["collate"] = "tuple"
            text.add(
                "top",
                """
                class Gathered(TensorDataset):
                    def __getitems__(self, indices):
                        return self[torch.tensor(indices)]
                """,
            )
        else:
            text.need("from torch.utils.data import ConcatDataset")
            text.told["dataset"] = "ConcatDataset(shards)"
            text.add("setup", f"parts = zip(rows.chunk({self.shards}), labels.chunk({self.shards}))")
            text.add("setup", "shards = [TensorDataset(*part) for part in parts]")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"batch-at-once": {"storage": replace(self, whole=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.vector_array(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.009


@dataclass(frozen=True)
class SeriesWindows(Storage):
    """Windows of a series in a DataFrame, by time or by row. Repaired: of an array."""

    length: int = 48
    channels: int = 4
    how: str = "time"
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.series_csv(script.about.count + self.length, self.channels)}

    def cost(self, script: Script) -> float:
        return {"time": 0.45 + script.about.count * 2e-6, "row": 0.25, "array": 0.005}[self.how]


@dataclass(frozen=True)
class GraphsAsJson(Storage):
    """A JSON of edges for each graph, of which a matrix is made. Repaired: all edges in arrays."""

    nodes: int = 16
    edges: int = 100
    packed: bool = False
    of: ClassVar[str] = OPEN
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
        made = material.graph_arrays if self.packed else material.graph_folder
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
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.wav_folder(script.about.count, self.features * self.times)}

    def cost(self, script: Script) -> float:
        return 0.06 + (0.0 if self.part else self.features * self.times * 2e-6)

    def bytes_each(self, script: Script) -> float:
        return self.features * (1 if self.part else self.times) * 2.0


@dataclass(frozen=True)
class PairsInList(Storage):
    """A list of pairs of tensor and label as data set, collated row by row. Repaired: rows of a batch at once."""

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
    of: ClassVar[str] = OPEN

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
        made = material.named_rows(script.about.count, self.features, self.indexed)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.02 + (0.0 if self.indexed else script.about.count / 2 * (8e-5 + self.features * 5e-7))


@dataclass(frozen=True)
class EventLines(CsvRows):
    """Lines of JSON whose numbers have names, read from their beginning. Repaired: parsed once into an npy."""

    of: ClassVar[str] = OPEN

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
        return {self.name(script): material.row_records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.02 + self.features * 2.2e-4

    def bytes_each(self, script: Script) -> float:
        return self.features * 14.0


STORAGES: list[type[Production]] = [
    WholeNpz,
    CsvRows,
    CsvGzRows,
    H5Rows,
    SqliteRows,
    FrameRows,
    Tensors,
    ParquetGroups,
    ArrowRows,
    PackedRecords,
    LibsvmRows,
    ManagedRows,
    ConcatShards,
    SeriesWindows,
    GraphsAsJson,
    SoundCrops,
    PairsInList,
    NamedRows,
    EventLines,
]
