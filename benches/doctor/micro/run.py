"""Whose line is the time: what the doctor says of scripts whose parts are known, by looks from outside and from inside.

    python benches/doctor/micro/run.py [--seconds 20] [--case NAME ...] [--python EXE] [--inside] [--out FILE.md]

Each script of `script.py` runs under `wellfed doctor run`, and times its parts by the clocks of its threads. Told is
for each part its share of the processor time, and of the waiting where the case is about that, in percent: as the
script measured it, and as stacks show it. `--inside` adds what looks from inside of the process find, which need
the interpreter's lock.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CASES = [
    "keeps the lock",
    "gives it up",
    "one of each",
    "Python and what gives it up",
    "many short calls",
    "mixture",
    "lines of gzip",
    "waits",
    "a lock",
]
WAITING = {"waits", "a lock"}
LIMIT = 5.0

Shares = dict[str, tuple[float, float]]


def truth(folder: Path) -> Shares:
    """Processor time and waiting by part, of all processes that made samples."""
    found: Shares = {}
    for path in folder.glob("*.json"):
        for part, (cpu, wait) in json.loads(path.read_text()).items():
            before = found.get(part, (0.0, 0.0))
            found[part] = (before[0] + cpu, before[1] + wait)
    return found


def seen(folder: Path, makers: set[str], outside: bool) -> tuple[Shares, int]:
    """The same as looks show it, and how many looks that are."""
    found: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    looks = 0
    for path in folder.glob("*.looks" if outside else "*.jsonl"):
        if path.stem not in makers:
            continue
        records = [json.loads(line) for line in path.read_text().splitlines()]
        frames = {row["id"]: row["func"] for r in records if r["k"] == "frames" for row in r["rows"]}
        for record in records:
            for row in record["rows"] if record["k"] == "stacks" else ():
                names = [frames.get(number, "").rpartition(".")[2] for number in row["frames"]]
                part = next((name for name in names if name.startswith("part_")), None)
                # Lines of compressed text come out of a loop that belongs to no part of its own.
                if part is None and "both" in names and names[0] != "both":
                    part = "part_lines"
                if part is None or row.get("on") == "core":
                    continue
                looks += row["n"]
                found[part][0] += row["cpu"]
                found[part][1] += row["wall"] - row["cpu"]
    return {part: (cpu, wait) for part, (cpu, wait) in found.items()}, looks


def percent(shares: Shares, part: str, what: int) -> float:
    """A part's share."""
    whole = sum(share[what] for share in shares.values())
    return 100 * shares.get(part, (0.0, 0.0))[what] / whole if whole else 0.0


def run(case: str, workers: int, seconds: float, python: str, outside: bool) -> tuple[Shares, Shares, int]:
    """What a run's script says, what stacks say, and by how many looks."""
    folder = Path(tempfile.mkdtemp(prefix="wellfed-micro-"))
    try:
        (folder / "truth").mkdir()
        env = {**os.environ, "WELLFED_MICRO_TRUTH": str(folder / "truth")}
        env["WELLFED_DOCTOR_LOOKS"] = "" if outside else "inside"
        doctor = [
            sys.executable,
            "-m",
            "wellfed",
            "doctor",
            "run",
            "--no-live",
            "--keep",
            str(folder / "run"),
        ]
        script = ["--python", python, str(HERE / "script.py"), case]
        script += ["--workers", str(workers), "--seconds", str(seconds)]
        subprocess.run([*doctor, *script], env=env, check=True, stderr=subprocess.DEVNULL)
        makers = {path.stem for path in (folder / "truth").glob("*.json")}
        return truth(folder / "truth"), *seen(folder / "run", makers, outside)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Runs what was asked for and prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--case", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 2])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    head = "| case | workers | part | of | true | outside | off |" + (
        " inside | off |" if options.inside else ""
    )
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    print("\n".join(lines))
    worst: dict[bool, list[float]] = {True: [], False: []}
    for case in options.case:
        for workers in [2] if case == "a lock" else options.workers:
            ways = (True, False) if options.inside else (True,)
            found = {way: run(case, workers, options.seconds, options.python, way) for way in ways}
            for part in found[True][0]:
                for what, name in enumerate(["CPU", "waiting"] if case in WAITING else ["CPU"]):
                    row = f"| {case} | {workers} | {part.removeprefix('part_')} | {name} |"
                    for way in ways:
                        true = percent(found[way][0], part, what)
                        share = percent(found[way][1], part, what)
                        worst[way].append(abs(share - true))
                        row += f" {true:.1f} |" if way else ""
                        row += f" {share:.1f} | {share - true:+.1f} |"
                    lines.append(row)
                    print(row, flush=True)
    for way, off in worst.items():
        if off:
            within = sum(value <= LIMIT for value in off)
            name = "outside" if way else "inside"
            lines.append(f"\n{name}: {within} of {len(off)} within {LIMIT:.0f} points, worst {max(off):.1f}")
            print(lines[-1])
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
