"""A script's file as lines and as a syntax tree, and changes of it as whole lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["FUNCTIONS", "Change", "Found", "Source", "where"]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# First and last line of what is slow, the changed lines, and the function.
Found = Iterator[tuple[int, int, list[Any], str]]


def where(node: ast.AST) -> tuple[int, int]:
    """First and last line of a node."""
    line: int = getattr(node, "lineno", 0)
    return line, getattr(node, "end_lineno", None) or line


class Source:
    """A file: its text in lines, its tree, and who is whose parent."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.split("\n")]
        self.tree = ast.parse(text)
        self.parents: dict[ast.AST, ast.AST] = {}
        for parent in ast.walk(self.tree):
            for child in ast.iter_child_nodes(parent):
                self.parents[child] = parent
        # Who binds a name, wherever that is.
        self.bound: dict[str, list[ast.AST]] = {}
        for node in ast.walk(self.tree):
            for name in _binds(node):
                self.bound.setdefault(name, []).append(node)
        # What names stand for that are bound by imports at the top alone: a module, or what is in it.
        self.means = {name: meant for name, by in self.bound.items() if (meant := self._imported(name, by))}

    def _imported(self, name: str, by: Sequence[ast.AST]) -> str:
        meant = set()
        for node in by:
            if self.parents.get(node) is not self.tree or "*" in self.bound:
                return ""
            if isinstance(node, ast.Import):
                meant |= {
                    a.name if a.asname else name
                    for a in node.names
                    if name == (a.asname or a.name.partition(".")[0])
                }
            elif isinstance(node, ast.ImportFrom) and not node.level:
                meant |= {f"{node.module}.{a.name}" for a in node.names if name == (a.asname or a.name)}
            else:
                return ""
        return meant.pop() if len(meant) == 1 else ""

    def dotted(self, node: ast.AST) -> str:
        """What an expression names, if it is imported: ``numpy.load`` of ``np.load``; else nothing."""
        if isinstance(node, ast.Attribute):
            inner = self.dotted(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        return self.means.get(node.id, "") if isinstance(node, ast.Name) else ""

    def begins(self, node: ast.stmt) -> bool:
        """Whether a statement is the first on its line."""
        return not self.lines[node.lineno - 1][: node.col_offset].strip()

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which this one is."""
        for _, value in ast.iter_fields(self.parents[statement]):
            if isinstance(value, list) and statement in value:
                return value
        return [statement]

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """Those around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The function that a node is in."""
        return next((up for up in self.up(node) if isinstance(up, FUNCTIONS)), None)

    def kind(self, node: ast.AST) -> ast.ClassDef | None:
        """The class whose method a node is in."""
        function = self.function(node)
        up = self.parents.get(function) if function is not None else None
        return up if isinstance(up, ast.ClassDef) else None

    def text(self, node: ast.expr | ast.stmt) -> str:
        """The source of a node."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        lines = self.lines[first : last + 1]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def alone(self, node: ast.stmt) -> bool:
        """Whether a statement has its lines for itself, but for a comment behind it."""
        before = self.lines[node.lineno - 1][: node.col_offset]
        after = self.lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :].strip()
        return not before.strip() and (not after or after.startswith(b"#"))

    def unused(self, *names: str) -> str:
        """The first of these names that the file has not as a word, or one made of the last."""
        words = set(re.findall(rb"\w+", b"\n".join(self.lines)))
        while names[-1].encode() in words:
            names = (*names, f"{names[-1]}_")
        return next(name for name in names if name.encode() not in words)

    def modules(self, name: str) -> set[str]:
        """What the file calls a module; nothing that is also assigned to."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.asname or alias.name for alias in node.names if alias.name == name}
        stored = {
            n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        return found - stored

    def hunks(
        self, changes: Sequence[tuple[ast.expr, str]], added: Sequence[tuple[int, str]] = ()
    ) -> list[dict[str, Any]]:
        """Whole lines in place of others: each node's text replaced, and lines added behind line numbers."""
        edited: dict[tuple[int, int], str] = {}
        # From the end, so that columns of what is still to be changed stay.
        for node, text in sorted(changes, key=lambda change: (-change[0].lineno, -change[0].col_offset)):
            span = node.lineno, node.end_lineno or node.lineno
            touched = [other for other in edited if other[0] <= span[1] and span[0] <= other[1]]
            if touched and (touched != [span] or span[0] != span[1]):
                return []  # They share a part of their lines.
            old = edited[span].encode().split(b"\n") if touched else self.lines[span[0] - 1 : span[1]]
            before, after = old[0][: node.col_offset], old[-1][node.end_col_offset :]
            edited[span] = (before + text.encode() + after).decode()
        found: list[dict[str, Any]] = [
            {"line": first, "code": b"\n".join(self.lines[first - 1 : last]).decode(), "change": change}
            for (first, last), change in edited.items()
        ]
        for line, text in added:
            old_line = self.lines[line - 1].decode()
            found.append({"line": line, "code": old_line, "change": f"{old_line}\n{text}"})
        return sorted(found, key=lambda hunk: int(hunk["line"]))


