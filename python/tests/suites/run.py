"""Runs the tests of another project with and without wellfed, and says which of them it changes.

    python python/tests/suites/run.py SUITE [--folder FOLDER] [--known FILE] [--tests FILE...] [--counts FILE]
        [-- ARGUMENTS OF PYTEST]

`SUITE` is ``pillow`` or ``torchvision``, with `wellfed.accelerate`; ``tfdata-verbs``, with wellfed's data sets in the
place of tf.data's; or ``tfdata-feed``, with `wellfed.feed` of each data set. The folder is a checkout of that project
at the version that is installed, or what `WELLFED_PILLOW_SUITE`, `WELLFED_TORCHVISION_SUITE` or
`WELLFED_TENSORFLOW_SUITE` say. Each file of tests has processes of its own, and is told as soon as it is done. Exits
with 1 if a test passes without wellfed and not with it. See README.md beside it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent

_VERBS = (
    *(
        "as_numpy_iterator",
        "batch",
        "bucket_by_sequence_length",
        "cache",
        "cardinality",
        "concatenate",
        "enumerate",
    ),
    *(
        "filter",
        "from_tensor_slices",
        "from_tensors",
        "len",
        "list_files",
        "map",
        "padded_batch",
        "prefetch",
        "ragged_batch",
    ),
    *(
        "range",
        "rebatch",
        "repeat",
        "sample_from_datasets",
        "shard",
        "shuffle",
        "skip",
        "take",
        "tf_record_dataset",
    ),
    *("unbatch", "zip"),
)
_OF_TFDATA = [
    *(f"kernel_tests/{verb}_test.py" for verb in _VERBS),
    "experimental/kernel_tests/make_csv_dataset_test.py",
]


class Suite(NamedTuple):
    """Tests of a project: its package, the variable that names the checkout, where in it they are run, and which."""

    package: str
    variable: str
    where: str
    tests: list[str]
    known: str


SUITES = {
    "pillow": Suite("PIL", "WELLFED_PILLOW_SUITE", ".", ["Tests"], "pillow.txt"),
    "torchvision": Suite(
        "torchvision",
        "WELLFED_TORCHVISION_SUITE",
        ".",
        [
            "test/test_transforms.py",
            "test/test_transforms_v2.py",
            "test/test_image.py",
            "test/test_datasets.py",
            "test/test_utils.py",
        ],
        "torchvision.txt",
    ),
    "tfdata-verbs": Suite("", "WELLFED_TENSORFLOW_SUITE", "tensorflow/python/data", _OF_TFDATA, "tfdata.txt"),
    "tfdata-feed": Suite(
        "", "WELLFED_TENSORFLOW_SUITE", "tensorflow/python/data", _OF_TFDATA, "tfdata-feed.txt"
    ),
}
"""By name. TensorFlow's checkout has no package that would be imported: its tests are named by folders alone."""

GOOD = ("passed", "skipped")


class Made(NamedTuple):
    """What became of each test, by its name; why tests were skipped; and what `feed` made of how many data sets."""

    outcomes: dict[str, str]
    reasons: dict[str, str]
    fed: dict[str, int]


class Compared(NamedTuple):
    """What a file of tests has come to.

    Outcomes with wellfed; why tests were skipped for it; what `feed` made of data sets; tests that fail with it: by the
    reason that is known, those that fail without it, too, and all others.
    """

    outcomes: Counter[str]
    skipped: Counter[str]
    fed: Counter[str]
    known: Counter[str]
    either_way: Counter[str]
    differs: Counter[str]

    def plus(self, other: Compared) -> Compared:
        """Of two files."""
        return Compared(*(one + two for one, two in zip(self, other, strict=True)))


def outcomes(suite: str, folder: Path, tests: list[str], more: list[str], with_: bool) -> Made:
    """Runs the tests."""
    with tempfile.TemporaryDirectory() as temporary:
        found = Path(temporary) / "outcomes.json"
        path = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path),
            "WELLFED_SUITE": suite,
            "WELLFED_SUITE_WITH": str(int(with_)),
            "WELLFED_SUITE_OUTCOMES": str(found),
        }
        command = [sys.executable, "-m", "pytest", "-p", "plugin", "-p", "no:cacheprovider", "-q"]
        command += ["--no-header", "--tb=line", *more, *tests]
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        if not found.exists():
            raise SystemExit(f"pytest ended with {done.returncode} and said\n{done.stdout}")
        return Made(**json.loads(found.read_text()))


def known(file: Path) -> dict[str, str]:
    """Tests that are known to differ, with the reason: lines of ``test: reason``; `*` stands for what its cases add."""
    lines = file.read_text().splitlines() if file.exists() else []
    pairs = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {test: reason for test, _, reason in pairs}


def reason_of(test: str, expected: dict[str, str]) -> str | None:
    """Why a test is known to differ."""
    found = (reason for name, reason in expected.items() if test == name)
    alike = (expected[name] for name in expected if name.endswith("*") and test.startswith(name[:-1]))
    return next(found, None) or next(alike, None)


