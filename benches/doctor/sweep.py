"""What a sweep misses and what it spares: `wellfed doctor sweep` against the whole grid, on planted scripts.

    python benches/doctor/sweep.py [--cases 1,2,5,11,12] [--seed 0] [--out FILE.jsonl]

Per script, first the sweep, then every setting of the grid three times as long (`--grid`). The regret is how much
longer a sample takes with the settings that the sweep chose than with the best of the grid, both measured again in
turns; the share is the time of the sweep over that of the grid, both by the clock. Standard library only.
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

from run import ROOT, keep, measure

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


def regret(case: Case, args: argparse.Namespace, chosen: dict[str, Any], best: dict[str, Any]) -> list[float]:
    """Of each round: seconds a sample with the chosen settings over those with the grid's best, less 1; in turns.

    The best of many short runs is so in part by luck, so that its own run does not count.
    """
    if chosen == best:
        return [0.0]
    kept = ROOT / ".bench" / "doctor" / "sweep" / f"{case.script}-{args.seed}"
    keep(case, args.seed, args, kept)
    found = []
    for number in range(args.rounds):
        speed = {}
        for what, settings in [("chosen", chosen), ("best", best)][:: 1 if number % 2 else -1]:
            names = [
                name for name in settings if settings["num_workers"] or name in ("num_workers", "pin_memory")
            ]
            apply = {"loader": {name: settings[name] for name in names}}
            speed[what] = measure(case, args.seed, args, kept, "named", apply=apply)["samples_per_s"]
        found.append(speed["best"] / speed["chosen"] - 1)
    return found


def compare(case: Case, args: argparse.Namespace) -> dict[str, Any]:
    """A sweep and a grid of one script."""
    settings = prepare([args.python, str(PLANTED / f"{case.script}.py"), "--seed", str(args.seed)])
    swept = search(case, settings, args)
    grid = search(case, settings, args, "--grid")
    times = {json.dumps(m["settings"], sort_keys=True): m["time"] for m in grid["measured"]}
    chosen_time = time_of(swept["best"]["settings"], times)
    best = min(grid["measured"], key=lambda m: m["time"])["settings"]
    rounds = regret(case, args, swept["best"]["settings"], best)
    return {
        "case": case.script,
        "seed": args.seed,
        "current": swept["current"],
        "chosen": swept["arguments"],
        "best": best,
        "runs": sum(m["runs"] for m in swept["measured"]),
        "grid_runs": len(grid["measured"]),
        "regret": statistics.median(rounds),
        "rounds": rounds,
        "grid_regret": chosen_time / min(times.values()) - 1,
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
    parser.add_argument("--rounds", type=int, default=5, help="runs of the chosen and of the best settings")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and wellfed")
    parser.add_argument("--out", type=Path, help="file for all that was measured")
    args = parser.parse_args()
    args.tf_python, args.wellfed, args.seconds, args.small = "", "", 0, False
    results = []
    for case in chosen(args.cases):
        result = compare(case, args)
        results.append(result)
        print(
            f"{case.number:>3} {case.script:20} {result['runs']} runs, {result['grid_runs']} settings, "
            f"{result['seconds']:.0f} of {result['grid_seconds']:.0f} s ({result['share']:.0%}), "
            f"regret {result['regret']:.1%} (by the grid's own runs {result['grid_regret']:.1%}), "
            f"gain {result['gain']:.2f} with {result['chosen']}",
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
