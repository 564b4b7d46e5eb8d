"""A script that is run again to try a change may not change anything: Landlock forbids what a first run was allowed.

Invariant: with `WELLFED_DOCTOR_CONFINED` set, either nothing outside of the run's own folder, ``/dev``, ``/proc`` and
``/dev/shm`` can be created, written, renamed or removed by this process and its children, no TCP connection be made
and no process outside be sent signals; or the process ends here, before the script begins.

Scripts write logs and checkpoints, though, and end where they cannot. So the folders that they write into are covered,
where the kernel allows it (`cover`): the process sees them as they are, and what it writes there is kept in memory for
as long as it lives.
"""

from __future__ import annotations

import ctypes
import os
import sys

from .cover import cover
from .edited import EDIT, edit

__all__ = ["UNCONFINED", "UNEDITED", "confine"]

# Exit status where the kernel cannot, and where the script's file cannot be changed.
UNCONFINED, UNEDITED = 97, 98

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
# Rights by their bits: writing, removing, making of all kinds, linking elsewhere and truncating.
_WRITE = sum(1 << bit for bit in (1, *range(4, 15)))
_OF_FILES = 1 << 1 | 1 << 14
_CONNECT = 1 << 1
_SCOPES = 1 << 0 | 1 << 1
# The first version that knows all of these.
_VERSION = 6


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _layout_ = "ms"  # Python wants it said from 3.14 on.
    _pack_ = 1
    _fields_ = [("rights", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def confine(directory: str) -> None:
    """Confines this process; ends it if that cannot be."""
    try:
        covered = cover(directory)
        _restrict([directory, "/dev", "/proc", *covered])
    except Exception as error:
        os.write(2, f"cannot be confined: {error}\n".encode())
        os._exit(UNCONFINED)
    # Once: processes that the script starts see what is changed.
    if wanted := os.environ.pop(EDIT, ""):
        try:
            edit(wanted, covered)
        except Exception as error:
            os.write(2, f"cannot be edited: {error}\n".encode())
            os._exit(UNEDITED)


def _restrict(folders: list[str]) -> None:
    if not sys.platform.startswith("linux"):
        raise OSError("this is no Linux")
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), what)
        return result

    if libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1) < _VERSION:
        raise OSError("Landlock is not there, or older than what is needed")
    rules = _Ruleset(_WRITE, _CONNECT, _SCOPES)
    size = ctypes.c_size_t(ctypes.sizeof(rules))
    ruleset = call("making rules", libc.syscall(_CREATE, ctypes.byref(rules), size, 0))
    try:
        for folder in folders:
            where = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rights = _WRITE if os.path.isdir(folder) else _OF_FILES
            rule = _Beneath(rights, where)
            call("adding a rule", libc.syscall(_ADD, ruleset, 1, ctypes.byref(rule), 0))
            os.close(where)
        call("giving up privileges", libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        call("restricting", libc.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)
