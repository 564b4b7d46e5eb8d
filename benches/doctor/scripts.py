"""What the doctor promises of `wf.feed` for scripts as people write them, and what it gains.

    python benches/doctor/scripts.py                        # the usual cases
    python benches/doctor/scripts.py --case randaugment mixup

Each case of `benches/scripts/cases` becomes a training script: its loader and a loop with a small step. It runs under
the doctor, then as it is and with `DataLoader` from `wellfed.torch`, in turns; rates are those after the first third of
the time. The line says what was promised (with its interval), what was gained, and the doctor's first cause.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "benches" / "scripts"
sys.path[:0] = [str(SCRIPTS)]
from run import changed  # noqa: E402

USUAL = (
    "pil_dataset",
    "imagefolder_train",
    "randaugment",
    "mixup",
    "albumentations_dataset",
    "timm_dataset",
    "hugging_face",
    "voc_segmentation",
    "detection",
    "own_segmentation",
    "torchvision_io",
    "python_step",
    "texts",
    "hdf5",
)

LOOP = """

if __name__ == "__main__":
    import sys
    import time

    batches, seconds = loader(Path(sys.argv[1]), {count}, {workers}), float(sys.argv[2])
    begin = time.monotonic()
    end, warm = begin + seconds, begin + seconds / 3
    seen, since = 0, 0.0
    while time.monotonic() < end:
        for batch in batches:
            now = time.monotonic()
            if since:
                seen += 1
            elif now > warm:
                since = now
            if now > end:
                break
    print("rate", seen / (time.monotonic() - since))
"""


def write(folder: Path, case: str, text: str, options: argparse.Namespace, name: str) -> Path:
    """A training script of a case."""
    path = folder / f"{case}_{name}.py"
    path.write_text(text + LOOP.format(count=options.count, workers=options.workers))
    return path


def environment() -> dict[str, str]:
    """The cases import what is beside them."""
    paths = [str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def call(command: list[str]) -> str:
    """What a command prints."""
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"{command[-3:]} ended with {ran.returncode}: {ran.stderr.strip()[-500:]}")
    return ran.stdout


def rate(script: Path, options: argparse.Namespace) -> float:
    """Batches a second."""
    printed = call([sys.executable, str(script), str(options.folder), str(options.seconds)])
    return float(next(line for line in printed.splitlines() if line.startswith("rate")).split()[1])


def promised(report: dict[str, Any]) -> dict[str, Any] | None:
    """The gain of the fix that is wellfed's, of the verdict or of what else was found."""
    for verdict in [report["verdict"], report["runner_up"], *report["others"]]:
        fix = verdict and verdict["fix"]
        if fix and verdict["gain"] and (fix["apply"] or {}).get("feed"):
            return dict(verdict["gain"])
    return None


def run(case: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One case."""
    text = (SCRIPTS / "cases" / f"{case}.py").read_text()
    plain = write(folder, case, text, options, "plain")
    fed = write(folder, case, changed(text), options, "fed")
    rate(plain, argparse.Namespace(**{**vars(options), "seconds": 1.0}))  # makes its data
    report = folder / f"{case}.json"
    words = [str(plain), str(options.folder), str(options.seconds)]
    call([sys.executable, "-m", "wellfed", "doctor", "run", "--no-live", "--json", str(report), *words])
    said = json.loads(report.read_text())
    gains = []
    for number in range(options.rounds):
        rates = {}
        for script in (plain, fed) if number % 2 == 0 else (fed, plain):
            rates[script] = rate(script, options)
        gains.append(rates[fed] / rates[plain])
    return {
        "case": case,
        "verdict": said["verdict"]["id"],
        "gain": said["verdict"]["gain"],
        "promised": promised(said),
        "fix": said["verdict"]["fix"],
        "gains": gains,
    }


def main() -> int:
    """Run the cases."""
    known = sorted(path.stem for path in (SCRIPTS / "cases").glob("*.py"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", choices=known, default=USUAL, metavar="NAME")
    parser.add_argument("--folder", type=Path, default=Path(".bench/scripts"), help="where data is kept")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0, help="that a run takes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, help="raw numbers as JSON lines")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    work = options.folder / "doctor"
    work.mkdir(parents=True, exist_ok=True)
    print(f"{'case':24} {'promised':>22} {'gained':>7}  first cause", flush=True)
    for case in options.case:
        try:
            result = run(case, work, options)
        except RuntimeError as error:
            print(f"{case:24} FAILED: {error}", flush=True)
            continue
        gain = result["promised"]
        words = f"{gain['factor']:.2f} ({gain['low']:.2f} to {gain['high']:.2f})" if gain else "-"
        print(
            f"{case:24} {words:>22} {statistics.median(result['gains']):>7.2f}  {result['verdict']}",
            flush=True,
        )
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
