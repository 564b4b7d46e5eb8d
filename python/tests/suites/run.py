"""Runs the tests of another project with and without `wellfed.accelerate`, and says which of them it changes.

    python python/tests/suites/run.py SUITE [--folder FOLDER] [--known FILE] [--tests FILE...] [-- ARGUMENTS OF PYTEST]

`SUITE` is ``pillow`` or ``torchvision``; the folder is a checkout of that project at the version that is installed, or
what `WELLFED_PILLOW_SUITE` or `WELLFED_TORCHVISION_SUITE` say. Exits with 1 if a test passes without acceleration and
not with it. See README.md beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

SUITES = {
    "pillow": ("PIL", "WELLFED_PILLOW_SUITE", ["Tests"]),
    "torchvision": (
        "torchvision",
        "WELLFED_TORCHVISION_SUITE",
        [
            "test/test_transforms.py",
            "test/test_transforms_v2.py",
            "test/test_image.py",
            "test/test_datasets.py",
            "test/test_utils.py",
        ],
    ),
}
"""By name: the package, the variable that names the checkout, and what of it is run."""

GOOD = ("passed", "skipped")


def outcomes(folder: Path, tests: list[str], more: list[str], accelerate: bool) -> dict[str, str]:
    """What became of each test, by its name."""
    with tempfile.TemporaryDirectory() as temporary:
        found = Path(temporary) / "outcomes.json"
        path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path),
            "WELLFED_SUITE_ACCELERATE": str(int(accelerate)),
            "WELLFED_SUITE_OUTCOMES": str(found),
        }
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "-q"]
        command += ["--no-header", "--tb=line", *more, *tests]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        if not found.exists():
            raise SystemExit(f"pytest ended with {done.returncode} and said\n{done.stdout}")
        made: dict[str, str] = json.loads(found.read_text())
        return made


def worse(without: dict[str, str], with_: dict[str, str]) -> list[str]:
    """Tests that are good without acceleration and not with it. One that is gone is not good."""
    return sorted(test for test in without if without[test] in GOOD and with_.get(test) not in GOOD)


def known(file: Path) -> dict[str, str]:
    """Tests that are known to differ, with the reason: lines of ``test: reason``."""
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {test: reason for test, _, reason in pairs}


def compare(folder: Path, tests: list[str], more: list[str], expected: dict[str, str]) -> int:
    """Runs them, prints what differs, and says how many differ that are not known to."""
    without = outcomes(folder, tests, more, accelerate=False)
    with_ = outcomes(folder, tests, more, accelerate=True)
    candidates = worse(without, with_)
    if candidates:
        # Some tests fail now and then: only what does so again is told.
        again = [test for test in candidates if test in with_]
        if again:
            without |= outcomes(folder, again, [], accelerate=False)
            with_ |= outcomes(folder, again, [], accelerate=True)
        candidates = worse(without, with_)
    for name, made in (("without", without), ("with", with_)):
        counts = {kind: list(made.values()).count(kind) for kind in sorted({*made.values()})}
        print(f"{name:8} " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    for test in candidates:
        reason = expected.get(test)
        print(f"{'known' if reason else 'DIFFERS'}: {test}: {reason or with_.get(test, 'not there')}")
    for test in sorted(expected.keys() - {*candidates}):
        if test in with_:
            print(f"no longer: {test}: {expected[test]}")
    return sum(test not in expected for test in candidates)


def main() -> None:
    """Compare one suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--known", type=Path, help="tests that may differ; the default lies beside this file")
    parser.add_argument("--tests", nargs="+", help="files of tests, in place of all")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options, more = parser.parse_args(given[:end]), given[end + 1 :]
    package, variable, tests = SUITES[options.suite]
    folder = options.folder or (os.environ.get(variable) and Path(os.environ[variable]))
    if not folder or not (folder / tests[0]).exists():
        raise SystemExit(
            f"there is no {tests[0]} in {folder or 'any folder'}\n"
            f"hint: check out {options.suite} at the version that is installed (see `pip show {options.suite}`) and "
            f"name the folder in --folder or {variable}"
        )
    if (folder / package).is_dir():
        raise SystemExit(
            f"{folder / package} would be imported in place of the package that is installed\n"
            "hint: copy the folder of tests to a place by itself"
        )
    expected = known(options.known or HERE / f"{options.suite}.txt")
    sys.exit(1 if compare(folder.resolve(), options.tests or tests, more, expected) else 0)


if __name__ == "__main__":
    main()
