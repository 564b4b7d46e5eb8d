"""Changes of a script for slow code whose form its syntax tree shows: lines, and those that can stand in their place.

Run by the doctor after the script has ended, in an interpreter of its own: `main` prints a list as JSON.
Invariant: a changed script gives the samples and losses that it gave. What cannot be told from the file alone (a name
that may stand for something else, a frame that is written to later) is no known form, and gets no change.

Kinds: ``map`` (`np.load` of a file of which a part is used), ``rows`` (pandas' `.iloc[i]` for each sample), ``threads``
(`torch.set_num_threads` in workers), ``every`` (what is logged in each step), and those of `edits_kept` (``connect``,
``open``, ``lazy``) and `edits_batches` (``pad``, ``share``, ``async``). ``loops``, ``straight`` and ``same`` are no
changes: functions that loop in Python, and not over batches; those in which nothing is done again and again; and calls
that open the same file for all samples. `main` adds what trials leave out: see `edits_left`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .edits_batches import asynchronous, padded, shared
from .edits_kept import connected, lazily, opened, same
from .edits_left import left_out
from .source import FUNCTIONS, Found, Source, where

__all__ = ["edits_of"]

# Steps between two lines of a log.
EVERY = 50
# Longer files are left alone.
MOST_BYTES = 2_000_000

# Functions that write to a log, and others where their words say that it is one.
LOGGING = {
    "add_scalar",
    "add_scalars",
    "critical",
    "debug",
    "error",
    "info",
    "log",
    "log_metrics",
    "print",
    "set_description",
    "set_postfix",
    "set_postfix_str",
    "warning",
}
WRITING = {"flush", "fsync", "write", "writerow"}


def edits_of(text: str) -> list[dict[str, Any]]:
    """Known forms in a file: kind, first and last line of what is slow, and the changed lines."""
    source = Source(text.replace("\r\n", "\n"))
    found: list[dict[str, Any]] = []
    for kind, form in FORMS.items():
        for line, last, hunks, function in form(source):
            if hunks:
                found.append({"kind": kind, "line": line, "last": last, "func": function, "hunks": hunks})
    return found + list(_loops(source)) + list(_straight(source)) + list(_same(source))


def _calls(source: Source, module: str, name: str) -> Iterator[ast.Call]:
    """Calls of a module's function, by the module's name."""
    known = source.modules(module)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name:
            value = node.func.value
            if isinstance(value, ast.Name) and value.id in known:
                yield node


def _threads(source: Source) -> Found:
    """`torch.set_num_threads(8)` in what workers run: one thread each."""
    starters = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg == "worker_init_fn":
            value = node.value
            if isinstance(value, ast.Call) and value.args:
                value = value.args[0]  # functools.partial
            starters.add(value.id if isinstance(value, ast.Name) else getattr(value, "attr", ""))
    for call in _calls(source, "torch", "set_num_threads"):
        function = source.function(call)
        if function is None or len(call.args) != 1 or call.keywords:
            continue
        argument = call.args[0]
        if isinstance(argument, ast.Starred) or (isinstance(argument, ast.Constant) and argument.value == 1):
            continue
        kind = source.kind(call)
        methods = {f.name for f in kind.body if isinstance(f, FUNCTIONS)} if kind is not None else set()
        if function.name in starters or methods & {"__getitem__", "__getitems__", "__iter__"}:
            yield (*where(call), source.hunks([(argument, "1")]), function.name)


def _map(source: Source) -> Found:
    """`np.load(path)` of which a part is used: mapped, so that only that part is read.

    Copy-on-write (``"c"``): what is done to the array afterwards works as before, and stays in memory.
    """
    for call in _calls(source, "numpy", "load"):
        function = source.function(call)
        if function is None or len(call.args) != 1 or call.keywords:
            continue
        (argument,) = call.args
        text = source.text(call)
        path = {
            ast.Starred: False,
            ast.Call: _plain_path(argument),
            ast.Constant: isinstance(getattr(argument, "value", None), str),
            ast.Name: getattr(argument, "id", "") not in _opened(function),
        }.get(type(argument), True)
        if path and "npz" not in text and "#" not in text and _partly_used(source, call, function):
            changed = text[:-1].rstrip().rstrip(",") + ', mmap_mode="c")'
            yield (*where(call), source.hunks([(call, changed)]), function.name)


def _plain_path(argument: ast.expr) -> bool:
    """Whether a call gives a path: `str(…)`, `os.path.join(…)`, `"…".format(…)`."""
    function = argument.func if isinstance(argument, ast.Call) else None
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return name in ("str", "join", "format", "Path", "fspath")


def _opened(function: ast.AST) -> set[str]:
    """Names that stand for open files."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            found.add(node.optional_vars.id)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            if getattr(called, "id", getattr(called, "attr", "")) in ("open", "BytesIO"):
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _part(node: ast.Subscript) -> bool:
    """Whether a subscript takes a part of an array: an index or a bounded slice, no field of an archive."""
    index = node.slice
    if isinstance(index, ast.Constant):
        return isinstance(index.value, int)
    if isinstance(index, ast.Slice):
        return index.lower is not None or index.upper is not None
    if isinstance(index, ast.Tuple):
        return bool(index.elts) and not isinstance(index.elts[0], ast.Slice)
    return True


