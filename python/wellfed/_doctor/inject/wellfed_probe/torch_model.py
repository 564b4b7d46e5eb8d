"""What one step of training consists of: the record `model`.

Modules are counted by a hook that exists for one step; never where something was compiled, since that looks at hooks.
"""

from __future__ import annotations

import functools
import sys
import weakref
from types import ModuleType
from typing import Any

from . import hooks, torch_loader
from .places import qualified
from .recorder import RECORDER, Record
from .steps import Steps
from .torch_step import receiving

__all__ = ["install"]

# Steps before this one warm up.
FIRST = 3

_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()


def install() -> None:
    """Remembers optimizers from now on, and looks at a step of each loader."""
    hooks.when_imported("torch.optim.optimizer", _patch)
    torch_loader.listen_to_steps(COUNT.listener)


def _patch(module: ModuleType) -> None:
    kind = module.Optimizer
    original = kind.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        original(self, *args, **kwargs)
        _optimizers.add(self)

    kind.__init__ = __init__


class Count:
    """Counts the calls of modules between two batches of one loader."""

    def __init__(self) -> None:
        self.done: set[int] = set()
        self.steps: Steps | None = None
        self.handle: Any = None
        self.calls = 0
        self.of_script: dict[int, int] = {}
        self.autocast = False
        self.most = -1

    def listener(self, steps: Steps) -> Any:
        """What looks at the batches of this iterator, if it is to be looked at."""
        self.stop()  # An epoch ended before its next batch came.
        if steps.log.number in self.done:
            return None
        return functools.partial(self.batch, steps)

    def batch(self, steps: Steps, n: int, batch: Any) -> bool:
        """A batch was handed out; true when all is known."""
        if self.steps is steps:
            self.stop()
            self.done.add(steps.log.number)
            if self.calls > self.most:
                self.most = self.calls
                RECORDER.emit("model", **self.record())
            return True
        if steps.log.steps + n >= FIRST and self.steps is None:
            self.begin(steps)
        return False

    def begin(self, steps: Steps) -> None:
        """Counts from now on."""
        self.steps = steps
        self.calls = 0
        self.of_script = {}
        self.autocast = False
        module = sys.modules.get("torch.nn.modules.module")
        if module is not None and not compiled():
            self.handle = module.register_module_forward_pre_hook(self.called)

    def called(self, module: Any, arguments: Any) -> None:
        """A module is called."""
        if receiving() is not None:
            return  # Transforms may be modules, too.
        self.calls += 1
        if next(module.parameters(), None) is not None and not within_module():
            self.of_script[id(module)] = self.of_script.get(id(module), 0) + 1
        if not self.autocast:
            self.autocast = autocast()

    def stop(self) -> None:
        """Counts no more."""
        self.steps = None
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def record(self) -> Record:
        """The record `model`."""
        repeats = max(self.of_script.values(), default=0)
        record: Record = {"module_calls": self.calls, "repeats": repeats, "autocast": self.autocast}
        largest = 0
        for optimizer in list(_optimizers):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            number = sum(p.numel() for p in parameters)
            if parameters and number >= largest:
                largest = number
                record.update(
                    parameters=number,
                    optimizer=qualified(type(optimizer)),
                    device=str(parameters[0].device),
                    dtype=str(parameters[0].dtype).removeprefix("torch."),
                )
        return record


COUNT = Count()


def within_module() -> bool:
    """Whether the module whose hook runs is called by another one's."""
    calls = 0
    frame = sys._getframe(1)
    while frame is not None and calls < 2:
        calls += frame.f_code.co_name == "_call_impl"
        frame = frame.f_back  # type: ignore[assignment]
    return calls > 1


def compiled() -> bool:
    """Whether torch compiled any code in this process."""
    module = sys.modules.get("torch._dynamo.utils")
    counters = getattr(module, "counters", {})
    return bool(counters.get("frames"))


def autocast() -> bool:
    """Whether it is on, on any device."""
    torch: Any = sys.modules["torch"]
    try:
        return bool(torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))
    except TypeError:  # Before torch 2.4.
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())
