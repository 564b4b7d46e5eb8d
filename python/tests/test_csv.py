"""CSV: every value as Python's `csv`, pyarrow and TensorFlow have it, arguments, bad rows, and orders."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import math
import os
import random
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wellfed as wf

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.csv")

TENSORFLOW = os.environ.get("WELLFED_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else ""
)


def number(rng: random.Random) -> str:
    form = rng.randrange(6)
    if form == 0:
        return str(rng.randrange(-100, 100))
    if form == 1:
        return repr(rng.uniform(-1e3, 1e3))
    if form == 2:
        return f"{rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30):.{rng.randrange(1, 18)}e}"
    if form == 3:
        return f"{rng.uniform(-1e6, 1e6):.{rng.randrange(0, 12)}f}"
    if form == 4:
        return f"{rng.randrange(10**18)}.{rng.randrange(10**6)}"
    return repr(float(np.float32(rng.uniform(-1, 1))))


def field(rng: random.Random) -> str:
    return "".join(
        rng.choice(["a", "ü", '"', "\n", ",", ";", " ", "1", "日"]) for _ in range(rng.randrange(6))
    )


def written(rows: list[list[str]], path: Path, **options: Any) -> None:
    text = io.StringIO()
    csv.writer(text, **options).writerows(rows)
    path.write_bytes(text.getvalue().encode())


def columns(ds: wf.Dataset, batch: int = 64) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for part in ds.batch(batch).numpy():
        for name, values in part.items():
            found.setdefault(name, []).extend(values if isinstance(values, list) else values.tolist())
    return found


@pytest.mark.parametrize("seed", range(12))
def test_values_are_those_of_python_and_pyarrow(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 7, 300])
    rows = [
        [
            str(rng.randrange(-(2**31), 2**31)),
            str(rng.randrange(-(2**63), 2**63)),
            number(rng),
            number(rng),
            field(rng),
        ]
        for _ in range(count)
    ]
    delimiter = rng.choice([",", ";", "\t"])
    path = tmp_path / "a.csv"
    quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    line = rng.choice(["\n", "\r\n"])
    written([list("abcde"), *rows], path, delimiter=delimiter, quoting=quoting, lineterminator=line)
    # A text that is empty is missing.
    types = ["int32", "int64", "float32", "float64", ""]
    found = columns(wf.csv(path, field_delim=delimiter, column_defaults=types))
    assert found["a"] == [int(row[0]) for row in rows]
    assert found["b"] == [int(row[1]) for row in rows]
    assert found["d"] == [float(row[3]) for row in rows]
    assert found["e"] == [row[4] for row in rows]
    wanted = dict(zip("abcde", [pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()]))
    theirs = pc.read_csv(
        path,
        parse_options=pc.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pc.ConvertOptions(column_types=wanted, strings_can_be_null=False),
    )
    for name in "abcde":
        assert found[name] == theirs[name].to_pylist(), name


def test_arguments_are_those_of_make_csv_dataset(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,name,x,y\n1,a,0.5,10\n2,NA,NA,20\n3,,,30\n4,d,2,40\n")
    ds = wf.csv(path, batch_size=3, label_name="y", shuffle=False, num_epochs=1, na_value="NA")
    (features, label), (rest, last) = ds.numpy()
    assert list(features) == ["id", "name", "x"]
    assert (label.tolist(), last.tolist()) == ([10, 20, 30], [40])
    assert (features["id"].dtype, features["x"].dtype) == (np.int32, np.float32)
    assert features["name"] == ["a", "", ""]
    assert (features["x"].tolist(), rest["x"].tolist()) == ([0.5, 0, 0], [2])

    wanted = wf.csv(path, select_columns=["x", 0], column_defaults=[np.int64(7), [math.nan]], na_value="NA")
    found = columns(wanted)
    assert list(found) == ["id", "x"]
    assert found["id"] == [1, 2, 3, 4]
    assert [None if math.isnan(x) else x for x in found["x"]] == [0.5, None, None, 2]

    named = wf.csv(path, column_names=["a", "b", "c", "d"], column_defaults={"b": "?"}, na_value="NA")
    assert columns(named)["b"] == ["a", "?", "?", "d"]
    headless = wf.csv(path, column_names=["a", "b", "c", "d"], header=False)
    assert columns(headless)["a"] == ["id", "1", "2", "3", "4"]
    assert columns(wf.csv(path, filters=[("id", ">", 2)], select_columns=["y"]))["y"] == [30, 40]

    quoted = tmp_path / "quoted.csv"
    quoted.write_text('a,b\n"1,"x"\n')
    assert columns(wf.csv(quoted, use_quote_delim=False)) == {"a": ['"1'], "b": ['"x"']}
    with pytest.raises(wf.CorruptSampleError, match=r"line 2 of .*quoted\.csv"):
        wf.csv(quoted)[0]


def test_epochs_shuffles_and_states_are_by_position(tmp_path: Path) -> None:
    for part in range(3):
        rows = range(part * 5000, part * 5000 + 5000)
        text = "".join(f"{i},{i / 2},{'x' * 150}\n" for i in rows)
        (tmp_path / f"{part}.csv").write_text("i,half,text\n" + text)
    files = tmp_path / "{0..2}.csv"
    select = ["i", "half"]
    plain = wf.csv(files, select_columns=select)
    assert columns(plain)["i"] == list(range(15000))
    assert len(plain) == 15000
    order = columns(wf.csv(files, select_columns=select, shuffle=True, shuffle_seed=3))
    assert sorted(order["i"]) == list(range(15000))
    assert order["i"] != list(range(15000))
    assert all(half == i / 2 for i, half in zip(order["i"], order["half"]))
    near = columns(wf.csv(files, select_columns=select, shuffle=True, shuffle_buffer_size=9000))["i"]
    assert sorted(near) == list(range(15000))
    assert len(set(np.array(near[:100]) // 4096)) > 1, "blocks are mixed"
    assert len(columns(wf.csv(files, select_columns=select, num_epochs=2))["i"]) == 30000
    endless = iter(wf.csv(files, 4000, select_columns=select).numpy())
    assert [len(next(endless)["i"]) for _ in range(9)] == [4000] * 9

    ds = wf.csv(files, select_columns=select, shuffle=True).batch(1000)
    loader = ds.numpy()
    batches = iter(loader)
    for _ in range(7):
        next(batches)
    state = loader.state_dict()
    rest = [batch["i"].tolist() for batch in batches]
    again = ds.numpy()
    again.load_state_dict(state)
    assert len(rest) == 8
    assert [batch["i"].tolist() for batch in again] == rest
    # A plan is data.
    assert columns(wf.Dataset.from_json(plain.to_json()))["half"] == columns(plain)["half"]


def test_little_memory_is_enough_for_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rng = np.random.default_rng(0)
    values = rng.integers(0, 10**9, (60_000, 12))
    np.savetxt(path, values, "%d", delimiter=",", header=",".join(f"c{i}" for i in range(12)), comments="")
    ds = wf.csv(path).with_options(memory_budget=24 << 20, num_workers=2)
    for order in (ds, ds.shuffle(), ds.shuffle(block_size=8192, window=2)):
        sums = sum(np.stack(list(batch.values()), 1).sum(0) for batch in order.batch(1000).numpy())
        assert (sums == values.sum(0)).all()


def test_compressed_files_are_the_same(tmp_path: Path) -> None:
    text = "".join(f"{i},t{i}\n" for i in range(1000)).encode()
    plain = tmp_path / "a.csv"
    plain.write_bytes(b"i,t\n" + text)
    expected = columns(wf.csv(plain))
    packed = {"a.csv.gz": gzip.compress(b"i,t\n" + text), "b": gzip.compress(b"i,t\n" + text)}
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
        assert columns(wf.csv(tmp_path / name)) == expected
        assert columns(wf.csv(tmp_path / name, compression_type="GZIP")) == expected
        for seed in range(2):
            on_disk = wf.csv(tmp_path / name, unpack_to=tmp_path / "unpacked")
            assert columns(on_disk) == expected
            shuffled = columns(on_disk.shuffle(seed=seed))
            assert shuffled != expected
            assert sorted(shuffled["i"]) == expected["i"]
    assert len(list((tmp_path / "unpacked").glob("*.csv"))) == 2  # One for each, though opened twice.
    assert columns(wf.csv(plain, unpack_to=tmp_path / "none")) == expected
    assert not (tmp_path / "none").exists()
    (tmp_path / "z").write_bytes(zlib.compress(b"i,t\n" + text))
    assert columns(wf.csv(tmp_path / "z", compression_type="ZLIB")) == expected
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(packed["b"][:-9])
    for folder in (None, tmp_path / "unpacked"):
        both = wf.csv([plain, cut], unpack_to=folder)
        assert len(both) == 1001
        with pytest.raises(wf.CorruptSampleError, match="cannot be unpacked"):
            both[1000]


def test_bad_rows_follow_on_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = [f"{i},{i}.5,text {i}" for i in range(200)]
    lines[20], lines[50], lines[51] = "20,oops,text", "50", '51,1,"a"b'
    path.write_text("i,x,t\n" + "\n".join(lines))
    ds = wf.csv(path, num_rows_for_inference=10)
    with pytest.raises(
        wf.CorruptSampleError, match=r'line 22 of .*a\.csv: column "x" is "oops".*float32.*20,oops,text'
    ):
        columns(ds)
    skipping = ds.with_options(on_error="skip")
    ignoring = wf.csv(path, num_rows_for_inference=10, ignore_errors=True)
    for part in (skipping, skipping.shuffle(), ignoring):
        assert sorted(columns(part)["i"]) == [i for i in range(200) if i not in (20, 50, 51)]
    loader = ds.with_options(on_error="skip").batch(200).numpy()
    assert len(next(iter(loader))["i"]) == 197
    # With numbers alone rows are gathered, and the same ones are bad.
    numbers = wf.csv(path, num_rows_for_inference=10, select_columns=["i", "x"], ignore_errors=True)
    assert len(columns(numbers)["i"]) == 197
    with pytest.raises(wf.CorruptSampleError, match=r"line 52 of .*1 field, and not 3"):
        ds[50]
    assert wf.csv(path, num_rows_for_inference=None)[20]["x"] == "oops", "all rows are looked at"


def test_malformed_arguments_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    for arguments, error, match in [
        ({"field_delim": ";;"}, ValueError, "field_delim"),
        ({"field_delim": '"'}, ValueError, "field_delim"),
        ({"header": False}, ValueError, "column_names"),
        ({"column_defaults": [np.int8]}, ValueError, "int8"),
        ({"column_defaults": ["int32"]}, ValueError, "1 entries for 2"),
        ({"column_defaults": {"z": 0}}, ValueError, "no such column"),
        ({"column_defaults": [0, 2**40]}, ValueError, "no int32"),
        ({"column_defaults": [0, [1, 2]]}, ValueError, "one value"),
        ({"select_columns": "a"}, TypeError, "select_columns"),
        ({"select_columns": [5]}, ValueError, "there are 2 columns"),
        ({"select_columns": ["a", 0]}, ValueError, "twice"),
        ({"label_name": "c"}, ValueError, '"c"'),
        ({"compression_type": "LZ4"}, ValueError, "compression_type"),
        ({"num_epochs": 0}, ValueError, "num_epochs"),
        ({"shuffle_seed": 1}, ValueError, "shuffle"),
        ({"batch_size": 2, "shuffle": False, "shuffle_buffer_size": 4}, ValueError, "shuffle"),
    ]:
        with pytest.raises(error, match=match):
            wf.csv(path, **arguments)
    with pytest.raises(FileNotFoundError):
        wf.csv(tmp_path / "none.csv")


SCRIPT = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
plain = {"tf.int64": tf.int64, "tf.float32": tf.float32, "tf.string": tf.string}
results = []
for path, arguments in json.load(open(sys.argv[1])):
    defaults = arguments.get("column_defaults")
    if defaults:
        arguments["column_defaults"] = [plain.get(one, one) if isinstance(one, str) else one for one in defaults]
    ds = tf.data.experimental.make_csv_dataset(path, 7, num_epochs=1, shuffle=False, **arguments)
    found, dtypes = {}, {}
    for part in ds:
        features = part if isinstance(part, dict) else dict(part[0], label=part[1])
        for name, values in features.items():
            dtypes[name] = values.dtype.name
            values = values.numpy()
            values = [v.decode() for v in values] if values.dtype == object else [float(v).hex() for v in values]
            found.setdefault(name, []).extend(values)
    results.append([found, dtypes])
json.dump(results, open(sys.argv[2], "w"))
"""


