"""The doctor's probe in scripts that fail, end early, fork, are killed; and when it fails itself."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from doctor_probe import HOME, INJECT, run

pytest.importorskip("torch")

HEAD = """
    import os, signal, sys, threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __init__(self, n=64):
            self.n = n

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            sum(range(20_000))
            if i == 40 and "fail" in sys.argv:
                raise KeyError("no such sample")
            return i
"""


def own_frames_left_out(text: str) -> str:
    """A traceback without the frames of the probe. Where torch takes a batch from depends on when it came."""
    text = re.sub(r'  File "[^"]*wellfed_probe[^"]*", line .*\n(    .*\n)+', "", text)
    return re.sub(r"line \d+, in _next_data", "line ..., in _next_data", text)


@pytest.mark.parametrize("workers", [0, 2])
def test_exceptions_are_unchanged(tmp_path: Path, workers: int) -> None:
    script = (
        HEAD
        + f"""
    for batch in DataLoader(Numbers(), batch_size=8, num_workers={workers}):
        print(batch.tolist())
    """
    )
    done = run(tmp_path, script, "fail")
    plain = run(tmp_path, script, "fail", probe=False)
    assert (done.code, done.out) == (plain.code, plain.out)
    assert own_frames_left_out(done.err) == own_frames_left_out(plain.err)
    assert done.code == 1
    assert done.failures == ""
    (end,) = done.main("exit") or [None]
    assert end is None or end["reason"] == "exception"


def test_exit_says_why(tmp_path: Path) -> None:
    script = (
        HEAD
        + """
    loader = DataLoader(Numbers(), batch_size=8)
    for n, batch in enumerate(loader):
        if n == 3 and sys.argv[1] == "raise":
            raise ValueError("loss is nan")
        if n == 3 and sys.argv[1] == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if n == 3 and sys.argv[1] == "exit":
            sys.exit(7)
        if n == 3 and sys.argv[1] == "now":
            os._exit(8)
    """
    )
    expected = {
        "raise": (1, "exception", "ValueError: loss is nan"),
        "interrupt": (-2, "interrupt", "KeyboardInterrupt"),
        "exit": (7, "finished", None),
        "now": (8, None, None),
    }
    for how, (code, reason, text) in expected.items():
        done = run(tmp_path, script, how)
        assert done.code == code
        assert done.failures == ""
        assert [(r["reason"], r["exception"]) for r in done.main("exit")] == (
            [] if reason is None else [(reason, text)]
        )
        assert sum(len(r["t0"]) for r in done.main("steps")) == 4, how


def test_limits_end_the_script(tmp_path: Path) -> None:
    script = (
        HEAD
        + """
    train, check = DataLoader(Numbers(), batch_size=4), DataLoader(Numbers(8), batch_size=4)
    try:
        for epoch in range(1000):
            for n, batch in enumerate(train):
                time.sleep(0.005)
            for batch in check:
                pass
            print(epoch)
    finally:
        print("finally", epoch, n)
    """
    )
    done = run(tmp_path, script, WELLFED_DOCTOR_STEPS="37")
    assert done.failures == ""
    assert (done.code, done.err) == (0, "")
    assert done.out == "0\n1\nfinally 2 4\n"
    assert [r["reason"] for r in done.main("exit")] == ["steps"]
    assert sum(len(r["t0"]) for r in done.main("steps") if r["loader"] == 0) == 37
    done = run(tmp_path, script, WELLFED_DOCTOR_TIME="0.5")
    assert (done.code, done.err, done.failures) == (0, "", "")
    assert [r["reason"] for r in done.main("exit")] == ["time"]
    first, last = done.main("steps")[0]["t0"][0], done.main("exit")[0]["t"]
    assert last - first >= 0.5e9


def test_changes_are_applied(tmp_path: Path) -> None:
    script = (
        HEAD
        + """
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(8))

    loaders = [
        DataLoader(Numbers(), 8),
        DataLoader(Numbers(), batch_size=8, num_workers=1, prefetch_factor=3, persistent_workers=True),
        DataLoader(Stream(), batch_size=4),
    ]
    for loader in loaders:
        print(loader.num_workers, loader.prefetch_factor, loader.persistent_workers, [b.tolist() for b in loader])
    print(DataLoader.__module__, torch.utils.data.DataLoader is DataLoader)
    """
    )
    plain = run(tmp_path, script, probe=False)
    more = run(
        tmp_path,
        script,
        WELLFED_DOCTOR_APPLY=json.dumps({"loader": {"num_workers": 2, "prefetch_factor": 4}}),
    )
    assert more.failures == ""
    assert more.code == 0, more.err
    heads = [line.split(" [")[0] for line in more.out.splitlines()]
    assert heads[:3] == ["2 4 False", "2 4 True", "0 None False"]
    assert [line.partition(" [")[2] for line in more.out.splitlines()] == [
        line.partition(" [")[2] for line in plain.out.splitlines()
    ]
    none = run(
        tmp_path, script, WELLFED_DOCTOR_APPLY=json.dumps({"loader": {"num_workers": 0}, "feed": True})
    )
    assert none.failures == ""
    assert none.code == 0, none.err
    lines = none.out.splitlines()
    assert [line.split(" [")[0] for line in lines[:3]] == ["0 None False"] * 3
    assert lines[3] == "wellfed.torch._loader True"
    assert [line.partition(" [")[2] for line in lines[:3]] == [
        line.partition(" [")[2] for line in plain.out.splitlines()[:3]
    ]
    assert [r["framework"] for r in none.main("loader")] == ["wellfed.torch"] * 3


def test_other_sitecustomize_runs(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import sys; sys.other = __file__; here = 3\n")
    script = """
    import sys, sitecustomize
    print(sys.other == sitecustomize.__file__, sitecustomize.here, [p for p in sys.path if "inject" in p])
    """
    done = run(tmp_path, script, path=(other,))
    assert (done.code, done.out, done.err, done.failures) == (0, "True 3 []\n", "", "")
    (other / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    done = run(tmp_path, "print(1)", path=(other,))
    plain = run(tmp_path, "print(1)", path=(other,), probe=False)
    assert (done.code, done.out) == (plain.code, plain.out)
    assert ("theirs" in done.err) == ("theirs" in plain.err)


def test_failures_of_ours_are_written_not_said(tmp_path: Path) -> None:
    broken = tmp_path / "inject"
    shutil.copytree(INJECT, broken, ignore=shutil.ignore_patterns("__pycache__"))
    step = broken / "wellfed_probe" / "torch_loader.py"
    step.write_text(step.read_text().replace("def began(", "def began(*a):\n    1 / 0\n\n\ndef unused("))
    script = HEAD + "\n    print([b.tolist() for b in DataLoader(Numbers(), batch_size=8, num_workers=2)])\n"
    plain = run(tmp_path, script, probe=False)
    done = run(tmp_path, script, PYTHONPATH=f"{broken}:{HOME}")
    assert (done.code, done.out, done.err) == (plain.code, plain.out, plain.err)
    assert "ZeroDivisionError" in done.failures
    (broken / "wellfed_probe" / "__init__.py").write_text("raise RuntimeError('broken')")
    done = run(tmp_path, script, PYTHONPATH=f"{broken}:{HOME}")
    assert (done.code, done.out, done.err) == (plain.code, plain.out, plain.err)
    assert "RuntimeError: broken" in done.failures


def test_forks_and_killed_workers(tmp_path: Path) -> None:
    script = (
        HEAD
        + """
    class Fatal(Numbers):
        def __getitem__(self, i):
            if i == 40:
                time.sleep(0.6)
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitem__(i)

    loader = DataLoader(Numbers(), batch_size=8)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    child = os.fork()
    if child == 0:
        rest = list(batches)
        again = list(loader)
        os._exit(len(rest) * 10 + len(again))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(batches)), child)
    try:
        for batch in DataLoader(Fatal(), batch_size=8, num_workers=1):
            pass
    except RuntimeError as e:
        print("DataLoader worker (pid" in str(e))
    """
    )
    done = run(tmp_path, script)
    assert done.failures == ""
    assert done.code == 0, done.err
    codes, after, child = done.out.splitlines()[0].split()
    assert (codes, after, done.out.splitlines()[1]) == ("68", "6", "True")
    assert sum(len(r["t0"]) for r in done.main("steps") if r["loader"] == 0) == 8
    forked = int(child)
    assert done.of("hello", forked)[0]["ppid"] == done.pid
    assert [r["loader"] for r in done.of("loader", forked)] == [0]
    assert sum(len(r["t0"]) for r in done.of("steps", forked)) in (8, 14)
    # The killed worker's last quarter of a second is missing, what was before it is there.
    (killed,) = {pid for pid, records in done.processes.items() if any(r["k"] == "role" for r in records)}
    assert sum(n for r in done.of("fetch", killed) for n in r["n"]) == 40


def test_processes_without_a_loader(tmp_path: Path) -> None:
    done = run(tmp_path, "print(1)")
    assert (done.out, done.err, done.code, done.failures) == ("1\n", "", 0, "")
    assert [r["k"] for r in done.main("hello") + done.main("exit")] == ["hello", "exit"]
    done = run(tmp_path, "print(1)", python=("-I",))
    assert (done.out, done.err, done.code) == ("1\n", "", 0)
    assert done.processes == {}
    done = run(tmp_path, "print(1)", python=("-W", "error"))
    assert (done.out, done.err, done.code) == ("1\n", "", 0)
    assert sys.version_info < (3, 10) or done.main("exit")
