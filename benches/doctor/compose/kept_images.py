"""Kept productions of storages of images: for final figures, not to develop rules with.

Invariant: nothing imports these but `drawing.py` and other kept files, and no rule is changed after a look at them
(README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
import material
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from storages import INFLATE, Storage
from storages_images import JpegFolder


@dataclass(frozen=True)
class LabelledJson(JpegFolder):
    """A JSON for each image that holds it as base64. Repaired: JPEGs beside it are read."""

    beside: bool = False
    of: ClassVar[str] = KEPT
    coded_as: ClassVar[str] = "jpg"

    @property
    def ending(self) -> str:  # type: ignore[override]
        """Of its files."""
        return "jpg" if self.beside else "json"

    @property
    def held(self) -> bool:  # type: ignore[override]
        """Whether `coded` is a file in memory."""
        return not self.beside

    def reading(self, script: Script, source: str) -> str:
        if self.beside:
            return super().reading(script, source)
        return (
            f"annotation = json.loads({source}.read_text())\n"
            'coded = io.BytesIO(base64.b64decode(annotation["imageData"]))\n'
            "label = index % 10"
        )

    def write(self, text: Text, script: Script) -> None:
        if not self.beside:
            text.need("import base64", "import io", "import json")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "parse-once": {"storage": replace(self, beside=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        if self.beside:
            return super().data(script)
        return {self.name(script): kept_material.labelled_json(script.about.count, self.size)}

    def cost(self, script: Script) -> float:
        return super().cost(script) + (0.1 + self.size**2 * 1.5e-6 if not self.beside else 0.0)

    def bytes_each(self, script: Script) -> float:
        return super().bytes_each(script) * 1.34 + 5000


@dataclass(frozen=True)
class BoxesInXml(JpegFolder):
    """Boxes of an image lie in an XML, which is parsed for each sample. Repaired: all once."""

    objects: int = 10
    once: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        size = SIZE if script.about.small else rng.choice([80, 128, 224])
        return cls(size, rng.choice([3, 20, 80]))

    def boxes(self, script: Script) -> str:
        """Name of the folder of boxes."""
        return f"boxes-{script.about.count}-{self.objects}"

    def reading(self, script: Script, source: str) -> str:
        taken = "self.labels[index]" if self.once else "main_class(index)"
        return f"coded = {source}\nlabel = {taken}"

    def write(self, text: Text, script: Script) -> None:
        text.need("import xml.etree.ElementTree as ET")
        text.add(
            "top",
            f"""
            def main_class(index):
                tree = ET.parse(DATA / "{self.boxes(script)}" / f"{{index:05}}.xml")
                areas = {{}}
                for thing in tree.findall("object"):
                    box = thing.find("bndbox")
                    left, top, right, bottom = (int(box.find(s).text) for s in ("xmin", "ymin", "xmax", "ymax"))
                    name = thing.find("name").text
                    areas[name] = areas.get(name, 0) + (right - left) * (bottom - top)
                return int(max(areas, key=areas.get).split("-")[1])
            """,
        )
        if self.once:
            text.add("init", "self.labels = [main_class(index) for index in range(len(self))]")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "parse-once": {"storage": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        made = kept_material.annotation_folder(script.about.count, self.objects)
        return {**super().data(script), self.boxes(script): made}

    def cost(self, script: Script) -> float:
        return super().cost(script) + (0.05 + self.objects * 0.011 if not self.once else 0.0)


@dataclass(frozen=True)
class FramesOfClips(Storage):
    """Clips of some images, of which one is taken: a clip is loaded whole. Repaired: mapped, or uncompressed."""

    frames: int = 16
    form_of_clips: str = "npy"
    mapped: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        frames = 4 if script.about.small else rng.choice([4, 16, 48])
        return cls(frames, rng.choice(["npy", "npy", "packed"]))

    def name(self, script: Script) -> str:
        return f"clips-{script.about.count}-{self.frames}-{self.form_of_clips}"

    def reading(self, script: Script, source: str) -> str:
        load = "np.load(self.clips[clip])"
        taken = {
            "npy": f"image = {load}[frame]",
            "packed": f'image = {load}["frames"][frame]',
            "stored": f'image = {load}["frames"][frame]',
        }[self.form_of_clips]
        if self.mapped:
            taken = 'image = np.array(np.load(self.clips[clip], mmap_mode="r")[frame])'
        return f"clip, frame = divmod(index, {self.frames})\n{taken}\nlabel = clip % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("init", f'self.clips = sorted((DATA / "{self.name(script)}").glob("*.np*"))')

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {
            "read-part": {"storage": replace(self, form_of_clips="npy", mapped=True)}
        }
        if self.form_of_clips == "packed":
            found["uncompressed"] = {"storage": replace(self, form_of_clips="stored")}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.clips(script.about.count, self.frames, self.form_of_clips)}

    def cost(self, script: Script) -> float:
        if self.mapped:
            return 0.06
        return 0.1 + self.frames * (SIZE**2 * 3 * INFLATE if self.form_of_clips == "packed" else 0.004)


@dataclass(frozen=True)
class NamedScans(JpegFolder):
    """JPEGs as bytes under their names in HDF5."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("h5py",)
    form: ClassVar[str] = "container"
    held: ClassVar[bool] = True
    pixel: ClassVar[float] = 1.1e-5

    def name(self, script: Script) -> str:
        return f"scans-{self.size}px-{script.about.count}.h5"

    def opening(self, script: Script) -> str:
        return f'h5py.File(DATA / "{self.name(script)}", "r")'

    def reading(self, script: Script, source: str) -> str:
        return (
            f'stored = {source}[f"scan_{{index:06}}"][()]\n'
            "coded = io.BytesIO(stored.tobytes())\n"
            "label = index % 10"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import h5py")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.image_h5_bytes(script.about.count, self.size)}

    def open_ms(self, script: Script) -> float:
        return 0.5


@dataclass(frozen=True)
class PickledBatches(Storage):
    """Pickles of many images by channels, all of them in memory: nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "memory"
    weight: ClassVar[float] = 1.3

    def name(self, script: Script) -> str:
        return f"batches-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return "image = self.images[index].transpose(1, 2, 0).copy()\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import pickle", "import numpy as np")
        text.add(
            "init",
            f"""
            parts = []
            for path in sorted((DATA / "{self.name(script)}").glob("data_batch_*")):
                with path.open("rb") as file:
                    parts.append(pickle.load(file, encoding="bytes")[b"data"])
            self.images = np.concatenate(parts).reshape(-1, 3, {SIZE}, {SIZE})
            """,
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.pickled_batches(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.02


@dataclass(frozen=True)
class TarInOrder(JpegFolder):
    """A tar of JPEGs that is read from its beginning."""

    of: ClassVar[str] = KEPT
    form: ClassVar[str] = "stream"
    held: ClassVar[bool] = True

    def name(self, script: Script) -> str:
        return f"jpg-{self.size}px-{script.about.count}.tar"

    def opening(self, script: Script) -> str:
        return f'tarfile.open(DATA / "{self.name(script)}", "r|")'

    def reading(self, script: Script, source: str) -> str:
        return f"coded = io.BytesIO(file.extractfile({source}).read())\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import tarfile")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_tar(script.about.count, self.size)}


STORAGES: list[type[Production]] = [
    LabelledJson, BoxesInXml, FramesOfClips, NamedScans, PickledBatches, TarInOrder,
]  # fmt: skip