@pytest.mark.skipif(
    not TENSORFLOW,
    reason="NOT TESTED HERE: no TensorFlow; WELLFED_TENSORFLOW_PYTHON may name an interpreter that has it",
)
def test_values_and_types_are_those_of_make_csv_dataset(tmp_path: Path) -> None:
    rng = random.Random(1)
    cases: list[tuple[str, dict[str, Any]]] = []
    for case in range(25):
        width, count = rng.randrange(1, 6), rng.randrange(1, 40)
        makers = [
            rng.choice(
                [
                    lambda: str(rng.randrange(-99, 99)),
                    lambda: str(rng.randrange(2**40)),
                    lambda: number(rng),
                    lambda: field(rng),
                    lambda: rng.choice(["", "NA", "5", " 7 "]),
                    lambda: f"{rng.uniform(0, 1):.3f}",
                ]
            )
            for _ in range(width)
        ]
        delimiter, names = rng.choice(",;\t"), [f"c{i}" for i in range(width)]
        rows = [[make() for make in makers] for _ in range(count)]
        path = tmp_path / f"{case}.csv"
        line = rng.choice(["\n", "\r\n"])
        # TensorFlow's inference reads files by lines: there are no other ends of lines within quotes.
        quoting = csv.QUOTE_ALL if width == 1 else csv.QUOTE_MINIMAL
        written([names, *rows], path, delimiter=delimiter, lineterminator=line, quoting=quoting)
        arguments: dict[str, Any] = {"field_delim": delimiter}
        if rng.random() < 0.3:
            arguments["na_value"] = "NA"
        if width > 1 and rng.random() < 0.3:
            arguments["label_name"] = names[rng.randrange(width)]
        if width > 2 and rng.random() < 0.3:
            arguments["select_columns"] = [names[0], names[2]]
            arguments.pop("label_name", None)
        if rng.random() < 0.3:
            arguments["num_rows_for_inference"] = None
        cases.append((str(path), arguments))
    request, answer = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text(json.dumps(cases))
    subprocess.run([TENSORFLOW, "-c", SCRIPT, str(request), str(answer)], check=True, timeout=300)
    for (path, arguments), (theirs, dtypes) in zip(cases, json.loads(answer.read_text()), strict=True):
        found: dict[str, list[Any]] = {}
        for part in wf.csv(path, 7, num_epochs=1, shuffle=False, **arguments).numpy():
            features = part if isinstance(part, dict) else dict(part[0], label=part[1])
            for name, values in features.items():
                assert dtypes[name] == ("string" if isinstance(values, list) else values.dtype.name), (
                    path,
                    name,
                )
                values = values if isinstance(values, list) else [float(value).hex() for value in values]
                found.setdefault(name, []).extend(values)
        assert found == theirs, (path, arguments)
