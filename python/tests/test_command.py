"""The command, as people start it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import wellfed as wf


def wellfed(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wellfed", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_version_and_help() -> None:
    assert wf.__version__ in wellfed("--version").stdout
    for words in ([], ["--help"], ["bench", "--help"], ["inspect", "--help"], ["demo", "--help"]):
        done = wellfed(*words)
        assert "Usage" in (done.stdout + done.stderr).replace("usage", "Usage")
    assert wellfed("train").returncode == 2


def test_bench_and_inspect(photos: Path) -> None:
    done = wellfed("bench", photos, "--pipeline", "imagenet-eval", "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    done = wellfed("inspect", photos)
    assert done.returncode == 0, done.stderr
    assert "class1" in done.stdout or "3 classes" in done.stdout


def test_errors_are_a_status_not_a_traceback(tmp_path: Path) -> None:
    done = wellfed("inspect", tmp_path / "nothing")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "nothing" in done.stderr


def test_names_are_imported_when_they_are_asked_for() -> None:
    # The doctor's command stays beside the script: what it does not import, it does not take from the script's memory.
    code = """if True:
        import sys
        import wellfed.__main__
        assert "numpy" not in sys.modules
        assert {"feed", "doctor", *wellfed.__all__} <= set(dir(wellfed))
        from wellfed import *
        import pydoc
        assert "feed(loader" in pydoc.render_doc(wellfed, renderer=pydoc.plaintext)
        assert "torch" not in sys.modules
        assert Dataset is wellfed.dataset.Dataset and transforms.Resize and "numpy" in sys.modules
        try:
            wellfed.nothing
        except AttributeError as error:
            assert str(error) == "module 'wellfed' has no attribute 'nothing'", error
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True)
