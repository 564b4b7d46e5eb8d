"""Bad samples: damaged, cut, empty, vanished, too large, mislabelled. Never a silent loss, never a crash."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T


def first_file(photos: Path) -> Path:
    return sorted((photos / "class1").iterdir())[0]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def header_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def text(path: Path) -> None:
    path.write_text("<html>404</html>")


def vanish(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def bomb(path: Path) -> None:
    # A PNG header that claims 60,000 x 60,000 pixels.
    image = io.BytesIO()
    Image.new("L", (1, 1)).save(image, "PNG")
    data = bytearray(image.getvalue())
    import zlib

    data[16:24] = (60_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    path.write_bytes(data)


DAMAGES: list[tuple[Callable[[Path], None], type[Exception], str]] = [
    (truncate, wf.CorruptSampleError, "decode"),
    (header_only, wf.CorruptSampleError, "decode"),
    (empty, wf.CorruptSampleError, "decode"),
    (garbage, wf.CorruptSampleError, "decode"),
    (text, wf.CorruptSampleError, "decode"),
    (vanish, FileNotFoundError, "read"),
    (folder, OSError, "read"),
    (bomb, wf.LimitExceededError, "decode"),
]


def pipeline(photos: Path) -> wf.Dataset:
    return wf.image_folder(photos).map(T.Resize((24, 24))).batch(4)


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize(("damage", "error", "stage"), DAMAGES, ids=[d[0].__name__ for d in DAMAGES])
@pytest.mark.parametrize("workers", [1, 3])
def test_bad_samples(
    own_photos: Path, damage: Callable[[Path], None], error: type[Exception], stage: str, workers: int
) -> None:
    ds = pipeline(own_photos)
    good = [images for images, _ in ds.numpy()]
    path = first_file(own_photos)
    index, key = 4, f"class1/{path.name}"
    damage(path)

    loader = ds.numpy(on_error="raise", num_workers=workers)
    batches = iter(loader)
    np.testing.assert_array_equal(next(batches)[0], good[0])
    with pytest.raises(error) as caught:
        next(batches)
    raised = caught.value
    assert isinstance(raised, wf.WellfedError)
    assert (raised.key, raised.index, raised.stage) == (key, index, stage)
    assert raised.source is not None
    assert key in str(raised)
    np.testing.assert_array_equal(next(batches)[0], good[2])
    assert next(batches, None) is None

    loader = ds.numpy(on_error="skip", num_workers=workers)
    for epoch in range(2):
        images = [images for images, _ in loader]
        assert [len(i) for i in images] == [4, 3, 4]
        np.testing.assert_array_equal(images[1], good[1][1:])
        bad = loader.errors()
        assert len(bad) == epoch + 1
        assert (bad[-1].epoch, bad[-1].batch, bad[-1].key, bad[-1].index) == (epoch, 1, key, index)
        assert (bad[-1].stage, bad[-1].replaced) == (stage, False)
        assert isinstance(bad[-1].error, error)
        assert bad[-1].cause
        assert key in repr(bad[-1])
    assert loader.stats()["errors"] == 2

    loader = ds.numpy(on_error="replace", num_workers=workers)
    images = [images for images, _ in loader]
    assert [len(i) for i in images] == [4, 4, 4]
    np.testing.assert_array_equal(images[1][1:], good[1][1:])
    assert any(np.array_equal(images[1][0], image) for batch in good for image in batch)
    (one,) = loader.errors()
    assert one.replaced

    with pytest.raises(error):
        ds.sample(index)


@pytest.mark.usefixtures("epochs_not_counted")
def test_replacements_are_the_same_for_any_number_of_workers(own_photos: Path) -> None:
    for path in sorted((own_photos / "class2").iterdir())[:2]:
        garbage(path)
    ds = pipeline(own_photos).with_options(on_error="replace")
    runs = [[(x.tobytes(), y.tobytes()) for x, y in ds.numpy(num_workers=n)] for n in (1, 2, 8)]
    assert runs[0] == runs[1] == runs[2]


def test_a_replacement_is_one_of_the_samples_that_take_left(own_photos: Path) -> None:
    garbage(first_file(own_photos))
    ds = wf.image_folder(own_photos)
    (_, labels), *_ = ds.map(T.CenterCrop(8)).batch(5).numpy(on_error="skip")
    assert labels.tolist() == [0] * 4, "four of the first class, and a bad one of the second"
    loader = ds.take(5).map(T.CenterCrop(8)).batch(5).numpy(on_error="replace")
    for _ in range(20):
        ((_, found),) = loader
        assert found.tolist() == [0] * 5
    assert all(bad.replaced for bad in loader.errors())


@pytest.mark.skipif(sys.platform != "linux", reason="the file whose bytes cannot be read is Linux's")
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_outage_is_raised_whatever_on_error_says(own_photos: Path, on_error: Any) -> None:
    path = first_file(own_photos)
    path.unlink()
    # Nothing is mapped at the first address, so reading it is an input/output error, as of a disk that fails.
    path.symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match="cannot read") as caught:
        list(pipeline(own_photos).numpy(on_error=on_error))
    assert caught.value.errno == errno.EIO
    assert type(caught.value) is wf.TransientError


class Alarm:
    """Ends what would never end by itself."""

    def __enter__(self) -> None:
        def ring(*_: object) -> None:
            raise TimeoutError("it does not end")

        self.before = signal.signal(signal.SIGALRM, ring)
        signal.alarm(60)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)


def test_when_nothing_is_left(own_photos: Path) -> None:
    for path in own_photos.rglob("*.*g"):
        empty(path)
    ds = pipeline(own_photos)
    with Alarm(), pytest.raises(wf.CorruptSampleError, match="all 12 samples in a row were bad and skipped"):
        next(iter(ds.repeat().numpy(on_error="skip")))
    loader = ds.numpy(on_error="skip")
    with pytest.raises(wf.CorruptSampleError, match="all 12 samples in a row were bad and skipped"):
        list(loader)
    assert len(loader.errors()) == 12
    with pytest.raises(wf.CorruptSampleError):
        list(ds.numpy(on_error="replace"))


def test_sizes_above_the_limits_are_errors_before_memory_is_taken(own_photos: Path) -> None:
    with pytest.raises(
        wf.LimitExceededError, match=r"pixels, above the limit of 100\b(.|\n)*hint: .*max_pixels"
    ):
        list(pipeline(own_photos).numpy(max_pixels=100))
    with pytest.raises(
        wf.LimitExceededError, match=r"bytes, above the limit of 64\b(.|\n)*hint: .*max_bytes"
    ):
        list(pipeline(own_photos).numpy(max_bytes=64))
    with pytest.raises(wf.WellfedError):
        list(wf.image_folder(own_photos).map(T.Resize((1 << 23, 1 << 23))).numpy())


def test_other_formats_under_the_name_of_an_image(own_photos: Path) -> None:
    path = first_file(own_photos)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    # A PNG called .jpg is a PNG.
    Image.fromarray(pixels).save(path, "PNG")
    image, _ = wf.image_folder(own_photos).with_options(layout="NHWC").sample(4)
    np.testing.assert_array_equal(image, pixels)
    Image.fromarray(pixels).save(path, "JPEG2000")
    with pytest.raises(wf.UnsupportedSampleError):
        wf.image_folder(own_photos).sample(4)


def test_images_of_various_sizes_cannot_be_stacked(own_photos: Path) -> None:
    with pytest.raises(ValueError, match=r"\d+") as caught:
        list(wf.image_folder(own_photos).batch(4).numpy())
    assert isinstance(caught.value, wf.WellfedError)


def test_a_denied_file_has_its_errno(own_photos: Path) -> None:
    path = first_file(own_photos)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(OSError) as caught:
        wf.image_folder(own_photos).sample(4)
    assert caught.value.errno == 13


def shard(path: Path, count: int = 6) -> list[int]:
    """Writes a tar shard; returns where the last byte of each sample is."""
    ends = []
    with tarfile.open(path, "w") as tar:
        for i in range(count):
            image = io.BytesIO()
            Image.new("RGB", (8, 8), (i, i, i)).save(image, "PNG")
            for extension, data in (("png", image.getvalue()), ("cls", str(i).encode())):
                member = tarfile.TarInfo(f"{i}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
            ends.append(tar.offset - 511)  # one digit, then what fills its block
    return ends


def test_a_tar_cut_anywhere_is_never_a_silent_loss(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ends = shard(path)
    whole = path.read_bytes()
    for cut in [
        *range(0, ends[2] + 600, 97),
        *ends,
        *(end + 511 for end in ends),
        *(end - 1 for end in ends),
    ]:
        path.write_bytes(whole[:cut])
        refused = None
        try:
            ds = wf.webdataset(path, fields=["png", "cls"])
            loader = ds.batch(1).numpy(on_error="skip")
            labels = [int(label) for _, batch in loader for label in batch]
        except wf.WellfedError as e:
            refused = str(e)
        if refused is not None:
            assert cut < ends[0] or "tar" in refused, cut
            continue
        # Opened without an error: all that was whole is there, in order, and what was cut is in the list.
        complete = [i for i, end in enumerate(ends) if end <= cut]
        assert labels[: len(complete)] == complete
        assert len(labels) == len(complete)
        begun = 512 * -(-ends[len(complete) - 1] // 512) if complete else 0
        if cut > begun:
            assert loader.errors(), cut


def test_damaged_members_are_bad_samples(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    shard(path)
    data = bytearray(path.read_bytes())
    at = data.index(b"IDAT")
    data[at + 4 : at + 12] = b"\xff" * 8
    path.write_bytes(data)
    loader = wf.webdataset(path, fields=["png", "cls"]).batch(6).numpy(on_error="skip")
    ((images, labels),) = loader
    assert images.shape == (5, 3, 8, 8)
    assert labels.tolist() == [1, 2, 3, 4, 5]
    (bad,) = loader.errors()
    assert bad.offset is not None
    assert bad.offset >= 512


def test_a_sample_without_a_field_is_a_bad_sample(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in (
            ("0.txt", b"a"),
            ("0.cls", b"0"),
            ("1.txt", b"b"),
            ("2.txt", b"c"),
            ("2.cls", b"x"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    loader = wf.webdataset(path, fields=["txt", "cls"]).batch(3).numpy(on_error="skip")
    ((texts, labels),) = loader
    assert texts == ["a"]
    assert labels.tolist() == [0]
    assert len(loader.errors()) == 2


def test_errors_have_hints_after_the_facts(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"")
    with pytest.raises(FileNotFoundError) as caught:
        wf.image_folder(tmp_path)
    fact, _, hint = str(caught.value).partition("\nhint: ")
    assert str(tmp_path) in fact
    assert hint == caught.value.hint  # type: ignore[attr-defined]


def test_traces_are_written_only_when_kept(own_photos: Path, tmp_path: Path) -> None:
    import json

    loader = pipeline(own_photos).numpy(trace=True)
    list(loader)
    loader.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert {"read", "decode"} <= {event.get("name") for event in events}
    with pytest.raises(RuntimeError, match="trace"):
        pipeline(own_photos).numpy().write_trace(tmp_path / "other.json")
    with pytest.raises(OSError, match="nowhere"):
        loader.write_trace(tmp_path / "nowhere" / "trace.json")


def test_stats_count_what_was_done(own_photos: Path) -> None:
    loader = pipeline(own_photos).numpy()
    list(loader)
    stats = loader.stats()
    assert (stats["samples"], stats["batches"], stats["errors"]) == (12, 3, 0)
    assert stats["bytes"] == 12 * 3 * 24 * 24 + 12 * 8
    stages = {stage["name"]: stage for stage in stats["stages"]}
    assert stages["decode"]["count"] >= 12
    assert stages["decode"]["seconds"] > 0
    assert "decode" in str(stats)
