"""How many workers, be they processes or threads, a loader should have when it is asked to choose."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

__all__ = ["auto_workers", "engine_threads", "local_ranks", "usable_cores"]

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> float:
    """Cores that this process may use: by affinity, and by the CPU quota of its control group, if any."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        cores = float(os.cpu_count() or 1)
    quota = cpu_quota(cgroup)
    return cores if quota is None else min(cores, quota)


def cpu_quota(cgroup: Path) -> float | None:
    """The CPU quota in cores of the control group whose files lie in `cgroup`, or None for no limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit_us = int((cgroup / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((cgroup / "cpu" / "cpu.cfs_period_us").read_text())
        return None if limit_us <= 0 or period_us <= 0 else limit_us / period_us
    except (OSError, ValueError):
        return None


def local_ranks() -> int:
    """How many ranks of a training share this machine, as `torchrun` says in `LOCAL_WORLD_SIZE`."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        return 1


def auto_workers(cgroup: Path = CGROUP) -> int:
    """Workers for `num_workers="auto"`: the usable cores, shared with the other ranks of this machine."""
    return max(1, math.floor(usable_cores(cgroup) / local_ranks()))


def engine_threads(asked: int | None = None, cgroup: Path = CGROUP) -> int | Literal["auto"]:
    """Threads of one loader of the engine: as many as were asked for, else this rank's share of the cores.

    Where a rank has the machine for itself, the engine finds out how many pay.
    """
    if asked is not None:
        return asked
    return "auto" if local_ranks() == 1 else auto_workers(cgroup)
