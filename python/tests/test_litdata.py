"""LitData chunks: what `litdata.optimize` writes, read by pipelines."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

LEAF = {"type": None, "context": None, "children_spec": []}


def picture(number: int) -> bytes:
    file = io.BytesIO()
    rng = np.random.default_rng(number)
    Image.fromarray(rng.integers(0, 256, (9, 7, 3), np.uint8)).save(file, "jpeg")
    return file.getvalue()


def write(folder: Path, keys: list[str], formats: list[str], items: list[list[bytes]], size: int = 4) -> Path:
    """Chunks as LitData's `BinaryWriter` writes them."""
    folder.mkdir(exist_ok=True)
    chunks = []
    for start in range(0, len(items), size):
        packed = [
            struct.pack(f"<{len(item)}I", *map(len, item)) + b"".join(item)
            for item in items[start : start + size]
        ]
        offsets = np.cumsum([4 * (len(packed) + 2), *map(len, packed)]).astype(np.uint32)
        name = f"chunk-0-{len(chunks)}.bin"
        (folder / name).write_bytes(np.uint32(len(packed)).tobytes() + offsets.tobytes() + b"".join(packed))
        chunks.append(
            {"filename": name, "chunk_size": len(packed), "chunk_bytes": int(offsets[-1]), "dim": None}
        )
    spec = {"type": "builtins.dict", "context": json.dumps(keys), "children_spec": [LEAF] * len(keys)}
    config: dict[str, Any] = {
        "compression": None, "chunk_size": size, "chunk_bytes": None, "data_format": formats,
        "data_spec": json.dumps([1, spec]), "encryption": None, "item_loader": "PyTreeLoader",
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": config, "updated_at": "1"}))
    return folder


def samples(folder: Path, count: int = 10) -> Path:
    items = [[struct.pack("<q", i), picture(i), json.dumps({"id": [i]}).encode()] for i in range(count)]
    return write(folder, ["label", "image", "more"], ["int", "jpeg", "json"], items)


def test_items_make_batches(tmp_path: Path) -> None:
    ds = wf.litdata(samples(tmp_path / "a"))
    assert set(ds.sample(3)) == {"label", "image", "more"}
    batch = next(iter(ds.shuffle(seed=0).map(T.CenterCrop(4)).batch(10).numpy()))
    assert batch["image"].shape == (10, 3, 4, 4)
    assert [more["id"][0] for more in batch["more"]] == batch["label"].tolist()
    assert sorted(batch["label"]) == list(range(10))
    tuples = wf.litdata(tmp_path / "a", fields=["label"])
    assert [int(label) for (label,) in (tuples.sample(i) for i in range(10))] == list(range(10))
    with pytest.raises(ValueError, match="there are label, image, more"):
        wf.litdata(tmp_path / "a", fields="none")
    with pytest.raises(ValueError, match="at least 1"):
        wf.litdata(tmp_path / "a", block_size=0)
    path = tmp_path / "a" / "chunk-0-1.bin"
    path.write_bytes(path.read_bytes()[:-100])
    loader = wf.litdata(tmp_path / "a").with_options(on_error="skip").batch(10).numpy()
    assert sum(len(batch["label"]) for batch in loader) == 9
    assert [error.key for error in loader.errors()] == [f"{path}[3]"]


def test_arrays_keep_their_shapes(tmp_path: Path) -> None:
    arrays = [np.full((2, 3), i, np.float32) for i in range(5)]
    head = struct.pack(">4I", 1, 2, 2, 3)
    tokens = [np.arange(i + 1, dtype=np.int64) for i in range(5)]
    items = [[head + a.tobytes(), t.tobytes()] for a, t in zip(arrays, tokens, strict=True)]
    ds = wf.litdata(write(tmp_path, ["x", "ids"], ["tensor", "no_header_tensor:18"], items))
    batch = next(iter(ds.padded_batch(5).numpy()))
    assert np.array_equal(batch["x"], arrays)
    assert batch["ids"].shape == (5, 5)
    assert batch["ids"][4].tolist() == [0, 1, 2, 3, 4]


def test_inspect_counts_items(tmp_path: Path) -> None:
    samples(tmp_path)
    path = tmp_path / "chunk-0-0.bin"
    path.write_bytes(path.read_bytes().replace(picture(1), b"x" * len(picture(1))))
    done = subprocess.run(
        [sys.executable, "-m", "wellfed", "inspect", str(tmp_path), "--json"], capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert (report["format"], report["samples"], len(report["bad_samples"])) == ("litdata", 10, 1), (
        done.stderr
    )
