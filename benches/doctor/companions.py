"""What stands around a planted script while it runs: its environment, a slow server, a busy neighbour, a memory limit.

Invariant: all that was started is ended and all that was made is removed when the run is over, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLANTED = Path(__file__).resolve().parent / "planted"


class NotPermitted(Exception):
    """This machine does not let us make what the case needs."""


@dataclass
class Surroundings:
    """What the script's process is started with."""

    env: dict[str, str] = field(default_factory=dict)
    enter: Callable[[], None] | None = None
    """Called in the new process before the script."""


@contextlib.contextmanager
def surroundings(settings: dict[str, Any], fixed: str) -> Iterator[Surroundings]:
    """All that the settings of a case ask for; `fixed` is the value of `--fixed`, empty for none."""
    around = Surroundings({**os.environ, **settings.get("env", {})})
    if fixed:
        around.env |= settings.get("env_fixed", {})
    with contextlib.ExitStack():
        yield around


def beside(script: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that is no child of the script, ready when it said a line."""
    command = [sys.executable, str(PLANTED / script), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
