"""`FiveCrop` and `TenCrop` with the functions behind them that turn the crops into one tensor.

Invariant: a function is known only by the source of exactly the code that runs, and only where that does nothing but
call known transforms on each crop and `torch.stack` on all. Names in it mean what they mean now; it is read anew before
each epoch.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch

from wellfed import transforms as T

from .forms import Form, RefusalError, is_stock, is_stock_class
from .written import definition

__all__ = ["STACKED_BEHIND", "Crops", "is_for_each", "joined", "lower_crops"]

STACKED_BEHIND = "behind it, lambda crops: torch.stack([transforms.ToTensor()(crop) for crop in crops])"
"""What the engine knows."""

_VALUES = (T.ToTensor, T.PILToTensor, T.ToImage, T.ToDtype, T.Normalize, T.Identity)
"""What the engine does to each crop."""

_FOR_EACH = frozenset({"ConvertImageDtype", "Identity", "Normalize", "ToDtype", "ToPureTensor"})
"""Transforms, torchvision's and wellfed's, that change each value of a stack of images as of one image."""

_FLATTENING = _FOR_EACH | {"PILToTensor", "ToImage", "ToTensor"}
"""Those of v2 that are called on each image of a tuple."""


class _Step(NamedTuple):
    """What is called on crops.

    Attributes:
        call: What Python calls.
        each: The transforms that it calls on every crop.
        stacks: Whether it makes one tensor of them then.
        flattens: Whether it finds the crops in the tuple itself, as transforms of v2 do.
    """

    call: Callable[[Any], Any]
    each: tuple[Any, ...]
    stacks: bool
    flattens: bool = False


@dataclass(frozen=True, eq=False)
class Crops:
    """Several crops of one image as one tensor: a transform that makes them, and what is called on them."""

    crop: Any
    steps: tuple[_Step, ...]

    def __eq__(self, other: object) -> bool:
        # Whether Python calls the same: transforms in functions are made anew each time these are read.
        if type(other) is not Crops or len(other.steps) != len(self.steps):
            return False
        pairs = zip(other.steps, self.steps, strict=True)
        return other.crop is self.crop and all(one.call is two.call for one, two in pairs)

    def __hash__(self) -> int:
        return hash((id(self.crop), *(id(step.call) for step in self.steps)))

    def __call__(self, image: Any) -> Any:
        made = self.crop(image)
        for step in self.steps:
            made = step.call(made)
        return made

    def __repr__(self) -> str:
        calls = [step.call for step in self.steps]
        names = [getattr(call, "__qualname__", type(call).__name__).rpartition(".")[2] for call in calls]
        return ", ".join([" ".join(repr(self.crop).split()), *names])


def is_for_each(leaf: Any) -> bool:
    """Whether a transform, if it is a known one, does to stacked images what it does to each of them."""
    return type(leaf).__name__ in _FOR_EACH


def joined(leaves: Sequence[Any], known: Callable[[Any], bool]) -> list[Any]:
    """`leaves`, with a `Crops` for each transform that makes crops and what makes a tensor of them.

    Args:
        leaves: Transforms that are called one after the other.
        known: Whether a class is that of a known transform.
    """
    left, out = list(leaves), []
    while left:
        found = _first(left, known)
        if found is None:
            out.append(left.pop(0))
        else:
            out.append(found)
            del left[: 1 + len(found.steps)]
    return out


def lower_crops(
    t: Crops,
    form: Form,
    leaves: Callable[[Any], Iterable[Any]],
    lower_one: Callable[[Any, Form], tuple[list[T.Transform], Form, str]],
) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for crops, and what they are then.

    Args:
        t: The crops.
        form: What the image is before.
        leaves: The transforms of a chain, in order.
        lower_one: What the engine runs for a transform.

    Raises:
        RefusalError: They stay in Python.
    """
    if form.kind == "array":
        raise RefusalError("stands on an array, as OpenCV and Albumentations give it")
    ten = type(t.crop).__name__ == "TenCrop"
    lowered = T.TenCrop(t.crop.size, t.crop.vertical_flip) if ten else T.FiveCrop(t.crop.size)
    native: list[T.Transform] = [lowered]
    after = form
    for step in t.steps:
        for leaf in (leaf for one in step.each for leaf in leaves(one)):
            if step.flattens and after.kind == "tensor":
                raise RefusalError(f"of several tensors {type(leaf).__name__} of v2 changes the first alone")
            added, after, _ = lower_one(leaf, after)
            if not all(isinstance(one, _VALUES) for one in added):
                raise RefusalError(f"{type(leaf).__name__} on each crop is Python code")
            native += added
        if step.stacks:
            if after.kind not in ("tensor", "image"):
                raise RefusalError("its crops are Pillow images, which torch.stack refuses")
            after = after.turned("tensor")
    return native, replace(after, crops=10 if ten else 5, sized=True), ""


