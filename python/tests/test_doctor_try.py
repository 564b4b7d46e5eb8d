"""`wellfed doctor try` and `sweep`: changes are applied from outside, in turn with the script as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")

TRAIN = """
import os, time
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return sum(k * k for k in range(20_000)) + i

if __name__ == "__main__":
    loader = DataLoader(Squares(), batch_size=4)
    with open("workers.txt", "a") as out:
        print(loader.num_workers, os.environ.get("OMP_NUM_THREADS"), type(loader).__module__, file=out)
    print("this is the script's output")
    for batch in loader:
        time.sleep(0.01)
"""


def doctor(folder: Path, *words: str, text: str = TRAIN) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(text)
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment.pop("OMP_NUM_THREADS", None)
    command = [sys.executable, "-m", "wellfed", "doctor", *words, "train.py"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=folder
    )


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def seen(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "workers.txt").read_text().splitlines()]


def test_the_doctors_own_fix_is_tried(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a single core has no room for a worker")
    tried = result(doctor(tmp_path, "try", "--steps", "60", "--rounds", "2", "--json", "-"))
    assert tried["schema"] == "wellfed.doctor.try/1"
    assert tried["verdict"] == "serial-loading", tried
    workers = tried["apply"]["loader"]["num_workers"]
    assert workers >= 1
    # A B, then B A.
    assert [int(line[0]) for line in seen(tmp_path)] == [0, workers, workers, 0]
    assert len(tried["before"]) == len(tried["after"]) == 2
    assert tried["predicted"]["low"] <= tried["predicted"]["factor"] <= tried["predicted"]["high"]
    assert tried["actual"] == pytest.approx(
        sum(tried["before"]) / sum(tried["after"]), rel=1e-6
    )  # Medians of two are means.
    assert tried["inside"] == (tried["predicted"]["low"] <= tried["actual"] <= tried["predicted"]["high"])


def test_a_change_that_was_asked_for_is_tried(tmp_path: Path) -> None:
    change = json.dumps({"loader": {"num_workers": 1}, "env": {"OMP_NUM_THREADS": "1"}, "feed": True})
    done = doctor(tmp_path, "try", "--steps", "20", "--rounds", "1", "--apply", change, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    before, after = seen(tmp_path)
    assert before == ["0", "None", "torch.utils.data.dataloader"]
    assert after == ["1", "1", "wellfed.torch._loader"]
    tried = json.loads((tmp_path / "out.json").read_text())
    assert (tried["verdict"], tried["predicted"]) == ("given", None)
    assert "this is the script's output" not in done.stdout + done.stderr


def test_a_script_that_fails_says_so_itself(tmp_path: Path) -> None:
    done = doctor(tmp_path, "try", "--steps", "5", text="raise RuntimeError('the disk is gone')")
    assert done.returncode == 1
    assert "the disk is gone" in done.stderr
    assert "panicked" not in done.stderr
    done = doctor(tmp_path, "try", "--steps", "5", "--apply", '{"loader": 3}')
    assert done.returncode == 2


def test_a_sweep_measures_settings_and_names_the_best(tmp_path: Path) -> None:
    swept = result(doctor(tmp_path, "sweep", "--steps", "60", "--json", "-"))
    assert swept["schema"] == "wellfed.doctor.sweep/1"
    settings = [json.dumps(m["settings"], sort_keys=True) for m in swept["measured"]]
    assert len(set(settings)) == len(settings) <= swept["grid_runs"]
    assert swept["measured"][0]["settings"] == swept["current"]
    assert swept["current"]["num_workers"] == 0
    assert swept["best"] in swept["measured"]
    fastest = min(m["time"] for m in swept["measured"])
    assert swept["best"]["time"] <= 1.05 * fastest
    assert swept["gain"] == pytest.approx(swept["measured"][0]["time"] / swept["best"]["time"])
    # What was measured is what ran.
    assert [int(line[0]) for line in seen(tmp_path)] == [
        m["settings"]["num_workers"] for m in swept["measured"]
    ]
    assert max(m["settings"]["num_workers"] for m in swept["measured"]) <= len(os.sched_getaffinity(0))


def test_a_sweep_ends_with_a_result_whatever_runs_are_like(tmp_path: Path) -> None:
    """Too few steps make runs longer; settings with which the script fails are left out, with its own words."""
    failing = TRAIN.replace(
        "for batch in loader:",
        "if loader.num_workers:\n        raise OSError('no room')\n    for batch in loader:",
    )
    done = doctor(tmp_path, "sweep", "--steps", "6", "--json", "-", text=failing)
    swept = result(done)
    assert swept["best"]["settings"]["num_workers"] == swept["current"]["num_workers"] == 0
    assert "steps are too few to compare; runs take" in done.stderr
    if len(os.sched_getaffinity(0)) > 1:
        assert "is left out" in done.stderr
        assert "raise OSError('no room')\n" in done.stderr
        assert "OSError: no room\n" in done.stderr


def test_a_sweep_that_has_too_few_steps_says_why(tmp_path: Path) -> None:
    done = doctor(tmp_path, "sweep", text=TRAIN.replace("return 4000", "return 8"))
    assert done.returncode == 1
    assert "too few to build on" in done.stderr
    assert "the script ended by itself" in done.stderr


def test_what_has_no_loader_cannot_be_swept(tmp_path: Path) -> None:
    done = doctor(tmp_path, "sweep", "--steps", "5", text="import torch")
    assert done.returncode == 1
    assert "no training loop over a data loader" in done.stderr
