"""Checks of arguments: what kornia accepts and wellfed's kernels cannot do is refused with a reason, never ignored."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

from .. import _arguments as check

__all__ = [
    "byte_fill",
    "channel_values",
    "name_of",
    "plain",
    "refuse",
    "share_weights",
    "sides",
    "span",
    "whole",
]


def refuse(what: str, supported: str, hint: str) -> ValueError:
    """The error for what kornia has and wellfed has not: `what` names the parameter and its value."""
    return ValueError(f"{what}; supported: {supported}\nhint: {hint}")


def plain(value: Any) -> Any:
    """Tensors and arrays as Python's numbers and lists."""
    return value.tolist() if hasattr(value, "tolist") else value


def name_of(value: Any, known: Sequence[str], name: str, where: str, hint: str) -> str:
    """One of kornia's names, in lower case: given as text, as a number or as a member of kornia's enums.

    `known` has them in the order of kornia's numbers. Those that are not supported begin with ``-``.
    """
    given = getattr(value, "name", value)
    supported = [one for one in known if not one.startswith("-")]
    names = [one.removeprefix("-") for one in known]
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given < len(names):
        given = names[given]
    if not isinstance(given, str) or given.lower() not in names:
        raise ValueError(f"{where}: {name} is {value!r}; must be one of {', '.join(names)}")
    if given.lower() not in supported:
        raise refuse(f"{where}: {name} is {value!r}", " and ".join(map(repr, supported)), hint)
    return given.lower()


def span(
    value: Any, name: str, center: float = 0.0, least: float = -math.inf, most: float = math.inf
) -> tuple[float, float]:
    """Least and greatest number that is drawn: of a pair, or of one number around `center`, cut off at `least`."""
    given = plain(value)
    if isinstance(given, numbers.Real) and not isinstance(given, bool):
        way = check.number(given, name)
        if way < 0:
            raise ValueError(f"{name} is {way}; as a single number it must not be negative")
        low, high = max(center - way, least), center + way
    else:
        low, high = check.pair(given, name)
        check.number(low, name), check.number(high, name)
    if not least <= low <= high <= most:
        raise ValueError(f"{name} is {(low, high)}; must be (low, high) within {least:g} to {most:g}")
    return low, high


def sides(value: Any, name: str, where: str) -> tuple[int, int]:
    """(height, width), as kornia asks for them: no single number."""
    given = plain(value)
    if not check.is_sequence(given) or len(given) != 2:
        raise TypeError(f"{where}: {name} is {value!r}; it must be (height, width)")
    return check.whole(given[0], name, 1), check.whole(given[1], name, 1)


def whole(p: float, where: str) -> bool:
    """Whether a transform of whole batches is done, which its `p` must say for certain."""
    if p not in (0.0, 1.0):
        raise refuse(
            f"{where}: p is {p}, which decides for all images of a batch together",
            "p=1, and p=0 for never",
            "call one of two chains, as torch.rand(()) < p decides",
        )
    return p == 1.0


def byte_fill(value: Any, name: str, where: str) -> float | tuple[float, ...]:
    """A value of the border, or one a channel, in 0 to 1: as bytes."""
    given = plain(value)
    values = list(given) if check.is_sequence(given) else [given]
    for one in values:
        if not 0 <= check.number(one, name) <= 1:
            raise ValueError(f"{where}: {name} is {value!r}; must be 0 to 1, as images are")
    made = tuple(float(round(255 * one)) for one in values)
    return made[0] if len(made) == 1 else made


def channel_values(value: Any, name: str, where: str) -> tuple[float, ...]:
    """One number for each channel, or one for all."""
    given = plain(value)
    if check.is_sequence(given) and len(given) == 1 and check.is_sequence(given[0]):
        given = given[0]
    if check.is_sequence(given) and any(check.is_sequence(one) for one in given):
        raise refuse(
            f"{where}: {name} has {len(given)} rows, one for each image",
            "one number, or one for each channel",
            "normalize images that have statistics of their own after the chain",
        )
    return check.channels(given if check.is_sequence(given) else [given], name)


def share_weights(low: float, high: float, first: float) -> list[tuple[int, float]]:
    """Whole numbers that stand for numbers drawn evenly from `low` to `high`, with how likely each is.

    Number k stands for those from k + first to k + first + 1: -0.5 rounds, -1 rounds up.
    """
    if low == high:
        return [(math.floor(low + 0.5) if first == -0.5 else math.ceil(low), 1.0)]
    found = []
    for k in range(math.floor(low) - 1, math.ceil(high) + 2):
        weight = min(high, k + first + 1) - max(low, k + first)
        if weight > 0:
            found.append((k, weight / (high - low)))
    return found
