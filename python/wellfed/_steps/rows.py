"""`SharedRows`: row indexes of a loader's data set, which all of its workers record and use together.

The loader makes them, forked workers have them with its memory, and spawned ones attach to that.
"""

from __future__ import annotations

import json
import multiprocessing.reduction
import threading
import warnings
from typing import Any

from .. import _native

__all__ = ["SharedRows"]


class SharedRows:
    """Row indexes in shared memory, if there are any to be kept.

    Args:
        dataset: The data set.
        workers: Processes that use them, among which what is read from files is divided.

    Attributes:
        native: The engine's; None where none are kept.
    """

    def __init__(self, dataset: Any, workers: int) -> None:
        self._dataset, self._workers = dataset, max(1, workers)
        self.native: _native.RowIndexes | None = dataset._native.row_indexes(self._workers)
        self._saving: threading.Thread | None = None
        self._warned = False

    def __reduce__(self) -> Any:
        native = self.native
        descriptor = None if native is None else native.fileno()
        if native is None or descriptor is None:
            return Attached, (None,)
        shared: Any = multiprocessing.reduction.DupFd(descriptor)
        return attach, (self._dataset, shared, native.limit, self._workers)

    def stats(self) -> dict[str, Any] | None:
        """Counters of all workers together."""
        if self.native is None:
            return None
        counters: dict[str, Any] | None = json.loads(self.native.stats())
        return counters

    def save(self) -> None:
        """Writes what belongs into files, on a thread, while training goes on."""
        if self.native is None or (self._saving is not None and self._saving.is_alive()):
            return
        self._warn()
        self._saving = threading.Thread(target=self.native.save, name="wellfed-save", daemon=True)
        self._saving.start()

    def close(self) -> None:
        """Writes the rest."""
        if self.native is not None:
            if self._saving is not None:
                self._saving.join()
            self.native.save()
            self._warn()

    def _warn(self) -> None:
        """Warns once of files that cannot be written."""
        problem = (self.stats() or {}).get("problem")
        if problem is not None and not self._warned:
            self._warned = True
            warnings.warn(f"row indexes are not kept: {problem}", RuntimeWarning, stacklevel=5)


class Attached:
    """`SharedRows` in a process that did not make them.

    Attributes:
        native: As of `SharedRows`.
    """

    def __init__(self, native: _native.RowIndexes | None) -> None:
        self.native = native


def attach(dataset: Any, shared: Any, limit: int, workers: int) -> Attached:
    """The row indexes of the process that pickled them."""
    return Attached(dataset._native.attach_row_indexes(shared.detach(), limit, workers))
