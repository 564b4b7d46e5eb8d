"""What the device does in a step, kernel by kernel: the record `kernels`.

Its driver says that a device is busy whenever any kernel runs, and events that enclose a step do not see the gaps in
it; both take a device for busy that waits for one tiny kernel after the other to be launched. So torch's profiler
looks at the kernels of a few steps, once a loader. That slows launches down, and the first time takes a second or more:
readers leave these steps out, and compare the kernels' time with that of other steps.

Invariants: no use of it where CUDA is not in use, in a trial, beside another profiler or CUDA graphs, or for a loop
that mostly waits for data; a failure is noted in the record, once, and the script goes on.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from . import hooks, torch_loader
from .control import CONTROL, is_worker
from .recorder import RECORDER, now
from .steps import Steps

__all__ = ["Busy", "Window", "busy", "install"]

# A loop warms up: so many steps, and nanoseconds. What is over by then is not worth a second of looking.
FIRST = 10
AFTER = 2_000_000_000
# Ends after so many steps, or after such a time if it had a few. Steps may have thousands of kernels.
STEPS = 20
FEWEST = 3
TIME = 600_000_000
# A diagnosis that ends before is not spent on this.
SHORT = 6_000_000_000
SHORT_STEPS = 5 * STEPS
# Loaders that are looked at, and windows that are begun for one.
MOST = 2
TRIES = 3
# Where a loop waits more, launches do not hold it up.
WAITS = 0.5
# CUDA is in use by then, or never.
IDLE = 64

# What the profiler tells of a device besides kernels and copies.
NOT_KERNELS = ("gpu_user_annotation", "user_annotation", "overhead", "cuda_sync")
SYNCS = ("Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event", "Unknown Sync")


def install() -> None:
    """Looks at some steps of each loader, unless the script profiles itself."""
    if any(os.environ.get(f"WELLFED_DOCTOR_{what}") for what in ("EDIT", "APPLY", "CONFINED")):
        return  # A trial, which compares times.
    hooks.when_imported("torch.autograd.profiler", _profilers)
    hooks.when_imported("torch.cuda.graphs", _graphs)
    torch_loader.listen_to_steps(WINDOW.listener)


def _profilers(module: ModuleType) -> None:
    for name in ("profile", "emit_nvtx", "emit_itt"):
        if (kind := getattr(module, name, None)) is not None:
            _tell(kind, "__init__", WINDOW.others)


def _graphs(module: ModuleType) -> None:
    _tell(module.graph, "__enter__", WINDOW.captured)


def _tell(kind: type, name: str, before: Callable[[], Any]) -> None:
    original = vars(kind)[name]

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        before()
        return original(self, *args, **kwargs)

    setattr(kind, name, method)


class Window:
    """Some steps in which kernels are looked at.

    Attributes:
        never: Why nothing may be looked at; empty: it may.
        steps: The iterator that is looked at now.
    """

    def __init__(self) -> None:
        self.never = ""
        self.steps: Steps | None = None
        self._making = False
        self._begun: dict[int, int] = {}
        self._done: set[int] = set()
        self._tries: dict[int, int] = {}
        self._waits: dict[int, tuple[int, int]] = {}
        self._profile: Any = None
        self._thread = 0
        self._first = self._t0 = self._ready = 0
        RECORDER.resets.append(self._forked)

    def _forked(self) -> None:
        """The profiler stayed with the parent."""
        self.steps = self._profile = None

    # What forbids it.

    def others(self) -> None:
        """A profiler is made; ours gives way."""
        if not self._making and not self.never:
            self.give_up("the script uses a profiler itself")

    def captured(self) -> None:
        """A CUDA graph is about to be captured. CUPTI and graphs that were captured without it do not always agree."""
        if not self.never:
            self.give_up("the script uses CUDA graphs")

    def give_up(self, why: str) -> None:
        """Ends what runs, and begins nothing any more."""
        self.never = why
        self._abandon(why)

    def _forbidden(self, torch: Any) -> str:
        if self.never:
            return self.never
        if any(os.environ.get(name) for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")):
            return "another profiler is attached"
        autograd = torch.autograd
        if autograd._profiler_enabled():
            return "the script uses a profiler itself"
        supported = getattr(autograd, "_supported_activities", None)
        if supported is None or autograd.ProfilerActivity.CUDA not in supported():
            return "this torch cannot (no CUPTI)"
        return ""

    # Step by step.

    def listener(self, steps: Steps) -> Any:
        """What looks at the batches of this iterator, if it is to be looked at."""
        number = steps.log.number
        rank = os.environ.get("RANK", "0")
        if number in self._done or len(self._done) >= MOST or is_worker() or rank not in ("0", ""):
            return None
        if CONTROL.time < SHORT or CONTROL.steps < SHORT_STEPS:
            return None
        # Between two epochs of one loader the first one's time counts.
        self._begun.setdefault(number, steps.begin)
        return functools.partial(self.batch, steps)

    def batch(self, steps: Steps, n: int, batch: Any) -> bool:
        """Batch `n` was handed out; true when no more of this iterator matters."""
        if self.steps is steps:
            t = now()
            if n - self._first >= STEPS or (n - self._first >= FEWEST and t - self._ready >= TIME):
                self._end(n, t)
            return steps.log.number in self._done
        number = steps.log.number
        if number in self._done:
            return True
        if self.steps is not None:
            return False  # A loop within or around the one that is looked at.
        cuda: Any = sys.modules.get("torch.cuda")
        if cuda is None or not getattr(cuda, "is_initialized", bool)():
            return steps.log.steps + n >= IDLE
        t = now()
        early = steps.log.steps + n < FIRST or t - self._begun[number] < AFTER
        if self._mostly_waits(steps, n, t) or early:
            return False
        return not self._begin(steps, n, cuda)

    def _mostly_waits(self, steps: Steps, n: int, t: int) -> bool:
        number = steps.log.number
        waited, since = self._waits.get(number, (0, t))
        rows = steps.rows[-1:]
        if rows and rows[0][0] == n:
            waited += rows[0][2] - rows[0][1]
        self._waits[number] = waited, since
        return waited > WAITS * (t - since)

    def _begin(self, steps: Steps, n: int, cuda: Any) -> bool:
        """Whether kernels are looked at from now on."""
        number = steps.log.number
        self._tries[number] = self._tries.get(number, 0) + 1
        if self._tries[number] > TRIES:
            self._done.add(number)
            return False
        self._first, self._t0, self._thread = n, now(), threading.get_ident()
        torch: Any = sys.modules["torch"]
        try:
            why = self._forbidden(torch)
            if why or cuda.is_current_stream_capturing():
                why = why or "the script uses CUDA graphs"
                self._note(steps, why)
                return False
            # Earlier steps' kernels are none of these.
            cuda.synchronize()
            self._profile = self._start(torch)
            self.steps = steps
            steps.ending = self._ended
            atexit.register(self._abandon)
            self._ready = now()
            return True
        except Exception as error:
            RECORDER.failed("looking at kernels")
            self._stop()
            self._note(steps, f"{type(error).__name__}: {error}"[:200], n)
            return False

    def _start(self, torch: Any) -> Any:
        level = os.environ.get("KINETO_LOG_LEVEL")
        os.environ["KINETO_LOG_LEVEL"] = "99"  # It writes what it does to stderr.
        self._making = True
        try:
            profile = torch.autograd.profiler.profile(use_cpu=False, use_device="cuda", use_kineto=True)
            profile.__enter__()
        finally:
            self._making = False
            if level is None:
                os.environ.pop("KINETO_LOG_LEVEL", None)
            else:
                os.environ["KINETO_LOG_LEVEL"] = level
        return profile

    def _end(self, n: int, t: int) -> None:
        """The window is over, at the begin of step `n`."""
        steps = self.steps
        assert steps is not None
        first = self._first
        try:
            profile = self._stop()
            found = busy(profile.kineto_results.events())
        except Exception as error:
            RECORDER.failed("looking at kernels")
            self._note(steps, f"{type(error).__name__}: {error}"[:200], n)
            return
        if found.kernels == 0:
            self._note(steps, "the profiler saw no kernels", n)
            return
        self._note(steps, "", n, steps=n - first, profiled=t - self._ready, **vars(found))

    def _note(self, of: Steps, why: str, last: int | None = None, **fields: Any) -> None:
        """Writes the record; `last`: the last step that is not like others for it."""
        self._done.add(of.log.number)
        if last is not None:
            fields.update(first=self._first, last=last, t0=self._t0, t1=now())
        RECORDER.emit("kernels", loader=of.log.number, iter=of.iter, why=why, **fields)

    def _ended(self) -> None:
        """The loop is over."""
        steps = self.steps
        if steps is not None and steps.n - self._first >= FEWEST and self._thread == threading.get_ident():
            self._end(steps.n, now())
        else:
            self._abandon()

    def _abandon(self, why: str = "the loop ended") -> None:
        """The window ends before its time."""
        steps = self.steps
        if steps is None:
            return
        try:
            self._stop()
        except Exception:
            RECORDER.failed("ending to look at kernels")
        if self.never:
            self._done.add(steps.log.number)  # Else another epoch may be longer.
        left = {"first": self._first, "last": steps.n, "t0": self._t0, "t1": now()}
        RECORDER.emit("kernels", loader=steps.log.number, iter=steps.iter, why=why, **left)

    def _stop(self) -> Any:
        """Ends the profiler; gives it."""
        profile, steps = self._profile, self.steps
        self._profile = self.steps = None
        if steps is not None:
            steps.ending = None
        atexit.unregister(self._abandon)
        if profile is not None and self._thread == threading.get_ident():
            profile.__exit__(None, None, None)
        return profile


class Busy:
    """What one device did; nanoseconds.

    Attributes:
        kernels: How many.
        busy: Some kernel ran.
        time: Of all kernels, one by one.
        copies: Something was copied between host and device.
        alone: Of that, while no kernel ran.
    """

    def __init__(self, kernels: list[tuple[int, int]], copies: list[tuple[int, int]]) -> None:
        ran, copied = union(kernels), union(copies)
        self.kernels = len(kernels)
        self.busy = length(ran)
        self.time = length(kernels)
        self.copies = length(copied)
        self.alone = length(union([*kernels, *copies])) - self.busy


def busy(events: Iterable[Any]) -> Busy:
    """Of the device that did most."""
    devices: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = {}
    for event in events:
        if event.device_type().name != "CUDA" or event.name() in SYNCS:
            continue
        if getattr(event, "activity_type", str)() in NOT_KERNELS:
            continue
        begin = event.start_ns() if hasattr(event, "start_ns") else 1000 * event.start_us()
        took = event.duration_ns() if hasattr(event, "duration_ns") else 1000 * event.duration_us()
        name = event.name()
        moves = name.startswith("Memcpy") and "DtoD" not in name and "PtoP" not in name
        both = devices.setdefault(event.device_index(), ([], []))
        both[moves].append((begin, begin + took))
    return max((Busy(*both) for both in devices.values()), key=lambda one: one.busy, default=Busy([], []))


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time without overlaps."""
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def length(spans: list[tuple[int, int]]) -> int:
    """Of all of them together."""
    return sum(end - begin for begin, end in spans)


WINDOW = Window()
