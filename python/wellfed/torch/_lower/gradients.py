"""Code that runs without gradients: in ``with torch.no_grad():`` and ``torch.inference_mode()``, or decorated by one.

What the engine makes has no gradients anyhow. Invariant: values beside it are made in no such block, so that one that
has a gradient there is left to the data set itself.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from .questions import of_cell
from .unknown import UnknownError
from .values import Known, Namespace, Value

__all__ = ["is_block", "undecorated"]

_NAMES = ("no_grad", "inference_mode")
"""What blocks are called, whatever the module is called that they are of."""


_BLOCKS = (torch.no_grad, torch.inference_mode)


def _code(block: Any) -> CodeType:
    """The code that torch puts around each function that `block` decorates."""
    made: Any = block()(_code)
    code: CodeType = made.__code__
    return code


_DECORATED = tuple(map(_code, _BLOCKS))


def is_block(item: ast.withitem, evaluate: Callable[[ast.expr], Value], names: Namespace) -> bool:
    """Whether ``with torch.no_grad():`` is entered, or the like; values are looked at from then on.

    Raises:
        UnknownError: It may turn gradients on.
    """
    call = item.context_expr
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    if (call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id) not in _NAMES:
        return False
    function = evaluate(call.func)
    if not isinstance(function, Known) or not any(function.value is block for block in _BLOCKS):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    known = len(given) == len(call.args) + len(call.keywords) < 2
    # inference_mode(False) turns gradients on.
    on = not given or (function.value is torch.inference_mode and evaluate(given[0]) == Known(True))
    if not known or not on or item.optional_vars is not None:
        raise UnknownError("turns gradients on or off in a way that is not known")
    names.check = _checked
    return True


def undecorated(function: Any, look: Callable[[Callable[[], Any], str], Known], names: Namespace) -> Any:
    """The function that ``@torch.no_grad()`` and the like were put on; any other function as it is.

    Args:
        function: What is called.
        look: Looks something up, and remembers it.
        names: Whose values are looked at from then on, if it is decorated.
    """
    while type(function) is FunctionType and function.__code__ in _DECORATED:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        factory = look(functools.partial(of_cell, cells["ctx_factory"]), "its decorator").value
        block = factory.__self__ if type(factory) is MethodType else None
        if not isinstance(block, _BLOCKS) or getattr(block, "mode", True) is not True:
            break
        if type(block) not in _BLOCKS or factory.__func__ is not type(block).clone:
            break
        function = look(functools.partial(of_cell, cells["func"]), "what it decorates").value
        names.check = _checked
    return function


def _checked(value: Any) -> Any:
    """A value that was made outside of the block.

    Raises:
        UnknownError: It has a gradient, which it would not have inside.
    """
    if _has_gradient(value):
        raise UnknownError("a value of its samples would have a gradient outside of torch.no_grad()")
    return value


def _has_gradient(value: Any) -> bool:
    """Whether gradients are recorded of a tensor, or of one in a container."""
    if isinstance(value, torch.Tensor):
        return bool(value.requires_grad)
    if isinstance(value, tuple | list | dict):
        return any(map(_has_gradient, value.values() if isinstance(value, dict) else value))
    return False
