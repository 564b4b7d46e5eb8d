"""The same work on every loader, interleaved in one go: `python3 benches/run.py`.

For each work, rounds go over the loaders in turn (each round starts with another one), so that a slow
minute of the machine hits all of them. A measurement is a process of its own (`measure.py`): one epoch of
warm-up, then whole epochs for some seconds, on as many cores as there are workers. Figures are medians over
the rounds; ratios are medians of the ratios within each round. Everything is kept in `benches/runs/`.
Standard library only; `setup_peers.py` makes the peers' environments.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import photos
from measure import MARK
from setup_peers import HOME, ROOT, python_of
from spec import PEERS, WORKS, Work

SMALL_IMAGES = 50_000
"""Images of the in-memory work: CIFAR's training set."""

PIXEL_TOLERANCE = 0.05
"""How far, in units of the normalized pixels, a loader's mean may lie from the others' before it is said.

Other resamplers, random crops and FFCV's second JPEG encoding move it by up to 0.02; a forgotten or wrong
normalization or a border that should not be there moves it by more.
"""


def interpreter(peer: str, wellfed: Path) -> Path:
    """The Python that a peer runs in."""
    environment = PEERS[peer][0]
    return wellfed if environment == "wellfed" else python_of(environment)


def clean(text: str) -> str:
    """A message without this machine's folders in it."""
    return text.replace(str(ROOT), ".").replace(str(Path.home()), "~").replace(sys.prefix, "PYTHON")


def measure(peer: str, work: Work, args: argparse.Namespace, root: Path, images: int) -> dict[str, Any]:
    """One measurement; every way in which it can go wrong becomes a `failed` or `skipped` entry."""
    python = interpreter(peer, args.wellfed_python)
    if not python.exists():
        note = HOME / f"skipped-{PEERS[peer][0]}"
        reason = note.read_text() if note.exists() else "its environment is not set up"
        return {"peer": peer, "work": work.name, "skipped": reason}
    command = [str(python), str(ROOT / "benches" / "measure.py"), "--peer", peer, "--work", work.name]
    command += ["--photos", str(root), "--images", str(images)]
    command += ["--workers", str(args.workers), "--seconds", str(args.seconds)]
    load = os.getloadavg()[0]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        try:
            process.wait(args.timeout)
            ended = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"no result within {args.timeout:g} s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # worker processes that outlived it
        process.wait()
        out.seek(0)
        err.seek(0)
        lines = [line for line in out.read().splitlines() if line.startswith(MARK)]
        last_words = err.read().strip().splitlines()[-1:]
    if not lines:
        return {"peer": peer, "work": work.name, "failed": clean(": ".join([ended, *last_words]))}
    result: dict[str, Any] = json.loads(lines[-1].removeprefix(MARK))
    for key in ("failed", "skipped"):
        if key in result:
            result[key] = clean(result[key])
    return {**result, "load_before": round(load, 2)}


def rate(result: dict[str, Any]) -> float:
    """Images per second of one measurement."""
    return float(result["images"] / result["seconds"])


def summarize(results: list[dict[str, Any]], peers: list[str]) -> list[dict[str, Any]]:
    """One row per peer of one work, fastest first, those without a figure last with their reason."""
    good = {p: {r["round"]: r for r in results if r["peer"] == p and "seconds" in r} for p in peers}
    reference = statistics.median([r["pixel_mean"] for r in results if "seconds" in r] or [0.0])
    rows: list[dict[str, Any]] = []
    for peer in peers:
        runs = good[peer]
        row: dict[str, Any] = {"peer": peer, "title": PEERS[peer][2]}
        wrong = [r for r in results if r["peer"] == peer and "seconds" not in r]
        if wrong:
            kind = "skipped" if "skipped" in wrong[0] else "failed"
            row["problem"] = f"{kind} ({len(wrong)} of {len(wrong) + len(runs)} rounds): {wrong[0][kind]}"
        if runs:
            rates = [rate(r) for r in runs.values()]
            cpu = [1000 * r["cpu_seconds"] / r["images"] for r in runs.values()]
            row.update(rate=statistics.median(rates), low=min(rates), high=max(rates))
            row.update(cpu_per_1000=statistics.median(cpu))
            oddest = max((abs(r["pixel_mean"] - reference) for r in runs.values()), default=0.0)
            if oddest > PIXEL_TOLERANCE:
                row["problem"] = f"other pixels: mean off by {oddest:.3f} from the median of all loaders"
            for name in ("wellfed", "torch-pillow"):
                shared = [rate(good[name][k]) / rate(runs[k]) for k in runs if k in good.get(name, {})]
                row[f"{name}_over_this"] = statistics.median(shared) if shared else None
        rows.append(row)
    return sorted(rows, key=lambda row: -row.get("rate", 0.0))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table that also reads well in a terminal."""
    head = ["loader", "img/s", "lowest-highest", "CPU s / 1,000 img", "wellfed is", "vs torch on Pillow"]
    cells = [head]
    for row in rows:
        if "rate" not in row:
            cells.append([row["title"], "-", "-", "-", "-", "-"])
            continue
        ours, pillow = row["wellfed_over_this"], row["torch-pillow_over_this"]
        cells.append(
            [
                row["title"],
                f"{row['rate']:,.0f}",
                f"{row['low']:,.0f}-{row['high']:,.0f}",
                f"{row['cpu_per_1000']:.3g}",
                "-" if ours is None or row["peer"] == "wellfed" else f"{ours:.2f}x as fast",
                "-" if pillow is None else f"{1 / pillow:.2f}x",
            ]
        )
    widths = [max(len(line[k]) for line in cells) for k in range(len(head))]

    def line(cell: list[str]) -> str:
        padded = [cell[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cell[1:], widths[1:], strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = f"|{'-' * (widths[0] + 2)}|" + "".join(f"{'-' * (w + 1)}:|" for w in widths[1:])
    problems = [f"- {row['title']}: {row['problem']}" for row in rows if "problem" in row]
    return "\n".join(
        [line(cells[0]), rule, *(line(c) for c in cells[1:]), *([""] if problems else []), *problems]
    )


def machine() -> list[str]:
    """What the figures depend on, line by line."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())):
        model = found[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        f"cpu: {model}",
        f"cores: {cores}",
        f"kernel: {platform.system()} {platform.release()} {platform.machine()}",
        f"load average before: {os.getloadavg()[0]:.2f}",
    ]


