"""The default random generators of this process (`random`, NumPy, torch): looked at, lent out, and given back.

Samples that are made in the calling thread draw from them what they would draw in a worker process; the training must
not notice. Invariant: outside of `Lent` blocks the generators are the caller's.
"""

from __future__ import annotations

import ctypes
import random
from typing import Any, NamedTuple

import torch

from .._private import HAS_NUMPY, generate_numpy_seed

if HAS_NUMPY:
    import numpy as np

__all__ = ["Seeds", "States", "Watch", "give", "of_place", "of_worker", "seed", "taken"]

_MT_BYTES = 624 * 4
"""Of NumPy's Mersenne twister: the key. An int follows, the position in it."""


class States(NamedTuple):
    """What the generators are at."""

    python: Any
    torch: torch.Tensor
    numpy: Any


class Seeds(NamedTuple):
    """What a worker begins with: a number for `random` and torch, and words for NumPy."""

    number: int
    words: list[int]


def of_worker(base_seed: int, worker: int) -> Seeds:
    """The seeds that torch gives its workers."""
    return Seeds(base_seed + worker, generate_numpy_seed(base_seed, worker))


def of_place(base_seed: int, place: int) -> Seeds:
    """The seeds of one batch where they do not depend on the worker."""
    words = generate_numpy_seed(base_seed, place)
    return Seeds(words[0] | words[1] << 32, words)


def seed(seeds: Seeds) -> None:
    """Seeds the generators of the processor; those of devices, which samples have not, stay as they are."""
    random.seed(seeds.number)
    torch.default_generator.manual_seed(seeds.number)
    if HAS_NUMPY:
        np.random.seed(seeds.words)


def taken() -> States:
    """What the generators are at now."""
    return States(random.getstate(), torch.get_rng_state(), np.random.get_state() if HAS_NUMPY else None)


def give(states: States) -> None:
    """Puts the generators where they were."""
    random.setstate(states.python)
    torch.set_rng_state(states.torch)
    if HAS_NUMPY:
        np.random.set_state(states.numpy)


class Watch:
    """Whether anything is drawn in a block of code; and then, that it was not.

    NumPy takes longer to say what its generator is at than many a batch takes to be made, so its memory is looked at.
    A number that it keeps for the next call of ``randn`` is not seen there: as long as there may be one, it is asked.
    """

    def __init__(self) -> None:
        self._kept_one = True
        self._raw: bytes | None = None

    def begin(self) -> None:
        """The block begins."""
        self._python, self._torch = random.getstate(), torch.get_rng_state()
        self._bytes = self._torch.numpy().tobytes()
        self._numpy: Any = None
        if not HAS_NUMPY:
            return
        raw = _memory()
        if raw is None or raw != self._raw or self._kept_one:
            # Where its memory is as it was, a number that it keeps can only have been used up.
            self._numpy = np.random.get_state()
            self._kept_one = bool(self._numpy[3])
        self._raw = raw

    def drew(self) -> bool:
        """Whether something was drawn since; if so, the generators are put back."""
        if self._bytes == torch.get_rng_state().numpy().tobytes() and random.getstate() == self._python:
            if not HAS_NUMPY:
                return False
            if self._raw is not None and not self._kept_one:
                if _memory() == self._raw:
                    return False
            elif _same(np.random.get_state(), self._numpy):
                return False
        give(States(self._python, self._torch, self._state()))
        return True

    def _state(self) -> Any:
        """What NumPy's generator was at when the block began."""
        if not HAS_NUMPY or self._numpy is not None:
            return self._numpy
        assert self._raw is not None
        key = np.frombuffer(self._raw[:_MT_BYTES], np.uint32)
        return ("MT19937", key, int.from_bytes(self._raw[_MT_BYTES:], "little"), 0, 0.0)


def _memory() -> bytes | None:
    """The state of NumPy's default generator as it lies in memory; None if it is of another kind."""
    bits = getattr(np.random, "get_bit_generator", lambda: None)()
    if type(bits) is not np.random.MT19937:
        return None
    return ctypes.string_at(bits.ctypes.state_address, _MT_BYTES + 4)


def _same(one: Any, other: Any) -> bool:
    """Whether two states of NumPy are equal."""
    return len(one) == len(other) and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in zip(one, other)
    )
