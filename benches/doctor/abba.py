"""What the doctor costs the planted scripts: plain and under it in the order A B B A, each in a process of its own.

    python benches/doctor/abba.py --cases 12,15,16,h3 --seeds 0 --rounds 4

`overhead.py` compares blocks of one process, where what cannot be taken back (an audit hook) stays in the unwatched
blocks, too. Here nothing stays; but processes differ more from each other than blocks do.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean, median

from suite import Case, chosen

from run import ROOT, keep, measure, numbers


def costs(case: Case, seed: int, args: argparse.Namespace) -> list[float]:
    """Of each round: seconds a sample under the doctor over those without, less 1."""
    kept = args.out / f"{case.script}-{seed}"
    keep(case, seed, args, kept)
    found = []
    for _ in range(args.rounds):
        took: dict[str, list[float]] = {"plain": [], "doctor": []}
        for what in ("plain", "doctor", "doctor", "plain"):
            took[what].append(1 / measure(case, seed, args, kept, what)["samples_per_s"])
        found.append(mean(took["doctor"]) / mean(took["plain"]) - 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="12,15,16,h3", help="numbers or scripts, by commas")
    parser.add_argument("--seeds", type=numbers, default=[0], help="such as 0-4 or 1,3")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--out", type=lambda text: Path(text).resolve(), default=ROOT / ".bench/doctor/abba")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and wellfed")
    parser.add_argument("--tf-python", default="", help="one with tensorflow and Pillow")
    parser.add_argument("--wellfed", default="", help="the command, if not `python -m wellfed`")
    parser.add_argument("--seconds", type=float, default=0, help="time to train, in place of the case's own")
    args = parser.parse_args()
    args.small = False
    for case in chosen(args.cases):
        if case.needs == "tensorflow" and not args.tf_python:
            raise SystemExit(f"{case.script} needs TensorFlow\nhint: --tf-python")
        for seed in args.seeds:
            found = costs(case, seed, args)
            print(
                json.dumps({"case": case.script, "seed": seed, "median": median(found), "rounds": found}),
                flush=True,
            )


if __name__ == "__main__":
    main()
