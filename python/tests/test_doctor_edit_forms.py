"""What is opened for each sample, padded, parsed in vain and waited for: the changed script gives what it gave."""

from __future__ import annotations

import difflib
import itertools
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from test_doctor_edits import changed, edits_of, ran
from wellfed.__main__ import main

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

HEAD = '"""A script."""\n# Its words.\nfrom __future__ import annotations\n\n'
ROWS = 12

SQL = '''IMPORTS

class Rows(Dataset):
    """Rows."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 12

    def __getitem__(self, i):
BODY
'''
SQLITE = {
    "closed": (
        "        conn = sqlite3.connect(self.path)\n"
        "        conn.row_factory = sqlite3.Row\n"
        "        row = conn.execute('select x, y from t where i = ?', (i,)).fetchone()\n"
        "        conn.close()\n"
        "        return tuple(row)"
    ),
    "left_open": (
        "        conn = sqlite3.connect(str(self.path), timeout=3)  # all of it\n"
        "        cursor = conn.cursor()\n"
        "        cursor.execute(f'SELECT x, y FROM t WHERE i = {i}')\n"
        "        return cursor.fetchone()"
    ),
    "finally": (
        "        conn = sqlite3.connect(self.path)\n        try:\n"
        "            for row in conn.execute('select x, y from t where i = ?', (i,)):\n"
        "                return row\n        finally:\n            conn.close()"
    ),
    "with": (
        "        with sqlite3.connect(self.path) as c:\n"
        "            return c.execute('select x, y from t where i = ?', (i,)).fetchall()[0]"
    ),
    "closing": (
        "        with contextlib.closing(sqlite3.connect(self.path)) as c:\n"
        "            return c.execute('select x, y from t where i = ?', (i,)).fetchall()[0]"
    ),
    "at_once": (
        "        return sqlite3.connect(self.path).execute('select x, y from t where i = ?', (i,)).fetchone()"
    ),
}
CLOSED = SQLITE["closed"]
IMPORTS = {
    "plain": "import sqlite3\nfrom torch.utils.data import Dataset\n",
    "alias": "import threading as th\nimport os, sys\nimport sqlite3 as sql\nfrom torch.utils.data import Dataset\n",
    "from": "from sqlite3 import connect\nimport sqlite3\nfrom torch.utils.data import Dataset\n",
}


def sql(body: str, imports: str = "plain") -> str:
    text = SQL.replace("IMPORTS", IMPORTS[imports]).replace("BODY", body)
    if imports == "alias":
        text = text.replace("sqlite3.", "sql.")
    elif imports == "from":
        text = text.replace("sqlite3.connect", "connect")
    if "contextlib" in text:
        text = "import contextlib\n" + text
    return HEAD + text


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "rows.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (i integer primary key, x real, y text)")
        connection.executemany("insert into t values (?, ?, ?)", [(i, i / 2, str(i)) for i in range(ROWS)])
    connection.close()
    return path


