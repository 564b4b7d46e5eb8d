"""What the doctor prints as a change is pasted into the script in place of the lines that it quotes, and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor_probe import HOME, INJECT
from wellfed.__main__ import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")

CASES = Path(__file__).resolve().parents[2] / "benches" / "scripts"
MS = 1_000_000

# Ways to make a loader; each has the import of torch's DataLoader and `data`, a data set, before it.
SHAPES = {
    "plain": "train_loader = DataLoader(data, batch_size=4)\nfor x in train_loader: pass\n",
    "lines": (
        "loader = DataLoader(\n    data,  # num_workers=3, (once)\n    batch_size=4,\n    shuffle=True  # so\n)"
        "  # all of it\nfor x in loader:\n    pass\n"
    ),
    "in_the_loop": "for x in DataLoader(data, 4):  # batches\n    assert len(x) == 4\n",
    "enumerated": (
        "def train(epochs):\n    for epoch in range(epochs):\n        if epoch < 0:\n            pass\n"
        "        else:\n            for i, x in enumerate(DataLoader(data, batch_size=4)):\n                pass\n"
        "train(1)\n"
    ),
    "options": (
        "options = {'batch_size': 4, 'num_workers': 0}\nloader = DataLoader(data, **options)\n"
        "for x in loader: pass\n"
    ),
    "by_position": "loader = DataLoader(data, 4, True, None, None, 0)\nfor x in loader: pass\n",
    "module": (
        "import torch\nloaders = {'a (b': torch.utils.data.DataLoader(data, batch_size=4)}\n"
        "for x in loaders['a (b']: pass\n"
    ),
    "wellfed_is_there": "import wellfed as wf\nloader = DataLoader(data, batch_size=4)\nfor x in loader: pass\n",
    "returned": (
        "class Module:\n    def train_dataloader(self):\n        return DataLoader(data,\n"
        "                          batch_size=4)\nfor x in Module().train_dataloader(): pass\n"
    ),
    "elif": (
        "import sys\nif not sys.argv:\n    loader = None\nelif len(loader := DataLoader(data, batch_size=4)):\n"
        "    for x in loader: pass\n"
    ),
}
# Ways whose text does not tell where to write an argument: what is said is a comment then.
UNCLEAR = {
    "helper": (
        "def make(kind, *rest, **more): return kind(*rest, **more)\n"
        "loader = make(DataLoader, data, batch_size=4)\nfor x in loader: pass\n"
    ),
    "renamed": "kinds = [DataLoader]\nloader = kinds[0](data, batch_size=4)\nfor x in loader: pass\n",
}
HEAD = "from torch.utils.data import DataLoader\ndata = list(range(16))\n"


# Scripts of the benchmark that are tried here, too; all of them with the variable.
ALL = os.environ.get("WELLFED_TEST_ALL_SCRIPTS")
SOME = ("dict_samples", "imagefolder_train", "iterable", "mnist", "tensors", "texts")


def benchmark(folder: Path) -> dict[str, str]:
    """Texts of scripts that take two batches of their loader, by name."""
    names = sorted(path.stem for path in (CASES / "cases").glob("*.py")) if ALL else SOME
    end = f"\nfor _, batch in zip(range(2), loader(Path({str(folder)!r}), 12, 0)):\n    pass\n"
    return {name: (CASES / "cases" / f"{name}.py").read_text() + end for name in names if CASES.is_dir()}


# Runs scripts one after the other, each as if it was the only one, and says what failed.
RUNNER = """
import json, runpy, sys, traceback
failed = {}
for path in json.load(sys.stdin):
    try:
        runpy.run_path(path)
    except BaseException:
        failed[path] = traceback.format_exc()
