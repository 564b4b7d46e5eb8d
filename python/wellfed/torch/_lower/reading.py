"""Reads what a function makes of an index, from its source: which image, what is called on it, what goes with it.

The function is gone through once, with values that stand for those of any sample. Invariant: a function is understood
only if each sample is made without any effect but the sample itself, from objects whose own code does not run, or is
read here as well. Whatever is not known ends the reading: then the function is Python code, and is called as ever.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from . import beside, calculating, drawn, extractors, frames, gradients, lmdbs, questions, sounds, vocabulary
from .extractors import is_extractor
from .processors import is_processor, settings
from .unknown import UnknownError
from .values import (
    INDEX,
    Batched,
    Boxes,
    Chance,
    Column,
    Example,
    Features,
    File,
    Group,
    Hdf5,
    Known,
    Lmdb,
    Mask,
    Namespace,
    NotPlainError,
    Picture,
    Row,
    Side,
    Sound,
    Stack,
    Stored,
    Table,
    Transaction,
    Uniform,
    Value,
    attribute,
    is_container,
    is_plain,
)
from .written import definition, place_of

__all__ = ["Reader", "UnknownError"]

_DEEPEST = 12
"""Calls of functions in functions that are followed."""

_LARGEST = 2000
"""Statements and expressions that are looked at, so that reading takes milliseconds at most."""


@dataclass
class _Frame:
    """A function that is gone through.

    Attributes:
        function: Which.
        locals: What its variables hold.
        direct: Whether its caller holds nothing meanwhile but its own variables, and does nothing with them.
    """

    function: FunctionType
    locals: dict[str, Value]
    direct: bool = False


class _Super:
    """What ``super()`` is, in a method."""

    def __init__(self, owner: Any, after: type) -> None:
        self.owner, self.after = owner, after


class Reader:
    """Reads functions, and remembers what it looked at on the way.

    Attributes:
        names: Objects that the texts of rows name.
        seen: Attributes, variables of modules and of functions around, with the value that each had. What was read
            holds as long as they have it.
    """

    def __init__(self) -> None:
        self.names = Namespace()
        self.seen: list[tuple[Callable[[], Any], Any]] = []
        self._frames: list[_Frame] = []
        self._looked = 0
        self._functions = vocabulary.functions(self.names.text)
        self._opened: dict[tuple[int, str], Value] = {}
        self._simple: ast.expr | None = None
        self._direct = False
        self._by_chance = 0

    def call(self, function: Any, arguments: list[Value]) -> Value:
        """What ``function(*arguments)`` gives.

        Raises:
            UnknownError: It is not understood; says where.
        """
        return self._apply(function, arguments, {})

    def method(self, owner: Any, name: str, arguments: list[Value]) -> Value:
        """What a method of the class of `owner` gives, as `call`."""
        function = self._of_class(type(owner), name)
        return self._apply(function, [Known(owner), *arguments], {})

    # Statements.

    def _run(self, function: FunctionType, arguments: list[Value], named: dict[str, Value]) -> Value:
        if len(self._frames) >= _DEEPEST:
            raise UnknownError("its functions call each other too deeply")
        node = definition(function)
        if node is None:
            raise UnknownError(f"the source of {function.__qualname__} is not there, or is not what runs")
        direct, self._direct = self._direct, False
        frame = _Frame(function, questions.bound(function, arguments, named), direct)
        self._frames.append(frame)
        try:
            if isinstance(node, ast.Lambda):
                return self._value(node.body)
            returned = self._block(node.body)
        finally:
            self._frames.pop()
        return Known(None) if returned is None else returned

    def _block(self, statements: list[ast.stmt]) -> Value | None:
        """What is returned; None if nothing is yet."""
        for statement in statements:
            try:
                returned = self._statement(statement)
            except UnknownError as refused:
                refused.locate(place_of(self._frames[-1].function, statement))
                raise
            if returned is not None:
                return returned
        return None

    def _statement(self, node: ast.stmt) -> Value | None:
        self._count()
        match node:
            case ast.Return(value=value):
                return Known(None) if value is None else self._whole(value)
            case ast.Assign(targets=targets, value=value):
                made = self._whole(value)
                for target in targets:
                    self._assign(target, made)
            case ast.AnnAssign(target=ast.Name() as target, value=value):
                if value is not None:
                    self._assign(target, self._value(value))
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                before = self._value(ast.copy_location(ast.Name(name, ast.Load()), node))
                if isinstance(before, Mask):
                    number = questions.known_number(self._value(value))
                    made = calculating.changed(before, questions.SIGNS.get(type(op)), number)
                    self._write(before, made)
                    return None
                # Of a list or an array it would change the object itself.
                if not (isinstance(before, Known) and questions.is_scalar(before.value)):
                    raise UnknownError("changes an object in place")
                self._frames[-1].locals[name] = self._operated(op, before, self._value(value))
            case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name), slice=key), op=op, value=value):
                self._put(name, key, self._value(value), questions.SIGNS.get(type(op), "unknown"))
            case ast.AugAssign():
                raise UnknownError("changes an object in place")
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                for one in self._each(iterated):
                    self._assign(target, one)
                    returned = self._block(body)
                    if returned is not None:
                        return returned
            case ast.If(
                test=ast.Compare(
                    left=ast.Attribute() as tested, ops=[ast.Is()], comparators=[ast.Constant(None)]
                ),
                body=[ast.Assign(targets=[ast.Attribute() as target], value=opening)],
                orelse=[],
            ) if ast.unparse(tested) == ast.unparse(target):
                self._open_late(tested, opening)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branch(test, body, orelse)
            case ast.With(items=items, body=body):
                for item in items:
                    if gradients.is_block(item, self._value, self.names):
                        continue
                    entered = self._value(item.context_expr)
                    if not vocabulary.is_opened(entered):
                        raise UnknownError("a with statement of something else than a file")
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, entered)
                returned = self._block(body)
                self._ended()
                return returned
            case ast.Delete(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)]):
                self._popped(name, key)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=[key])
            ):
                self._popped(name, key)
            case ast.Try(body=body, orelse=[], finalbody=[]):
                # What fails is made by the function itself, which then does what it says here.
                return self._block(body)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Assert(test=test) if self._truth(test) is True:
                pass
            case _:
                raise UnknownError(f"{questions.word(node)} is not known")
        return None

    def _open_late(self, target: ast.Attribute, opening: ast.expr) -> None:
        """``if self.file is None: self.file = h5py.File(path)``: each process opens the file when it needs it first."""
        owner = self._value(target.value)
        if not isinstance(owner, Known):
            raise UnknownError("changes an object in place")
        if getattr(self._attribute(owner, target.attr), "value", owner) is not None:
            return  # it is open
        opened = self._value(opening)
        if isinstance(opened, Lmdb):
            holder, name = owner.value, target.attr
            opened = lmdbs.opened(opened, lambda: getattr(holder, "__dict__", {}).get(name))
        elif not isinstance(opened, Hdf5):
            raise UnknownError("changes an object in place")
        self._opened[id(owner.value), target.attr] = opened

    def _ended(self) -> None:
        """Takes transactions from variables: behind their block, nobody can use them."""
        frame = self._frames[-1]
        frame.locals = {
            name: value for name, value in frame.locals.items() if not isinstance(value, Transaction)
        }

    def _branch(self, test: ast.expr, body: list[ast.stmt], orelse: list[ast.stmt]) -> Value | None:
        if not orelse and sounds.branch(self._frames[-1], test, body, self._value, self._block):
            return None
        asked = self._asks_for_mode(test)
        if asked is not None:
            # if image.mode != "RGB": image = image.convert("RGB"), which changes nothing where it is that.
            name, mode = asked
            match body, orelse:
                case [ast.Assign(targets=[ast.Name(id=target)], value=value)], [] if target == name:
                    after = self._value(value)
                    if after == vocabulary.converted(self._frames[-1].locals[name], mode):
                        self._frames[-1].locals[name] = after
                        return None
            raise UnknownError("asks for the mode of an image")
        tested = self._value(test)
        if isinstance(tested, Chance):
            self._branch_by_chance(tested, body, orelse)
            return None
        return self._block(body if self._truth_known(tested) else orelse)

    def _branch_by_chance(self, chance: Chance, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        """``if random.random() > 0.5: image = hflip(image)``."""
        frame = self._frames[-1]
        before = dict(frame.locals)
        self._by_chance += 1
        try:
            returned = self._block(body)
        finally:
            self._by_chance -= 1
        if orelse or returned is not None or self._by_chance:
            raise UnknownError("what it draws decides more than a flip")
        # What only the branch has given a value is left without one.
        frame.locals = {
            name: drawn.by_chance(chance, value, frame.locals[name]) for name, value in before.items()
        }

    def _asks_for_mode(self, test: ast.expr) -> tuple[str, str] | None:
        match test:
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id=name), attr="mode"),
                ops=[ast.NotEq()],
                comparators=[ast.Constant(value=str(mode))],
            ) if isinstance(self._frames[-1].locals.get(name), Picture):
                return name, mode
        return None

    def _assign(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self._frames[-1].locals[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                self._unpack(targets, value)
            case ast.Subscript(value=ast.Name(id=name), slice=key):
                table = self._frames[-1].locals.get(name)
                if isinstance(table, Mask):
                    self._put(name, key, value, None)
                    return
                item = self._value(key)
                if not isinstance(table, Table) or not questions.is_text(item):
                    raise UnknownError("changes an object in place")
                self._only_name(table)
                self._frames[-1].locals[name] = _again(table, {**table.items, item.value: value})
            case _:
                raise UnknownError("changes an object in place")

    def _popped(self, name: str, key: ast.expr) -> Value:
        """What is taken out of a dictionary."""
        table, place = self._frames[-1].locals.get(name), self._value(key)
        if not isinstance(table, Table) or not questions.is_text(place) or place.value not in table.items:
            raise UnknownError("changes an object in place")
        self._only_name(table)
        left = dict(table.items)
        taken = left.pop(place.value)
        self._frames[-1].locals[name] = _again(table, left)
        return taken

    def _put(self, name: str, key: ast.expr, value: Value, sign: str | None) -> None:
        """``mask[mask == 255] = 0``."""
        mask = self._frames[-1].locals.get(name)
        if not isinstance(mask, Mask) or isinstance(key, ast.Slice | ast.Tuple):
            raise UnknownError("changes an object in place")
        condition = self._value(key)
        if not isinstance(condition, Mask) or not isinstance(value, Known):
            raise UnknownError("changes an object in place")
        self._write(mask, calculating.put(mask, condition, value.value, sign))

    def _write(self, mask: Mask, made: Mask) -> None:
        """Puts what is in the memory of a mask now in the place of what was there before.

        Raises:
            UnknownError: Something else may look at that memory, too.
        """
        if self._by_chance:
            raise UnknownError("changes an object in place by chance")
        frames = enumerate(self._frames[:-1])
        outer = [place for place, frame in frames if beside.sees(mask, *frame.locals.values())]
        # The callers would have to hold it in variables alone.
        if outer and not all(frame.direct for frame in self._frames[outer[0] + 1 :]):
            raise UnknownError("changes an object in place that its caller has")
        for frame in self._frames:
            for name, value in frame.locals.items():
                if value is mask:
                    frame.locals[name] = made
                elif beside.sees(mask, value):
                    raise UnknownError("changes an object in place that has two names")

    def _only_name(self, table: Table) -> None:
        """Refuses to change a dictionary that another variable holds, or something that one has."""
        held = [value for frame in self._frames for value in frame.locals.values()]
        if sum(questions.times(value, table) for value in held) > 1:
            raise UnknownError("changes a dictionary that has two names")

    def _unpack(self, targets: list[ast.expr], value: Value) -> None:
        if isinstance(value, Known) and isinstance(value.value, tuple | list) and is_container(value.value):
            value = Group(type(value.value), tuple(map(Known, value.value)))
        stars = [place for place, target in enumerate(targets) if isinstance(target, ast.Starred)]
        count = len(targets) - len(stars)
        if isinstance(value, Group):
            if stars or len(value.items) != count:
                raise UnknownError("unpacks another number of values than there are")
            for target, item in zip(targets, value.items, strict=True):
                self._assign(target, item)
            return
        if not isinstance(value, Row):
            raise UnknownError("unpacks something else than a tuple or list")
        parts = f"_parts({value.text}, {count}, {bool(stars)})"
        for place, target in enumerate(targets):
            if isinstance(target, ast.Starred):
                end = place - len(targets) + 1
                text = f"[*{parts}][{place}:{end or None}]"
                self._assign(target.value, Row(text))
            elif stars and place > stars[0]:
                self._assign(target, Row(f"{parts}[{place - len(targets)}]"))
            else:
                self._assign(target, Row(f"{parts}[{place}]"))

    # Expressions.

    def _whole(self, node: ast.expr) -> Value:
        """The value of an expression that is all that a statement evaluates."""
        if isinstance(node, ast.Call):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if all(isinstance(one, ast.Name | ast.Constant) for one in given):
                self._simple = node
        return self._value(node)

    def _each(self, node: ast.expr) -> list[Value]:
        """What a loop goes through, if that is the same for all samples."""
        match node:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner], keywords=[]) if self._variable(
                "enumerate"
            ) == Known(enumerate):
                return [Group(tuple, (Known(place), item)) for place, item in enumerate(self._each(inner))]
            case ast.Call(func=ast.Name(id="zip"), args=[*inner], keywords=[]) if not any(
                isinstance(part, ast.Starred) for part in inner
            ) and self._variable("zip") == Known(zip):
                return [Group(tuple, items) for items in zip(*map(self._each, inner), strict=False)]
            case ast.Call(func=ast.Attribute(value=owner, attr="items"), args=[], keywords=[]):
                table = self._value(owner)
                if isinstance(table, Table):
                    return [Group(tuple, (Known(key), item)) for key, item in table.items.items()]
                if isinstance(table, Known) and type(table.value) is dict:
                    return [
                        Group(tuple, (Known(key), self._item_of(table.value, key))) for key in table.value
                    ]
                raise UnknownError("a loop over something that differs from sample to sample")
        value = self._value(node)
        if isinstance(value, Group):
            if any(isinstance(leaf, Mask) for leaf in beside.leaves(value)):
                raise UnknownError("a loop over masks, which it may change meanwhile")
            return list(value.items)
        if isinstance(value, Known) and type(value.value) in (tuple, list, range) and len(value.value) < 1000:
            return [self._item_of(value.value, place) for place in range(len(value.value))]
        if isinstance(value, Known) and type(value.value) is dict:
            return [Known(key) for key in value.value]
        raise UnknownError("a loop over something that differs from sample to sample")

    def _item_of(self, container: Any, key: Any) -> Known:
        return self._looked_up(lambda: questions.taken(container, key), f"item {key!r}")

    def _value(self, node: ast.expr) -> Value:
        self._count()
        match node:
            case ast.Constant(value=value):
                return Known(value)
            case ast.Name(id=name):
                return self._variable(name)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(self._value(owner), name)
            case ast.Subscript(value=owner, slice=key):
                return self._item(self._value(owner), key)
            case ast.Call():
                return self._call(node)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return Group(tuple if isinstance(node, ast.Tuple) else list, tuple(self._all(items)))
            case ast.Dict(keys=keys, values=values):
                return self._dictionary(keys, values)
            case ast.BinOp(left=left, op=op, right=right):
                return self._operated(op, self._value(left), self._value(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._truth(test) else orelse)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                inner = self._value(operand)
                if not isinstance(inner, Mask):
                    raise UnknownError("~ of something that is not known")
                return calculating.inverted(inner)
            case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.UAdd()):
                return self._text(node, node.operand)
            case ast.Compare(left=left, comparators=comparators):
                return self._compared(node, [self._value(part) for part in (left, *comparators)])
            case ast.BoolOp(values=values):
                return self._either(node, values)
            case ast.JoinedStr(values=values):
                return self._joined(values)
            case ast.DictComp(generators=[over, *_]):
                bound = lambda item, inner: self._with(over.target, item, inner)  # noqa: E731
                return frames.dictionary(node, self._each(over.iter), bound)
            case ast.ListComp(elt=element, generators=[generator]):
                return self._listed(element, generator)
        raise UnknownError(f"{questions.word(node)} is not known")

    def _all(self, nodes: list[ast.expr]) -> list[Value]:
        """Several values, of which some may be unpacked."""
        values: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                group = self._value(node.value)
                if not isinstance(group, Group):
                    raise UnknownError("* of something else than a new tuple is not known")
                values += group.items
            else:
                values.append(self._value(node))
        return values

    def _count(self) -> None:
        self._looked += 1
        if self._looked > _LARGEST:
            raise UnknownError("it is too long to be read")

    def _variable(self, name: str) -> Value:
        frame = self._frames[-1]
        if name in frame.locals:
            return frame.locals[name]
        function = frame.function
        if name in function.__code__.co_varnames:
            raise UnknownError(f"{name} has no value yet")
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if name in cells:
            return self._looked_up(lambda: questions.of_cell(cells[name]), name)
        if name in function.__globals__:
            return self._looked_up(lambda: function.__globals__[name], name)
        given = function.__globals__.get("__builtins__", builtins)
        given = vars(given) if isinstance(given, ModuleType) else given
        if given is not vars(builtins) or name not in given:
            raise UnknownError(f"{name} has no value")
        return self._looked_up(lambda: vars(builtins)[name], name)

    def _looked_up(self, look: Callable[[], Any], name: str) -> Known:
        try:
            value = look()
        except (KeyError, AttributeError, ValueError):
            raise UnknownError(f"{name} has no value") from None
        if not isinstance(value, MethodType) or look() is value:  # others are made anew each time
            self.seen.append((look, value))
        return Known(value)

    def _of_class(self, kind: type, name: str) -> Any:
        """An attribute of a class, as it was written."""
        value = inspect.getattr_static(kind, name, None)
        self.seen.append((lambda: inspect.getattr_static(kind, name, None), value))
        return value

    def _attribute(self, owner: Value, name: str) -> Value:
        if isinstance(owner, Row):
            return Row(f"_attribute({owner.text}, {name!r})", cells=frames.attribute(owner, name))
        if isinstance(owner, Features) and name in owner.items:
            return owner.items[name]
        if isinstance(owner, Picture | Mask | Boxes):
            return beside.attribute(owner, name)
        if not isinstance(owner, Known):
            raise UnknownError(f"{name} of {vocabulary.word(owner)} is not known")
        value = owner.value
        if (id(value), name) in self._opened:
            return self._opened[id(value), name]
        if isinstance(value, _Super):
            return Known(self._method_above(value, name))
        if isinstance(value, ModuleType | type):
            return self._looked_up(lambda: getattr(value, name), name)
        if is_plain(value):
            return self._of_plain(value, name)
        of_class = self._of_class(type(value), name)
        if isinstance(of_class, property) and type(of_class.fget) is FunctionType:
            return self._apply(of_class.fget, [owner], {})
        own = getattr(value, "__dict__", None)
        if not questions.looks_plainly(value):
            raise UnknownError(f"{type(value).__qualname__} looks its attributes up in its own way")
        if type(own) is dict and not hasattr(type(of_class), "__set__"):
            if name in own:
                self.seen.append((lambda: vars(value)[name], own[name]))
                return Known(own[name])
            # What is put there hides what the class has.
            self.seen.append((lambda: name in vars(value), False))
        if isinstance(value, nn.Module) and own is not None and name in own.get("_modules", ()):
            return self._looked_up(lambda: vars(value)["_modules"][name], name)
        if isinstance(of_class, FunctionType):
            return Known(MethodType(of_class, value))
        if isinstance(of_class, staticmethod | classmethod):
            return self._looked_up(lambda: getattr(value, name), name)
        if inspect.ismemberdescriptor(of_class):
            return self._looked_up(lambda: getattr(value, name), name)
        if of_class is not None and not hasattr(type(of_class), "__get__"):
            return self._looked_up(lambda: getattr(value, name), name)
        raise UnknownError(f"{name} of {type(value).__qualname__} is not known")

    def _of_plain(self, value: Any, name: str) -> Value:
        """An attribute of an array, a path or the like: made anew each time."""
        try:
            return Known(attribute(value, name))
        except NotPlainError as error:
            raise UnknownError(str(error)) from None

    def _method_above(self, given: _Super, name: str) -> Any:
        line = type(given.owner).__mro__
        for kind in line[line.index(given.after) + 1 :]:
            method = vars(kind).get(name)
            if type(method) is FunctionType:
                self._of_class(kind, name)
                return MethodType(method, given.owner)
            if method is not None:
                break
        raise UnknownError(f"super().{name} is not known")

    def _item(self, owner: Value, key: ast.expr) -> Value:
        if isinstance(owner, Picture):
            return vocabulary.sliced(owner, ast.unparse(key))
        if isinstance(owner, Mask):
            return beside.sliced(owner, ast.unparse(key), self._known_key(key))
        known = self._known_key(key)
        if isinstance(owner, Stack) and known == Known(0):
            return owner.item
        owner = vocabulary.opened(owner)
        if isinstance(owner, Hdf5):
            path = owner.path
            self._looked_up(lambda: questions.identity(path), path)
            return vocabulary.inside(owner, known)
        array = owner.array if isinstance(owner, Stored) else getattr(owner, "value", None)
        if type(array) is np.ndarray and not isinstance(key, ast.Slice | ast.Tuple):
            picture = vocabulary.in_memory(array, self._value(key))
            if picture is not None:
                return picture
        if isinstance(array, np.ndarray | torch.Tensor) and not isinstance(key, ast.Slice | ast.Tuple):
            mask = self._value(key)
            if isinstance(mask, Mask):
                return calculating.looked_up(array, mask)
        text = self._key(key)
        cells = frames.item(owner, key, self._known_key, self._value)
        if isinstance(owner, Stored):
            return Row(f"{self.names.name(questions.fresh)}({self.names.name(owner.array)}[{text}])")
        if isinstance(owner, Table) and known is not None and isinstance(known.value, str):
            if known.value not in owner.items:
                # A KeyError, that the function may expect.
                raise UnknownError(f"there is no {known.value!r}")
            return owner.items[known.value]
        if isinstance(owner, Group) and known is not None and isinstance(known.value, int | slice):
            try:
                picked = owner.items[known.value]
            except IndexError:
                raise UnknownError(f"there is no item {known.value}") from None
            return Group(owner.kind, picked) if isinstance(picked, tuple) else picked
        if isinstance(owner, Known) and is_container(owner.value):
            if known is None:
                rows = owner.value if text == INDEX.text and vocabulary.has_rows(owner.value) else None
                return Row(f"{self.names.name(owner.value)}[{text}]", rows, cells)
            if isinstance(owner.value, tuple | list | dict | str | bytes | range):
                value, place = owner.value, known.value
                if isinstance(place, slice):
                    return Known(value[place])  # as new each time; what it is taken of was looked at
                return self._looked_up(lambda: questions.taken(value, place), f"item {place!r}")
            return Row(f"{self.names.name(owner.value)}[{text}]", cells=cells)
        if isinstance(owner, Row):
            return Row(f"_plain({owner.text})[{text}]", cells=cells)
        raise UnknownError(f"an item of {vocabulary.word(owner)} is not known")

    def _known_key(self, key: ast.expr) -> Known | None:
        """An index that is the same for all samples."""
        if isinstance(key, ast.Slice):
            ends = [None if end is None else self._value(end) for end in (key.lower, key.upper, key.step)]
            if all(end is None or isinstance(end, Known) for end in ends):
                return Known(slice(*(end.value if isinstance(end, Known) else None for end in ends)))
            return None
        if isinstance(key, ast.Tuple) and any(isinstance(part, ast.Slice) for part in key.elts):
            return None
        value = self._value(key)
        return value if isinstance(value, Known) else None

    def _key(self, key: ast.expr) -> str:
        if isinstance(key, ast.Slice):
            return ":".join(
                "" if end is None else self._plain_text(self._value(end))
                for end in (key.lower, key.upper, key.step or ast.Constant(1))
            )
        if isinstance(key, ast.Tuple):
            return ", ".join(self._key(part) for part in key.elts) + ","
        return self._plain_text(self._value(key))

    def _plain_text(self, value: Value) -> str:
        """The text of a value that operators are used on."""
        text = self.names.text(value)
        if text is None:
            raise UnknownError(f"something is done with {vocabulary.word(value)} that is not known")
        if isinstance(value, Known) and not is_plain(value.value):
            raise UnknownError(f"{type(value.value).__qualname__} is no plain value")
        return text if not isinstance(value, Row) or value is INDEX else f"_plain({text})"

    def _dictionary(self, keys: list[ast.expr | None], values: list[ast.expr]) -> Value:
        made: dict[str, Value] = {}
        for key, value in zip(keys, values, strict=True):
            if key is None:
                inner = self._value(value)
                if not isinstance(inner, Table):
                    raise UnknownError("** of something else than a new dictionary is not known")
                made |= inner.items
                continue
            name = self._value(key)
            if not questions.is_text(name):
                raise UnknownError("a key of a dictionary is no text")
            made[name.value] = self._value(value)
        return Table(made)

    def _operated(self, op: ast.operator, left: Value, right: Value) -> Value:
        match left, op, right:
            case Group(kind, first), ast.Add(), Group(other, second) if kind is other:
                return Group(kind, first + second)
        if isinstance(left, Picture) and isinstance(op, ast.Div) and isinstance(right, Known):
            return vocabulary.divided(left, right.value)
        sign = questions.SIGNS.get(type(op))
        if isinstance(left, Picture | Mask) or isinstance(right, Picture | Mask):
            return beside.calculated(sign, left, right)
        if sign is None:
            raise UnknownError(f"the operator {type(op).__name__} is not known")
        return self._folded(f"({self._plain_text(left)} {sign} {self._plain_text(right)})", left, right)

    def _folded(self, text: str, *parts: Value) -> Value:
        """A value that is the same for all samples, if all its parts are; else an expression."""
        if all(isinstance(part, Known) and questions.is_scalar(part.value) for part in parts):
            try:
                return Known(self.names.function(text)(0))
            except Exception as error:
                raise UnknownError(f"it raises {error}") from None
        return Row(text)

    def _text(self, node: ast.UnaryOp, operand: ast.expr) -> Value:
        sign = {ast.USub: "-", ast.UAdd: "+", ast.Not: "not "}[type(node.op)]
        if sign == "not ":
            truth = self._truth_of(self._value(operand))
            if truth is not None:
                return Known(not truth)
        value = self._value(operand)
        return self._folded(f"({sign}{self._plain_text(value)})", value)

    def _compared(self, node: ast.Compare, parts: list[Value]) -> Value:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            same = questions.is_same(*parts)
            if same is None:
                raise UnknownError("asks whether a value of a sample is an object")
            return Known(same if isinstance(node.ops[0], ast.Is) else not same)
        signs = [questions.COMPARISONS.get(type(op)) for op in node.ops]
        if None in signs:
            raise UnknownError("a comparison is not known")
        if len(parts) == 2 and any(isinstance(part, Uniform) for part in parts):
            return drawn.compared(signs[0], *parts)
        if len(parts) == 2 and any(isinstance(part, Mask) for part in parts):
            return beside.calculated(signs[0], *parts)
        text = self._plain_text(parts[0])
        for sign, part in zip(signs, parts[1:], strict=True):
            text += f" {sign} {self._plain_text(part)}"
        if all(isinstance(part, Known) for part in parts):
            # Of plain values, so that nothing else runs.
            try:
                return Known(bool(self.names.function(text)(0)))
            except Exception as error:
                raise UnknownError(f"it raises {error}") from None
        return Row(f"({text})")

    def _either(self, node: ast.BoolOp, values: list[ast.expr]) -> Value:
        stops = isinstance(node.op, ast.Or)
        value: Value = Known(not stops)
        for part in values:
            value = self._value(part)
            if part is values[-1] and isinstance(value, Chance):
                return value  # which nobody has asked so far
            truth = self._truth_of(value)
            if truth is None:
                raise UnknownError("asks for the value of a sample")
            if truth is stops:
                break
        return value

    def _truth(self, test: ast.expr) -> bool:
        return self._truth_known(self._value(test))

    def _truth_known(self, value: Value) -> bool:
        truth = self._truth_of(value)
        if truth is None:
            raise UnknownError("what it does depends on the sample")
        return truth

    def _truth_of(self, value: Value) -> bool | None:
        if isinstance(value, Group | Table):
            return bool(value.items)
        if isinstance(value, Known):
            given = value.value
            if is_plain(given):
                try:
                    return bool(given)
                except Exception as error:
                    raise UnknownError(f"it raises {error}") from None
            kind = type(given)
            for name in ("__bool__", "__len__"):
                method = inspect.getattr_static(kind, name, None)
                if method is not None:
                    if type(method) is FunctionType and method.__module__.partition(".")[0] in (
                        "torch",
                        "torchvision",
                        "albumentations",
                    ):
                        return bool(given)
                    raise UnknownError(f"{kind.__qualname__} says in its own way whether it is true")
            return True
        return None

    def _joined(self, values: list[ast.expr]) -> Value:
        parts: list[tuple[str, Value]] = []
        for part in values:
            match part:
                case ast.Constant(value=str(given)):
                    parts.append((self.names.name(given), Known(given)))
                case ast.FormattedValue(value=inner, conversion=conversion, format_spec=spec):
                    value = self._value(inner)
                    spec_value = Known("") if spec is None else self._joined(spec.values)  # type: ignore[attr-defined]
                    if not isinstance(spec_value, Known):
                        raise UnknownError("a format that differs from sample to sample")
                    text = self._plain_text(value)
                    if conversion != -1:
                        maker = {115: str, 114: repr, 97: ascii}[conversion]
                        text = f"{self.names.name(maker)}({text})"
                    made = f"{self.names.name(format)}({text}, {self.names.name(spec_value.value)})"
                    parts.append((made, value))
                case _:
                    raise UnknownError(f"{questions.word(part)} is not known")
        text = f"{self.names.name('')}.join([{', '.join(text for text, _ in parts)}])"
        return self._folded(text, *(value for _, value in parts))

    def _listed(self, element: ast.expr, generator: ast.comprehension) -> Value:
        if generator.ifs or generator.is_async:
            raise UnknownError("a list of some of the items is not known")
        inner = self._value(generator.iter)
        if isinstance(inner, Group):
            items = []
            for item in inner.items:
                items.append(self._with(generator.target, item, element))
            return Group(list, tuple(items))
        if isinstance(inner, Column):
            return Column(self._with(generator.target, inner.item, element))
        iterated = self._plain_text(inner)
        variable = self.names.variable()
        made = self._with(generator.target, Row(variable), element)
        text = self.names.text(made)
        if text is None:
            raise UnknownError("a list of images is not known")
        return Row(f"[{text} for {variable} in {iterated}]")

    def _with(self, target: ast.expr, item: Value, element: ast.expr) -> Value:
        """What an expression is while a variable holds `item`."""
        frame = self._frames[-1]
        before = dict(frame.locals)
        try:
            self._assign(target, item)
            return self._value(element)
        finally:
            frame.locals = before

    # Batches.

    def _of_batch(self, function: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
        """What a function makes of a list of one value of each sample."""
        (column, *rest) = arguments
        assert isinstance(column, Column)
        cell = self.names.text(column.item)
        if cell is None:
            raise UnknownError(f"calls {vocabulary.name_of(function)} on the samples of a batch")
        if not all(isinstance(value, Known) for value in (*rest, *named.values())):
            raise UnknownError("an argument differs from sample to sample")
        given = self._given(rest, named)
        kept = self.names.kept(cell)
        text = f"{self.names.name(function)}([{kept} for index in rows]{', ' if given else ''}{given})"
        return Batched(text)

    def transposed(self, column: Column) -> Value:
        """``zip(*samples)``: the values of each field."""
        item = column.item
        if not isinstance(item, Group):
            raise UnknownError("zip() of samples that are no tuples")
        return Group(tuple, tuple(map(Column, item.items)))

    # Calls.

    def _call(self, node: ast.Call) -> Value:
        match node:
            case ast.Call(
                func=ast.Name(id="zip"), args=[ast.Starred(value=ast.Name() as samples)], keywords=[]
            ) if isinstance(column := self._value(samples), Column) and self._variable("zip") == Known(zip):
                return self.transposed(column)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=[key], keywords=[]
            ) if isinstance(self._frames[-1].locals.get(name), Table):
                return self._popped(name, key)
        simple, self._simple = node is self._simple, None
        arguments = self._all(node.args)
        named: dict[str, Value] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                table = self._value(keyword.value)
                if not isinstance(table, Table):
                    raise UnknownError("** of something else than a new dictionary is not known")
                named |= table.items
            else:
                named[keyword.arg] = self._value(keyword.value)
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not arguments and not named:
            return self._super()
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            made = self._method(owner, node.func.attr, arguments, named)
            if made is not None:
                return made
            function: Value = self._attribute(owner, node.func.attr)
        else:
            function = self._value(node.func)
        self._direct = simple
        try:
            return self._apply_value(function, arguments, named)
        finally:
            self._direct = False

    def _super(self) -> Value:
        frame = self._frames[-1]
        function = frame.function
        if self._variable("super") != Known(super) or "__class__" not in function.__code__.co_freevars:
            raise UnknownError("super() is not known here")
        after = self._variable("__class__")
        first = frame.locals.get(function.__code__.co_varnames[0])
        if not isinstance(after, Known) or not isinstance(first, Known):
            raise UnknownError("super() is not known here")
        return Known(_Super(first.value, after.value))

    def _method(
        self, owner: Value, name: str, arguments: list[Value], named: dict[str, Value]
    ) -> Value | None:
        """What a method gives of an image, or of a value of a sample."""
        if isinstance(owner, Transaction) and name == "get" and len(arguments) == 1 and not named:
            database = owner.of
            self._looked_up(lambda: lmdbs.state(database), database.file)
            return Row(f"{self.names.name(database.entries)}({self._plain_text(arguments[0])})")
        if (of_table := frames.of_arrow(self.names, owner, name, arguments, named)) is not None:
            return of_table
        if name == "column" and (column := vocabulary.column(owner, arguments, named)) is not None:
            return column
        if (begun := lmdbs.begun(owner, name, arguments, named)) is not None:
            return begun
        if isinstance(owner, Picture | Mask):
            return vocabulary.method(owner, name, arguments, named)
        if isinstance(owner, Uniform) and name == "item" and not arguments and not named:
            return owner
        if isinstance(owner, Stack) and name == "squeeze" and arguments == [Known(0)] and not named:
            return owner.item
        if isinstance(owner, Sound):
            return sounds.method(owner, name, arguments, named)
        if isinstance(owner, Table | Group | File | Boxes | Side):
            raise UnknownError(f"{name} of {vocabulary.word(owner)} is not known")
        if isinstance(owner, Known) and (not is_plain(owner.value) or name not in vocabulary.METHODS):
            return None
        cells = frames.method(owner, name, arguments, named)
        if name not in vocabulary.METHODS and cells is None:
            raise UnknownError(f"the method {name} is not known")
        given = self._given(arguments, named)
        parts = [owner, *arguments, *named.values()]
        made = self._folded(f"{self._plain_text(owner)}.{name}({given})", *parts)
        return replace(made, cells=cells) if isinstance(made, Row) else made

    def _given(self, arguments: list[Value], named: dict[str, Value]) -> str:
        """Arguments of a call, as text."""

        def text(value: Value) -> str:
            if isinstance(value, Known) and isinstance(value.value, type | torch.dtype | torch.device):
                return self.names.name(value.value)
            return self._plain_text(value)

        return ", ".join([*map(text, arguments), *(f"{name}={text(value)}" for name, value in named.items())])

    def _apply_value(self, function: Value, arguments: list[Value], named: dict[str, Value]) -> Value:
        if not isinstance(function, Known):
            raise UnknownError(f"calls {vocabulary.word(function)}")
        return self._apply(function.value, arguments, named)

    def _apply(self, function: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
        if is_processor(function):
            self.seen.append((lambda: settings(function), settings(function)))
            return vocabulary.processed(function, arguments, named)
        if is_extractor(function):
            self.seen.append((lambda: extractors.settings(function), extractors.settings(function)))
            return extractors.extracted(function, arguments, named)
        made = lmdbs.environment(function, arguments, named) or vocabulary.called(
            self._functions, function, arguments, named
        )
        if made is None and arguments and isinstance(arguments[0], Column) and vocabulary.copies(function):
            made = self._of_batch(function, arguments, named)
        if made is not None:
            return made
        together = beside.called_together(function, arguments, named)
        if together is not None:
            return together
        kind = vocabulary.pure(function)
        if kind is not None:
            text = f"{self.names.name(function)}({self._given(arguments, named)})"
            parts = [*arguments, *named.values()]
            cells = frames.called(function, arguments, named)
            if kind == "folded":
                made = self._folded(text, *parts)
                return replace(made, cells=cells) if isinstance(made, Row) else made
            (given, *others) = parts or [Known(None)]
            same = not others and vocabulary.keeps(function)
            return Row(text, given.rows if same and isinstance(given, Row) else None, cells)
        pictures = [value for value in (*arguments, *named.values()) if isinstance(value, Picture | Sound)]
        plain, first = function, []
        if isinstance(function, MethodType):
            plain, first = function.__func__, [Known(function.__self__)]
        plain = gradients.undecorated(plain, self._looked_up, self.names)
        if type(plain) is FunctionType and not vocabulary.is_library(plain):
            try:
                return self._run(plain, [*first, *arguments], named)
            except UnknownError:
                # On an image alone it is a transform in Python.
                if not pictures or len(arguments) != 1 or named:
                    raise
        if len(pictures) == 1 and len(arguments) + len(named) == 1 and vocabulary.transforms(function):
            return vocabulary.transformed(pictures[0], function, next(iter(named), None))
        raise UnknownError(f"calls {vocabulary.name_of(function)}, which is not known")


def _again(table: Table, items: dict[str, Value]) -> Table:
    """The same dictionary with other items."""
    return (Example if isinstance(table, Example) else Table)(items)
