"""wellfed with packed coefficients in memory: from the second epoch on no Huffman code is read."""

from __future__ import annotations

from peers import wellfed_loader
from spec import EpochFn, Job

PACKAGES = wellfed_loader.PACKAGES


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    return wellfed_loader.build(job, row_index="off", cache=True)
