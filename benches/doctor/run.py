"""Runs the planted suite: each script plain, under the doctor and with its fix; compares what was said with what is.

    python benches/doctor/run.py --cases all --seeds 0-4 --out .bench/doctor/results
    python benches/doctor/run.py --rejudge --summary      # judge the kept runs again
    python benches/doctor/run.py --no-doctor              # only the true gains

Each case and seed is one line of `result.jsonl` and one folder `kept/<case>-<seed>`, with all that is needed to judge
it again. What is there is not run again. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from companions import PLANTED, NotPermitted, prepare, surroundings
from suite import Case, chosen
from summary import summarize

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".bench" / "doctor" / "results"
LIMIT = 120.0
"""Seconds after which a run is given up."""


def interpreter(case: Case, args: argparse.Namespace) -> str:
    """The Python that runs the case."""
    return args.tf_python if case.needs == "tensorflow" else args.python


def wellfed(args: argparse.Namespace) -> list[str]:
    """The command `wellfed`."""
    return [args.wellfed] if args.wellfed else [args.python, "-m", "wellfed"]


def script(case: Case, seed: int, args: argparse.Namespace, *more: str) -> list[str]:
    """Script and arguments."""
    told = [
        str(PLANTED / f"{case.script}.py"),
        "--seed",
        str(seed),
        "--seconds",
        str(args.seconds or case.time(seed)),
    ]
    return [*told, *(["--small"] if args.small else []), *more]


def call(
    command: list[str], env: dict[str, str], log: Path, enter: Any = None, cwd: Path | None = None
) -> int:
    """Runs a command in a session of its own, its output to a file; ends all of it when its time is over."""
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, preexec_fn=enter, cwd=cwd,
        )  # fmt: skip
        try:
            return process.wait(LIMIT)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


def tail(path: Path, lines: int = 12) -> str:
    """The end of a file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def keep(case: Case, seed: int, args: argparse.Namespace, kept: Path) -> dict[str, Any]:
    """Settings of a case and seed, which are also kept in a folder for its runs."""
    kept.mkdir(parents=True, exist_ok=True)
    settings = prepare([interpreter(case, args), *script(case, seed, args)])
    (kept / "settings.json").write_text(json.dumps(settings, indent=1))
    return settings


