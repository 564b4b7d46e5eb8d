"""Where in the user's code something happened."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from itertools import islice
from types import FrameType
from typing import Any

from .stacks import call_text

__all__ = ["of_caller", "qualified", "shorten"]

_OWN = os.path.dirname(os.path.abspath(__file__))
_LIBRARIES = tuple(
    {
        os.path.join(path, "")
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_HOUSE = os.path.dirname(os.path.dirname(os.path.dirname(_OWN)))


def is_library(file: str) -> bool:
    """Whether a file belongs to Python, to an installed package, or to wellfed."""
    return file.startswith((*_LIBRARIES, os.path.join(_HOUSE, ""), "<frozen")) or "site-packages" in file


def of_caller(limit: int = 400) -> dict[str, Any] | None:
    """The innermost statement on the stack that is neither ours nor a library's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code, line = frame.f_code, frame.f_lineno
    last: int | None = None
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        found = next(islice(positions(), max(0, frame.f_lasti) // 2, None), None)
        if found is not None and found[0] is not None:
            line, last = found[0], found[1]
    lines = [linecache.getline(code.co_filename, i) for i in range(line, min(last or line, line + 30) + 1)]
    text = " ".join(" ".join(lines).split()) or call_text(code.co_filename, line, None, None, None)
    return {"file": os.path.abspath(code.co_filename), "line": line, "code": shorten(text, limit)}


def shorten(text: str, limit: int = 400) -> str:
    """At most `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def qualified(value: Any) -> str:
    """Qualified name of a class, or of a function."""
    name = getattr(value, "__qualname__", None)
    if name is None:
        # functools.partial and other callables.
        inner = getattr(value, "func", None)
        return qualified(inner) if inner is not None else qualified(type(value))
    module = getattr(value, "__module__", None)
    return str(name) if module in (None, "builtins", "__main__") else f"{module}.{name}"
