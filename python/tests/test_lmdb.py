"""LMDB: what the library writes is read by pipelines, also while it writes."""

from __future__ import annotations

import io
import json
import multiprocessing
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

lmdb = pytest.importorskip("lmdb")


def picture(number: int) -> bytes:
    file = io.BytesIO()
    rng = np.random.default_rng(number)
    Image.fromarray(rng.integers(0, 256, (40, 30, 3), np.uint8)).save(file, "png")
    return file.getvalue()


def write(path: Path, entries: dict[bytes, bytes], db: bytes | None = None, **options: Any) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, max_dbs=4, **options) as env:
        opened = env.open_db(db) if db else None
        with env.begin(write=True, db=opened) as transaction:
            for key, value in entries.items():
                transaction.put(key, value)
    return path


def test_entries_make_batches(tmp_path: Path) -> None:
    entries = {f"{i:06}".encode(): picture(i) for i in range(60)} | {b"__len__": b"60"}
    path = write(tmp_path / "a", entries)
    images = wf.lmdb(path)
    assert len(images) == 60
    expected = [np.asarray(Image.open(io.BytesIO(picture(i)))).transpose(2, 0, 1) for i in range(60)]
    for workers in (1, 2):
        found = np.concatenate(list(images.batch(7).with_options(num_workers=workers).numpy()))
        assert np.array_equal(found, expected)
    keyed = wf.lmdb(path, fields=["__key__", "value"]).shuffle(seed=1).map(T.CenterCrop(8)).batch(60)
    keys, batch = next(iter(keyed.numpy()))
    assert sorted(keys) == [f"{i:06}" for i in range(60)]
    assert batch.shape == (60, 3, 8, 8)
    single = write(tmp_path / "file.mdb", entries, subdir=False)
    assert len(wf.lmdb([path, single], keys="0000")) == 120
    listed = wf.lmdb(path, keys=[b"000007", "000003"], value="bytes")
    assert [listed.sample(i) for i in range(2)] == [picture(7), picture(3)]
    named = write(tmp_path / "a", {b"x": b"1"}, b"more")
    assert wf.lmdb(named, db="more").sample(0) == b"1"
    assert len(wf.lmdb(named)) == 60


def test_entries_of_all_sizes_are_those_of_the_library(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    entries = {}
    for i in rng.permutation(3000):
        size = int(rng.choice([0, 1, 17, 500, 2000, 2040, 4080, 4081, 10_000]))
        entries[f"{i * 7919 % 3000:05}".encode() * int(rng.integers(1, 30))] = rng.bytes(size)
    path = write(tmp_path / "a", entries)
    # Pages that are used again, in no order.
    with lmdb.open(str(path), map_size=1 << 26) as env:
        for part in range(5):
            with env.begin(write=True) as transaction:
                for key in list(entries)[part::11]:
                    entries[key] = rng.bytes(int(rng.integers(0, 6000)))
                    transaction.put(key, entries[key])
                for key in list(entries)[part::97]:
                    transaction.delete(key)
                    del entries[key]
    ds = wf.lmdb(path, value="bytes", fields=["__key__", "value"])
    found = {
        key.encode(): value for batch in ds.batch(500).numpy() for key, value in zip(*batch, strict=True)
    }
    assert found == entries


def test_values_of_all_kinds(tmp_path: Path) -> None:
    arrays = [np.full((2, 3), i, np.float32) for i in range(5)]

    def saved(array: np.ndarray) -> bytes:
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    def opened(name: str, values: list[bytes], **options: Any) -> wf.Dataset:
        return wf.lmdb(write(tmp_path / name, {b"%03d" % i: v for i, v in enumerate(values)}), **options)

    found = next(iter(opened("npy", [saved(a) for a in arrays]).batch(5).numpy()))
    assert np.array_equal(found, arrays)
    found = next(iter(opened("raw", [a.tobytes() for a in arrays], value="float32[2, 3]").batch(5).numpy()))
    assert np.array_equal(found, arrays)
    label = next(iter(opened("i", [struct.pack("<q", i) for i in range(5)], value="int64").batch(5).numpy()))
    assert label.tolist() == list(range(5))
    # {"cls": i, "x": [i], "t": "a"}
    packed = [b"\x83\xa3cls" + bytes([i]) + b"\xa1x\x91" + bytes([i]) + b"\xa1t\xa1a" for i in range(5)]
    batch = next(iter(opened("msgpack", packed, fields=["cls", "t"]).batch(5).numpy()))
    assert batch[0].tolist() == list(range(5))
    assert batch[1] == ["a"] * 5
    datum = [b"\x08\x01\x10\x02\x18\x03\x22\x06" + bytes(range(6)) + b"\x28" + bytes([i]) for i in range(5)]
    images, labels = next(iter(opened("datum", datum).batch(5).numpy()))
    assert images.shape == (5, 1, 2, 3)
    assert labels.tolist() == list(range(5))
    assert opened("json", [b'{"a": 1}'], value="json").sample(0) == {"a": 1}
    with pytest.raises(wf.UnsupportedSampleError, match="pickle"):
        opened("pickle", [b"\x80\x04K\x01."])
    for options in ({"value": "pickle"}, {"value": "float32[x]"}, {"value": "float128"}, {"keys": [1]}):
        with pytest.raises(ValueError, match="hint"):
            opened("raw", [], **options)
    with pytest.raises(FileNotFoundError):
        wf.lmdb(tmp_path / "raw", keys=["none"])


def read_all(path: str, queue: Any) -> None:
    ds = wf.lmdb(path, value="bytes")
    queue.put(hash(tuple(ds.sample(i) for i in range(len(ds)))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_processes_that_fork_read_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {f"{i:03}".encode(): bytes([i]) * 5000 for i in range(100)})
    ds = wf.lmdb(path, value="bytes")
    expected = hash(tuple(ds.sample(i) for i in range(len(ds))))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=read_all, args=(str(path), queue)) for _ in range(2)]
    for process in processes:
        process.start()
    assert [queue.get(timeout=60) for _ in processes] == [expected] * 2
    for process in processes:
        process.join()


