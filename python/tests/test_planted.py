"""The planted suite of the doctor: its scripts run, its slow disk changes no bytes, its summary counts right."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCTOR = Path(__file__).resolve().parents[2] / "benches" / "doctor"
if not DOCTOR.is_dir():
    pytest.skip("the suite is not part of an installed package", allow_module_level=True)
pytest.importorskip("torch")


def module(name: str):
    """A module of the suite, as its own scripts import it."""
    for place in (DOCTOR, DOCTOR / "planted"):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    return importlib.import_module(name)


suite = module("suite")
SCRIPTS = [case.script for case in suite.CASES if case.needs == "torch"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What all scripts measured, plain and fixed, with little data."""
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("planted")
    out = folder / "result.jsonl"
    env = {**os.environ, "PLANTED_CACHE": str(folder / "cache")}
    command = [sys.executable, str(DOCTOR / "quick.py"), str(out), "0.2"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in out.read_text().splitlines()]
    return {result["case"]: {**result, "errors": done.stderr[-3000:]} for result in told}


@pytest.mark.skipif(sys.platform != "linux", reason="the scripts use Linux's processes")
@pytest.mark.parametrize("script", SCRIPTS)
def test_plain_and_fixed_run(script: str, results: dict[str, dict]) -> None:
    result = results[script]
    if "left_out" in result:
        pytest.skip(result["left_out"])
    assert result["status"] == 0, result["errors"]
    fixes = next(case.fixes for case in suite.CASES if case.script == script)
    for name in ("plain", *fixes.values()):
        assert isinstance(result[name], dict), result["errors"]
        assert result[name]["steps"] > 1
        assert result[name]["samples_per_s"] > 0


@pytest.mark.skipif(not shutil.which("cc") or sys.platform != "linux", reason="needs a C compiler and Linux")
def test_a_slow_disk_changes_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_CACHE", str(tmp_path))
    common = module("common")
    far, near = tmp_path / "far", tmp_path / "near"
    for folder in (far, near):
        folder.mkdir()
        (folder / "bytes").write_bytes(os.urandom(300_000))
    env = common.slow_reads(far, open_us=2000, read_us=3000, rate=50e6)
    code = (
        "import os, sys, time\n"
        "for path in sys.argv[1:]:\n"
        "    start = time.perf_counter()\n"
        "    with open(path, 'rb') as file:\n"
        "        data = file.read(1000) + file.read()\n"
        "    fd = os.open(path, os.O_RDONLY)\n"
        "    assert os.pread(fd, 100, 5000) == data[5000:5100]\n"
        "    os.close(fd)\n"
        "    open(path + '.copy', 'wb').write(data)\n"
        "    print(time.perf_counter() - start)\n"
    )
    files = [str(far / "bytes"), str(near / "bytes")]
    done = subprocess.run(
        [sys.executable, "-c", code, *files],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    for path in files:
        assert Path(path + ".copy").read_bytes() == Path(path).read_bytes()
    slow = float(done.stdout.split()[0])
    # No upper bound: two opens of 2 ms and 300 kB at 50 MB/s cannot take less.
    assert slow > 0.008


def test_draws_depend_on_case_and_seed_alone() -> None:
    draw = module("common").Draw
    assert draw("a", 1, False).random() == draw("a", 1, False).random()
    assert draw("a", 1, False).random() != draw("b", 1, False).random()
    assert [draw("a", seed, False).near for seed in range(5)] == [False] * 4 + [True]


def test_every_accepted_verdict_is_known() -> None:
    for case in suite.CASES:
        assert set(case.accepted) <= set(suite.FAMILIES), case.script
        assert (DOCTOR / "planted" / f"{case.script}.py").is_file()
        assert len((DOCTOR / "planted" / f"{case.script}.py").read_text().splitlines()) <= 100


def test_the_summary_counts(capsys: pytest.CaptureFixture[str]) -> None:
    speed = {"samples_per_s": 100.0, "losses": "x"}

    def result(script: str, verdict: str, fixed: float, gain: tuple[float, float, float] | None) -> dict:
        told = gain and dict(zip(("factor", "low", "high"), gain))
        report = {
            "verdict": {"id": verdict, "family": suite.FAMILIES[verdict], "gain": told},
            "runner_up": None,
        }
        fix = {} if fixed == 0 else {"": {"samples_per_s": fixed}}
        common = {"seed": 0, "near": False, "plain": speed, "doctor": speed, "fixed": fix, "report": report}
        return {"case": script, **common}

    rows = [
        result("serial_loading", "serial-loading", 200.0, (2.2, 1.8, 2.4)),
        result("decompression", "augment", 200.0, (2.0, 1.8, 2.4)),
        result("storage_latency", "storage-latency", 90.0, (1.5, 1.2, 1.8)),
        result("healthy_trivial", "serial-loading", 0, (1.5, 1.2, 2.0)),
        result("healthy_wait", "healthy", 0, None),
    ]
    module("summary").summarize(rows)
    out = capsys.readouterr().out
    assert "all    verdict right 3/5 (60%), family right 4/5 (80%)" in out
    assert "false alarms on healthy controls 1/2 (50%)" in out
    assert "inside of the 80 % interval 1/2 (50%)" in out
    assert "losses 1: storage_latency" in out
