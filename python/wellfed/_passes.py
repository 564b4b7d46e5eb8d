"""Which epoch comes next: counted for each pipeline over the same opened sources, not for each loader.

So ``for epoch in ...: for batch in ds.torch():`` gives new epochs, though it makes a new loader for each of them.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from typing import NamedTuple

__all__ = ["Passes", "Pipeline"]

_LOCK = threading.Lock()


_RANDOM = (
    "shuffle",
    "sample_from_datasets",
    "Rand",
    "ColorJitter",
    "GaussianBlur",
    "GaussianNoise",
    "ElasticTransform",
    "JPEG",
    "AugMix",
    "AutoAugment",
    "TrivialAugmentWide",
    "ScaleJitter",
    "MixUp",
    "CutMix",
)
"""How the names of nodes and transforms begin that differ from epoch to epoch."""

_FIXED = re.compile(r'"shuffle",[^{}]*"reshuffle_each_iteration": ?false')
"""A shuffle that does not."""


class Pipeline(NamedTuple):
    """What is counted by: ranks of one process and other batch sizes are other pipelines."""

    fingerprint: int
    plan: str

    @property
    def random(self) -> bool:
        """Whether epochs differ."""
        plan = _FIXED.sub("", self.plan)
        return any(f'"{name}' in plan for name in _RANDOM)


_STARTED: set[Pipeline] = set()
"""Pipelines of which a loader began epoch 0 in this process."""

_AGAIN = (
    "a pipeline whose source was opened again starts at epoch 0 again: the same order and the same random transforms"
    "\nhint: open the source once, outside of the loop over epochs; or call set_epoch(epoch) on the loader"
)

_PACKAGE = os.path.dirname(__file__) + os.sep


def _outside() -> int:
    """The stack level, for a warning of the caller, of the line outside of this package that led to it."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


class Passes:
    """Next epochs by pipeline. Shared by all data sets that were made of the same opened sources."""

    def __init__(self) -> None:
        self._next: dict[Pipeline, int] = {}
        self._warned = False

    def next(self, pipeline: Pipeline) -> int:
        """The epoch that a new loader of this pipeline would begin now."""
        with _LOCK:
            return self._next.get(pipeline, 0)

    def begun(self, pipeline: Pipeline, epoch: int, counted: bool) -> None:
        """A loader of this pipeline began `epoch`; `counted` if that was `next`, and not what its user said."""
        with _LOCK:
            first = pipeline not in self._next
            again = counted and first and pipeline.random and pipeline in _STARTED and not self._warned
            self._warned |= again
            self._next[pipeline] = epoch + 1
            if epoch == 0:
                _STARTED.add(pipeline)
        if again:
            warnings.warn(_AGAIN, UserWarning, stacklevel=_outside())

    def __reduce__(self) -> tuple[type[Passes], tuple[()]]:
        return Passes, ()