def taken(folder: Path, text: str, kind: str) -> None:
    """`git apply` takes the change as a diff."""
    new = changed(text, kind)
    lines = difflib.unified_diff(text.splitlines(True), new.splitlines(True), "a/s.py", "b/s.py")
    (folder / "s.py").write_text(text)
    (folder / "fix.diff").write_text("".join(lines))
    subprocess.run(["git", "apply", "fix.diff"], cwd=folder, check=True, capture_output=True)
    assert (folder / "s.py").read_text() == new


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("body", "imports"), [*((b, "plain") for b in SQLITE), ("with", "alias"), ("closed", "from")]
)
def test_a_kept_connection_gives_the_same_rows(base: Path, body: str, imports: str) -> None:
    text = sql(SQLITE[body], imports)
    new = changed(text, "connect")
    before, after = (ran(source)["Rows"](base) for source in (text, new))
    want = [before[i] for i in range(ROWS)]
    assert [after[i] for i in range(ROWS)] == want == [after[i] for i in range(ROWS)]
    (kept,) = [value for name, value in vars(type(after)).items() if name.endswith("connections")]
    (key,) = kept
    assert key[0] == os.getpid()
    # A process that was forked makes its own, and a thread, too.
    loader = torch.utils.data.DataLoader(
        after, batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    assert [tuple(row) for row in loader] == want
    with ThreadPoolExecutor(1) as pool:
        assert list(pool.map(after.__getitem__, range(ROWS))) == want
        assert len(kept) == 2
        pool.submit(lambda: [kept.pop(one).close() for one in list(kept) if one != key])
    kept.pop(key).close()
    assert not after.__dict__.keys() - before.__dict__.keys(), "nothing is pickled that was not"
    assert not kept


def test_the_same_data_set_in_each_epoch_is_one() -> None:
    text = sql(CLOSED) + "\nfor epoch in range(2):\n    for row in DataLoader(Rows('a')):\n        pass\n"
    assert "nullcontext" not in changed(text, "connect")


def test_git_takes_the_changes(tmp_path: Path) -> None:
    for body in SQLITE.values():
        taken(tmp_path, sql(body), "connect")


OTHER_SQL = {
    "by_index": CLOSED.replace("self.path)", "self.path[i])"),
    "by_local": CLOSED.replace("connect(self.path)", "connect(i)"),
    "in_memory": CLOSED.replace("self.path", "':memory:'"),
    "writes": CLOSED.replace("select x, y from t where i = ?", "insert into t values (?, 1, 2)"),
    "pragma": CLOSED.replace("        row =", "        conn.execute('pragma query_only=1')\n        row ="),
    "now_and_then": CLOSED.replace("        conn.row", "        if i % 2:\n            conn.row"),
    "given_away": CLOSED.replace("        conn.close()", "        self.keep(conn)"),
    "function": CLOSED.replace("        row =", "        conn.create_function('f', 1, abs)\n        row ="),
    "another": CLOSED.replace("        conn.close()", "        conn = None"),
    "kept_already": "        if self.c is None:\n            self.c = sqlite3.connect(self.path)",
    "autocommit": CLOSED.replace("self.path)", "self.path, autocommit=False)"),
    "generator": CLOSED.replace("return tuple(row)", "yield row"),
    "maybe": "        conn = i and sqlite3.connect(self.path)\n        return conn",
    "nested": "        def f():\n            return sqlite3.connect(self.path)\n        return f",
}


@pytest.mark.parametrize("name", OTHER_SQL)
def test_other_connections_are_left_alone(name: str) -> None:
    text = sql(OTHER_SQL[name])
    compile(text, "x", "exec")
    assert text != sql(CLOSED)
    assert edits_of(text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "        self.path = path",
            "        self.path = path\n\n    def move(self, path):\n        self.path = path",
        ),
        (
            "        self.path = path",
            "        self.path = path\n\n    def drop(self):\n        os.unlink(self.path)",
        ),
        ("class Rows", "@wrapped\nclass Rows"),
        ("\nclass Rows", "\ndef f(paths):\n    return [Rows(path) for path in paths]\n\n\nclass Rows"),
        ("\nclass Rows", "\ndef f(paths):\n    return map(Rows, paths)\n\n\nclass Rows"),
        (
            "\nclass Rows",
            "\ndef f(path):\n    return Rows(path)\n\nfor path in 'ab':\n    f(path)\n\n\nclass Rows",
        ),
        ("import sqlite3\n", "import sqlite3\n\ndef f():\n    class More(Rows):\n        path = 3\n"),
        ("Rows(Dataset)", "Rows(Mine)"),
        ("import sqlite3\n", "import sqlite3\nfrom mine import *\n"),
        ("import sqlite3\n", "from mine import sqlite3\n"),
        ("import sqlite3\n", "import sqlite3\nos = None\n"),
        ('"""Rows."""', '__slots__ = ("path",)'),
        ("    def __getitem__", "    @cached\n    def __getitem__"),
        ("\nclass Rows", "\ndef f(data):\n    data.path = 3\n\n\nclass Rows"),
        ("import sqlite3\n", "import os\nimport sqlite3\n\ndef f(p):\n    os.chdir(p)\n"),
    ],
)
def test_connections_of_other_classes_are_left_alone(old: str, new: str) -> None:
    text = sql(CLOSED).replace(old, new, 1)
    compile(text, "x", "exec")
    assert text != sql(CLOSED)
    assert "connect" not in [edit["kind"] for edit in edits_of(text)]


