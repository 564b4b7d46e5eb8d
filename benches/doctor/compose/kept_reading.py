"""Kept productions of access, decoding and collating: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
from accesses import Access, Kept, OwnPart
from collates import Collate, Default, PadSequence
from decodings import Drafted, whole
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from kept_storages import UserHistories
from storages import storage


@dataclass(frozen=True)
class WalksTree(Access):
    """The file of a sample is looked for by `os.walk`. Repaired: the folder is listed once."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files",)

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        text.need("import os")
        text.add(
            "top",
            """
            def find(root, name):
                for folder, _, files in os.walk(root):
                    if name in files:
                        return Path(folder) / name
                raise FileNotFoundError(name)
            """,
        )
        ending = kind.ending  # type: ignore[attr-defined]
        text.add("get", f'path = find(DATA / "{kind.name(script)}", f"{{index:05}}.{ending}")')
        self.read(text, script, "path")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"list-once": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return 0.03 + script.about.count * 5e-4


@dataclass(frozen=True)
class SettingsEach(Access):
    """Settings are read from a JSON for each sample. Repaired: once."""

    entries: int = 400
    once: bool = False
    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.7, rng.choice([5, 80, 1000]))

    def name(self, script: Script) -> str:
        return f"settings-{self.entries}.json"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add(
            "top",
            f"""
            def settings():
                with open(DATA / "{self.name(script)}") as file:
                    return json.load(file)
            """,
        )
        if self.once:
            text.add("init", "self.settings = settings()")
        text.add("get", f'index += {"self.settings" if self.once else "settings()"}["first"]')
        Kept(self.shuffle).write(text, script)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"settings-once": {"access": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.settings(self.entries)}

    def cost(self, script: Script) -> float:
        return 0.0 if self.once else 0.03 + self.entries * 1.6e-3


@dataclass(frozen=True)
class SamplesRemembered(Access):
    """What was read once is kept in a dict without bounds: nothing to repair."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")
    weight: ClassVar[float] = 0.8

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and script.about.kind != "text" and not storage(script).encoded

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        read = "image" if script.about.kind == "image" else "x"
        text.add("init", "self.known = {}")
        source = ""
        if kind.form == "files":
            text.add("init", f'self.files = sorted((DATA / "{kind.name(script)}").iterdir())')
            source = "self.files[index]"
        elif kind.form == "container":
            text.add("init", "self.file = None")
            text.add("get", f"if self.file is None:\n    self.file = {kind.opening(script)}")
            source = "self.file"
        text.add("get", "if index not in self.known:")
        self.read(text, script, source, 1)
        text.sections["get"].append((f"    self.known[index] = {read}, label", self.slot))
        text.add("get", f"{read}, label = self.known[index]\n{read} = {read}.copy()")

    def cost(self, script: Script) -> float:
        return 0.005


@dataclass(frozen=True)
class SizesAsked(Access):
    """Size and age of a file are asked for before it is read: nothing to repair."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.need("import os")
        text.add(
            "init", f'self.paths = sorted(map(str, (DATA / "{storage(script).name(script)}").iterdir()))'
        )
        text.add(
            "get",
            """
            path = Path(self.paths[index])
            known = os.stat(path)
            if known.st_size == 0 or known.st_mtime > time.time() + 60:
                raise ValueError(f"{path} is empty, or of the future")
            """,
        )
        self.read(text, script, "path")

    def cost(self, script: Script) -> float:
        return 0.01


@dataclass(frozen=True)
class RetriedOpen(Access):
    """The container is opened for each sample, again if that fails. Repaired: once for each worker."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("container",)
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            def open_patiently(tries=4):
                for number in range(tries):
                    try:
                        return {storage(script).opening(script)}
                    except OSError:
                        time.sleep(0.1 * 2**number)
                raise OSError(f"not open after {{tries}} tries")
            """,
        )
        text.add("get", "source = open_patiently()")
        self.read(text, script, "source")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"keep-open": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        return storage(script).open_ms(script)


@dataclass(frozen=True)
class NamesInList(Access):
    """A split lists names, whose places are looked for in a list of all. Repaired: in a dict."""

    places: bool = False
    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")

    @classmethod
    def fits(cls, script: Script) -> bool:
        # Rows that are looked for in a frame have a fix of the same name.
        framed = isinstance(storage(script), UserHistories)
        return super().fits(script) and script.about.kind != "text" and not framed

    def name(self, script: Script) -> str:
        return f"split-{script.about.count}.txt"

    def write(self, text: Text, script: Script) -> None:
        text.add("init", f'self.split = (DATA / "{self.name(script)}").read_text().split()')
        text.add("init", "self.names = sorted(self.split)")
        if self.places:
            text.add("init", "self.places = {name: place for place, name in enumerate(self.names)}")
        name = "self.split[index]"
        text.add("get", f"index = {f'self.places[{name}]' if self.places else f'self.names.index({name})'}")
        Kept(self.shuffle).write(text, script)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"index-rows": {"access": replace(self, places=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.split_names(script.about.count)}

    def cost(self, script: Script) -> float:
        return 0.0 if self.places else script.about.count * 1.2e-5


@dataclass(frozen=True)
class FilteredStream(Access):
    """Each worker parses a whole stream, and a filter keeps what is its own. Repaired: only that is parsed."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("stream",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import get_worker_info")
        text.told["depth"] = "1"
        text.add(
            "methods",
            f"def everything(self):\n    with {storage(script).opening(script)} as file:\n"
            "        for number, line in enumerate(file):",
        )
        for line in storage(script).reading(script, "line").split("\n"):
            text.sections["methods"].append(("            " + line, "storage"))
        text.sections["methods"].append(("            yield number, x, label", self.slot))
        text.add(
            "iterate",
            """
            worker = get_worker_info()
            mine = lambda sample: worker is None or sample[0] % worker.num_workers == worker.id
            for _, x, label in filter(mine, self.everything()):
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"own-part": {"access": OwnPart(False)}}


