"""How batches are made and taken: padding by one call, a worker's own part before it is parsed, copies not waited for.

Invariant: the same samples in the same order, and the same batches to the bit. A data set that gives each sample once
for each worker stays as it is: another division would be other samples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .source import FUNCTIONS, Change, Found, Source, where

__all__ = ["asynchronous", "padded", "shared"]

# Where a sequence is in a sample: at a position of so many, or all of it.
Part = tuple[int, int]
WHOLE = (-1, 0)
# Types to which single numbers, lists and tensors are brought in the same way.
DTYPES = {"bool", "double", "float", "float32", "float64", "int", "int32", "int64", "long"}


def padded(source: Source) -> Found:
    """Sequences that are padded to the longest one in Python: `torch.nn.utils.rnn.pad_sequence`.

    The form is ``out = torch.zeros(len(batch), longest, …)`` with ``out[i, j] = v`` in a loop over each sequence. Rows
    that are written by slices, and lists that are made longer by lists, take no longer than `pad_sequence` does.
    """
    torch = next((name for name, meant in source.means.items() if meant == "torch"), "")
    moved = ("set_default_device", "set_default_tensor_type")
    if not torch or any(getattr(node, "attr", "") in moved for node in ast.walk(source.tree)):
        return
    for function in ast.walk(source.tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or source.function(node) is not function:
                continue
            if source.dotted(node.func) in ("torch.zeros", "torch.full"):
                yield from _filled(source, function, node, torch)


def _filled(source: Source, function: ast.FunctionDef, call: ast.Call, torch: str) -> Found:
    """An array that is made and then written to row by row."""
    made = source.parents[call]
    if not isinstance(made, ast.Assign) or len(made.targets) != 1 or not source.alone(made):
        return
    (target,) = made.targets
    if not isinstance(target, ast.Name) or not _bound_once(function, target):
        return
    shape = list(call.args)
    fill = ""
    if source.dotted(call.func) == "torch.full":
        if len(shape) != 2:
            return
        fill = source.text(shape.pop())
    if len(shape) == 1 and isinstance(shape[0], (ast.Tuple, ast.List)):
        shape = list(shape[0].elts)
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if len(shape) != 2 or set(options) - {"dtype"} or (fill and "dtype" not in options):
        return
    count, longest = shape
    sequences = _length_of(source, count)
    if not isinstance(sequences, ast.Name):
        return
    part = _longest(source, function, longest, sequences.id)
    block = source.block(made)
    after = block[block.index(made) + 1 :]
    loop = next((s for s in after if _mentions(s, target.id)), None)
    if not isinstance(loop, ast.For) or not source.begins(loop) or loop.orelse:
        return
    between = after[: after.index(loop)]
    if any(not isinstance(s, ast.Assign) or _stores(s, sequences.id) for s in between):
        return
    row = _row(source, loop, target.id, sequences.id)
    if part is None or row is None or row.part != part or not _unchanged(source, function, sequences.id):
        return
    rest = [s for s in loop.body if s is not row.statement]
    if any(_touches(source, other, row.item) or _stores(other, row.index) for other in rest):
        return
    # Names of what goes are not used besides.
    gone: ast.stmt = row.statement if rest else loop
    inside = set(ast.walk(gone))
    used = [
        n for n in ast.walk(function) if isinstance(n, ast.Name) and n not in inside and n.id in _stored(gone)
    ]
    if any(not _in_comprehension(source, n) for n in used) or not source.begins(gone):
        return
    dtype = options.get("dtype")
    if dtype is not None and not _typed(source, dtype):
        return
    kind = source.text(dtype) if dtype is not None else f"{torch}.get_default_dtype()"
    padding = f", padding_value={fill}" if fill else ""
    # Flat, as elements of a column are single numbers, too.
    rows = f"[{torch}.as_tensor({row.item}, dtype={kind}).flatten() for {row.target()} in {sequences.id}]"
    text = f"{torch}.nn.utils.rnn.pad_sequence({rows}, batch_first=True{padding})"
    change = Change(source)
    change.replaced.append((call, text))
    change.drop(gone)
    if source.alone(_last(gone)):
        yield where(made)[0], where(loop)[1], change.hunks(), function.name


def _last(statement: ast.stmt) -> ast.stmt:
    while isinstance(statement, ast.For):
        statement = statement.body[-1]
    return statement


def _typed(source: Source, dtype: ast.expr) -> bool:
    """Whether a type is one of torch's own that are known here."""
    module, _, name = source.dotted(dtype).rpartition(".")
    return module == "torch" and name in DTYPES


