"""The probe: notes what a training script does with its time, in each of its processes, without an edit of it.

Standard library only. Libraries are patched after the script imported them, never imported from here. Invariants: the
script's results, output and exit code are what they would be without the probe; a failure of the probe is written to
`<pid>.error` in the directory of the records, and nothing else happens.
"""

from __future__ import annotations

import importlib
import os

from . import control, hooks
from .recorder import RECORDER

__all__ = ["start"]

# Each has `install()`, which names the modules that it patches once they are imported.
PARTS = (
    "lifecycle",
    "torch_loader",
    "torch_worker",
    "torch_fetch",
    "torch_model",
    "wellfed_loader",
    "feed",
    "tensorflow",
)


def start(directory: str) -> None:
    """Begins to record into `directory`; a second call changes nothing."""
    if RECORDER.directory is not None:
        return
    RECORDER.open(directory)
    control.read(os.environ)
    for part in PARTS:
        try:
            importlib.import_module(f"{__name__}.{part}").install()
        except Exception:
            RECORDER.failed(f"starting {part}")
    hooks.install()
