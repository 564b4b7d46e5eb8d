"""Makes one virtual environment per benchmark peer under `.bench/`, from pinned requirement files.

An environment that is complete is left alone; one whose requirement file changed is brought up to date.
A peer that cannot be installed is reported and left out: the benchmark then lists it as missing.
Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

BENCHES = Path(__file__).resolve().parent
ROOT = BENCHES.parent
HOME = ROOT / ".bench"

ENVIRONMENTS = ("torch", "dali", "tf", "ffcv")
SYSTEM_LIBRARIES = {"ffcv": ("opencv4", "libturbojpeg")}
"""pkg-config names without which an environment cannot be built."""
SYSTEM_PACKAGES = {"ffcv": "libopencv-dev libturbojpeg0-dev pkg-config g++"}
"""What provides them on Debian and Ubuntu."""


def python_of(environment: str) -> Path:
    """The interpreter of a peer's environment, whether or not it exists."""
    return HOME / f"venv-{environment}" / "bin" / "python"


def missing_libraries(environment: str) -> list[str]:
    """System libraries that the environment needs and pkg-config does not find."""
    needed = SYSTEM_LIBRARIES.get(environment, ())
    if needed and shutil.which("pkg-config") is None:
        return list(needed)
    return [n for n in needed if subprocess.run(["pkg-config", "--exists", n], check=False).returncode]


def prepare(environment: str) -> str | None:
    """Makes the environment; returns why it could not, or None."""
    requirements = BENCHES / f"requirements-{environment}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    python = python_of(environment)
    stamp = python.parent.parent / "installed"
    if python.exists() and stamp.exists() and stamp.read_text() == digest:
        return None
    if missing := missing_libraries(environment):
        hint = SYSTEM_PACKAGES[environment]
        return f"{' and '.join(missing)} not found by pkg-config; hint: apt-get install {hint}"
    print(f"setting up {environment} ...", flush=True)
    if not python.exists():
        venv.create(python.parent.parent, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    lines = [n for n in requirements.read_text().splitlines() if n and not n.startswith("#")]
    # A source distribution that is built without isolation needs what it is built with installed before it.
    late = [n for n in lines if n.startswith("ffcv==")]
    steps = [[*pip, *(n for n in lines if n not in late)]]
    if late:
        steps.append([*pip, "--no-build-isolation", *late])
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["pip failed without a word"])[-1]
    stamp.write_text(digest)
    return None


def main() -> int:
    """Set up all environments, or those that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environments", nargs="*", default=ENVIRONMENTS, metavar="ENVIRONMENT")
    args = parser.parse_args()
    HOME.mkdir(exist_ok=True)
    for environment in args.environments:
        reason = prepare(environment)
        note = HOME / f"skipped-{environment}"
        note.unlink(missing_ok=True)
        if reason is not None:
            note.write_text(reason)
            print(f"SKIPPED {environment}: {reason}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
