"""How a process, or what is watched of it, ends, and what it had imported: the records `exit` and `module`.

Whatever way a process ends on its own, what it recorded is written before.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Iterator
from typing import Any

from . import hooks
from .control import CONTROL, EndOfDiagnosis
from .garbage import GARBAGE
from .recorder import RECORDER, Record, now
from .stacks import SAMPLER

__all__ = ["install"]

# What a diagnosis may depend on.
LIBRARIES = (
    "torch",
    "torchvision",
    "torchdata",
    "tensorflow",
    "keras",
    "numpy",
    "PIL",
    "cv2",
    "albumentations",
    "datasets",
    "transformers",
    "accelerate",
    "lightning",
    "pytorch_lightning",
    "webdataset",
    "h5py",
    "wellfed",
)

_announced: set[str] = set()
# How many modules there were when they were looked through.
_looked = 0


def install() -> None:
    """From now on the end of this process is noted."""
    atexit.register(at_exit)
    original = os._exit

    @functools.wraps(original)
    def _exit(*args: Any, **kwargs: Any) -> Any:
        # Processes of multiprocessing end this way.
        try:
            SAMPLER.stop()
            RECORDER.flush()
        except Exception:
            RECORDER.failed("writing before os._exit")
        return original(*args, **kwargs)

    os._exit = _exit


def begin() -> None:
    """Libraries that are imported are told to the file that was opened."""
    global _looked
    _looked = 0
    _announced.clear()
    RECORDER.drain_from(modules)
    GARBAGE.begin()


def end(reason: str, exception: str | None) -> None:
    """Writes all there is, and why no more will follow."""
    SAMPLER.stop()
    GARBAGE.end()
    RECORDER.emit("exit", t=now(), reason=reason, exception=exception)
    RECORDER.close()


def modules() -> Iterator[Record]:
    """Libraries that were imported meanwhile."""
    global _looked
    if _looked == len(sys.modules):
        return
    all_done = hooks.catch_up()
    for name in LIBRARIES:
        module = sys.modules.get(name)
        if module is None or name in _announced:
            continue
        if hooks.being_imported(module):
            all_done = False
            continue
        _announced.add(name)
        # From the dictionary: some modules import half of themselves when asked for an attribute.
        yield {"k": "module", "name": name, "version": str(vars(module).get("__version__", ""))}
    _looked = len(sys.modules) if all_done else 0


def forget_module(name: str) -> None:
    """Leaves out a library that the script has not imported itself."""
    _announced.add(name)


def at_exit() -> None:
    """Runs last of all exit handlers, since it was registered first."""
    try:
        if RECORDER.directory is None:
            return
        SAMPLER.stop()
        if CONTROL.ended is None:
            reason, text = ending()
            CONTROL.ended = reason
            RECORDER.emit("exit", t=now(), reason=reason, exception=text)
        RECORDER.flush()
    except Exception:
        RECORDER.failed("writing at exit")


def ending() -> tuple[str, str | None]:
    """Why the interpreter ends, and the exception that ended the script."""
    # Set by the interpreter when it prints what nobody caught.
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or isinstance(error, EndOfDiagnosis):
        return "finished", None
    if isinstance(error, KeyboardInterrupt):
        return "interrupt", "KeyboardInterrupt"
    try:
        text = str(error)
    except Exception:
        text = ""
    # One that came from a worker has the worker's whole traceback as its text, which was printed already.
    first, _, rest = text.partition("\n")
    if "Traceback (most recent call last)" in rest:
        text = f"{first} {rest.strip().rpartition(chr(10))[2]}"
    return "exception", f"{type(error).__qualname__}: {text}"[:2000]
