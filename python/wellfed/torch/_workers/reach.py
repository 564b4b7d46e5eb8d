"""`look`: what a data set's samples may touch: is it safe to make them in this process, and what is it at.

A worker process has a copy of everything. Where samples are made here instead, nothing that they touch may be changed
by them, depend on the process, or be shared with others. So the attributes of the data set are gone through, the code
of its methods and functions as far as it is the user's, and what that names. Invariants: none of the user's code is
run, the look ends after a bounded number of objects, and what is not known is not safe.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import dis
import enum
import fractions
import functools
import itertools
import operator
import os
import pathlib
import random
import re
import sys
import sysconfig
import types
import zlib
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch

from .fresh import Extent, extents

__all__ = ["Reach", "look"]

MOST = 4000
"""Objects that are looked at."""
ENDS = 32
"""Items at either end of a container that are looked at."""
WHOLE = 8 << 20
"""Bytes of arrays that are compared in all; of those beyond, `SOME` elements each."""
SOME = 1 << 14


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


HOUSES = _names(
    """
    torch torchvision torchaudio wellfed numpy PIL cv2 timm einops skimage scipy
    abc argparse array ast base64 binascii bisect builtins bz2 codecs collections copy csv dataclasses datetime decimal
    enum fractions functools glob gzip hashlib heapq html io itertools json logging lzma math ntpath numbers operator os
    pathlib pickle posix posixpath random re statistics string struct textwrap time types typing unicodedata warnings
    zlib _bisect _codecs _collections _csv _functools _io _json _operator _pickle _random _struct
    """
)
"""Packages whose functions know nothing of processes and keep nothing to themselves but the default generators."""

TELLING = _names(
    """
    getpid getppid get_ident get_native_id current_process parent_process current_thread main_thread active_children
    get_worker_info _worker_info fork Process Pool Thread
    """
)
"""Names of what says in which process it is called, or makes others."""
CHANGING = _names(
    """
    manual_seed manual_seed_all seed_all set_rng_state set_num_threads setNumThreads set_default_dtype
    set_default_device set_default_tensor_type use_deterministic_algorithms chdir putenv environ umask seterr setRNGSeed
    theRNG randu randShuffle exec eval globals __import__ import_module modules setrecursionlimit gc
    """
)
"""Names of what changes or draws from something that the whole process has, or that cannot be followed."""

_ENTRIES = (
    "__getitem__",
    "__getitems__",
    "__call__",
    "__len__",
    "__iter__",
    "__next__",
    "__contains__",
    "forward",
)
_ALWAYS = frozenset(
    [*_ENTRIES, "__getattr__", "__getattribute__", "__eq__", "__hash__", "__lt__", "__bool__"]
)
"""Methods that may be called without being named."""

_SCALARS = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented))
_FIXED = (
    *(torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format, re.Pattern, decimal.Decimal),
    *(fractions.Fraction, datetime.date, datetime.datetime, datetime.timedelta, datetime.time, np.ufunc),
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller),
)
_PATHS = (pathlib.PurePath, pathlib.PurePosixPath, pathlib.PureWindowsPath, pathlib.Path, pathlib.PosixPath)
_BUILT_IN = (list, tuple, dict, set, frozenset, collections.deque)
_DESCRIBED = (
    *(types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType),
)


class Reach(NamedTuple):
    """What was found.

    Attributes:
        why: Why samples have to stay in worker processes; None if they need not.
        mark: What everything is at, as a text that changes with it; the same in a forked process.
        memory: Where the arrays and tensors lie that were found.
    """

    why: str | None
    mark: str
    memory: tuple[Extent, ...] = ()


def look(*roots: Any) -> Reach:
    """Looks at a data set and a collate function, or whatever else is called for a batch."""
    walk = _Walk()
    try:
        for root in roots:
            walk.visit(root)
        walk.go()
    except _Stays as stays:
        return Reach(str(stays), "")
    except Exception as error:  # It is only looked at: nobody's script is to fail of it.
        return Reach(f"looking at it ended with {type(error).__name__}", "")
    return Reach(None, blake2b(repr(walk.tokens).encode(), digest_size=16).hexdigest(), (*walk.memory,))


class _Stays(Exception):  # noqa: N818 -- an answer, not a mishap
    """Samples have to stay in worker processes."""


class _Walk:
    """One look."""

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.memory: list[Extent] = []
        self._room = WHOLE
        self._seen: dict[int, Any] = {}
        self._left: list[Any] = []
        self._classes: list[type] = []
        self._scanned: set[tuple[int, str]] = set()
        self._names: set[str] = set()

    def visit(self, value: Any) -> None:
        """Notes which object it is, to be looked at later."""
        kind = type(value)
        if kind in _SCALARS:
            self.tokens.append(hash(value) if kind in (str, bytes) else repr(value))
        elif issubclass(kind, np.generic) and kind.__module__ == "numpy":
            self.tokens.append((value.dtype.str, zlib.crc32(value.tobytes())))
        elif kind in _PATHS:
            self.tokens.append(hash(str(value)))
        elif kind is types.MethodType:
            # Made anew each time it is looked up.
            self.visit(value.__func__)
            self.visit(value.__self__)
        else:
            foreign = kind in (types.FunctionType, types.BuiltinFunctionType) and _house(
                value.__module__ or ""
            )
            # Libraries may have functions of theirs exchanged, as `accelerate` does.
            self.tokens.append((kind.__name__, foreign or id(value)))
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                self._left.append(value)

    def go(self) -> None:
        """Looks at what was noted, and at what that leads to."""
        while self._left or self._methods():
            if not self._left:
                continue
            if len(self._seen) > MOST:
                raise _Stays(f"it has more than {MOST} parts")
            self._into(self._left.pop())

    def _into(self, value: Any) -> None:
        kind = type(value)
        if isinstance_of(kind, np.ndarray):
            self._array(value)
        elif isinstance_of(kind, torch.Tensor):
            self._tensor(value)
        elif kind is types.FunctionType:
            self._function(value)
        elif kind is types.ModuleType:
            self._module(value)
        elif kind is types.BuiltinFunctionType:
            self._builtin(value)
        elif kind is functools.partial:
            self._all((value.func, *value.args, *value.keywords.values()))
        elif kind in (staticmethod, classmethod):
            self.visit(value.__func__)
        elif kind is property:
            self._all((value.fget, value.fset))
        elif kind is functools.cached_property:
            self.visit(value.func)
        elif kind is types.CellType:
            self._all([value.cell_contents] if _filled(value) else [])
        elif kind is types.MappingProxyType:
            raise _Stays("it holds a mappingproxy")
        elif issubclass(kind, type):
            self._class(value)
        elif issubclass(kind, enum.Enum) or kind in _FIXED or kind in _DESCRIBED or _is_generic(kind):
            pass
        else:
            self._object(value)

    def _all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.visit(value)

    # Data.

    def _array(self, value: Any) -> None:
        kind = type(value)
        if kind not in (np.ndarray, np.memmap):
            raise _Stays(f"it holds a {_name(kind)}")
        self.memory += extents(value)
        base = value
        while type(base) is np.ndarray and base.base is not None:
            base = base.base
        if type(base) is np.memmap or kind is np.memmap:
            if value.flags.writeable:
                raise _Stays("it holds a file in memory that can be written to")
            self.tokens.append((value.shape, value.dtype.str))
            return
        if isinstance_of(type(base), torch.Tensor):
            self.visit(base)
        elif type(base) is not np.ndarray and type(base) is not bytes:
            raise _Stays("it holds an array in memory that is not its own")
        self.tokens.append((value.shape, value.dtype.str, value.__array_interface__["data"][0]))
        if value.dtype.hasobject:
            self._all(value.flat[int(i)] for i in _spread(value.size))
        elif self._takes(value.nbytes):
            self.tokens.append(zlib.crc32(value.tobytes()))
        else:
            self.tokens.append(zlib.crc32(value.flat[_spread(value.size, SOME)].tobytes()))

    def _tensor(self, value: Any) -> None:
        kind = type(value)
        if kind.__module__.partition(".")[0] not in ("torch", "torchvision"):
            raise _Stays(f"it holds a {_name(kind)}")
        if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized:
            raise _Stays(f"it holds a tensor on {value.device} ({value.layout})")
        if value.is_shared():
            raise _Stays("it holds a tensor that other processes share")
        self.memory += extents(value)
        self.tokens.append((tuple(value.shape), str(value.dtype), value.data_ptr()))
        if not value.is_inference():
            self.tokens.append(value._version)
        plain = value.detach()
        if not self._takes(plain.nbytes):
            # Of one that does not lie in order, the version has to do.
            plain = plain.flatten() if plain.is_contiguous() else plain.new_empty(0)
            plain = plain[torch.from_numpy(_spread(plain.numel(), SOME))]
        plain = plain.detach().contiguous().flatten().view(torch.uint8)
        self.tokens.append(zlib.crc32(plain.as_subclass(torch.Tensor).numpy().tobytes()))

    def _takes(self, size: int) -> bool:
        """Whether all of an array of this size is compared."""
        takes = size <= self._room
        self._room -= size if takes else 0
        return takes

    def _object(self, value: Any) -> None:
        kind = type(value)
        where = _house(kind.__module__)
        built_in = next((base for base in _BUILT_IN if isinstance_of(kind, base)), None)
        if built_in is not None:
            self._container(value, built_in)
            if kind in _BUILT_IN or kind in (collections.OrderedDict, collections.Counter):
                return
            if kind is collections.defaultdict:
                self.visit(value.default_factory)
                return
        if where is not None and where not in HOUSES:
            raise _Stays(f"it holds a {_name(kind)}")
        if where == "logging":
            return
        for base in kind.__mro__:
            if base is not object and base not in _BUILT_IN and not _is_python(base):
                raise _Stays(f"it holds a {_name(kind)}")
        for name, part in _attributes(value):
            self.tokens.append(name)
            self.visit(part)
        if where is None:
            self._class(kind)

    def _container(self, value: Any, kind: Any) -> None:
        size = kind.__len__(value)
        self.tokens.append((kind.__name__, size))
        if kind is dict:
            items: Any = itertools.islice(dict.items(value), 2 * ENDS)
            if size > 2 * ENDS:
                items = [
                    *itertools.islice(dict.items(value), ENDS),
                    *itertools.islice(_backwards(value), ENDS),
                ]
            for key, part in items:
                self.visit(key)
                self.visit(part)
        elif kind in (set, frozenset) or size <= 2 * ENDS:
            self._all(itertools.islice(kind.__iter__(value), 2 * ENDS))
        else:
            self._all(kind.__getitem__(value, int(place)) for place in _spread(size))

    # Code.

    def _class(self, kind: type) -> None:
        """A class: what it holds, now; its methods when they are named somewhere."""
        where = _house(kind.__module__)
        if where is not None:
            if where not in HOUSES:
                raise _Stays(f"it uses {_name(kind)}")
            return
        for base in kind.__mro__:
            if _house(base.__module__) is None and base not in self._classes:
                self._classes.append(base)
                for name, part in vars(base).items():
                    if not name.startswith("__") and not _is_method(part):
                        self.tokens.append(name)
                        self.visit(part)

    def _methods(self) -> bool:
        """Notes methods of classes that code has named meanwhile; whether there were any."""
        found = False
        for kind in [*self._classes]:
            for name, part in [*vars(kind).items()]:
                named = name in _ALWAYS or name in self._names
                if named and _is_method(part) and (id(kind), name) not in self._scanned:
                    self._scanned.add((id(kind), name))
                    self.visit(part)
                    found = True
        return found

    def _function(self, function: types.FunctionType) -> None:
        where = _house(function.__module__ or "")
        if where is not None:
            if where not in HOUSES:
                raise _Stays(f"it calls {where}'s {function.__name__}")
            return
        self._all((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        self._all(cell.cell_contents for cell in function.__closure__ or () if _filled(cell))
        if vars(function):
            self._all(vars(function).values())
        for code in _codes(function.__code__):
            self._code(code, function)

    def _code(self, code: types.CodeType, function: types.FunctionType) -> None:
        called = f"{function.__qualname__} (line {code.co_firstlineno})"
        names = {*code.co_names}
        if told := sorted(names & TELLING):
            raise _Stays(f"{called} asks for {told[0]}")
        if changed := sorted(names & CHANGING):
            raise _Stays(f"{called} uses {changed[0]}")
        self._names |= names
        self.tokens.append(zlib.crc32(code.co_code))
        for step in dis.get_instructions(code):
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                raise _Stays(f"{called} sets the variable {step.argval} of its module")
            if step.opname == "IMPORT_NAME":
                self._package(str(step.argval), called)
            elif step.opname == "LOAD_GLOBAL" or step.opname == "LOAD_NAME":
                self._global(str(step.argval), names, function)

    def _global(self, name: str, names: set[str], function: types.FunctionType) -> None:
        around: dict[str, Any] = function.__globals__
        if name not in around:
            return
        value = around[name]
        self.tokens.append(name)
        self.visit(value)
        if type(value) is types.ModuleType:
            # What of it is used is not known by itself, only what names there are.
            user = _house(value.__name__) is None
            for inner in sorted(names):
                part = vars(value).get(inner)
                if part is not None and (user or type(part) in (types.FunctionType, types.ModuleType)):
                    self.visit(part)

    def _module(self, module: types.ModuleType) -> None:
        self._package(module.__name__, "it")

    def _package(self, name: str, called: str) -> None:
        where = _house(name)
        if where is not None and where not in HOUSES:
            raise _Stays(f"{called} uses {where}")

    def _builtin(self, function: Any) -> None:
        owner = function.__self__
        if owner is None or type(owner) is types.ModuleType:
            name = function.__module__ or getattr(owner, "__name__", "")
            if (_house(name) or name) not in HOUSES:
                raise _Stays(f"it calls {name}'s {function.__name__}")
        elif owner is not _PYTHON and owner is not _NUMPY:
            self.visit(owner)


_PYTHON = random.random.__self__  # type: ignore[attr-defined]
_NUMPY = getattr(np.random.rand, "__self__", None)
"""The default generators."""


def isinstance_of(kind: type, base: type) -> bool:
    """As `issubclass`, by the classes that it was derived from alone: nothing of the user's is asked."""
    return base in kind.__mro__


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _is_generic(kind: type) -> bool:
    return kind.__module__ == "typing" or kind in (types.GenericAlias, types.UnionType)


