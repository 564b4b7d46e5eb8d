"""Runs scripts with and without the doctor's probe, and reads what it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import wellfed

INJECT = Path(wellfed.__file__).parent / "_doctor" / "inject"
HOME = Path(wellfed.__file__).parent.parent


@dataclass
class Run:
    """A script that ran."""

    code: int
    out: str
    err: str
    pid: int
    processes: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    failures: str = ""

    def of(self, kind: str, pid: int | None = None) -> list[dict[str, Any]]:
        """Records of this kind, of one process or all."""
        chosen = self.processes.values() if pid is None else [self.processes.get(pid, [])]
        return [record for records in chosen for record in records if record["k"] == kind]

    def main(self, kind: str) -> list[dict[str, Any]]:
        """Records of the script's own process."""
        return self.of(kind, self.pid)

    def column(self, kind: str, name: str) -> list[Any]:
        """All values of a list that records of this kind have."""
        return [value for record in self.of(kind) for value in record[name]]

    def steps(self, loader: int, pid: int | None = None) -> int:
        """Steps of a loader; in each of its iterators they must be numbered from 0 on, each once."""
        seen: dict[tuple[int, int], list[int]] = {}
        for process, records in self.processes.items():
            for record in records if pid in (None, process) else ():
                if record["k"] == "steps" and record["loader"] == loader:
                    lists = [record[name] for name in ("t0", "t1", "c0", "c1", "p0", "p1")]
                    assert len(set(map(len, lists))) == 1
                    assert all(a <= b for a, b in zip(record["t0"], record["t1"]))
                    numbers = range(record["first"], record["first"] + len(record["t0"]))
                    seen.setdefault((process, record["iter"]), []).extend(numbers)
        for numbers in seen.values():
            assert sorted(numbers) == list(range(len(numbers)))
        return sum(map(len, seen.values()))

    def waits(self, loader: int) -> list[float]:
        """Seconds that each step of a loader waited."""
        rows = (record for record in self.of("steps") if record["loader"] == loader)
        return [(b - a) / 1e9 for record in rows for a, b in zip(record["t0"], record["t1"])]

    def stacks(
        self, thread: str = "MainThread", pid: int | None = None
    ) -> list[tuple[list[str], dict[str, Any]]]:
        """Functions of each stack, innermost first, with its row."""
        found = []
        for process, records in self.processes.items():
            if pid is None or process == pid:
                frames = {f["id"]: f for r in records if r["k"] == "frames" for f in r["rows"]}
                for record in records:
                    if record["k"] == "stacks" and record["thread"] == thread:
                        found += [([frames[i]["func"] for i in row["frames"]], row) for row in record["rows"]]
        return found


def run(
    folder: Path,
    script: str,
    *arguments: str,
    probe: bool = True,
    python: tuple[str, ...] = (),
    path: tuple[Path, ...] = (),
    timeout: float = 240,
    interpreter: str = sys.executable,
    **environment: str,
) -> Run:
    """Runs `script` in a process of its own."""
    file = folder / "script.py"
    file.write_text(textwrap.dedent(script))
    records = folder / "records"
    records.mkdir(exist_ok=True)
    for old in records.iterdir():
        old.unlink()
    env = {k: v for k, v in os.environ.items() if not k.startswith("WELLFED_DOCTOR")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*([INJECT] if probe else []), *path, HOME]))
    env["OMP_NUM_THREADS"] = "1"
    env["PYTHONFAULTHANDLER"] = "1"
    env.update(environment)
    if probe:
        env["WELLFED_DOCTOR_DIR"] = str(records)
    process = subprocess.Popen(
        [interpreter, *python, str(file), *arguments],
        env=env,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs tests in the background of a shell ignores interrupts, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        # Where its threads are is printed, or nobody would ever know.
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        pytest.fail(f"it did not end within {timeout:.0f} s\n{out}\n{err}")
    done = Run(process.returncode, out, err, process.pid)
    for written in sorted(records.glob("*.jsonl")):
        lines = written.read_text().splitlines(keepends=True)
        done.processes[int(written.stem)] = [json.loads(line) for line in lines if line.endswith("\n")]
    done.failures = "".join(broken.read_text() for broken in sorted(records.glob("*.error")))
    return done
