"""Row indexes of JPEGs that are opened one by one: where their rows begin, noted when they are first decoded.

They lie in memory that forked children share, so that what one worker finds out all of them use, and the workers of the
next epoch as well. They are hints: an index knows its file by length and checksum, and changes no pixel.
"""

from __future__ import annotations

import functools
import json
import multiprocessing.reduction
from typing import Any

from .. import _native

__all__ = ["LIMIT", "Inherited", "seen", "stats"]

LIMIT = 256 << 20
"""Bytes of memory that they may take, for all processes together. That is enough for 400,000 photographs of 500x375
pixels; it is taken as images come."""

_attached: _native.SeenRows | None = None


@functools.cache
def _own() -> _native.SeenRows | None:
    return _native.SeenRows.make(LIMIT)


def seen() -> _native.SeenRows | None:
    """Those that this process uses; None where the system shares no memory.

    Whoever starts processes calls it before, so that they have the same ones.
    """
    return _attached if _attached is not None else _own()


def stats() -> dict[str, Any] | None:
    """What became of them in all processes that share them."""
    rows = seen()
    return None if rows is None else json.loads(rows.stats())


class Inherited:
    """Has a process that is sent this by pickle use the row indexes of the sender."""

    def __init__(self) -> None:
        self._rows = seen()

    def __reduce__(self) -> Any:
        descriptor = None if self._rows is None else self._rows.fileno()
        if descriptor is None:
            return _nothing, ()
        shared: Any = multiprocessing.reduction.DupFd(descriptor)
        return _attach, (shared,)


def _attach(shared: Any) -> None:
    global _attached
    _attached = _native.SeenRows.attach(shared.detach())


def _nothing() -> None:
    return None