def measure(
    case: Case,
    seed: int,
    args: argparse.Namespace,
    kept: Path,
    what: str,
    fixed: str = "",
    apply: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One run: what the script measured itself. `what` is `plain`, `doctor`, `named` or a name for a fix.

    `named` is under the doctor, too, which makes the change `apply` from outside.
    """
    settings = json.loads((kept / "settings.json").read_text())
    more = ["--fixed", fixed] if fixed else []
    log, result = kept / f"{what}.txt", kept / f"{what}.json"
    result.unlink(missing_ok=True)
    command = [interpreter(case, args), *script(case, seed, args, *more)]
    if what in ("doctor", "named"):
        of = "" if what == "doctor" else f"{what}-"
        run, report = kept / f"{of}run", kept / f"{of}report.json"
        shutil.rmtree(run, ignore_errors=True)
        report.unlink(missing_ok=True)
        told = ["--python", command[0], "--keep", str(run), "--json", str(report)]
        command = [*wellfed(args), "doctor", "run", *told, *command[1:]]
    if case.warm:
        for path in Path(settings["root"]).rglob("*"):
            if path.is_file():
                path.read_bytes()
    with surroundings(settings, fixed) as around:
        env = {**around.env, "PLANTED_RESULT": str(result)}
        if apply:
            env |= {"WELLFED_DOCTOR_APPLY": json.dumps(apply), **apply.get("env", {})}
        status = call(command, env, log, around.enter)
    if not result.exists():
        raise RuntimeError(
            f"{what} of {case.script} seed {seed} ended with {status} and no result:\n{tail(log)}"
        )
    return {**json.loads(result.read_text()), "status": status}


def one(case: Case, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """All runs of a case and seed."""
    kept = args.out / "kept" / f"{case.script}-{seed}"
    settings = keep(case, seed, args, kept)
    begin = time.monotonic()
    result: dict[str, Any] = {
        "case": case.script,
        "number": case.number,
        "seed": seed,
        "near": settings["near"],
        "plain": measure(case, seed, args, kept, "plain"),
    }
    if not args.no_doctor:
        result["doctor"] = measure(case, seed, args, kept, "doctor")
    plain, fixes = [result["plain"]], sorted(set(case.fixes.values()))
    runs: dict[str, list[dict[str, Any]]] = {fix: [] for fix in fixes}
    for number in range(case.rounds):
        if number and fixes:
            plain.append(measure(case, seed, args, kept, "plain"))
        for fix in fixes:
            runs[fix].append(measure(case, seed, args, kept, f"fixed-{fix}", fix))
    result["plain"] = middle(plain)
    result["fixed"] = {verdict: middle(runs[fix]) for verdict, fix in case.fixes.items()}
    result["took"] = round(time.monotonic() - begin, 2)
    if not args.no_doctor:
        result["report"] = read_report(kept / "report.json")
        verdict = (result["report"] or {}).get("verdict") or {}
        apply = (verdict.get("fix") or {}).get("apply")
        if apply and verdict["id"] not in case.accepted:
            result["named"] = measure(case, seed, args, kept, "named", apply=apply)
    return result


def middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of runs of the same, the one with the median speed; with the speeds of all, if there are several."""
    by_speed = sorted(runs, key=lambda run: run["samples_per_s"])
    chosen = by_speed[len(runs) // 2]
    return {**chosen, "all": [run["samples_per_s"] for run in runs]} if len(runs) > 1 else chosen


def read_report(path: Path) -> dict[str, Any] | None:
    """The parts of a report that are compared."""
    if not path.exists():
        return None
    report = json.loads(path.read_text())
    return {key: report.get(key) for key in ("verdict", "runner_up", "others", "steps", "notes")}


def rejudge(results: list[dict[str, Any]], args: argparse.Namespace) -> None:
    """Lets the doctor judge kept runs again; nothing is run."""
    for result in results:
        kept = args.out / "kept" / f"{result['case']}-{result['seed']}"
        if not (kept / "run").is_dir():
            continue
        report = kept / "report.json"
        command = [*wellfed(args), "doctor", "report", str(kept / "run"), "--json", str(report)]
        told = subprocess.run(command, capture_output=True, text=True)
        if told.returncode:
            print(f"{kept.name}: {told.stderr.strip()[-500:]}", file=sys.stderr)
        result["report"] = read_report(report)


def load(path: Path) -> list[dict[str, Any]]:
    """Results so far; of lines for the same case and seed, the last counts."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return list({(line["case"], line["seed"]): line for line in lines}.values())


def numbers(text: str) -> list[int]:
    """`0-4` or `1,3`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", default="all", help="numbers or scripts, by commas; all, healthy, tensorflow"
    )
    parser.add_argument("--seeds", type=numbers, default=list(range(5)), help="such as 0-4 or 1,3")
    parser.add_argument("--out", type=lambda text: Path(text).resolve(), default=RESULTS)
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and wellfed")
    parser.add_argument(
        "--tf-python", default=os.environ.get("PLANTED_TF_PYTHON", ""), help="one with tensorflow and Pillow"
    )
    parser.add_argument("--wellfed", default="", help="the command, if not `python -m wellfed`")
    parser.add_argument("--seconds", type=float, default=0, help="time to train, in place of the case's own")
    parser.add_argument("--small", action="store_true", help="little data, to test the runner")
    parser.add_argument("--no-doctor", action="store_true", help="only plain and fixed: the true gains")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    parser.add_argument("--rejudge", action="store_true", help="only judge kept runs again")
    parser.add_argument("--summary", action="store_true", help="only tell what the results say")
    return parser.parse_args()


def tell(result: dict[str, Any]) -> str:
    """One line."""
    plain = result["plain"]["samples_per_s"]
    gains = {verdict or "fix": fixed["samples_per_s"] / plain for verdict, fixed in result["fixed"].items()}
    text = f"{result['number']:>3} {result['case']:20} seed {result['seed']}{' near' if result['near'] else '':5}"
    text += f" {plain:9.1f}/s  gain " + " ".join(f"{gain:.2f}" for gain in gains.values())
    if doctor := result.get("doctor"):
        verdict = (result.get("report") or {}).get("verdict") or {}
        gain = verdict.get("gain") or {}
        text += f"  doctor x{doctor['samples_per_s'] / plain:.3f}  {verdict.get('id', 'no report')}"
        text += f" {gain['factor']:.2f} ({gain['low']:.2f}-{gain['high']:.2f})" if gain else ""
        if named := result.get("named"):
            text += f", which gains {named['samples_per_s'] / doctor['samples_per_s']:.2f}"
    return text + f"  {result.get('took', 0):.0f} s"


def main() -> int:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / "result.jsonl"
    cases = chosen(args.cases)
    if args.rejudge:
        results = load(place)
        rejudge(results, args)
        half = place.with_suffix(".half")
        half.write_text("".join(json.dumps(result) + "\n" for result in results))
        half.replace(place)
    failed = 0
    if not (args.rejudge or args.summary):
        done = {(r["case"], r["seed"]) for r in load(place) if args.no_doctor or r.get("report")}
        for seed in args.seeds:
            for case in cases:
                if (case.script, seed) in done and not args.again:
                    continue
                if case.needs == "tensorflow" and not args.tf_python:
                    print(f"{case.number:>3} {case.script}: left out, no --tf-python", file=sys.stderr)
                    continue
                try:
                    result = one(case, seed, args)
                except NotPermitted as error:
                    print(f"{case.number:>3} {case.script}: LEFT OUT, {error}", file=sys.stderr)
                    continue
                except (RuntimeError, subprocess.SubprocessError) as error:
                    failed += 1
                    print(f"{case.number:>3} {case.script} seed {seed} FAILED: {error}", file=sys.stderr)
                    continue
                with place.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(tell(result), flush=True)
    summarize([r for r in load(place) if r["case"] in {c.script for c in cases}])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
