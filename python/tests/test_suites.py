"""`suites/run.py`: what it says of a small suite of tests, whose outcomes are known."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL")

SCRIPT = Path(__file__).resolve().parent / "suites" / "run.py"

TESTS = """
import os
import pytest
from PIL import Image, JpegImagePlugin

@pytest.fixture
def image(tmp_path):
    Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    return Image.open(tmp_path / "a.jpg")

def test_good_either_way(image):
    assert image.size == (9, 9)

def test_bad_either_way(image):
    assert image.size == (3, 3)

def test_that_looks_at_the_class(image):
    assert type(image) is JpegImagePlugin.JpegImageFile

def test_that_is_known_to_look_at_the_class(image):
    assert type(image) is JpegImagePlugin.JpegImageFile

@pytest.mark.skipif(True, reason="never")
def test_never():
    pass

def test_now_and_then(image):
    # Fails the first time that it is accelerated.
    if type(image) is not JpegImagePlugin.JpegImageFile and not os.path.exists("tried"):
        open("tried", "w").close()
        assert False
"""


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "pillow", "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_what_accelerate_changes_is_named(tmp_path: Path) -> None:
    (tmp_path / "Tests").mkdir()
    (tmp_path / "Tests" / "test_small.py").write_text(TESTS)
    known = tmp_path / "known.txt"
    known.write_text(
        "# What differs\n"
        "Tests/test_small.py::test_that_is_known_to_look_at_the_class: of a class: a subclass\n"
        "Tests/test_small.py::test_good_either_way: it was bad once\n"
    )
    done = _run(tmp_path, "--known", str(known))
    assert done.returncode == 1, done
    lines = done.stdout.splitlines()
    for line in (
        "DIFFERS: Tests/test_small.py::test_that_looks_at_the_class: failed",
        "no longer: Tests/test_small.py::test_good_either_way: it was bad once",
        "known: 1: of a class: a subclass",
        "1 fail without wellfed, too",
        "1 differ that are not known to",
    ):
        assert line in lines, (line, lines)
    chosen = _run(tmp_path, "--known", str(known), "--", "-k", "either_way")
    assert chosen.returncode == 0, chosen


def test_a_folder_of_packages_without_torch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_torch = runpy.run_path(str(SCRIPT))["check_torch"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "torch").mkdir()
    monkeypatch.setenv("WELLFED_SUITE_PACKAGES", str(tmp_path))
    check_torch()
    monkeypatch.setenv("WELLFED_SUITE_PACKAGES", str(tmp_path / "torch"))
    with pytest.raises(
        SystemExit, match=r"there is no torch in .*torch, and Python steps need it\nhint: name"
    ):
        check_torch()


def test_a_folder_without_tests_is_refused_with_a_hint(tmp_path: Path) -> None:
    done = _run(tmp_path)
    assert done.returncode == 1
    assert "there is no Tests in" in done.stderr
    assert "hint: check out pillow" in done.stderr
    (tmp_path / "Tests").mkdir()
    (tmp_path / "PIL").mkdir()
    assert "would be imported in place" in _run(tmp_path).stderr
