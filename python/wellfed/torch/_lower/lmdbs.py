"""Entries of LMDB databases that a data set looks up by key.

Invariant: only transactions that read are known, of environments that are of the library's own class, and the state
that the database had when it was read is compared before each epoch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .questions import identity
from .unknown import UnknownError
from .values import Known, Lmdb, Transaction, Value

__all__ = ["Entries", "begun", "environment", "opened", "state"]

_HEAP_TYPE = 1 << 9
"""The flag of classes whose attributes can be set: those that Python code has made."""

_OPTIONS = frozenset(
    {"readonly", "lock", "readahead", "meminit", "max_readers"}
    | {"subdir", "map_size", "max_spare_txns", "create", "max_dbs"}
)
"""Arguments of ``lmdb.open`` that change nothing of what is read."""

_META = 152
"""Bytes at the start of a page that describes a database, up to the number of its last transaction."""


def _library() -> Any:
    """The library, if it is the one written in C, in whose classes nobody can replace a method; else None."""
    library: Any = sys.modules.get("lmdb")
    kind = getattr(library, "Environment", None)
    return library if type(kind) is type and not kind.__flags__ & _HEAP_TYPE else None


@dataclass(frozen=True)
class _Late:
    """How an environment is opened where the data set opens it when it needs it."""

    path: str
    options: tuple[tuple[str, Any], ...]


class Entries:
    """From keys to values, each by a transaction of its own.

    Args:
        find: Gives the environment that the data set has open; None if it has none.
        late: How to open one for a moment. LMDB refuses a second one of a process, which the data set may need.
    """

    def __init__(self, find: Callable[[], Any], late: _Late | None = None) -> None:
        self._find, self._late = find, late

    def __call__(self, key: Any) -> Any:
        found = self._find()
        if found is not None or self._late is None:
            with found.begin(write=False) as transaction:
                return transaction.get(key)
        library = _library()
        with library.open(self._late.path, **dict(self._late.options)) as env, env.begin() as transaction:
            return transaction.get(key)


def environment(function: Any, arguments: list[Value], named: dict[str, Value]) -> Lmdb | None:
    """What ``lmdb.open`` gives; None of any other function.

    Raises:
        UnknownError: It may write, or is opened in a way that is not known.
    """
    library = _library()
    if library is None or function is not library.Environment:
        return None
    given = dict(named)
    if arguments:
        given["path"], *arguments = arguments
    path = given.pop("path", None)
    if arguments or not isinstance(path, Known) or not isinstance(path.value, str | Path):
        raise UnknownError("opens an LMDB environment in another way")
    if set(given) - _OPTIONS or not all(isinstance(value, Known) for value in given.values()):
        raise UnknownError("opens an LMDB environment with arguments that are not known")
    options = {name: value.value for name, value in given.items() if isinstance(value, Known)}
    if options.get("readonly") is not True or options.get("lock", True) is not False:
        raise UnknownError("opens an LMDB environment without readonly=True and lock=False")
    late = _Late(os.fspath(path.value), tuple(options.items()))
    return Lmdb(_file(late.path, bool(options.get("subdir", True))), Entries(lambda: None, late))


def opened(value: Lmdb, find: Callable[[], Any]) -> Lmdb:
    """An environment that is put into an attribute, from which `find` takes it."""
    library = _library()

    def there() -> Any:
        found = find()
        return found if library is not None and type(found) is library.Environment else None

    return Lmdb(value.file, Entries(there, value.entries._late))


def begun(owner: Value, name: str, arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """A method of an environment, or of a transaction; None of anything else.

    Raises:
        UnknownError: It is not known to only read.
    """
    if isinstance(owner, Known):
        library = _library()
        if library is None or type(owner.value) is not library.Environment:
            return None
        env = owner.value
        try:
            subdir = env.flags()["subdir"]
            owner = Lmdb(_file(env.path(), subdir), Entries(lambda: env), env)
        except library.Error as error:
            raise UnknownError(str(error)) from None
    if isinstance(owner, Lmdb):
        if name != "begin":
            raise UnknownError(f"{name} of an LMDB environment is not known")
        return _transaction(owner, arguments, named)
    if isinstance(owner, Transaction):
        raise UnknownError(f"{name} of an LMDB transaction is not known")
    return None


def _transaction(owner: Lmdb, arguments: list[Value], named: dict[str, Value]) -> Transaction:
    if arguments or set(named) - {"write", "buffers"}:
        raise UnknownError("begins an LMDB transaction of a named database, or in another one")
    if named.get("write", Known(False)) != Known(False):
        raise UnknownError("begins an LMDB transaction that writes")
    if named.get("buffers", Known(False)) != Known(False):
        raise UnknownError("begins an LMDB transaction that gives buffers")
    return Transaction(owner)


def _file(path: Any, subdir: bool) -> str:
    return os.path.join(path, "data.mdb") if subdir else os.fspath(path)


def state(owner: Lmdb) -> tuple[Any, ...]:
    """What tells the content of a database from any other that it has had, or will have.

    Raises:
        KeyError: It is not there, or its environment was closed.
    """
    env, library = owner.env, _library()
    if env is not None:
        try:
            env.info()
        except library.Error as error:
            raise KeyError(str(error)) from None
    # With a writable map the file's time may stay as it was; the pages that name the last transaction do not.
    try:
        with open(owner.file, "rb") as file:
            first = file.read(_META)
            file.seek(int.from_bytes(first[40:44], "little"))
            second = file.read(_META)
    except OSError as error:
        raise KeyError(owner.file) from error
    return (*identity(owner.file), first, second)
