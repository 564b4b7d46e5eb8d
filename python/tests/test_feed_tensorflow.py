"""`wf.feed` of ``tf.data`` pipelines, with a real TensorFlow (see `test_doctor_tensorflow.py`)."""

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

PYTHON = os.environ.get("WELLFED_TENSORFLOW_PYTHON") or (
    sys.executable if importlib.util.find_spec("tensorflow") else ""
)
SCRIPT = Path(__file__).with_name("feed_tensorflow_cases.py")
TEXTS = [
    SCRIPT.with_name(f"feed_tensorflow_{part}.py").read_text()
    for part in ("cases", "colours", "images", "places")
]
CASES = re.findall(r"^def case_(\w+)", "".join(TEXTS), re.MULTILINE)


@functools.cache
def outcome() -> dict[str, Any]:
    """What the cases say, which all run in one process: TensorFlow takes seconds to start."""
    package = str(Path(wellfed.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": package}
    done = subprocess.run([PYTHON, str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=600)
    _, found, answer = done.stdout.partition("FAILURES")
    assert found, done.stdout + done.stderr
    return dict(json.loads(answer))


@pytest.mark.skipif(
    not PYTHON,
    reason="NOT TESTED HERE: no TensorFlow; WELLFED_TENSORFLOW_PYTHON may name an interpreter that has it",
)
@pytest.mark.parametrize("case", CASES)
def test_against_tensorflow(case: str) -> None:
    found = outcome()
    assert case in found["cases"]
    assert case not in found["failures"], found["failures"][case]


def test_feed_does_not_import_tensorflow_for_others() -> None:
    code = (
        "import sys, numpy as np, torch.utils.data as d, wellfed as wf\n"
        "list(wf.feed(d.DataLoader(np.arange(4), batch_size=2)))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
