"""`SAMPLER`: looks at the stacks of this process's threads every few milliseconds, and has records written.

Invariants: all that its thread does takes about 0.4 % of the time that passes, half of that once much was seen (workers
of one loader together as much as one process), and comes less often where it costs more. No local variable is read, and
no source file: the report quotes them. The thread does not run across a fork: it ends before, and begins again when the
next step is noted.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections.abc import Iterable
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from .clocks import part
from .recorder import RECORDER, Record, now

__all__ = ["SAMPLER", "Sampler", "call_text"]

INTERVAL = 0.01
FIRST_INTERVAL = 0.02
LONGEST_INTERVAL = 0.2
GOLDEN = 0.618034
FLUSH_NS = 500_000_000
LONGEST_FLUSH_NS = 1_000_000_000
BUDGET = 0.004
# Enough time to have seen what there is to see.
SETTLED_NS = 10_000_000_000
# A thread that runs gives up the interpreter's lock for a look and is woken again after it. What it loses by that is an
# estimate: of a loop that computes all the time, steps with a look took 290 to 360 us longer than others (medians, on
# two virtual cores), of which the look itself is about 100. A thread that waits for something loses nothing.
HANDOVER_NS = 250_000
# A look that comes later than this had to wait for the interpreter's lock, or for a core: timers alone are late by a
# few tenths of a millisecond.
LATE_NS = 700_000
DEPTH = 48
CALL = 200
# Finding the position of an instruction takes a while: not too many of them at once.
RESOLVE_NS = 1_000_000
MOST_OTHERS = 4

_OWN = os.path.dirname(os.path.abspath(__file__))
_LINUX = sys.platform.startswith("linux")


def thread_clock(native: int) -> int:
    """The clock of a thread's CPU time. Reading that of a thread that ended is an error, not a crash."""
    return (~native << 3) | 6


