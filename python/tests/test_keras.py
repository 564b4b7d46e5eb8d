"""`wf.keras` with a real Keras on each backend: the cases of `keras_cases.py`, one process for each backend."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import wellfed

SCRIPT = Path(__file__).with_name("keras_cases.py")
OTHERS = [Path(__file__).with_name(f"keras_{name}_cases.py") for name in ("flow", "layer")]
CASES = [
    case
    for file in (SCRIPT, *OTHERS)
    for case in re.findall(r"^def case_(\w+)", file.read_text(), re.MULTILINE)
]
TENSORFLOW = os.environ.get("WELLFED_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else ""
)


@functools.cache
def outcome(backend: str) -> dict[str, Any]:
    """What the cases say, which all run in one process: frameworks take seconds to start."""
    package = str(Path(wellfed.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": package, "KERAS_BACKEND": backend}
    python = TENSORFLOW if backend == "tensorflow" else sys.executable
    done = subprocess.run([python, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=600)
    _, found, answer = done.stdout.partition("FAILURES")
    assert found, done.stdout + done.stderr
    return dict(json.loads(answer))


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
@pytest.mark.parametrize("case", CASES)
def test_against_keras(case: str, backend: str) -> None:
    if backend == "tensorflow" and not TENSORFLOW:
        pytest.skip(
            "NOT TESTED HERE: no TensorFlow; WELLFED_TENSORFLOW_PYTHON may name an interpreter that has it"
        )
    if backend != "tensorflow" and not (
        importlib.util.find_spec("keras") and importlib.util.find_spec(backend)
    ):
        pytest.skip(f"NOT TESTED HERE: no Keras or no {backend}")
    found = outcome(backend)
    if case in found["skipped"]:
        pytest.skip(found["skipped"][case])
    assert case in found["cases"]
    assert case not in found["failures"], found["failures"][case]


def test_frameworks_are_not_imported_before_they_are_used() -> None:
    code = (
        "import sys, wellfed as wf\n"
        "wf.keras\n"
        "assert not {'keras', 'tensorflow', 'torch', 'jax'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_that_decode_first_make_the_classes_of_images_once() -> None:
    # Flows do so. With two sets of classes, an image of one is none of the other's.
    code = (
        "import sys, threading, time\n"
        "from wellfed._accelerate import images\n"
        "made = []\n"
        "class Slow(images._Pillow):\n"
        "    def __init__(self):\n"
        "        time.sleep(0.2)\n"
        "        super().__init__()\n"
        "images._Pillow = Slow\n"
        "threads = [threading.Thread(target=lambda: made.append(images.pillow())) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert len(made) == 4 and len({id(one) for one in made}) == 1, made"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_keras_the_error_says_so() -> None:
    code = (
        "import sys, wellfed as wf\n"
        "sys.modules['keras'] = None\n"
        "try:\n"
        "    wf.keras.image_dataset_from_directory('.')\n"
        "except ModuleNotFoundError as error:\n"
        "    assert 'install keras' in str(error), error\n"
        "else:\n"
        "    raise AssertionError"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(wellfed.keras, "nothing")  # noqa: B009 (a name that is looked up)
