"""Zip archives, lines of JSON, arrays in files and MDS shards: what others write, read by pipelines."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T


def picture(number: int) -> bytes:
    file = io.BytesIO()
    rng = np.random.default_rng(number)
    Image.fromarray(rng.integers(0, 256, (9, 7, 3), np.uint8)).save(file, "png")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(12):
        path = tmp_path / "train" / "abc"[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(i))
    return tmp_path


def archive(path: Path, compression: int, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def batches(ds: wf.Dataset, workers: int = 2) -> list[Any]:
    pipeline = ds.shuffle(seed=3).map(T.RandomCrop(4)).batch(5).with_options(num_workers=workers)
    return list(pipeline.numpy())


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_gives_what_its_folder_gives(folder: Path, compression: int) -> None:
    files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.png"))}
    path = archive(folder / "a.zip", compression, files)
    plain, zipped = wf.image_folder(folder / "train"), wf.image_folder(f"{path}!/train")
    assert zipped.classes == plain.classes == ["a", "b", "c"]
    expected = batches(plain)
    for ds, workers in ((zipped, 1), (zipped, 4), (wf.image_folder(f"delayed+file://{path}!/train"), 2)):
        found = batches(ds, workers)
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert np.array_equal(a[0], b[0])
            assert np.array_equal(a[1], b[1])
    assert len(wf.image_folder(path, labels=None)) == 12


def test_samples_by_key_in_archives(tmp_path: Path) -> None:
    for shard in range(2):
        members = {f"{i}.png": picture(i) for i in range(3)} | {
            f"{i}.cls": f"{shard}{i}".encode() for i in range(3)
        }
        archive(tmp_path / f"s-{shard}.zip", zipfile.ZIP_DEFLATED, members)
    ds = wf.webdataset(tmp_path / "s-{0..1}.zip", fields=["png", "cls"])
    images, labels = next(iter(ds.batch(6).numpy()))
    assert images.shape == (6, 3, 9, 7)
    assert labels.tolist() == [0, 1, 2, 10, 11, 12]


def shards_of(folder: Path, count: int = 3) -> list[Path]:
    """Tar shards of four samples each."""
    paths = []
    for shard in range(count):
        paths.append(folder / f"s-{shard}.tar")
        with tarfile.open(paths[-1], "w") as tar:
            for number in range(4 * shard, 4 * shard + 4):
                for name, data in (
                    (f"{number:03}.bin", bytes([number]) * 700),
                    (f"{number:03}.cls", b"%d" % number),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return paths


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("ending", ["tar.gz", "tar.zst"])
def test_compressed_shards_have_the_samples_of_plain_ones(tmp_path: Path, ending: str) -> None:
    fields = ["__key__", "bin", "cls"]
    for path in shards_of(tmp_path):
        data = path.read_bytes()
        packed = gzip.compress(data) if ending == "tar.gz" else pa.compress(data, codec="zstd", asbytes=True)
        path.with_suffix(f".{ending}").write_bytes(packed)
    urls = str(tmp_path / f"s-{{0..2}}.{ending}")
    with pytest.raises(wf.UnsupportedSampleError, match="cannot be read by position") as caught:
        wf.webdataset(urls, fields=fields)
    assert "unpack_to" in str(caught.value)
    plain = wf.webdataset(tmp_path / "s-*.tar", fields=fields)
    far = wf.webdataset(urls, fields=fields, unpack_to=tmp_path / "unpacked")
    pipelines: list[Any] = [
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.shuffle(seed=2).shard(1, 2).take(3),
        lambda ds: ds.repeat(2).skip(5),
    ]
    for of in pipelines:
        ours, theirs = (list(of(ds).batch(5).numpy()) for ds in (far, plain))
        assert [[np.asarray(part).tolist() for part in batch] for batch in ours] == [
            [np.asarray(part).tolist() for part in batch] for batch in theirs
        ]
    loader = far.shuffle(seed=3).batch(2).numpy()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    # Unpacked elsewhere it is the same data set.
    again = (
        wf.webdataset(urls, fields=fields, unpack_to=tmp_path / "elsewhere").shuffle(seed=3).batch(2).numpy()
    )
    again.load_state_dict(state)
    assert [keys for keys, *_ in again] == [keys for keys, *_ in batches]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "wellfed",
            "convert",
            tmp_path / f"s-*.{ending}",
            tmp_path / "out",
            "--unpack-to",
            tmp_path / "u",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = wf.webdataset(tmp_path / "out" / "*.tar", fields=fields)
    assert [written.sample(i)[2] for i in range(12)] == list(range(12))


def test_a_member_that_changed_is_a_bad_sample(folder: Path) -> None:
    files = {p.name: p.read_bytes() for p in sorted(folder.rglob("*.png"))}
    path = archive(folder / "a.zip", zipfile.ZIP_STORED, files)
    data = bytearray(path.read_bytes())
    at = bytes(data).index(files["3.png"]) + len(files["3.png"]) // 2
    data[at] ^= 1
    path.write_bytes(data)
    ds = wf.image_folder(path, labels=None)
    with pytest.raises(wf.CorruptSampleError, match="CRC-32"):
        list(ds.batch(4).numpy())
    loader = ds.batch(4).with_options(on_error="skip").numpy()
    assert sum(len(batch) for batch in loader) == 11
    (bad,) = loader.errors()
    assert bad.key.endswith("3.png")
    path.write_bytes(data[:-40])
    with pytest.raises(wf.CorruptSampleError, match="directory"):
        wf.image_folder(path, labels=None)


def test_lines_are_what_python_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {
            "text": f"ü {i}",
            "label": i - 5,
            "tokens": rng.integers(0, 99, i % 4).tolist(),
            "score": i / 3,
            "more": {"b": i, "a": None},
        }
        for i in range(20)
    ]
    text = "\n".join(json.dumps(row, ensure_ascii=bool(i % 2)) for i, row in enumerate(rows)) + "\n\n"
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text(text, encoding="utf-8")
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        ds = wf.jsonl(path)
        for i, row in enumerate(rows):
            sample = ds.sample(i)
            assert {k: sample[k] for k in ("text", "more")} == {k: row[k] for k in ("text", "more")}
            assert int(sample["label"]) == row["label"]
            assert float(sample["score"]) == row["score"]
            assert sample["tokens"].tolist() == row["tokens"]
    expected = batches_of(wf.jsonl(plain, fields=["label", "text"]))
    assert batches_of(wf.jsonl(packed, fields=["label", "text"])) == expected
    assert batches_of(wf.jsonl([plain, plain], fields=["label", "text"]).take(20)) != []


def batches_of(ds: wf.Dataset) -> list[Any]:
    return [(labels.tolist(), texts) for labels, texts in ds.shuffle(seed=1).batch(7).numpy()]


def test_bad_lines_are_bad_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": \n{"y": 2}\n{"x": 4}\n')
    loader = wf.jsonl(path, fields={"x": "int32"}).batch(10).with_options(on_error="skip").numpy()
    ((numbers,),) = list(loader)
    assert numbers.tolist() == [1, 4]
    assert numbers.dtype == np.int32
    assert [bad.key for bad in loader.errors()] == [f"{path}:2", f"{path}:3"]
    ds = wf.jsonl(path, fields={"x": "float32[*]"}, defaults={"x": [0.5]})
    assert ds.sample(2)[0].tolist() == [0.5]
    for fields, defaults in (({"x": "int7"}, None), (["x", "x"], None), (["x"], {"z": 1}), (None, {"x": 1})):
        with pytest.raises(ValueError):
            wf.jsonl(path, fields=fields, defaults=defaults)


def test_arrays_in_files_are_what_numpy_wrote(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number, array in enumerate((
        rng.normal(size=(7, 3)), rng.normal(size=(7, 3)).astype(">f4"), np.asfortranarray(rng.normal(size=(7, 2, 3))),
        np.arange(7), np.arange(7).astype(">i8"), rng.integers(0, 256, (7, 5, 4, 3), np.uint8),
    )):  # fmt: skip
        path = tmp_path / f"{number}.npy"
        np.save(path, array)
        (found,) = list(wf.npy(path, pixels="never").batch(7).numpy())
        assert np.array_equal(found, array), array.dtype
        archived = tmp_path / f"{number}.npz"
        np.savez_compressed(archived, other=np.arange(3), x=array)
        ((found,),) = list(wf.npz(archived, fields="x", pixels="never").batch(7).numpy())
        assert np.array_equal(found, array), array.dtype
        raw = tmp_path / f"{number}.bin"
        raw.write_bytes(b"head" + np.ascontiguousarray(array).astype(array.dtype.newbyteorder("=")).tobytes())
        ds = wf.raw_files(
            [raw, raw], array.dtype.newbyteorder("="), array.shape[1:], offset=4, pixels="never"
        )
        found = np.concatenate(list(ds.batch(5).numpy()))
        assert np.array_equal(found, np.concatenate([array, array]))
    with pytest.raises(wf.CorruptSampleError):
        wf.raw_files(tmp_path / "0.bin", "float64", 3)
    with pytest.raises(ValueError):
        wf.npz(tmp_path / "0.npz")


def mds(folder: Path, samples: list[tuple[int, bytes, str]]) -> Path:
    """A shard as Streaming's `MDSWriter` writes it."""
    rows = [
        struct.pack("<2I", len(image), len(text.encode())) + struct.pack("<q", n) + image + text.encode()
        for n, image, text in samples
    ]
    offsets = np.cumsum([4 * (len(rows) + 2) + 2, *map(len, rows)]).astype(np.uint32)
    data = np.uint32(len(rows)).tobytes() + offsets.tobytes() + b"{}" + b"".join(rows)
    (folder / "shard.00000.mds").write_bytes(data)
    shard = {
        "format": "mds", "version": 2, "samples": len(rows), "column_names": ["label", "image", "text"],
        "column_encodings": ["int", "png", "str"], "column_sizes": [8, None, None], "compression": None,
        "hashes": [], "size_limit": 1 << 26, "zip_data": None,
        "raw_data": {"basename": "shard.00000.mds", "bytes": len(data), "hashes": {}},
    }  # fmt: skip
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder


