"""Slow code of known forms: the changed script gives what it gave; `git apply` and `patch` take the diff."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wellfed._doctor import _here

pytest.importorskip("torch")


def found(text: str) -> list[dict[str, Any]]:
    _here.probe()
    from wellfed_probe.edits import edits_of as edits  # type: ignore[import-not-found, unused-ignore]

    return list(edits(text))


def edits_of(text: str) -> list[dict[str, Any]]:
    """Without functions in which nothing is done again and again: those are no form."""
    return [edit for edit in found(text) if edit["kind"] not in ("straight", "same")]


def changed(text: str, kind: str) -> str:
    """The text with the change of its only form of this kind."""
    (edit,) = [edit for edit in edits_of(text) if edit["kind"] == kind]
    lines = text.split("\n")
    for hunk in reversed(edit["hunks"]):
        old, first = hunk["code"].split("\n"), hunk["line"] - 1
        assert lines[first : first + len(old)] == old
        lines[first : first + len(old)] = hunk["change"].split("\n")
    assert edit["line"] <= edit["last"]
    return "\n".join(lines)


def ran(text: str, **names: Any) -> dict[str, Any]:
    names["__name__"] = "script"
    exec(compile(text, "script.py", "exec"), names)
    return names


MAP = {
    "at_once": "def f(i):\n    return numpy.load(path)[i]  # a row\n",
    "by_name": "def f(i):\n    x = numpy.load(\n        str(path),\n    )\n    n = len(x)\n    return x[i % n]\n",
    "written_to": "def f(i):\n    x = numpy.load(path)\n    y = x[i]\n    y += 1\n    return y\n",
    "a_number": "def f(i):\n    x = numpy.load(path)\n    return x[i, 2]\n",
    "a_window": "def f(i):\n    return numpy.load(path)[i : i + 3].copy()\n",
}


@pytest.mark.parametrize("name", MAP)
def test_a_mapped_file_gives_the_same(tmp_path: Path, name: str) -> None:
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.npy"
    np.save(path, np.arange(60.0).reshape(20, 3))
    text = "import numpy\n" + MAP[name]
    new = changed(text, "map")
    assert 'mmap_mode="c"' in new
    before, after = (ran(source, path=path)["f"](7) for source in (text, new))
    assert np.array_equal(before, after)
    assert before.dtype == after.dtype
    collate = torch.utils.data.default_collate
    a, b = collate([before, before]), collate([after, after])
    assert torch.equal(a, b)
    assert a.dtype == b.dtype
    assert np.array_equal(np.load(path), np.arange(60.0).reshape(20, 3)), "the file is not written to"


@pytest.mark.parametrize(
    "text",
    [
        "import numpy\nx = numpy.load('a.npy')[0]\n",  # Once.
        "import numpy\ndef f():\n    return numpy.load('a.npy')\n",  # All of it is used.
        "import numpy\ndef f():\n    return numpy.load('a.npy').mean()\n",
        "import numpy\ndef f():\n    return numpy.load('a.npy')[:]\n",
        "import numpy\ndef f():\n    return numpy.load('a.npz')['x']\n",
        "import numpy\ndef f(p):\n    return numpy.load(p)['x']\n",
        "import numpy\ndef f(p):\n    with open(p, 'rb') as p:\n        return numpy.load(p)[0]\n",
        "import numpy\nimport io\ndef f(p):\n    return numpy.load(io.BytesIO(p))[0]\n",
        "import numpy\ndef f(p):\n    return numpy.load(p, allow_pickle=True)[0]\n",
        "import numpy\ndef f(p):\n    x = numpy.load(p)\n    x[0] = 1\n    return x[0]\n",
        "from mine import numpy\ndef f(p):\n    return numpy.load(p)[0]\n",
    ],
)
def test_other_loads_are_left_alone(text: str) -> None:
    assert edits_of(text) == []


ROWS = """
class Rows:
    def __init__(self, frame):
        self.frame = frame
        self.length = len(frame)

    def __getitem__(self, i):
        ROW
        return VALUES
