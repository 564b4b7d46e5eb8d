"""Kept productions of storage, access, decoding, work and collating: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import importlib.util
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from samples import Collate, Decoding, Default, PaddedLists, RegexTokens, Work, jpegs, shifted
from storages import (
    INFLATE,
    Access,
    CsvRows,
    JpegFolder,
    Kept,
    MappedImages,
    MappedRows,
    ReadsAll,
    Reopened,
    Storage,
    TextLines,
    storage,
)


@dataclass(frozen=True)
class PngFolder(JpegFolder):
    """A folder of PNGs."""

    of: ClassVar[str] = KEPT
    ending: ClassVar[str] = "png"
    pixel: ClassVar[float] = 4e-5

    def bytes_each(self, script: Script) -> float:
        return self.size**2 * 2.2


@dataclass(frozen=True)
class TarJpegs(JpegFolder):
    """A tar of JPEGs, of which a member is looked up for each sample."""

    of: ClassVar[str] = KEPT
    form: ClassVar[str] = "container"

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}.tar"

    def opening(self, script: Script) -> str:
        return f'tarfile.open(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return f'coded = io.BytesIO({source}.extractfile(f"{{index:05}}.jpg").read())\nlabel = index % 10'

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import tarfile")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_tar(script.about.count, self.size)}


@dataclass(frozen=True)
class PickleEach(Storage):
    """A pickle for each image, by gzip or not."""

    packed: bool = True
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.6)

    def name(self, script: Script) -> str:
        return f"{'pickle-gz' if self.packed else 'pickle'}-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        opened = f"{'gzip.open' if self.packed else 'open'}({source}, 'rb')".replace("'", '"')
        return f'with {opened} as stored:\n    image = pickle.load(stored)["image"]\nlabel = index % 10'

    def write(self, text: Text, script: Script) -> None:
        text.need("import pickle", *(["import gzip"] if self.packed else []))

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        kept = Kept(script["access"].shuffle)  # type: ignore[attr-defined]
        found: dict[str, dict[str, Production]] = {"pack": {"storage": MappedImages(), "access": kept}}
        if self.packed:
            found["uncompressed"] = {"storage": replace(self, packed=False)}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.pickle_folder(script.about.count, SIZE, self.packed)}

    def cost(self, script: Script) -> float:
        return 0.15 + (SIZE**2 * 3 * 6 * INFLATE if self.packed else 0.0)


@dataclass(frozen=True)
class H5Rows(MappedRows):
    """Rows in a contiguous HDF5 data set: nothing to repair but how often it is opened."""

    of: ClassVar[str] = KEPT

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

    of: ClassVar[str] = KEPT
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
class CsvGzRows(CsvRows):
    """The same by gzip."""

    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64, 256]), True)


@dataclass(frozen=True)
class FrameRows(Storage):
    """A pandas DataFrame, of which a row is taken by `iloc` for each sample. Repaired: arrays instead."""

    features: int = 64
    arrays: bool = False
    of: ClassVar[str] = KEPT
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
class JsonLines(TextLines):
    """A file of one JSON object a line, of which each is parsed when it is asked for."""

    of: ClassVar[str] = KEPT

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}.jsonl"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add("init", f'self.lines = (DATA / "{self.name(script)}").read_text().splitlines()')
        text.add("methods", 'def text(self, index):\n    return json.loads(self.lines[index])["text"]')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_jsonl(script.about.count, self.words)}


@dataclass(frozen=True)
class OpenedByFunction(Reopened):
    """The same, by a function of the data set that is called for each sample."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.add("methods", f"def connect(self):\n    return {storage(script).opening(script)}")
        text.add("get", "file = self.connect()")
        self.read(text, script, "file")