class Row:
    """How a loop writes a sequence into its row."""

    def __init__(self, index: str, item: str, part: Part, statement: ast.For) -> None:
        self.index, self.item, self.part, self.statement = index, item, part, statement

    def target(self) -> str:
        """The item as the target of a loop over samples."""
        position, count = self.part
        if self.part == WHOLE:
            return self.item
        names = [self.item if i == position else "_" for i in range(count)]
        return ", ".join(names) + ("," if count == 1 else "")


def _touches(source: Source, statement: ast.stmt, item: str) -> bool:
    """Whether a statement does more with a sequence than asking for its length."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id == item:
            parent = source.parents[node]
            if not isinstance(parent, ast.expr) or _length_name(source, parent) != item:
                return True
    return isinstance(statement, (ast.For, ast.While, ast.If, ast.Try, ast.With, ast.Return))


def _parts(target: ast.expr) -> dict[str, Part]:
    """Names of a loop's target, and where in a sample they are."""
    if isinstance(target, ast.Name):
        return {target.id: WHOLE}
    names = target.elts if isinstance(target, ast.Tuple) else []
    if not all(isinstance(name, ast.Name) for name in names):
        return {}
    return {name.id: (i, len(names)) for i, name in enumerate(names) if isinstance(name, ast.Name)}


def _row(source: Source, loop: ast.For, out: str, sequences: str) -> Row | None:
    """The sequence that a loop over samples writes into the beginning of its row, all of it."""
    walked = _enumerated(source, loop)
    writing = [statement for statement in loop.body if _mentions(statement, out)]
    if walked is None or walked[2] != sequences or len(writing) != 1:
        return None
    index, parts = walked[0], _parts(walked[1])
    (statement,) = writing
    if index in parts or any(not isinstance(s, (ast.Assign, ast.Expr, ast.For)) for s in loop.body):
        return None
    return (
        _element_by_element(source, statement, out, index, parts) if isinstance(statement, ast.For) else None
    )


def _element_by_element(
    source: Source, loop: ast.For, out: str, index: str, parts: dict[str, Part]
) -> Row | None:
    """``for j, v in enumerate(x): out[i, j] = v``."""
    inner = _enumerated(source, loop)
    if inner is None or inner[2] not in parts or loop.orelse or len(loop.body) != 1:
        return None
    at, element, item = inner
    known = _written_at(loop.body[0], out, index)
    if (
        known is None
        or not isinstance(element, ast.Name)
        or len({index, at, element.id, *parts}) != 3 + len(parts)
    ):
        return None
    second, value = known
    if getattr(second, "id", "") != at or getattr(value, "id", "") != element.id:
        return None
    return Row(index, item, parts[item], loop)