H5 = {
    "with": "        with h5py.File(self.path, 'r') as file:\n            return file['x'][i], file['y'][i] + 1",
    "closed": (
        "        file = h5py.File(self.path)\n        x = file['x'][i]\n        y = file['y'][i] + 1\n"
        "        file.close()\n        return x, y"
    ),
    "at_once": "        y = 1 + np.int64(h5py.File(self.path, mode='r')['y'][i])\n        return np.full(3, i / 2), y",
}
H5_HEAD = "import h5py\nimport numpy as np\nfrom torch.utils.data import Dataset\n"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    h5py = pytest.importorskip("h5py")
    path = tmp_path_factory.mktemp("tables") / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.repeat(np.arange(ROWS)[:, None] / 2, 3, axis=1)
        file["y"] = np.arange(ROWS)
    return path


def same_rows(before: Any, after: Any) -> None:
    want = [before[i] for i in range(ROWS)]
    first = [after[i] for i in range(ROWS)]  # Open in this process, before another one is forked.
    loader = torch.utils.data.DataLoader(
        after, batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    for got in (first, list(loader), [after[i] for i in range(ROWS)]):
        for (x, y), (xx, yy) in zip(want, got, strict=True):
            assert np.array_equal(x, xx)
            assert y == yy


@pytest.mark.parametrize("body", H5)
def test_a_kept_hdf5_file_gives_the_same(tables: Path, tmp_path: Path, body: str) -> None:
    text = HEAD + SQL.replace("IMPORTS", H5_HEAD).replace("BODY", H5[body])
    made = "        self.path = path\n        with h5py.File(path, 'r') as file:\n            self.n = len(file['x'])"
    text = text.replace("        self.path = path", made)
    new = changed(text, "open")
    before, after = (ran(source)["Rows"](tables) for source in (text, new))
    same_rows(before, after)
    assert [key[0] for key in type(after)._files] == [os.getpid()]
    assert after.n == ROWS
    taken(tmp_path, text, "open")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'r'", "'a'"),
        ("self.path, 'r'", "self.path[i], 'r'"),
        ("self.path, 'r'", "f'{self.path}/{i}', 'r'"),
        ("file['x'][i], ", "read(file), "),
        ("file['y'][i] + 1", "file['y'].file.close()"),
        ("'r')", "'r', swmr=True)"),
        ("import numpy as np", "import numpy as np\n\ndef save():\n    h5py.File('y', 'w')"),
    ],
)
def test_other_hdf5_files_are_left_alone(old: str, new: str) -> None:
    text = HEAD + SQL.replace("IMPORTS", H5_HEAD).replace("BODY", H5["with"]).replace(old, new, 1)
    compile(text, "x", "exec")
    assert "open" not in [edit["kind"] for edit in edits_of(text)]


LAZY = """import h5py
from torch.utils.data import Dataset

class Rows(Dataset):
    def __init__(self, path):
        super().__init__()
        self.file = h5py.File(path, "r", libver="latest")  # open
        self.length = len(self.file["y"])
        self.most = self.file["y"][:].max()

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.file["x"][i], self.file["y"][i]
"""


def test_a_file_that_is_opened_before_workers_is_opened_by_each(tables: Path, tmp_path: Path) -> None:
    new = changed(LAZY, "lazy")
    assert "@property" in new
    before, after = (ran(source)["Rows"](tables) for source in (LAZY, new))
    assert (before.length, before.most) == (after.length, after.most)
    assert len(after) == ROWS
    same_rows(before, after)
    assert "file" not in vars(after)
    taken(tmp_path, LAZY, "lazy")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"r"', '"a"'),
        ("        self.most", "        self.x = self.file['x']\n        self.most"),
        ('len(self.file["y"])', 'self.file["y"]'),
        ("    def __len__", "    def close(self):\n        self.file.close()\n\n    def __len__"),
        ("    def __len__", "    def close(self):\n        self.file = None\n\n    def __len__"),
        (
            '        self.file = h5py.File(path, "r", libver="latest")  # open',
            "        self.file = h5py.File(path, 'r') if path else None",
        ),
        ("\nclass", "\ndef f(rows):\n    rows.file.close()\n\nclass"),
        ('["y"][:].max()', '["y"]["z"]'),
    ],
)
def test_other_open_files_are_left_alone(old: str, new: str) -> None:
    text = LAZY.replace(old, new, 1)
    compile(text, "x", "exec")
    assert text != LAZY
    assert edits_of(text) == []


