"""What wellfed's loader would do with the script's own: the record `fed`.

It is asked before the first epoch begins, so that no step is longer for it. Invariant: nothing is drawn, nothing of the
script's loader changes, and what is made to ask is not noted as a loader of the script's.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from .lifecycle import forget_module
from .recorder import RECORDER

__all__ = ["asking", "note"]

_local = threading.local()


def asking() -> bool:
    """Whether loaders that are made now in this thread are not the script's."""
    return getattr(_local, "asking", False)


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    _local.asking = True
    try:
        yield
    finally:
        _local.asking = False


def note(loader: Any, number: int) -> None:
    """Notes what `wellfed.feed` would make of a loader, or that it refuses it; nothing without wellfed."""
    known = "wellfed" in sys.modules
    try:
        with _asking(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from wellfed.torch import feed
            from wellfed.torch._lower import outlook

            try:
                record = outlook(feed(loader))
            except Exception as error:
                first = str(error).partition("\n")[0]
                record = {"plan": "refused", "images": False, "python": [first]}
    except Exception:
        return
    finally:
        if not known:
            forget_module("wellfed")
    RECORDER.emit("fed", loader=number, **record)