def _written_at(statement: ast.stmt, out: str, index: str) -> tuple[ast.expr, ast.expr] | None:
    """The second index and the value of ``out[index, …] = value``."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    (target,) = statement.targets
    if (
        not isinstance(target, ast.Subscript)
        or not isinstance(target.value, ast.Name)
        or target.value.id != out
    ):
        return None
    at = target.slice
    if not isinstance(at, ast.Tuple) or len(at.elts) != 2 or not isinstance(at.elts[0], ast.Name):
        return None
    return (at.elts[1], statement.value) if at.elts[0].id == index else None


def _enumerated(source: Source, loop: ast.For) -> tuple[str, ast.expr, str] | None:
    """Index, item and what is walked of ``for i, x in enumerate(batch)``."""
    call, target = loop.iter, loop.target
    if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "enumerate":
        return None
    names = target.elts if isinstance(target, ast.Tuple) else []
    if "enumerate" in source.bound or len(call.args) != 1 or call.keywords or len(names) != 2:
        return None
    index, walked = getattr(names[0], "id", ""), getattr(call.args[0], "id", "")
    return (index, names[1], walked) if index and walked else None


def _length_of(source: Source, node: ast.expr) -> ast.expr | None:
    """`x` of ``len(x)``."""
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "len" or "len" in source.bound:
        return None
    return node.args[0] if len(node.args) == 1 and not node.keywords else None


def _length_name(source: Source, node: ast.expr) -> str:
    of = _length_of(source, node)
    return of.id if isinstance(of, ast.Name) else ""


def _longest(source: Source, function: ast.FunctionDef, node: ast.expr, sequences: str) -> Part | None:
    """Of what an expression is the greatest length: of `x` in ``max(len(x) for x in batch)``, or a name of that."""
    if isinstance(node, ast.Name):
        stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == node.id]
        stores = [n for n in stores if isinstance(n.ctx, ast.Store)]
        assigned = source.parents[stores[0]] if len(stores) == 1 else None
        if not isinstance(assigned, ast.Assign) or len(assigned.targets) != 1:
            return None
        value = assigned.value
        return None if isinstance(value, ast.Name) else _longest(source, function, value, sequences)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "max":
        return None
    if "max" in source.bound or len(node.args) != 1 or node.keywords:
        return None
    (lengths,) = node.args
    if isinstance(lengths, ast.Call) and isinstance(lengths.func, ast.Name) and lengths.func.id == "map":
        given = [a.id for a in lengths.args if isinstance(a, ast.Name)]
        return WHOLE if given == ["len", sequences] and not {"map", "len"} & set(source.bound) else None
    if not isinstance(lengths, (ast.GeneratorExp, ast.ListComp)) or len(lengths.generators) != 1:
        return None
    (each,) = lengths.generators
    if not isinstance(each.iter, ast.Name) or each.iter.id != sequences or each.ifs:
        return None
    return _parts(each.target).get(_length_name(source, lengths.elt))


def _bound_once(function: ast.FunctionDef, name: ast.Name) -> bool:
    stores = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name.id]
    return [n for n in stores if not isinstance(n.ctx, ast.Load)] == [name]


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _stores(node: ast.AST, name: str) -> bool:
    return name in _stored(node)


def _in_comprehension(source: Source, name: ast.Name) -> bool:
    """Whether a name is one of a comprehension's own."""
    for up in source.up(name):
        for each in getattr(up, "generators", []):
            if _stores(each.target, name.id):
                return True
    return False


def _unchanged(source: Source, function: ast.FunctionDef, name: str) -> bool:
    """Whether a list is bound once and no method of it is called, nor an item of it set."""
    binds = sum(isinstance(n, ast.arg) and n.arg == name for n in ast.walk(function))
    for node in ast.walk(function):
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        parent = source.parents[node]
        if not isinstance(node.ctx, ast.Load):
            binds += 1
        elif isinstance(parent, ast.Attribute) or (
            isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load)
        ):
            return False
        elif isinstance(parent, ast.Call):
            called = getattr(parent.func, "id", "")
            if called not in ("enumerate", "len", "list", "map", "sum", "tuple", "zip"):
                return False
    return binds == 1


# What has no effect but its result, which rests on its arguments alone.
PURE = {
    "ast.literal_eval",
    "base64.b64decode",
    "bytes.fromhex",
    "json.loads",
    "math.exp",
    "math.log",
    "math.sqrt",
    "numpy.array",
    "numpy.asarray",
    "numpy.float32",
    "numpy.frombuffer",
    "numpy.fromstring",
    "numpy.int64",
    "struct.unpack",
    "torch.as_tensor",
    "torch.from_numpy",
    "torch.frombuffer",
    "torch.stack",
    "torch.tensor",
    "zlib.decompress",
}
PURE_BUILTINS = {
    "abs",
    "bool",
    "bytes",
    "dict",
    "enumerate",
    "float",
    "int",
    "len",
    "list",
    "map",
    "max",
    "min",
    "ord",
    "range",
    "reversed",
    "round",
    "set",
    "sorted",
    "str",
    "sum",
    "tuple",
    "zip",
}
PURE_METHODS = {
    "astype",
    "copy",
    "decode",
    "double",
    "encode",
    "endswith",
    "find",
    "float",
    "items",
    "join",
    "keys",
    "long",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "reshape",
    "rstrip",
    "split",
    "startswith",
    "strip",
    "tolist",
    "upper",
    "values",
}
PLAIN = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.Dict,
    ast.DictComp,
    ast.FormattedValue,
    ast.GeneratorExp,
    ast.IfExp,
    ast.JoinedStr,
    ast.List,
    ast.ListComp,
    ast.Name,
    ast.Set,
    ast.SetComp,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
)
# How deep functions that call functions are followed.
DEEPEST = 3


