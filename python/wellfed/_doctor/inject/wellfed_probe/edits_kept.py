"""What is opened for each sample, kept: connections of SQLite and files of HDF5, for each process its own.

Invariants: a sample is what it was, in forked workers too, and a data set is pickled as before, as what is kept belongs
to the class. What could be told from one sample to the next through what is kept (a transaction, a setting that is made
now and then, a file that is written, replaced or opened by a sample's name) is no known form.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from .source import FUNCTIONS, Change, Found, Source, where

__all__ = ["connected", "lazily", "opened", "same"]

# Arguments besides the path that change no value.
SQLITE = {"cached_statements", "check_same_thread", "detect_types", "timeout", "uri"}
HDF5 = {"libver", "locking", "mode", "rdcc_nbytes", "rdcc_nslots", "rdcc_w0"}
# What opens a file of many samples.
OPENERS = {
    "File",
    "ParquetFile",
    "TarFile",
    "VideoCapture",
    "VideoReader",
    "ZipFile",
    "connect",
    "load",
    "memmap",
    "memory_map",
    "open",
    "open_dataset",
}
# Names by which attributes and names may be set unseen, and by which a relative path comes to mean another file.
UNSEEN = {"__getattribute__", "__setattr__", "__slots__", "chdir", "delattr", "exec", "setattr"}
# What takes files away, or puts others in their place.
REPLACING = {
    "os.remove",
    "os.rename",
    "os.renames",
    "os.replace",
    "shutil.copy",
    "shutil.copy2",
    "shutil.copyfile",
    "shutil.move",
}
TAKING = {"rename", "rmtree", "unlink"}
FETCHES = {"fetchall", "fetchmany", "fetchone"}
READS = {"pandas.read_sql", "pandas.read_sql_query"}
# Expressions of which a part may not be evaluated, or more than once.
WITHIN = (
    ast.BoolOp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.Lambda,
    ast.ListComp,
    ast.NamedExpr,
    ast.SetComp,
)

# What goes round.
MANY = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def connected(source: Source) -> Found:
    """`sqlite3.connect(…)` in `__getitem__` for statements that only select: kept for each process and thread."""
    for opening in _openings(source, "sqlite3.connect", SQLITE):
        if not _memory(opening.call) and _uses(opening, _asked):
            yield from _kept(opening, "connections", ("os.getpid()", "threading.get_ident()"))


def opened(source: Source) -> Found:
    """`h5py.File(…)` in `__getitem__` to read: kept for each process."""
    if _written(source):
        return
    for opening in _openings(source, "h5py.File", HDF5):
        named = {getattr(node, "attr", "") for node in ast.walk(opening.function)}
        if "file" not in named and _uses(opening, _read):
            yield from _kept(opening, "files", ("os.getpid()",))


def same(source: Source) -> Iterator[tuple[int, int, str]]:
    """Calls that open one file, the same for all samples: first and last line, and the function they are in.

    Not those that are made under a condition, nor where a data set is made.
    """
    for node in ast.walk(source.tree):
        function = source.function(node) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or function is None or function.name in ("__init__", "main"):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        paths = node.args[:1]
        if name not in OPENERS or not paths or any(isinstance(up, ast.If) for up in source.up(node)):
            continue
        if all(_steady(source, value) for value in paths):
            yield (*where(node), function.name)


class Opening:
    """A call that opens, in the method of a data set whose arguments are the same for all samples."""

    def __init__(self, source: Source, call: ast.Call, function: ast.FunctionDef, kind: ast.ClassDef) -> None:
        self.source, self.call, self.function, self.kind = source, call, function, kind
        statement = next(up for up in source.up(call) if isinstance(up, ast.stmt))
        self.statement = statement
        # The whole expression: `closing(…)` belongs to it.
        self.whole: ast.expr = call
        parent = source.parents[call]
        if isinstance(parent, ast.Call) and source.dotted(parent.func) == "contextlib.closing":
            self.whole = parent
        self.closed: list[ast.stmt] = []
        # Settings that are made right after, each time.
        self.settings: list[ast.stmt] = []

    def name(self) -> ast.Name | None:
        """What the opened thing is assigned to, if it is one name."""
        parent = self.source.parents[self.whole]
        target: ast.AST | None = None
        if isinstance(parent, ast.withitem) and parent.context_expr is self.whole:
            target = parent.optional_vars
        elif isinstance(parent, ast.Assign) and len(parent.targets) == 1 and self.whole is self.call:
            target = parent.targets[0]
        return target if isinstance(target, ast.Name) else None

    def following(self) -> list[ast.stmt]:
        """The statements after it, which run whenever it does."""
        if isinstance(self.statement, (ast.With, ast.AsyncWith)):
            return self.statement.body
        block = self.source.block(self.statement)
        return block[block.index(self.statement) + 1 :]


def _openings(source: Source, opener: str, options: set[str]) -> Iterator[Opening]:
    """Calls of `opener` in `__getitem__`, where there is one."""
    if _unseen(source) or _replaced(source):
        return
    calls: dict[ast.AST, list[ast.Call]] = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.dotted(node.func) == opener:
            calls.setdefault(source.function(node) or source.tree, []).append(node)
    for function, (call, *more) in calls.items():
        kind = source.kind(call)
        if (
            more
            or kind is None
            or not isinstance(function, ast.FunctionDef)
            or function.name != "__getitem__"
        ):
            continue
        if not _plain(source, kind) or not _few(source, kind):
            continue
        if not _method(function) or not _arguments(source, call, options):
            continue
        between = []
        for up in source.up(call):
            if isinstance(up, ast.stmt):
                break
            between.append(up)
        opening = Opening(source, call, function, kind)
        statement = opening.statement
        known = (ast.Assign, ast.Return, ast.Expr, ast.With)
        within = any(isinstance(up, WITHIN) for up in between)
        if isinstance(statement, known) and source.begins(statement) and not within:
            yield opening


def _unseen(source: Source) -> bool:
    return any(
        getattr(node, "attr", getattr(node, "id", getattr(node, "name", ""))) in UNSEEN
        for node in ast.walk(source.tree)
    )


def _replaced(source: Source) -> bool:
    """Whether files may be taken away or replaced while samples are made: not once, before anything else."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in TAKING or source.dotted(node.func) in REPLACING:
            repeated = (ast.For, ast.While, ast.ClassDef, *FUNCTIONS)
            if any(isinstance(up, repeated) for up in source.up(node)):
                return True
    return False


