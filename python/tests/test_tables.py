"""Tables: every value as pyarrow has it, in all orders and layouts, and damage that checksums find."""

from __future__ import annotations

import io
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

ROWS = 300


def numbers(rows: int = ROWS, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "x": pa.array(rng.normal(size=rows).astype(np.float32)),
            "byte": pa.array(rng.integers(0, 255, rows).astype(np.uint8)),
            "flag": pa.array(rng.random(rows) < 0.5),
            "half": pa.array(rng.normal(size=rows).astype(np.float16)),
            "day": pa.array(rng.integers(0, 20000, rows).astype(np.int32), pa.date32()),
            "time": pa.array(rng.integers(0, 2**40, rows), pa.timestamp("us", tz="UTC")),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=rows * 3)), 3),
        }
    )


def others(rows: int = ROWS) -> Any:
    rng = random.Random(0)
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "text": pa.array([f"text {i} ü" * rng.randrange(3) for i in range(rows)]),
            "large": pa.array([f"{i}" for i in range(rows)], pa.large_string()),
            "raw": pa.array([bytes([i % 256]) * rng.randrange(5) for i in range(rows)]),
            "kind": pa.array([("a", "bb", "ccc")[i % 3] for i in range(rows)]).dictionary_encode(),
            "tokens": pa.array([list(range(rng.randrange(6))) for _ in range(rows)], pa.list_(pa.int16())),
        }
    )


def write_parquet(table: Any, path: Path) -> None:
    pq.write_table(table, path, row_group_size=70, write_page_checksum=True)


def write_small_pages(table: Any, path: Path) -> None:
    pq.write_table(
        table, path, row_group_size=128, data_page_size=64, data_page_version="2.0", compression="zstd"
    )


def write_delta(table: Any, path: Path) -> None:
    kinds = {
        "DELTA_BINARY_PACKED": ("id", "time"),
        "BYTE_STREAM_SPLIT": ("x",),
        "DELTA_BYTE_ARRAY": ("text",),
    }
    kinds |= {"DELTA_LENGTH_BYTE_ARRAY": ("raw", "large")}
    encodings = {name: kind for kind, names in kinds.items() for name in names if name in table.column_names}
    pq.write_table(table, path, row_group_size=100, use_dictionary=False, column_encoding=encodings)


def write_feather(table: Any, path: Path) -> None:
    feather.write_feather(table, path, compression="lz4", chunksize=64)


def write_stream(table: Any, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)


WRITERS: dict[str, tuple[Callable[[Any, Path], None], Callable[..., wf.Dataset]]] = {
    "parquet": (write_parquet, wf.parquet),
    "small pages": (write_small_pages, wf.parquet),
    "delta": (write_delta, wf.parquet),
    "feather": (write_feather, wf.arrow),
    "stream": (write_stream, wf.arrow),
}


@pytest.fixture(params=WRITERS)
def write_and_open(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., wf.Dataset]:
    write, open_ = WRITERS[request.param]

    def both(table: Any, **options: Any) -> wf.Dataset:
        path = tmp_path / "table"
        write(table, path)
        return open_(path, **options)

    return both


def expected(table: Any, name: str) -> list[Any]:
    column = table[name]
    if pa.types.is_timestamp(column.type) or pa.types.is_date32(column.type):
        wide = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
        return [int(value) for value in wide.to_pylist()]
    return list(column.to_pylist())


def test_numbers_are_those_of_pyarrow(write_and_open: Callable[..., wf.Dataset]) -> None:
    table = numbers()
    ds = write_and_open(table)
    assert len(ds) == ROWS
    batches = list(ds.batch(64).numpy())
    for name in table.column_names:
        found = np.concatenate([batch[name] for batch in batches])
        assert np.array_equal(found, np.array(expected(table, name), found.dtype)), name
    assert batches[0]["x"].dtype == np.float32
    assert batches[0]["half"].dtype == np.float16
    assert batches[0]["vector"].shape == (64, 3)
    assert batches[0]["day"].dtype == np.int64
    assert batches[0]["flag"].dtype == np.bool_