PAD = {
    "tensors": (
        "    longest = max(len(x) for x in batch)\n"
        "    out = torch.zeros(len(batch), longest, dtype=torch.long)\n"
        "    for i, x in enumerate(batch):\n        for j, value in enumerate(x):\n"
        "            out[i, j] = value\n    return out, longest"
    ),
    "lists": (
        "    out = torch.zeros((len(batch), max([len(x) for x in batch])))\n"
        "    for i, x in enumerate(batch):\n        for j, value in enumerate(x):\n"
        "            out[i, j] = value  # each\n    return out"
    ),
    "zipped": (
        "    ids, labels = zip(*[(x, len(x)) for x in batch])\n    longest = max(map(len, ids))\n"
        "    out = torch.full((len(ids), longest), PAD, dtype=torch.int32)\n"
        "    labels = torch.tensor(labels)\n"
        "    for i, row in enumerate(ids):\n        for j, one in enumerate(row):\n"
        "            out[i, j] = one\n    return out, labels"
    ),
    "with_labels": (
        "    longest = max(len(tokens) for tokens, _ in batch)\n"
        "    out = torch.full((len(batch), longest), -1, dtype=torch.long)\n"
        "    labels, ends = torch.zeros(len(batch), dtype=torch.long), []\n"
        "    for i, (x, y) in enumerate(batch):\n        labels[i] = y\n"
        "        for j, value in enumerate(x):\n            out[i, j] = value\n"
        "        ends.append(len(x))\n    return out, labels, torch.tensor(ends)"
    ),
}


def padding(body: str) -> str:
    return "import torch\n\nPAD = -7\n\ndef collate(batch):\n" + body + "\n"


@pytest.mark.parametrize("name", PAD)
def test_padding_by_one_call_is_the_same(name: str, tmp_path: Path) -> None:
    text = padding(PAD[name])
    new = changed(text, "pad")
    assert "torch.nn.utils.rnn.pad_sequence(" in new
    before, after = (ran(source)["collate"] for source in (text, new))
    generator = np.random.default_rng(0)
    for _ in range(20):
        lengths = generator.integers(0, 6, size=generator.integers(1, 6))
        batch: list[Any] = [generator.integers(-9, 9, size=n).tolist() for n in lengths]
        if name.endswith("with_labels"):
            batch = [(row, i) for i, row in enumerate(batch)]
        if name == "tensors":
            batch = [torch.tensor(row, dtype=torch.float32) + 0.5 for row in batch]
            batch[0] = batch[0][:, None]  # A column.
        a, b = before(list(batch)), after(list(batch))
        for x, y in zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]:
            if isinstance(x, torch.Tensor):
                assert torch.equal(x, y)
                assert (x.dtype, x.stride()) == (y.dtype, y.stride())
            else:
                assert x == y
    taken(tmp_path, text, "pad")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("tensors", "max(len(x) for x in batch)", "min(9, max(len(x) for x in batch))"),
        ("tensors", "max(len(x) for x in batch)", "max(len(x) for x in other)"),
        ("tensors", "out[i, j] = value\n", "out[i, j] = value\n        out[i, 0] = 3\n"),
        ("tensors", "    for i, x", "    batch.sort()\n    for i, x"),
        ("tensors", "    for i, x", "    out += 1\n    for i, x"),
        ("tensors", "return out, longest", "return out, x"),
        ("tensors", "return out, longest", "return out, value"),
        ("tensors", "len(batch), longest", "len(batch), longest, 3"),
        ("tensors", "zeros(", "ones("),
        ("tensors", "dtype=torch.long", "dtype=torch.long, device='cuda'"),
        ("tensors", "dtype=torch.long", "dtype=torch.uint8"),
        ("tensors", "import torch\n", "import torch\ntorch.set_default_device('cuda')\n"),
        ("zipped", ", dtype=torch.int32", ""),
        ("lists", "out[i, j] = value", "out[i, j] = value * 2"),
        ("lists", "out[i, j]", "out[j, i]"),
        ("lists", "enumerate(x)", "enumerate(x, 1)"),
        ("with_labels", "for tokens, _ in batch", "for _, tokens in batch"),
        ("with_labels", "labels[i] = y", "x = x[:2]"),
        ("with_labels", "labels[i] = y", "i = y"),
        ("with_labels", "labels[i] = y", "out[i, 0] = y"),
        ("with_labels", "labels[i] = y", "if y: continue"),
        ("with_labels", "(x, y) in", "(x, y, z) in"),
    ],
)
def test_other_collate_functions_are_left_alone(name: str, old: str, new: str) -> None:
    text = padding(PAD[name]).replace(old, new, 1)
    compile(text, "x", "exec")
    assert text != padding(PAD[name])
    assert "pad" not in [edit["kind"] for edit in edits_of(text)]