class Purity:
    """Whether expressions of a class's methods do nothing but give a value."""

    def __init__(self, source: Source, kind: ast.ClassDef) -> None:
        self.source, self.kind = source, kind
        self.own = {f.name for f in kind.body if isinstance(f, FUNCTIONS)}

    def expression(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether an expression can be left out where its value is not used."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.expr) and not isinstance(inner, PLAIN):
                return False
            if isinstance(inner, ast.Call) and not self._call(inner, depth):
                return False
            by = self.source.parents.get(inner)
            called = isinstance(by, ast.Call) and (by.func is inner or _maps(by, inner))
            if isinstance(inner, ast.Attribute) and inner.attr in self.own and not called:
                return False  # A property is a call, too.
        return True

    def _call(self, call: ast.Call, depth: int) -> bool:
        # `map(f, …)` calls what it is given.
        name = getattr(call.func, "id", "")
        if name in ("map", "sorted", "max", "min") and name not in self.source.bound:
            keys = [k.value for k in call.keywords if k.arg == "key"]
            given = [*keys, *(call.args[:1] if name == "map" else [])]
            return all(self.function(value, depth) for value in given)
        return self.function(call.func, depth)

    def function(self, node: ast.expr, depth: int = 0) -> bool:
        """Whether calling this has no effect but its result."""
        source = self.source
        meant = source.dotted(node)
        if meant:
            return meant in PURE
        if isinstance(node, ast.Name):
            by = source.bound.get(node.id, [])
            if not by:
                return node.id in PURE_BUILTINS
            at_top = len(by) == 1 and source.parents.get(by[0]) is source.tree
            return at_top and isinstance(by[0], ast.FunctionDef) and self._body(by[0], depth)
        if not isinstance(node, ast.Attribute):
            return False
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            own = [f for f in ast.walk(source.tree) if isinstance(f, FUNCTIONS) and f.name == node.attr]
            stores = [
                n for n in ast.walk(source.tree) if isinstance(n, ast.Attribute) and n.attr == node.attr
            ]
            if len(own) != 1 or any(not isinstance(n.ctx, ast.Load) for n in stores):
                return False
            return (
                own[0] in self.kind.body and isinstance(own[0], ast.FunctionDef) and self._body(own[0], depth)
            )
        return node.attr in PURE_METHODS

    def _body(self, function: ast.FunctionDef, depth: int) -> bool:
        """Whether a function computes its result from its arguments, and changes nothing that others see."""
        static = [d for d in function.decorator_list if isinstance(d, ast.Name) and d.id == "staticmethod"]
        if depth >= DEEPEST or len(static) != len(function.decorator_list):
            return False
        known = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.If, ast.For, ast.Pass, ast.Expr)
        arguments = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.stmt) and node is not function and not isinstance(node, known):
                return False
            # Only names are assigned to, as `+=` of an argument could change it where it came from.
            if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
                return False
            if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") in arguments:
                return False
            if isinstance(node, ast.expr) and not isinstance(node, PLAIN):
                return False
            if isinstance(node, ast.Call) and not self._call(node, depth + 1):
                return False
        return True


def _maps(call: ast.Call, function: ast.AST) -> bool:
    return getattr(call.func, "id", "") == "map" and call.args[:1] == [function]


