"""Kept productions of access, decoding and collating: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
from accesses import Access, Kept, OwnPart, outside
from collates import Collate, Default, PadSequence
from decodings import Decoding, jpegs, whole
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from storages import storage


def names(script: Script) -> str:
    """What the storage's lines set of a sample, as it is handed on."""
    kind = storage(script)
    return "coded" if kind.encoded else "image" if script.about.kind == "image" else "x"


@dataclass(frozen=True)
class GlobEach(Access):
    """The file of a sample is looked for by a pattern. Repaired: the folder is listed once."""

    of: ClassVar[str] = KEPT
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

    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT
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
        return {self.name(script): kept_material.annotated_records(script.about.count, self.number)}

    def cost(self, script: Script) -> float:
        return 0.01 + (0.0 if self.shallow else self.number * 0.021)


@dataclass(frozen=True)
class FoldsJoined(Access):
    """Folds of a data set, put together in another order: nothing to repair."""

    of: ClassVar[str] = KEPT
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
    of: ClassVar[str] = KEPT
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

    of: ClassVar[str] = KEPT
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


@dataclass(frozen=True)
class Drafted(Decoding):
    """Images that are decoded whole or, repaired, smaller, if the decoder can."""

    reduced: bool = False

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class Letterbox(Drafted):
    """OpenCV; sides keep their proportion, and what is left is filled. Repaired: it decodes at half the size."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "top",
            """
            def letterbox(image, size, colour=(114, 114, 114)):
                height, width = image.shape[:2]
                scale = min(size / height, size / width)
                new = round(width * scale), round(height * scale)
                how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
                image = cv2.resize(image, new, interpolation=how)
                left, top = (size - new[0]) // 2, (size - new[1]) // 2
                right, bottom = size - new[0] - left, size - new[1] - top
                return cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=colour)
            """,
        )
        text.add(
            "get",
            f"""
            image = cv2.imdecode(np.frombuffer({whole(script)}, np.uint8), cv2.{how})
            image = np.ascontiguousarray(letterbox(image, {SIZE})[..., ::-1])
            """,
        )


@dataclass(frozen=True)
class AlbumentationsDecode(Drafted):
    """Pillow, then made smaller and cut by albumentations. Repaired: `draft`."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("albumentations",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import albumentations as A", "import numpy as np", "from PIL import Image")
        text.add("init", f"self.fit = A.Compose([A.SmallestMaxSize({SIZE}), A.CenterCrop({SIZE}, {SIZE})])")
        text.add("get", "opened = Image.open(coded)")
        if self.reduced:
            text.add("get", f'opened.draft("RGB", ({SIZE}, {SIZE}))')
        text.add("get", 'image = self.fit(image=np.array(opened.convert("RGB")))["image"]')


@dataclass(frozen=True)
class ThumbnailPaste(Decoding):
    """Pillow's `thumbnail`, which lets the decoder make images smaller, on a canvas: nothing to repair."""

    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        text.add(
            "methods",
            f"""
            def squared(self, source):
                with Image.open(source) as opened:
                    opened.thumbnail(({SIZE}, {SIZE}))
                    canvas = Image.new("RGB", ({SIZE}, {SIZE}))
                    canvas.paste(opened, tuple(({SIZE} - side) // 2 for side in opened.size))
                return np.array(canvas)
            """,
        )
        text.add("get", "image = self.squared(coded)")


@dataclass(frozen=True)
class FilledTensor(Collate):
    """Tokens are set in a tensor one by one. Repaired: `pad_sequence`."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "Batcher()"
        text.add(
            "top",
            """
            class Batcher:
                def __init__(self, padding=0):
                    self.padding = padding

                def __call__(self, samples):
                    sequences, labels = zip(*samples)
                    ids = torch.full((len(sequences), max(map(len, sequences))), self.padding)
                    for row, sequence in enumerate(sequences):
                        for column, token in enumerate(sequence):
                            ids[row, column] = token
                    return ids, torch.tensor(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pad-sequence": {"collate": PadSequence()}}

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * 1.3 * 1.6e-3


@dataclass(frozen=True)
class LongestFirst(Collate):
    """Sequences are sorted by their length and set row by row: nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "longest_first"
        text.add(
            "top",
            """
            def longest_first(samples):
                samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
                ids = torch.zeros(len(samples), len(samples[0][0]), dtype=torch.long)
                for row, (tokens, _) in enumerate(samples):
                    ids[row, : len(tokens)] = torch.tensor(tokens)
                return ids, torch.tensor([label for _, label in samples])
            """,
        )


@dataclass(frozen=True)
class Unzipped(Collate):
    """Samples of a batch are sent one by one, and put together in the loop. Repaired: by the worker."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "unzip"
        text.add("top", "def unzip(samples):\n    return tuple(zip(*samples))")
        text.add("loop", "x, y = torch.stack(x), torch.tensor(y)")
        # Before what others do to a batch.
        loop = text.sections["loop"]
        loop.insert(0, loop.pop())

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"few-tensors": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return 0.05


@dataclass(frozen=True)
class DoubleArrays(Collate):
    """Images become doubles, eight times as many bytes, before they are sent. Repaired: they stay as they are."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.told["collate"] = "to_batch"
        text.add(
            "top",
            """
            def to_batch(samples):
                images = np.array([image.numpy() for image, _ in samples], dtype=np.float64)
                labels = np.array([label for _, label in samples])
                return torch.from_numpy(images), torch.from_numpy(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return 0.06


ACCESSES: list[type[Production]] = [
    GlobEach, ReaderEach, CopiedRecords, FoldsJoined, BufferedStream, ShardedOutside,
]  # fmt: skip
DECODINGS: list[type[Production]] = [Letterbox, AlbumentationsDecode, ThumbnailPaste]
COLLATES: list[type[Production]] = [FilledTensor, LongestFirst, Unzipped, DoubleArrays]