def test_texts_bytes_and_lists_are_those_of_pyarrow(write_and_open: Callable[..., wf.Dataset]) -> None:
    table = others()
    ds = write_and_open(table)
    batches = list(ds.ragged_batch(64).numpy())
    for name in ("text", "large", "raw", "kind"):
        assert list(itertools.chain.from_iterable(batch[name] for batch in batches)) == expected(table, name)
    rows = [row.tolist() for batch in batches for row in batch["tokens"]]
    assert rows == expected(table, "tokens")


@pytest.mark.usefixtures("epochs_not_counted")
def test_random_pipelines_give_the_rows_of_the_table(write_and_open: Callable[..., wf.Dataset]) -> None:
    table = numbers()
    ds = write_and_open(table, fields=["id", "x", "vector"])
    x, vector = np.array(expected(table, "x"), np.float32), np.array(expected(table, "vector"))
    rng = random.Random(1)
    for _ in range(12):
        block, size = rng.choice([None, 1, 40, 70]), rng.choice([1, 7, 64, 200])
        workers = rng.choice([1, 2, 8])
        made = ds.shuffle(seed=3, block_size=block, window=rng.choice([1, 3])) if rng.random() < 0.7 else ds
        taken = ROWS
        if rng.random() < 0.3:
            made, taken = made.take(123), 123
        made = made.batch(size).with_options(num_workers=workers)
        ids = []
        for number, floats, vectors in made.numpy():
            assert np.array_equal(floats, x[number])
            assert np.array_equal(vectors, vector[number])
            ids += number.tolist()
        assert len(ids) == len(set(ids)) == taken
        loader = made.numpy()
        first = list(itertools.islice(loader, rng.randrange(3)))
        state = loader.state_dict()
        again = made.numpy()
        again.load_state_dict(state)
        resumed = [number for batch in [*first, *again] for number in batch[0].tolist()]
        assert resumed == ids


@pytest.mark.usefixtures("epochs_not_counted")
def test_rows_copied_together_are_those_read_one_by_one(tmp_path: Path) -> None:
    """Columns of numbers are copied many rows at a time, and with a text among them one by one."""
    rng = random.Random(4)
    for part in range(2):
        null = [rng.random() < 0.1 for _ in range(ROWS)]
        x = np.random.default_rng(part).normal(size=ROWS)
        table = pa.table(
            {
                "id": pa.array(range(part * ROWS, part * ROWS + ROWS)),
                "x": pa.array([None if no else value for no, value in zip(null, x)], pa.float32()),
                "flag": pa.array([i % 3 == 0 for i in range(ROWS)]),
                "text": pa.array([str(i) for i in range(ROWS)]),
            }
        )
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=rng.choice([40, 70, 1000]))
    urls = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    table = pq.read_table(urls[0]), pq.read_table(urls[1])
    x_of = {i: x for part in table for i, x in zip(part["id"].to_pylist(), part["x"].to_pylist())}
    for _ in range(30):
        conditions: list[Any] = [None, [("id", ">", 120)], [("x", ">", -0.5), ("flag", "==", True)]]
        filters = rng.choice(conditions)
        shuffle = rng.choice([None, {"seed": 3}, {"seed": 5, "block_size": 70, "window": 2}])
        take, rank, epochs = rng.choice([None, 77]), rng.choice([None, (1, 3)]), rng.choice([1, 2])
        # A batch of bad samples alone is an error.
        chosen: list[tuple[Any, int]] = [("skip", 33), ("skip", 128), ("replace", 1), ("replace", 50)]
        on_error, size = rng.choice(chosen)
        found = []
        for fields in (["id", "x", "flag"], ["id", "x", "flag", "text"]):
            ds = wf.parquet(urls, fields=fields, filters=filters)
            ds = ds if shuffle is None else ds.shuffle(**shuffle)
            ds = ds if take is None else ds.take(take)
            ds = ds if rank is None else ds.shard(*rank)
            ds = ds.repeat(epochs).batch(size)
            ds = ds.with_options(num_workers=rng.choice([1, 2, 8]), on_error=on_error)
            found.append(
                [row for batch in ds.numpy() for row in zip(*(column.tolist() for column in batch[:3]))]
            )
        together, single = found
        if on_error == "skip":
            assert together == single, (filters, shuffle, take, rank, epochs, size)
            continue
        assert len(together) == len(single)
        assert all(x == np.float32(x_of[i]) and flag == (i % ROWS % 3 == 0) for i, x, flag in together)
        # Replacements are drawn by what the fields are, and most rows are none.
        assert sum(a == b for a, b in zip(together, single)) > 0.7 * len(together)


