"""The doctor on a machine with a device: what `wellfed doctor env` says, and its verdicts on planted scripts.

    python benches/gpu/doctor.py --out OUT --photos FOLDER

Scripts of `planted/` run under `wellfed doctor run`, then those with a fix run as they are and fixed, without the
doctor, so that the gain that was promised can be compared. All that the doctor printed is in `doctor.txt`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import Results, arguments, photographs

PLANTED = Path(__file__).resolve().parent / "planted"
WORKERS, ENGINE = "num_workers=", "wellfed.feed("
ACCEPTED: dict[str, dict[str, tuple[str, ...]]] = {
    # The training process decodes. That it does so alone, and that decoding is what it does, are both right, if the fix
    # takes the work off it: by workers, or by the engine.
    "starved_decode": {"serial-loading": (WORKERS, ENGINE), "decode": (ENGINE,)},
    "pageable_copies": {"h2d-copy": ("pin_memory=True",)},
    "item_each_step": {"sync-logging": ()},
    "launch_bound": {"launch-bound": ()},
    "compute_bound": {"compute-bound": (), "healthy": ()},
}
"""Scripts, the verdicts that are right, and what their fix has to have any of, if anything."""
HEALTHY = ("compute_bound",)


def run(
    words: list[str], told: Path, timeout: float
) -> tuple[subprocess.CompletedProcess[str], float | None]:
    """Runs a script; gives what it printed and the samples a second that it says."""
    told.unlink(missing_ok=True)
    env = {**os.environ, "PLANTED_RESULT": str(told)}
    done = subprocess.run(
        words, env=env, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL
    )
    speed = json.loads(told.read_text())["samples_per_s"] if told.exists() else None
    return done, speed


def said(verdict: dict[str, Any] | None) -> dict[str, Any] | None:
    """The parts of a verdict that are compared."""
    if not verdict:
        return None
    fix = verdict.get("fix") or {}
    return {
        "id": verdict["id"],
        "gain": verdict.get("gain"),
        "change": fix.get("change"),
        "confidence": verdict.get("confidence"),
    }


def right(script: str, verdict: dict[str, Any]) -> bool:
    """Whether it is one of those that are accepted, with a fix that is."""
    wanted = ACCEPTED[script].get(verdict["id"])
    change = str(verdict["change"])
    return wanted is not None and (not wanted or any(words in change for words in wanted))


def main() -> None:
    args = arguments(__doc__, seconds=8, limit=300, scripts={"nargs": "*", "default": list(ACCEPTED)})
    text = args.out / "doctor.txt"
    with Results("doctor", args) as results, tempfile.TemporaryDirectory() as folder:
        text.write_text("")
        told, report = Path(folder) / "told.json", Path(folder) / "report.json"

        def keep(title: str, words: str) -> None:
            with text.open("a") as file:
                file.write(f"##### {title}\n{words}\n\n")

        def env() -> list[str]:
            command = [sys.executable, "-m", "wellfed", "doctor", "env"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            keep("env", done.stdout + done.stderr)
            return (done.stdout + done.stderr).splitlines()

        for line in results.attempt("env", env, quiet=True) or ():
            print("   ", line, flush=True)
        more = ["--device", args.device, "--seconds", str(args.seconds), "--photos", str(photographs(args))]
        more += ["--small"] if args.small else []

        def diagnosed(script: str) -> dict[str, Any]:
            report.unlink(missing_ok=True)
            words = [sys.executable, "-m", "wellfed", "doctor", "run", "--no-live", "--json", str(report)]
            done, speed = run([*words, str(PLANTED / f"{script}.py"), *more], told, 60 + args.seconds)
            keep(script, done.stdout[-3000:] + done.stderr[-12_000:])
            if not report.exists():
                raise RuntimeError(f"no report; exit status {done.returncode}: {done.stderr[-500:]}")
            full = json.loads(report.read_text())
            verdict = said(full["verdict"])
            assert verdict is not None
            return {
                "verdict": verdict["id"],
                "right": right(script, verdict),
                "samples_per_s": speed,
                "told": [verdict, said(full["runner_up"])],
                "stages": [full["steps"], full["stages"], full["notes"]],
            }

        def fixed(script: str, before: dict[str, Any]) -> dict[str, Any]:
            """The script as planted and without. The doctor takes seconds of it, and so watches neither."""
            speeds = []
            for more_words in ([], ["--fixed"]):
                words = [sys.executable, str(PLANTED / f"{script}.py"), *more, *more_words]
                done, speed = run(words, told, 60 + args.seconds)
                if not speed:
                    raise RuntimeError(f"exit status {done.returncode}: {done.stderr[-500:]}")
                speeds.append(speed)
            gain = before["told"][0]["gain"] or {}
            return {
                "samples_per_s": speeds[1],
                "planted": speeds[0],
                "under_the_doctor": before["samples_per_s"],
                "gain": speeds[1] / speeds[0],
                "promised": gain.get("factor"),
            }

        seen = {name: results.attempt(name, lambda name=name: diagnosed(name)) for name in args.scripts}
        for name, before in seen.items():
            if before and name not in HEALTHY:
                results.attempt(f"{name}, fixed", lambda name=name, before=before: fixed(name, before))


if __name__ == "__main__":
    main()
