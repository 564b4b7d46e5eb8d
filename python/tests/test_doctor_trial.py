"""The trial after a run: the script runs again, can change nothing, and what was measured is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from doctor_probe import HOME, INJECT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")

ATTEMPTS = """
import os, socket, sys, tempfile

def attempt(name, function):
    try:
        function()
    except OSError as error:
        print(name, type(error).__name__)
    else:
        print(name, "done")

there = sys.argv[1]
attempt("read", lambda: open(there).read())
attempt("write", lambda: open(there, "r+"))
attempt("append", lambda: open(there, "a"))
attempt("make", lambda: open(there + ".new", "w"))
attempt("folder", lambda: os.mkdir(there + ".folder"))
attempt("remove", lambda: os.remove(there))
attempt("rename", lambda: os.rename(there, there + ".new"))
attempt("truncate", lambda: os.truncate(there, 0))
attempt("link", lambda: os.symlink(there, there + ".link"))
attempt("child", lambda: sys.exit(1) if os.system(f"echo x 2>/dev/null >> '{there}'") == 0 else open("/none"))
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
attempt("connect", lambda: socket.create_connection(server.getsockname(), timeout=5))
attempt("signal", lambda: os.kill(os.getppid(), 0))
attempt("temporary", lambda: tempfile.TemporaryFile())
attempt("discard", lambda: open(os.devnull, "w").write("x"))
"""


def confined(folder: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script)
    # Not below the test's folder, whose path is too long for sockets.
    with tempfile.TemporaryDirectory() as own:
        return _confined(folder, own, *words)


def _confined(folder: Path, own: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PYTHONPATH": f"{INJECT}{os.pathsep}{HOME}",
        "WELLFED_DOCTOR_DIR": own,
        "WELLFED_DOCTOR_CONFINED": "1",
        "TMPDIR": own,
    }
    command = [sys.executable, str(folder / "script.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)
    if done.returncode == 97:
        pytest.skip("this kernel cannot confine processes")
    return done


def test_a_confined_script_can_read_and_nothing_else(tmp_path: Path) -> None:
    there = tmp_path / "elsewhere" / "model.pt"
    there.parent.mkdir()
    there.write_text("weights")
    done = confined(tmp_path / "own", ATTEMPTS, str(there))
    said = dict(line.split() for line in done.stdout.splitlines())
    assert done.returncode == 0, done.stderr
    fine = {name for name, what in said.items() if what == "done"}
    assert fine == {"read", "temporary", "discard"}, said
    assert len(said) == 14
    assert [path.name for path in there.parent.iterdir()] == ["model.pt"]
    assert there.read_text() == "weights"


def test_what_a_confined_script_writes_beside_itself_is_gone_with_it(tmp_path: Path) -> None:
    text = """
import os, shutil, subprocess, sys
there = os.path.dirname(os.path.abspath(__file__))
if there not in os.environ["WELLFED_DOCTOR_COVERED"].split(os.pathsep):
    sys.exit("not covered")
with open(f"{there}/log.txt", "a") as log:
    log.write("more")
os.mkdir(f"{there}/checkpoints")
open(f"{there}/checkpoints/1.pt", "w").close()
os.remove(f"{there}/old.txt")
shutil.rmtree(f"{there}/folder")
# Programs that it starts see the same.
child = f"print(open({there + '/log.txt'!r}).read()); open({there + '/of-child'!r}, 'w')"
subprocess.run([sys.executable, "-c", child], check=True)
print(sorted(os.listdir(there)))
"""
    own = tmp_path / "own folder"
    (own / "folder").mkdir(parents=True)
    for name in ("log.txt", "old.txt", "folder/kept.txt"):
        (own / name).write_text(name)
    done = confined(own, text)
    if "not covered" in done.stderr:
        pytest.skip("this kernel covers no folders")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "log.txtmore\n['checkpoints', 'log.txt', 'of-child', 'script.py']\n"
    assert sorted(path.name for path in own.iterdir()) == ["folder", "log.txt", "old.txt", "script.py"]
    assert all((own / name).read_text() == name for name in ("log.txt", "old.txt", "folder/kept.txt"))


def test_loaders_of_a_confined_script_have_workers(tmp_path: Path) -> None:
    text = "import torch\nfrom torch.utils.data import DataLoader\n"
    text += (
        "print(sum(x.sum().item() for x in DataLoader(torch.arange(100), batch_size=10, num_workers=2)))\n"
    )
    assert confined(tmp_path, text).stdout == "4950\n"


TRAIN = """
import time
from torch.utils.data import DataLoader

