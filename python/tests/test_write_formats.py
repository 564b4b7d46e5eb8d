"""TFRecord, Parquet and MDS as they are written: others read them, and they survive kills as tar shards do."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

TENSORFLOW = os.environ.get("WELLFED_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else ""
)
FORMATS = ("tar", "tfrecord", "parquet", "mds")
IMAGES = {"image": wf.FixedLenFeature([], "image"), "label": wf.FixedLenFeature([], "int64")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of 20 small photographs."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for number in range(60):
        path = folder / ["cat", "dog", "gnu"][number % 3] / f"{number:03}.jpg"
        path.parent.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        coarse.resize((48 + number % 5, 40), Image.Resampling.BICUBIC).save(path, quality=85)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """All but indexes, which know the times of their shards."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".wfidx"}


def images_of(kind: str, written: Any) -> wf.Dataset:
    """What was written, as images and labels."""
    if kind == "tar":
        return wf.webdataset(written.urls, fields=["jpg", "cls"])
    if kind == "tfrecord":
        return wf.tfrecord(written.urls, IMAGES, fields=["image", "label"])
    if kind == "parquet":
        return wf.parquet(written.urls, fields=["image", "label"])
    return wf.mds(written.urls, fields=["image", "label"])


@pytest.mark.parametrize("kind", FORMATS)
def test_images_come_back_in_order_whatever_the_number_of_threads(
    kind: Any, data: Path, tmp_path: Path
) -> None:
    ds = wf.image_folder(data).shuffle(seed=3)
    made = []
    for workers in (1, 4):
        to = tmp_path / str(workers) / "t"
        written = ds.write(to, format=kind, max_samples=25, num_workers=workers)
        assert (written.samples, written.shards, written.skipped) == (60, 3, [])
        made.append(files(to))
    assert made[0] == made[1]
    back = images_of(kind, written)
    assert len(back) == 60
    batches = zip(
        ds.map(T.Resize((24, 24))).batch(16).numpy(), back.map(T.Resize((24, 24))).batch(16).numpy()
    )
    for (images, labels), (same, as_before) in batches:
        assert np.array_equal(images, same)
        assert np.array_equal(labels, as_before)
    assert json.loads(Path(written.manifest).read_text())["classes"] == ["cat", "dog", "gnu"]
    found = wf.verify(to, full=True)
    assert (found.samples, found.problems) == (60, [])


