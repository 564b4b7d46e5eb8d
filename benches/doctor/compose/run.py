"""Runs composed scripts plain, under the doctor and with each candidate fix alone; says how often the doctor is right.

    python benches/doctor/compose/run.py --scripts 4                  # a look
    python benches/doctor/compose/run.py --scripts 200 --tf-python .venv-tensorflow/bin/python
    python benches/doctor/compose/run.py --set kept --scripts 200     # final figures only: see README.md
    python benches/doctor/compose/run.py --rejudge                    # judge the kept runs again, run nothing
    python benches/doctor/compose/run.py --show 7                     # print a script and its candidate fixes

Each script is one line of `results.jsonl`; what is there is not run again, so that a draw can be stopped and go on.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

import figures
import running
from drawing import draw
from grammar import KEPT, OPEN

ROOT = Path(__file__).resolve().parents[3]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=[OPEN, KEPT], default=OPEN, help="which of the productions")
    parser.add_argument("--scripts", type=int, default=4, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--rounds", type=int, default=2, help="how often plain and fixed run in turns")
    parser.add_argument("--seconds", type=float, default=4.0, help="about how long a script trains")
    parser.add_argument(
        "--out", type=lambda text: Path(text).resolve(), default=ROOT / ".bench/doctor/compose"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch and wellfed")
    parser.add_argument(
        "--tf-python", default=os.environ.get("PLANTED_TF_PYTHON", ""), help="one with tensorflow"
    )
    parser.add_argument("--wellfed", default="", help="the command, if not `python -m wellfed`")
    parser.add_argument(
        "--cores", type=int, default=0, help="cores that scripts are drawn for, if not this machine's"
    )
    parser.add_argument("--no-doctor", action="store_true", help="only the truth")
    parser.add_argument("--again", action="store_true", help="run also what is there already")
    parser.add_argument("--small", action="store_true", help="little data, to test the runner")
    parser.add_argument("--rejudge", action="store_true", help="only judge kept runs again")
    parser.add_argument("--summary", action="store_true", help="only tell what the results say")
    parser.add_argument(
        "--show", type=int, help="print the script of a seed, with its fixes, and run nothing"
    )
    return parser.parse_args()


def span(seconds: float) -> str:
    """Such as `1 h 20 min`."""
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def show(args: argparse.Namespace) -> None:
    """Prints a script, and what each fix changes."""
    import difflib

    script = draw(args.show, args.set, bool(args.tf_python), args.cores)
    print(script.source())
    for name, fixed in script.fixes().items():
        lines = difflib.unified_diff(
            script.source().splitlines(), fixed.source().splitlines(), "train.py", name, lineterm="", n=1
        )
        print("\n".join(lines) or f"{name}: what stands around the script")


def main() -> int:
    args = arguments()
    if args.show is not None:
        show(args)
        return 0
    settings = running.Settings(
        out=args.out,
        python=args.python,
        tensorflow=args.tf_python,
        wellfed=[args.wellfed] if args.wellfed else [args.python, "-m", "wellfed"],
        seconds=args.seconds,
        rounds=args.rounds,
        doctor=not args.no_doctor,
    )
    args.out.mkdir(parents=True, exist_ok=True)
    place = args.out / "results.jsonl"
    seeds = range(args.seed, args.seed + args.scripts)
    if args.rejudge:
        again = [running.rejudged(settings, result) for result in running.results(place)]
        half = place.with_suffix(".half")
        half.write_text("".join(json.dumps(result) + "\n" for result in again))
        half.replace(place)
    # Stopped, it ends what it started; what is done stays. A shell ignores Ctrl-C for what it starts in the background.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = 0
    if not (args.rejudge or args.summary):
        done = {(r["set"], r["seed"]) for r in running.results(place) if args.no_doctor or r.get("report")}
        wanted = [seed for seed in seeds if args.again or (args.set, seed) not in done]
        scripts = [draw(seed, args.set, bool(args.tf_python), args.cores, args.small) for seed in wanted]
        left = running.expected(settings, scripts)
        print(
            f"{len(scripts)} scripts to run, {len(seeds) - len(scripts)} are there; about {span(left)}",
            flush=True,
        )
        begin, took, told = time.monotonic(), 0.0, 0.0
        for number, script in enumerate(scripts, 1):
            try:
                result = running.one(settings, script, args.set)
            except KeyboardInterrupt:
                print(f"stopped; {len(scripts) - number + 1} are left", file=sys.stderr)
                return 130
            except (running.FailedError, OSError) as error:
                failed += 1
                print(f"{args.set}-{script.about.seed} FAILED: {error}", file=sys.stderr, flush=True)
                continue
            with place.open("a") as file:
                file.write(json.dumps(result) + "\n")
            told += running.expected(settings, [script])
            took = time.monotonic() - begin
            left = running.expected(settings, scripts[number:]) * took / told
            print(figures.line(result, figures.score(figures.asked(result))))
            print(
                f"      {result['took']:.0f} s; {len(scripts) - number} left, about {span(left)}", flush=True
            )
    some = [r for r in running.results(place) if r["set"] == args.set]
    print("\n" + figures.summary([r for r in some if r["seed"] in seeds or args.rejudge or args.summary]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