class Squares:
    def __len__(self):
        return 400

    def __getitem__(self, i):
        return sum(k * k for k in range(30_000)) + i

if __name__ == "__main__":
    START
    for batch in DataLoader(Squares(), batch_size=4):
        time.sleep(0.005)
    END
"""


def run(folder: Path, text: str, *words: str) -> tuple[dict[str, Any], str]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "wellfed", "doctor", "run", "--json", "report.json", *words, "train.py"]
    with tempfile.TemporaryDirectory() as temporary:
        env = {**os.environ, "TMPDIR": temporary}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=folder, env=env, check=False
        )
        assert done.returncode == 0, done.stderr
        assert [name for name in os.listdir(temporary) if "wellfed" in name] == [], (
            "trials leave nothing behind"
        )
    return json.loads((folder / "report.json").read_text()), done.stderr


def edited(folder: Path, script: str, file: str, *lines: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WELLFED_DOCTOR_EDIT", json.dumps({"file": file, "lines": lines}))
        return confined(folder, script)


def test_an_edit_is_seen_by_the_script_and_all_it_starts_and_by_nobody_else(tmp_path: Path) -> None:
    text = (
        "import os, subprocess, sys\r\nvalue = 1\r\nif 'again' not in sys.argv:\r\n"
        "    subprocess.run([sys.executable, __file__, 'again'])\r\n"
        "print(value, 'WELLFED_DOCTOR_EDIT' in os.environ)\r\n"
    )
    file = str(tmp_path / "own" / "script.py")
    change = {"line": 2, "code": "value = 1", "change": "value = 1\nvalue += 1"}
    done = edited(tmp_path / "own", text, file, change)
    if "is not covered" in done.stderr:
        pytest.skip("this kernel covers no folders")
    assert (done.returncode, done.stdout) == (0, "2 False\n2 False\n"), done.stderr
    assert Path(file).read_bytes() == text.encode()


@pytest.mark.parametrize(
    ("file", "line", "why"), [("script.py", 1, "not what ran"), ("../elsewhere.py", 2, "not covered")]
)
def test_an_edit_that_cannot_be_made_ends_the_trial(tmp_path: Path, file: str, line: int, why: str) -> None:
    (tmp_path / "elsewhere.py").write_text("a\nvalue = 1\n")
    change = {"line": line, "code": "value = 1", "change": "value = 2"}
    path = str(tmp_path / "own" / file)
    done = edited(tmp_path / "own", "print()\nvalue = 1\n", path, change)
    assert (done.returncode, done.stdout) == (98, "")
    assert why in done.stderr or "is not covered" in done.stderr
    assert (tmp_path / "elsewhere.py").read_text() == "a\nvalue = 1\n"


LOADS = """
import time
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader

FILE = Path(__file__).parent / "rows.npy"


class Rows:
    def __len__(self):
        return 600

    def __getitem__(self, i):
        return np.load(FILE)[i].copy()


if __name__ == "__main__":
    for batch in DataLoader(Rows(), batch_size=4, num_workers=1):
        time.sleep(0.002)