SHARE = {
    "continue": (
        "        for path in self.paths:\n            with open(path) as file:\n"
        "                for k, line in enumerate(file):\n"
        "                    line = line.strip()\n"
        "                    x = self.parse(line)\n"
        "                    y = [float(one) for one in json.loads(line)][0]  # the label\n"
        "                    if k % n != me:\n                        continue\n"
        "                    yield x, y"
    ),
    "if": (
        "        for path in self.paths:\n            for k, line in enumerate(path.read_text().splitlines()):\n"
        "                x = parsed(\n                    line,\n                )\n"
        "                if k % n == me:\n                    yield x, x[0]"
    ),
    "map": (
        "        for path in self.paths:\n"
        "            yield from itertools.islice(map(self.parse, path.read_text().splitlines()), me, None, n)"
    ),
    "generator": (
        "        for path in self.paths:\n            lines = path.read_text().splitlines()\n"
        "            yield from itertools.islice((json.loads(line) for line in lines), me, None, n)"
    ),
}
SHARING = """import itertools
import json
from torch.utils.data import IterableDataset, get_worker_info

def parsed(line):
    rows = []
    for value in json.loads(line):
        rows = rows + [int(value)]
    return rows

class Lines(IterableDataset):
    def __init__(self, paths):
        self.paths = paths

    def parse(self, line):
        values = parsed(line)
        return [value + 1 for value in values]

    def __iter__(self):
        info = get_worker_info()
        n, me = (1, 0) if info is None else (info.num_workers, info.id)
BODY
"""


@pytest.mark.parametrize("name", SHARE)
def test_a_part_is_taken_before_it_is_parsed(name: str, tmp_path: Path) -> None:
    for part in "ab":
        (tmp_path / part).write_text("".join(f"[{i}, {i * i}]\n" for i in range(7)))
    text = SHARING.replace("BODY", SHARE[name])
    new = changed(text, "share")
    counted = []
    for source in (text, new):
        names = ran(source)
        parses = [0]
        given = names["json"].loads

        def loads(line: str, parses: list[int] = parses, given: Any = given) -> Any:
            parses[0] += 1
            return given(line)

        names["json"] = type("json", (), {"loads": staticmethod(loads)})
        data = names["Lines"]([tmp_path / "a", tmp_path / "b"])
        found = []
        for workers, me in [(1, 0), *((3, me) for me in range(3))]:
            info = type("Info", (), {"num_workers": workers, "id": me})
            names["get_worker_info"] = lambda info=info: info
            found.append(list(data))
        counted.append((found, parses[0]))
    assert counted[0][0] == counted[1][0]
    assert sorted(map(str, counted[0][0][0])) == sorted(map(str, itertools.chain(*counted[0][0][1:])))
    assert counted[1][1] < counted[0][1]
    taken(tmp_path, text, "share")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (
            "continue",
            "                    if k % n != me:\n                        continue\n",
            "",
        ),  # Each gives all.
        ("continue", "k % n != me", "y % n != me"),
        ("continue", "self.parse(line)", "self.drawn(line)"),
        ("continue", "self.parse(line)", "file.readline()"),
        ("continue", "self.parse(line)", "list(file)"),
        ("continue", "x = self.parse(line)\n", "x = self.parse(line)\n                    self.seen += 1\n"),
        ("continue", "self.parse(line)", "f(last)\n                    last = line"),
        ("continue", "values = parsed(line)", "values = parsed(line)\n        self.seen = 1"),
        ("continue", "rows = rows + ", "seen[0] = "),
        ("continue", "return rows", "return random.choice(rows)"),
        ("continue", "yield x, y", "yield x, y\n        print(x)"),
        ("if", "yield x, x[0]", "yield x, x[0]\n                else:\n                    print(x)"),
        ("map", "map(self.parse,", "map(print,"),
        ("map", "me, None, n)", "me, None, 1)"),
        (
            "generator",
            "for line in lines)",
            "for line in lines if line)",
        ),
        ("generator", "(IterableDataset)", "(Mine)"),
    ],
)
def test_other_iterable_data_sets_are_left_alone(name: str, old: str, new: str) -> None:
    given = SHARING.replace("BODY", SHARE[name])
    text = given.replace(old, new, 1)
    compile(text, "x", "exec")
    assert text != given
    assert "share" not in [edit["kind"] for edit in edits_of(text)]