def shared(source: Source) -> Found:
    """A data set whose workers parse all, and each keep some: they leave the others' before they parse them."""
    for kind in ast.walk(source.tree):
        if not isinstance(kind, ast.ClassDef) or "*" in source.bound:
            continue
        bases = [base.value if isinstance(base, ast.Subscript) else base for base in kind.bases]
        if not any(getattr(b, "attr", getattr(b, "id", "")) == "IterableDataset" for b in bases):
            continue
        derived = [c for c in ast.walk(source.tree) if isinstance(c, ast.ClassDef)]
        if any(getattr(b, "attr", getattr(b, "id", "")) == kind.name for c in derived for b in c.bases):
            continue
        purity = Purity(source, kind)
        for function in kind.body:
            if isinstance(function, ast.FunctionDef) and function.name == "__iter__":
                for node in ast.walk(function):
                    if isinstance(node, ast.For) and source.function(node) is function:
                        yield from _early(source, function, node, purity, kind)
                    elif isinstance(node, ast.Call) and source.dotted(node.func) == "itertools.islice":
                        yield from _sliced(source, node, purity, f"{kind.name}.{function.name}")


def _early(
    source: Source, function: ast.FunctionDef, loop: ast.For, purity: Purity, kind: ast.ClassDef
) -> Found:
    """``x = parse(line)``, and then ``if k % n != i: continue``, or ``if k % n == i: yield x``."""
    at = next((i for i, s in enumerate(loop.body) if isinstance(s, ast.If)), 0)
    work, guard = loop.body[:at], loop.body[at]
    if not work or not isinstance(guard, ast.If) or guard.orelse:
        return
    leaves = len(guard.body) == 1 and isinstance(guard.body[0], ast.Continue)
    last = guard is loop.body[-1] and any(isinstance(n, ast.Yield) for s in guard.body for n in ast.walk(s))
    if not (leaves or last) or not _division(guard.test):
        return
    if not all(source.alone(s) for s in work) or not source.begins(guard) or not source.alone(guard.body[-1]):
        return
    made: set[str] = set()
    header = _stored(loop.target)
    parses = False
    for statement in work:
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return
        (target,) = statement.targets
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(n, ast.Name) for n in names) or not purity.expression(statement.value):
            return
        if not _given(source, function, loop, statement.value, made):
            return
        parses |= any(isinstance(n, ast.Call) for n in ast.walk(statement.value))
        # A value of a line before, or of another worker's, is not used.
        following = [s for s in work[work.index(statement) :] if isinstance(s, ast.Assign)]
        later = {name for s in following for t in s.targets for name in _stored(t)} - made - header
        if any(isinstance(n, ast.Name) and n.id in later for n in ast.walk(statement.value)):
            return
        made |= _stored(target)
    inside = {n for s in [*loop.body, loop.target] for n in ast.walk(s)}
    outside = any(isinstance(n, ast.Name) and n.id in made and n not in inside for n in ast.walk(function))
    within = any(isinstance(n, ast.Name) and n.id in made for n in ast.walk(guard.test))
    if not parses or outside or within:
        return
    change = Change(source)
    begin, end = where(guard)
    if leaves:
        lines = [line.decode() for line in source.lines[begin - 1 : end]]
        change.insert(where(work[0])[0], *lines)
        change.gone.append(guard)
    else:
        if guard.body[0].lineno == begin or any(_has_long_string(s) for s in work):
            return
        more = source.lines[guard.body[0].lineno - 1][guard.col_offset : guard.body[0].col_offset].decode()
        texts = [
            more + line.decode() if line.strip() else line.decode()
            for s in work
            for line in source.lines[s.lineno - 1 : where(s)[1]]
        ]
        first = where(guard.body[0])[0]
        if not more.isspace() or not source.begins(guard.body[0]):
            return
        change.insert(first, *texts)
        change.gone += work
    yield where(work[0])[0], end, change.hunks(), f"{kind.name}.{function.name}"


def _given(source: Source, function: ast.FunctionDef, loop: ast.For, value: ast.expr, made: set[str]) -> bool:
    """Whether a value is made of what the loop gives, and of what is the same all the time: not of files, say."""
    known = set(made)
    for around in [loop, *source.up(loop)]:
        if isinstance(around, ast.For):
            known |= _stored(around.target)
    others = _stored(function) - known - _stored(value)
    return not any(isinstance(n, ast.Name) and n.id in others for n in ast.walk(value))


