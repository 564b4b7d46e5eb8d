"""`Dataset.stack`: columns of tables as one array, in every format, order and encoding, against NumPy."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

import wellfed as wf
from wellfed import tables as t

ROWS, GROUP = 230, 37
WORDS = ["red", "green", "blue", "ä", ""]
OPEN = {"parquet": wf.parquet, "arrow": wf.arrow}


def columns(seed: int, nulls: bool) -> dict[str, list[Any]]:
    """Values of a table, by column; None is null."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if nulls and rng.random() < 0.2 else value

    return {
        "id": list(range(ROWS)),
        "i8": [maybe(rng.randrange(-128, 128)) for _ in range(ROWS)],
        "u32": [maybe(rng.randrange(2**32)) for _ in range(ROWS)],
        "i64": [maybe(rng.randrange(-(2**40), 2**40)) for _ in range(ROWS)],
        "f32": [maybe(float(np.float32(rng.gauss(0, 10)))) for _ in range(ROWS)],
        "f64": [maybe(rng.choice([rng.gauss(0, 1e6), float("nan")])) for _ in range(ROWS)],
        "flag": [maybe(rng.random() < 0.5) for _ in range(ROWS)],
        "word": [maybe(rng.choice(WORDS)) for _ in range(ROWS)],
        "kind": [maybe(rng.choice(WORDS[:3])) for _ in range(ROWS)],
    }


TYPES = {
    "id": pa.int64(),
    "i8": pa.int8(),
    "u32": pa.uint32(),
    "i64": pa.int64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "flag": pa.bool_(),
    "word": pa.string(),
    "kind": pa.dictionary(pa.int8(), pa.string()),
}


def write(folder: Path, values: dict[str, list[Any]]) -> None:
    table = pa.table({name: pa.array(values[name], kind) for name, kind in TYPES.items()})
    pa.parquet.write_table(table, folder / "t.parquet", row_group_size=GROUP)
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=GROUP)


def chosen(rng: random.Random, name: str) -> Any:
    """An encoding of a column that never makes a row a bad one, and its name alone where that can be."""
    if name in ("word", "kind"):
        mode = rng.choice(["int", "one_hot"])
        if rng.random() < 0.3:
            return t.Hashing(name, rng.randrange(1, 9), mode)
        return t.Category(name, rng.sample(WORDS, rng.randrange(1, 5)), 1, mode)
    if name in ("i8", "i64") and rng.random() < 0.3:
        return t.Category(name, rng.sample(range(-128, 128), 40), 1, rng.choice(["int", "one_hot"]))
    return t.Number(name, rng.choice([0, 1.5]), rng.choice([1, 2.5]), 7.0, rng.random() < 0.5)


_hashes: dict[tuple[str, int], int] = {}
"""The bin of a word among so many, as `know_hashes` has found it."""


def expected(encoding: Any, values: list[Any], dtype: str) -> np.ndarray:
    """Rows of numbers by NumPy and Python."""
    if isinstance(encoding, str):
        encoding = t.Number(encoding)
    if isinstance(encoding, t.Number):
        lost = [value is None or value != value for value in values]
        numbers = [
            encoding.missing if bad and encoding.missing is not None else v for v, bad in zip(values, lost)
        ]
        out = ((np.array(numbers, np.float64) - encoding.mean) / encoding.std).astype(dtype)[:, None]
        return np.c_[out, np.array(lost, dtype)] if encoding.indicator else out
    if isinstance(encoding, t.Category):
        words = list(encoding.vocabulary)
        places = [words.index(value) + encoding.num_oov_indices if value in words else 0 for value in values]
        width = len(words) + encoding.num_oov_indices
    else:
        places = [_hashes["" if value is None else str(value), encoding.num_bins] for value in values]
        width = encoding.num_bins
    if encoding.output_mode == "int":
        return np.array(places, dtype)[:, None]
    return np.eye(width, dtype=dtype)[places]


