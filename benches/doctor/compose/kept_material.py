"""Data that kept productions read. As `material.py`, which rules may be developed with, and this not."""

from __future__ import annotations

import csv
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
from grammar import Maker
from material import DISTINCT, encoded, folder_of, picture, pictures, vectors


def webp_folder(count: int, size: int) -> Maker:
    """One lossy WebP for each image."""

    def write(image: np.ndarray) -> bytes:
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(image).save(out, "WEBP", quality=88)
        return out.getvalue()

    return folder_of(write, count, size, "webp")


def tensor_folder(count: int, size: int) -> Maker:
    """One file of `torch.save` for each image: a dict with `image`."""

    def write(image: np.ndarray) -> bytes:
        import torch

        out = io.BytesIO()
        torch.save({"image": torch.from_numpy(image), "size": image.shape[:2]}, out)
        return out.getvalue()

    return folder_of(write, count, size, "pt")


def image_lmdb(count: int, size: int) -> Maker:
    """JPEGs in a file of LMDB under their numbers."""

    def make(path: Path) -> None:
        import lmdb

        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        with (
            lmdb.open(str(path), map_size=1 << 30, subdir=False, lock=False) as base,
            base.begin(write=True) as writing,
        ):
            for i in range(count):
                writing.put(f"{i:06}".encode(), files[i % DISTINCT])

    return make


def image_zip(count: int, size: int, deflated: bool) -> Maker:
    """A zip with one npy for each image."""

    def make(path: Path) -> None:
        how = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", how) as archive:
            for i, image in enumerate(pictures(count, size)):
                out = io.BytesIO()
                np.save(out, image)
                archive.writestr(f"{i:05}.npy", out.getvalue())

    return make


def image_tiff(count: int, size: int, packed: bool) -> Maker:
    """A TIFF of one page for each image."""

    def make(path: Path) -> None:
        import tifffile

        with tifffile.TiffWriter(path) as pages:
            for image in pictures(count, size):
                pages.write(
                    image, photometric="rgb", compression="zlib" if packed else None, contiguous=False
                )

    return make


def row_groups(count: int, features: int, group: int) -> Maker:
    """Parquet with the columns `x` (lists) and `label`, in row groups of so many rows."""

    def make(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = vectors(count, features)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), features)
        table = pa.table({"x": lists, "label": np.arange(count) % 10})
        pq.write_table(table, path, row_group_size=group)

    return make


def arrow_rows(count: int, features: int) -> Maker:
    """A data set of Hugging Face's on disk, with `x` and `label`."""

    def make(path: Path) -> None:
        import datasets

        rows = {"x": list(vectors(count, features)), "label": (np.arange(count) % 10).tolist()}
        form = datasets.Features(
            {"x": datasets.Sequence(datasets.Value("float32")), "label": datasets.Value("int64")}
        )
        datasets.disable_progress_bars()
        datasets.Dataset.from_dict(rows, features=form).save_to_disk(str(path))

    return make


def records(count: int, features: int) -> Maker:
    """Records of one length: a byte with the label, then float32."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            for i, row in enumerate(vectors(count, features)):
                file.write(bytes([i % 10]) + row.tobytes())

    return make


def libsvm(count: int, features: int) -> Maker:
    """Lines of `label column:value …`, zeros left out."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, row in enumerate(vectors(count, features)):
                pairs = (f"{column}:{value:.3f}" for column, value in enumerate(row) if value)
                file.write(f"{i % 10} {' '.join(pairs)}\n")

    return make


def manifest(count: int, ending: str) -> Maker:
    """A CSV file with a header that lists files and more of them."""

    def make(path: Path) -> None:
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["file", "label", "split", "source"])
            for i in range(count):
                out.writerow([f"{i:05}.{ending}", i % 10, "train" if i % 5 else "extra", f"camera-{i % 7}"])

    return make


def jpeg_records(count: int, size: int) -> Maker:
    """TFRecords of examples with `image`, a JPEG, and `label`; written without TensorFlow."""

    def make(path: Path) -> None:
        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        made: dict[tuple[int, int], bytes] = {}
        with path.open("wb") as file:
            for i in range(count):
                key = (i % DISTINCT, i % 10)
                if key not in made:
                    made[key] = framed(example(files[key[0]], key[1]))
                file.write(made[key])

    return make


def example(image: bytes, label: int) -> bytes:
    """An `Example` of protocol buffers."""
    entries = b""
    for name, feature in (
        (b"image", field(1, field(1, image))),
        (b"label", field(3, field(1, varint(label)))),
    ):
        entries += field(1, field(1, name) + field(2, feature))
    return field(1, entries)


def field(number: int, body: bytes) -> bytes:
    """A field of bytes of protocol buffers."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    """A number of protocol buffers."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def framed(body: bytes) -> bytes:
    """A record with its length and checksums."""
    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked(length)) + body + struct.pack("<I", masked(body))


def crc_table() -> list[int]:
    """Of CRC-32C by bytes."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC = crc_table()


def masked(body: bytes) -> int:
    """CRC-32C as records have it."""
    crc = 0xFFFFFFFF
    for byte in body:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