@dataclass(frozen=True)
class OpencvToPillow(Drafted):
    """OpenCV decodes, Pillow resizes. Repaired: it decodes at half the size."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np", "from PIL import Image")
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "methods",
            f"""
            def opened(self, stored):
                pixels = cv2.imdecode(np.frombuffer(stored, np.uint8), cv2.{how})
                return Image.fromarray(cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
            """,
        )
        text.add(
            "get",
            f"image = np.array(self.opened({whole(script)}).resize(({SIZE}, {SIZE}), Image.Resampling.BILINEAR))",
        )


@dataclass(frozen=True)
class VerifiedDecode(Drafted):
    """Pillow verifies a file, opens it again and resizes. Repaired: `draft`."""

    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        again = "source.seek(0)\n    " if storage(script).held else ""
        text.add(
            "top",
            "def verified(source):\n    with Image.open(source) as opened:\n        opened.verify()\n"
            f"    {again}return Image.open(source)",
        )
        text.add("get", "picture = verified(coded)")
        if self.reduced:
            text.add("get", f'picture.draft("RGB", ({SIZE}, {SIZE}))')
        text.add(
            "get",
            f'image = np.array(picture.convert("RGB").resize(({SIZE}, {SIZE}), Image.Resampling.LANCZOS))',
        )


@dataclass(frozen=True)
class MeansOfBlocks(Drafted):
    """Pillow, made smaller by means of blocks in NumPy. Repaired: `draft`."""

    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        text.add(
            "top",
            f"""
            def downscaled(pixels):
                step = min(pixels.shape[:2]) // {SIZE}
                blocks = pixels[: step * {SIZE}, : step * {SIZE}].astype(np.float32)
                return blocks.reshape({SIZE}, step, {SIZE}, step, 3).mean((1, 3))
            """,
        )
        draft = f'    opened.draft("RGB", ({SIZE}, {SIZE}))\n' if self.reduced else ""
        text.add(
            "get",
            f"with Image.open(coded) as opened:\n{draft}"
            '    image = downscaled(np.asarray(opened.convert("RGB"))).astype(np.uint8)',
        )

    def cost(self, script: Script) -> float:
        return 0.05 + getattr(storage(script), "size", SIZE) ** 2 * 1.2e-5


@dataclass(frozen=True)
class ListOfArrays(Collate):
    """A tensor is made of a list of arrays. Repaired: stacked."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "make_batch"
        text.add(
            "top",
            """
            def make_batch(samples):
                arrays, labels = [], []
                for sample, label in samples:
                    arrays.append(sample.numpy())
                    labels.append(label)
                return torch.tensor(arrays), torch.tensor(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        values = SIZE * SIZE * 3 if script.about.kind == "image" else getattr(storage(script), "features", 64)
        return values * 7e-5


@dataclass(frozen=True)
class DescribedSamples(Collate):
    """A sample is a dict with names, sizes and numbers about it. Repaired: the tensor alone."""

    more: int = 8
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([2, 10, 40]))

    def write(self, text: Text, script: Script) -> None:
        usual = (
            "torch.from_numpy(image).permute(2, 0, 1)"
            if script.about.kind == "image"
            else "torch.from_numpy(x)"
        )
        text.add(
            "work",
            f"""
            described = {{
                "input": {text.told.get("sample", usual)},
                "name": f"sample of class {{label}}",
                "shape": ({SIZE}, {SIZE}),
                "scores": {{f"score_{{k}}": label * k / 7 for k in range({self.more})}},
            }}
            """,
        )
        text.told["sample"] = "described"
        text.add("loop", 'x = x["input"]')
        # Before what others do to a batch.
        loop = text.sections["loop"]
        loop.insert(0, loop.pop())

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"few-tensors": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return 0.01 + self.more * 2e-3


@dataclass(frozen=True)
class MaskedLists(Collate):
    """Lists are padded and masked value by value in Python. Repaired: `pad_sequence`."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "with_mask"
        text.add(
            "top",
            """
            def with_mask(samples):
                longest = max(len(tokens) for tokens, _ in samples)
                mask = [[1 if place < len(tokens) else 0 for place in range(longest)] for tokens, _ in samples]
                ids = [[*tokens, *[0 for _ in range(longest - len(tokens))]] for tokens, _ in samples]
                return torch.tensor(ids) * torch.tensor(mask), torch.tensor([label for _, label in samples])
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pad-sequence": {"collate": PadSequence()}}

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * 3e-4


@dataclass(frozen=True)
class MixedUp(Collate):
    """Samples of a batch are mixed with their neighbours, by torch: nothing to repair."""

    share: float = 0.2
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([0.1, 0.3]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import default_collate")
        text.told["collate"] = "mixed"
        text.add(
            "top",
            f"""
            def mixed(samples):
                rows, labels = default_collate(samples)
                rows = rows.float()
                return torch.lerp(rows, rows.roll(1, 0), {self.share}), labels
            """,
        )

    def cost(self, script: Script) -> float:
        return 0.02


ACCESSES: list[type[Production]] = [
    WalksTree, SettingsEach, SamplesRemembered, SizesAsked, RetriedOpen, NamesInList, FilteredStream,
]  # fmt: skip
DECODINGS: list[type[Production]] = [OpencvToPillow, VerifiedDecode, MeansOfBlocks]
COLLATES: list[type[Production]] = [ListOfArrays, DescribedSamples, MaskedLists, MixedUp]
