"""Collate functions that leave samples as they are and only put them side by side.

``lambda batch: tuple(zip(*batch))`` is how torchvision's references collate images whose targets differ in size. Called
on samples of a native batch it costs microseconds, so such a loader needs no worker processes. Any other function may
be slow, and is called where torch calls it. Invariant: a function is known by all that decides what it does.
"""

from __future__ import annotations
import __future__

import builtins
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

__all__ = ["puts_together"]

_FORMS: tuple[Callable[[Any], Any], ...] = (
    lambda batch: tuple(zip(*batch)),
    lambda batch: list(zip(*batch)),
    lambda batch: zip(*batch),
    lambda batch: tuple(batch),
    lambda batch: list(batch),
    lambda batch: batch,
)


_NO_MATTER = inspect.CO_NESTED
"""Flags of code that change nothing in what it does: among them what its file imports from the future."""

for _name in __future__.all_feature_names:
    _NO_MATTER |= getattr(__future__, _name).compiler_flag


def _text(code: CodeType) -> tuple[Any, ...]:
    """What code does, without the names of its variables, and where it was written."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, len(code.co_varnames)
    return code.co_code, code.co_names, counts, code.co_flags & ~_NO_MATTER, code.co_freevars


_KNOWN = frozenset(_text(form.__code__) for form in _FORMS)


def puts_together(function: Any) -> bool:
    """Whether `function` is one of those, and its names are Python's own."""
    if type(function) is not FunctionType or _text(function.__code__) not in _KNOWN:
        return False
    if function.__defaults__ is not None or function.__kwdefaults__ is not None:
        return False
    ours = {"tuple": tuple, "list": list, "zip": zip}
    own, builtin = function.__globals__, vars(builtins)
    return all(own.get(name, builtin.get(name)) is ours[name] for name in function.__code__.co_names)
