"""`Choice`: whether samples of a map-style data set are made in worker processes or in the calling thread.

The first epoch runs as the script has it and is measured on the way. Where handing batches over takes longer than
making them, the next epoch is made in the calling thread; that stays if it was measured to be faster. If the workers
could have been faster yet, because their epoch was the first one or the machine was busy, they are measured once more
before. Invariants: no value of a batch depends on the choice (see `here.py`), and what was measured slower than the
script's own setting is never chosen.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch.utils.data import MapDataPipe

from .._private import DatasetKind, collate
from .._stateful import is_stateful

try:
    import resource
except ImportError:  # Windows, which has no worker processes of wellfed either.
    resource = None  # type: ignore[assignment]

__all__ = [
    "Choice",
    "Clock",
    "Epoch",
    "Mode",
    "Stopwatch",
    "at_best",
    "choice_of",
    "fastest",
    "in_main_thread",
    "promising",
    "too_slow",
]

Mode = Literal["own", "here"]

Look = Callable[[], Any]
"""Gives a `Reach`, or what begins like one."""

MARGIN = 1.1
"""How many times as long as in workers batches may take in a trial of the calling thread before it is left."""

FEW = 16
"""Batches after which the calling thread may be found too slow."""

TURNS = 3
"""How often an epoch is measured: the data set was changed, or the calling thread was slower than expected."""


class Epoch(NamedTuple):
    """What was measured of one epoch.

    Attributes:
        batches: How many there were.
        seconds: From `iter()` until the workers were gone, the script's own work included.
        waiting: Of these, seconds in which a batch was asked for, the first and the end left out.
        fixed: Of these, seconds until the first batch was there and after the last one.
        handing: Seconds of processor time that the calling thread used to get batches, the first left out.
        making: Seconds that one worker takes to make a batch if nobody else wants its processor, by the median.
    """

    batches: int
    seconds: float
    waiting: float
    fixed: float
    handing: float
    making: float

    @property
    def each(self) -> float:
        """Seconds of the loop for a batch."""
        return self.seconds / max(1, self.batches)

    @property
    def step(self) -> float:
        """Seconds that the script does something else with a batch."""
        return max(0.0, self.seconds - self.waiting - self.fixed) / max(1, self.batches)


def promising(own: Epoch) -> bool:
    """Whether the calling thread would have been faster than the workers were.

    There is no margin: a trial that takes longer is left after a few batches.
    """
    return own.batches > 0 and own.step + own.making < own.each


def at_best(own: Epoch, workers: int) -> float:
    """Seconds of the loop for a batch that `workers` processes need where nothing but their own work holds them back.

    They make batches side by side and while the script works: a batch costs the loop no more than taking it over, or
    one worker's share of making it, whichever is longer; and the start of the workers, by the number of batches.
    """
    batches = max(1, own.batches)
    return max(own.step + own.handing / batches, own.making / workers) + own.fixed / batches


def fastest(own: float, others: Mapping[str, float]) -> str:
    """The setting with the fewest seconds for a batch; ``"own"`` unless another one was measured to need fewer."""
    best = min(others, key=others.__getitem__, default="own")
    return best if best != "own" and others[best] < own else "own"


def too_slow(batches: int, seconds: float, own: Epoch) -> bool:
    """Whether an epoch in the calling thread is to go on in workers, after `seconds` in which `batches` were asked for.

    What the script does in between, such as a validation, does not count.
    """
    return batches >= FEW and seconds > MARGIN * (own.each - own.step) * batches


class Stopwatch:
    """Seconds that something takes if nobody else wants the processor.

    Time in which another thread had the processor is left out. Waiting, for a file or a lock, counts.
    """

    def __init__(self) -> None:
        self._waits = _waits()
        self._wall, self._used = time.perf_counter(), time.thread_time()

    def seconds(self) -> float:
        """Since it was made."""
        wall, used = time.perf_counter() - self._wall, time.thread_time() - self._used
        waits = _waits()
        return used if waits is not None and waits == self._waits else wall


def _waits() -> int | None:
    """How often this thread has given up its processor by itself; None where the system does not say."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    return None if who is None else resource.getrusage(who).ru_nvcsw


