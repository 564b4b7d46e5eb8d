"""Storage: stores by URL, outages, and what tar shards hold."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joint_sets
import wellfed as wf


def _shard(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_a_far_store_gives_the_batches_of_the_local_one(tmp_path: Path) -> None:
    members = [
        (f"{i:04}.{kind}", data)
        for i in range(300)
        for kind, data in (("txt", f"{i}".encode() * 50), ("cls", str(i).encode()))
    ]
    path = _shard(tmp_path / "x.tar", members)

    def epochs(url: str | Path) -> list[list[int]]:
        ds = wf.webdataset(url, fields=["txt", "cls"]).shuffle(seed=3).batch(32)
        loader = ds.numpy(num_workers=2)
        batches = [[(text, labels) for text, labels in loader] for _ in range(2)]
        for text, labels in batches[0]:
            assert text == [str(label) * 50 for label in labels]
        return [np.concatenate([labels for _, labels in epoch]).tolist() for epoch in batches]

    far = epochs(f"delayed+file://{path}?latency_ms=1&bandwidth=1GB")
    assert far == epochs(path)
    assert sorted(far[0]) == list(range(300))


At = Callable[[Path], str]
Open = Callable[[At], Any]


def _voc(root: Path) -> Open:
    joint_sets.voc(root, 5)
    return lambda at: wf.voc_segmentation(at(root)).map(wf.transforms.RandomCrop(30))


def _coco(root: Path) -> Open:
    joint_sets.coco(root, count=5)
    return lambda at: wf.coco_detection(at(root / "images"), at(root / "notes.json")).map(
        wf.transforms.RandomCrop(30)
    )


def _cifar10(root: Path) -> Open:
    (root / "test_batch.bin").write_bytes(b"".join(bytes([i]) + bytes([i]) * 3072 for i in range(9)))
    return lambda at: wf.cifar10(at(root), train=False)


def _cifar100(root: Path) -> Open:
    (root / "test.bin").write_bytes(b"".join(bytes([i, i]) + bytes([i]) * 3072 for i in range(9)))
    return lambda at: wf.cifar100(at(root), train=False)


def _mnist(root: Path) -> Open:
    (root / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 4, 5, 5) + bytes(range(100)))
    (root / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 4) + bytes(range(4)))
    return lambda at: wf.mnist(at(root), train=False)


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("make", [_voc, _coco, _cifar10, _cifar100, _mnist])
def test_data_sets_are_the_same_from_afar(make: Callable[[Path], Open], tmp_path: Path) -> None:
    open_ = make(tmp_path)

    def batches(at: At) -> list[str]:
        loader = open_(at).shuffle(seed=3).batch(2).numpy(num_workers=2)
        return [repr(batch) for _ in range(2) for batch in loader]

    near = batches(str)
    assert len(near) >= 4
    assert batches(lambda path: f"file://{path}") == near
    assert batches(lambda path: f"delayed+file://{path}?latency_ms=0.1") == near
    with pytest.raises(wf.ConfigError, match=r"no store for nowhere://, only for .*file"):
        open_(lambda path: f"nowhere://{path}")


def test_explain_says_how_bytes_come_from_stores_that_answer_later(tmp_path: Path) -> None:
    path = _shard(tmp_path / "x.tar", [("a.txt", b"a"), ("a.cls", b"1"), ("b.txt", b"b"), ("b.cls", b"2")])
    near = wf.webdataset(path).batch(2)
    far = wf.webdataset(f"delayed+file://{path}?latency_ms=0.1").batch(2)
    assert "storage" not in near.explain()
    text = far.explain()
    for said in ("32 at first, up to 512", "16 KiB", "8 MiB", "30 s", "memory_budget", "2 ranges"):
        assert said in text, text
    steps = wf.webdataset(f"delayed+file://{path}?latency_ms=0.1").map(lambda sample: sample).explain()
    assert "each worker reads by itself" in steps
    assert "up to 512" not in steps


def test_unknown_schemes_list_the_known_ones() -> None:
    for open_ in (wf.image_folder, wf.webdataset):
        with pytest.raises(wf.ConfigError, match=r"no store for nowhere://, only for .*file"):
            open_("nowhere://bucket/train")


def test_outages_are_errors_of_the_operating_system() -> None:
    assert issubclass(wf.TransientError, OSError)
    error = wf.TransientError("cannot read a.jpg", errno=5)
    assert isinstance(error, wf.StorageError)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is wf.TransientError
    assert again.errno == 5


def test_labels_that_only_later_samples_have_do_not_vanish(tmp_path: Path) -> None:
    path = _shard(tmp_path / "x.tar", [("a.txt", b"a"), ("b.txt", b"b"), ("b.cls", b"1")])
    with pytest.raises(ValueError, match=r"txt is in 2 of 2, cls is in 1 of 2") as caught:
        wf.webdataset(path)
    assert "fields=" in str(caught.value)
    loader = wf.webdataset(path, fields=["txt", "cls"]).batch(2).numpy(on_error="skip")
    assert [(text, labels.tolist()) for text, labels in loader] == [(["b"], [1])]
    assert len(loader.errors()) == 1


def test_one_field_is_named_by_one_text(tmp_path: Path) -> None:
    path = _shard(tmp_path / "x.tar", [("a.txt", b"a"), ("b.txt", b"b")])
    assert list(wf.webdataset(path, fields="txt").batch(2).numpy()) == list(
        wf.webdataset(path, fields=["txt"]).batch(2).numpy()
    )


def test_links_in_shards_are_what_they_lead_to(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind, link, data in (
            ("pool/one", tarfile.REGTYPE, "", b"1"),
            ("a.cls", tarfile.LNKTYPE, "pool/one", b""),
            ("b.cls", tarfile.SYMTYPE, "a.cls", b""),
            ("c.cls", tarfile.SYMTYPE, "gone", b""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, link, len(data)
            tar.addfile(member, io.BytesIO(data))
    ds = wf.webdataset(path, fields=["cls"])
    assert len(ds) == 3
    loader = ds.batch(3).numpy(on_error="skip")
    (batch,) = list(loader)
    assert np.asarray(batch).ravel().tolist() == [1, 1]
    (bad,) = loader.errors()
    assert "c.cls is a symbolic link to gone" in str(bad.cause)


def test_names_that_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w", encoding="latin-1", format=tarfile.GNU_FORMAT) as tar:
        for name in ("\xfe.cls", "\xff.cls"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"1"))
    assert len(wf.webdataset(path, fields=["cls"])) == 2