def _stored(node: ast.AST) -> set[str]:
    """Names that are assigned to."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _division(test: ast.expr) -> bool:
    """Whether a condition is one of numbers, by a remainder, that nothing but names goes into."""
    known = (
        ast.Attribute, ast.BinOp, ast.BoolOp, ast.Compare, ast.Constant, ast.Name, ast.UnaryOp,
    )  # fmt: skip
    nodes = list(ast.walk(test))
    plain = all(isinstance(node, known) for node in nodes if isinstance(node, ast.expr))
    return plain and any(isinstance(node, ast.Mod) for node in nodes)


def _has_long_string(statement: ast.stmt) -> bool:
    texts = [n for n in ast.walk(statement) if isinstance(n, (ast.Constant, ast.JoinedStr))]
    return any(n.lineno != n.end_lineno for n in texts)


def _sliced(source: Source, call: ast.Call, purity: Purity, function: str) -> Found:
    """``islice(map(parse, lines), …)`` as ``map(parse, islice(lines, …))``, and the same of a generator expression."""
    if len(call.args) != 4 or call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
        return
    inner, text = call.args[0], source.text(call)
    rest = ", ".join(source.text(argument) for argument in call.args[1:])
    if "\n" in text or "#" in text or isinstance(call.args[3], ast.Constant):
        return
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "map":
        given = [a for a in inner.args if not isinstance(a, ast.Starred)]
        if "map" in source.bound or len(given) != 2 or len(inner.args) != 2 or not purity.function(given[0]):
            return
        lines = f"{source.text(call.func)}({source.text(given[1])}, {rest})"
        changed = f"map({source.text(given[0])}, {lines})"
    elif isinstance(inner, ast.GeneratorExp) and len(inner.generators) == 1:
        (each,) = inner.generators
        if each.ifs or each.is_async or not purity.expression(inner.elt):
            return
        lines = f"{source.text(call.func)}({source.text(each.iter)}, {rest})"
        changed = f"({source.text(inner.elt)} for {source.text(each.target)} in {lines})"
    else:
        return
    change = Change(source)
    change.replaced.append((call, changed))
    yield (*where(call), change.hunks(), function)


def asynchronous(source: Source) -> Found:
    """`x.to(device)` of a batch in its loop: not waited for.

    Only where the tensor is the loader's, on its way to a device, and is not touched on this side afterwards.
    """
    words = {
        n.value for n in ast.walk(source.tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    if any(word.startswith("mps") for word in words):
        return
    for loop in ast.walk(source.tree):
        if not isinstance(loop, ast.For) or not _over_batches(loop):
            continue
        target = loop.target
        if isinstance(loop.iter, ast.Call) and getattr(loop.iter.func, "id", "") == "enumerate":
            if not isinstance(target, ast.Tuple) or len(target.elts) != 2:
                continue
            target = target.elts[1]
        batch = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        first = loop.body[0]
        if _unpacks(source, loop, target):
            batch = _stored(first)
        calls = [node for s in loop.body for node in ast.walk(s) if isinstance(node, ast.Call)]
        copies = [call for call in calls if _copies(source, call) and _of_batch(source, call, batch)]
        change = Change(source)
        taken: list[ast.Call] = []
        for call in copies:
            if _left_alone(source, loop, call, copies):
                text = source.text(call)
                if "\n" in text or "#" in text:
                    continue
                comma = ", " if call.args or call.keywords else ""
                change.replaced.append((call, text[:-1].rstrip().rstrip(",") + f"{comma}non_blocking=True)"))
                taken.append(call)
        if taken:
            begin = min(where(call)[0] for call in taken)
            end = max(where(call)[1] for call in taken)
            function = source.function(loop)
            yield begin, end, change.hunks(), function.name if function is not None else "<module>"


def _unpacks(source: Source, loop: ast.For, target: ast.expr) -> bool:
    """Whether a batch is taken apart by the first statement, and not used besides."""
    first = loop.body[0]
    if (
        not isinstance(first, ast.Assign)
        or not isinstance(first.targets[0], ast.Tuple)
        or len(first.targets) > 1
    ):
        return False
    if not isinstance(target, ast.Name) or getattr(first.value, "id", "") != target.id:
        return False
    names = all(isinstance(element, ast.Name) for element in first.targets[0].elts)
    return names and len(list(_names(loop.body, target.id))) == 1


def _over_batches(loop: ast.For) -> bool:
    """Whether a loop is over a loader, by its name: what it gives is on the host."""
    over: ast.expr = loop.iter
    while isinstance(over, ast.Call) and over.args and getattr(over.func, "id", "") in ("enumerate", "tqdm"):
        over = over.args[0]
    name = getattr(over, "id", getattr(over, "attr", "")) if not isinstance(over, ast.Call) else ""
    made = getattr(getattr(over, "func", None), "id", getattr(getattr(over, "func", None), "attr", ""))
    return name.lower().endswith(("loader", "dl")) or made == "DataLoader"


def _copies(source: Source, node: ast.Call) -> bool:
    """Whether this is ``x.to(device)`` or ``x.cuda()``, which waits."""
    if not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return not node.args and not node.keywords
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "device")]
    if node.func.attr != "to" or len(given) != 1 or len(node.args) + len(node.keywords) != 1:
        return False
    (to,) = given
    if isinstance(to, ast.Constant):
        return isinstance(to.value, str) and to.value.startswith("cuda")
    name = getattr(to, "id", getattr(to, "attr", ""))
    if not name.lower().endswith(("device", "dev")) or "cpu" in name.lower() or "host" in name.lower():
        return False
    # A device that is always the host: what is copied there is read at once.
    return not any(
        isinstance(n, ast.Call) and source.dotted(n.func) == "torch.device" and _is_host(n)
        for by in source.bound.get(name, [])
        for n in [getattr(source.parents[by], "value", None)]
        if n is not None
    )


def _is_host(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == "cpu"


def _base(source: Source, call: ast.Call) -> ast.Name | None:
    """The batch of which `x`, ``batch["x"]``, ``batch[0]`` or a comprehension's ``v`` is copied."""
    node = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    while isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    for up in source.up(node):
        for each in getattr(up, "generators", []):
            if _stores(each.target, node.id):
                over = each.iter
                if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
                    over = over.func.value if over.func.attr in ("items", "values") else over
                return over if isinstance(over, ast.Name) else None
        if isinstance(up, ast.stmt):
            break
    return node


