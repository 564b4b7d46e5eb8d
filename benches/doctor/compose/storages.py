"""Storage and format: where samples lie, and how one is read from there.

A storage says how its file is opened and how a sample is read from what is open; when that happens is for the access to
say, which writes the lines of both.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import OPEN, SIZE, Maker, Production, Script, Text

INFLATE = 4e-6
"""Milliseconds of CPU that a byte takes to inflate, about."""


@dataclass(frozen=True)
class Storage(Production):
    """What all storages say of themselves."""

    slot: ClassVar[str] = "storage"
    form: ClassVar[str] = "files"
    """`files` (one a sample), `container` (one that is opened), `stream` (read from its beginning), `memory`."""
    encoded: ClassVar[bool] = False
    """Whether images come as `coded` bytes or paths that a decoding must open."""

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


@dataclass(frozen=True)
class JpegFolder(Storage):
    """A folder of JPEGs, larger than they are used. Repaired: stored at the size that is used."""

    size: int = 256
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    encoded: ClassVar[bool] = True
    ending: ClassVar[str] = "jpg"
    pixel: ClassVar[float] = 1.6e-5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(SIZE if script.about.small else rng.choice([96, 160, 256, 400]))

    def name(self, script: Script) -> str:
        return f"{self.ending}-{self.size}px-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return f"coded = {source}\nlabel = index % 10"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        if self.size < 1.4 * SIZE and not script.about.small:
            return {}
        return {"smaller-images": {"storage": replace(self, size=SIZE)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_folder(script.about.count, self.size, self.ending)}

    def cost(self, script: Script) -> float:
        return 0.2 + self.size**2 * self.pixel

    def bytes_each(self, script: Script) -> float:
        return self.size**2 * 0.4


@dataclass(frozen=True)
class NpzEach(Storage):
    """An npz for each image, compressed or not. Repaired: uncompressed, or all in one array that is mapped."""

    compressed: bool = True
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.7)

    def name(self, script: Script) -> str:
        return f"{'npz' if self.compressed else 'stored-npz'}-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return f'image = np.load({source})["image"]\nlabel = index % 10'

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        kept = Kept(script["access"].shuffle)  # type: ignore[attr-defined]
        found: dict[str, dict[str, Production]] = {"pack": {"storage": MappedImages(), "access": kept}}
        if self.compressed:
            found["uncompressed"] = {"storage": replace(self, compressed=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.npz_folder(script.about.count, SIZE, self.compressed)}

    def cost(self, script: Script) -> float:
        return 0.3 + (SIZE**2 * 3 * 6 * INFLATE if self.compressed else 0.0)


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
class ChunkedImages(Storage):
    """HDF5 in chunks of many images: a sample inflates its whole chunk. Repaired: a chunk an image, or no gzip."""

    chunk: int = 32
    gzipped: bool = True
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "container"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([8, 16, 32]), rng.random() < 0.75)

    def name(self, script: Script) -> str:
        return f"images-{script.about.count}-{self.chunk}{'-gzip' if self.gzipped else ''}.h5"

    def opening(self, script: Script) -> str:
        return f'h5py.File(DATA / "{self.name(script)}", "r")'

    def reading(self, script: Script, source: str) -> str:
        return f'image = {source}["images"][index]\nlabel = int({source}["labels"][index])'

    def write(self, text: Text, script: Script) -> None:
        text.need("import h5py")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {"sample-chunks": {"storage": replace(self, chunk=1)}}
        if self.gzipped:
            found["uncompressed"] = {"storage": replace(self, gzipped=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        made = material.image_h5(script.about.count, SIZE, self.chunk, self.gzipped)
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        return 0.3 + self.chunk * SIZE**2 * 3 * (INFLATE if self.gzipped else 2e-7)


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
class Access(Production):
    """When files are opened and which samples are read."""

    slot: ClassVar[str] = "access"
    shuffle: bool = True
    forms: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fits(cls, script: Script) -> bool:
        return script["storage"].form in cls.forms  # type: ignore[attr-defined]

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.7 and script["storage"].form != "stream")  # type: ignore[attr-defined]

    def read(self, text: Text, script: Script, source: str, indent: int = 0) -> None:
        """The storage's lines that read a sample."""
        lines = text.sections.setdefault("get", [])
        for line in storage(script).reading(script, source).split("\n"):
            lines.append(("    " * indent + line, "storage"))


def storage(script: Script) -> Storage:
    """Its storage."""
    part = script["storage"]
    assert isinstance(part, Storage)
    return part


@dataclass(frozen=True)
class Kept(Access):
    """Folders are listed once, containers are opened once by each worker, when it needs them."""

    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory", "tensors")

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        if kind.form == "tensors":
            return
        if kind.form == "files":
            text.add("init", f'self.files = sorted((DATA / "{kind.name(script)}").iterdir())')
            self.read(text, script, "self.files[index]")
        elif kind.form == "container":
            text.add("init", "self.file = None")
            text.add("get", "if self.file is None:")
            text.sections["get"].append((f"    self.file = {kind.opening(script)}", self.slot))
            self.read(text, script, "self.file")
        else:
            self.read(text, script, "")


@dataclass(frozen=True)
class Reopened(Access):
    """The container is opened for each sample. Repaired: once for each worker."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("container",)

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        opened = kind.opening(script)
        if isinstance(kind, MappedRows | MappedImages) and "np.load" in opened:
            text.add("get", f"file = {opened}")
            return self.read(text, script, "file")
        if "sqlite3" in opened:
            text.need("import contextlib")
            opened = f"contextlib.closing({opened})"
        text.add("get", f"with {opened} as file:")
        return self.read(text, script, "file", 1)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"keep-open": {"access": Kept(self.shuffle)}}


@dataclass(frozen=True)
class NumberedFiles(Access):
    """The path of a sample is put together by number, after a look whether it is there: nothing to repair."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        ending = getattr(kind, "ending", "npz")
        text.add("get", f'path = DATA / "{kind.name(script)}" / f"{{index:05}}.{ending}"')
        text.add("get", "if not path.exists():\n    raise FileNotFoundError(path)")
        self.read(text, script, "path")


@dataclass(frozen=True)
class OwnPart(Access):
    """Of a stream each worker parses its own lines."""

    forms: ClassVar[tuple[str, ...]] = ("stream",)
    weight: ClassVar[float] = 0.5
    before: ClassVar[bool] = True
    """Whether lines of others are left out before they are parsed."""

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import get_worker_info")
        text.told["depth"] = "2"
        text.add(
            "iterate",
            f"""
            worker = get_worker_info()
            part, parts = (worker.id, worker.num_workers) if worker else (0, 1)
            with {storage(script).opening(script)} as file:
                for index, line in enumerate(file):
            """,
        )
        skip = "if index % parts != part:\n    continue"
        if self.before:
            text.add("get", skip)
        self.read(text, script, "line")
        if not self.before:
            text.add("get", skip)


@dataclass(frozen=True)
class ReadsAll(OwnPart):
    """Each worker parses all lines of a stream and then keeps its part. Repaired: only its own are parsed."""

    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 1.0
    before: ClassVar[bool] = False

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"own-part": {"access": OwnPart(False)}}


STORAGES: list[type[Production]] = [
    JpegFolder, NpzEach, ChunkedImages, WholeNpz, MappedRows, CsvRows, Tensors, TextLines,
    MappedImages,
]  # fmt: skip
ACCESSES: list[type[Production]] = [
    Kept, Reopened, NumberedFiles, OwnPart, ReadsAll,
]  # fmt: skip