class Clock:
    """Measures an epoch.

    Args:
        wall: Seconds that have passed.
        used: Seconds of processor time of the calling thread.
        before: Seconds that went by for it already.
    """

    def __init__(self, wall: Callable[[], float], used: Callable[[], float], before: float = 0.0) -> None:
        self._wall, self._used = wall, used
        self._began = wall() - before
        self._asked, self._used_then = self._began, used()
        self._first = self._waited = self._handing = 0.0
        self.asking = 0.0
        """Seconds in which batches were asked for."""
        self.batches = 0

    def asked(self) -> None:
        """A batch is asked for."""
        self._asked, self._used_then = self._wall(), self._used()

    def came(self) -> None:
        """It is there."""
        now = self._wall()
        self.asking += now - self._asked
        if self.batches == 0:
            self._first = now - self._began
        else:
            self._waited += now - self._asked
            self._handing += self._used() - self._used_then
        self.batches += 1

    def leave_out(self, seconds: float) -> None:
        """These seconds, the last ones, are none of the epoch's."""
        self._began += seconds
        self._asked += seconds

    def finish(self, making: float) -> Epoch:
        """The measurement, when the workers are gone. The last question, which found the end, was `asked`."""
        now = self._wall()
        ending = now - self._asked if self.batches else 0.0
        return Epoch(
            self.batches, now - self._began, self._waited, self._first + ending, self._handing, making
        )


class Choice:
    """What is known of a loader's data set, from epoch to epoch."""

    def __init__(self) -> None:
        self.own: Epoch | None = None
        self.here: Epoch | None = None
        self.draws = False
        """Whether samples draw from the default generators."""
        self._mode: Literal["watch", "try", "own", "here"] = "watch"
        self._why = ""
        self._mark = ""
        self._turns = 0
        self._at_best = 0.0
        self._doubted = False
        self.looking = 0.0
        """Seconds that the last look at the data set took."""

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process, or of a copy of the data set, all is to be measured anew.
        return Choice, ()

    @property
    def watches(self) -> bool:
        """Whether the next epoch, which runs as the script has it, is to be measured."""
        return self._mode == "watch"

    def stay(self, why: str) -> None:
        """The script's own setting it is, from now on."""
        self._mode, self._why = "own", why

    def learn_own(self, own: Epoch, workers: int, look: Look) -> None:
        """An epoch ran as the script has it. `look` says why it is to stay so, if it is, and what its data is at."""
        self.own, self._at_best = own, at_best(own, workers)
        doubted, self._doubted = self._doubted, False
        if not promising(own):
            self.stay(
                f"measured: making a batch takes {_ms(own.making)}, a loop with workers "
                f"{_ms(own.each - own.step)} for each"
            )
            return
        why, self._mark, *_ = look()
        if why is not None:
            self.stay(f"not in the calling thread: {why}")
        elif doubted and self.here is not None and own.each <= self.here.each:
            self.stay(
                f"measured: {_ms(self.here.each)} for a batch in the calling thread, {_ms(own.each)} here"
            )
        else:
            self._mode = "here" if doubted else "try"

    def next(self, look: Look) -> Mode:
        """Where the next epoch is made."""
        if self._mode not in ("try", "here"):
            return "own"
        begun = time.perf_counter()
        why, mark, *_ = look()
        self.looking = time.perf_counter() - begun
        if why is None and mark == self._mark:
            return "here"
        if why is not None:
            self.stay(f"not in the calling thread: {why}")
        else:
            self.again("the data set was changed between epochs")
        return "own"

    def again(self, why: str) -> None:
        """The next epoch runs as the script has it, and is measured anew unless that was done often enough."""
        self._turns += 1
        self._mode, self._why = "own" if self._turns >= TURNS else "watch", why

    def learn_here(self, here: Epoch) -> None:
        """An epoch was made in the calling thread."""
        self.here = here
        if self.own is None or here.batches == 0:
            return
        if fastest(self.own.each, {"here": here.each}) == "here":
            self._doubted = self._mode == "try" and here.each > self._at_best
            self._mode = "watch" if self._doubted else "here"
            self._why = "measured: the calling thread was faster than the workers' first epoch"
        else:
            self.again(
                f"measured: {_ms(here.each)} for a batch in the calling thread, {_ms(self.own.each)} here"
            )

    def words(self) -> str:
        """For `explain()`: what was found out."""
        if self._mode == "watch":
            return (
                f"; {self._why}; the next epoch is measured" if self._why else "; the first epoch is measured"
            )
        if self._mode == "own":
            return f"; {self._why}"
        assert self.own is not None
        return (
            f"making a batch takes {_ms(self.own.making)}, a loop with workers "
            f"{_ms(self.own.each - self.own.step)} for each, their start included"
        )

    @property
    def is_here(self) -> bool:
        """Whether the next epoch is made in the calling thread, unless the data set is changed."""
        return self._mode in ("try", "here")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2g} ms"


