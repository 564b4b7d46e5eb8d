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
from storages import INFLATE, MappedImages, Storage
from storages_images import JpegFolder


@dataclass(frozen=True)
class VolumeSlices(Storage):
    """Slices of scans: a scan is read whole for each, by gzip or not. Repaired: mapped, or uncompressed."""

    slices: int = 24
    how: str = "packed"
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        slices = 4 if script.about.small else rng.choice([6, 20, 60])
        return cls(slices, rng.choice(["packed", "packed", "whole"]))

    def name(self, script: Script) -> str:
        return f"scans-{script.about.count}-{self.slices}{'-packed' if self.how == 'packed' else ''}"

    def reading(self, script: Script, source: str) -> str:
        scan = {
            "packed": "with gzip.open(self.scans[number]) as file:\n    scan = np.load(file)",
            "whole": "scan = np.load(self.scans[number])",
            "mapped": 'scan = np.load(self.scans[number], mmap_mode="r")',
        }[self.how]
        return (
            f"number, at = divmod(index, {self.slices})\n{scan}\n"
            f"planes = np.stack([scan[place] for place in (max(at - 1, 0), at, min(at + 1, {self.slices - 1}))], -1)\n"
            "image = (np.clip(planes, -900, 900) / 8 + 120).astype(np.uint8)\n"
            "label = number % 10"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", *(["import gzip"] if self.how == "packed" else []))
        text.add("init", f'self.scans = sorted((DATA / "{self.name(script)}").iterdir())')

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        found: dict[str, dict[str, Production]] = {"read-part": {"storage": replace(self, how="mapped")}}
        if self.how == "packed":
            found["uncompressed"] = {"storage": replace(self, how="whole")}
        return found

    def data(self, script: Script) -> dict[str, Maker]:
        made = kept_material.volumes(script.about.count, self.slices, self.how == "packed")
        return {self.name(script): made}

    def cost(self, script: Script) -> float:
        each = {"packed": SIZE**2 * 2 * INFLATE, "whole": 0.002, "mapped": 0.0}[self.how]
        return 0.2 + self.slices * each

    def bytes_each(self, script: Script) -> float:
        return SIZE**2 * 2.0 * (3 if self.how == "mapped" else self.slices)


@dataclass(frozen=True)
class BlobImages(JpegFolder):
    """JPEGs in a table of SQLite."""

    of: ClassVar[str] = KEPT
    form: ClassVar[str] = "container"
    held: ClassVar[bool] = True

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(SIZE if script.about.small else rng.choice([SIZE, 112, 200, 320]))

    def name(self, script: Script) -> str:
        return f"blobs-{self.size}px-{script.about.count}.db"

    def opening(self, script: Script) -> str:
        return f'sqlite3.connect(DATA / "{self.name(script)}")'

    def reading(self, script: Script, source: str) -> str:
        return (
            f'row = {source}.execute("SELECT jpeg, label FROM images WHERE id = ?", (index,)).fetchone()\n'
            "coded = io.BytesIO(row[0])\n"
            "label = row[1]"
        )

    def write(self, text: Text, script: Script) -> None:
        text.need("import io", "import sqlite3")

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.image_blobs(script.about.count, self.size)}


@dataclass(frozen=True)
class PixelStrings(Storage):
    """Grey images as strings of numbers in a CSV, taken apart for each sample. Repaired: all once."""

    how: str = "list"
    once: bool = False
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice(["list", "numpy"]))

    def name(self, script: Script) -> str:
        return f"pixels-{script.about.count}.csv"

    def reading(self, script: Script, source: str) -> str:
        grey = "self.grey[index]" if self.once else "pixels(self.strings[index])"
        return f"image = np.repeat({grey}, 3, axis=2)\nlabel = index % 10"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "import pandas as pd")
        taken = {
            "list": "np.array([int(value) for value in string.split()], np.uint8)",
            "numpy": 'np.array(string.split(" "), dtype="float32").astype(np.uint8)',
        }[self.how]
        text.add("top", f"def pixels(string):\n    return {taken}.reshape({SIZE}, {SIZE}, 1)")
        text.add("init", f'strings = pd.read_csv(DATA / "{self.name(script)}")["pixels"]')
        kept = (
            "grey = np.stack([pixels(string) for string in strings])"
            if self.once
            else "strings = strings.tolist()"
        )
        text.add("init", f"self.{kept}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"parse-once": {"storage": replace(self, once=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.pixel_table(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.02 if self.once else SIZE**2 * (9e-5 if self.how == "list" else 2.2e-4)


@dataclass(frozen=True)
class ClassTree(JpegFolder):
    """A folder for each class, listed once; many are as small as they are used."""

    of: ClassVar[str] = KEPT
    form: ClassVar[str] = "memory"
    weight: ClassVar[float] = 1.4

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(SIZE if script.about.small else rng.choice([SIZE, 72, 80, 140, 300]))

    def name(self, script: Script) -> str:
        return f"tree-{self.size}px-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return "coded, label = self.samples[index]"

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "init",
            f"""
            root = DATA / "{self.name(script)}"
            classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
            numbers = {{name: number for number, name in enumerate(classes)}}
            self.samples = [(path, numbers[path.parent.name]) for path in sorted(root.glob("*/*.jpg"))]
            """,
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.class_tree(script.about.count, self.size)}


@dataclass(frozen=True)
class MappedCrops(MappedImages):
    """Parts of larger images in one npy that is mapped: nothing to repair."""

    of: ClassVar[str] = KEPT
    weight: ClassVar[float] = 0.8

    def name(self, script: Script) -> str:
        return f"images-96px-{script.about.count}.npy"

    def reading(self, script: Script, source: str) -> str:
        return (
            "top, left = index * 7 % 33, index * 11 % 33\n"
            f"image = np.array({source}[index, top : top + {SIZE}, left : left + {SIZE}])\n"
            "label = index % 10"
        )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.image_array(script.about.count, 96)}


STORAGES: list[type[Production]] = [VolumeSlices, BlobImages, PixelStrings, ClassTree, MappedCrops]