@dataclass(frozen=True)
class ListsFolder(Access):
    """The folder is listed for each sample. Repaired: once."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.add("get", f'path = sorted((DATA / "{storage(script).name(script)}").iterdir())[index]')
        self.read(text, script, "path")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"list-once": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return script.about.count * 1.5e-3


@dataclass(frozen=True)
class ReadsAllRows(ReadsAll):
    """The same, where a generator parses and `islice` keeps."""

    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools", "from torch.utils.data import get_worker_info")
        text.told["depth"] = "1"
        kind = storage(script)
        text.add(
            "methods", f"def rows(self):\n    with {kind.opening(script)} as file:\n        for line in file:"
        )
        for line in [*kind.reading(script, "line").split("\n"), "yield x, label"]:
            text.sections["methods"].append(("            " + line, "storage"))
        text.add(
            "iterate",
            """
            worker = get_worker_info()
            part, parts = (worker.id, worker.num_workers) if worker else (0, 1)
            for x, label in itertools.islice(self.rows(), part, None, parts):
            """,
        )


@dataclass(frozen=True)
class TorchvisionDecode(Decoding):
    """`torchvision.io`, then resized."""

    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and importlib.util.find_spec("torchvision") is not None

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torchvision.io import ImageReadMode, decode_image")
        text.need("from torchvision.transforms.v2 import functional as F")
        whole = "coded.read()" if storage(script).form == "container" else "coded.read_bytes()"
        text.add(
            "get",
            f"""
            stored = torch.from_numpy(np.frombuffer({whole}, np.uint8).copy())
            image = F.resize(decode_image(stored, ImageReadMode.RGB), [{SIZE}, {SIZE}], antialias=True)
            image = image.permute(1, 2, 0).numpy()
            """,
        )


@dataclass(frozen=True)
class OpencvDecode(Decoding):
    """OpenCV, then resized. Repaired: it decodes at half the size."""

    reduced: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and importlib.util.find_spec("cv2") is not None

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
        whole = "coded.read()" if storage(script).form == "container" else "coded.read_bytes()"
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "get",
            f"""
            image = cv2.imdecode(np.frombuffer({whole}, np.uint8), cv2.{how})
            image = cv2.resize(image, ({SIZE}, {SIZE}), interpolation=cv2.INTER_AREA)
            image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class RandAugmented(Work):
    """RandAugment and others of `torchvision.transforms` on Pillow images."""

    operations: int = 2
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and importlib.util.find_spec("torchvision") is not None

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(operations=rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from PIL import Image", "from torchvision import transforms as T")
        text.add(
            "init",
            f"""
            self.transform = T.Compose([
                T.RandomHorizontalFlip(),
                T.RandAugment({self.operations}),
                T.PILToTensor(),
            ])
            """,
        )
        text.add("work", "image = self.transform(Image.fromarray(image))")
        text.told["sample"] = "image"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.2 + 0.15 * self.operations

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class EqualizeLoop(Work):
    """A histogram is counted and applied pixel by pixel in Python. Repaired: by NumPy."""

    step: int = 2
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(step=rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = f"""
                grey = image[::{self.step}, ::{self.step}, 1]
                counts = np.bincount(grey.ravel(), minlength=256).cumsum()
                image[::{self.step}, ::{self.step}, 1] = counts[grey] * 255 // grey.size
                return image
            """
        else:
            body = f"""
                grey = image[::{self.step}, ::{self.step}, 1]
                counts = [0] * 256
                for value in grey.ravel().tolist():
                    counts[value] += 1
                for value in range(1, 256):
                    counts[value] += counts[value - 1]
                mapped = [counts[value] * 255 // grey.size for value in grey.ravel().tolist()]
                image[::{self.step}, ::{self.step}, 1] = np.array(mapped).reshape(grey.shape)
                return image
            """
        text.add("top", "def equalize(image):\n" + shifted(body))
        text.add("work", "image = equalize(image)")

    def cost(self, script: Script) -> float:
        return (SIZE / self.step) ** 2 * 1.6e-4


@dataclass(frozen=True)
class BisectBins(Work):
    """Each feature is put into a bin by `bisect`. Repaired: by `np.searchsorted`."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("constants", "EDGES = np.linspace(-4, 4, 65)")
        if self.cheap:
            body = 'return np.searchsorted(EDGES, x, side="right").astype(np.float32)'
        else:
            text.need("import bisect")
            text.add("constants", "EDGE_LIST = EDGES.tolist()")
            body = "return np.array([float(bisect.bisect_right(EDGE_LIST, value)) for value in x.tolist()], np.float32)"
        text.add("top", "def bins(x):\n" + shifted(body))
        text.add("work", "x = bins(x)")

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "features", 64) * 2.5e-4


@dataclass(frozen=True)
class CleanedTokens(RegexTokens):
    """Texts are cleaned by some substitutions, then cut and counted."""

    of: ClassVar[str] = KEPT

    def constants(self) -> str:
        return 'COMMON = re.compile(r"\\b(the|of|and|to|in)\\b")'

    def tokenize(self) -> str:
        return """
            def tokenize(text):
                text = re.sub(r"\\d+", " number ", text.lower())
                text = re.sub(r"[^a-z ]+", " ", text)
                text = COMMON.sub(" ", text)
                words = re.sub(r"\\s+", " ", text).strip().split(" ")
                counts = collections.Counter(words)
                ranks = {word: rank for rank, (word, _) in enumerate(counts.most_common(), 1)}
                return [ranks[word] + zlib.crc32(word.encode()) % 4000 for word in words]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import collections")
        super().write(text, script)


@dataclass(frozen=True)
class ZippedLists(PaddedLists):
    """Lists are padded by `zip_longest`, and turned twice."""

    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools")
        text.told["collate"] = "collate"
        text.add(
            "top",
            """
            def collate(samples):
                columns = list(itertools.zip_longest(*[tokens for tokens, _ in samples], fillvalue=0))
                rows = [list(row) for row in zip(*columns)]
                return torch.tensor(rows), torch.tensor([int(label) for _, label in samples])
            """,
        )


@dataclass(frozen=True)
class ListCollate(Collate):
    """Arrays are made lists of numbers and tensors again. Repaired: stacked."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "collate"
        made = "torch.uint8" if script.about.kind == "image" else "torch.float32"
        text.add(
            "top",
            f"""
            def collate(samples):
                rows = torch.tensor([sample.tolist() for sample, _ in samples], dtype={made})
                return rows, torch.tensor([label for _, label in samples])
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        values = SIZE * SIZE * 3 if script.about.kind == "image" else getattr(storage(script), "features", 64)
        return values * 6e-5


STORAGES: list[type[Production]] = [
    PngFolder, TarJpegs, PickleEach, H5Rows, SqliteRows, CsvGzRows, FrameRows, JsonLines,
]  # fmt: skip
ACCESSES: list[type[Production]] = [OpenedByFunction, ListsFolder, ReadsAllRows]
DECODINGS: list[type[Production]] = [TorchvisionDecode, OpencvDecode]
WORKS: list[type[Production]] = [RandAugmented, EqualizeLoop, BisectBins, CleanedTokens]
COLLATES: list[type[Production]] = [ZippedLists, ListCollate]