"""
TAKEN = {
    "by_name": ("row = self.frame.iloc[i]", "(row['a'], row['b'], row['c'])"),
    "at_once": ("pass", "(self.frame.iloc[i]['b'],)"),
}
# Columns of one type, of two that become one, and of those that do not.
COLUMNS: dict[str, dict[str, Any]] = {
    "floats": {"a": [1.5, 2.5], "b": [0.25, 0.5], "c": [3.0, 4.0]},
    "mixed_numbers": {"a": [1, 2], "b": [0.25, 0.5], "c": [3, 4]},
    "texts": {"a": ["x", "y"], "b": [1, 2], "c": [0.5, None]},
    "truths": {"a": [True, False], "b": [1, 2], "c": [0.5, 1.5]},
    "times": {"a": "times", "b": "times", "c": [1, 2]},
    "masked": {"a": "masked", "b": [0.25, 0.5], "c": [3, 4]},
}


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("taken", TAKEN)
def test_rows_of_an_array_are_those_of_the_frame(taken: str, columns: str) -> None:
    pandas = pytest.importorskip("pandas")
    row, values = TAKEN[taken]
    text = ROWS.replace("ROW", row).replace("VALUES", values)
    new = changed(text, "rows")
    assert "iloc[i]" not in new
    special = {
        "times": pandas.to_datetime(["2020-01-01", "2021-02-03"]),
        "masked": pandas.array([1, 2], dtype="Int64"),
    }
    columns_of = {k: special[v] if isinstance(v, str) else v for k, v in COLUMNS[columns].items()}
    frame = pandas.DataFrame(columns_of)
    before, after = (ran(source)["Rows"](frame) for source in (text, new))
    for i in range(2):
        for x, y in zip(before[i], after[i], strict=True):
            assert type(x) is type(y)
            assert x == y or (x != x and y != y)


def test_the_rows_of_a_small_frame_without_pandas_around() -> None:
    """The form is known by its text alone."""
    row, values = TAKEN["by_name"]
    assert "column.array" in changed(ROWS.replace("ROW", row).replace("VALUES", values), "rows")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("VALUES", "row"),  # The whole row is given away.
        ("VALUES", "row.a"),
        ("VALUES", "row[0]"),
        ("VALUES", "row['a']\n\n    def drop(self):\n        self.frame['a'] = 1"),
        ("VALUES", "row['a']\n\n    def drop(self):\n        self.frame.drop(columns='a', inplace=True)"),
        ("VALUES", "row['a']\n\n\nRows.frame = 3"),
        ("__getitem__(self, i)", "__getitem__(self, i, j)"),
        ("iloc[i]", "iloc[i + 1]"),
        ("self.length =", "return\n        self.length ="),
    ],
)
def test_other_frames_are_left_alone(old: str, new: str) -> None:
    text = ROWS.replace("ROW", TAKEN["by_name"][0]).replace(old, new).replace("VALUES", "row['a']")
    compile(text, "x", "exec")
    assert edits_of(text) == []


LOOPS = {
    "plain": "for x in data:\n    seen.append(x)\n    print(x)\n",
    "pair": "for a, b in pairs:\n    print(a, b,\n          sep='')  # both\n    print('-')\n    seen.append(a)\n",
    "enumerated": "for i, x in enumerate(data):\n    seen.append(x)\n    print(f'{i}: {x}')\n",
    "taken": "step = 3\nfor x in data:\n    print(x, step)\n    seen.append(x)\n",
    "nested": "for epoch in range(2):\n    for x in data:\n        seen.append(x)\n        print(epoch, x)\n",
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_logged_in_each_step_is_logged_every_fifty(name: str) -> None:
    text = LOOPS[name]
    new = changed(text, "every")
    written: dict[str, list[tuple[Any, ...]]] = {"old": [], "new": []}
    seen = []
    for key, source in (("old", text), ("new", new)):
        names = ran(
            source,
            data=list(range(101)),
            pairs=[(i, -i) for i in range(101)],
            seen=[],
            print=lambda *words, key=key, **_: written[key].append(words),
        )
        seen.append(names["seen"])
        assert names.get("step", 3) in (3, 100)
    assert seen[0] == seen[1], "what is computed stays"
    per_step = 2 if name == "pair" else 1
    epochs = [written["old"][i : i + 101 * per_step] for i in range(0, len(written["old"]), 101 * per_step)]
    kept = [
        words for epoch in epochs for k in (0, 50, 100) for words in epoch[k * per_step : (k + 1) * per_step]
    ]
    assert written["new"] == kept


@pytest.mark.parametrize(
    "text",
    [
        "for x in data:\n    total += x.item()\n",  # What is summed up is a result.
        "for x in data:\n    losses.append(x.item())\n",
        "for x in data:\n    if i % 50 == 0:\n        print(x)\n",
        "for epoch in range(3):\n    print(epoch)\n",
        "for x in data: print(x)\n",
        "for x in data:\n    out.write(x)\n",  # Its output.
        "for x in data:\n    print('''a\n    b''', x)\n",
        "for x in data:\n    print(y := x)\n",
    ],
)
def test_other_lines_of_loops_are_left_alone(text: str) -> None:
    assert edits_of(text) == []


def test_threads_that_workers_ask_for() -> None:
    head = "import torch\nfrom torch.utils.data import DataLoader\n"
    body = "def start(worker):\n    torch.set_num_threads(4 * 2)  # all\n"
    used = "loader = DataLoader(range(9), worker_init_fn=start)\n"
    assert "set_num_threads(1)  # all" in changed(head + body + used, "threads")
    assert "set_num_threads(1)" in changed(
        "import torch\nclass D:\n    def __getitem__(self, i):\n        torch.set_num_threads(2)\n", "threads"
    )
    for other in (
        head + body,
        "import torch\ntorch.set_num_threads(8)\n",
        head + body.replace("4 * 2", "1") + used,
    ):
        assert edits_of(other) == []


def test_functions_that_do_each_thing_once() -> None:
    text = (
        "def once(x):\n    return (x * 2).clip(0, 1)\n"
        "def again(x):\n    for y in x:\n        print(y)\n"
        "def listed(x):\n    return [y for y in x]\n"
        "async def streamed(x):\n    async for y in x:\n        print(y)\n"
        "class Data:\n    def __getitem__(self, i):\n        return once(i)\n"
    )
    straight = [
        (edit["func"], edit["line"], edit["last"]) for edit in found(text) if edit["kind"] == "straight"
    ]
    assert straight == [("once", 1, 2), ("__getitem__", 12, 13)]


def test_calls_that_open_the_same_file_for_all_samples() -> None:
    text = (
        "import tarfile\nimport h5py\nROOT = 'data'\n"
        "class Data:\n"
        "    def __init__(self, path):\n        self.path = path\n        self.first = h5py.File(path)\n"
        "    def archive(self):\n        return tarfile.open(ROOT + '/all.tar')\n"
        "    def own(self, index):\n        return h5py.File(f'{ROOT}/{index}.h5')\n"
        "    def lazy(self):\n        if self.file is None:\n            self.file = h5py.File(self.path)\n"
        "    def __getitem__(self, index):\n"
        "        with h5py.File(self.path) as file:\n            return file[index]\n"
    )
    same = [(edit["func"], edit["line"]) for edit in found(text) if edit["kind"] == "same"]
    assert same == [("archive", 9), ("__getitem__", 16)]


def test_odd_files_are_no_error(tmp_path: Path) -> None:
    inject = Path(_here.__file__).parent / "inject"
    program = f"import sys; sys.path.insert(0, {str(inject)!r}); from wellfed_probe import edits; "
    program += "edits.main(sys.argv[1:], sys.stdout.write)"
    files = {
        "syntax.py": b"a syntax error",
        "latin.py": b"# -*- coding: latin-1 -*-\n# \xff\n",
        "nul.py": b"\x00",
        "dos.py": b"for x in data:\r\n    print(x)\r\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    command = [sys.executable, "-I", "-S", "-c", program, *map(str, sorted(tmp_path.iterdir())), "/none.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (edit,) = json.loads(done.stdout)
    assert edit["file"].endswith("dos.py")
    assert edit["hunks"][1]["change"] == "    if step % 50 == 0:\n        print(x)"


TRAIN = """\
import sys
import time

