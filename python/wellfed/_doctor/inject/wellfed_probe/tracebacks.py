"""Takes our frames out of tracebacks: a script that fails shows what it would show without the probe.

Our functions stand between a loop and its loader, and between a loader and its data set. Invariant: frames of others
stay, in their order; a traceback without frames of ours is the object it was.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
import threading
from types import ModuleType, TracebackType
from typing import Any

from . import hooks

__all__ = ["install", "without_ours"]

# Before Python 3.11 there are no groups of exceptions.
_GROUP: Any = getattr(builtins, "BaseExceptionGroup", None)
_OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def install() -> None:
    """From now on neither the interpreter nor the module `traceback` shows our frames."""
    sys.excepthook = _hook(sys.excepthook)
    threading.excepthook = _thread_hook(threading.excepthook)
    hooks.when_imported("traceback", _patch)


def _ours(traceback: TracebackType) -> bool:
    return traceback.tb_frame.f_code.co_filename.startswith(_OWN)


def without_ours(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames, which are taken out of the chain itself."""
    while traceback is not None and _ours(traceback):
        traceback = traceback.tb_next
    at = traceback
    while at is not None:
        while at.tb_next is not None and _ours(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return traceback


def _clean(error: BaseException | None) -> None:
    """Takes our frames out of an exception's traceback, and of those it came from."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if not isinstance(error, BaseException) or id(error) in seen:
            continue
        seen.add(id(error))
        cleaned = without_ours(error.__traceback__)
        if cleaned is not error.__traceback__:
            error.__traceback__ = cleaned
        waiting += [error.__cause__, error.__context__]
        if _GROUP is not None and isinstance(error, _GROUP):
            waiting += error.exceptions


def _cleaned(error: Any, traceback: Any) -> Any:
    """`traceback` without our frames; those of `error` go, too. Whatever fails leaves them there."""
    try:
        _clean(error)
        return without_ours(traceback)
    except Exception:
        return traceback


def _hook(original: Any) -> Any:
    @functools.wraps(original)
    def excepthook(kind: Any, error: Any, traceback: Any) -> Any:
        return original(kind, error, _cleaned(error, traceback))

    return excepthook


def _thread_hook(original: Any) -> Any:
    @functools.wraps(original)
    def excepthook(args: Any) -> Any:
        # The traceback that is printed is the exception's own, whose first frame is the thread's.
        _cleaned(args.exc_value, None)
        return original(args)

    return excepthook


def _patch(module: ModuleType) -> None:
    """What formats exceptions, in logging and in workers that send theirs, goes through these."""
    kind: Any = getattr(module, "TracebackException")  # noqa: B009
    init = kind.__init__

    @functools.wraps(init)
    def __init__(  # noqa: N807
        self: Any, exc_type: Any, exc_value: Any, exc_traceback: Any, *args: Any, **kwargs: Any
    ) -> None:
        init(self, exc_type, exc_value, _cleaned(exc_value, exc_traceback), *args, **kwargs)

    kind.__init__ = __init__
    walk: Any = getattr(module, "walk_tb")  # noqa: B009

    @functools.wraps(walk)
    def walk_tb(tb: Any) -> Any:
        return walk(_cleaned(None, tb))

    setattr(module, "walk_tb", walk_tb)  # noqa: B010
