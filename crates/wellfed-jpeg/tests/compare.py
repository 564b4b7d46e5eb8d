"""Compares decoders with Pillow over folders of JPEG files: verdict, size, pixels, time, memory.

    cargo build --release -p wellfed-jpeg --example compare
    python crates/wellfed-jpeg/tests/compare.py --decoder target/release/examples/compare FOLDER ...

The decoder is a program that reads paths, a line each, and answers each with `VERDICT<tab>seconds<tab>peak bytes`;
a verdict is `error` with a reason, or `WIDTHxHEIGHTxCHANNELS CRC`. Pillow's verdicts are kept in `--cache`.
Exits with 1 if a decoder crashed, pixels differ, or a file took more than the allowed time or memory.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

from golden import verdict

SECONDS = 2.0
BYTES = 1 << 30


def jpegs(folders: list[Path]) -> list[Path]:
    """All files in folders that begin like a JPEG, whatever their names."""
    found = []
    for folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.is_file() and "\n" not in str(path):
                with path.open("rb") as file:
                    if file.read(2) == b"\xff\xd8":
                        found.append(path)
    return found


def pillow(paths: list[Path], cache: Path | None) -> dict[str, str]:
    """Pillow's verdict of each file."""
    known: dict[str, str] = json.loads(cache.read_text()) if cache and cache.exists() else {}
    warnings.simplefilter("ignore")
    for path in paths:
        key = f"{path}:{path.stat().st_mtime_ns}"
        if key not in known:
            start = time.perf_counter()
            known[key] = verdict(path)
            if (took := time.perf_counter() - start) > SECONDS:
                print(f"Pillow took {took:.1f} s: {path}")
    if cache:
        cache.write_text(json.dumps(known))
    return {str(p): known[f"{p}:{p.stat().st_mtime_ns}"] for p in paths}


def decode(decoder: str, paths: list[Path]) -> dict[str, tuple[str, float, int]]:
    """The decoder's verdict, seconds and peak memory of each file; a new process follows one that died."""
    answers: dict[str, tuple[str, float, int]] = {}
    left = list(paths)
    while left:
        asked = "".join(f"{p}\n" for p in left)
        done = subprocess.run(decoder.split(), input=asked, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        for path, line in zip(left, lines):
            what, seconds, peak = line.split("\t")
            answers[str(path)] = (what, float(seconds), int(peak))
        left = left[len(lines) :]
        if left:
            answers[str(left[0])] = (f"crash: {done.stderr.strip()[-300:]}", 0.0, 0)
            left = left[1:]
    return answers


def kind(ours: str, theirs: str) -> str:
    """How two verdicts relate."""
    if ours.startswith("crash"):
        return "CRASH"
    mine, other = ours.startswith("error"), theirs.startswith("error")
    if mine or other:
        return "both refuse" if mine and other else "only we refuse" if mine else "only Pillow refuses"
    return "equal" if ours == theirs else "DIFFERENT"


def main() -> int:
    """Print what differs and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--decoder", required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--show", type=int, default=20, help="files to name of each kind")
    args = parser.parse_args()
    paths = jpegs(args.folders)
    theirs, ours = pillow(paths, args.cache), decode(args.decoder, paths)
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for path in map(str, paths):
        what, seconds, peak = ours[path]
        relation = kind(what, theirs[path])
        groups[relation].append(f"{path}\n    ours {what} | Pillow {theirs[path]}")
        if seconds > SECONDS or peak > BYTES:
            groups["TOO MUCH"].append(f"{path}\n    {seconds:.2f} s, {peak >> 20} MiB: {what}")
    for relation, entries in sorted(groups.items()):
        print(f"{relation}: {len(entries)}")
        if relation not in ("equal", "both refuse"):
            print(*(f"  {e}" for e in entries[: args.show]), sep="\n")
    slowest = max(ours.items(), key=lambda item: item[1][1], default=None)
    if slowest:
        print(f"{len(paths)} files; slowest {slowest[1][1]:.2f} s, most memory "
              f"{max(a[2] for a in ours.values()) >> 20} MiB")  # fmt: skip
    return int(any(name.isupper() for name in groups))


if __name__ == "__main__":
    sys.exit(main())
