"""Small functions of users that are known: those that load an image with OpenCV, or call a pipeline of Albumentations.

Invariant: a function is known only if it is, instruction by instruction, one of those that are written here, and the
names in it stand for the modules that they say. What its variables are called makes no difference.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

from wellfed._accelerate.opencv import is_ours

__all__ = ["Call", "call_of", "loads_rgb"]


class Call(NamedTuple):
    """A function that calls something it holds on an image, and returns the answer's ``"image"``.

    Attributes:
        held: What it calls.
        converts: Whether it makes an array of the image first, so that a Pillow image will do.
    """

    held: Any
    converts: bool


def loads_rgb(function: Any) -> bool:
    """Whether a function does nothing but load the file of a path with OpenCV, as an array of RGB."""
    cv2: Any = sys.modules.get("cv2")
    if cv2 is None or type(function) is not FunctionType:
        return False
    stock = all(type(one) is BuiltinFunctionType or is_ours(one) for one in (cv2.imread, cv2.cvtColor))
    return stock and _essence(function) in _loaders() and _means_modules(function, ())


def call_of(transform: Any) -> Call | None:
    """What a function, or an object that is called, calls on its image; None if it does anything else."""
    owner: dict[str, Any] | None = None
    function = transform
    if type(transform) is not FunctionType:
        kind: Any = type(transform)
        function = vars(kind).get("__call__")
        plain = kind.__getattribute__ is object.__getattribute__ and not hasattr(kind, "__getattr__")
        if type(function) is not FunctionType or not plain:
            return None
        owner = getattr(transform, "__dict__", {})
    code = function.__code__
    given = code.co_names + code.co_freevars
    for names, converts in _calls().get(_essence(function, hidden=True), ()):
        # The one name that is not among the known ones is that of what it holds.
        pairs = list(zip(given, names, strict=True))
        if any(name != known and known != _HELD for name, known in pairs):
            continue
        held = {name for name, known in pairs if known == _HELD}
        if len(held) == 1 and _means_modules(function, held):
            found = _look_up(function, held.pop(), transform, owner)
            return None if found is None else Call(found, converts)
    return None


def _look_up(function: FunctionType, name: str, transform: Any, owner: dict[str, Any] | None) -> Any:
    if owner is not None:
        # An attribute of the class may be asked first.
        return None if any(name in vars(kind) for kind in type(transform).__mro__) else owner.get(name)
    if name in function.__code__.co_freevars:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        try:
            return cells[name].cell_contents
        except ValueError:  # a variable that has no value yet
            return None
    return function.__globals__.get(name)


_MODULES = {"cv2": "cv2", "np": "numpy", "numpy": "numpy"}
_FUNCTIONS = ("str",)


def _means_modules(function: FunctionType, others: Any) -> bool:
    """Whether names that stand for modules and built-in functions do so where the function was written."""
    given = function.__globals__
    for name in function.__code__.co_names:
        if name in others:
            continue
        if name in _MODULES and given.get(name) is not sys.modules.get(_MODULES[name], function):
            return False
        if name in _FUNCTIONS and (
            name in given or given.get("__builtins__") not in (builtins, vars(builtins))
        ):
            return False
    return True


# The functions.

_HELD = "_held_by_the_function"

_READS = [
    f"cv2.imread({path}{flag})" for path in ("path", "str(path)") for flag in ("", ", cv2.IMREAD_COLOR")
]
_READS_RGB = [f"cv2.imread({path}, cv2.IMREAD_COLOR_RGB)" for path in ("path", "str(path)")]


def _loading() -> Iterator[list[str]]:
    turn = "cv2.cvtColor({}, cv2.COLOR_BGR2RGB)"
    for read in _READS:
        for turned in (turn, "{}[:, :, ::-1]", "{}[..., ::-1]"):
            yield [f"return {turned.format(read)}"]
            yield [f"image = {read}", f"return {turned.format('image')}"]
            yield [f"image = {read}", f"path = {turned.format('image')}", "return path"]
            yield [f"image = {read}", f"image = {turned.format('image')}", "return image"]
            yield [f"image = {turned.format(read)}", "return image"]
    for read in _READS_RGB:
        yield [f"return {read}"]
        yield [f"image = {read}", "return image"]


def _calling(held: str) -> Iterator[tuple[list[str], bool]]:
    made = [
        "image",
        *(f"{module}.{name}(image)" for module in ("np", "numpy") for name in ("array", "asarray")),
    ]
    for array in made:
        converts = array != "image"
        for first, given in [([], array), *([([f"image = {array}"], "image")] if converts else [])]:
            call = f"{held}(image={given})"
            yield [*first, f"return {call}['image']"], converts
            yield [*first, f"made = {call}", "return made['image']"], converts
            yield [*first, f"image = {call}['image']", "return image"], converts
            yield [*first, f"made = {call}['image']", "return made"], converts


# CPython compiles calls of a module's functions differently where the module is imported in the same file.
_HEADERS = ("", "if 0:\n    import cv2, numpy\n    import numpy as np\n")


def _functions(argument: str, body: list[str], closed: bool = False) -> Iterator[FunctionType]:
    """Functions with this body; `closed`: what they hold is a variable of the function around them."""
    texts = ["\n".join([f"def function({argument}):", *(f"    {line}" for line in body)])]
    if len(body) == 1:
        texts.append(f"function = lambda {argument}: {body[0].removeprefix('return ')}")
    for text in texts:
        if closed:
            inner = "\n".join(f"    {line}" for line in text.split("\n"))
            text = f"def around({_HELD}):\n{inner}\n    return function\nfunction = around(None)"
        for header in _HEADERS:
            space: dict[str, Any] = {}
            exec(compile(header + text, "<known>", "exec"), space)  # only texts of this file
            yield space["function"]


def _essence(function: FunctionType, hidden: bool = False) -> tuple[Any, ...]:
    """What a function does, without the names of its variables and what it says of itself.

    `hidden` leaves out the names of what it uses, which are compared apart.
    """
    code = function.__code__
    constants = list(map(repr, code.co_consts))
    if function.__doc__ is not None and code.co_consts[0] == function.__doc__:
        constants[0] = repr(None)  # where other functions have their documentation
    # Whether it takes more arguments, or is a generator or a coroutine.
    kind = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & 0x2AC
    names = (code.co_names, code.co_freevars)
    return code.co_code, *kind, *(map(len, names) if hidden else names), tuple(constants)


@functools.cache
def _loaders() -> frozenset[tuple[Any, ...]]:
    return frozenset(_essence(function) for body in _loading() for function in _functions("path", body))


@functools.cache
def _calls() -> dict[tuple[Any, ...], list[tuple[tuple[str, ...], bool]]]:
    found: dict[tuple[Any, ...], list[tuple[tuple[str, ...], bool]]] = {}
    for argument, held, closed in (
        ("image", _HELD, False),
        ("image", _HELD, True),
        ("self, image", f"self.{_HELD}", False),
    ):
        for body, converts in _calling(held):
            for function in _functions(argument, body, closed):
                code = function.__code__
                names = code.co_names + code.co_freevars
                found.setdefault(_essence(function, hidden=True), []).append((names, converts))
    return found
