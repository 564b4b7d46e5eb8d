"""Tar shards: others read what is written, and what is written survives kills and full disks."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision
import webdataset
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

SMALL = 12_000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 40 small photographs."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for number in range(120):
        path = folder / ["cat", "dog", "gnu"][number % 3] / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        coarse.resize((48 + number % 5, 40), Image.Resampling.BICUBIC).save(path, quality=85)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """All but indexes, which know the times of their shards."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".wfidx"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the library leaves shards open
def test_the_webdataset_library_reads_the_same_samples(data: Path, tmp_path: Path) -> None:
    written = wf.image_folder(data).shuffle(seed=3).write(tmp_path / "t-{:04d}.tar", max_bytes=SMALL)
    assert written.samples == 120
    assert written.shards > 5
    assert written.skipped == []
    assert written.urls.endswith(f"t-{{0000..{written.shards - 1:04}}}.tar")
    found = list(webdataset.WebDataset(written.urls, shardshuffle=False))
    source = torchvision.datasets.ImageFolder(data)
    assert [sample["__key__"] for sample in found] != sorted(sample["__key__"] for sample in found)
    assert len({sample["__key__"] for sample in found}) == 120
    for sample in found:
        path = data / f"{sample['__key__']}.jpg"
        assert sample["jpg"] == path.read_bytes()
        assert int(sample["cls"]) == source.class_to_idx[path.parent.name]
    ours = list(wf.webdataset(written.urls, fields=["__key__", "cls"]))
    assert [(key, int(label)) for key, label in ours] == [(s["__key__"], int(s["cls"])) for s in found]
    manifest = json.loads(Path(written.manifest).read_text())
    assert manifest["classes"] == ["cat", "dog", "gnu"]
    assert manifest["seed"] == 3
    assert manifest["complete"]
    assert wf.verify(tmp_path, full=True).problems == []


