"""A script that fails under the doctor shows what it shows without: none of the probe's frames."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_probe import run

pytest.importorskip("torch")

FAILS = """
import gc, logging, sys, threading, traceback
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Mapped(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        if i == 13:
            raise ValueError(f"sample {i} is damaged")
        return torch.zeros(3)

class Iterated(IterableDataset):
    def __iter__(self):
        yield from (Mapped()[i] for i in range(40))

def epoch(data, workers):
    for batch in DataLoader(data, batch_size=4, num_workers=workers):
        pass

for data in Mapped(), Iterated():
    for workers in 0, 1:
        try:
            epoch(data, workers)
        except ValueError as error:
            logging.exception("caught")
            traceback.print_exc()
            print("".join(traceback.format_tb(error.__traceback__)), file=sys.stderr)
        # Workers that are forked with an old iterator complain when they end, with and without a probe.
        gc.collect()
thread = threading.Thread(target=epoch, args=(Mapped(), 0), name="loading")
thread.start()
thread.join()
try:
    epoch(Mapped(), 0)
except ValueError as error:
    if len(sys.argv) > 1:
        raise SystemExit(3) from error
    raise RuntimeError("the epoch broke off") from error
"""


def test_tracebacks_are_the_scripts(tmp_path: Path) -> None:
    plain, probed = (run(tmp_path, FAILS, probe=probe) for probe in (False, True))
    assert plain.code == probed.code == 1
    assert plain.err.count("sample 13 is damaged") == 10
    assert probed.err == plain.err
    assert probed.failures == ""
    # The report says in one line what the traceback says in many.
    (ended,) = probed.main("exit")
    assert ended["exception"] == "RuntimeError: the epoch broke off"
