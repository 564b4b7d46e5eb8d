"""What wellfed would make of the script's own loader or data set: the record `fed`.

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
from .recorder import RECORDER, Record

__all__ = ["asking", "fed", "note"]

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


def note(loader: Any, number: int, place: Record | None = None) -> None:
    """Notes what `wellfed.feed` would make of a loader, or that it refuses it; nothing without wellfed.

    Args:
        loader: A loader of torch, or a ``tf.data.Dataset``.
        number: The loader's.
        place: What is to be given to `wellfed.feed`, if that is not what makes the loader.
    """
    known = "wellfed" in sys.modules
    try:
        with _asking(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import wellfed  # noqa: F401 -- without it there is nothing to say

            try:
                record = _outlook_of(loader)
            except Exception as error:
                first = str(error).partition("\n")[0]
                record = {"plan": "refused", "images": False, "python": [first]}
    except Exception:
        return
    finally:
        if not known:
            forget_module("wellfed")
    RECORDER.emit("fed", loader=number, place=place, **record)


def _outlook_of(loader: Any) -> Record:
    if "tensorflow" in sys.modules and isinstance(loader, sys.modules["tensorflow"].data.Dataset):
        from wellfed._tfdata._feed import outlook as of_dataset

        return of_dataset(loader)
    from wellfed.torch import feed
    from wellfed.torch._lower import outlook

    return outlook(feed(loader))


def fed(dataset: Any) -> Any:
    """What `wellfed.feed` makes of a ``tf.data.Dataset``; itself without wellfed."""
    with _asking():
        try:
            from wellfed import feed
        except ImportError:
            RECORDER.failed("importing wellfed to give a tf.data pipeline to it")
            return dataset
        return feed(dataset)