class Sampler:
    """The thread that looks."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        # Held while the thread is to run; cheaper to wait for than an event.
        self._gate = threading.Lock()
        self._forget()
        self._watched: set[int] = set()
        self._hooked = False

    def _forget(self) -> None:
        # Frames by code and instruction; the code is kept alive, so that its id stays its own.
        self._ids: dict[tuple[int, int], int] = {}
        self._codes: dict[int, tuple[CodeType, bool]] = {}
        self._unresolved: list[tuple[int, CodeType, int]] = []
        self._seen: dict[str, dict[tuple[int, ...], list[int]]] = {}
        self._last: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._late = 0
        self._looks = 0
        self._active = 0

    @property
    def running(self) -> bool:
        """Whether the thread exists."""
        return self._thread is not None

    def watch(self, ident: int) -> None:
        """Looks at this thread, too."""
        self._watched.add(ident)

    def start(self) -> None:
        """Starts the thread, if there is none."""
        if self._thread is not None or RECORDER.directory is None:
            return
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(before=self.stop)
            RECORDER.resets.append(self._begin_anew)
        self._gate = threading.Lock()
        self._gate.acquire()
        thread = threading.Thread(target=self._run, name="wellfed-doctor", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except RuntimeError:
            self._thread = None  # The interpreter is ending, or may not have more threads.

    def stop(self) -> None:
        """Ends the thread, and waits for that."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._gate.release()
            thread.join(2.0)

    def _begin_anew(self) -> None:
        self._thread = None
        self._watched.clear()
        self._forget()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception:
            RECORDER.failed("looking at stacks")

    def _loop(self) -> None:
        gate = self._gate
        own = threading.get_ident()
        share = part()
        interval = min(LONGEST_INTERVAL, FIRST_INTERVAL / share)
        period = min(LONGEST_FLUSH_NS, int(FLUSH_NS / share))
        started = begin = before = asleep = now()
        clock = time.thread_time_ns()
        handed = 0.0
        phase = 0.5
        pause = interval
        if self.drain not in RECORDER.drains:
            RECORDER.drain_from(self.drain)
        # Looks from outside begin when this process has a file; a short loop would be over before the first writing.
        if not RECORDER.started:
            RECORDER.flush(wait=False)
        while not gate.acquire(timeout=pause):
            t = now()
            late = max(0, t - asleep - int(pause * 1e9))
            self._late += late
            self._looks += 1
            handed += HANDOVER_NS * self._look(own, t, t - before, late)
            if t - begin >= period:
                RECORDER.flush(wait=False)
                # Less often if all this costs too much, more often if it does not.
                used, clock = time.thread_time_ns() - clock, time.thread_time_ns()
                budget = share * (BUDGET if t - started < SETTLED_NS else BUDGET / 2)
                excess = (used + handed) / (t - begin) / budget
                interval = min(LONGEST_INTERVAL, max(INTERVAL, interval * min(2.0, max(0.8, excess))))
                if seen_from_outside():
                    # What is left to find out here is how long a thread waits for the interpreter's lock.
                    interval = LONGEST_INTERVAL
                begin, handed = t, 0.0
            # Looks at equal distances would find a loop of twice that period at the same two places each time.
            phase = (phase + GOLDEN) % 1
            pause = interval * (0.5 + phase)
            before, asleep = t, now()

    def _look(self, own: int, t: int, passed: int, late: int) -> float:
        """Returns the share of the time since the last look in which the threads that were seen ran, at most 1."""
        threads = threading._active  # type: ignore[attr-defined]
        frames = sys._current_frames()
        main = threading.main_thread().ident
        others = ran = 0
        try:
            for ident, frame in frames.items():
                if ident == own:
                    continue
                thread = threads.get(ident)
                if thread is None:
                    continue
                if ident == main:
                    name = "MainThread"
                elif ident in self._watched:
                    name = thread.name
                else:
                    name = role_of(thread.name)
                    if not name or others >= MOST_OTHERS:
                        continue
                    others += 1
                ran += self._note(name, ident, thread.native_id, frame, passed, late)
        finally:
            frames.clear()  # It holds the frame of this very call.
        return min(1.0, ran / max(1, passed))

    def _note(
        self, name: str, ident: int, native: int | None, frame: FrameType | None, passed: int, late: int
    ) -> int:
        """Returns the CPU time that the thread used since the last look, nanoseconds."""
        clock = thread_clock(native) if native is not None and _LINUX else None
        try:
            begin, first = now(), 0 if clock is None else time.clock_gettime_ns(clock)
            stack: list[int] = []
            ids = self._ids
            while frame is not None and len(stack) < DEPTH:
                code = frame.f_code
                key = ids.get((id(code), frame.f_lasti))
                if key is None:
                    key = self.frame(code, frame.f_lasti)
                if key >= 0:
                    stack.append(key)
                frame = frame.f_back
            cpu = 0 if clock is None else time.clock_gettime_ns(clock)
            looked = now() - begin
        except OSError:
            return 0  # It ended meanwhile.
        found = tuple(stack)
        last = self._last.get(ident)
        if last is None or last[0] > cpu:
            used = 0
            changed = True
        else:
            used = cpu - last[0]
            changed = last[1] != found
        self._last[ident] = (cpu, found)
        if changed or used * 5 > passed:
            self._active += 1
        # It runs now, in code that does not hold the interpreter's lock; or it ran while this thread waited for the
        # lock, and is found where it gave that up.
        runs = 2 * (cpu - first) > looked or (late > LATE_NS and 4 * used > 3 * late)
        rows = self._seen.setdefault(name, {})
        row = rows.get(found)
        if row is None:
            row = rows[found] = [0, 0, 0]
        row[0] += 1
        row[1] += passed
        row[2] += passed if runs else 0
        return used

    def frame(self, code: CodeType, lasti: int) -> int:
        """Number of a frame in this process's file; -1 for one of ours. Only for the thread that writes."""
        number = id(code)
        key = self._ids.get((number, lasti))
        if key is None:
            known = self._codes.get(number)
            if known is None:
                self._codes[number] = known = (code, code.co_filename.startswith(_OWN))
            key = -1 if known[1] else len(self._ids)
            self._ids[number, lasti] = key
            if key >= 0:
                self._unresolved.append((key, code, lasti))
        return key

    def described(self) -> Iterable[Record]:
        """New frames: at the end all of them, in between as many as are found quickly."""
        if self._unresolved:
            limit = now() + (RESOLVE_NS if self._thread is not None else 500 * RESOLVE_NS)
            rows: list[dict[str, Any]] = []
            while self._unresolved and (not rows or now() < limit):
                rows.append(resolve(*self._unresolved.pop()))
            yield {"k": "frames", "rows": rows}

    def drain(self) -> Iterable[Record]:
        """What was seen since the last time."""
        records: list[Record] = list(self.described())
        t = now()
        seen, self._seen = self._seen, {}
        for thread, stacks in seen.items():
            shown = [
                {"frames": frames, "n": n, "wall": wall, "cpu": cpu}
                for frames, (n, wall, cpu) in stacks.items()
            ]
            records.append({"k": "stacks", "t": t, "thread": thread, "rows": shown})
        if self._looks:
            records.append(
                {
                    "k": "gil",
                    "t": t,
                    "n": self._looks,
                    "late": self._late,
                    "threads": round(self._active / self._looks, 3),
                }
            )
            self._late = self._looks = self._active = 0
        return records


