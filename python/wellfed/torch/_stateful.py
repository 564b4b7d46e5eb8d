"""What it is to carry state, and how a worker's state travels: what changed in it, as pickles.

Invariant: a `Ledger` that got every delta of a `Changes` holds what that was given last; nobody shares objects with it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
from types import FunctionType
from typing import Any, Protocol, TypeGuard, runtime_checkable

from ..exceptions import StateError

__all__ = ["Changes", "Ledger", "Stateful", "is_stateful", "state_of"]

Path = tuple[Any, ...]
Delta = tuple[dict[Path, bytes], list[Path]]


@runtime_checkable
class Stateful(Protocol):
    """A data set, iterator, sampler or collate function that can say where it is and go there.

    `wellfed.torch.DataLoader` calls these two methods on whatever has them. The state is a dict that can be pickled; it
    is best small, since worker processes send what changed in it with every batch (or every
    ``snapshot_every_n_steps``-th).

    Example:
        >>> from wellfed.torch import Stateful
        >>> class Countdown:
        ...     def __init__(self, n):
        ...         self.left = n
        ...     def __iter__(self):
        ...         while self.left:
        ...             self.left -= 1
        ...             yield self.left
        ...     def state_dict(self):
        ...         return {"left": self.left}
        ...     def load_state_dict(self, state_dict):
        ...         self.left = state_dict["left"]
        >>> isinstance(Countdown(3), Stateful)
        True
    """

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to continue from here."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from where `state_dict` was called."""
        ...


def is_stateful(thing: object) -> TypeGuard[Stateful]:
    """Whether `thing` has both methods of `Stateful`, and not some that are called in another way."""
    save = getattr(thing, "state_dict", None)
    if not callable(save) or not callable(getattr(thing, "load_state_dict", None)):
        return False
    return not _asks_for_more(getattr(save, "__func__", None))


@functools.lru_cache(256)
def _asks_for_more(method: Any) -> bool:
    """Whether a method has to be given arguments, as ``state_dict(num_samples)`` of data sets that stream shards."""
    if type(method) is not FunctionType:
        return False
    _, *others = inspect.signature(method).parameters.values()
    return any(
        other.default is other.empty and other.kind not in (other.VAR_POSITIONAL, other.VAR_KEYWORD)
        for other in others
    )


def state_of(thing: object) -> Any:
    """A copy of the state of `thing`, or None where it has none."""
    # A copy: many a state_dict() returns the object's own dict or list, which then goes on changing.
    return copy.deepcopy(thing.state_dict()) if is_stateful(thing) else None


class Changes:
    """The sending end: remembers what was sent and picks what differs from it.

    Values are compared as pickles, so that a list changed in place is seen to have changed.
    """

    __slots__ = ("_sent",)

    def __init__(self, state: Any = None) -> None:
        self._sent: dict[Path, bytes] = {} if state is None else _flat(state)

    def since(self, state: Any) -> Delta | None:
        """What a `Ledger` needs so that it holds `state`; None if it does already."""
        now = _flat(state)
        before, self._sent = self._sent, now
        new = {path: value for path, value in now.items() if before.get(path) != value}
        gone = [path for path in before if path not in now]
        return (new, gone) if new or gone else None


class Ledger:
    """The receiving end: one state, as pickles. Never changes; `after` makes another."""

    __slots__ = ("_values",)

    def __init__(self, state: Any = None) -> None:
        self._values: dict[Path, bytes] = {} if state is None else _flat(state)

    def after(self, delta: Delta | None) -> Ledger:
        """The state that the sender of `delta` had."""
        if delta is None:
            return self
        new, gone = delta
        other = Ledger()
        other._values = self._values | new
        for path in gone:
            del other._values[path]
        return other

    def state(self) -> Any:
        """The state, as objects of the caller's own; None if there is none yet."""
        root: dict[Any, Any] = {}
        for path, value in self._values.items():
            if not path:
                return pickle.loads(value)
            at = root
            for key in path[:-1]:
                at = at.setdefault(key, {})
            at[path[-1]] = pickle.loads(value)
        return root if self._values else None


def _flat(state: Any) -> dict[Path, bytes]:
    into: dict[Path, bytes] = {}
    _flatten(state, (), into)
    return into


def _flatten(value: Any, path: Path, into: dict[Path, bytes]) -> None:
    if type(value) is dict and value:
        for key, inner in value.items():
            _flatten(inner, (*path, key), into)
        return
    try:
        into[path] = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        where = "".join(f"[{key!r}]" for key in path) or "the whole"
        raise StateError(
            f"state_dict() returned something that cannot be pickled: {where} is a {type(value).__name__}: {error}"
            "\nhint: keep to numbers, strings, lists, dicts, tensors and arrays"
        ) from error