def test_shards_of_ranks_are_disjoint(tmp_path: Path) -> None:
    for part in range(3):
        write_parquet(
            numbers(100, part).set_column(0, "id", pa.array(range(part * 100, part * 100 + 100))),
            tmp_path / f"{part}.parquet",
        )
    ds = wf.parquet(tmp_path / "{0..2}.parquet", fields="id")
    seen = [batch[0] for rank in range(3) for batch in ds.shard(rank, 3).batch(10).numpy()]
    assert sorted(np.concatenate(seen).tolist()) == list(range(300))
    assert len(wf.parquet([tmp_path / "0.parquet", tmp_path / "*2.parquet"])) == 200
    assert len(wf.parquet(tmp_path)) == 300


FILTERS: list[tuple[Any, Any]] = [
    ([("id", ">", 100)], None),
    ([("id", ">=", 100), ("id", "<", 200.5)], None),
    ([[("id", "<", 10)], [("x", ">", 1.5)]], None),
    ([("kind", "in", ["a", "ccc"])], None),
    ([("kind", "!=", "bb"), ("id", "not in", [0, 2])], None),
    ([("flag", "==", True)], None),
    ([("text", ">", "text 5")], None),
    ([("x", "!=", float(np.float32(0.5)))], None),
]


@pytest.mark.parametrize("filters", [filters for filters, _ in FILTERS])
def test_filters_take_the_rows_that_pyarrow_takes(tmp_path: Path, filters: Any) -> None:
    table = others().append_column("x", numbers()["x"]).append_column("flag", numbers()["flag"])
    path = tmp_path / "table.parquet"
    write_parquet(table, path)
    theirs = pq.read_table(path, filters=filters)["id"].to_pylist()
    assert 0 < len(theirs) < ROWS or filters[0][1] == "!="
    ds = wf.parquet(path, fields="id", filters=filters)
    assert [int(one) for batch in ds.batch(50).numpy() for one in batch[0]] == theirs
    assert [int(one) for batch in ds.shuffle().batch(50).numpy() for one in sorted(batch[0])] != theirs[:0]


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    table = pa.table({"a": [1, None, 3], "money": pa.array([1, 2, 3], pa.decimal128(5, 2))})
    pq.write_table(table, path)
    with pytest.raises(wf.UnsupportedSampleError, match=r"money.*[Dd]ecimal"):
        wf.parquet(path)
    with pytest.raises(ValueError, match=r"no column .*b.*there are a, money"):
        wf.parquet(path, columns=["b"])
    ds = wf.parquet(path, columns=["a"])
    with pytest.raises(wf.CorruptSampleError, match=r'"a" is null in row 1'):
        list(ds.batch(3).numpy())
    skipping = ds.batch(3).with_options(on_error="skip")
    assert [batch["a"].tolist() for batch in skipping.numpy()] == [[1, 3]]
    assert len(wf.parquet(path, columns=["a"], filters=[("a", ">", 0)])) == 2
    for filters, error in [
        ([("a", "~", 1)], ValueError),
        ([("a", "==")], TypeError),
        ([("a", "in", "text")], TypeError),
        ([("a", "==", "text")], ValueError),
        ([("none", "==", 1)], ValueError),
    ]:
        with pytest.raises(error):
            wf.parquet(path, columns=["a"], filters=filters)
    with pytest.raises(ValueError, match="both"):
        wf.parquet(path, columns=["a"], fields=["a"])
    with pytest.raises(FileNotFoundError):
        wf.parquet(tmp_path / "none.parquet")


