"""`wellfed.tfrecord`: records of TFRecord files, with features as TensorFlow reads them."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import textwrap
import zlib
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tfrecord_files as tfr
import wellfed as wf
from wellfed import transforms as T

PYTHON = os.environ.get("WELLFED_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else ""
)


def picture(seed: int, kind: str = "png") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (9 + seed % 3, 8, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def record(i: int) -> bytes:
    return tfr.example(
        {
            "image/encoded": picture(i),
            "image/class/label": i,
            "text": f"täxt {i}",
            "tokens": list(range(i % 4)),
            "box": [i + 0.5, 1.0, 2.0, 3.0],
            "names": [f"n{j}" for j in range(i % 3)] or None,
        }
    )


FEATURES = {
    "image/encoded": wf.FixedLenFeature([], "image"),
    "image/class/label": wf.FixedLenFeature([], "int64"),
    "text": wf.FixedLenFeature([], "text"),
    "tokens": wf.VarLenFeature("int64"),
    "box": wf.FixedLenFeature([2, 2], "float32"),
    "names": wf.VarLenFeature("text"),
    "weight": wf.FixedLenFeature([], "float32", default_value=float("nan")),
}


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for shard in range(3):
        tfr.write(tmp_path / f"t-{shard:05}-of-00003", (record(4 * shard + i) for i in range(4)))
    return tmp_path


def test_samples_are_dicts_of_features(shards: Path) -> None:
    ds = wf.tfrecord(shards / "t-*", FEATURES)
    assert len(ds) == 12
    for i in (0, 5, 11):
        sample = ds.sample(i)
        with Image.open(io.BytesIO(picture(i))) as image:
            assert (sample["image/encoded"].transpose(1, 2, 0) == np.asarray(image)).all()
        assert int(sample["image/class/label"]) == i
        assert sample["text"] == f"täxt {i}"
        assert sample["tokens"].tolist() == list(range(i % 4))
        assert sample["tokens"].dtype == np.int64
        assert sample["box"].tolist() == [[i + 0.5, 1.0], [2.0, 3.0]]
        assert sample["names"] == [f"n{j}" for j in range(i % 3)]
        assert np.isnan(sample["weight"])
        assert sample["weight"].dtype == np.float32


def test_fields_make_tuples_and_batches(shards: Path) -> None:
    urls = [shards / "t-{00000..00001}-of-00003", str(shards / "t-00002*")]
    ds = wf.tfrecord(urls, FEATURES, fields=["image/encoded", "image/class/label", "__key__"])
    images, labels, keys = next(iter(ds.map(T.Resize((6, 6))).batch(12).numpy()))
    assert images.shape == (12, 3, 6, 6)
    assert labels.tolist() == list(range(12))
    assert keys[5] == f"{shards}/t-00001-of-00003/1"
    tokens = wf.tfrecord(shards / "t-*", FEATURES, fields="tokens").ragged_batch(12)
    (batch,) = next(iter(tokens.numpy()))
    assert batch.lengths.tolist() == [i % 4 for i in range(12)]
    padded = wf.tfrecord(shards / "t-*", FEATURES, fields="tokens").padded_batch(4)
    assert next(iter(padded.numpy()))[0].tolist() == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 2]]


def test_a_shuffle_mixes_all_files_and_is_resumed(shards: Path) -> None:
    ds = wf.tfrecord(shards / "t-*", FEATURES, fields=["image/class/label"]).shuffle(seed=3).batch(4)
    whole = [batch[0].tolist() for batch in ds.numpy()]
    assert sorted(i for batch in whole for i in batch) == list(range(12))
    assert any(len({i // 4 for i in batch}) > 1 for batch in whole)
    first = ds.numpy()
    first.set_epoch(0)
    iterator = iter(first)
    assert next(iterator)[0].tolist() == whole[0]
    state = first.state_dict()
    second = ds.numpy()
    second.load_state_dict(state)
    assert [batch[0].tolist() for batch in second] == whole[1:]


def test_a_data_set_is_sent_to_workers(shards: Path) -> None:
    ds = wf.tfrecord(shards / "t-*", FEATURES)
    again = pickle.loads(pickle.dumps(ds))
    assert again.sample(7)["text"] == ds.sample(7)["text"]
    labels = wf.tfrecord(shards / "t-*", FEATURES, fields=["image/class/label"])
    batches = labels.map(lambda sample: int(sample[0]) * 2).batch(6).numpy(num_workers=1)
    assert [batch.tolist() for batch in batches] == [list(range(0, 12, 2)), list(range(12, 24, 2))]


def test_without_features_records_are_bytes(tmp_path: Path) -> None:
    path = tfr.write(tmp_path / "x", [b"one", b"", bytes(range(256))])
    ds = wf.tfrecord(path)
    assert [ds.sample(i) for i in range(3)] == [b"one", b"", bytes(range(256))]
    assert list(ds.batch(3).numpy()) == [[b"one", b"", bytes(range(256))]]


def test_sequence_examples_are_pairs_of_dicts(tmp_path: Path) -> None:
    def message(i: int) -> bytes:
        return tfr.sequence_example(
            {"id": i}, {"x": [[float(i), float(j)] for j in range(i)], "word": ["a"] * i}
        )

    path = tfr.write(tmp_path / "x", map(message, range(4)))
    lists = {"x": wf.FixedLenSequenceFeature([2], "float32"), "word": wf.FixedLenSequenceFeature([], "text")}
    ds = wf.tfrecord(path, {"id": wf.FixedLenFeature([], "int64")}, sequence_features=lists)
    context, steps = ds.sample(2)
    assert int(context["id"]) == 2
    assert steps["x"].tolist() == [[2.0, 0.0], [2.0, 1.0]]
    assert steps["word"] == ["a", "a"]
    alone = wf.tfrecord(path, sequence_features={"x": lists["x"]})
    assert alone.sample(3)[1]["x"].shape == (3, 2)


def test_tensorflows_objects_are_taken(shards: Path) -> None:
    dtype = namedtuple("dtype", "name")
    fixed = namedtuple("FixedLenFeature", "shape dtype default_value")
    variable = namedtuple("VarLenFeature", "dtype")
    ragged = namedtuple("RaggedFeature", "dtype value_key partitions row_splits_dtype validate")
    length = namedtuple("UniformRowLength", "length")
    features = {
        "image/encoded": fixed([], dtype("string"), ""),
        "image/class/label": fixed([], dtype("int64"), None),
        "tokens": variable(dtype("int64")),
        "pairs": ragged(dtype("float32"), "box", (length(2),), dtype("int32"), False),
    }
    sample = wf.tfrecord(shards / "t-*", features, images="image/encoded").sample(6)
    assert sample["image/encoded"].shape == (3, 9, 8)
    assert (int(sample["image/class/label"]), sample["tokens"].tolist()) == (6, [0, 1])
    assert sample["pairs"].tolist() == [[6.5, 1.0], [2.0, 3.0]]
    assert wf.tfrecord(shards / "t-*", features).sample(6)["image/encoded"] == picture(6)


def test_what_cannot_be_had_says_so(shards: Path) -> None:
    sparse = namedtuple("SparseFeature", "index_key value_key dtype size")
    splits = namedtuple("RowSplits", "key")
    fixed = wf.FixedLenFeature
    for features, error, says in (
        ({"x": sparse("i", "v", "int64", 3)}, TypeError, "not supported"),
        ({"x": fixed([], "int32")}, ValueError, "must be one of int64"),
        ({"x": fixed([None], "int64")}, ValueError, "all sides must be known"),
        ({"x": fixed([2], "int64", 3)}, ValueError, "shape \\[2\\] takes 2"),
        ({"x": fixed([], "int64", 0.5)}, ValueError, "must be of dtype int64"),
        ({"x": wf.VarLenFeature("string")}, ValueError, "several values"),
        ({"x": wf.RaggedFeature("int64", partitions=[splits("s")])}, ValueError, "UniformRowLength"),
        ({"x": wf.FixedLenSequenceFeature([], "int64")}, ValueError, "allow_missing"),
        ({}, ValueError, "empty"),
        ([("x", 1)], TypeError, "must be a dict"),
    ):
        with pytest.raises(error, match=says):
            wf.tfrecord(shards / "t-*", features)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not among the features"):
        wf.tfrecord(shards / "t-*", FEATURES, images="nope")
    with pytest.raises(ValueError, match="compression is 'zip'"):
        wf.tfrecord(shards / "t-*", compression="zip")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        wf.tfrecord(shards / "none-*")


def test_bad_records_are_bad_samples(tmp_path: Path) -> None:
    whole = tfr.framed(map(record, range(6)))
    bad = bytearray(whole)
    bad[200] ^= 1
    (tmp_path / "x").write_bytes(bad[:-7])
    ds = wf.tfrecord(tmp_path / "x", FEATURES, fields=["image/class/label"])
    assert len(ds) == 6
    with pytest.raises(wf.CorruptSampleError, match="checksum of the record"):
        ds.sample(0)
    with pytest.raises(wf.CorruptSampleError, match="inside record 5"):
        ds.sample(5)
    loader = ds.batch(6).numpy(on_error="skip")
    assert [batch[0].tolist() for batch in loader] == [[1, 2, 3, 4]]
    assert len(loader.errors()) == 2


def test_compressed_files_are_unpacked_into_a_folder(tmp_path: Path) -> None:
    whole = tfr.framed(map(record, range(6)))
    (tmp_path / "g").write_bytes(gzip.compress(whole))
    (tmp_path / "z").write_bytes(zlib.compress(whole))
    for name, compression in (("g", "GZIP"), ("z", "ZLIB"), ("g", "auto"), ("z", "auto")):
        with pytest.raises(wf.UnsupportedSampleError, match="unpack_to"):
            wf.tfrecord(tmp_path / name, FEATURES, compression=compression)  # type: ignore[arg-type]
        ds = wf.tfrecord(tmp_path / name, FEATURES, compression=compression, unpack_to=tmp_path / "unpacked")  # type: ignore[arg-type]
        assert [int(ds.sample(i)["image/class/label"]) for i in range(len(ds))] == list(range(6))
    assert len(list((tmp_path / "unpacked").iterdir())) == 2


def test_inspect_counts_kinds_and_damage(shards: Path) -> None:
    """Names without an extension are looked into; an image and its label are found by the first record."""
    path = shards / "t-00002-of-00003"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged[:-3])
    for what in (f"{shards}/t-*", str(shards)):
        done = subprocess.run(
            [sys.executable, "-m", "wellfed", "inspect", what, "--json"], capture_output=True, timeout=120
        )
        found = json.loads(done.stdout)
        assert (done.returncode, found["format"], found["samples"]) == (1, "tfrecord", 12)
        assert {"name": "image/class/label", "values": "1 of int64"} in found["features"]
        assert found["codecs"] == [{"name": "PNG", "images": 10}]
        assert sum(one["samples"] for one in found["classes"]) == 10
        messages = [bad["message"] for bad in found["bad_samples"]]
        assert "checksum" in messages[0]
        assert "inside record 3" in messages[1]


@pytest.mark.skipif(not PYTHON, reason="NOT TESTED HERE: no TensorFlow")
def test_values_are_those_of_tensorflow(tmp_path: Path) -> None:
    """TensorFlow writes files, plain and compressed, and says what its parser finds in them."""
    script = """
    import pickle, random, sys
    import tensorflow as tf

    def feature(values, kind):
        lists = {"i": ("int64_list", tf.train.Int64List), "f": ("float_list", tf.train.FloatList)}
        name, cls = lists.get(kind, ("bytes_list", tf.train.BytesList))
        return tf.train.Feature(**{name: cls(value=values)})

    draw = random.Random(5)
    folder = sys.argv[1]
    records = []
    for i in range(40):
        features = {
            "label": feature([draw.randrange(-2**62, 2**62)], "i"),
            "box": feature([draw.uniform(-9, 9) for _ in range(4)], "f"),
            "tokens": feature([draw.randrange(-5, 3000) for _ in range(draw.randrange(5))], "i"),
            "floats": feature([draw.random() for _ in range(2 * draw.randrange(4))], "f"),
            "more": feature([draw.random() for _ in range(draw.randrange(4))], "f"),
            "raw": feature([bytes(draw.randrange(256) for _ in range(draw.randrange(9)))], "b"),
        }
        if i % 3:
            features["some"] = feature([draw.randrange(9)], "i")
        if i % 4 == 1:
            features["tokens"] = tf.train.Feature()
        example = tf.train.Example(features=tf.train.Features(feature=features))
        records.append(example.SerializeToString())
    for name in ("", "GZIP", "ZLIB"):
        with tf.io.TFRecordWriter(f"{folder}/file{name}", name) as writer:
            for record in records:
                writer.write(record)
    spec = {
        "label": tf.io.FixedLenFeature([], tf.int64),
        "box": tf.io.FixedLenFeature([2, 2], tf.float32),
        "tokens": tf.io.VarLenFeature(tf.int64),
        "raw": tf.io.FixedLenFeature([], tf.string),
        "some": tf.io.FixedLenFeature([], tf.int64, default_value=-3),
        "floats": tf.io.FixedLenSequenceFeature([2], tf.float32, allow_missing=True),
        "row": tf.io.RaggedFeature(tf.float32, value_key="more"),
    }
    found = []
    for record in tf.data.TFRecordDataset(f"{folder}/file"):
        one = tf.io.parse_single_example(record, spec)
        one["tokens"] = tf.sparse.to_dense(one["tokens"])
        found.append({name: value.numpy() for name, value in one.items()})
    pickle.dump(found, open(f"{folder}/expected", "wb"))
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [PYTHON, "-c", textwrap.dedent(script), str(tmp_path)], check=True, env=environment, timeout=300
    )
    expected = pickle.loads((tmp_path / "expected").read_bytes())
    features = {
        "label": wf.FixedLenFeature([], "int64"),
        "box": wf.FixedLenFeature([2, 2], "float32"),
        "tokens": wf.VarLenFeature("int64"),
        "raw": wf.FixedLenFeature([], "string"),
        "some": wf.FixedLenFeature([], "int64", default_value=-3),
        "floats": wf.FixedLenSequenceFeature([2], "float32", allow_missing=True),
        "row": wf.RaggedFeature("float32", value_key="more"),
    }
    for name in ("file", "fileGZIP", "fileZLIB"):
        ds = wf.tfrecord(tmp_path / name, features, unpack_to=tmp_path / "unpacked")
        assert len(ds) == len(expected)
        for i, wanted in enumerate(expected):
            sample = ds.sample(i)
            assert sample.keys() == wanted.keys()
            for field, value in wanted.items():
                if isinstance(value, bytes):
                    assert sample[field] == value
                else:
                    found = np.asarray(sample[field])
                    assert (found.dtype, found.shape) == (value.dtype, value.shape), field
                    assert (found == value).all(), field


def test_any_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """Messages that fit their checksums but make no sense: no crash, and an error or the values that are there."""
    draw = random.Random(1)
    good = record(3)
    records = []
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        records.append(bytes(bad))
    ds = wf.tfrecord(tfr.write(tmp_path / "x", records), FEATURES)
    outcomes = set()
    for i in range(len(ds)):
        try:
            ds.sample(i)
            outcomes.add("read")
        except wf.CorruptSampleError:
            outcomes.add("refused")
        except (wf.UnsupportedSampleError, wf.LimitExceededError):
            outcomes.add("other")
    assert {"read", "refused"} <= outcomes


def test_the_length_of_a_record_is_not_believed(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 60)
    (tmp_path / "x").write_bytes(length + struct.pack("<I", tfr.masked_crc(length)) + b"abc")
    ds = wf.tfrecord(tmp_path / "x")
    with pytest.raises(wf.CorruptSampleError, match=str(1 << 60)):
        ds.sample(0)