"""


def test_lines_that_are_printed_are_tried(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    # Large enough for mapping it to gain more than another worker would.
    np.save(tmp_path / "rows.npy", np.zeros((600, 8000), np.float32))
    report, said = run(tmp_path, LOADS, "--trial", "--keep", "kept")
    tried = json.loads((tmp_path / "kept" / "tried.json").read_text())
    (trial,) = [trial for trial in tried if trial["edit"] and not trial["left"]]
    assert trial["edit"]["file"].endswith("train.py")
    assert any("mmap_mode" in lines["change"] for lines in trial["edit"]["lines"])
    if "cannot be covered" in trial["problem"]:
        pytest.skip("this kernel covers no folders")
    assert not trial["fails"]
    assert (tmp_path / "train.py").read_text() == LOADS
    # Whether it gains or not is the machine's; what is said agrees with it.
    changes = [
        (verdict["fix"] or {}).get("change") or "" for verdict in verdicts(report) if verdict["measured"]
    ]
    if trial["before"] > 1.07 * trial["after"]:
        assert any("mmap_mode" in change for change in changes)
        assert "tried" in said
    else:
        assert not any("mmap_mode" in change for change in changes)


def verdicts(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [verdict for verdict in (report["verdict"], report["runner_up"], *report["others"]) if verdict]


def test_what_was_tried_is_measured_or_it_is_said_why_not(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a single core has no room for a worker")
    report, said = run(
        tmp_path, TRAIN.replace("START", "pass").replace("END", "pass"), "--trial", "--keep", "kept"
    )
    tried = json.loads((tmp_path / "kept" / "tried.json").read_text())
    for trial in [trial for trial in tried if not trial["left"]]:
        advised = [
            verdict for verdict in verdicts(report) if (verdict["fix"] or {}).get("apply") == trial["apply"]
        ]
        assert trial["edit"] is None
        if trial["problem"]:
            assert any(trial["problem"] in note for note in report["notes"])
        elif trial["apply"].get("feed") and not advised:
            assert trial["before"] / trial["after"] < 1.08, "wellfed's loader is tried in any case"
        elif trial["before"] / trial["after"] < 1.07:
            assert advised == [], "what a trial refutes is no fix"
            assert any("left out" in note for note in report["notes"])
        else:
            (verdict,) = advised
            assert verdict["measured"]["factor"] == pytest.approx(trial["before"] / trial["after"])
            assert "tried" in said
    assert tried
    assert "trying for" in said or "a trial would take" in said


def test_a_trial_overwrites_nothing(tmp_path: Path) -> None:
    text = TRAIN.replace("START", "open('model.pt', 'a').write('first ')").replace(
        "END", "open('model.pt', 'a').write('last ')"
    )
    report, _ = run(tmp_path, text, "--trial", "--keep", "kept")
    assert (tmp_path / "model.pt").read_text() == "first last "
    # Where the folder is covered, the script runs as it did; else it fails at its first line.
    tried = json.loads((tmp_path / "kept" / "tried.json").read_text())
    measured = [verdict["fix"]["apply"] for verdict in verdicts(report) if verdict["measured"]]
    changes = [trial for trial in tried if not trial["left"]]
    assert all(trial["apply"] not in measured for trial in changes if trial["problem"])


COSTLY = """
import time
from torch.utils.data import DataLoader

def describe(batch):
    time.sleep(0.02)
    return len(batch)

def follow(loader):
    for batch in loader:
        with open("model.pt", "a") as file:
            file.write("x")
        table = describe(batch)
        time.sleep(0.002)

if __name__ == "__main__":
    follow(DataLoader(list(range(800)), batch_size=4))
"""


def test_a_statement_that_no_rule_knows_is_left_out_and_told(tmp_path: Path) -> None:
    report, said = run(tmp_path, COSTLY, "--trial", "--keep", "kept")
    assert (tmp_path / "model.pt").read_text() == "x" * 200
    assert (tmp_path / "train.py").read_text() == COSTLY
    tried = json.loads((tmp_path / "kept" / "tried.json").read_text())
    left = [trial for trial in tried if trial["left"]]
    assert left, said
    # Each is announced with its time.
    assert said.count(" left out (--no-trial") == len(left) <= 4
    if any("cover" in trial["problem"] or "Landlock" in trial["problem"] for trial in left):
        assert len(left) == 1, "what cannot be tried is not tried again"
        pytest.skip("this kernel covers no folders")
    # Where writing takes time, too, the lines beside it go with it.
    (trial,) = [trial for trial in left if trial["left"]["most"] == 13]
    assert trial["problem"] == ""
    assert trial["before"] > 2 * trial["after"]
    places = [((verdict["fix"] or {}).get("place") or {}).get("line") for verdict in verdicts(report)]
    (verdict,) = [verdict for verdict, line in zip(verdicts(report), places, strict=True) if line == 13]
    assert verdict["bound"] == pytest.approx(trial["before"] / trial["after"], rel=0.2)
    assert verdict["gain"]["factor"] <= verdict["bound"] + 1e-9


HEALTHY = """
import time
import torch
from torch.utils.data import DataLoader

class Model(torch.nn.Module):
    def forward(self, batch):
        time.sleep(0.03)
        return batch

def follow(loader, model):
    for batch in loader:
        train_step(model, batch)

def train_step(model, batch):
    out = model(batch)
    print(out.shape)

if __name__ == "__main__":
    follow(DataLoader(list(range(600)), batch_size=4), Model())
"""


def test_nothing_is_left_out_of_a_healthy_script(tmp_path: Path) -> None:
    _, said = run(tmp_path, HEALTHY, "--trial", "--keep", "kept")
    assert " left out (--no-trial" not in said
    kept = tmp_path / "kept" / "tried.json"
    assert not kept.exists() or not any(trial["left"] for trial in json.loads(kept.read_text()))


def test_without_a_terminal_or_with_no_trial_nothing_runs_again(tmp_path: Path) -> None:
    text = TRAIN.replace("400", "120").replace("START", "pass").replace("END", "pass")
    report, said = run(tmp_path, text)
    assert "trying for" not in said
    assert all(verdict["measured"] is None for verdict in verdicts(report))
