"""Statements that can be left out for a trial, which measures what any fix of them could gain at most.

Kinds: ``skip`` (a call whose value nobody uses does nothing), ``keep`` (a value is one of those that the statement gave
before) and ``first`` (a loop or a comprehension has one turn). These are no changes for the user: results become
wrong. Invariant: lines keep their numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from .source import FUNCTIONS, Source, where

__all__ = ["left_out"]

# Without these nothing is trained, or what follows has nothing to go on with.
NEEDED = {
    *("backward", "step", "zero_grad", "unscale_", "fit", "train", "eval", "main", "seed", "manual_seed"),
    *("append", "appendleft", "extend", "insert", "add", "put", "send", "recv", "join", "start", "close"),
    *("set_epoch", "apply_gradients", "setdefault", "init_process_group", "super"),
    *("gradient", "minimize", "value_and_grad"),
}
# Parts of names of functions that are a whole step of training, unless they tell of one.
STEP = {"step", "train"}
TELL = {"log", "save", "record", "plot", "report", "write", "dump", "print", "metric", "metrics"}
# What makes a compiled function of one: its calls are the step, of frameworks whose stacks do not say so.
COMPILES = {"jit", "pmap", "function", "compile"}
# Functions of a model: their loops go over layers, not over samples.
MODEL = {"forward", "call", "__call__"}
# A loop with these in it takes batches and trains.
TRAINS = {"backward", "step", "zero_grad", "apply_gradients", "train_on_batch", "train_step"}
BATCHES = ("loader", "dataloader", "batches")

KEPT = '__import__("wellfed_probe.kept", fromlist=["kept"])'

_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
# What a lambda must not hold, or what would be another thing in it.
_BOUND = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.Lambda)


def left_out(source: Source) -> Iterator[dict[str, Any]]:
    """Statements within functions, with the lines that leave each of them out."""
    compiled = _compiled(source.tree)
    site = 0
    for node in ast.walk(source.tree):
        if not isinstance(node, (ast.stmt, *_COMPREHENSIONS)):
            continue
        function = source.function(node)
        if function is None or function.name == "__init__":
            continue
        site += 1
        if _calls(node) & compiled and not isinstance(node, (ast.For, *_COMPREHENSIONS)):
            continue
        for kind, hunks in _forms(source, node, function, site):
            if hunks and not (kind == "first" and function.name in MODEL):
                first, last = where(node)
                yield {"kind": kind, "line": first, "last": last, "func": function.name, "hunks": hunks}


def _forms(source: Source, node: Any, function: ast.AST, site: int) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(node, ast.Expr):
        value: Any = node.value
        if isinstance(value, ast.Call) and _may_go(value) and source.alone(node):
            first, last = where(node)
            indent = source.lines[first - 1][: node.col_offset].decode()
            code = b"\n".join(source.lines[first - 1 : last]).decode()
            yield "skip", [{"line": first, "code": code, "change": f"{indent}pass" + "\n" * (last - first)}]
        elif _appends(value) and _may_go(value.args[0]):
            yield "keep", _kept(source, value.args[0], function, site)
        elif isinstance(value, ast.Yield) and value.value is not None and _may_go(value.value):
            yield "keep", _kept(source, value.value, function, site)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)):
        if node.value is not None and _may_go(node.value):
            yield "keep", _kept(source, node.value, function, site)
    elif isinstance(node, ast.For):
        if not _takes_batches(node):
            yield "first", source.hunks([(node.iter, f"{KEPT}.first({source.text(node.iter)})")])
    elif isinstance(node, _COMPREHENSIONS):
        over = node.generators[0].iter
        yield "first", source.hunks([(over, f"{KEPT}.first({source.text(over)})")])


def _appends(value: ast.expr) -> bool:
    """Whether it appends to a list, which others may go through: what is appended is kept, as any other value."""
    called = getattr(value.func, "attr", "") if isinstance(value, ast.Call) else ""
    return called == "append" and isinstance(value, ast.Call) and len(value.args) == 1


def _calls(node: ast.AST) -> set[str]:
    """Names of the functions that are called somewhere in it."""
    functions = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {getattr(function, "attr", getattr(function, "id", "")) for function in functions}


def _may_go(value: ast.expr) -> bool:
    calls = _calls(value)
    parts = [set(name.lower().split("_")) for name in calls]
    needed = calls & NEEDED or any(part & STEP and not part & TELL for part in parts)
    return bool(calls) and not needed and not any(isinstance(n, _BOUND) for n in ast.walk(value))


def _compiled(tree: ast.AST) -> set[str]:
    """Names of functions that the file compiles."""

    def compiles(node: ast.AST) -> bool:
        parts = {getattr(inner, "attr", getattr(inner, "id", "")) for inner in ast.walk(node)}
        return bool(parts & COMPILES)

    found = set()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and any(map(compiles, node.decorator_list)):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and compiles(node.value.func):
            found |= {getattr(target, "attr", getattr(target, "id", "")) for target in node.targets}
    return found - {""}


def _takes_batches(loop: ast.For) -> bool:
    over = {getattr(n, "id", getattr(n, "attr", "")).lower() for n in ast.walk(loop.iter)}
    return bool(_calls(loop) & TRAINS) or any(name.endswith(BATCHES) for name in over)


def _kept(source: Source, value: ast.expr, function: ast.AST, site: int) -> list[dict[str, Any]]:
    """Its value kept by the shapes of the local variables that it is made from."""
    within = {
        target.id
        for node in ast.walk(value)
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
        if isinstance(target, ast.Name)
    }
    local = _locals(function)
    names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} & local - within - {"self"}
    inputs = "".join(f", {name}" for name in sorted(names))
    text = source.text(value)
    # A bracket keeps what stands on several lines together.
    return source.hunks([(value, f"{KEPT}.kept({site}, lambda: ({text}){inputs})")])


def _locals(function: ast.AST) -> set[str]:
    assert isinstance(function, FUNCTIONS)
    found = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found