def _of_batch(source: Source, call: ast.Call, batch: set[str]) -> bool:
    base = _base(source, call)
    return base is not None and base.id in batch


def _left_alone(source: Source, loop: ast.For, call: ast.Call, copies: Sequence[ast.Call]) -> bool:
    """Whether a batch's name, while it is on the host, is only copied and asked for its form."""
    base = _base(source, call)
    if base is None:
        return False
    statement = next(up for up in source.up(call) if isinstance(up, ast.stmt))
    if statement not in loop.body:
        return False
    # The name stands for what is on the device from here on.
    renamed = isinstance(statement, ast.Assign) and any(_stores(t, base.id) for t in statement.targets)
    alive = loop.body[: loop.body.index(statement) + 1] if renamed else loop.body
    if (
        isinstance(alive[0], ast.Assign)
        and isinstance(alive[0].value, ast.Name)
        and alive[0] is not statement
    ):
        alive = alive[1:]  # There the batch is taken apart.
    allowed = {id(_base(source, copy)) for copy in copies}
    for node in _names(alive, base.id):
        parent = source.parents[node]
        form = isinstance(parent, ast.Attribute) and parent.attr in ("shape", "size", "dtype", "ndim")
        length = isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "len"
        keys = isinstance(parent, ast.Attribute) and parent.attr in ("items", "values", "keys")
        if isinstance(node.ctx, ast.Store):
            if node not in ast.walk(statement):
                return False
        elif id(node) not in allowed and not (form or length or keys):
            return False
    return True


def _names(statements: Sequence[ast.stmt], name: str) -> Iterator[ast.Name]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == name:
                yield node
