"""`RECORDER`: the one file that this process writes, and what is waiting to be written to it.

Invariants: whoever records only appends to a list; JSON is made and written by the thread that looks at stacks, or at
the process's end. A line is written by one call, so that a killed process leaves at most one broken line. A forked
child begins a file of its own with nothing of its parent's in it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["RECORDER", "Record", "Recorder", "now"]

Record = dict[str, Any]
Drain = Callable[[], Iterable[Record]]

VERSION = 1
MOST_FAILURES = 20

now = time.monotonic_ns
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=True).encode


class Recorder:
    """Where records go.

    Attributes:
        directory: Of the files; None: nothing is recorded.
        generation: Grows with every fork; what was announced in an older one is not known to this process's file.
        resets: Called when a generation begins, and what was gathered before belongs to another file.
        drains: Called before each writing for the records they have gathered, by the thread that writes.
    """

    def __init__(self) -> None:
        self.directory: str | None = None
        self.generation = 0
        self.drains: list[Drain] = []
        self.resets: list[Callable[[], Any]] = []
        self._hooked = False
        self._forget()

    def _forget(self) -> None:
        self._waiting: list[Record] = []
        self._lock = threading.Lock()
        self._file: int | None = None
        self._failures = 0
        self._started = False
        self._since = now()

    @property
    def started(self) -> bool:
        """Whether this process has a file."""
        return self._started

    def open(self, directory: str) -> None:
        """Records from now on; the file itself is made with the first record."""
        self._since = now()
        self.directory = directory
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self._begin_anew)

    def close(self) -> None:
        """Writes what there is, and records nothing from now on."""
        self.flush()
        self.directory = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self.generation += 1
        del self.drains[:]
        self._forget()
        for reset in self.resets:
            reset()

    def emit(self, kind: str, **fields: Any) -> None:
        """Adds a record; it is written soon."""
        if self.directory is not None:
            self._waiting.append({"k": kind, **fields})

    def drain_from(self, drain: Drain) -> None:
        """Asks `drain` for records from now on, in this process only."""
        self.drains.append(drain)

    def flush(self, wait: bool = True) -> None:
        """Writes what there is."""
        if self.directory is None or not self._lock.acquire(blocking=wait, timeout=1.0 if wait else -1):
            return
        try:
            lines: list[str] = []
            for drain in list(self.drains):
                try:
                    lines.extend(_encode(record) for record in drain())
                except Exception:
                    self.failed(f"gathering records of {drain!r}")
            count = len(self._waiting)
            head, self._waiting[:count] = self._waiting[:count], []
            if head or lines:
                self._write([*map(_encode, head), *lines])
        except Exception:
            self.failed("writing records")
        finally:
            self._lock.release()

    def _write(self, lines: list[str]) -> None:
        if self._file is None:
            path = os.path.join(str(self.directory), f"{os.getpid()}.jsonl")
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if not self._started:
            self._started = True
            lines = [_encode(hello(self._since)), *lines]
        data = memoryview(("\n".join(lines) + "\n").encode())
        while data:
            data = data[os.write(self._file, data) :]

    def failed(self, what: str) -> None:
        """Notes the exception that is being handled; it goes no further."""
        self._failures += 1
        if self._failures > MOST_FAILURES or self.directory is None:
            return
        try:
            with open(os.path.join(self.directory, f"{os.getpid()}.error"), "a", encoding="utf-8") as out:
                out.write(f"{what}\n{traceback.format_exc()}\n")
        except OSError:
            pass  # There is nowhere left to say it.


def hello(since: int) -> Record:
    """The first record of a process."""
    original = getattr(sys, "orig_argv", None) or [sys.executable]
    gil = getattr(sys, "_is_gil_enabled", None)
    return {
        "k": "hello",
        "v": VERSION,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "t": since,
        "argv": [str(a) for a in getattr(sys, "argv", [])],
        "executable": str(original[0]),
        "python": ".".join(map(str, sys.version_info[:3])),
        "cwd": _cwd(),
        "rank": _number("RANK"),
        "world_size": _number("WORLD_SIZE"),
        "local_world_size": _number("LOCAL_WORLD_SIZE"),
        "gil": True if gil is None else bool(gil()),
    }


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


RECORDER = Recorder()
"""This process's."""
