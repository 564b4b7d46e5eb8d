"""Files of FFCV: what its `DatasetWriter` writes, read by pipelines."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

PAGE = 1 << 14
IMAGE = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("ptr", "<u8")])
BYTES = np.dtype([("ptr", "<u8"), ("size", "<u8")])


def pixels(number: int, height: int = 9) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (height, 7, 3), np.uint8)


def jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "jpeg")
    return file.getvalue()


def write(path: Path, images: list[np.ndarray | bytes]) -> Path:
    """A file with fields `image`, `label` and `meta` as FFCV writes it, with the layout by NumPy's own rules."""
    row = np.dtype([("image", IMAGE), ("label", "<i8"), ("meta", BYTES)], align=True)
    names = [(2, b"image"), (1, b"label"), (5, b"meta")]
    fields = b"".join(struct.pack("<B16s1024x", *field) for field in names)
    rows = np.zeros(len(images), row)
    start = -(-(24 + len(fields) + rows.nbytes) // PAGE) * PAGE
    data, allocations = bytearray(), []

    def put(sample: int, value: bytes) -> int:
        data.extend(value)
        allocations.append((sample, start + len(data) - len(value), len(value)))
        return allocations[-1][1]

    for i, image in enumerate(images):
        meta = json.dumps({"id": i}).encode() + b"\0"
        value = image if isinstance(image, bytes) else image.tobytes()
        if len(data) % PAGE + len(value) + len(meta) > PAGE:
            data.extend(bytes(-len(data) % PAGE))
        height, width = (0, 0) if isinstance(image, bytes) else image.shape[:2]
        rows[i] = (
            (0 if isinstance(image, bytes) else 1, width, height, put(i, value)),
            i,
            (put(i, meta), len(meta)),
        )
    data.extend(bytes(-len(data) % PAGE))
    head = struct.pack("<HHIQQ", 2, len(names), PAGE, len(images), start + len(data))
    front = head + fields + rows.tobytes()
    table = b"".join(struct.pack("<3Q", *allocation) for allocation in allocations)
    path.write_bytes(front + bytes(start - len(front)) + data + table)
    return path


def test_samples_make_batches(tmp_path: Path) -> None:
    images = [pixels(i) for i in range(20)]
    ds = wf.beton(write(tmp_path / "a.beton", images))
    batch, labels, meta = next(iter(ds.shuffle(seed=0).batch(20).numpy()))
    assert sorted(labels) == list(range(20))
    assert [m["id"] for m in meta] == labels.tolist()
    assert np.array_equal(batch, np.stack(images).transpose(0, 3, 1, 2)[labels])
    mixed = [
        jpeg(image) if i % 3 else image for i, image in enumerate(pixels(i, 8 + i % 3) for i in range(20))
    ]
    ds = wf.beton(write(tmp_path / "b.beton", mixed), fields=["label", "image"])
    labels, batch = next(iter(ds.map(T.CenterCrop(4)).batch(20).numpy()))
    assert batch.shape == (20, 3, 4, 4)
    image = ds.sample(0)[1]
    assert np.array_equal(image, mixed[0].transpose(2, 0, 1))
    assert len(wf.beton(tmp_path / "*.beton", fields="label")) == 40
    with pytest.raises(ValueError, match="there are image, label, meta"):
        wf.beton(tmp_path / "a.beton", fields="none")
    path = tmp_path / "a.beton"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(wf.CorruptSampleError, match="cut"):
        wf.beton(path)


def test_inspect_finds_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.beton", [jpeg(pixels(i)) for i in range(10)])
    data = bytearray(path.read_bytes())
    at = data.find(jpeg(pixels(3)))
    data[at : at + 4] = b"none"
    # The last allocation: that of the last sample's bytes.
    data[-1] ^= 1
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "wellfed", "inspect", str(path), "--json"], capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert (report["format"], report["samples"], len(report["bad_samples"])) == ("beton", 10, 2), done.stderr
    assert [bad["index"] for bad in report["bad_samples"]] == [3, 9]