def test_mds_shards_make_batches(tmp_path: Path) -> None:
    samples = [(i, picture(i), f"text {i}") for i in range(10)]
    ds = wf.mds(mds(tmp_path, samples), fields=["image", "label", "text"])
    images, labels, texts = next(iter(ds.shuffle(seed=0).map(T.CenterCrop(4)).batch(10).numpy()))
    assert images.shape == (10, 3, 4, 4)
    assert texts == [f"text {i}" for i in labels]
    assert sorted(labels) == list(range(10))
    path = tmp_path / "shard.00000.mds"
    path.write_bytes(path.read_bytes()[:-100])
    loader = ds.with_options(on_error="skip").batch(10).numpy()
    del ds
    assert sum(len(batch[0]) for batch in loader) < 10
    assert loader.errors()


def test_inspect_knows_them(folder: Path) -> None:
    files = {str(p.relative_to(folder / "train")): p.read_bytes() for p in sorted(folder.rglob("*.png"))}
    archived = archive(folder / "a.zip", zipfile.ZIP_STORED, files)
    lines = folder / "a.jsonl"
    lines.write_text('{"label": 1}\n{"label": \n')
    shards = folder / "mds"
    shards.mkdir()
    mds(shards, [(i, picture(i), "") for i in range(4)])
    for path, kind, samples, bad in (
        (archived, "image_folder", 12, 0),
        (lines, "jsonl", 2, 1),
        (shards, "mds", 4, 0),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "wellfed", "inspect", str(path), "--full", "--json"],
            capture_output=True,
            text=True,
        )
        report = json.loads(done.stdout)
        assert (report["format"], report["samples"], len(report["bad_samples"])) == (kind, samples, bad), (
            done.stderr
        )