def _is_method(value: Any) -> bool:
    return type(value) in (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not _filled
    except ValueError:
        return False


def _backwards(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in dict.__reversed__(value):
        yield key, dict.__getitem__(value, key)


def _spread(size: int, most: int = 2 * ENDS) -> Any:
    """Places in a sequence, its ends among them."""
    return np.unique(np.linspace(0, max(0, size - 1), min(size, most)).astype(np.int64))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code, and that of functions within."""
    yield code
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            yield from _codes(constant)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object holds, as it lies there."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        held = {}
    yield from [*held.items()]
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if type(slots) is str else slots:
            member = vars(base).get(name)
            if type(member) is types.MemberDescriptorType:
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue


@functools.cache
def _house(module: str) -> str | None:
    """The package that a module is of, if it is installed or Python's own; None: it is the user's."""
    first = module.partition(".")[0]
    if first == "__main__":
        return None
    if first in sys.stdlib_module_names or first in sys.builtin_module_names or first == "wellfed":
        return first
    loaded = sys.modules.get(module) or sys.modules.get(first)
    file = getattr(loaded, "__file__", None)
    if loaded is not None and file is None and first in HOUSES:
        return first
    if type(file) is str and os.path.realpath(file).startswith(_installed()):
        return first
    return None


@functools.cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(
        os.path.realpath(paths[name]) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )


_PLAIN = ("abc", "argparse", "collections.abc", "contextlib", "enum", "types", "typing")
"""Modules of Python whose classes are plain ones."""


def _is_python(kind: type) -> bool:
    """Whether a class is written in Python, so that its instances hold no more than their attributes."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        return kind.__module__ in _PLAIN
    return type(file) is not str or file.endswith((".py", ".pyc"))