def _partly_used(source: Source, call: ast.Call, function: ast.AST) -> bool:
    """Whether all that is done with what a call gives is taking parts of it."""
    parent = source.parents[call]
    if isinstance(parent, ast.Subscript) and parent.value is call:
        return _part(parent) and isinstance(parent.ctx, ast.Load)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    (target,) = parent.targets
    if not isinstance(target, ast.Name):
        return False
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == target.id]
    if sum(isinstance(node.ctx, ast.Store) for node in uses) != 1:
        return False
    parts = 0
    for use in uses:
        if use is target:
            continue
        by = source.parents[use]
        if isinstance(by, ast.Subscript) and by.value is use and isinstance(by.ctx, ast.Load) and _part(by):
            parts += 1
        elif not (isinstance(by, ast.Attribute) and by.attr in ("shape", "dtype", "ndim", "size")) and not (
            isinstance(by, ast.Call) and isinstance(by.func, ast.Name) and by.func.id == "len"
        ):
            return False
    return parts > 0


def _rows(source: Source) -> Found:
    """`self.frame.iloc[i]` in `__getitem__`, of whose row columns are taken by name: arrays of columns, made once.

    A row is a Series, which brings numbers of several types to one: so are the columns.
    """
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)):
            continue
        frame = _framed(node)
        function, kind = source.function(node), source.kind(node)
        if frame is None or kind is None or function is None or function.name != "__getitem__":
            continue
        arguments = function.args.args
        if len(arguments) != 2 or not isinstance(node.slice, ast.Name) or node.slice.id != arguments[1].arg:
            continue
        last = _made_in_init(source, kind, frame)
        if last is None:
            continue
        columns = f"_{frame}_columns".replace("__", "_")
        taken = {n.attr for n in ast.walk(kind) if isinstance(n, ast.Attribute)}
        index = node.slice.id
        row = f"{{name: column[{index}] for name, column in self.{columns}.items()}}"
        if columns in taken or index in ("name", "column") or not _columns_by_name(source, node, function):
            continue
        first = last.lineno - 1
        indent = source.lines[first][: len(source.lines[first]) - len(source.lines[first].lstrip())].decode()
        added = "\n".join(
            indent + line
            for line in (
                f"row_type = self.{frame}.iloc[0].dtype",
                f"typed = self.{frame} if row_type == object else self.{frame}.astype(row_type)",
                f"self.{columns} = {{name: column.array for name, column in typed.items()}}",
            )
        )
        end = last.end_lineno or last.lineno
        if node.lineno <= end <= (node.end_lineno or node.lineno):
            continue
        yield (*where(node), source.hunks([(node, row)], [(end, added)]), function.name)