def _plain(source: Source, kind: ast.ClassDef) -> bool:
    """Whether a class is one to which an attribute can be added: no decorators, bases that are data sets, no heirs."""
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in kind.bases]
    bases = {getattr(base, "attr", getattr(base, "id", "")) for base in plain}
    classes = [node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)]
    own = {node.name for node in classes}
    if any(getattr(base, "id", "") == kind.name for node in classes for base in node.bases):
        return False
    first = kind.body[1] if len(kind.body) > 1 and _docstring(kind.body[0]) else kind.body[0]
    return (
        not kind.decorator_list
        and not kind.keywords
        and all(base == "object" or (base.endswith("Dataset") and base not in own) for base in bases)
        and source.begins(first)
        and first.lineno > kind.lineno
    )


def _few(source: Source, kind: ast.ClassDef) -> bool:
    """Whether data sets of a class are made one by one: of many, each with a file, all would be kept open."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == kind.name and isinstance(node.ctx, ast.Load):
            parent = source.parents[node]
            called = parent.func if isinstance(parent, ast.Call) else None
            by_name = getattr(called, "id", "") in ("isinstance", "super")
            if by_name or source.kind(node) is kind:
                continue
            # The same arguments in each round of a loop are the same file.
            rounds = [up for up in source.up(node) if isinstance(up, MANY)]
            varied = {n.id for up in rounds for n in ast.walk(up) if isinstance(n, ast.Name) and not _load(n)}
            given = {n.id for n in ast.walk(parent) if isinstance(n, ast.Name)}
            if called is not node or given & varied or _repeated(source, source.function(node)):
                return False
    return True


def _repeated(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Whether a function that makes a data set is called in a loop or given away: each call may have its own file."""
    if function is None:
        return False
    for node in ast.walk(source.tree):
        name = getattr(node, "id", getattr(node, "attr", ""))
        if (
            name == function.name
            and isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Load)
        ):
            parent = source.parents[node]
            if not (isinstance(parent, ast.Call) and parent.func is node):
                return True
            if any(isinstance(up, MANY) for up in source.up(node)):
                return True
    return False


