"""Where in the user's code something happened, and the text of the call that did it.

Invariant: what is given as a call's text is the source, byte for byte, in whole lines that begin a statement, so that a
changed copy can stand in its place.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Collection
from itertools import islice
from types import FrameType, ModuleType
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


# Lines of a statement that are given.
LINES = 60


def of_caller(
    limit: int = 400, made: type | None = None, methods: Collection[str] = ()
) -> dict[str, Any] | None:
    """The innermost statement on the stack that is neither ours nor a library's.

    Args:
        limit: Characters of the statement that are given at most.
        made: The class whose constructor it calls. If it does so by the class's own name, ``call`` is where in ``code``
            that call stands, in bytes, and nothing of ``code`` is left out.
        methods: Names of methods of which it calls one, in place of ``made``; ``call`` has what that is called on, too.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return None
    code, line = frame.f_code, frame.f_lineno
    span: tuple[Any, ...] | None = None
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        found = next(islice(positions(), max(0, frame.f_lasti) // 2, None), None)
        if found is not None and found[0] is not None:
            span = found
            line = found[0]
    file = os.path.abspath(code.co_filename)
    if made is not None or methods:
        try:
            exact = _exactly(frame, span, made, methods)
        except Exception:  # Files that have changed meanwhile, names that are not there yet.
            exact = None
        if exact is not None:
            return {"file": file, **exact, "wellfed": _name_of_wellfed(frame)}
    last = (span[1] if span is not None else None) or line
    lines = [linecache.getline(code.co_filename, i) for i in range(line, min(last, line + 30) + 1)]
    text = " ".join(" ".join(lines).split()) or call_text(code.co_filename, line, None, None, None)
    return {"file": file, "line": line, "code": shorten(text, limit)}


def _exactly(
    frame: FrameType, span: tuple[Any, ...] | None, made: type | None, methods: Collection[str]
) -> dict[str, Any] | None:
    """Line, code and call of the constructor's or the method's call that a frame is in."""
    lines = tuple(linecache.getlines(frame.f_code.co_filename))
    if methods:
        calls = [call for call in _calls(lines) if _calls_method(call, methods) and _ends_at(call, span)]
    else:
        calls = [call for call in _calls(lines) if _is_at(call, frame.f_lineno, span)]
        calls = [call for call in calls if _names(frame, call.func) is made]
    if len(calls) != 1:
        return None
    (call,) = calls
    end = call.end_lineno or call.lineno
    statement = _statement(lines, call.lineno, end)
    if statement is None:
        return None
    first = statement.lineno
    last = end if hasattr(statement, "body") else statement.end_lineno or end
    if last - first >= LINES:
        return None
    before = sum(len(line.encode()) for line in lines[first - 1 : call.lineno - 1])
    until = sum(len(line.encode()) for line in lines[first - 1 : end - 1])
    text = "".join(lines[first - 1 : last]).rstrip("\n")
    return {
        "line": first,
        "code": text,
        "call": [before + call.col_offset, until + (call.end_col_offset or 0)],
    }


def _is_at(call: ast.Call, line: int, span: tuple[Any, ...] | None) -> bool:
    """Whether a call is the one that runs: by its exact position, or by the line where that is not known."""
    end = call.end_lineno or call.lineno
    if span is None or None in span:
        return call.lineno <= line <= end
    return (call.lineno, end, call.col_offset, call.end_col_offset) == tuple(span)


def _calls_method(call: ast.Call, methods: Collection[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in methods


def _ends_at(call: ast.Call, span: tuple[Any, ...] | None) -> bool:
    """Whether a method's call is the one that runs: Python says where it ends, and where the method's name stands."""
    return span is not None and (call.end_lineno, call.end_col_offset) == (span[1], span[3])


@functools.lru_cache(8)
def _tree(lines: tuple[str, ...]) -> ast.Module:
    return ast.parse("".join(lines))


def _calls(lines: tuple[str, ...]) -> list[ast.Call]:
    return [node for node in ast.walk(_tree(lines)) if isinstance(node, ast.Call)]


def _statement(lines: tuple[str, ...], first: int, last: int) -> ast.stmt | None:
    """The innermost statement around these lines before which another one can be put."""
    found: ast.stmt | None = None
    for node in ast.walk(_tree(lines)):
        if not isinstance(node, ast.stmt) or not node.lineno <= first <= last <= (node.end_lineno or 0):
            continue
        line = lines[node.lineno - 1].encode()
        alone = len(line) - len(line.lstrip()) == node.col_offset and not line.lstrip().startswith(b"elif")
        if (
            alone
            and not getattr(node, "decorator_list", None)
            and (found is None or node.lineno > found.lineno)
        ):
            found = node
    return found


def _names(frame: FrameType, node: ast.expr) -> Any:
    """What a name stands for in a frame, or an attribute of a module."""
    if isinstance(node, ast.Name):
        code = frame.f_code
        if node.id in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            return None  # Another call of the same function may be given something else.
        local = node.id in code.co_varnames or node.id in code.co_cellvars or node.id in code.co_freevars
        return (frame.f_locals if local else frame.f_globals).get(node.id)
    if isinstance(node, ast.Attribute):
        module = _names(frame, node.value)
        return vars(module).get(node.attr) if isinstance(module, ModuleType) else None
    return None


def _name_of_wellfed(frame: FrameType) -> str | None:
    """What the script calls wellfed, if it has imported it."""
    module = sys.modules.get("wellfed")
    names = (name for name, value in frame.f_globals.items() if module is not None and value is module)
    return next(names, None)


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
