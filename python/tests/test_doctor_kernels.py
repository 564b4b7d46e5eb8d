"""The doctor on a script whose device is made up, with kernels as torch's profiler tells them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from test_doctor_run import doctor, script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first optimizer imports torch's compiler, whose folder would be in the one that `doctor` finds empty."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))


SCRIPT = """
import sys
import time
from types import SimpleNamespace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EACH, FAILS = int(sys.argv[1]), sys.argv[2] == "fails"


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        self.t = time.perf_counter()

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1e3 * (other.t - self.t)


class Profile:
    # A kernel of so many nanoseconds every 40 us.
    def __init__(self, **options):
        if FAILS:
            raise RuntimeError("no CUPTI here")

    def __enter__(self):
        self.t = time.monotonic_ns()
        time.sleep(0.3)  # It takes long to begin.
        self.begun = time.monotonic_ns()

    def __exit__(self, *error):
        kind = SimpleNamespace(name="CUDA")
        at = range(self.begun, time.monotonic_ns(), 40_000)
        events = [
            SimpleNamespace(name=lambda: "k", device_type=lambda: kind, device_index=lambda: 0,
                            start_ns=lambda t=t: t, duration_ns=lambda: EACH)
            for t in at
        ]
        self.kineto_results = SimpleNamespace(events=lambda: events)


torch.cuda.is_initialized = lambda: True
torch.cuda.is_current_stream_capturing = lambda: False
torch.cuda.synchronize = lambda: None
torch.cuda.Event = Event
torch.autograd._supported_activities = lambda: {torch.autograd.ProfilerActivity.CUDA}
torch.autograd.profiler.profile = Profile

torch.set_num_threads(1)
blocks = [nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU()) for _ in range(40)]
model = nn.Sequential(*blocks, nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(8192, 16)), batch_size=4, shuffle=True)
begin, steps = time.monotonic(), 0
while time.monotonic() < begin + 6:
    for (rows,) in loader:
        loss = model(rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if time.monotonic() > begin + 6:
            break
print(steps > 100)
"""


def diagnosed(folder: Path, *words: str) -> dict[str, Any]:
    train = script(folder, SCRIPT)
    done = doctor(folder, "run", "--no-live", "--no-trial", "--json", "report.json", train, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [b"True"]
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_tiny_kernels_with_gaps_are_launches_and_others_compute(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "2000", "works")
    kernels = report["steps"]["kernels"]
    assert kernels["steps"] >= 3
    assert kernels["each"] == pytest.approx(2e-6)
    assert report["verdict"]["id"] == "launch-bound", report["verdict"]
    assert report["verdict"]["evidence"][0]["source"] == "profiler"
    assert report["steps"]["device_busy"] < 0.2
    assert any("Kernels were looked at" in note for note in report["notes"])
    # What the profiler's start took is no step's.
    assert report["steps"]["time"] < 0.05
    # The same with kernels that leave no gaps.
    report = diagnosed(tmp_path, "39000", "works")
    assert report["steps"]["device_busy"] > 0.6
    assert report["verdict"]["id"] in ("compute-bound", "healthy"), report["verdict"]


def test_without_the_profiler_the_rest_is_told(tmp_path: Path) -> None:
    report = diagnosed(tmp_path, "2000", "fails")
    assert report["steps"]["kernels"] is None
    assert any("no CUPTI here" in note for note in report["notes"])
    assert report["verdict"]["id"] in ("compute-bound", "healthy", "launch-bound")
