"""wellfed without row indexes: nothing is known about any file, in any epoch."""

from __future__ import annotations

from peers import wellfed_loader
from spec import EpochFn, Job

PACKAGES = wellfed_loader.PACKAGES


def build(job: Job) -> EpochFn:
    """The loader for `job`."""
    return wellfed_loader.build(job, row_index="off")
