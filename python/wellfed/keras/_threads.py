"""`THREADS`: the threads in which `wf.keras` opens files, shared by all that needs some."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._cores import usable_cores

__all__ = ["THREADS"]


class _Threads:
    """Threads that are there when they are first needed, also in a process that was forked meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        # Threads are not forked, and the lock may have been held by one.
        self._lock, self._pool = threading.Lock(), None

    @property
    def count(self) -> int:
        """How many there are."""
        return max(1, math.ceil(usable_cores()))

    def map(self, function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
        """What a function makes of each row of columns. After an exception, what was not begun is left out."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.count, "wellfed-keras")
            pool = self._pool
        rows = list(zip(*columns))
        if len(rows) == 1:
            return [function(*rows[0])]
        futures = [pool.submit(function, *row) for row in rows]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


THREADS = _Threads()
