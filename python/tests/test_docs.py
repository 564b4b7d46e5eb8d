"""The Python code in README.md and docs/ runs as it stands, in a folder with a small data set."""

from __future__ import annotations

import json
import linecache
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import picture

ROOT = Path(__file__).parents[2]
# What stands above a block that cannot run here, because it needs data or a machine that tests do not have.
NOT_RUN = "<!-- not run -->"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[object]:
    """Code of every block that is to be run, at the line where it stands in its file."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path.name in ("tensorflow-keras-jax.md", "keras.md"):
            # Run by handover/check_guide.py and keras_cases.py, where those are.
            continue
        text = path.read_text(encoding="utf-8")
        for match in BLOCK.finditer(text):
            before = text[: match.start()]
            if before.rstrip().endswith(NOT_RUN):
                continue
            line = before.count("\n") + 1
            # Empty lines above make a traceback name the line of the file.
            found.append(pytest.param(path, "\n" * line + match.group(1), id=f"{path.name}:{line}"))
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the code: has `data/train` with 3 classes of 8 photographs."""
    random = np.random.default_rng(11)
    for label, name in enumerate(("cat", "dog", "fox")):
        place = tmp_path / "data" / "train" / name
        place.mkdir(parents=True)
        for i in range(8):
            height, width = (int(side) for side in random.integers(60, 120, 2))
            Image.fromarray(picture(10 * label + i, height, width)).save(place / f"{i:03}.jpg", quality=90)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("path", "code"), blocks())
def test_code_in_the_guides(path: Path, code: str, folder: Path) -> None:
    # As a notebook's cell has it: the source of what is defined here can be looked up.
    name = f"{path}, run"
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    exec(compile(code, name, "exec"), {"__name__": "guide"})


def test_the_guides_have_code() -> None:
    assert len(blocks()) > 5


EXAMPLES = {
    "train.py": (["data/train", "--epochs", "2", "--size", "32", "--batch-size", "8"], "epoch 1"),
    # Six words by chance would be 17 %.
    "speech.py": (["--generated", "--epochs", "10"], r"wellfed: accuracy ([7-9]\d|100)\.\d%"),
}
"""Arguments of the scripts, and what they print."""


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples(path: Path, folder: Path) -> None:
    arguments, printed = EXAMPLES[path.name]
    command = [sys.executable, str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout), done.stdout


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks(path: Path, folder: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 3
    scope: dict[str, object] = {"__name__": "notebook"}
    for number, text in enumerate(code):
        exec(compile(text, f"{path.name}, cell {number}", "exec"), scope)


def test_links_lead_somewhere() -> None:
    files = list(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))
    for path in files:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name} links to {target}"