def failing(made: dict[str, str]) -> list[str]:
    """Those that are not good."""
    return sorted(test for test in made if made[test] not in GOOD)


def compare(suite: str, folder: Path, tests: str, more: list[str], expected: dict[str, str]) -> Compared:
    """Runs a file of tests, and prints what differs. Tests that are good with wellfed are not run without it."""
    with_ = outcomes(suite, folder, [tests], more, with_=True)
    found = Compared(*(Counter() for _ in Compared._fields))
    found.fed.update(with_.fed)
    for test, why in with_.reasons.items():
        # Others are skipped by the tests themselves.
        if with_.outcomes[test] == "skipped" and not why.startswith("Skipped: "):
            found.skipped[why] += 1
    failed = failing(with_.outcomes)
    without = outcomes(suite, folder, failed, [], with_=False).outcomes if failed else {}
    found.either_way.update(set(failed) & {*failing(without)})
    failed = [test for test in failed if test not in found.either_way]
    unknown = [test for test in failed if reason_of(test, expected) is None]
    if unknown:
        # Some tests fail now and then: only what does so again is told.
        again = outcomes(suite, folder, unknown, [], with_=True).outcomes
        with_.outcomes.update({test: again.get(test, with_.outcomes[test]) for test in unknown})
        failed = [test for test in failed if with_.outcomes[test] not in GOOD]
    found.outcomes.update(with_.outcomes.values())
    for test in failed:
        reason = reason_of(test, expected)
        if reason is None:
            found.differs[test] += 1
            print(f"DIFFERS: {test}: {with_.outcomes[test]}", flush=True)
        else:
            found.known[reason] += 1
    for name in expected:
        alike = [test for test in with_.outcomes if reason_of(test, {name: "it"})]
        if alike and not {*alike} & {*failed}:
            print(f"no longer: {name}: {expected[name]}", flush=True)
    return found


def tell(found: Compared) -> None:
    """Prints the counts."""
    print("outcomes: " + ", ".join(f"{found.outcomes[kind]} {kind}" for kind in sorted(found.outcomes)))
    for name in ("skipped", "known", "fed"):
        for reason, count in getattr(found, name).most_common():
            print(f"{name}: {count}: {reason}")
    print(f"{found.either_way.total()} fail without wellfed, too", flush=True)
    print(f"{found.differs.total()} differ that are not known to", flush=True)


def write(file: Path, suite: str, tests: str, found: Compared) -> None:
    """Notes the counts of a file of tests, so that a run may be done in several calls."""
    counts = json.loads(file.read_text()) if file.exists() else {}
    counts.setdefault(suite, {})[tests] = {
        name: dict(sorted(made.items())) for name, made in found._asdict().items()
    }
    file.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")


def check_torch() -> None:
    """Python steps need torch: without it tests would fail that say nothing about wellfed."""
    packages = os.environ.get("WELLFED_SUITE_PACKAGES")
    if importlib.util.find_spec("torch") or (packages and (Path(packages) / "torch").is_dir()):
        return
    raise SystemExit(
        f"there is no torch in {packages or 'this environment'}, and Python steps need it\n"
        "hint: name the folder of packages that it lies in, which may be of another environment of the same Python, in "
        "WELLFED_SUITE_PACKAGES, as `make tfdata-suite` does"
    )


def main() -> None:
    """Compare one suite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--known", type=Path, help="tests that may differ; the default lies beside this file")
    parser.add_argument("--tests", nargs="+", help="files of tests, in place of all")
    parser.add_argument(
        "--counts", type=Path, help="a JSON file for the counts of each file of tests, kept of others"
    )
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options, more = parser.parse_args(given[:end]), given[end + 1 :]
    suite = SUITES[options.suite]
    named = os.environ.get(suite.variable)
    given_folder = options.folder or (named and Path(named))
    folder = given_folder and given_folder / suite.where
    if not folder or not (folder / suite.tests[0]).exists():
        project = "tensorflow" if options.suite.startswith("tfdata") else options.suite
        raise SystemExit(
            f"there is no {suite.tests[0]} in {folder or 'any folder'}\n"
            f"hint: check out {project} at the version that is installed (see `pip show {project}`) and "
            f"name the folder in --folder or {suite.variable}"
        )
    if options.suite == "tfdata-verbs":
        check_torch()
    package = suite.package
    if package and (folder / package).is_dir():
        raise SystemExit(
            f"{folder / package} would be imported in place of the package that is installed\n"
            "hint: copy the folder of tests to a place by itself"
        )
    expected = known(options.known or HERE / suite.known)
    folder = folder.resolve()
    total = Compared(*(Counter() for _ in Compared._fields))
    for tests in options.tests or suite.tests:
        print(f"== {tests}", flush=True)
        found = compare(options.suite, folder, tests, more, expected)
        tell(found)
        total = total.plus(found)
        if options.counts is not None:
            write(options.counts, options.suite, tests, found)
    print("== all")
    tell(total)
    sys.exit(1 if total.differs else 0)


if __name__ == "__main__":
    main()
