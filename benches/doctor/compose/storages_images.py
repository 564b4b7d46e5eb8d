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


@dataclass(frozen=True)
class LabelledJson(JpegFolder):
    """A JSON for each image that holds it as base64. Repaired: JPEGs beside it are read."""

    beside: bool = False
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.labelled_json(script.about.count, self.size)}

    def cost(self, script: Script) -> float:
        return super().cost(script) + (0.1 + self.size**2 * 1.5e-6 if not self.beside else 0.0)

    def bytes_each(self, script: Script) -> float:
        return super().bytes_each(script) * 1.34 + 5000


@dataclass(frozen=True)
class BoxesInXml(JpegFolder):
    """Boxes of an image lie in an XML, which is parsed for each sample. Repaired: all once."""

    objects: int = 10
    once: bool = False
    of: ClassVar[str] = OPEN

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
        made = material.annotation_folder(script.about.count, self.objects)
        return {**super().data(script), self.boxes(script): made}

    def cost(self, script: Script) -> float:
        return super().cost(script) + (0.05 + self.objects * 0.011 if not self.once else 0.0)


@dataclass(frozen=True)
class FramesOfClips(Storage):
    """Clips of some images, of which one is taken: a clip is loaded whole. Repaired: mapped, or uncompressed."""

    frames: int = 16
    form_of_clips: str = "npy"
    mapped: bool = False
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.clips(script.about.count, self.frames, self.form_of_clips)}

    def cost(self, script: Script) -> float:
        if self.mapped:
            return 0.06
        return 0.1 + self.frames * (SIZE**2 * 3 * INFLATE if self.form_of_clips == "packed" else 0.004)


@dataclass(frozen=True)
class NamedScans(JpegFolder):
    """JPEGs as bytes under their names in HDF5."""

    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.image_h5_bytes(script.about.count, self.size)}

    def open_ms(self, script: Script) -> float:
        return 0.5


@dataclass(frozen=True)
class PickledBatches(Storage):
    """Pickles of many images by channels, all of them in memory: nothing to repair."""

    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.pickled_batches(script.about.count, SIZE)}

    def cost(self, script: Script) -> float:
        return 0.02


@dataclass(frozen=True)
class TarInOrder(JpegFolder):
    """A tar of JPEGs that is read from its beginning."""

    of: ClassVar[str] = OPEN
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
    LabelledJson,
    BoxesInXml,
    FramesOfClips,
    NamedScans,
    PickledBatches,
    TarInOrder,
]
