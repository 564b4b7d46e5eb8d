"""Loaders of libraries that stream shards: theirs with our iterators behind them.

These are the ``StreamingDataLoader`` of MosaicML's Streaming and of LitData, which count what they hand over for their
own ``state_dict()``, and tell their data set the epoch. Invariant: whatever those classes do around the iterator, they
do; only the iterator is another one.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from ._device import staged
from ._loader import DataLoader

__all__ = ["carried", "class_for", "prepared"]

_LIBRARIES = {
    "streaming.base.dataloader": ("num_samples_yielded",),
    "litdata.streaming.dataloader": (
        *("current_epoch", "rng_state", "restore"),
        *("_num_samples_yielded_streaming", "_num_samples_yielded_wrapper", "_num_cycles"),
        *("_worker_idx", "_worker_idx_iter", "_latest_worker_idx"),
        *("_profile_batches", "_profile_skip_batches", "_profile_dir", "_profile_cprofile"),
    ),
}
"""Where the classes are, and what they count."""

_made: dict[type, type] = {}


def class_for(loader: Any) -> type[DataLoader[Any]] | None:
    """The class of the loader that stands for a loader of one of the libraries; None of any other."""
    kind = _library_class(loader)
    if kind is None:
        return None
    if kind not in _made:
        methods = {
            "__module__": __name__,
            "__doc__": kind.__doc__,
            "__del__": _ended,
            "_get_iterator": _iterator_of(kind),
        }
        _made[kind] = type("StreamingDataLoader", (kind, DataLoader), methods)
    return _made[kind]


def _library_class(loader: Any) -> Any:
    """The class of one of the libraries that it is of, or that ours stands for; else None."""
    kind = type(loader)
    if kind in _made.values():
        kind = kind.__mro__[1]
    known = getattr(sys.modules.get(kind.__module__), "StreamingDataLoader", None)
    return kind if kind.__module__ in _LIBRARIES and kind is known else None


def prepared(loader: Any, kept: dict[str, Any]) -> None:
    """Makes of the arguments of torch's loader those that the library's takes."""
    if _library_class(loader).__module__.startswith("litdata."):
        # It is the data set that drops samples, and the function has another around it.
        kept.pop("drop_last", None)
        kept["collate_fn"] = loader.collate_fn.collate_fn


def carried(loader: Any, fed: Any) -> None:
    """Hands on what the library's loader has counted."""
    kind = _library_class(loader)
    for name in () if kind is None else _LIBRARIES[kind.__module__]:
        if name in vars(loader):
            setattr(fed, name, vars(loader)[name])


def _ended(self: Any) -> None:
    iterator = getattr(self, "_iterator", None)
    with contextlib.suppress(Exception):
        if iterator is not None:
            iterator._shutdown_workers()


def _iterator_of(kind: type) -> Any:
    def get_iterator(self: Any) -> Any:
        asked = getattr(self, "_profile_batches", False) or getattr(self, "_profile_cprofile", False)
        if getattr(self, "restore", False) or asked:
            # Where an epoch goes on, the library begins with the worker whose turn it is.
            return staged(self, kind._get_iterator(self))  # type: ignore[attr-defined]
        return DataLoader._get_iterator(self)

    return get_iterator
