"""The probe: notes what a training script does with its time, in each of its processes, without an edit of it.

Standard library only. Libraries are patched after the script imported them, never imported from here. Invariants: the
script's results, output and exit code are what they would be without the probe; a failure of the probe is written to
`<pid>.error` in the directory of the records, and nothing else happens.
"""

from __future__ import annotations

import importlib
import os

from . import control, hooks, lifecycle, steps
from .recorder import RECORDER

__all__ = ["start", "stop"]

# Each has `install()`, which names the modules that it patches once they are imported.
PARTS = (
    "lifecycle",
    "tracebacks",
    "torch_loader",
    "torch_worker",
    "torch_fetch",
    "torch_model",
    "torch_kernels",
    "wellfed_loader",
    "feed",
    "tensorflow",
)


_installed: list[str] = []


def start(directory: str) -> bool:
    """Begins to record into `directory`; false if this process is recorded already."""
    if RECORDER.directory is not None:
        return False
    RECORDER.open(directory)
    if not _installed:
        control.read(os.environ)
    for part in PARTS:
        if part in _installed:
            continue
        _installed.append(part)
        try:
            importlib.import_module(f"{__name__}.{part}").install()
        except Exception:
            RECORDER.failed(f"starting {part}")
    lifecycle.begin()
    hooks.install()
    return True


def stop(reason: str, exception: str | None = None) -> None:
    """Ends what `start` began; the process goes on."""
    steps.close_all()
    lifecycle.end(reason, exception)
