"""The data of the cases: made once, in a folder that may be deleted at any time."""

from __future__ import annotations

import csv
import io
import json
import pickle
import struct
import sys
import tarfile
import types
import wave
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def photographs(folder: Path, count: int, width: int = 500, height: int = 375) -> str:
    """`count` JPEGs in four classes, of the size that photographs in data sets have."""
    root = folder / f"photographs-{count}"

    def write(path: Path, i: int) -> None:
        _photograph(i, width, height).save(path, quality=90)

    _files(root, count, lambda i: f"class{i % 4}/{i:05}.jpg", write)
    return str(root)


def _photograph(i: int, width: int, height: int) -> Image.Image:
    """Waves of random length, and noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    random = np.random.default_rng(i)
    waves = [np.sin(columns * random.uniform(0.01, 0.1) + rows * random.uniform(0.01, 0.1)) for _ in range(3)]
    pixels = 128 + 90 * np.stack(waves, 2) + random.normal(0, 8, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


SIZES = [(500, 375), (375, 500), (500, 333), (500, 400)]
"""Width and height of photographs in data sets whose images differ in size."""


def _things(i: int, width: int, height: int) -> list[tuple[int, int, int, int]]:
    """Left, top, width and height of what is to be seen in photograph `i`."""
    random = np.random.default_rng(1_000_000 + i)
    things = []
    for _ in range(1 + i % 7):
        w, h = (int(random.integers(side // 8, side // 2)) for side in (width, height))
        things.append((int(random.integers(0, width - w)), int(random.integers(0, height - h)), w, h))
    return things


def voc(folder: Path, count: int) -> str:
    """Photographs with masks of their things, in the layout of VOC's segmentation."""
    root = folder / f"voc-{count}"
    names = [f"{i:06}" for i in range(count)]
    palette = np.random.default_rng(0).integers(0, 256, 768, np.uint8).tobytes()

    def write(path: Path, at: int) -> None:
        if path.suffix == ".txt":
            path.write_text("".join(f"{name}\n" for name in names))
            return
        i = at % count
        width, height = SIZES[i % len(SIZES)]
        if path.suffix == ".jpg":
            _photograph(i, width, height).save(path, quality=90)
            return
        labels = np.zeros((height, width), np.uint8)
        for number, (x, y, w, h) in enumerate(_things(i, width, height)):
            labels[y : y + h, x : x + w] = 255  # the border that is in no class
            labels[y + 3 : y + h - 3, x + 3 : x + w - 3] = 1 + (i + number) % 20
        mask = Image.frombytes("P", (width, height), labels.tobytes())
        mask.putpalette(palette)
        mask.save(path)

    base = "VOCdevkit/VOC2012"
    paths = [
        *(f"{base}/JPEGImages/{name}.jpg" for name in names),
        *(f"{base}/SegmentationClass/{name}.png" for name in names),
        f"{base}/ImageSets/Segmentation/train.txt",
    ]
    _files(root, len(paths), paths.__getitem__, write)
    return str(root)


def coco(folder: Path, count: int) -> tuple[str, str]:
    """Photographs and the file of their boxes, in COCO's layout.

    Where pycocotools is not installed, as much of it as is needed takes its place.
    """
    root = folder / f"coco-{count}"

    def write(path: Path, i: int) -> None:
        if path.suffix == ".jpg":
            _photograph(i, *SIZES[i % len(SIZES)]).save(path, quality=90)
            return
        images: list[dict[str, Any]] = []
        notes: list[dict[str, Any]] = []
        for number in range(count):
            width, height = SIZES[number % len(SIZES)]
            images.append({"id": number, "file_name": f"{number:012}.jpg", "width": width, "height": height})
            for box in _things(number, width, height):
                note = {"id": len(notes) + 1, "image_id": number, "category_id": 1 + len(notes) % 90}
                notes.append(
                    {**note, "bbox": [side + 0.25 for side in box], "area": box[2] * box[3], "iscrowd": 0}
                )
        path.write_text(json.dumps({"images": images, "annotations": notes}))

    names = [*(f"images/{i:012}.jpg" for i in range(count)), "notes.json"]
    _files(root, len(names), names.__getitem__, write)
    try:
        import pycocotools.coco  # noqa: F401
    except ModuleNotFoundError:
        module = types.ModuleType("pycocotools.coco")
        module.COCO = _COCO  # type: ignore[attr-defined]
        sys.modules["pycocotools"] = types.ModuleType("pycocotools")
        sys.modules["pycocotools.coco"] = module
    return str(root / "images"), str(root / "notes.json")


class _COCO:
    """What torchvision uses of pycocotools."""

    def __init__(self, path: str) -> None:
        given = json.loads(Path(path).read_text())
        self.imgs = {image["id"]: image for image in given["images"]}
        self.anns = {note["id"]: note for note in given["annotations"]}
        self.imgToAnns: dict[int, list[Any]] = defaultdict(list)
        for note in given["annotations"]:
            self.imgToAnns[note["image_id"]].append(note)

    def loadImgs(self, image: int) -> list[Any]:  # noqa: N802 (its name)
        return [self.imgs[image]]

    def getAnnIds(self, image: int) -> list[int]:  # noqa: N802 (its name)
        return [note["id"] for note in self.imgToAnns[image]]

    def loadAnns(self, ids: list[int]) -> list[Any]:  # noqa: N802 (its name)
        return [self.anns[i] for i in ids]


def arrays(folder: Path, count: int) -> list[Path]:
    """Files of float32 arrays."""

    def write(path: Path, i: int) -> None:
        np.save(path, np.random.default_rng(i).random((3, 96, 96), np.float32))

    return _files(folder / f"arrays-{count}", count, lambda i: f"{i:05}.npy", write)