def test_a_writer_changes_no_sample_silently(tmp_path: Path) -> None:
    keys = [f"{i:03}".encode() for i in range(100)]

    def values(state: int) -> dict[bytes, bytes]:
        # Long and short ones, and what they are of is in all of their bytes.
        return {key: bytes([state % 251]) * (3 if i % 2 else 9000) for i, key in enumerate(keys)}

    path = write(tmp_path / "a", values(0))
    stop = threading.Event()
    states = [0]

    def rewrite() -> None:
        with lmdb.open(str(path), map_size=1 << 26, sync=False) as env:
            while not stop.is_set() and states[0] < 3000:
                with env.begin(write=True) as transaction:
                    for key, value in values(states[0] + 1).items():
                        transaction.put(key, value)
                states[0] += 1

    writer = threading.Thread(target=rewrite)
    writer.start()
    changed = whole = 0
    try:
        for _ in range(60):
            try:
                ds = wf.lmdb(path, value="bytes")
            except wf.ObjectChangedError:
                changed += 1
                continue
            assert len(ds) == 100
            seen = set()
            try:
                for i in range(100):
                    value = ds.sample(i)
                    assert len(value) == (3 if i % 2 else 9000)
                    seen.add(value[0])
                    assert value == value[:1] * len(value), "bytes of two states in one value"
                whole += 1
            except wf.ObjectChangedError:
                changed += 1
            assert len(seen) <= 1, "values of two states in one data set"
    finally:
        stop.set()
        writer.join()
    assert changed + whole == 60
    assert next(iter(wf.lmdb(path, value="bytes").batch(100).numpy()))[0][0] == states[0] % 251
    # Nobody writes any more, but what was opened before may be gone.
    ds = wf.lmdb(path, value="bytes")
    assert ds.sample(0)
    for state in range(2):
        write(path, values(states[0] + 2 + state))
    with pytest.raises(wf.ObjectChangedError, match="written to 2 times"):
        ds.sample(0)


def test_inspect_counts_entries_and_finds_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a", {f"{i:03}".encode(): picture(i) for i in range(20)})
    data = bytearray((path / "data.mdb").read_bytes())
    at = data.find(picture(7))
    data[at : at + 8] = b"no image"
    (path / "data.mdb").write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-m", "wellfed", "inspect", str(path), "--json"], capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    assert (report["format"], report["samples"], len(report["bad_samples"])) == ("lmdb", 20, 1), done.stderr
    assert report["bad_samples"][0]["key"] == "007"