def _first(leaves: list[Any], known: Callable[[Any], bool]) -> Crops | None:
    """What the first of `leaves` makes together with those behind it."""
    first = leaves[0]
    if type(first).__name__ not in ("FiveCrop", "TenCrop") or not (
        known(type(first)) or type(first) in (T.FiveCrop, T.TenCrop)
    ):
        return None
    steps: list[_Step] = []
    stacked = False
    for leaf in leaves[1:]:
        step = _read(leaf, known)
        # What is behind the stack is called on its rows, if it iterates at all.
        if step is None or (stacked and not step.stacks):
            break
        steps.append(step)
        stacked = stacked or step.stacks
    return Crops(first, tuple(steps)) if stacked else None


def _read(leaf: Any, known: Callable[[Any], bool]) -> _Step | None:
    """What `leaf` does to a tuple of crops, or to a stack; None if that is not known."""
    if leaf is torch.stack and type(leaf) is BuiltinFunctionType:
        return _Step(leaf, (), True)
    kind = type(leaf)
    if kind.__module__.startswith("torchvision.transforms.v2") and kind.__name__ in _FLATTENING:
        return _Step(leaf, (leaf,), False, flattens=True) if known(kind) else None
    function = leaf
    if kind.__module__ == "torchvision.transforms.transforms" and kind.__name__ == "Lambda":
        function = leaf.lambd if is_stock(leaf, "__init__", "__call__") else None
    if type(function) is not FunctionType:
        return None
    try:
        each, stacks = _Function(function, known).read()
    except _UnknownError:
        return None
    return _Step(leaf, tuple(each), stacks)


class _UnknownError(Exception):
    """A function does something else."""


