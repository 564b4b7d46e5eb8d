"""Random generators that depend on the sample alone.

Invariant: what a callable draws from Python's `random`, from NumPy's and from torch's default generator is a function
of (seed, leaf, epoch, index): not of the worker, of the samples made before, or of where a pass was resumed.
"""

from __future__ import annotations

import random
import sys
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["Undisturbed", "fresh", "mix", "seed_all"]

MASK = (1 << 64) - 1


def mix(*words: int) -> int:
    """64 bits that depend on all of `words`: SplitMix64's finalizer after each."""
    state = 0
    for word in words:
        state = (state ^ (word & MASK)) + 0x9E3779B97F4A7C15 & MASK
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
        state ^= state >> 31
    return state


def seed_all(key: int) -> None:
    """Seeds the default generators of Python, NumPy and torch; those of devices are left alone.

    About 7 us, where `torch.manual_seed` alone takes 135, since that visits every kind of device.
    """
    random.seed(key)
    np.random.seed(key & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch's is a signed number of 64 bits.
        torch.default_generator.manual_seed(key >> 1)


def fresh() -> int:
    """A random number of 63 bits: from torch's default generator if torch is imported, else from Python's `random`."""
    torch = sys.modules.get("torch")
    if torch is None:
        return random.getrandbits(63)
    return int(torch.empty((), dtype=torch.int64).random_().item())


class Undisturbed:
    """Default generators are after the block as before it: for steps that run in the caller's own process."""

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        self._torch: Any = None if torch is None else torch.default_generator.get_state()
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        if self._torch is not None:
            sys.modules["torch"].default_generator.set_state(self._torch)