COPY = {
    "renamed": "    for x, y in loader:\n        x, y = x.to(device), y.to(device)\n        seen.append((x + y).sum())",
    "enumerated": (
        "    for i, (x, y) in enumerate(loader):\n        x = x.to(device=device)\n        y = y.to(device)  # both\n"
        "        seen.append((x * i + y).sum())"
    ),
    "in_a_call": "    for x, y in loader:\n        seen.append(torch.add(x.to(device), y.to(device,)).sum())",
    "named": (
        "    for batch in named_loader:\n        batch = {k: v.to(device) for k, v in batch.items()}\n"
        "        seen.append(batch['x'].sum())"
    ),
    "taken_apart": (
        "    for batch in loader:\n        x, y = batch\n        x = x.to(device)\n        y = y.to(device)\n"
        "        seen.append((x + y).sum() + len(y))"
    ),
}
LOOP = "import torch\n\ndef train(loader, named_loader, seen, device=torch.device('cpu')):\n"


@pytest.mark.parametrize("name", COPY)
def test_copies_that_are_not_waited_for(name: str, tmp_path: Path) -> None:
    text = LOOP + COPY[name] + "\n"
    new = changed(text, "async")
    assert new.count("non_blocking=True") == text.count(".to(")
    pairs = [(torch.arange(3.0) + i, torch.ones(3) * i) for i in range(4)]
    named = [{"x": x, "y": y} for x, y in pairs]
    seen: list[list[Any]] = [[], []]
    for source, into in zip((text, new), seen, strict=True):
        ran(source)["train"](pairs, named, into)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 4
    taken(tmp_path, text, "async")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("renamed", "x, y = x.to(device), y.to(device)", "x, y = x.to('cpu'), y.to('cpu')"),
        ("renamed", "x.to(device), y.to(device)", "x.to(torch.float32), y.to(torch.int8)"),
        ("renamed", "x.to(device), y.to(device)", "x.to(cpu_device), y.to(cpu_device)"),
        ("renamed", "        x, y = ", "        x = y = x + y\n        x, y = "),
        ("renamed", "for x, y in loader", "for x, y in range(3)"),
        ("renamed", "import torch\n", "import torch\nbackend = 'mps'\n"),
        ("in_a_call", "y.to(device,)).sum())", "y.to(device,)).sum())\n        x.zero_()\n        y[0] = 1"),
        (
            "taken_apart",
            "        x, y = batch\n",
            "        x, y = batch\n        x.zero_()\n        y.zero_()\n",
        ),
        ("named", "named_loader:\n", "named_loader:\n        batch['x'] += 1\n"),
    ],
)
def test_other_copies_are_waited_for(name: str, old: str, new: str) -> None:
    text = (LOOP + COPY[name] + "\n").replace(old, new, 1)
    compile(text, "x", "exec")
    assert text != LOOP + COPY[name] + "\n"
    assert "async" not in [edit["kind"] for edit in edits_of(text)]


@pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
def test_files_that_cannot_be_written_are_told_before_the_script_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("open(__file__ + '.ran', 'w')\n")
    (tmp_path / "file").write_text("kept")
    for option, path, why in [
        ("--patch", tmp_path / "none" / "fix.diff", "there is no folder"),
        ("--patch", tmp_path, "it is a folder"),
        ("--patch", tmp_path / "file" / "fix.diff", "is no folder"),
        ("--json", tmp_path / "none" / "report.json", "there is no folder"),
    ]:
        assert main(["doctor", "run", option, str(path), str(tmp_path / "train.py")]) == 2
        said = capfd.readouterr().err
        assert option in said
        assert why in said
        assert "hint: " in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "train.py"]
    assert (tmp_path / "file").read_text() == "kept"
