"""torch's DataLoader and `wellfed.feed` of it, side by side: `python benches/torch_loader/run.py`.

Rounds go over the loaders in turn (each round starts with another one), so that a slow minute of the machine
hits all of them; a measurement is a process of its own (`measure.py`). Figures are medians over the rounds,
ratios medians of the ratios within each round, to the stock setting that is fastest in that round.
Needs torch, torchvision and wellfed in the interpreter that runs it. The result goes to `benches/runs/`.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from cases import CASES, Case  # noqa: E402

import photos  # noqa: E402
from measure import MARK  # noqa: E402

HOME = ROOT / ".bench"


def loaders(name: str, case: Case) -> list[tuple[str, int]]:
    """What is compared: a loader's name and its workers."""
    compared = [("stock", workers) for workers in case.workers] + [("feed", case.workers[-1])]
    if case.threads:
        compared.append(("threads", case.workers[-1]))
    return [*compared, ("native", 0)] if name == "photos" else compared


def measure(case: str, loader: str, workers: int, args: argparse.Namespace, root: Path) -> dict[str, Any]:
    """One measurement; what goes wrong is said in `failed`."""
    command = [sys.executable, str(HERE / "measure.py"), "--case", case, "--loader", loader]
    command += ["--workers", str(workers), "--seconds", str(args.seconds), "--photos", str(root)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"no result within {args.timeout:g} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return {"failed": last[0].replace(str(ROOT), ".")}
    found: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    return found


def goodness(case: Case, result: dict[str, Any]) -> float:
    """The larger the better: samples per second, or one over the seconds to the first batch."""
    return 1.0 / result["seconds"] if case.first_batch else float(result["rate"])


def table(name: str, case: Case, results: list[dict[str, Any]]) -> list[str]:
    """The rows of one case as Markdown."""
    lines = []
    rounds = sorted({r["round"] for r in results})
    good = [r for r in results if "failed" not in r]
    best = {
        k: max((goodness(case, r) for r in good if r["round"] == k and r["loader"] == "stock"), default=None)
        for k in rounds
    }
    for loader, workers in loaders(name, case):
        ours = [r for r in results if (r["loader"], r["workers"]) == (loader, workers)]
        runs = [r for r in ours if "failed" not in r]
        label = f"{loader}, num_workers={workers}" if loader != "native" else "native pipeline"
        if not runs:
            lines.append(f"| {name} | {label} | failed: {ours[0]['failed']} | | | |")
            continue
        ratios = [goodness(case, r) / b for r in runs if (b := best[r["round"]])]
        ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
        middle = statistics.median(r["seconds"] if case.first_batch else r["rate"] for r in runs)
        figure = f"{middle:.2f} s to the first batch" if case.first_batch else f"{middle:,.0f} samples/s"
        held = ""
        if case.first_batch:
            pss = statistics.median(sum(p["pss"] for p in r["processes"]) for r in runs)
            rss = statistics.median(max(p["rss"] for p in r["processes"]) for r in runs)
            held = f"largest RSS {rss:,.0f} MB, PSS together {pss:,.0f} MB, parent {runs[0]['parent_rss']:,.0f} MB"
        bar = case.bar if loader == "feed" else ""
        lines.append(f"| {name} | {label} | {figure} | {ratio} | {bar} | {held} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="at least so long per measurement")
    parser.add_argument("--images", type=int, default=1000, help="photographs in the data set")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    root, count, described = photos.prepare(HOME, args.images, Path(sys.executable))
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in args.cases}
    for name in args.cases:
        compared = loaders(name, CASES[name])
        for k in range(args.rounds):
            turn = k % len(compared)
            for loader, workers in compared[turn:] + compared[:turn]:
                found = measure(name, loader, workers, args, root)
                results[name].append({"round": k, "loader": loader, "workers": workers, **found})
                print(f"{name} round {k} {loader} {workers}: {found}", file=sys.stderr, flush=True)
    lines = [
        "| case | loader | median | over the fastest stock | bar | memory |",
        "|---|---|---|---|---|---|",
    ]
    for name in args.cases:
        lines += table(name, CASES[name], results[name])
    versions = {n: importlib.metadata.version(n) for n in ("torch", "torchvision", "numpy", "pillow")}
    print("\n".join(lines))
    out = args.out or ROOT / "benches" / "runs" / f"{datetime.date.today()}-torch-loader"
    out.mkdir(parents=True, exist_ok=True)
    about = {
        "command": "python benches/torch_loader/run.py " + " ".join(sys.argv[1:]),
        "python": platform.python_version(),
        "versions": versions,
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "photographs": f"{count}: {described}",
    }
    (out / "raw.json").write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")
    facts = "\n".join(f"- {key}: {value}" for key, value in about.items())
    (out / "summary.md").write_text("\n".join(lines) + "\n\n" + facts + "\n")


if __name__ == "__main__":
    main()
