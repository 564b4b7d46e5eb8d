"""Patches the iterators' `__next__`: each step of a training loop over a torch loader."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import Any

from .recorder import now
from .steps import Steps

__all__ = ["ATTRIBUTE", "attach", "patch_loads", "receiving", "watch_type"]

ATTRIBUTE = "_wellfed_probe"

thread_time = time.thread_time_ns
process_time = time.process_time_ns

_watched: set[type] = set()
_receiving: list[Steps | None] = [None]


def receiving() -> Steps | None:
    """The iterator whose `__next__` this thread is in."""
    steps = _receiving[0]
    return steps if steps is not None and steps.thread == threading.get_ident() else None


def attach(iterator: Any, steps: Steps) -> None:
    """Has `steps` note what `iterator` does from now on."""
    kind = type(iterator)
    owner = next((base for base in kind.__mro__ if "__next__" in vars(base)), None)
    if owner is None or not watch_type(owner):
        steps.close()
        return
    before = vars(iterator).get(ATTRIBUTE)
    if before is not None:
        before.close()  # It begins anew.
    steps.owner = owner
    steps.gone = weakref.ref(iterator, lambda _: steps.close())
    # In its dictionary: some classes have rules for their attributes.
    vars(iterator)[ATTRIBUTE] = steps


def watch_type(owner: type) -> bool:
    """Patches the `__next__` that this class defines; false where that cannot be."""
    if owner in _watched:
        return True
    original = vars(owner)["__next__"]
    if not hasattr(original, "__code__"):
        return False
    owner.__next__ = next_of(owner, original)  # type: ignore[attr-defined]
    _watched.add(owner)
    return True


def next_of(owner: type, original: Any) -> Any:
    """`original`, timed, for iterators whose outermost `__next__` is that of `owner`. Exceptions go through."""

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        try:
            steps = self._wellfed_probe
        except AttributeError:
            return original(self)
        if steps.owner is not owner:
            return original(self)
        n = steps.n
        if n < steps.skip:
            try:
                value = original(self)
            except StopIteration:
                steps.end(now())
                raise
            steps.n = n + 1
            return value
        if steps.ended:
            return original(self)
        if n >= steps.limit:
            steps.check()
        if steps.device is not None:
            steps.device.end(n)
        steps.unpickle = 0
        _receiving[0] = steps
        measured = n >= steps.clocks
        if measured:
            begin = now()
            p0 = process_time()
            c0 = thread_time()
        t0 = now()
        try:
            value = original(self)
        except StopIteration:
            steps.end(t0)
            raise
        finally:
            _receiving[0] = None
        t1 = now()
        if measured:
            c1 = thread_time()
            steps.add((n, t0, t1, steps.unpickle, c0, c1, p0, process_time()))
            steps.measured(t0 - begin + now() - t1)
        else:
            steps.add((n, t0, t1, steps.unpickle))
        steps.n = n + 1
        if steps.listeners:
            steps.hear(value)
        if steps.device is not None:
            steps.device.begin(n)
        return value

    return __next__


def patch_loads(reduction: Any) -> None:
    """Times what rebuilds batches from what workers sent, where it runs within a step."""
    pickler = reduction.ForkingPickler
    original = pickler.loads

    @functools.wraps(original)
    def loads(*args: Any, **kwargs: Any) -> Any:
        steps = _receiving[0]
        if steps is None or steps.thread != threading.get_ident():
            return original(*args, **kwargs)
        begin = now()
        try:
            return original(*args, **kwargs)
        finally:
            steps.unpickle += now() - begin

    pickler.loads = staticmethod(loads)