def _framed(node: ast.Subscript) -> str | None:
    """`frame` of `self.frame.iloc[…]`."""
    value = node.value
    if isinstance(value, ast.Attribute) and value.attr == "iloc" and isinstance(value.value, ast.Attribute):
        inner = value.value
        if isinstance(inner.value, ast.Name) and inner.value.id == "self":
            return inner.attr
    return None


def _made_in_init(source: Source, kind: ast.ClassDef, frame: str) -> ast.stmt | None:
    """The last statement of `__init__`, where that alone sets `self.frame`, and nothing else writes to it."""
    made = [f for f in kind.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"]
    if len(made) != 1 or any(isinstance(node, (ast.Return, ast.Yield)) for node in ast.walk(made[0])):
        return None
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Attribute) and node.attr == frame):
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "self" and source.kind(node) is not kind:
            continue  # Another class's.
        inside = source.function(node) is made[0]
        by = source.parents[node]
        while isinstance(by, (ast.Attribute, ast.Subscript)):
            if isinstance(by.ctx, (ast.Store, ast.Del)) and not inside:
                return None
            by = source.parents[by]
        if isinstance(node.ctx, (ast.Store, ast.Del)) and not inside:
            return None
        if (
            isinstance(by, ast.Call)
            and any(keyword.arg == "inplace" for keyword in by.keywords)
            and not inside
        ):
            return None
    stores = [
        node
        for node in ast.walk(made[0])
        if isinstance(node, ast.Attribute) and node.attr == frame and isinstance(node.ctx, ast.Store)
    ]
    last = made[0].body[-1]
    return last if stores and source.alone(last) else None


def _columns_by_name(source: Source, row: ast.Subscript, function: ast.AST) -> bool:
    """Whether of a row only columns are taken, by names that stand there."""

    def by_name(node: ast.AST) -> bool:
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        )

    parent = source.parents[row]
    if isinstance(parent, ast.Subscript) and parent.value is row:
        return by_name(parent)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    (target,) = parent.targets
    if not isinstance(target, ast.Name):
        return False
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == target.id]
    return sum(isinstance(node.ctx, ast.Store) for node in uses) == 1 and all(
        use is target or by_name(source.parents[use]) for use in uses
    )


def _every(source: Source) -> Found:
    """What is logged in each step of a loop: every so many steps."""
    for loop in ast.walk(source.tree):
        if not isinstance(loop, ast.For) or _counts(loop.iter):
            continue
        group: list[ast.stmt] = []
        for statement in [*loop.body, None]:
            if statement is not None and _logs(statement) and source.alone(statement):
                group.append(statement)
                continue
            if group:
                yield _seldom(source, loop, group)
            group = []


def _counts(iterator: ast.expr) -> bool:
    """Whether a loop counts, as those over epochs do, rather than taking batches."""
    return isinstance(iterator, ast.Call) and getattr(iterator.func, "id", "") in ("range", "trange")


def _logs(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    function = statement.value.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    text = [n for n in ast.walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr))]
    # Its lines are moved to the right: a string that has several of them would change.
    whole = all(node.lineno == node.end_lineno for node in text)
    gives = any(isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield)) for node in ast.walk(statement))
    called = ast.unparse(statement.value).partition("f'")[0].partition('"')[0].lower()
    known = name in LOGGING or (name in WRITING and "log" in called)
    return known and whole and not gives


