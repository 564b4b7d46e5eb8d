"""What is calculated with the numbers of a mask, while a function is read; and the calculation itself.

Invariant: each number that comes out depends on the one at its place alone. So it makes no difference whether a mask is
moved before or after it, and a batch of masks is calculated as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from .unknown import UnknownError
from .values import Calculation, Mask

__all__ = [
    "after",
    "calculate",
    "changed",
    "cleared",
    "inverted",
    "keeps_number",
    "like",
    "limited",
    "looked_up",
    "on_both",
    "one_of",
    "plain",
    "put",
    "result",
    "where",
    "with_number",
]

_SIGNS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def _turned(sign: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: sign(b, a)


_TURNED = {name: _turned(sign) for name, sign in _SIGNS.items()}

_IN_PLACE: dict[str, Callable[..., Any]] = {
    "+": operator.iadd,
    "-": operator.isub,
    "*": operator.imul,
    "/": operator.itruediv,
    "//": operator.ifloordiv,
    "&": operator.iand,
    "|": operator.ior,
    "^": operator.ixor,
}

_NUMBERS = (int, float, bool)


def after(value: Mask, function: Callable[..., Any], *arguments: Any, own: bool = True) -> Mask:
    """A mask whose numbers `function` has made of those of another.

    Args:
        value: The other.
        function: Takes the array or tensor, and `arguments`.
        *arguments: The same for all samples.
        own: Whether they lie in memory of their own; False where that may be so or not.
    """
    step = Calculation(function, arguments, value.kind == "array")
    memory = object() if own else value.memory
    return replace(value, after=(*value.after, step), memory=memory)


def plain(value: Mask) -> Mask:
    """A ``tv_tensors.Mask`` becomes a plain tensor when something is done with it."""
    return replace(value, kind="tensor") if value.kind == "mask" else value


def with_number(sign: str, value: Mask, number: Any, first: bool) -> Mask:
    """``mask / 255``, or with `first` ``255 / mask``: with a number that is the same for all samples."""
    known = _TURNED if first else _SIGNS
    if sign not in known or type(number) not in _NUMBERS:
        raise UnknownError("calculates with a mask in a way that is not known")
    return after(plain(value), known[sign], number)


def on_both(sign: str, left: Mask, right: Mask) -> Mask:
    """``(mask > 0) & (mask < 255)``: of what was made of one mask."""
    if sign not in _SIGNS:
        raise UnknownError("calculates with two masks in a way that is not known")
    return _of_several(_SIGNS[sign], [plain(left), plain(right)])


def where(condition: Any, one: Any, other: Any) -> Mask:
    """``np.where(mask == 255, 0, mask)``, of masks and numbers."""
    parts = [plain(part) if isinstance(part, Mask) else part for part in (condition, one, other)]
    masks = [part for part in parts if isinstance(part, Mask)]
    return _of_several(np.where if masks[0].kind == "array" else torch.where, parts)


def inverted(value: Mask) -> Mask:
    """``~(mask == 255)``."""
    return after(plain(value), operator.invert)


def put(value: Mask, condition: Mask, number: Any, sign: str | None = None) -> Mask:
    """What is left in the memory of a mask after ``mask[condition] = number``, or ``mask[condition] -= number``."""
    if type(number) not in _NUMBERS or (sign is not None and sign not in _IN_PLACE):
        raise UnknownError("puts something into a mask that is not known")
    _check_own(value)
    made = _of_several(_put, [value, condition, number, sign or ""])
    return replace(made, memory=value.memory)


def changed(value: Mask, sign: str | None, number: Any) -> Mask:
    """What is left in the memory of a mask after ``mask -= number``, where that is a number or made of this mask."""
    if sign not in _IN_PLACE or not isinstance(number, Mask | int | float | bool):
        raise UnknownError("changes a mask in a way that is not known")
    _check_own(value)
    made = _of_several(_change, [value, number, sign])
    return replace(made, memory=value.memory)


def _check_own(value: Mask) -> None:
    if value.kind == "mask":
        raise UnknownError("changes a tv_tensors.Mask in place")
    if value.memory is None:
        raise UnknownError("changes an array in place that may be read-only")


def like(value: Mask, number: int, dtype: Any = None) -> Mask:
    """``np.zeros_like(mask)``, ``np.ones_like(mask, dtype)``."""
    made = after(plain(value), _fill, number)
    if dtype is None:
        return made
    if made.kind == "array":
        return after(made, np.ndarray.astype, np.dtype(dtype))
    if not isinstance(dtype, torch.dtype):
        raise UnknownError("makes a tensor of a type that is not known")
    return after(made, torch.Tensor.to, dtype)


def limited(value: Mask, low: Any, high: Any) -> Mask:
    """``np.clip(mask, low, high)``, ``mask.clamp(low, high)``."""
    if not all(type(number) in (*_NUMBERS, type(None)) for number in (low, high)):
        raise UnknownError("limits a mask by something else than numbers")
    return after(plain(value), np.clip if value.kind == "array" else torch.clamp, low, high)


def one_of(value: Mask, numbers: Any) -> Mask:
    """``np.isin(mask, numbers)``."""
    if not isinstance(numbers, tuple | list) or not all(type(number) in _NUMBERS for number in numbers):
        raise UnknownError("compares a mask with something else than numbers")
    if value.kind != "array":
        raise UnknownError("isin() of a tensor is not known")
    return after(value, np.isin, tuple(numbers))


@dataclass(frozen=True, eq=False)
class _Table:
    """What gives an item of an array for each number of a mask."""

    array: Any

    def __call__(self, values: Any) -> Any:
        kinds = "iu" if isinstance(values, np.ndarray) else ("torch.int64", "torch.int32")
        kind = values.dtype.kind if isinstance(values, np.ndarray) else str(values.dtype)
        if kind not in kinds:
            raise TypeError(f"an index of {values.dtype} picks items in another way")
        return self.array[values]


def looked_up(array: Any, value: Mask) -> Mask:
    """``table[mask]``: an item of a table of one dimension for each number."""
    of_array = type(array) is np.ndarray and value.kind == "array" and array.dtype.kind in "iufb"
    of_tensor = type(array) is torch.Tensor and value.kind != "array" and array.device.type == "cpu"
    if array.ndim != 1 or not (of_array or of_tensor):
        raise UnknownError("looks numbers of a mask up in something else than a table of one dimension")
    return after(plain(value), _Table(array))


def cleared(value: Mask) -> Mask:
    """A mask of which ``np.array(mask)``, ``mask.copy()`` or ``mask.clone()`` made another."""
    return replace(value, memory=object())


# Several made of one.


def _of_several(function: Callable[..., Any], parts: Sequence[Any]) -> Mask:
    """What `function` makes of masks that were made of one, and of numbers."""
    masks = [part for part in parts if isinstance(part, Mask)]
    first = masks[0]
    base = replace(first, after=())
    if any(replace(mask, after=()) != base for mask in masks):
        raise UnknownError("calculates with two masks that are not made of one")
    shared = 0
    while all(len(mask.after) > shared and mask.after[shared] == first.after[shared] for mask in masks):
        shared += 1
    given = tuple(_Steps(part.after[shared:]) if isinstance(part, Mask) else part for part in parts)
    return after(replace(first, after=first.after[:shared]), _together, function, given)


@dataclass(frozen=True)
class _Steps:
    """What was done to get one of several."""

    steps: tuple[Calculation, ...]


def _together(values: Any, function: Callable[..., Any], parts: tuple[Any, ...]) -> Any:
    return function(*(calculate(values, part.steps) if isinstance(part, _Steps) else part for part in parts))


def _put(values: Any, condition: Any, number: Any, sign: str) -> Any:
    if str(condition.dtype) not in ("bool", "torch.bool"):
        raise TypeError(f"an index of {condition.dtype} picks items in another way")
    made = _copied(values)
    made[condition] = _IN_PLACE[sign](made[condition], number) if sign else number
    return made


def _change(values: Any, number: Any, sign: str) -> Any:
    return _IN_PLACE[sign](_copied(values), number)


def _fill(values: Any, number: int) -> Any:
    made = np.zeros_like(values) if isinstance(values, np.ndarray) else torch.zeros_like(values)
    made[...] = number
    return made


def _copied(values: Any) -> Any:
    return values.copy() if isinstance(values, np.ndarray) else values.clone()


# Calculating.


def calculate(value: Any, steps: tuple[Calculation, ...]) -> Any:
    """What calculations make of a tensor: a tensor, or the array that NumPy gave last."""
    for step in steps:
        if step.on_array and isinstance(value, torch.Tensor):
            value = value.numpy()
        elif not step.on_array and isinstance(value, np.ndarray):
            value = torch.from_numpy(value)
        value = step.function(value, *step.arguments)
    return value


def result(steps: tuple[Calculation, ...], number: int = 0) -> Any:
    """What they make of one byte: an array or a tensor of one number.

    Raises:
        UnknownError: They fail.
    """
    try:
        return calculate(torch.full((1, 1, 1), number, dtype=torch.uint8), steps)
    except Exception as error:
        raise UnknownError(f"calculating with a mask raises {type(error).__name__}") from None


def keeps_number(steps: tuple[Calculation, ...], number: float) -> bool:
    """Whether a number comes out as it went in."""
    if number != int(number) or not 0 <= number <= 255:
        return False
    return bool(result(steps, int(number)).item() == number)