json.dump(failed, sys.stdout)
"""


def run(scripts: list[Path], folder: Path, probe: bool) -> dict[str, str]:
    """Failures of scripts, which run in one process."""
    runner = folder / "runner.py"
    runner.write_text(RUNNER)
    env = {k: v for k, v in os.environ.items() if not k.startswith("WELLFED_DOCTOR")}
    path = [*([INJECT] if probe else []), HOME, *([CASES] if CASES.is_dir() else [])]
    env["PYTHONPATH"] = os.pathsep.join(map(str, path))
    if probe:
        env["WELLFED_DOCTOR_DIR"] = str(folder)
    command = [sys.executable, str(runner)]
    asked = json.dumps([str(script) for script in scripts])
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, env=env, cwd=folder, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def loaders(folder: Path) -> dict[str, dict[str, Any]]:
    """Records of the loaders that the scripts made, by the file that made them."""
    found = {}
    for written in folder.glob("*.jsonl"):
        for line in written.read_text().splitlines():
            record = json.loads(line)
            if record["k"] == "loader" and record["place"]:
                found.setdefault(record["place"]["file"], record)
    return found


def judged(folder: Path, loader: dict[str, Any], workers: int, plan: str) -> list[dict[str, Any]]:
    """What is said of a loop over this loader that waits for batches, as if it had been recorded so."""
    records: list[dict[str, Any]] = [
        {"k": "hello", "v": 1, "pid": 7, "t": 0, "cwd": str(folder), "python": "3.12.1"},
        {
            **loader,
            "loader": 0,
            "num_workers": workers,
            "persistent_workers": False,
            "batch_size": 4,
            "length": 10,
        },
        {"k": "fed", "loader": 0, "plan": plan, "images": False, "python": []},
    ]
    t = 10**9
    wait = 40 * MS if workers == 0 else 2 * MS
    for epoch in range(4):
        begin, steps = t, {name: [] for name in ("t0", "t1", "c0", "c1", "p0", "p1")}
        t += 0 if workers == 0 else 3000 * MS
        for _ in range(10):
            times = {"t0": begin if not steps["t0"] else t, "t1": t + wait}
            for name, value in times.items():
                steps[name].append(value)
                for clock in "cp":
                    steps[clock + name[1]].append(value if workers == 0 else value // 50)
            t += wait + 5 * MS
        records.append({"k": "iter", "loader": 0, "iter": epoch, "t0": begin, "t1": begin})
        steps["unpickle"] = [0] * 10
        records.append({"k": "steps", "loader": 0, "iter": epoch, "first": 0, **steps})
        records.append({"k": "end", "loader": 0, "iter": epoch, "t0": t, "t": t + MS, "steps": 10})
        if workers == 0:
            made = [b - a for a, b in zip(steps["t0"], steps["t1"], strict=True)]
            fetch: dict[str, Any] = dict.fromkeys(("cpu", "process_cpu"), made)
            fetch |= {name: [int(0.9 * one) for one in made] for name in ("collate", "collate_cpu")}
            fetch |= {name: [0] * 10 for name in ("delay", "bytes", "disk_bytes", "opens")}
            fetch |= {"k": "fetch", "loader": 0, "worker": -1, "n": [4] * 10, "every": 1}
            records.append({**fetch, "t0": steps["t0"], "t1": steps["t1"]})
        t += MS
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    (kept / "7.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    ended = {"code": 0, "reason": "finished"}
    about = {"command": ["python", "train.py"], "pid": 7, "t0": 0, "t1": t, "exit": ended}
    (kept / "run.json").write_text(json.dumps(about))
    machine = {"cores": 4.0, "scaling": 4.0, "cores_online": 4, "cores_affinity": 4}
    (kept / "system.json").write_text(json.dumps({"machine": machine, "ticks": []}))
    diff = folder / "fix.diff"
    diff.unlink(missing_ok=True)
    words = ["--json", str(folder / "report.json"), "--patch", str(diff)]
    assert main(["doctor", "report", str(kept), *words]) == 0
    report = json.loads((folder / "report.json").read_text())
    taken(diff, report["verdict"]["fix"], folder)
    return [verdict for verdict in (report["verdict"], report["runner_up"], *report["others"]) if verdict]


def taken(diff: Path, fix: dict[str, Any] | None, folder: Path) -> None:
    """The diff is that of the pasted lines, and `git apply` takes it; there is none where there are no lines."""
    if fix is None or not fix["place"] or not fix["place"]["call"] or _comment(fix):
        assert not diff.exists()
        return
    script = Path(fix["place"]["file"])
    # The diff is against this folder, as the script is not below the current one.
    before, after = script.read_text(), pasted(script, fix)
    subprocess.run(["git", "apply", str(diff)], cwd=folder, check=True, capture_output=True)
    assert script.read_text() == after
    script.write_text(before)


def pasted(script: Path, fix: dict[str, Any]) -> str:
    """The script with the change in place of the lines that are quoted beside it."""
    lines = script.read_text().splitlines()
    place = fix["place"]
    old = place["code"].splitlines()
    first = place["line"] - 1
    assert lines[first : first + len(old)] == old
    lines[first : first + len(old)] = fix["change"].splitlines()
    return "\n".join(lines) + "\n"


def patches(
    folder: Path, scripts: list[Path], record: dict[str, dict[str, Any]]
) -> Iterator[tuple[str, Path, str]]:
    """Every change that is printed for the loaders of these scripts: its verdict, the script and its new text."""
    for script in scripts:
        loader = record[str(script)]
        for workers, plan in ((0, "native"), (2, "python")):
            for verdict in judged(folder, loader, workers, plan):
                fix = verdict["fix"]
                if fix and fix["place"] and fix["place"]["file"] == str(script):
                    yield verdict["id"], script, pasted(script, fix) if not _comment(fix) else ""


def _comment(fix: dict[str, Any]) -> bool:
    return all(line.startswith("#") for line in fix["change"].splitlines())


def kinds(text: str) -> str:
    """Which change a text has."""
    return next((name for name in ("feed(", "persistent_workers", "num_workers") if name in text), "")


def test_changes_run_when_they_are_pasted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scripts = []
    cases = benchmark(tmp_path / "data")
    texts = {name: HEAD + text for name, text in {**SHAPES, **UNCLEAR}.items()} | cases
    for name, text in texts.items():
        scripts.append(tmp_path / f"{name}.py")
        scripts[-1].write_text(text)
    assert run(scripts, tmp_path, probe=True) == {}
    record = loaders(tmp_path)
    assert {str(script) for script in scripts} == set(record)
    made, said = [], set()
    for verdict, script, text in patches(tmp_path, scripts, record):
        if script.stem in UNCLEAR:
            assert text == "", "there is nothing to paste where the call is not known"
            continue
        assert text, (verdict, script.stem)
        if verdict == "worker-restart":
            # torch wants workers for it, which these loaders were only said to have.
            for sign in "=", '": ':
                text = text.replace(f"persistent_workers{sign}True", f"persistent_workers{sign}False")
        if verdict != "worker-restart" and "feed(" in text:
            assert ("import wellfed\n" in text) == (script.stem != "wellfed_is_there")
        said.add((script.stem, kinds(text)))
        made.append(tmp_path / f"{script.stem}-{verdict}-{len(made)}.py")
        made[-1].write_text(text)
    known = {*SHAPES, *cases}
    assert {stem for stem, kind in said if kind == "feed("} == known
    assert {stem for stem, kind in said if kind in ("num_workers", "persistent_workers")} == known
    assert run(made, tmp_path, probe=False) == {}
    # What the terminal shows can be copied: the changed call is there, in one piece or broken within its brackets.
    assert "wellfed.feed(" in capfd.readouterr().err
