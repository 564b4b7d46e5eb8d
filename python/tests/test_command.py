"""The command, as people start it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import wellfed as wf
from sounds import noise, write


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


def test_bench_and_inspect_of_sounds(tmp_path: Path) -> None:
    for number in range(6):
        folder = tmp_path / ("no" if number % 2 else "yes")
        folder.mkdir(exist_ok=True)
        write(
            folder / f"{number}.wav",
            noise(number, 1 + number // 5, 800 * (number + 1)),
            16000 if number < 2 else 8000,
        )
    (tmp_path / "no" / "cut.wav").write_bytes((tmp_path / "yes" / "4.wav").read_bytes()[:500])
    done = wellfed("inspect", tmp_path, "--full", "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    kinds = {(kind["sample_rate"], kind["channels"]): kind["sounds"] for kind in report["sounds"]["kinds"]}
    assert kinds == {(16000, 1): 2, (8000, 1): 3, (8000, 2): 1}
    assert (report["sounds"]["duration"]["min"], report["sounds"]["duration"]["max"]) == (0.05, 0.6)
    assert [bad["key"] for bad in report["bad_samples"]] == ["no/cut.wav"]
    assert len(report["suggestions"]) == 3
    text = wellfed("inspect", tmp_path).stdout
    assert "pcm_s16le" in text
    assert "seconds" in text
    done = wellfed("bench", tmp_path, "--epochs", 1, "--json")
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert (measured["pipeline"], measured["images_per_second"]) == ("speech", None)
    assert measured["stats"]["samples"] == 6
    done = wellfed("bench", tmp_path, "--pipeline", "imagenet-eval")
    assert done.returncode == 1
    assert "no field of images" in done.stderr


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
