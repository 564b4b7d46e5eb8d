"""Walks the nested structures that batches are made of, as torch does when it pins them.

Invariant: a batch is never changed in place; what comes back has the types of what went in, where these can be
made from their parts, and a list or a dict where they cannot.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from .._ragged import Ragged


def map_leaves(batch: Any, change: Callable[[Any], Any], stop: Callable[[Any], bool]) -> Any:
    """The batch with `change` applied to all that `stop` answers true for; other leaves stay as they are.

    Args:
        batch: Dicts, tuples, named tuples, lists, dataclasses and mappings or sequences of other types, nested.
        change: Makes the new value of a leaf.
        stop: Says whether an object is a leaf to change. It is asked before the object is looked into.

    Example:
        >>> map_leaves({"a": [1, 2], "b": ("x", 3)}, lambda n: n * 10, lambda n: isinstance(n, int))
        {'a': [10, 20], 'b': ('x', 30)}
    """
    # Not a closure that calls itself: that is a cycle, and what it refers to would stay until the next collection.
    if stop(batch):
        return change(batch)
    if isinstance(batch, (str, bytes)):
        return batch
    if isinstance(batch, Mapping):
        return _mapping(batch, {key: map_leaves(item, change, stop) for key, item in batch.items()})
    if isinstance(batch, tuple):
        parts = [map_leaves(item, change, stop) for item in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if isinstance(batch, Ragged):
        return Ragged(map_leaves(batch.values, change, stop), map_leaves(batch.offsets, change, stop))
    if isinstance(batch, Sequence):
        return _sequence(batch, [map_leaves(item, change, stop) for item in batch])
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        clone = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # Frozen ones too: nobody else has seen the clone.
            object.__setattr__(clone, field.name, map_leaves(getattr(batch, field.name), change, stop))
        return clone
    return batch


def _mapping(value: Mapping[Any, Any], parts: dict[Any, Any]) -> Any:
    """A mapping like `value`: a mutable one may carry more than its items, so it is copied and updated."""
    try:
        if isinstance(value, MutableMapping):
            clone = copy.copy(value)
            clone.update(parts)
            return clone
        return type(value)(parts)  # type: ignore[call-arg]
    except TypeError:
        return parts


def _sequence(value: Sequence[Any], parts: list[Any]) -> Any:
    try:
        if isinstance(value, MutableSequence):
            clone = copy.copy(value)
            for i, part in enumerate(parts):
                clone[i] = part
            return clone
        return type(value)(parts)  # type: ignore[call-arg]
    except TypeError:
        return parts