def test_images_and_classes_of_hugging_face(tmp_path: Path, photos: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = sorted(photos.rglob("*.jpg"))[:8]
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])}
    )
    rows = {
        "image": [{"bytes": file.read_bytes(), "path": None} for file in files],
        "label": [i % 2 for i in range(8)],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    data.to_parquet(tmp_path / "train-00000-of-00001.parquet")
    datasets.DatasetDict({"train": data, "test": data.select(range(4))}).save_to_disk(tmp_path / "saved")
    from wellfed import transforms as T

    listed = wf.image_files(files, labels=[i % 2 for i in range(8)]).map(T.Resize((24, 24))).batch(8)
    images, labels = next(iter(listed.numpy()))
    for ds in (
        wf.parquet(tmp_path, fields=["image", "label"], split="train"),
        wf.arrow(tmp_path / "saved", fields=["image", "label"], split="train"),
        wf.arrow(tmp_path / "saved" / "train", fields=["image", "label"]),
    ):
        assert ds.classes == ["cat", "dog"]
        ours, our_labels = next(iter(ds.map(T.Resize((24, 24))).batch(8).numpy()))
        assert np.array_equal(ours, images)
        assert np.array_equal(our_labels, labels)
    assert len(wf.arrow(tmp_path / "saved", split="test")) == 4
    with pytest.raises(ValueError, match="train, test"):
        wf.arrow(tmp_path / "saved")
    with pytest.raises(FileNotFoundError):
        wf.parquet(tmp_path, split="test")
    raw = wf.parquet(tmp_path, columns=["image"], images=[], split="train").batch(1)
    assert next(iter(raw.numpy()))["image"] == [files[0].read_bytes()]


def test_checksums_find_every_flipped_bit_of_a_page(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.parquet", tmp_path / "bad.parquet"
    pq.write_table(
        pa.table({"x": np.arange(2000.0)}),
        whole,
        compression="none",
        write_page_checksum=True,
        use_dictionary=False,
    )
    data = whole.read_bytes()
    column = pq.ParquetFile(whole).metadata.row_group(0).column(0)
    end = column.data_page_offset + column.total_compressed_size
    rng = random.Random(2)
    for _ in range(60):
        at = rng.randrange(end - 15000, end)
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with pytest.raises(wf.CorruptSampleError, match="checksum"):
            wf.parquet(path).sample(0)


def inspect(path: Path) -> Any:
    command = [sys.executable, "-m", "wellfed", "inspect", str(path), "--json"]
    return json.loads(
        subprocess.run(command, capture_output=True, text=True, timeout=300, check=False).stdout
    )


def test_damage_is_found_by_inspect(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"x": np.arange(100.0), "id": np.arange(100)}), path, row_group_size=50)
    report = inspect(path)
    assert (report["samples"], report["format"], report["bad_samples"], report["classes"]) == (
        100,
        "parquet",
        [],
        None,
    )
    assert [field["name"] for field in report["fields"]] == ["x", "id"]
    data = path.read_bytes()
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    path.write_bytes(data[:start] + bytes(8) + data[start + 8 :])
    bad = inspect(path)["bad_samples"]
    assert [one["index"] for one in bad] == list(range(50, 100))
    assert bad[0]["kind"] == "corrupt"


def test_explain_says_what_a_shuffle_costs(tmp_path: Path) -> None:
    write_parquet(numbers(), tmp_path / "table.parquet")
    text = wf.parquet(tmp_path / "table.parquet").shuffle().batch(4).explain()
    assert "up to 70 samples at once" in text
    assert "block_size=70" in text


def test_a_pickled_data_set_and_workers_read_the_same(tmp_path: Path) -> None:
    import pickle

    write_parquet(numbers(), tmp_path / "table.parquet")
    ds = wf.parquet(tmp_path / "table.parquet", fields=["id", "x"])
    again = pickle.loads(pickle.dumps(ds))
    assert [int(again.sample(i)[0]) for i in (0, 299, 70)] == [0, 299, 70]
    mapped = ds.map(lambda sample: (sample[0] * 2, sample[1])).batch(50).with_options(num_workers=2)
    ids = np.concatenate([batch[0] for batch in mapped.torch()])
    assert ids.tolist() == [2 * i for i in range(ROWS)]


def test_images_none_of_which_has_a_path(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 9, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    data = pa.table({"image": [{"bytes": file.getvalue(), "path": None}]})
    pq.write_table(data, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", data.schema) as out:
        out.write_table(data)
    for ds in (
        wf.parquet(tmp_path / "t.parquet", images=["image"]),
        wf.arrow(tmp_path / "t.arrow", images=["image"]),
    ):
        assert np.array_equal(ds.sample(0)["image"], pixels.transpose(2, 0, 1))