def _seldom(source: Source, loop: ast.For, group: list[ast.stmt]) -> tuple[int, int, list[Any], str]:
    first, last = group[0], group[-1]
    begin, end = first.lineno, last.end_lineno or last.lineno
    lines = source.lines[begin - 1 : end]
    indent = lines[0][: first.col_offset]
    target, iterator = loop.target, loop.iter
    changes: list[tuple[ast.expr, str]] = []
    enumerates = isinstance(iterator, ast.Call) and getattr(iterator.func, "id", "") == "enumerate"
    if enumerates and isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name):
        step = target.elts[0].id
    elif enumerates or target.lineno != (iterator.end_lineno or 0) or loop.lineno == begin:
        return begin, end, [], ""
    else:
        step = source.unused("step", "step_number", "number_of_step")
        inner = source.text(target)
        if isinstance(target, ast.Tuple) and not inner.startswith("("):
            inner = f"({inner})"
        changes = [(target, f"{step}, {inner}"), (iterator, f"enumerate({source.text(iterator)})")]
    moved = "\n".join((b"    " + line if line.strip() else line).decode() for line in lines)
    hunks = source.hunks(changes)
    if changes and not hunks:
        return begin, end, [], ""
    hunks.append(
        {
            "line": begin,
            "code": b"\n".join(lines).decode(),
            "change": f"{indent.decode()}if {step} % {EVERY} == 0:\n{moved}",
        }
    )
    function = source.function(loop)
    return begin, end, hunks, function.name if function is not None else "<module>"


FORMS: dict[str, Callable[[Source], Found]] = {
    "threads": _threads,
    "map": _map,
    "rows": _rows,
    "every": _every,
    "connect": connected,
    "open": opened,
    "lazy": lazily,
    "pad": padded,
    "share": shared,
    "async": asynchronous,
}

# What tells that a loop is over batches, or that a function is a step of training.
STEPS = {"backward", "step", "zero_grad", "train_on_batch", "train_step", "apply_gradients"}
BATCHES = ("loader", "dataloader", "batches")


AGAIN = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)


def _straight(source: Source) -> Iterator[dict[str, Any]]:
    """Functions without a loop or a comprehension in them."""
    for node in ast.walk(source.tree):
        if isinstance(node, FUNCTIONS) and not any(isinstance(inner, AGAIN) for inner in ast.walk(node)):
            last = node.end_lineno or node.lineno
            yield {"kind": "straight", "line": node.lineno, "last": last, "func": node.name, "hunks": []}


def _same(source: Source) -> Iterator[dict[str, Any]]:
    """Calls that open the same file for all samples."""
    for line, last, function in same(source):
        yield {"kind": "same", "line": line, "last": last, "func": function, "hunks": []}


def _loops(source: Source) -> Iterator[dict[str, Any]]:
    """Functions with a loop or a comprehension in them, that neither train nor go through batches."""
    for node in ast.walk(source.tree):
        if not isinstance(node, FUNCTIONS) or not any(isinstance(inner, AGAIN) for inner in ast.walk(node)):
            continue
        if node.name in ("forward", "__iter__", "__call__", "__getitem__", "main") or source.function(node):
            continue
        calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
        called = {getattr(function, "attr", getattr(function, "id", "")) for function in calls}
        over = {
            name.lower()
            for n in ast.walk(node)
            if isinstance(n, (ast.For, ast.comprehension))
            for inner in ast.walk(n.iter)
            if (name := getattr(inner, "id", getattr(inner, "attr", "")))
        }
        if called & STEPS or any(name.endswith(BATCHES) for name in over) or "DataLoader" in called:
            continue
        last = node.end_lineno or node.lineno
        yield {"kind": "loops", "line": node.lineno, "last": last, "func": node.name, "hunks": []}


def main(files: list[str], out: Callable[[str], Any]) -> None:
    """Prints what is known of the files; one that cannot be read or parsed has nothing."""
    found: list[dict[str, Any]] = []
    for file in files:
        try:
            data = Path(file).read_bytes()
            if len(data) <= MOST_BYTES:
                text = data.decode()
                trials = left_out(Source(text.replace("\r\n", "\n")))
                found += [{"file": file, **edit} for edit in (*edits_of(text), *trials)]
        except (OSError, ValueError, SyntaxError, RecursionError):
            continue
    out(json.dumps(found))
