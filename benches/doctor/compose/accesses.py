"""Access: when files are opened, and which samples are read."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import OPEN, Maker, Production, Script, Text
from storages import MappedImages, MappedRows, storage


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


def read_from(other: Production, script: Script) -> dict[str, Production]:
    """Another storage in place of the script's, read in the same order."""
    access = script["access"]
    if other.form in access.forms:  # type: ignore[attr-defined]
        return {"storage": other}
    return {"storage": other, "access": Kept(access.shuffle)}  # type: ignore[attr-defined]


def outside(text: Text, script: Script, source: str, steps: int) -> None:
    """Adds the storage's lines that read a sample to a function outside of the data set."""
    for line in storage(script).reading(script, source).split("\n"):
        text.sections["top"].append(("    " * steps + line, "storage"))


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
class OpenedByFunction(Reopened):
    """The same, by a function of the data set that is called for each sample."""

    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.add("methods", f"def connect(self):\n    return {storage(script).opening(script)}")
        text.add("get", "file = self.connect()")
        self.read(text, script, "file")


@dataclass(frozen=True)
class NumberedFiles(Access):
    """The path of a sample is put together by number, after a look whether it is there: nothing to repair."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        ending = kind.ending  # type: ignore[attr-defined]
        text.add("get", f'path = DATA / "{kind.name(script)}" / f"{{index:05}}.{ending}"')
        text.add("get", "if not path.exists():\n    raise FileNotFoundError(path)")
        self.read(text, script, "path")


@dataclass(frozen=True)
class ListsFolder(Access):
    """The folder is listed for each sample. Repaired: once."""

    of: ClassVar[str] = OPEN
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


@dataclass(frozen=True)
class ReadsAllRows(ReadsAll):
    """The same, where a generator parses and `islice` keeps."""

    of: ClassVar[str] = OPEN

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
class ManifestEach(Access):
    """A CSV file says which files there are, and is read for each sample. Repaired: the folder is listed once."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files",)

    def name(self, script: Script) -> str:
        return f"manifest-{script.about.count}-{storage(script).ending}.csv"  # type: ignore[attr-defined]

    def write(self, text: Text, script: Script) -> None:
        text.need("import csv")
        text.add(
            "top",
            f"""
            def entries():
                with (DATA / "{self.name(script)}").open(newline="") as file:
                    return list(csv.DictReader(file))
            """,
        )
        text.add("get", f'path = DATA / "{storage(script).name(script)}" / entries()[index]["file"]')
        self.read(text, script, "path")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"list-once": {"access": Kept(self.shuffle)}}

    def data(self, script: Script) -> dict[str, Maker]:
        ending = storage(script).ending  # type: ignore[attr-defined]
        return {self.name(script): material.manifest(script.about.count, ending)}

    def cost(self, script: Script) -> float:
        return 0.02 + script.about.count * 1.1e-3


@dataclass(frozen=True)
class FetchFunction(Access):
    """A function outside of the data set opens the container for each sample. Repaired: once for each worker."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("container",)

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        got = "coded" if kind.encoded else "image" if script.about.kind == "image" else "x"
        mapped = "np.load(" in kind.opening(script)
        first = f"file = {kind.opening(script)}" if mapped else f"with {kind.opening(script)} as file:"
        text.add("top", f"def fetch(index):\n    {first}")
        outside(text, script, "file", 1 if mapped else 2)
        text.sections["top"].append((f"    return {got}, label", self.slot))
        text.add("get", f"{got}, label = fetch(index)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"keep-open": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return storage(script).open_ms(script)


@dataclass(frozen=True)
class CachedHandle(Access):
    """What is open is kept by a cache, for each process its own: nothing to repair."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("container",)
    weight: ClassVar[float] = 0.5

    def write(self, text: Text, script: Script) -> None:
        text.need("import functools", "import os")
        text.add(
            "top",
            f"""
            @functools.lru_cache(maxsize=1)
            def opened(process):
                return {storage(script).opening(script)}
            """,
        )
        text.add("get", "file = opened(os.getpid())")
        self.read(text, script, "file")