class _Remembered:
    """Choices by data set: a loader that is made anew for each epoch goes on with them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], dict[Any, Choice]]] = {}

    def of(self, dataset: Any) -> dict[Any, Choice] | None:
        """Choices by how batches are made; None for lists and ranges, of which nobody can tell when they are gone."""
        number = id(dataset)
        known = self._known.get(number)
        if known is None or known[0]() is not dataset:
            try:
                reference = weakref.ref(dataset, lambda _: self._known.pop(number, None))
            except TypeError:
                return None
            known = self._known[number] = reference, {}
        return known[1]


_REMEMBERED = _Remembered()


def choice_of(loader: Any) -> Choice | None:
    """What is known of the data set of `loader`; None where there is nothing to be chosen.

    Workers stay processes where the script has said more of them than their number, and where they carry something.
    """
    if (
        loader._dataset_kind != DatasetKind.Map
        or isinstance(loader.dataset, MapDataPipe)
        or not loader._auto_collation
        or not _collates(loader.collate_fn)
        or loader.num_workers == 0
        or loader.persistent_workers
        or loader.worker_init_fn is not None
        or loader.timeout > 0
        or loader.multiprocessing_context is not None
        or is_stateful(loader.dataset)
        or not _forks()
        or not in_main_thread()
        or _goes_ahead(loader)
    ):
        return None
    number = "auto" if loader._seeds_by_batch else loader.num_workers
    collate_fn = loader.collate_fn
    key = (
        *(number, loader.batch_size, loader.prefetch_factor, loader.in_order),
        *(loader.on_error, loader.float_dtype, loader.accelerate),
        *(getattr(collate_fn, "__module__", None), getattr(collate_fn, "__qualname__", None)),
    )
    known = _REMEMBERED.of(loader.dataset)
    return (loader._choices if known is None else known).setdefault(key, Choice())


def in_main_thread() -> bool:
    """Whether this is the main thread: any other one shares the default generators with it, which may draw just now."""
    return threading.current_thread() is threading.main_thread()


def _collates(function: Any) -> bool:
    """Whether it may be called here: torch's own function for what torch has registered, or one that is watched."""
    if function is not collate.default_collate:
        return not is_stateful(function)
    own = collate.collate_tensor_fn.__module__
    return all(part.__module__ == own for part in collate.default_collate_fn_map.values())


def _forks() -> bool:
    """Whether workers are forked, so that what is at the same place in two processes can be compared."""
    method = torch.multiprocessing.get_start_method(allow_none=True)
    return bool((method or torch.multiprocessing.get_all_start_methods()[0]) == "fork")


def _goes_ahead(loader: Any) -> bool:
    """Whether batches go on to a device, or to pinned memory, while the batch before is used: as workers bring them."""
    if loader.device is not None and loader.device.type != "cpu":
        return True
    return bool(loader.pin_memory and torch.accelerator.is_available())