def know_hashes(folder: Path) -> None:
    """Fills `_hashes`; that hashes are the same for ever is another test's."""
    path = folder / "words.parquet"
    pa.parquet.write_table(pa.table({"word": WORDS}), path)
    for bins in range(1, 9):
        [batch] = wf.parquet(path).stack([t.Hashing("word", bins)], "int64", name="h").batch(9).numpy()
        _hashes.update({(word, bins): int(row[0]) for word, row in zip(WORDS, batch["h"])})


@pytest.mark.parametrize("seed", range(24))
def test_rows_are_those_of_numpy(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    know_hashes(tmp_path)
    values = columns(seed, nulls=seed % 3 == 0)
    write(tmp_path, values)
    dtype = rng.choice(["float32", "float64"])
    names = rng.sample([name for name in TYPES if name != "id"], rng.randrange(1, 8))
    cut = rng.randrange(1, len(names) + 1)
    stacks = [part for part in (names[:cut], names[cut:]) if part]
    form = rng.choice(["parquet", "arrow"])
    ds = OPEN[form](tmp_path / f"t.{form}", columns=["id", *names])
    wanted = {}
    for number, part in enumerate(stacks):
        encodings = [chosen(rng, name) for name in part]
        if rng.random() < 0.3:
            ds = ds.shuffle(seed=number)
        ds = ds.stack(encodings, dtype, name=f"x{number}")
        wanted[f"x{number}"] = np.hstack([expected(e, values[e.column], dtype) for e in encodings])
    if rng.random() < 0.5:
        ds = ds.shuffle(block_size=GROUP, window=2, seed=3)
    took = rng.randrange(1, ROWS + 1)
    ds = ds.take(took)
    again = wf.Dataset.from_json(ds.to_json())
    seen = []
    for batch in again.batch(32).numpy(num_workers=rng.choice([1, 2])):
        assert set(batch) == {"id", *wanted}
        seen += batch["id"].tolist()
        for name, rows in wanted.items():
            assert batch[name].dtype == dtype
            np.testing.assert_array_equal(batch[name], rows[batch["id"]])
    assert len(seen) == took == len(set(seen))
    # One sample by itself goes another way.
    sample = ds.sample(0)
    for name, rows in wanted.items():
        np.testing.assert_array_equal(sample[name], rows[sample["id"]])


@pytest.mark.parametrize("form", OPEN)
def test_whole_numbers_stay_whole_and_what_does_not_fit_is_a_bad_row(form: str, tmp_path: Path) -> None:
    write(tmp_path, columns(1, nulls=False))
    ds = OPEN[form](tmp_path / f"t.{form}")
    rows = np.concatenate(
        [b["x"] for b in ds.stack(["i64", "u32", "flag"], "int64", name="x").batch(9).numpy()]
    )
    values = columns(1, nulls=False)
    assert rows.dtype == np.int64
    assert rows.tolist() == [list(map(int, row)) for row in zip(values["i64"], values["u32"], values["flag"])]
    with ds.stack(["u32"], "int32", name="x").batch(9).numpy(on_error="skip") as loader:
        found = np.concatenate([batch["x"] for batch in loader])
        assert found[:, 0].tolist() == [value for value in values["u32"] if value < 2**31]
        [*errors] = loader.errors()
    assert len(errors) == sum(value >= 2**31 for value in values["u32"])
    assert 'column "u32" has ' in str(errors[0].error)
    assert "which does not fit" in str(errors[0].error)


def test_rows_that_have_no_number_are_bad_ones(tmp_path: Path) -> None:
    values = columns(3, nulls=True)
    write(tmp_path, values)
    ds = wf.parquet(tmp_path / "t.parquet", columns=["f32", "word"])
    with ds.stack(["f32", t.Category("word", WORDS, 0)], name="x").batch(9).numpy(on_error="skip") as loader:
        kept = np.concatenate([batch["x"] for batch in loader])
        errors = [str(bad.error) for bad in loader.errors()]
    whole = [(f, w) for f, w in zip(values["f32"], values["word"]) if f is not None and w is not None]
    assert kept.tolist() == [[float(np.float32(f)), float(WORDS.index(w))] for f, w in whole]
    assert len(errors) == ROWS - len(whole)
    assert any('column "f32" is null' in error for error in errors)
    assert any('column "word" is null, which its vocabulary has not' in error for error in errors)
    with pytest.raises(wf.CorruptSampleError, match='column "f32" is null'):
        list(ds.stack(["f32"], name="x").batch(9).numpy())


def test_csv_with_a_label_and_bad_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["a,b,c,y", *(f"{i},{i / 4},w{i % 3},{i % 2}" for i in range(40))]
    lines[20] = "oops,1,2"
    path.write_text("\n".join(lines))
    ds = wf.csv(path, label_name="y", column_defaults=[np.int64, np.float32, np.str_, np.int64], header=True)
    ds = ds.stack([t.Number("b", missing=0.0), "a", t.Category("c", ["w0", "w1"], output_mode="one_hot")])
    with ds.batch(64).numpy(on_error="skip") as loader:
        [(features, label)] = loader
        assert len(loader.errors()) == 1
    left = [i for i in range(40) if i != 19]
    assert label.tolist() == [i % 2 for i in left]
    hot = {0: [0, 1, 0], 1: [0, 0, 1], 2: [1, 0, 0]}
    assert features["features"].tolist() == [[i / 4, i, *hot[i % 3]] for i in left]


def test_hashes_are_the_same_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "words.parquet"
    pa.parquet.write_table(pa.table({"word": [*WORDS, "12"], "n": [0, 1, 2, 3, 4, 12]}), path)
    ds = wf.parquet(path).stack([t.Hashing("word", 1000), t.Hashing("n", 1000)], "int64", name="h")
    [batch] = ds.batch(9).numpy()
    assert batch["h"][:, 0].tolist() == HASHES
    # A whole number is hashed as its text.
    assert batch["h"][5, 0] == batch["h"][5, 1]


HASHES = [359, 350, 157, 640, 350, 639]


def test_adapt_finds_means_deviations_and_vocabularies(tmp_path: Path) -> None:
    values = columns(5, nulls=False)
    write(tmp_path, values)
    ds = wf.parquet(tmp_path / "t.parquet", columns=["f64", "word", "i64"])
    number, word, whole = t.adapt(ds)
    there = np.array([value for value in values["f64"] if value == value])
    assert (number.mean, number.std) == (pytest.approx(there.mean()), pytest.approx(there.std()))
    assert (whole.mean, whole.std) == (
        pytest.approx(np.mean(values["i64"])),
        pytest.approx(np.std(values["i64"])),
    )
    counts = {word: values["word"].count(word) for word in WORDS}
    assert word.vocabulary == sorted(counts, key=lambda word: (-counts[word], word))
    [short] = t.adapt(ds, "word", max_tokens=3, output_mode="one_hot")
    assert (short.vocabulary, short.output_mode) == (word.vocabulary[:2], "one_hot")
    [stacked] = ds.stack(t.adapt(ds, ["i64"]), "float64", name="x").batch(ROWS).numpy()
    assert stacked["x"].mean() == pytest.approx(0, abs=1e-9)
    assert stacked["x"].std() == pytest.approx(1)


def test_adapt_leaves_missing_numbers_out_of_means(tmp_path: Path) -> None:
    values = columns(6, nulls=True)
    values["word"] = [word or "none" for word in values["word"]]
    write(tmp_path, values)
    names = ["f64", "word", "i64", "flag"]
    for ds in (
        wf.parquet(tmp_path / "t.parquet", columns=names),
        wf.arrow(tmp_path / "t.arrow", columns=names),
    ):
        with pytest.raises(wf.CorruptSampleError, match="null"):
            t.adapt(ds)
        found = t.adapt(ds, missing=0.5)
        assert [column.column for column in found] == names
        for column in (found[0], *found[2:]):
            there = np.array([v for v in values[column.column] if v is not None and v == v], np.float64)
            assert isinstance(column, t.Number)
            assert (column.mean, column.std, column.missing) == (
                pytest.approx(there.mean()),
                pytest.approx(there.std()),
                0.5,
            )
        assert set(found[1].vocabulary) == set(values["word"])
        stacked = np.concatenate([batch["features"] for batch in ds.stack(found).batch(50).numpy()])
        assert stacked.shape == (ROWS, 4)
        assert np.isfinite(stacked).all()
    arrays = wf.from_tensor_slices({"x": np.array([1.0, np.nan, 3.0])})
    assert t.adapt(arrays, missing=0) == [t.Number("x", 2.0, 1.0, 0)]


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        (lambda ds: ds.stack(["nope"]), "there is no column"),
        (lambda ds: ds.stack(["f32", "f32"]), "stacked twice"),
        (lambda ds: ds.stack(["f32"], name="id"), "two fields are called"),
        (lambda ds: ds.stack(["word"]), "is text, and no number"),
        (lambda ds: ds.stack([]), "no column is given"),
        (lambda ds: ds.stack(["f32"], "int64"), "which a stack of int64 would cut"),
        (lambda ds: ds.stack([t.Number("i64", mean=1)], "int64"), "would cut"),
        (lambda ds: ds.stack(["f32"], "uint8"), "it must be one of"),
        (lambda ds: ds.stack([t.Number("f32", std=0)]), "std is 0"),
        (lambda ds: ds.stack([t.Number("f32", indicator=True)]), "no number for them"),
        (lambda ds: ds.stack([t.Category("f32", ["1"])]), "has no vocabulary"),
        (lambda ds: ds.stack([t.Category("i64", ["x"])]), "whole numbers, and its vocabulary has"),
        (lambda ds: ds.stack([t.Category("word", ["a", "a"])]), "twice"),
        (lambda ds: ds.stack([t.Category("word", ["a"], 2)]), "must be 0 or 1"),
        (lambda ds: ds.stack([t.Hashing("word")]), "num_bins is 0"),
        (lambda ds: ds.stack([t.Hashing("word", 2**31, "one_hot")]), "numbers a row, at most"),
        (lambda ds: ds.stack([t.Hashing("word", 2**24 + 1)]), "indices, of which float32 holds"),
        (lambda ds: ds.stack([t.Hashing("word", 2**31)], "int32"), "indices, of which int32 holds"),
        (lambda ds: ds.stack([t.Number("i8", missing=1e10)], "int32"), "which int32 does not hold"),
        (lambda ds: ds.batch(2).stack(["f32"]), "right behind the source"),
        (lambda ds: ds.enumerate().stack(["f32"]), "right behind the source"),
        (lambda ds: ds.map(len).stack(["f32"]), "right behind the source"),
        (lambda ds: wf.from_tensor_slices(np.arange(3)).stack(["f32"]), "needs a table"),
    ],
)
def test_what_cannot_be_stacked_is_refused(stack: Any, said: str, tmp_path: Path) -> None:
    write(tmp_path, columns(1, nulls=False))
    with pytest.raises(ValueError, match=said):
        stack(wf.parquet(tmp_path / "t.parquet"))


def test_a_plan_says_what_is_stacked(tmp_path: Path) -> None:
    write(tmp_path, columns(1, nulls=False))
    ds = wf.parquet(tmp_path / "t.parquet").stack(["f32", t.Number("i8", 1, 2)], name="x")
    text = json.loads(ds.to_json())
    assert "stacks" in json.dumps(text)
    assert "x" in repr(ds)


def test_what_is_no_column_and_the_label_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2\n")
    ds = wf.csv(path, label_name="y")
    with pytest.raises(TypeError, match="columns has 3; each must be a name"):
        ds.stack([3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="columns is 'a'"):
        ds.stack("a")
    with pytest.raises(ValueError, match='column "y" is the label, and cannot be stacked'):
        ds.stack(["a", "y"])
    assert repr(ds) == f"csv({str(path)!r}, label='y')"