class _Function:
    """A function of crops, read from its syntax tree."""

    def __init__(self, function: FunctionType, known: Callable[[Any], bool]) -> None:
        node = definition(function)
        if node is None or function.__defaults__ or function.__kwdefaults__:
            raise _UnknownError
        given = node.args
        if given.posonlyargs or given.vararg or given.kwonlyargs or given.kwarg or len(given.args) != 1:
            raise _UnknownError
        self._function, self._known = function, known
        self._crops = given.args[0].arg
        self._body = _returned(node)

    def read(self) -> tuple[list[Any], bool]:
        """The transforms that are called on each crop, and whether the results are stacked."""
        body = self._body
        if isinstance(body, ast.Call) and self._means(body.func) is torch.stack:
            if type(torch.stack) is not BuiltinFunctionType or not _along_the_first(body):
                raise _UnknownError
            return self._list(body.args[0]), True
        if isinstance(body, ast.ListComp):
            return self._list(body), False
        raise _UnknownError

    def _list(self, node: ast.expr) -> list[Any]:
        """What is called on each element of a list."""
        if isinstance(node, ast.Name) and node.id == self._crops:
            return []
        if not isinstance(node, ast.ListComp) or len(node.generators) != 1:
            raise _UnknownError
        loop = node.generators[0]
        over = isinstance(loop.iter, ast.Name) and loop.iter.id == self._crops
        if not over or loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name):
            raise _UnknownError
        self._crop = loop.target.id
        calls: list[Any] = []
        value = node.elt
        while not (isinstance(value, ast.Name) and value.id == self._crop):
            if not isinstance(value, ast.Call) or len(value.args) != 1 or value.keywords:
                raise _UnknownError
            calls.insert(0, self._transform(value.func))
            value = value.args[0]
        return calls

    def _transform(self, node: ast.expr) -> Any:
        """The transform that `node` gives."""
        if isinstance(node, ast.Call):
            return self._made(node)
        found = self._means(node)
        return _of_function(found) or found

    def _made(self, node: ast.Call) -> Any:
        """A transform that is made at each call; making one has no effect, and no two of them differ."""
        kind = self._means(node.func)
        if not isinstance(kind, type) or not self._known(kind):
            raise _UnknownError
        if not issubclass(kind, T.Transform) and not is_stock_class(kind, "__init__", "__new__"):
            raise _UnknownError
        if any(keyword.arg is None for keyword in node.keywords):
            raise _UnknownError
        given = [self._value(argument) for argument in node.args]
        named = {str(keyword.arg): self._value(keyword.value) for keyword in node.keywords}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said where the function is called
                return kind(*given, **named)
        except Exception:
            raise _UnknownError from None  # It says so where it is called.

    def _value(self, node: ast.expr) -> Any:
        """A number, a text, a dtype, or lists and tuples of these; and of transforms, as chains have them."""
        if isinstance(node, ast.List | ast.Tuple):
            values = [self._value(element) for element in node.elts]
            return values if isinstance(node, ast.List) else tuple(values)
        if isinstance(node, ast.Call):
            return self._made(node)
        try:
            return ast.literal_eval(node)
        except ValueError:
            found = self._means(node)
        if not _is_plain(found):
            raise _UnknownError
        return found

    def _means(self, node: ast.expr) -> Any:
        """What a name, or one of a module, stands for."""
        if isinstance(node, ast.Attribute):
            house = self._means(node.value)
            if type(house) is not ModuleType or node.attr not in vars(house):
                raise _UnknownError
            return vars(house)[node.attr]
        if not isinstance(node, ast.Name) or node.id in (self._crops, getattr(self, "_crop", None)):
            raise _UnknownError
        code, function = self._function.__code__, self._function
        if node.id in code.co_freevars:
            cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
            try:
                return cells[node.id].cell_contents
            except ValueError:  # a variable that has no value yet
                raise _UnknownError from None
        if node.id not in function.__globals__:
            raise _UnknownError
        return function.__globals__[node.id]


def _returned(node: ast.FunctionDef | ast.Lambda) -> ast.expr:
    """What a function returns that does nothing else."""
    if isinstance(node, ast.Lambda):
        return node.body
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if node.decorator_list or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        raise _UnknownError
    return body[0].value


def _along_the_first(call: ast.Call) -> bool:
    """Whether `torch.stack` is called on one list, along its first side."""
    sides = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    named = all(keyword.arg == "dim" for keyword in call.keywords)
    zero = all(
        isinstance(side, ast.Constant) and type(side.value) is int and side.value == 0 for side in sides
    )
    return bool(call.args) and named and len(sides) <= 1 and zero


def _of_function(found: Any) -> Any:
    """The transform that does what a function of torchvision does; None of others."""
    if type(found) is not FunctionType:
        return None
    name = f"{found.__module__}.{found.__qualname__}"
    # No decorator changes where it was written. `wellfed.accelerate` puts its own in the place of torchvision's.
    written = str(found.__globals__.get("__name__"))
    if name not in _FUNCTIONS or not (written == found.__module__ or written.startswith("wellfed.")):
        return None
    from torchvision.transforms import transforms as v1
    from torchvision.transforms import v2

    return getattr(v2 if ".v2." in name else v1, _FUNCTIONS[name])()


_FUNCTIONS = {
    "torchvision.transforms.functional.to_tensor": "ToTensor",
    "torchvision.transforms.functional.pil_to_tensor": "PILToTensor",
    "torchvision.transforms.v2.functional._type_conversion.pil_to_tensor": "PILToTensor",
    "torchvision.transforms.v2.functional._type_conversion.to_image": "ToImage",
}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)