def sounds(folder: Path, count: int) -> list[Path]:
    """A second of sound a file."""

    def write(path: Path, i: int) -> None:
        with wave.open(str(path), "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(np.random.default_rng(i).integers(-9999, 9999, 16000).astype(np.int16).tobytes())

    return _files(folder / f"sounds-{count}", count, lambda i: f"{i:05}.wav", write)


def pickles(folder: Path, count: int) -> list[Path]:
    """A dictionary a file."""

    def write(path: Path, i: int) -> None:
        x = np.random.default_rng(i).random((64, 64), np.float32)
        path.write_bytes(pickle.dumps({"x": x, "y": i % 10}))

    return _files(folder / f"pickles-{count}", count, lambda i: f"{i:05}.pkl", write)


def matrix(folder: Path, rows: int) -> str:
    """One file of rows."""

    def write(path: Path, _: int) -> None:
        np.save(path, np.random.default_rng(0).random((rows, 256), np.float32))

    return str(_files(folder / f"matrix-{rows}", 1, lambda _: "rows.npy", write)[0])


def table(folder: Path, rows: int) -> str:
    """One file of comma-separated values, the last of which is the label."""

    def write(path: Path, _: int) -> None:
        values = np.random.default_rng(0).random((rows, 16))
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([*row, i % 10] for i, row in enumerate(values.tolist()))

    return str(_files(folder / f"table-{rows}", 1, lambda _: "rows.csv", write)[0])


def database(folder: Path, count: int) -> tuple[str, int]:
    """The photographs in LMDB, under their numbers."""
    import lmdb

    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    target = folder / f"database-{count}"
    with lmdb.open(str(target), map_size=1 << 30) as opened, opened.begin(write=True) as writing:
        if writing.stat()["entries"] != count:
            for number, path in enumerate(paths):
                writing.put(b"%d" % number, path.read_bytes())
    return str(target), count


def shards(folder: Path, count: int) -> str:
    """The photographs in four tar shards, with their classes."""
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))

    def write(path: Path, shard: int) -> None:
        with tarfile.open(path, "w") as tar:
            for number in range(shard, count, 4):
                label = paths[number].parent.name.removeprefix("class").encode()
                for extension, data in (("jpg", paths[number].read_bytes()), ("cls", label)):
                    member = tarfile.TarInfo(f"{number:06}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))

    root = folder / f"shards-{count}"
    _files(root, 4, lambda i: f"train-{i:04}.tar", write)
    return f"{root}/train-{{0000..0003}}.tar"


def chunks(folder: Path, count: int) -> str:
    """The photographs in chunks of LitData, as pixels, with their numbers."""
    from litdata.streaming.writer import BinaryWriter

    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    target = folder / f"chunks-{count}"
    if not (target / "index.json").exists():
        target.mkdir(parents=True, exist_ok=True)
        writer = BinaryWriter(str(target), chunk_size=64)
        for number, path in enumerate(paths):
            writer[number] = (Image.open(path).convert("RGB"), number)
        writer.done()
        writer.merge()
    return str(target)


def cifar10(folder: Path, count: int) -> str:
    """Files of CIFAR-10's Python version, with five times `count` images, for torchvision's class."""
    from torchvision import datasets

    def write(path: Path, i: int) -> None:
        random = np.random.default_rng(i)
        images = random.integers(0, 256, (count, 3072), np.uint8)
        labels = random.integers(0, 10, count).tolist()
        names = [str(name) for name in range(10)]
        path.write_bytes(pickle.dumps({"data": images, "labels": labels, "label_names": names}, 4))

    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]
    root = folder / f"cifar-{count}"
    _files(root, len(names), lambda i: f"cifar-10-batches-py/{names[i]}", write)
    # They are not the files that were published, so that their checksums are others.
    kind = datasets.CIFAR10
    kind.train_list = [[name, None] for name in names[:5]]
    kind.test_list = [["test_batch", None]]
    kind.meta = {**kind.meta, "md5": None}
    return str(root)


def mnist(folder: Path, count: int) -> str:
    """Files of MNIST with `count` images."""

    def write(path: Path, _: int) -> None:
        random = np.random.default_rng(0)
        if "images" in path.name:
            head = struct.pack(">4i", 0x803, count, 28, 28)
            path.write_bytes(head + random.integers(0, 256, (count, 28, 28), np.uint8).tobytes())
        else:
            path.write_bytes(
                struct.pack(">2i", 0x801, count) + random.integers(0, 10, count, np.uint8).tobytes()
            )

    names = [
        f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    root = folder / f"mnist-{count}"
    _files(root, len(names), lambda i: f"MNIST/raw/{names[i]}", write)
    return str(root)


def hdf5(folder: Path, count: int) -> str:
    """Images and labels in one HDF5 file."""
    import h5py

    def write(path: Path, _: int) -> None:
        random = np.random.default_rng(0)
        with h5py.File(path, "w") as file:
            file["images"] = random.integers(0, 256, (count, 96, 96, 3), np.uint8)
            file["labels"] = random.integers(0, 10, count)

    return str(_files(folder / f"hdf5-{count}", 1, lambda _: "images.h5", write)[0])


def _files(
    root: Path, count: int, name: Callable[[int], str], write: Callable[[Path, int], None]
) -> list[Path]:
    """`count` files under `root`; the last thing that is made says that all of them are there."""
    paths = [root / name(i) for i in range(count)]
    done = root / "done"
    if not done.exists():
        for i, path in enumerate(paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(path, i)
        done.touch()
    return paths
