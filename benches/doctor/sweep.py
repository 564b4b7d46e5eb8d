"""What a sweep misses and what it spares: `wellfed doctor sweep` against the whole grid, on planted scripts.

    python benches/doctor/sweep.py [--cases 1,2,5,11,12] [--seed 0] [--out FILE.jsonl]

Per script, first the sweep, then every setting of the grid twice as long (`--grid`). The regret is how much longer a
step takes with the settings that the sweep chose than with the best of the grid, both as the grid measured them; the
share is the time of the sweep over that of the grid, both by the clock. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from companions import PLANTED, prepare, surroundings
from suite import Case, chosen

LONG = "600"
"""Seconds that the script would train: the doctor ends it."""


def search(case: Case, settings: dict[str, Any], args: argparse.Namespace, *more: str) -> dict[str, Any]:
    """One `wellfed doctor sweep`: its result, and the seconds that the command took."""
    script = [str(PLANTED / f"{case.script}.py"), "--seed", str(args.seed), "--seconds", LONG]
    command = [
        args.python,
        "-m",
        "wellfed",
        "doctor",
        "sweep",
        "--time",
        str(args.time),
        "--json",
        "-",
        *more,
    ]
    with surroundings(settings, "") as around:
        begin = time.perf_counter()
        done = subprocess.run(
            [*command, "--python", args.python, *script],
            env=around.env, preexec_fn=around.enter, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        took = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"the sweep of {case.script} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return {**json.loads(done.stdout), "took": took}


def time_of(settings: dict[str, Any], times: dict[str, float]) -> float:
    """As the grid measured it. Without epochs it has each setting with persistent workers only, as that is the same."""
    for persistent in (settings["persistent_workers"], True):
        found = times.get(json.dumps({**settings, "persistent_workers": persistent}, sort_keys=True))
        if found is not None:
            return found
    raise KeyError(f"{settings} is not in the grid")


def compare(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """A sweep and a grid of one script."""
    settings = prepare([args.python, str(PLANTED / f"{case.script}.py"), "--seed", str(args.seed)])
    swept = search(case, settings, args)
    grid = search(case, settings, args, "--grid")
    times = {json.dumps(m["settings"], sort_keys=True): m["time"] for m in grid["measured"]}
    chosen_time = time_of(swept["best"]["settings"], times)
    return {
        "case": case.script,
        "seed": args.seed,
        "current": swept["current"],
        "chosen": swept["arguments"],
        "best": min(grid["measured"], key=lambda m: m["time"])["settings"],
        "runs": len(swept["measured"]),
        "grid_runs": len(grid["measured"]),
        "regret": chosen_time / min(times.values()) - 1,
        "share": swept["took"] / grid["took"],
        "gain": swept["gain"],
        "seconds": swept["took"],
        "grid_seconds": grid["took"],
        "measured": swept["measured"],
        "grid": grid["measured"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="1,2,5,11,12")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--time", type=float, default=10.0, help="seconds of steps that a run of the grid looks at"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and wellfed")
    parser.add_argument("--out", type=Path, help="file for all that was measured")
    args = parser.parse_args()
    results = []
    for case in chosen(args.cases):
        result = compare(case, args)
        results.append(result)
        print(
            f"{case.number:>3} {case.script:20} {result['runs']} of {result['grid_runs']} settings, "
            f"{result['seconds']:.0f} of {result['grid_seconds']:.0f} s ({result['share']:.0%}), "
            f"regret {result['regret']:.1%}, gain {result['gain']:.2f} with {result['chosen']}",
            flush=True,
        )
        if args.out:
            with args.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    regrets, shares = ([r[what] for r in results] for what in ("regret", "share"))
    print(
        f"median regret {statistics.median(regrets):.1%}, median share of the time {statistics.median(shares):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
