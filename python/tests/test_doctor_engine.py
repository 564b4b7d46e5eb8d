"""The doctor and wellfed's own engine, whose threads neither stacks nor clocks of Python show: it counts for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

OURS = """
import wellfed as wf
from wellfed import transforms as T

loader = wf.image_folder("photos").map(T.Compose([T.RandomResizedCrop(64), T.ToImage()])).repeat().batch(16).torch()
"""

TORCHS = """
import torch
from torchvision import datasets
from torchvision.transforms import v2
from wellfed.torch import DataLoader

crop = v2.Compose([v2.RandomResizedCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
photos = datasets.ImageFolder("photos", crop)
loader = DataLoader(photos, 16, num_workers=2)
"""

LOOP = """
import time
end = time.monotonic() + 2.5
while time.monotonic() < end:
    for images, labels in loader:
        time.sleep(0.001)
        if time.monotonic() > end:
            break
"""


@pytest.mark.parametrize(("framework", "script"), [("wellfed", OURS), ("wellfed.torch", TORCHS)])
def test_the_engines_counters_are_its_stages(tmp_path: Path, framework: str, script: str) -> None:
    if framework == "wellfed.torch":
        pytest.importorskip("torchvision")
    noise = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    for label in ("cats", "dogs"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(24 if framework == "wellfed" else 400):
            place = tmp_path / "photos" / label / f"{i}.jpg"
            if i < 24:
                Image.fromarray(noise).resize((1600, 1200)).save(place, quality=90)
            else:
                os.link(place.with_name(f"{i % 24}.jpg"), place)
    (tmp_path / "train.py").write_text(script + LOOP)
    done = subprocess.run(
        [sys.executable, "-m", "wellfed", "doctor", "run", "--json", "report.json", "train.py"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert not any("probe" in note for note in report["notes"]), report["notes"]
    assert report["loaders"][0]["name"].split()[0] == framework
    made = {stage["name"]: stage for stage in report["stages"] if stage["runs_in"] == "engine"}
    assert set(made) <= {"read", "decode", "augment"}
    assert report["steps"]["batch_size"] == 16
    assert made["decode"]["time"] > 0
    verdict = report["verdict"]
    # Photographs of 1,600 x 1,200 pixels for steps of a millisecond. Tests may have neighbours, and an
    # extension that is not optimized resizes slower than it decodes.
    assert verdict["id"] in ("decode", "augment", "noisy-neighbour"), verdict
    if verdict["id"] == "decode":
        assert any("The engine's" in fact["text"] for fact in verdict["evidence"])
        assert "coefficients" in verdict["fix"]["change"]
