"""Threads that TensorFlow made, and in which it calls Python once for each batch.

Such a thread has no state of the interpreter's between two calls: each call makes one, fills what TensorFlow's Python
keeps for each thread, and drops both. That takes longer than all else that a batch of tensors costs. A state that is
acquired once more than it is released stays.

Invariant: at most `MOST` states stay of threads that are gone, since nothing is called when a thread ends.
"""

from __future__ import annotations

import ctypes
import threading

__all__ = ["MOST", "keep_state", "let_state_go"]

MOST = 64
"""States kept at once; some 20 kB each."""

_LOCKED = 0
_ensure = ctypes.PYFUNCTYPE(ctypes.c_int)(("PyGILState_Ensure", ctypes.pythonapi))
_release = ctypes.PYFUNCTYPE(None, ctypes.c_int)(("PyGILState_Release", ctypes.pythonapi))


class _Here(threading.local):
    """Of each thread: whether its state is kept. Gone with the state."""

    kept = False


_here = _Here()
_lock = threading.Lock()
_count = 0


def keep_state() -> None:
    """Keeps the state of the calling thread for the next call in it, unless too many are kept."""
    global _count
    if _here.kept or _count >= MOST:
        return
    with _lock:
        if _count >= MOST:
            return
        _count += 1
    _here.kept = True
    _ensure()


def let_state_go() -> None:
    """Undoes `keep_state` in the calling thread."""
    global _count
    if _here.kept:
        _here.kept = False
        with _lock:
            _count -= 1
        _release(_LOCKED)
