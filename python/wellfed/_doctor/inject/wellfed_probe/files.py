"""Which files the script opens while a batch is made.

The interpreter tells every audit hook about every event, and hooks cannot be taken away. This one is a comparison in
nearly all cases, but that is half a microsecond, and some code has hundreds of events a step (`id`, say). So it is only
there in workers, and in a process of which batches were seen to read files.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .recorder import RECORDER, Record, now

__all__ = ["FILES", "Files"]

MOST_PATHS = 200
_SKIPPED = (".py", ".pyc", ".so", ".pth")
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_WRITING = os.O_WRONLY | os.O_RDWR


class Files:
    """Counts.

    Attributes:
        opens: Files opened for reading so far.
        making: Thread in which a batch is being made; 0: none.
    """

    def __init__(self) -> None:
        self.opens = 0
        self.making = 0
        self._written = 0
        self._paths: list[str] = []
        self._told = 0
        self._hooked = False

    def install(self) -> None:
        """Begins to count, for as long as the process lives."""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._event)
            RECORDER.resets.append(self._begin_anew)
        if self.drain not in RECORDER.drains:
            RECORDER.drain_from(self.drain)

    def _begin_anew(self) -> None:
        self.opens = self._written = self._told = 0
        self.making = 0
        self._paths = []

    def _event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or self.making == 0 or self.making != threading.get_ident():
            return
        try:
            path, _, flags = arguments
            if isinstance(path, int) or flags & _WRITING:
                return
            text = os.fsdecode(path)
            if text.endswith(_SKIPPED) or text.startswith(_SYSTEM):
                return
            self.opens += 1
            if len(self._paths) < MOST_PATHS:
                self._paths.append(text)
        except Exception:
            RECORDER.failed("counting files")

    def drain(self) -> Iterator[Record]:
        """Opens since the last time."""
        opens = self.opens
        if opens == self._written:
            return
        paths, sizes = [], []
        count = len(self._paths)
        for path in self._paths[self._told : count]:
            try:
                size = os.stat(path).st_size
            except (OSError, ValueError):
                continue
            paths.append(path)
            sizes.append(size)
        self._told = count
        yield {"k": "files", "t": now(), "opens": opens - self._written, "paths": paths, "sizes": sizes}
        self._written = opens


FILES = Files()
"""This process's."""
