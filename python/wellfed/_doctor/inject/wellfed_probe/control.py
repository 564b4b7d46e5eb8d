"""When a diagnosis ends, and which changes are tried: `WELLFED_DOCTOR_STEPS`, `_TIME` and `_APPLY`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

from .recorder import RECORDER, now

__all__ = ["CONTROL", "EndOfDiagnosis", "read"]

FAR = 1 << 62


class EndOfDiagnosis(SystemExit):
    """Raised out of a loader's `__next__` when enough was seen."""


class Control:
    """What the starter asked for.

    Attributes:
        steps: Steps of the busiest loader after which the script ends.
        time: Nanoseconds since that loader's first step after which it ends.
        loader: Arguments of loaders to replace.
        feed: Whether the script gets wellfed's loader in place of torch's.
        garbage: Whether garbage is to be collected seldom.
        ended: Why the process ends, once it does.
    """

    def __init__(self) -> None:
        self.steps = FAR
        self.time = FAR
        self.loader: dict[str, Any] = {}
        self.feed = False
        self.garbage = False
        self.ended: str | None = None

    @property
    def limited(self) -> bool:
        """Whether there is an end."""
        return self.steps < FAR or self.time < FAR

    def end(self, reason: str) -> NoReturn:
        """Ends the script; its `finally` blocks and exit handlers run."""
        if self.ended is None:
            self.ended = reason
            RECORDER.emit("exit", t=now(), reason=reason, exception=None)
            RECORDER.flush()
        if threading.current_thread() is not threading.main_thread():
            import _thread

            _thread.interrupt_main()
        raise EndOfDiagnosis(0)


CONTROL = Control()
"""This process's."""


def read(environment: Mapping[str, str]) -> None:
    """Takes over what the environment asks for. What makes no sense is noted and left out."""
    for name, unit in (("steps", 1), ("time", 1_000_000_000)):
        text = environment.get(f"WELLFED_DOCTOR_{name.upper()}")
        if text:
            try:
                setattr(CONTROL, name, int(float(text) * unit))
            except ValueError:
                RECORDER.failed(f"reading WELLFED_DOCTOR_{name.upper()}={text!r}")
    text = environment.get("WELLFED_DOCTOR_APPLY")
    if text:
        try:
            wanted = json.loads(text)
            CONTROL.loader = dict(wanted.get("loader") or {})
            CONTROL.feed = bool(wanted.get("feed"))
            CONTROL.garbage = bool(wanted.get("garbage"))
        except (ValueError, TypeError, AttributeError):
            RECORDER.failed(f"reading WELLFED_DOCTOR_APPLY={text!r}")


def is_worker() -> bool:
    """Whether multiprocessing started this process as a daemon: it neither ends the diagnosis nor changes loaders."""
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None and process.current_process().daemon
