"""How a function is written: the syntax tree of exactly what runs.

Invariant: a tree is given only if the file it stands in, compiled now, gives the very code of the function; so a file
that was edited since it was imported, a function that was replaced, and code that never stood in a file have none.
"""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
import os
import warnings
from types import CodeType, FunctionType

__all__ = ["definition", "place_of"]

_LARGEST = 4 << 20
"""Characters of a file that is looked at; larger ones are not written by hand."""

_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


def definition(function: FunctionType) -> ast.FunctionDef | ast.Lambda | None:
    """The syntax tree of `function`; None if its source is not there, or is not what runs."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text or len(text) > _LARGEST:
        return None
    found = _functions(text, code.co_filename, code.co_flags & _FUTURE).get(
        (code.co_name, code.co_firstlineno)
    )
    if found is None or len(found) != 1:
        return None  # several in one line cannot be told apart
    compiled, node = found[0]
    return node if compiled == code else None


def place_of(function: FunctionType, node: ast.AST) -> str:
    """Where `node` of `function` stands, as people look for it."""
    return f"{os.path.basename(function.__code__.co_filename)}, line {getattr(node, 'lineno', '?')}"


_Function = ast.FunctionDef | ast.Lambda


@functools.lru_cache(64)
def _functions(text: str, name: str, future: int) -> dict[tuple[str, int], list[tuple[CodeType, _Function]]]:
    """What is defined in a file, by name and first line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said already when it was imported
            tree = ast.parse(text, name)
            whole = compile(tree, name, "exec", flags=future, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    codes: dict[tuple[str, int], list[CodeType]] = {}
    left = [whole]
    while left:
        code = left.pop()
        codes.setdefault((code.co_name, code.co_firstlineno), []).append(code)
        left += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    found: dict[tuple[str, int], list[tuple[CodeType, _Function]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            key = node.name, min(lines)
        elif isinstance(node, ast.Lambda):
            key = "<lambda>", node.lineno
        else:
            continue
        found.setdefault(key, []).extend((code, node) for code in codes.get(key, ()))
    return found