def seen_from_outside() -> bool:
    """Whether the starter of the script looks at this process's stacks, which needs no lock."""
    return os.path.exists(os.path.join(str(RECORDER.directory), f"{os.getpid()}.looks"))


def role_of(name: str) -> str:
    """What a thread of torch's or ours is called in records; nothing for those that are not looked at."""
    if name.startswith("QueueFeederThread"):
        return "QueueFeederThread"
    if "pin_memory" in name:
        return "pin_memory"
    if name.startswith("wellfed"):
        return name
    return ""


def resolve(number: int, code: CodeType, lasti: int) -> dict[str, Any]:
    """A frame as it is written."""
    line, last, column, end = place(code, lasti)
    row: dict[str, Any] = {
        "id": number,
        "file": code.co_filename,
        "func": getattr(code, "co_qualname", code.co_name),
        "line": line,
    }
    if None not in (last, column, end):
        row["span"] = [last, column, end]
    if in_memory(code.co_filename):
        row["call"] = call_text(code.co_filename, line, last, column, end)
    return row


def place(code: CodeType, lasti: int) -> tuple[int, int | None, int | None, int | None]:
    """First and last line of an instruction's expression, and the columns of its begin and end."""
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        found = next(islice(positions(), max(0, lasti) // 2, None), None)
        if found is not None and found[0] is not None:
            line, last, column, end = found
            return line, last, column, end
    line = code.co_firstlineno
    for start, _, number in code.co_lines():
        if start > lasti:
            break
        line = number or line
    return line, None, None, None


def in_memory(file: str) -> bool:
    """Whether source exists in this process only, as that of notebooks' cells does."""
    entry: tuple[Any, ...] = linecache.cache.get(file, ())
    return len(entry) > 1 and entry[1] is None


def call_text(
    file: str, line: int, last: int | None, column: int | None, end: int | None, limit: int = CALL
) -> str:
    """Source from `line` and `column` (in bytes) on, in one line; the whole line where there are no columns."""
    if last is None or column is None or end is None:
        text = linecache.getline(file, line)
    else:
        lines = [linecache.getline(file, i).encode() for i in range(line, min(last, line + 20) + 1)]
        if line == last:
            part = lines[0][column:end]
        else:
            lines[0] = lines[0][column:]
            if last - line < len(lines):
                lines[-1] = lines[-1][:end]
            part = b" ".join(lines)
        text = part.decode(errors="replace")
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


SAMPLER = Sampler()
"""This process's."""
