"""Storages of images: a file each, archives, arrays in chunks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from accesses import Kept, read_from
from grammar import OPEN, SIZE, Maker, Production, Script, Text
from storages import INFLATE, MappedImages, Storage

INFLATE_EACH = 0.07
"""Milliseconds of CPU that an image takes to inflate, about."""


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
class PngFolder(JpegFolder):
    """A folder of PNGs."""

    of: ClassVar[str] = OPEN
    ending: ClassVar[str] = "png"
    pixel: ClassVar[float] = 4e-5

    def bytes_each(self, script: Script) -> float:
        return self.size**2 * 2.2


@dataclass(frozen=True)
class TarJpegs(JpegFolder):
    """A tar of JPEGs, of which a member is looked up for each sample."""

    of: ClassVar[str] = OPEN
    form: ClassVar[str] = "container"
    held: ClassVar[bool] = True

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
class NpzEach(Storage):
    """An npz for each image, compressed or not. Repaired: uncompressed, or all in one array that is mapped."""

    compressed: bool = True
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    ending: ClassVar[str] = "npz"

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
class PickleEach(Storage):
    """A pickle for each image, by gzip or not."""

    packed: bool = True

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.random() < 0.6)

    @property
    def ending(self) -> str:
        """Of its files."""
        return "pkl.gz" if self.packed else "pkl"

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
class WebpFolder(JpegFolder):
    """A folder of WebP images."""

    of: ClassVar[str] = OPEN
    ending: ClassVar[str] = "webp"
    pixel: ClassVar[float] = 2.4e-5

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.webp_folder(script.about.count, self.size)}

    def bytes_each(self, script: Script) -> float:
        return self.size**2 * 0.3


@dataclass(frozen=True)
class LmdbJpegs(JpegFolder):
    """JPEGs in LMDB."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("lmdb",)
    form: ClassVar[str] = "container"
    held: ClassVar[bool] = True
    pixel: ClassVar[float] = 1.1e-5
    single: ClassVar[bool] = True

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
        return {self.name(script): material.image_lmdb(script.about.count, self.size)}


@dataclass(frozen=True)
class TensorEach(Storage):
    """A file of `torch.save` for each image. Repaired: all in one array that is mapped."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    ending: ClassVar[str] = "pt"

    def name(self, script: Script) -> str:
        return f"pt-{script.about.count}"

    def reading(self, script: Script, source: str) -> str:
        return f'stored = torch.load({source})\nimage = stored["image"].numpy()\nlabel = index % 10'

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": read_from(MappedImages(), script)}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.tensor_folder(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.17


@dataclass(frozen=True)
class ZippedArrays(Storage):
    """A zip of one npy for each image. Repaired: stored, if it is deflated."""

    deflated: bool = True
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.image_zip(script.about.count, SIZE, self.deflated)}

    def cost(self, script: Script) -> float:
        return 0.06 + (INFLATE_EACH if self.deflated else 0.0)

    def open_ms(self, script: Script) -> float:
        return script.about.count * 2e-3


@dataclass(frozen=True)
class TiffPages(Storage):
    """A TIFF of one page for each image, which is found by the pages before it. Repaired: one array, or no zlib."""

    packed: bool = True
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.image_tiff(script.about.count, SIZE, self.packed)}

    def cost(self, script: Script) -> float:
        return 0.08 + (INFLATE_EACH if self.packed else 0.0)

    def open_ms(self, script: Script) -> float:
        return 0.6


STORAGES: list[type[Production]] = [
    JpegFolder,
    PngFolder,
    TarJpegs,
    NpzEach,
    PickleEach,
    ChunkedImages,
    WebpFolder,
    LmdbJpegs,
    TensorEach,
    ZippedArrays,
    TiffPages,
]