def _binds(node: ast.AST) -> list[str]:
    """Names that a node binds; ``*`` for all of a module."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        whole = isinstance(node, ast.Import)
        return [a.asname or (a.name.partition(".")[0] if whole else a.name) for a in node.names]
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return list(node.names)
    # `except … as name`, and the patterns of `match`.
    name = getattr(node, "name", None) or getattr(node, "rest", None)
    named = isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping))
    return [name] if named and isinstance(name, str) else []


class Change:
    """A change in the making: texts in place of nodes, lines before others, and statements that go."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.replaced: list[tuple[Any, str]] = []
        self.before: dict[int, list[str]] = {}
        self.gone: list[ast.stmt] = []

    def insert(self, line: int, *texts: str) -> None:
        """Lines before a line."""
        self.before.setdefault(line, []).extend(texts)

    def drop(self, statement: ast.stmt) -> None:
        """Leaves a statement out, or `pass` in its place where it is alone in its block."""
        if len(self.source.block(statement)) == 1:
            self.replaced.append((statement, "pass"))
        else:
            self.gone.append(statement)

    def module(self, module: str) -> str:
        """The name of a module, with its import before the others if the file has none; nothing if it is taken."""
        for name, meant in self.source.means.items():
            if meant == module:
                return name
        if module in self.source.bound or "*" in self.source.bound:
            return ""
        for node in self.source.tree.body:
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not future and self.source.alone(node):
                self.insert(node.lineno, f"import {module}")
                return module
        return ""

    def hunks(self) -> list[dict[str, Any]]:
        """The changed lines; none if parts of the change share lines in a way that is not plain."""
        source = self.source
        replaced = source.hunks(self.replaced)
        if self.replaced and not replaced:
            return []
        spans: dict[tuple[int, int], list[str]] = {}
        for hunk in replaced:
            count = len(hunk["code"].split("\n"))
            spans[hunk["line"], hunk["line"] + count - 1] = hunk["change"].split("\n")
        for statement in self.gone:
            rest = [other for other in source.block(statement) if other not in self.gone]
            span = where(statement)
            if not rest or not source.alone(statement) or not _apart(span, spans):
                return []
            spans[span] = []
        for line, texts in self.before.items():
            span = next((span for span in spans if span[0] <= line <= span[1]), (line, line))
            if span[0] != line:
                return []
            spans[span] = texts + spans.get(span, [source.lines[line - 1].decode()])
        merged: list[tuple[int, int, list[str]]] = []
        for (first, last), texts in sorted(spans.items()):
            if merged and merged[-1][1] + 1 == first:
                before = merged.pop()
                merged.append((before[0], last, before[2] + texts))
            else:
                merged.append((first, last, texts))
        found = []
        for first, last, texts in merged:
            begin = first
            if not texts:
                # A hunk has lines on both sides. What is above is no other's, or it would have been merged.
                if first == 1:
                    return []
                begin, texts = first - 1, [source.lines[first - 2].decode()]
            code = b"\n".join(source.lines[begin - 1 : last]).decode()
            found.append({"line": begin, "code": code, "change": "\n".join(texts)})
        return found


def _apart(span: tuple[int, int], spans: dict[tuple[int, int], list[str]]) -> bool:
    return all(other[1] < span[0] or span[1] < other[0] for other in spans)
