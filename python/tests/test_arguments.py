"""Arguments are refused by name, and what is one thing is taken for one thing."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

NAN, INF = float("nan"), float("inf")


def images() -> wf.Dataset:
    return wf.from_tensor_slices(np.zeros((4, 8, 8, 3), np.uint8))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: wf.image_folder(""), ValueError, "root is empty"),
        (lambda: wf.image_folder(3), TypeError, "root is 3"),  # type: ignore[arg-type]
        (lambda: wf.image_folder("/tmp/\udcff"), ValueError, "root is"),
        (lambda: wf.image_folder("/tmp", extensions=b"jpg"), TypeError, "extensions is"),  # type: ignore[arg-type]
        (lambda: wf.webdataset("", fields="jpg"), ValueError, "urls is empty"),
        (lambda: images().map(T.Normalize([NAN] * 3, [1.0] * 3)), ValueError, "mean is nan"),
        (lambda: images().map(T.RandomRotation((0, INF))), ValueError, "degrees is inf"),
        (lambda: images().with_options(seed=NAN), ValueError, "seed is nan"),  # type: ignore[arg-type]
        (lambda: images().with_options(row_index="\udcff"), ValueError, "row_index is"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_one_text_is_one_name_and_bytes_are_paths(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("x.jpg", "y.png", "g"):
        (tmp_path / "a" / name).write_bytes(b"")
    assert len(wf.image_folder(tmp_path, extensions="jpg")) == 1
    assert len(wf.image_folder(bytes(tmp_path), extensions=[".jpg", ".png"])) == 2
    assert wf.from_tensor_slices(np.arange(3)).with_options(seed=np.int64(3)) is not None  # type: ignore[arg-type]


def _png(data: bytes) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize("transform", [T.CenterCrop(8), T.CenterCrop((30, 40))])
def test_pngs_are_refused_for_their_checksum_as_pillow_refuses_them(tmp_path: Path, transform: Any) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (30, 120), np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    packed = zlib.compress(raw)
    wrong = packed[:-4] + bytes([packed[-4] ^ 1]) + packed[-3:]
    stored = zlib.compress(raw, 0)
    for data in (packed, wrong, packed[:-4], packed[:-2], packed + b"xyz", stored, stored[:-1] + b"\0"):
        (tmp_path / "a.png").write_bytes(_png(data))
        try:
            Image.open(io.BytesIO(_png(data))).load()
            pillow = True
        except OSError:
            pillow = False
        ds = wf.image_files([tmp_path / "a.png"]).map(transform)
        try:
            next(iter(ds.batch(1).numpy()))
            ours = True
        except wf.CorruptSampleError:
            ours = False
        assert ours == pillow, (len(data), len(packed))


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    Image.new("RGB", (40, 30)).save(tmp_path / "data" / "a" / "1.jpg")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "000.list").write_bytes(b"")
    (cache / "000.data").mkdir()  # no file can be opened there
    ds = wf.image_folder(tmp_path / "data").cache(decoded="coefficients", path=cache)
    loader = ds.map(T.CenterCrop(8)).batch(1).numpy()
    with pytest.warns(RuntimeWarning, match=r"samples are not cached: cannot write to .*cache"):
        assert len(list(loader)) == 1
    assert len(list(loader)) == 1, "and only once"