from torch.utils.data import DataLoader


class Squares:
    def __len__(self):
        return 160

    def __getitem__(self, i):
        return sum(k * k for k in range(20_000)) + i


if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=4)
    total = 0
    for batch in loader:
        time.sleep(0.005)
        total += int(batch.sum())
    print(total, loader.num_workers)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a single core has no room for a worker")
@pytest.mark.parametrize("tool", ["git", "patch"])
def test_the_diff_of_a_run_is_taken_and_the_script_runs(tmp_path: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not there")
    folder = tmp_path / "my project"
    folder.mkdir()
    script = folder / "train it.py"
    script.write_bytes(TRAIN.replace("\n", "\r\n" if tool == "git" else "\n").encode())
    command = [sys.executable, "-m", "wellfed", "doctor", "run", "--patch", "fix.diff", script.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=True)
    assert "git apply fix.diff" in done.stderr, done.stderr
    diff = (folder / "fix.diff").read_text()
    added = [line[1:].strip() for line in diff.splitlines() if line.startswith("+") and "+++" not in line]
    shown = done.stderr.replace("\n", " ").split()
    assert added
    assert all(word in shown for line in added for word in line.split()), "the terminal shows the lines"
    apply = ["git", "apply", "fix.diff"] if tool == "git" else ["patch", "-p1", "-i", "fix.diff"]
    subprocess.run(apply, cwd=folder, check=True, capture_output=True)
    assert (b"\r\n" in script.read_bytes()) == (tool == "git")
    again = subprocess.run(
        [sys.executable, script.name], cwd=folder, check=True, capture_output=True, text=True
    )
    assert again.stdout.split()[0] == done.stdout.split()[0]
    assert again.stdout.split()[1] != done.stdout.split()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
def test_where_no_edit_applies_no_file_is_written(tmp_path: Path) -> None:
    text = TRAIN.replace("20_000", "20").replace("0.005", "0.02")
    (tmp_path / "train.py").write_text(text)
    command = [sys.executable, "-m", "wellfed", "doctor", "run", "--patch", "fix.diff", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=True)
    assert "no patch: " in done.stderr
    assert not (tmp_path / "fix.diff").exists()
