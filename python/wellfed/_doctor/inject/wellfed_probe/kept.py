"""What a statement gave before, in place of doing it again: for trials that measure what its time costs the script.

Only trials call this: lines of the script that are tried in memory (`edits_left.py`, `edited.py`). Results are wrong on
purpose, and nobody sees them; they only have to be such that the rest of the script takes the time that it took.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["first", "kept"]

# Results that are kept of one kind of inputs, in turn: texts and images of several lengths stay so.
EACH = 4
# Kinds of inputs of a statement. With more of them, shapes differ each time, and what is left is done.
KINDS = 64

_KEPT: dict[tuple[Any, ...], tuple[list[Any], Iterator[int]]] = {}
_COUNTS: dict[int, int] = {}


def kept(site: int, call: Callable[[], Any], *inputs: Any) -> Any:
    """What `call` gives, or what it gave before for inputs of the same shapes; `site` tells statements apart."""
    key = (site, *map(_form, inputs))
    known = _KEPT.get(key)
    if known is None:
        if _COUNTS.get(site, 0) >= KINDS:
            return call()
        _COUNTS[site] = _COUNTS.get(site, 0) + 1
        known = _KEPT[key] = [], itertools.cycle(range(EACH))
    results, turn = known
    if len(results) < EACH:
        value = call()
        # What is used up by going through it cannot be given twice.
        if not hasattr(value, "__next__"):
            results.append(value)
        return _own(value)
    return _own(results[next(turn)])


def first(values: Iterable[Any]) -> Iterator[Any]:
    """The first of the values only."""
    return itertools.islice(values, 1)


def _own(value: Any) -> Any:
    """A container that may be changed by whoever gets it."""
    return value.copy() if type(value) in (list, dict, set) else value


def _form(value: Any) -> Any:
    shape = getattr(value, "shape", None)
    try:
        return type(value), None if shape is None else tuple(shape)
    except TypeError:
        return type(value)
