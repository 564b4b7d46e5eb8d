"""Kept productions of storage: for final figures, not to develop rules with.

Invariant: nothing imports these but `drawing.py` and other kept files, and no rule is changed after a look at them
(README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
import material
from accesses import Kept
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from storages import MappedImages, MappedRows, Storage
from storages_images import JpegFolder
from storages_tables import CsvRows, TextLines

INFLATE_EACH = 0.07
"""Milliseconds of CPU that an image takes to inflate, about."""


def read_from(other: Production, script: Script) -> dict[str, Production]:
    """Another storage in place of the script's, read in the same order."""
    access = script["access"]
    if other.form in access.forms:  # type: ignore[attr-defined]
        return {"storage": other}
    return {"storage": other, "access": Kept(access.shuffle)}  # type: ignore[attr-defined]


@dataclass(frozen=True)
class WebpFolder(JpegFolder):
    """A folder of WebP images."""

    of: ClassVar[str] = KEPT
    ending: ClassVar[str] = "webp"
    pixel: ClassVar[float] = 2.4e-5

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.webp_folder(script.about.count, self.size)}

    def bytes_each(self, script: Script) -> float:
        return self.size**2 * 0.3


@dataclass(frozen=True)
class LmdbJpegs(JpegFolder):
    """JPEGs in LMDB."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("lmdb",)
    form: ClassVar[str] = "container"
    pixel: ClassVar[float] = 1.1e-5
    single: ClassVar[bool] = True
    """Whether a process can have it open once only."""

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}.mdb"

    def opening(self, script: Script) -> str:
        return f'lmdb.open(str(DATA / "{self.name(script)}"), readonly=True, lock=False, subdir=False)'

    def reading(self, script: Script, source: str) -> str:
        return (
            f"with {source}.begin() as transaction:\n"
            '    coded = io.BytesIO(transaction.get(f"{index:06}".encode()))\n'
            "label = index % 10"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import lmdb")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.image_lmdb(script.about.count, self.size)}


@dataclass(frozen=True)
class TensorEach(Storage):
    """A file of `torch.save` for each image. Repaired: all in one array that is mapped."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    ending: ClassVar[str] = "pt"

    def name(self, script: Script) -> str:
        return f"pt-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return f'stored = torch.load({source})\nimage = stored["image"].numpy()\nlabel = index % 10'

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": read_from(MappedImages(), script)}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.tensor_folder(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.17


@dataclass(frozen=True)
class ZippedArrays(Storage):
    """A zip of one npy for each image. Repaired: stored, if it is deflated."""

    deflated: bool = True
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "container"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.65)

    def name(self, script: Script) -> str:
        return f"arrays-{script.about.count}{'' if self.deflated else '-stored'}.zip"

    def opening(self, script: Script) -> str:
        return f'zipfile.ZipFile(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return (
            f'member = {source}.read(f"{{index:05}}.npy")\n'
            "image = np.load(io.BytesIO(member))\n"
            "label = index % 10"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import zipfile", "import numpy as np")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"uncompressed": {"storage": replace(self, deflated=False)}} if self.deflated else {}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.image_zip(script.about.count, SIZE, self.deflated)}

    def cost(self, script: Script) -> float:
        return 0.06 + (INFLATE_EACH if self.deflated else 0.0)

    def open_ms(self, script: Script) -> float:
        """Milliseconds of CPU that it takes to open, about."""
        return script.about.count * 2e-3