def test_hugging_face_reads_images_and_classes(data: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    ds = wf.image_folder(data).shuffle(seed=5)
    written = ds.write(tmp_path / "t-{:03d}.parquet", max_samples=40, row_group_size=16)
    paths = sorted(str(path) for path in tmp_path.glob("*.parquet"))
    assert [pq.ParquetFile(path).metadata.row_group(0).num_rows for path in paths] == [16, 16]
    assert [pq.ParquetFile(path).metadata.num_row_groups for path in paths] == [3, 2]
    theirs = datasets.load_dataset(
        "parquet", data_files=paths, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert theirs.features["label"].names == ["cat", "dog", "gnu"]
    assert type(theirs.features["image"]).__name__ == "Image"
    raw = theirs.cast_column("image", datasets.Image(decode=False))
    assert len(theirs) == written.samples == 60
    for row, whole in zip(raw, theirs):
        path = data / ["cat", "dog", "gnu"][row["label"]] / row["image"]["path"]
        assert row["image"]["bytes"] == path.read_bytes()
        with Image.open(path) as image:
            assert whole["image"].size == image.size
    assert wf.parquet(paths).classes == ["cat", "dog", "gnu"]


def numbers() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    columns: dict[str, Any] = {
        dtype: rng.integers(0, 100, 30).astype(dtype)
        for dtype in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
    }
    columns |= {dtype: rng.normal(size=30).astype(dtype) for dtype in ("float16", "float32", "float64")}
    columns["flag"] = rng.random(30) < 0.5
    columns["matrix"] = rng.normal(size=(30, 2, 3)).astype(np.float32)
    ends = np.cumsum([0, *(i % 4 for i in range(30))])
    columns["tokens"] = wf.Ragged(np.arange(ends[-1], dtype=np.int32), ends)
    return columns


def test_parquet_has_all_kinds_of_numbers(tmp_path: Path) -> None:
    columns = numbers()
    ds = wf.from_tensor_slices(columns)
    written = ds.write(tmp_path / "t", format="parquet")
    table = pq.read_table(written.urls)
    assert table.column_names == list(columns)
    back = wf.parquet(written.urls)
    for i in range(30):
        one, same = ds.sample(i), back.sample(i)
        for name, value in one.items():
            assert np.array_equal(value, same[name]), name
            assert np.asarray(value).dtype == np.asarray(same[name]).dtype, name
            assert np.array_equal(np.asarray(table[name][i].as_py(), np.asarray(value).dtype), value), name
    assert wf.verify(tmp_path / "t", full=True).problems == []


def test_mds_and_records_have_the_numbers_that_they_can_hold(tmp_path: Path) -> None:
    columns = numbers()
    ds = wf.from_tensor_slices(columns)
    back = wf.mds(ds.write(tmp_path / "mds", format="mds").urls)
    with pytest.raises(wf.ConfigError, match="float64 cannot be written"):
        ds.write(tmp_path / "none", format="tfrecord")
    del columns["float64"]
    written = wf.from_tensor_slices(columns).write(tmp_path / "records", format="tfrecord")
    features: dict[str, Any] = {
        name: wf.FixedLenFeature([], "float32" if name.startswith("float") else "int64") for name in columns
    }
    features["matrix"] = wf.FixedLenFeature([2, 3], "float32")
    features["tokens"] = wf.VarLenFeature("int64")
    records = wf.tfrecord(written.urls, features)
    for i in range(30):
        one, same, record = ds.sample(i), back.sample(i), records.sample(i)
        for name, value in one.items():
            assert np.array_equal(value, same[name]), name
            # Booleans are numbers there.
            assert name == "flag" or np.asarray(value).dtype == np.asarray(same[name]).dtype, name
            assert name == "float64" or np.array_equal(value, record[name]), name


def test_texts_json_and_what_transforms_make(data: Path, tmp_path: Path) -> None:
    lines = [{"text": f"grün {i}", "meta": {"n": [i]}, "x": i / 4} for i in range(9)]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ds = wf.jsonl(path, fields={"text": "text", "meta": "json"})
    mds = wf.mds(ds.write(tmp_path / "mds", format="mds").urls)
    table = wf.parquet(ds.write(tmp_path / "table", format="parquet").urls)
    features = {"text": wf.FixedLenFeature([], "text"), "meta": wf.FixedLenFeature([], "json")}
    records = wf.tfrecord(ds.write(tmp_path / "records", format="tfrecord").urls, features)
    for i, line in enumerate(lines):
        wanted = {"text": line["text"], "meta": line["meta"]}
        assert mds.sample(i) == records.sample(i) == wanted
        # A table knows texts alone.
        assert json.loads(table.sample(i)["meta"]) == line["meta"]
    steps = (T.Resize((6, 5)), T.ToDtype("float32", scale=True))
    made = wf.image_folder(data).take(5).map(*steps)
    floats = [made.sample(i)[0] for i in range(5)]
    back = wf.parquet(made.write(tmp_path / "floats", format="parquet").urls)
    assert all(np.array_equal(back.sample(i)["image"], floats[i]) for i in range(5))
    back = wf.mds(made.write(tmp_path / "more", format="mds").urls)
    assert all(np.array_equal(back.sample(i)["image"], floats[i]) for i in range(5))
    shaped: dict[str, Any] = {
        "image": wf.VarLenFeature("float32"),
        "image/shape": wf.FixedLenFeature([3], "int64"),
    }
    back = wf.tfrecord(made.write(tmp_path / "few", format="tfrecord").urls, shaped)
    for i in range(5):
        sample = back.sample(i)
        assert np.array_equal(sample["image"].reshape(sample["image/shape"]), floats[i])


@pytest.mark.skipif(
    not TENSORFLOW, reason="NOT TESTED HERE: no TensorFlow; WELLFED_TENSORFLOW_PYTHON may name one"
)
def test_tensorflow_reads_records(data: Path, tmp_path: Path) -> None:
    written = wf.image_folder(data).take(7).write(tmp_path / "images", format="tfrecord")
    columns = {"matrix": np.arange(12.0, dtype=np.float32).reshape(2, 2, 3), "n": np.array([-1, 2**40])}
    other = wf.from_tensor_slices(columns).write(tmp_path / "numbers", format="tfrecord")
    script = textwrap.dedent(
        """
        import hashlib, json, sys
        import tensorflow as tf
        image = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        found = []
        for record in tf.data.TFRecordDataset(sys.argv[1]):
            one = tf.io.parse_single_example(record, image)
            shape = tf.io.decode_jpeg(one["image"]).shape.as_list()
            found.append([hashlib.sha1(one["image"].numpy()).hexdigest(), int(one["label"]), shape])
        numbers = {"matrix": tf.io.FixedLenFeature([2, 3], tf.float32), "n": tf.io.FixedLenFeature([], tf.int64)}
        more = [tf.io.parse_single_example(record, numbers) for record in tf.data.TFRecordDataset(sys.argv[2])]
        print(json.dumps([found, [[one["matrix"].numpy().tolist(), int(one["n"])] for one in more]]))
        """
    )
    run = subprocess.run(
        [TENSORFLOW, "-c", script, written.urls, other.urls], capture_output=True, text=True, check=True
    )
    found, more = json.loads(run.stdout.splitlines()[-1])
    expected = []
    for number, path in enumerate(sorted((data / "cat").iterdir())[:7]):
        with Image.open(path) as image:
            assert number < 20
            expected.append([hashlib.sha1(path.read_bytes()).hexdigest(), 0, [image.height, image.width, 3]])
    assert found == expected
    assert more == [[matrix.tolist(), int(n)] for matrix, n in zip(columns["matrix"], columns["n"])]


RUN = """
import sys, wellfed as wf
ds = wf.image_folder(sys.argv[1]).shuffle(seed=1)
print("ready", flush=True)
ds.write(sys.argv[2], format=sys.argv[3], max_samples=6, num_workers=2)
"""


@pytest.mark.parametrize("kind", ["tfrecord", "parquet", "mds"])
def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(kind: Any, data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data).shuffle(seed=1)
    ds.write(tmp_path / "whole" / "t", format=kind, max_samples=6)
    whole = files(tmp_path / "whole" / "t")
    draw = random.Random(kind)
    for number in range(2):
        folder = tmp_path / f"killed{number}" / "t"
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(data), str(folder), kind], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        wanted = draw.randrange(1, 9)
        while process.poll() is None and len(list(folder.glob(f"*.{kind}"))) < wanted:
            time.sleep(0.0005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        there = files(folder)
        assert all(whole[name] == content for name, content in there.items() if name.endswith(f".{kind}"))
        again = ds.write(folder, format=kind, max_samples=6)
        assert again.shards_before >= wanted - 1
        assert files(folder) == whole


@pytest.mark.parametrize("kind", ["tfrecord", "parquet", "mds"])
def test_bad_samples_are_left_out_and_listed(kind: Any, own_photos: Path, tmp_path: Path) -> None:
    bad = next(own_photos.rglob("*.jpg"))
    bad.write_bytes(b"<html>not found</html>")
    ds = wf.image_folder(own_photos)
    with pytest.raises(wf.UnsupportedSampleError, match="web page"):
        ds.write(tmp_path / "a", format=kind)
    written = ds.write(tmp_path / "b", format=kind, on_error="skip")
    assert [skipped.key for skipped in written.skipped] == [bad.relative_to(own_photos).as_posix()]
    found = wf.verify(tmp_path / "b", full=True)
    assert (found.samples, found.skipped, found.problems) == (len(ds) - 1, 1, [])


def test_formats_are_known_by_names_and_refused_by_them(data: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(data).take(4)
    assert ds.write(tmp_path / "t-{}.tfrecord").urls.endswith("t-000000.tfrecord")
    for path, options, said in [
        ("t-{}.parquet", {"format": "tar"}, "does not name shards that end with .tar"),
        ("t-{}.mds", {}, "one index"),
        ("x", {"format": "mds", "packed": True}, "tar shards only"),
        ("x", {"row_group_size": 5}, "row groups"),
    ]:
        with pytest.raises(wf.ConfigError, match=said):
            ds.write(tmp_path / path, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="format is 'zip'"):
        ds.write(tmp_path / "x", format="zip")  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()
    words = [
        sys.executable,
        "-m",
        "wellfed",
        "convert",
        str(data),
        str(tmp_path / "c"),
        "--format",
        "parquet",
        "--json",
    ]
    report = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert report["samples"] == 60
    assert pq.read_table(report["urls"]).num_rows == 60
    with (
        io.BytesIO(pq.read_table(report["urls"])["image"][0].as_py()["bytes"]) as file,
        Image.open(file) as image,
    ):
        assert image.format == "JPEG"
