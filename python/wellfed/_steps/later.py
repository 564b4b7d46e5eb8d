"""`Later`: what the engine will know of a data set when a filter below it has been computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .. import _native
    from ..dataset import Dataset

__all__ = ["Later"]


@dataclass(frozen=True)
class Later:
    """A data set that is not there yet.

    Attributes:
        make: Computes what is missing, with these options, and makes it.
        base: What it is a verb on.
        node: The verb, to be shown.
    """

    make: Callable[[Mapping[str, Any]], _native.Dataset]
    base: Dataset
    node: dict[str, Any]
