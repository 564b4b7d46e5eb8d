"""`Tracer`: which functions a sample's time goes to, exactly, for some samples.

Looking at stacks needs the interpreter's lock, so that work which holds it is seen late, and under the name of whatever
gives it up next: reading a file, say, in place of the Python code before. A profile function is told of every call.

Invariants: at most one sample at a time is traced in a thread, never under somebody else's profiler. Time spent here
is not counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from .recorder import Record, now
from .stacks import SAMPLER

__all__ = ["Tracer"]

thread_time = time.thread_time_ns

# Nanoseconds that an event costs, without the time of what is traced.
EVENT_NS = 2500
DEPTH = 48
MOST_NODES = 4000


class Node:
    """A call: of a Python function, or of a C function (without code) from its caller's code.

    Attributes:
        children: By the instruction that calls, and the code's id.
    """

    __slots__ = ("children", "code", "count", "cpu", "parent", "wall")

    def __init__(self, parent: Node | None, code: CodeType | None) -> None:
        self.parent = parent
        self.code = code
        self.children: dict[tuple[int, int], Node] = {}
        self.count = self.wall = self.cpu = 0


class Tracer:
    """What traced samples consisted of.

    Attributes:
        samples: Traced since the last record.
        events: Of the last sample.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.events = 0
        self._forget()

    def _forget(self) -> None:
        self._root = self._current = Node(None, None)
        self._nodes = 0
        self._t = self._c = 0

    @property
    def possible(self) -> bool:
        """Whether nobody else profiles this thread."""
        return sys.getprofile() is None and self._nodes < MOST_NODES

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function returns or raises, traced."""
        self._current = self._root
        self.events = 0
        self.samples += 1
        self._t, self._c = now(), thread_time()
        sys.setprofile(self._event)
        try:
            return function(*args)
        finally:
            sys.setprofile(None)
            self._current = self._root

    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        t, c = now(), thread_time()
        current = self._current
        current.wall += t - self._t
        current.cpu += c - self._c
        self.events += 1
        if event == "call":
            back = frame.f_back
            self._enter(back.f_lasti if back is not None else -1, frame.f_code)
        elif event == "c_call":
            self._enter(frame.f_lasti, None)
        elif current.parent is not None:
            self._current = current.parent
        self._t, self._c = now(), thread_time()

    def _enter(self, site: int, code: CodeType | None) -> None:
        current = self._current
        key = (site, id(code))
        node = current.children.get(key)
        if node is None:
            node = current.children[key] = Node(current, code)
            self._nodes += 1
        node.count += 1
        self._current = node

    def record(self) -> Record | None:
        """What was traced since the last time."""
        if not self.samples or self._current is not self._root:
            return None
        root, samples = self._root, self.samples
        self._forget()
        self.samples = 0
        rows: list[Record] = []
        # Each with the frames of its callers, innermost first. What a C function does is done by the expression that
        # called it.
        waiting: list[tuple[Node, tuple[int, ...]]] = [(node, ()) for node in root.children.values()]
        while waiting:
            node, callers = waiting.pop()
            frames = callers if node.code is None else framed(node.code, -1, callers)
            if node.wall and frames:
                rows.append({"frames": frames, "n": node.count, "wall": node.wall, "cpu": node.cpu})
            site, outer = None, callers
            for (at, _), child in node.children.items():
                if node.code is not None and at != site:
                    site, outer = at, framed(node.code, at, callers)
                waiting.append((child, outer))
        return {"k": "profile", "t": now(), "samples": samples, "rows": rows}


def framed(code: CodeType, site: int, callers: tuple[int, ...]) -> tuple[int, ...]:
    """A frame and those of its callers."""
    number = SAMPLER.frame(code, site)
    return callers if number < 0 else (number, *callers[: DEPTH - 1])
