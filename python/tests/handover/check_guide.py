"""The code of docs/tensorflow-keras-jax.md runs, as far as the frameworks are here that it imports."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import pytest

from pictures import picture

GUIDE = Path(__file__).parents[3] / "docs" / "tensorflow-keras-jax.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[object]:
    text = GUIDE.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        needs = {name for name in ("tensorflow", "keras", "jax") if f"import {name}" in match.group(1)}
        if all(importlib.util.find_spec(name) for name in needs):
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param("\n" * line + match.group(1), id=f"line {line}"))
    return found


def test_every_method_of_tf_data_is_in_the_table() -> None:
    tf = pytest.importorskip("tensorflow")
    table = GUIDE.read_text(encoding="utf-8").partition("## tf.data's methods")[2]
    ours = set(
        re.findall(r"`(\w+)", "".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    )
    methods = {name for name in vars(tf.data.Dataset) if not name.startswith("_")}
    assert len(methods) > 40
    assert methods <= ours


@pytest.mark.parametrize("code", blocks())
def test_code(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    random = np.random.default_rng(11)
    for label, name in enumerate(("cat", "dog", "fox")):
        place = tmp_path / "data" / "train" / name
        place.mkdir(parents=True)
        for i in range(8):
            height, width = (int(side) for side in random.integers(60, 120, 2))
            Image.fromarray(picture(10 * label + i, height, width)).save(place / f"{i:03}.jpg", quality=90)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(GUIDE), "exec"), {"__name__": "guide"})
