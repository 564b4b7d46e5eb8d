"""Every loop of a script, and what is done beside its batches: gains are those of the script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")
pytest.importorskip("torch")

HEAD = """
import time
import torch
from torch.utils.data import DataLoader

class Slow:
    def __init__(self, n, seconds):
        self.n, self.seconds = n, seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return torch.ones(4) * i
"""
EVALUATION = (
    HEAD
    + """
train_loader = DataLoader(Slow(320, 0.0), batch_size=8)
val_loader = DataLoader(Slow(96, 0.008), batch_size=8)
for epoch in range(3):
    for batch in train_loader:
        time.sleep(0.02)
    for batch in val_loader:
        time.sleep(0.005)
"""
)
METRIC = (
    HEAD
    + """
def accuracy(scores):
    right = 0
    for _ in range(8):
        for score in scores:
            right += score > 0.5
    return right

def train():
    net = torch.nn.Linear(4, 4)
    scores = [0.25, 0.75] * 8000
    for batch in DataLoader(Slow(2400, 0.0), batch_size=4):  # two seconds: in half of one too little is seen
        net(batch).sum().backward()
        accuracy(scores)

train()
"""
)
REMADE = (
    HEAD
    + """
def train_epoch():
    for batch in DataLoader(Slow(96, 0.002), batch_size=8, num_workers=2):
        time.sleep(0.002)

for epoch in range(8):
    train_epoch()
"""
)
CHECKPOINTS = (
    HEAD
    + """
net = torch.nn.Linear(1000, 3000)
step = 0
for batch in DataLoader(Slow(640, 0.0), batch_size=4):
    time.sleep(0.002)
    step += 1
    if step % 5 == 0:
        torch.save({"net": net.state_dict()}, "model.pt")
"""
)


def report(folder: Path, text: str) -> dict[str, Any]:
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "wellfed", "doctor", "run", "--json", "report.json", "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads((folder / "report.json").read_text()))


def shares(said: dict[str, Any]) -> dict[str, float]:
    found = {part["name"]: part["share"] for part in said["script"]}
    assert sum(found.values()) == pytest.approx(1, abs=0.05)
    return found


def test_the_gain_of_a_slow_evaluation_is_the_scripts(tmp_path: Path) -> None:
    said = report(tmp_path, EVALUATION)
    parts = shares(said)
    verdict = said["verdict"]
    assert verdict["id"] != "healthy"
    subject = said["loaders"][said["subject"]]
    assert "val_loader" in subject["place"]["code"]
    assert verdict["title"].startswith("The evaluation loop (its loader: train.py:")
    # Without its loop, the script takes what the rest takes: no fix of it gains more.
    assert verdict["gain"]["factor"] <= 1.02 / (1 - parts["evaluation"])
    assert parts["evaluation"] > 0.2
    assert parts["training"] > 0.02


def test_a_metric_in_python_is_the_verdict(tmp_path: Path) -> None:
    said = report(tmp_path, METRIC)
    own = [v for v in (said["verdict"], said["runner_up"], *said["others"]) if v and v["id"] == "python-step"]
    assert said["verdict"]["family"] != "healthy"
    assert own, said["verdict"]["title"]
    assert own[0]["title"].startswith("accuracy takes")
    assert shares(said)["metrics"] > 0.4


def test_a_loader_that_is_made_for_each_epoch_is_one(tmp_path: Path) -> None:
    said = report(tmp_path, REMADE)
    assert [(used["epochs"], used["steps"]) for used in said["loaders"]] == [(8, 96)]
    kept = [
        v for v in (said["verdict"], said["runner_up"], *said["others"]) if v and v["id"] == "worker-restart"
    ]
    # Arguments of a loader that ends with its epoch keep no workers.
    assert kept
    assert kept[0]["fix"]["apply"] is None
    assert kept[0]["fix"]["change"].startswith("# once, before the loop over epochs")


def test_writing_checkpoints_is_saving_and_not_reading_a_value(tmp_path: Path) -> None:
    said = report(tmp_path, CHECKPOINTS)
    told = [v for v in (said["verdict"], said["runner_up"], *said["others"]) if v]
    assert "checkpoint" in [verdict["id"] for verdict in told]
    assert "sync-logging" not in [verdict["id"] for verdict in told]
    assert shares(said)["checkpoints"] > 0.1