@dataclass(frozen=True)
class PermutedSubset(Access):
    """A `Subset` in an order that was drawn once: nothing to repair."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")
    weight: ClassVar[float] = 0.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(False)

    def write(self, text: Text, script: Script) -> None:
        text.need("import random", "from torch.utils.data import DataLoader, Dataset, Subset")
        count = script.about.count
        text.add("setup", f"order = random.Random(1).sample(range({count}), {count})")
        text.told["dataset"] = "Subset(Samples(), order)"
        Kept(False).write(text, script)


@dataclass(frozen=True)
class ParsesThenSlices(Access):
    """Each worker parses a whole stream into a list, of which it takes a slice. Repaired: only its own are parsed."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("stream",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import get_worker_info")
        text.told["depth"] = "1"
        text.add("top", "def parse(line):")
        outside(text, script, "line", 1)
        text.sections["top"].append(("    return x, label", self.slot))
        text.add(
            "iterate",
            f"""
            info = get_worker_info()
            begin, step = (info.id, info.num_workers) if info is not None else (0, 1)
            with {storage(script).opening(script)} as file:
                rows = [parse(line) for line in file]
            for x, label in rows[begin::step]:
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"own-part": {"access": OwnPart(False)}}


def names(script: Script) -> str:
    """What the storage's lines set of a sample, as it is handed on."""
    kind = storage(script)
    return "coded" if kind.encoded else "image" if script.about.kind == "image" else "x"


@dataclass(frozen=True)
class GlobEach(Access):
    """The file of a sample is looked for by a pattern. Repaired: the folder is listed once."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files",)

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "get",
            f"""
            found = list((DATA / "{storage(script).name(script)}").glob(f"{{index:05}}.*"))
            assert len(found) == 1, f"no file or several for {{index}}: {{found}}"
            """,
        )
        self.read(text, script, "found[0]")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"list-once": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return 0.02 + script.about.count * 6e-4


@dataclass(frozen=True)
class ReaderEach(Access):
    """A reader is made for each sample, which opens the container. Repaired: once for each worker."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("container",)

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            class Reader:
                def __init__(self):
                    self.file = {storage(script).opening(script)}

                def __getitem__(self, index):
            """,
        )
        outside(text, script, "self.file", 2)
        text.sections["top"].append((f"        return {names(script)}, label", self.slot))
        text.add("get", f"{names(script)}, label = Reader()[index]")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"keep-open": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return storage(script).open_ms(script)


@dataclass(frozen=True)
class CopiedRecords(Access):
    """What is known of a sample is copied with all its annotations. Repaired: only the outermost dict is."""

    number: int = 10
    shallow: bool = False
    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")

    @classmethod
    def fits(cls, script: Script) -> bool:
        # Texts are taken by their place before there is a record.
        return super().fits(script) and script.about.kind != "text"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.7, rng.choice([2, 12, 50]))

    def name(self, script: Script) -> str:
        return f"records-{script.about.count}-{self.number}.json"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add(
            "init", f'with open(DATA / "{self.name(script)}") as file:\n    self.records = json.load(file)'
        )
        if self.shallow:
            text.add("get", "record = dict(self.records[index])")
        else:
            text.need("import copy")
            text.add("get", "record = copy.deepcopy(self.records[index])")
        text.add(
            "get",
            """
            record["annotations"] = [thing for thing in record["annotations"] if thing["iscrowd"] == 0]
            index = record["id"]
            """,
        )
        Kept(self.shuffle).write(text, script)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"shallow-copy": {"access": replace(self, shallow=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.annotated_records(script.about.count, self.number)}

    def cost(self, script: Script) -> float:
        return 0.01 + (0.0 if self.shallow else self.number * 0.021)


@dataclass(frozen=True)
class FoldsJoined(Access):
    """Folds of a data set, put together in another order: nothing to repair."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")
    weight: ClassVar[float] = 0.6

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.5)

    def write(self, text: Text, script: Script) -> None:
        text.need(
            "import numpy as np", "from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset"
        )
        text.add(
            "setup",
            f"""
            everything = Samples()
            order = np.random.RandomState(3).permutation({script.about.count})
            folds = [Subset(everything, fold.tolist()) for fold in np.array_split(order, 5)]
            """,
        )
        text.told["dataset"] = "ConcatDataset(folds[1:] + folds[:1])"
        Kept(False).write(text, script)


@dataclass(frozen=True)
class BufferedStream(Access):
    """Each worker reads its own of a stream, through a buffer that shuffles: nothing to repair."""

    size: int = 100
    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("stream",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(False, rng.choice([32, 256]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import random", "from torch.utils.data import get_worker_info")
        text.told["depth"] = "1"
        text.add(
            "top",
            """
            def shuffled(samples, size):
                chosen, kept = random.Random(0), []
                for sample in samples:
                    if len(kept) < size:
                        kept.append(sample)
                        continue
                    place = chosen.randrange(size)
                    yield kept[place]
                    kept[place] = sample
                chosen.shuffle(kept)
                yield from kept
            """,
        )
        text.add(
            "methods",
            f"""
            def own(self):
                info = get_worker_info()
                first, step = (info.id, info.num_workers) if info else (0, 1)
                with {storage(script).opening(script)} as file:
                    for index, line in enumerate(file):
                        if index % step != first:
                            continue
            """,
        )
        for line in storage(script).reading(script, "line").split("\n"):
            text.sections["methods"].append(("            " + line, "storage"))
        text.sections["methods"].append((f"            yield index, {names(script)}, label", self.slot))
        text.add("iterate", f"for index, {names(script)}, label in shuffled(self.own(), {self.size}):")

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class ShardedOutside(Access):
    """A data set around the stream's leaves out what other workers give, after it was made. Repaired: before."""

    of: ClassVar[str] = OPEN
    forms: ClassVar[tuple[str, ...]] = ("stream",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools", "from torch.utils.data import get_worker_info")
        text.told["depth"] = "2"
        text.told["dataset"] = "Sharded(Samples())"
        text.add(
            "top",
            """
            class Sharded(IterableDataset):
                def __init__(self, whole):
                    self.whole = whole

                def __iter__(self):
                    info = get_worker_info()
                    if info is None:
                        return iter(self.whole)
                    return itertools.islice(self.whole, info.id, None, info.num_workers)
            """,
        )
        text.add(
            "iterate",
            f"with {storage(script).opening(script)} as file:\n    for index, line in enumerate(file):",
        )
        self.read(text, script, "line")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"own-part": {"access": OwnPart(False)}}


ACCESSES: list[type[Production]] = [
    Kept,
    Reopened,
    OpenedByFunction,
    NumberedFiles,
    ListsFolder,
    OwnPart,
    ReadsAll,
    ReadsAllRows,
    ManifestEach,
    FetchFunction,
    CachedHandle,
    PermutedSubset,
    ParsesThenSlices,
    GlobEach,
    ReaderEach,
    CopiedRecords,
    FoldsJoined,
    BufferedStream,
    ShardedOutside,
]
