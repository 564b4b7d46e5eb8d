"""Patches wellfed's own loader, `wellfed.Loader`: its steps, and what its engine counts."""

from __future__ import annotations

import contextlib
import functools
import weakref
from types import ModuleType
from typing import Any

from . import engine, feeding, hooks
from .places import of_caller, shorten
from .recorder import RECORDER, Record, now
from .steps import LoaderLog, Steps
from .torch_loader import first_batch

__all__ = ["install"]

# Loaders that are not the script's, but made for one that is.
_inner: weakref.WeakSet[Any] = weakref.WeakSet()
_logs: dict[int, tuple[weakref.ref[Any], LoaderLog]] = {}


def install() -> None:
    """Patches the loader once it is imported."""
    hooks.when_imported("wellfed._loader", _patch)


def _patch(module: ModuleType) -> None:
    kind, epoch = module.Loader, module._Epoch
    kind.__init__ = _init_of(kind.__init__)
    kind.__iter__ = _iter_of(kind.__iter__)
    epoch.__next__ = _next_of(epoch.__next__)


def _init_of(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        try:
            if feeding.asking():
                _inner.add(self)
            elif RECORDER.directory is not None:
                _register(self)
        except Exception:
            RECORDER.failed("noting a loader")

    return __init__


def _register(loader: Any) -> LoaderLog:
    key = id(loader)
    place, t = of_caller(), now()
    reference = weakref.ref(loader, lambda _: _logs.pop(key, None))
    known: list[Record] = []

    def tell(number: int) -> Record:
        if not known:
            known.append(_describe(reference(), place))
        return {"k": "loader", "t": t, "loader": number, **known[0]}

    log = LoaderLog(tell)
    log.announce()
    _logs[key] = reference, log
    return log


def _describe(loader: Any, place: Any) -> Record:
    length: int | None = None
    if loader is not None:
        with contextlib.suppress(TypeError):  # It repeats without end.
            length = len(loader)
    return {
        "framework": "wellfed",
        "class": "wellfed.Loader",
        "dataset": "" if loader is None else shorten(" ".join(repr(loader.dataset).split())),
        "length": length,
        "in_order": True,
        "place": place,
    }


def _iter_of(original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        t0 = now()
        iterator = original(self)
        if RECORDER.directory is None or self in _inner:
            return iterator
        t1 = now()
        try:
            entry = _logs.get(id(self))
            log = entry[1] if entry is not None and entry[0]() is self else _register(self)
            steps = Steps(log, t0, t1)
            if log.iterators == 1:
                steps.listeners.append(functools.partial(first_batch, log.number))
            engine.watch(steps, self)
        except Exception:
            RECORDER.failed("noting an iterator")
        return iterator

    return __iter__


def _next_of(original: Any) -> Any:
    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        # Iterators have slots; a loader has one iterator at a time.
        entry = _logs.get(id(self._loader))
        steps = None if entry is None else entry[1].now
        if steps is None or steps.ended or self._loader._turn != self._turn:
            return original(self)
        if steps.n < steps.skip:
            value = original(self)
            steps.n += 1
            return value
        entered = steps.enter()
        try:
            value = original(self)
        except StopIteration:
            steps.end(entered[0])
            raise
        steps.leave(entered)
        if steps.listeners:
            steps.hear(value)
        return value

    return __next__