def _load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _method(function: ast.FunctionDef) -> bool:
    """Whether a function is a method without tricks: it gives no generator, and binds no names of others."""
    arguments = function.args
    inner = [node for node in ast.walk(function) if node is not function]
    tricks = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Lambda, *FUNCTIONS, ast.ClassDef)
    if function.decorator_list or not arguments.args or any(isinstance(node, tricks) for node in inner):
        return False
    me = arguments.args[0].arg
    return not any(isinstance(n, ast.Name) and n.id == me and isinstance(n.ctx, ast.Store) for n in inner)


def _arguments(source: Source, call: ast.Call, options: set[str]) -> bool:
    """Whether a path, the same for all samples, and known options are all that is given."""
    positions = call.args[:1] if not (len(call.args) == 2 and "mode" in options) else call.args
    modes = [k.value for k in call.keywords if k.arg == "mode"] + positions[1:]
    return (
        len(call.args) == len(positions) > 0
        and all(keyword.arg in options for keyword in call.keywords)
        and all(isinstance(mode, ast.Constant) and mode.value == "r" for mode in modes)
        and all(_steady(source, value) for value in [*call.args, *(k.value for k in call.keywords)])
    )


def _memory(call: ast.Call) -> bool:
    """Whether the data base may be one in memory, or one without a name, which are new each time."""
    constants = [n.value for n in ast.walk(call) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return "" in constants or any("memory" in text for text in constants)


def _steady(source: Source, node: ast.expr) -> bool:
    """Whether an expression in a method has the same value for all samples of a data set."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name):
        by = source.bound.get(node.id, [])
        (one,) = by if len(by) == 1 else [None]
        if one is None:
            return False
        parent = source.parents.get(one)
        at_top = isinstance(parent, ast.Assign) and source.parents[parent] is source.tree
        return isinstance(one, ast.Name) and at_top
    if isinstance(node, ast.Attribute):
        function, kind = source.function(node), source.kind(node)
        if function is None or kind is None or not function.args.args:
            return False
        mine = isinstance(node.value, ast.Name) and node.value.id == function.args.args[0].arg
        return mine and _set_once(source, kind, node.attr)
    if isinstance(node, ast.Call):
        path = isinstance(node.func, ast.Name) and node.func.id == "str" and "str" not in source.bound
        path = path or source.dotted(node.func) in ("os.path.join", "os.fspath", "pathlib.Path")
        return path and not node.keywords and all(_steady(source, value) for value in node.args)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
        return _steady(source, node.left) and _steady(source, node.right)
    if isinstance(node, ast.JoinedStr):
        return all(_steady(source, value) for value in node.values)
    return isinstance(node, ast.FormattedValue) and node.format_spec is None and _steady(source, node.value)


def _set_once(source: Source, kind: ast.ClassDef, name: str) -> bool:
    """Whether `self.name` is set in `__init__` of this class and nowhere else, by whoever has the data set."""
    times = 0
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Attribute) and node.attr == name) or isinstance(node.ctx, ast.Load):
            continue
        function = source.function(node)
        init = function is not None and function.name == "__init__"
        mine = isinstance(node.value, ast.Name) and node.value.id == "self"
        if mine and init and source.kind(node) is not kind:
            continue  # Another class's.
        if not (mine and init) or any(isinstance(up, (ast.For, ast.While)) for up in source.up(node)):
            return False
        times += 1
    named = any(name in _named(statement) for statement in kind.body)
    return times == 1 and not named


def _named(statement: ast.stmt) -> set[str]:
    """Names that a statement of a class's body makes."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return {statement.name}
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _uses(opening: Opening, known: Callable[[Opening, ast.expr], bool]) -> bool:
    """Whether all that is done with the opened thing is known to leave nothing behind."""
    source, name = opening.source, opening.name()
    if name is None:
        if isinstance(source.parents[opening.whole], ast.withitem) or opening.whole is not opening.call:
            return False
        return known(opening, opening.call)
    for statement in opening.following():
        if not _setting(statement, name.id):
            break
        opening.settings.append(statement)
    return _once(opening.function, name) and all(known(opening, n) for n in _loads(opening.function, name.id))


def _setting(statement: ast.stmt, name: str) -> bool:
    """`name.row_factory = …`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    (target,) = statement.targets
    owner = target.value if isinstance(target, ast.Attribute) else None
    known = isinstance(target, ast.Attribute) and target.attr in ("row_factory", "text_factory")
    return known and isinstance(owner, ast.Name) and owner.id == name


def _once(function: ast.FunctionDef, name: ast.Name) -> bool:
    """Whether a name is bound here alone."""
    binds = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id == name.id and not isinstance(n.ctx, ast.Load)
    ]
    arguments = [n for n in ast.walk(function) if isinstance(n, ast.arg) and n.arg == name.id]
    return binds == [name] and not arguments


def _loads(function: ast.FunctionDef, name: str) -> list[ast.Name]:
    return [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]


def _called(source: Source, node: ast.expr) -> tuple[str, ast.Call] | None:
    """The method that is called of an expression."""
    parent = source.parents[node]
    call = source.parents[parent]
    if isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
        return parent.attr, call
    return None


def _closes(opening: Opening, call: ast.Call) -> bool:
    """Whether a call that closes is a statement of its own, which then goes."""
    statement = opening.source.parents[call]
    if (
        call.args
        or call.keywords
        or not isinstance(statement, ast.Expr)
        or not opening.source.alone(statement)
    ):
        return False
    opening.closed.append(statement)
    return True


def _asked(opening: Opening, node: ast.expr) -> bool:
    """Whether a connection is asked for rows, configured at once, or closed."""
    source = opening.source
    parent = source.parents[node]
    if isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Store):
        return source.parents[parent] in opening.settings
    if isinstance(parent, ast.keyword):
        parent = source.parents[parent]
    if isinstance(parent, ast.Call) and source.dotted(parent.func) in READS:
        whole = all(keyword.arg != "chunksize" for keyword in parent.keywords)
        return (
            whole and bool(parent.args) and node is not parent.args[0] and _selects(opening, parent.args[0])
        )
    method = _called(source, node)
    if method is None:
        return False
    name, call = method
    if name == "close":
        return _closes(opening, call)
    if name == "cursor":
        return not call.args and not call.keywords and _cursor(opening, call)
    return name == "execute" and _executes(opening, call)


def _executes(opening: Opening, call: ast.Call) -> bool:
    return bool(call.args) and _selects(opening, call.args[0]) and _cursor(opening, call)


def _cursor(opening: Opening, node: ast.expr) -> bool:
    """Whether rows are all that is taken of a cursor."""
    source = opening.source
    parent = source.parents[node]
    method = _called(source, node)
    if method is not None:
        name, call = method
        if name == "execute":
            return _executes(opening, call)
        return name in FETCHES or (name == "close" and isinstance(source.parents[call], ast.Expr))
    if isinstance(parent, ast.Expr) or getattr(parent, "iter", None) is node:
        return True
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and node in parent.args:
        return (
            parent.func.id in ("dict", "list", "next", "set", "tuple") and parent.func.id not in source.bound
        )
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        target = parent.targets[0]
        loads = _loads(opening.function, target.id)
        return _once(opening.function, target) and all(_cursor(opening, load) for load in loads)
    return False


def _selects(opening: Opening, node: ast.expr) -> bool:
    """Whether a statement of SQL is one that selects."""
    source = opening.source
    if isinstance(node, ast.JoinedStr) and node.values:
        return _selects(opening, node.values[0])
    if isinstance(node, ast.BinOp):
        return _selects(opening, node.left)
    if isinstance(node, ast.Name):
        by = source.bound.get(node.id, [])
        assigned = source.parents.get(by[0]) if len(by) == 1 else None
        return isinstance(assigned, ast.Assign) and _selects(opening, assigned.value)
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and text.split()[:1] != [] and text.split()[0].lower() == "select"


def _read(opening: Opening, node: ast.expr) -> bool:
    """Whether an HDF5 file is read from, or closed."""
    source = opening.source
    parent = source.parents[node]
    if isinstance(parent, ast.Subscript):
        return parent.value is node and isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], (ast.In, ast.NotIn))
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and node in parent.args:
        return parent.func.id in ("len", "list", "sorted") and parent.func.id not in source.bound
    method = _called(source, node)
    if method is not None:
        name, call = method
        return _closes(opening, call) if name == "close" else name in ("get", "items", "keys", "values")
    return isinstance(parent, ast.Attribute) and parent.attr == "attrs" and isinstance(parent.ctx, ast.Load)


def _written(source: Source) -> bool:
    """Whether files of HDF5 are written: one that is kept open could not be written to."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.dotted(node.func) == "h5py.File":
            modes = [*node.args[1:2], *(k.value for k in node.keywords if k.arg in ("mode", None))]
            if not all(isinstance(mode, ast.Constant) and mode.value == "r" for mode in modes):
                return True
    return False


def _kept(opening: Opening, what: str, key: tuple[str, ...]) -> Found:
    """The changed lines: made on first use, and found again."""
    source, call, statement = opening.source, opening.call, opening.statement
    change = Change(source)
    held = isinstance(source.parents[opening.whole], ast.withitem)
    held = held and (opening.whole is not call or what == "files")  # `with connection` does not close it.
    needed = {part.partition(".")[0] for part in key} | ({"contextlib"} if held else set())
    modules = {name: change.module(name) for name in sorted(needed)}
    store = source.unused(f"_{what}", f"_kept_{what}")
    name = source.unused("key", "kept_key")
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    parts = [*key, *(source.text(value) for value in given if not isinstance(value, ast.Constant))]
    kept = f"{opening.function.args.args[0].arg}.{store}"
    text = source.text(call)
    whole = f"{kept}[{name}]"
    if held:
        whole = f"{modules['contextlib']}.nullcontext({whole})"
    if not all(modules.values()) or "\n" in text or "#" in text:
        return
    if opening.whole is not call and (
        "\n" in source.text(opening.whole) or "#" in source.text(opening.whole)
    ):
        return
    for module, called in modules.items():
        parts = [part.replace(f"{module}.", f"{called}.", 1) if part in key else part for part in parts]
    keys = ", ".join(parts) if len(parts) > 1 else f"{parts[0]},"
    indent = source.lines[statement.lineno - 1][: statement.col_offset].decode()
    step = _step(source, opening.function)
    change.insert(
        statement.lineno,
        f"{indent}{name} = {keys}",
        f"{indent}if {name} not in {kept}:",
        f"{indent}{step}{kept}[{name}] = {text}",
    )
    change.replaced.append((opening.whole, whole))
    for closing in opening.closed:
        change.drop(closing)
    _declare(change, opening.kind, store, "process and thread" if len(key) > 1 else "process")
    yield (*where(statement), change.hunks(), opening.function.name)


def _step(source: Source, function: ast.FunctionDef) -> str:
    """What a block is indented by, as the file has it."""
    outer, inner = source.lines[function.lineno - 1], source.lines[function.body[0].lineno - 1]
    outer, inner = (line[: len(line) - len(line.lstrip())] for line in (outer, inner))
    return inner[len(outer) :].decode() if inner.startswith(outer) and len(inner) > len(outer) else "    "


def _declare(change: Change, kind: ast.ClassDef, store: str, each: str) -> None:
    """Where the class keeps what is opened."""
    first = kind.body[1] if len(kind.body) > 1 and _docstring(kind.body[0]) else kind.body[0]
    line = min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", []))])
    indent = change.source.lines[first.lineno - 1][: first.col_offset].decode()
    change.insert(
        line,
        f"{indent}# For each {each} its own: workers that are forked must not share it.",
        f"{indent}{store} = {{}}",
        "",
    )


def lazily(source: Source) -> Found:
    """`self.file = h5py.File(…)` in `__init__`: a property, which opens it for each process on first use."""
    if _unseen(source) or _replaced(source) or _written(source):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and source.dotted(node.func) == "h5py.File":
            kind = source.kind(node)
            if kind is not None:
                yield from _property(source, node, kind)


def _property(source: Source, call: ast.Call, kind: ast.ClassDef) -> Found:
    function, statement = source.function(call), source.parents[call]
    if not isinstance(function, ast.FunctionDef) or function.name != "__init__" or not _plain(source, kind):
        return
    if statement not in function.body or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    (target,) = statement.targets
    me = function.args.args[0].arg if function.args.args else ""
    mine = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me
    if not isinstance(target, ast.Attribute) or not mine or me != "self" or not _method(function):
        return
    rest = [k.value for k in call.keywords] + call.args[1:]
    known = len(call.args) in (1, 2) and all(k.arg in HDF5 for k in call.keywords)
    if not known or not all(isinstance(value, ast.Constant) for value in rest):
        return
    name = target.attr
    if not _set_once(source, kind, name) or not source.alone(statement) or "\n" in source.text(statement):
        return
    if isinstance(call.args[0], ast.Starred) or not _only_read(source, kind, name, function, target):
        return
    change = Change(source)
    module = change.module("os")
    path, store, key = source.unused(f"_{name}_path"), source.unused(f"_{name}_of", f"_kept_{name}"), "key"
    if not module:
        return
    last = where(function)[1]
    if last + 1 >= len(source.lines) or not source.alone(function.body[-1]):
        return  # Nothing comes behind it, or something on the same line.
    indent, step = source.lines[function.lineno - 1][: function.col_offset].decode(), _step(source, function)
    opener, options = source.text(call.func), [source.text(value) for value in call.args[1:]]
    options += [f"{keyword.arg}={source.text(keyword.value)}" for keyword in call.keywords]
    change.replaced += [(target, f"self.{path}"), (call, source.text(call.args[0]))]
    lines = [
        "",
        f"{indent}@property",
        f"{indent}def {name}(self):",
        f"{indent}{step}{key} = {module}.getpid(), self.{path}",
        f"{indent}{step}if {key} not in self.{store}:",
        f"{indent}{step}{step}self.{store}[{key}] = {opener}({', '.join([f'self.{path}', *options])})",
        f"{indent}{step}return self.{store}[{key}]",
    ]
    change.insert(last + 1, *lines)
    _declare(change, kind, store, "process")
    yield (*where(statement), change.hunks(), f"{kind.name}.{function.name}")


def _only_read(
    source: Source, kind: ast.ClassDef, name: str, init: ast.FunctionDef, target: ast.Attribute
) -> bool:
    """Whether the file is only read from, and nothing of it is kept from before there are workers."""
    for node in ast.walk(source.tree):
        if not (isinstance(node, ast.Attribute) and node.attr == name) or node is target:
            continue
        parent = source.parents[node]
        if source.kind(node) is not kind:
            # Another class's own; else somebody closes it, or takes it away.
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                continue
            return False
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
            inside = source.function(node) is init
            by = source.parents[parent]
            length = isinstance(by, ast.Call) and isinstance(by.func, ast.Name) and by.func.id == "len"
            shape = isinstance(by, ast.Attribute) and by.attr in ("shape", "dtype", "size")
            values = isinstance(by, ast.Subscript) and by.value is parent and _whole(by.slice)
            stored = isinstance(by, ast.Assign) and any(isinstance(t, ast.Attribute) for t in by.targets)
            if not (length or shape or values) and (inside or stored):
                return False
        elif not (
            isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in ("len", "list", "sorted")
        ):
            return False
    return True


def _whole(index: ast.expr) -> bool:
    """Whether an index takes all values, as an array: ``[:]``, ``[...]``, ``[()]``."""
    ellipsis = isinstance(index, ast.Constant) and index.value is ...
    return ellipsis or isinstance(index, ast.Slice) or (isinstance(index, ast.Tuple) and not index.elts)
