"""Samples that are traced call by call: what they do, and that nobody notices."""

from __future__ import annotations

import pytest

import doctor_probe

torch = pytest.importorskip("torch")

SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

def stir(n):
    total = 0
    for i in range(n):
        total += i * i
    return total

class Stirred(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        assert sys.getprofile() is None or index >= 0
        time.sleep(0.001)
        value = stir(20_000)
        if index == 60 and "fail" in sys.argv:
            raise KeyError(index)
        return torch.tensor([float(index), float(value)])

def main():
    loader = DataLoader(Stirred(), batch_size=4, num_workers=int(sys.argv[1]))
    total = 0.0
    for batch in loader:
        total += float(batch[:, 0].sum())
    assert total == sum(range(64)), total
    assert sys.getprofile() is None

if __name__ == "__main__":
    main()
"""


def leaves(run: doctor_probe.Run) -> dict[str, int]:
    """CPU time by function."""
    found: dict[str, int] = {}
    for records in run.processes.values():
        frames = {row["id"]: row for r in records if r["k"] == "frames" for row in r["rows"]}
        for record in records:
            if record["k"] == "profile":
                assert record["samples"] > 0
                for row in record["rows"]:
                    name = frames[row["frames"][0]]["func"]
                    found[name] = found.get(name, 0) + row["cpu"]
    return found


@pytest.mark.parametrize("workers", [0, 2])
def test_functions_have_the_time_that_is_theirs(tmp_path, workers):
    run = doctor_probe.run(tmp_path, SCRIPT, str(workers))
    assert run.code == 0, run.err
    found = leaves(run)
    assert found["stir"] > 3 * found.get("Stirred.__getitem__", 0)


def test_exceptions_pass(tmp_path):
    run = doctor_probe.run(tmp_path, SCRIPT, "0", "fail")
    assert run.code == 1
    assert "KeyError: 60" in run.err