def test_tarfile_reads_arrays_texts_and_long_names(tmp_path: Path) -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    written = wf.from_tensor_slices({"x": rows, "y": np.arange(3)}).write(tmp_path / "a")
    with tarfile.open(written.urls) as tar:
        members = tar.getmembers()
        assert [m.name for m in members] == ["0.x.npy", "0.cls", "1.x.npy", "1.cls", "2.x.npy", "2.cls"]
        assert all((m.mtime, m.uid, m.gid, m.mode) == (0, 0, 0, 0o644) for m in members)
        for index, member in enumerate(members[::2]):
            file = tar.extractfile(member)
            assert file is not None
            assert np.array_equal(np.load(io.BytesIO(file.read())), rows[index])
    # What lies in shards is written to others: keys, texts and JSON stay.
    long = "ü" * 70 + "/" + "n" * 120
    with tarfile.open(tmp_path / "given.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in {f"{long}.txt": b"gr\xc3\xbcn", f"{long}.meta.json": b'{"a": [1]}'}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    given = wf.webdataset(tmp_path / "given.tar")
    again = wf.webdataset(given.write(tmp_path / "b").urls)
    assert list(again) == list(given) == [{"__key__": long, "txt": "grün", "meta.json": {"a": [1]}}]


def test_images_are_made_smaller_and_compressed_anew(data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data).take(6)
    # Sizes that are small enough stay, byte for byte.
    kept = ds.write(tmp_path / "kept", resize_shorter=40, quality=5)
    plain = ds.write(tmp_path / "plain")
    first, second = (files(tmp_path / name)[f"{name}-000000.tar"] for name in ("kept", "plain"))
    assert first == second
    assert kept.samples == plain.samples
    small = ds.write(tmp_path / "small", resize_shorter=20, quality=90)
    names = [name for name, _ in torchvision.datasets.ImageFolder(data).samples]
    with tarfile.open(small.urls) as tar:
        members = [member for member in tar.getmembers() if member.name.endswith(".jpg")]
        assert len(members) == 6
        for name, member in zip(names, members):
            file = tar.extractfile(member)
            assert file is not None
            content = file.read()
            with Image.open(name) as original, Image.open(io.BytesIO(content)) as made:
                assert made.format == "JPEG"
                assert made.size == (20 * original.width // 40, 20)
                expected = T.Resize(20)(original.convert("RGB"))
                again = io.BytesIO()
                expected.save(again, "jpeg", quality=90)
                with Image.open(again) as theirs:
                    # The tables are libjpeg's of this quality, and so is what they lose.
                    assert made.quantization == theirs.quantization
                    assert apart(made, expected) < 1.1 * apart(theirs, expected) + 0.5
                assert len(content) < 1.3 * len(again.getvalue())


def apart(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of two images, in levels."""
    return float(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).mean())


def test_packed_shards_have_the_same_pixels(data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data).take(5)
    packed = wf.webdataset(ds.write(tmp_path / "p", packed=True).urls)
    plain = wf.webdataset(ds.write(tmp_path / "j").urls)
    for i in range(5):
        one, other = packed.sample(i), plain.sample(i)
        assert one["__key__"] == other["__key__"]
        images = [
            next(value for value in s.values() if isinstance(value, np.ndarray) and value.ndim == 3)
            for s in (one, other)
        ]
        assert np.array_equal(*images)
    with tarfile.open(tmp_path / "p" / "p-000000.tar") as tar:
        assert tar.getnames()[0].endswith(".wfpc")


RUN = """
import sys, wellfed as wf
ds = wf.image_folder(sys.argv[1]).shuffle(seed=1)
print("ready", flush=True)
ds.write(sys.argv[2], max_bytes=int(sys.argv[3]), num_workers=2)
"""


def run(data: Path, to: str, before: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", before + RUN, str(data), to, str(SMALL)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data).shuffle(seed=1)
    ds.write(tmp_path / "whole" / "t-{}.tar", max_bytes=SMALL)
    whole = files(tmp_path / "whole")
    draw = random.Random(0)
    shards_before = 0
    for number in range(6):
        folder = tmp_path / f"killed{number}"
        to = str(folder / "t-{}.tar")
        process = run(data, to)
        # Killed once so many shards are there, and a moment later.
        wanted = draw.randrange(len(whole) - 2)
        while process.poll() is None and len(list(folder.glob("t-*.tar"))) < wanted:
            time.sleep(0.0005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        there = files(folder) if folder.exists() else {}
        assert all(whole[name] == content for name, content in there.items() if name.endswith(".tar"))
        again = ds.write(to, max_bytes=SMALL)
        shards_before += again.shards_before
        assert files(folder) == whole
    assert shards_before > 0


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes")
def test_a_full_disk_is_an_error_that_leaves_nothing_half_written(data: Path, tmp_path: Path) -> None:
    to = tmp_path / "full"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
    process = run(data, str(to / "t-{}.tar"), limit)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "StorageError: cannot write" in errors
    assert "t-000000.tar: File too large" in errors
    assert "make room" in errors
    assert not to.exists() or list(to.iterdir()) == []
    wf.image_folder(data).shuffle(seed=1).write(to / "t-{}.tar", max_bytes=SMALL)
    assert wf.verify(to).problems == []


def test_bad_samples_are_raised_or_listed(own_photos: Path, tmp_path: Path) -> None:
    bad = next(own_photos.rglob("*.jpg"))
    bad.write_bytes(b"<html>not found</html>")
    ds = wf.image_folder(own_photos)
    with pytest.raises(wf.UnsupportedSampleError, match="web page") as raised:
        ds.write(tmp_path / "a")
    assert raised.value.key == bad.relative_to(own_photos).as_posix()
    written = ds.write(tmp_path / "b", on_error="skip")
    assert [skipped.key for skipped in written.skipped] == [raised.value.key]
    assert written.samples == len(ds) - 1
    found = wf.verify(tmp_path / "b", full=True)
    assert (found.samples, found.skipped, found.problems) == (len(ds) - 1, 1, [])


def test_what_cannot_be_written_is_refused_before_anything_is(data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data)
    for wrong in (ds.batch(2), ds.repeat(), ds.map(lambda sample: sample)):
        with pytest.raises(wf.ConfigError, match="cannot be written"):
            wrong.write(tmp_path / "none")
    with pytest.raises(ValueError, match="quality is 101"):
        ds.write(tmp_path / "none", quality=101)
    with pytest.raises(wf.ConfigError, match="names one shard"):
        ds.write(tmp_path / "none.tar")
    with pytest.raises(wf.ConfigError, match="local or mounted"):
        ds.write("s3://bucket/none")
    assert list(tmp_path.iterdir()) == []
    ds.take(4).write(tmp_path / "there")
    with pytest.raises(wf.ConfigError, match="of another pipeline"):
        ds.take(5).write(tmp_path / "there")


def test_progress_is_told_and_what_it_raises_ends_the_writing(data: Path, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    written = wf.image_folder(data).write(tmp_path / "a", progress=told.append)
    assert (told[-1]["samples"], told[-1]["total"]) == (120, 120)
    assert told[-1]["bytes"] <= written.bytes
    assert told[-1]["held_back_by"] in ("reading", "encoding", "writing")

    class StopError(Exception):
        pass

    def stop(now: dict[str, Any]) -> None:
        raise StopError

    with pytest.raises(StopError):
        wf.image_folder(data).repeat(30).write(tmp_path / "b" / "t-{}.tar", max_bytes=SMALL, progress=stop)
    # On a loaded machine its threads may end later than the call.
    deadline = time.monotonic() + 60
    while list((tmp_path / "b").glob(".*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "b").glob(".*")) == []


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "wellfed", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_command_converts_and_verifies(data: Path, tmp_path: Path) -> None:
    to = tmp_path / "train"
    arguments = ("convert", data, to, "--max-bytes", "12k", "--shuffle", 1, "--row-index", "--json")
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["samples"], report["shards_before"], report["format"]) == (120, 0, "image_folder")
    python = wf.image_folder(data).shuffle(seed=1).write(tmp_path / "p" / "train-{:06d}.tar", max_bytes=SMALL)
    assert python.samples == 120
    assert {k: v for k, v in files(to).items() if k.endswith((".tar", ".json"))} == files(tmp_path / "p")
    assert list(to.glob("*.wfrows"))
    again = json.loads(command(*arguments).stdout)
    assert again["shards_before"] == again["shards"] == report["shards"]
    good = command("verify", to, "--full")
    assert good.returncode == 0
    assert "120 samples" in good.stdout
    assert "all as it was written" in good.stdout
    shard = next(to.glob("*.tar"))
    content = bytearray(shard.read_bytes())
    content[700] ^= 4
    shard.write_bytes(content)
    bad = command("verify", to, "--json")
    assert bad.returncode == 1
    problems = json.loads(bad.stdout)["problems"]
    assert problems[0]["path"] == str(shard)
    assert "CRC-32" in problems[0]["message"]
    assert command("verify", tmp_path / "none").returncode == 1
    assert command("convert", data, tmp_path / "one.tar").returncode == 1
    assert command("convert", data, tmp_path / "q", "--quality", "0").returncode == 2