@dataclass(frozen=True)
class TiffPages(Storage):
    """A TIFF of one page for each image, which is found by the pages before it. Repaired: one array, or no zlib."""

    packed: bool = True
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("tifffile",)
    form: ClassVar[str] = "container"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.6)

    def name(self, script: Script) -> str:
        return f"pages-{script.about.count}{'-zlib' if self.packed else ''}.tif"

    def opening(self, script: Script) -> str:
        return f'tifffile.TiffFile(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return f"image = {source}.pages[index].asarray().copy()\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import tifffile")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found = {"parse-once": read_from(MappedImages(), script)}
        if self.packed:
            found["uncompressed"] = {"storage": replace(self, packed=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.image_tiff(script.about.count, SIZE, self.packed)}

    def cost(self, script: Script) -> float:
        return 0.08 + (INFLATE_EACH if self.packed else 0.0)


@dataclass(frozen=True)
class ParquetGroups(MappedRows):
    """Parquet, of which a sample reads its whole row group. Repaired: few rows a group, or converted once."""

    group: int = 256
    of: ClassVar[str] = KEPT
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
        made = kept_material.row_groups(script.about.count, self.features, self.group)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.05 + self.group * self.features * 7e-6


@dataclass(frozen=True)
class ArrowRows(Storage):
    """A data set of Hugging Face's, which gives a row as numbers or tensors. Repaired: columns are arrays."""

    features: int = 64
    tensors: bool = False
    arrays: bool = False
    of: ClassVar[str] = KEPT
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
        return {self.name(script): kept_material.arrow_rows(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.1 if self.tensors else 0.02 + self.features * 3e-5

    def bytes_each(self, script: Script) -> float:
        return self.features * 4.0


@dataclass(frozen=True)
class PackedRecords(MappedRows):
    """Records of one length, found by their number; taken apart as numbers or, which is healthy, as an array."""

    unpacked: bool = True
    of: ClassVar[str] = KEPT

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
        return {self.name(script): kept_material.records(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.01 + (self.features * 3e-5 if self.unpacked else 0.0)


@dataclass(frozen=True)
class LibsvmRows(CsvRows):
    """Lines of pairs of column and value."""

    of: ClassVar[str] = KEPT

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
        return {self.name(script): kept_material.libsvm(script.about.count, self.features)}

    def cost(self, script: Script) -> float:
        return 0.01 + self.features * 3e-4

    def bytes_each(self, script: Script) -> float:
        return self.features * 9.5


@dataclass(frozen=True)
class ManagedRows(Storage):
    """Rows in a list of a manager's process, which workers ask for one by one. Repaired: a tensor in shared memory."""

    features: int = 64
    shared: bool = False
    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT
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
class ReadlinesEach(TextLines):
    """A file of one text a line, of which all lines are read for each sample. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([20, 60, 120]))

    def write(self, text: Text, script: Script) -> None:
        path = f'DATA / "{self.name(script)}"'
        if self.once:
            text.add("init", f"with open({path}) as file:\n    self.lines = file.readlines()")
            text.add("methods", "def text(self, index):\n    return self.lines[index].rstrip()")
        else:
            text.add(
                "methods",
                f"""
                def text(self, index):
                    with open({path}) as file:
                        return file.readlines()[index].rstrip()
                """,
            )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"load-once": {"storage": replace(self, once=True)}}

    def cost(self, script: Script) -> float:
        return 0.02 + script.about.count * (5e-5 + self.words * 2.4e-6)


@dataclass(frozen=True)
class SoughtLines(TextLines):
    """A file of one text a line, whose beginnings are looked up once: nothing to repair."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.8

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([30, 60, 120]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools")
        text.add(
            "init",
            f"""
            self.path = DATA / "{self.name(script)}"
            with self.path.open("rb") as file:
                self.begins = [0, *itertools.accumulate(len(line) for line in file)]
            """,
        )
        text.add(
            "methods",
            """
            def text(self, index):
                with self.path.open("rb") as file:
                    file.seek(self.begins[index])
                    return file.readline().decode().rstrip()
            """,
        )

    def cost(self, script: Script) -> float:
        return 0.03


STORAGES: list[type[Production]] = [
    WebpFolder, LmdbJpegs, TensorEach, ZippedArrays, TiffPages, ParquetGroups, ArrowRows, PackedRecords, LibsvmRows,
    ManagedRows, ConcatShards, ReadlinesEach, SoughtLines,
]  # fmt: skip
