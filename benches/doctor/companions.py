"""What stands around a planted script while it runs: its environment, a slow server, a busy neighbour, a memory limit.

Invariant: all that was started is ended and all that was made is removed when the run is over, however it ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
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


def prepare(command: list[str]) -> dict[str, Any]:
    """Lets a planted script make its data; gives its settings."""
    said = subprocess.run([*command, "--prepare"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


@contextlib.contextmanager
def surroundings(settings: dict[str, Any], fixed: str) -> Iterator[Surroundings]:
    """All that the settings of a case ask for; `fixed` is the value of `--fixed`, empty for none."""
    around = Surroundings({**os.environ, **settings.get("env", {})})
    if fixed:
        around.env |= settings.get("env_fixed", {})
    with contextlib.ExitStack() as ends:
        if server := settings.get("server_fixed" if fixed else "server"):
            around.env["PLANTED_URL"] = ends.enter_context(beside("server.py", *server))
        if (count := settings.get("neighbours")) and not fixed:
            ends.enter_context(beside("neighbour.py", str(count)))
        if memory := settings.get("memory_fixed" if fixed else "memory"):
            around.enter = ends.enter_context(limits(**memory))
        yield around


@contextlib.contextmanager
def beside(script: str, *arguments: str) -> Iterator[str]:
    """A process that is no child of the script; gives the line that it says when it is ready."""
    command = [sys.executable, str(PLANTED / script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            line = process.stdout.readline().strip() if process.stdout else ""
            if not line:
                raise RuntimeError(f"{script} ended with {process.wait()} before it was ready")
            yield line
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def limits(disk: int, cold: str, limit: int = 0) -> Iterator[Callable[[], None]]:
    """Control groups with so many bytes of memory, and so many bytes a second from the disk that `cold` lies on.

    The files under `cold` are dropped from the page cache before, or they would stay there at no cost of the group's.
    """
    groups = (
        [group("memory", {"memory.limit_in_bytes": str(limit)}, {"memory.max": str(limit)})] if limit else []
    )
    major, minor = os.major(os.stat(cold).st_dev), os.minor(os.stat(cold).st_dev)
    if not major:
        raise NotPermitted(f"{cold} lies on no disk whose speed can be limited")
    # The speed of a partition is that of its disk, and only disks can be limited.
    partition = Path(f"/sys/dev/block/{major}:{minor}/partition").exists()
    whole = Path(f"/sys/dev/block/{major}:{minor}").resolve().parent / "dev" if partition else None
    device = whole.read_text().strip() if whole else f"{major}:{minor}"
    try:
        groups.append(
            group(
                "blkio",
                {"blkio.throttle.read_bps_device": f"{device} {disk}"},
                {"io.max": f"{device} rbps={disk}"},
            )
        )
        for path in Path(cold).iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def enter() -> None:
            for made in groups:
                (made / "cgroup.procs").write_text(str(os.getpid()))

        yield enter
    finally:
        for made in groups:
            remove(made)


def group(controller: str, first: dict[str, str], second: dict[str, str]) -> Path:
    """A new control group: files to write with version 1 and with version 2."""
    root = Path("/sys/fs/cgroup")
    new = (root / "cgroup.controllers").exists()
    made = (root if new else root / controller) / f"wellfed-planted-{controller}-{os.getpid()}"
    try:
        made.mkdir()
        for name, value in (second if new else first).items():
            (made / name).write_text(value)
    except OSError as error:
        if made.exists():
            made.rmdir()
        raise NotPermitted(f"no control group for {controller} can be made here: {error}") from error
    return made


def remove(made: Path) -> None:
    """Removes a control group as soon as its last process is gone."""
    for _ in range(100):
        for pid in (made / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            return made.rmdir()
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{made} cannot be removed: it still has processes")