def names(text: str, known: dict[str, Any]) -> list[str]:
    """A comma-separated argument, checked against what there is."""
    picked = [n.strip() for n in text.split(",") if n.strip()]
    if unknown := [n for n in picked if n not in known]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return picked


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--works", default=",".join(WORKS), help=f"of {', '.join(WORKS)}")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each loader and work")
    parser.add_argument("--images", type=int, default=1000, help="photographs in an epoch")
    parser.add_argument("--seconds", type=float, default=3.0, help="time each measurement at least this long")
    parser.add_argument("--workers", type=int, default=2, help="threads or processes, and cores, for each")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds one measurement may take")
    parser.add_argument("--what", default="peers", help="names the folder in benches/runs")
    parser.add_argument("--json", action="store_true", help="print the raw results instead of tables")
    parser.add_argument("--no-save", action="store_true", help="keep nothing in benches/runs")
    parser.add_argument(
        "--wellfed-python", type=Path, default=ROOT / ".venv" / "bin" / "python", help="has wellfed and torch"
    )
    args = parser.parse_args()
    works, peers = names(args.works, WORKS), names(args.peers, PEERS)
    notes = machine()
    painter = next((p for p in (python_of("torch"), args.wellfed_python) if p.exists()), Path(sys.executable))
    root, count, described = photos.prepare(HOME, args.images, painter)
    size = photos.warm(root)
    notes.append(f"photographs: {count} ({described}), {size / count / 1000:.0f} kB each, page cache warm")

    results: list[dict[str, Any]] = []
    for name in works:
        for turn in range(args.rounds):
            for k in range(len(peers)):
                peer = peers[(k + turn) % len(peers)]
                images = SMALL_IMAGES if name == "cifar" else count
                result = {**measure(peer, WORKS[name], args, root, images), "round": turn}
                results.append(result)
                said = (
                    f"{rate(result):,.0f} img/s"
                    if "seconds" in result
                    else str(result.get("failed") or result.get("skipped"))
                )
                print(f"{name} {turn + 1}/{args.rounds} {peer}: {said}", file=sys.stderr, flush=True)

    versions: dict[str, str] = {}
    for result in results:
        for package, version in result.pop("versions", {}).items():
            versions[f"{PEERS[result['peer']][0]}: {package}"] = version
    tables = {n: summarize([r for r in results if r["work"] == n], peers) for n in works}
    text = "\n\n".join(f"## {WORKS[n].title}, batch {WORKS[n].batch}\n\n{table(tables[n])}" for n in works)
    summary = f"# {args.what}: {args.workers} workers each, {args.rounds} rounds\n\n"
    summary += "\n".join(f"- {n}" for n in notes) + f"\n\n{text}\n"
    raw = json.dumps({"machine": notes, "summary": tables, "results": results}, indent=1)
    print(raw if args.json else f"\n{summary}")

    if not args.no_save:
        folder = ROOT / "benches" / "runs" / f"{datetime.date.today().isoformat()}-{args.what}"
        folder.mkdir(parents=True, exist_ok=True)
        shown = shlex.join(["python3", "benches/run.py", *sys.argv[1:]])
        (folder / "command.txt").write_text(clean(shown) + "\n")
        lines = [*notes[:3], *(f"{k} {v}" for k, v in sorted(versions.items()))]
        (folder / "versions.txt").write_text("\n".join(lines) + "\n")
        (folder / "raw.json").write_text(raw + "\n")
        (folder / "summary.md").write_text(summary)
        print(f"kept in {folder.relative_to(ROOT)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
