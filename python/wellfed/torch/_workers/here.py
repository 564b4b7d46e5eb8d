"""`HereIterator`: an epoch of worker processes whose work the calling thread does, as fast batches ask for it.

Invariant: batches are those of the processes to the bit. The calling thread plays every worker in turn: with the random
numbers that this worker would have drawn, with one thread of torch and outside of the script's `no_grad` and
`autocast`. What `get_worker_info` says is None here: nobody asks but torch's collation, which then needs no shared
memory. The tasks, their order, errors and states are those of processes, by the same code.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from ..._accelerate.within import Within
from .._fetch import MapFetcher, located, with_bad
from .._precision import cast
from .._private import ExceptionWrapper
from .._resume import Resume
from . import defaults
from .choice import Choice, Clock, in_main_thread, too_slow
from .pool import Pool
from .processes import WorkersIterator
from .setup import BATCH, FAILED, Setup
from .tasks import TasksIterator

__all__ = ["HereIterator"]


class HereIterator(WorkersIterator):
    """Batches of the calling thread, in the place of worker processes.

    Args:
        loader: The loader.
        choice: What is known of its data set.
        resume: Where it goes on from.
    """

    _pool: Any  # a `HerePool`, in the place of a `Pool`

    def __init__(self, loader: Any, choice: Choice, resume: Resume | None = None) -> None:
        self._clock = Clock(time.perf_counter, time.thread_time, choice.looking)
        self._choice, self._whole = choice, resume is None
        super().__init__(loader, resume)
        self._pace = None
        self._workers = []

    def _next_data(self) -> Any:
        self._clock.asked()
        own = self._choice.own
        if self._pool.here and own is not None and not self._shutdown:
            if not in_main_thread():
                if self._pool.give_up():
                    self._choice.stay(
                        "batches are asked for in a thread that shares its generators with others"
                    )
            elif too_slow(self._clock.batches, self._clock.asking, own) and self._pool.give_up():
                self._choice.again("measured: the calling thread took longer")
        data = TasksIterator._next_data(self)
        self._clock.came()
        return data

    def _start(self, setup: Setup, loader: Any) -> Any:
        start = super()._start
        return HerePool(setup, self._choice, lambda: start(setup, loader))

    def _process(self, number: int) -> Any:
        return None

    def _who(self, worker: int) -> str:
        if self._pool.here:
            return f"the calling thread, in place of DataLoader worker {worker}"
        return super()._who(worker)

    def _released(self, number: int) -> list[int]:
        return [] if self._pool.here else super()._released(number)

    def _unpack(self, worker: int, message: Any) -> Any:
        return message[4].pop() if type(message[4]) is _Made else super()._unpack(worker, message)

    def _discard(self, worker: int, message: Any) -> None:
        if type(message[4]) is not _Made:
            super()._discard(worker, message)

    def _ended(self) -> None:
        if self._pool.here and self._whole:
            self._choice.learn_here(self._clock.finish(0.0))


class _Made(list[Any]):
    """A batch that lies in this process."""


class HerePool:
    """The workers of one iterator as the calling thread plays them: tasks wait until their batch is asked for.

    Args:
        setup: What workers are told.
        choice: Notes whether samples draw.
        start: Starts worker processes, in case that the calling thread is too slow.
    """

    def __init__(self, setup: Setup, choice: Choice, start: Callable[[], Pool]) -> None:
        self._setup, self._choice, self._start = setup, choice, start
        self._pool: Pool | None = None
        self._tasks: deque[tuple[int, tuple[Any, ...]]] = deque()
        self._fetcher = MapFetcher(setup.dataset, setup.auto_collation, setup.collate_fn, setup.drop_last)
        self._fetcher.on_error = setup.on_error
        self._lazily = Within() if setup.accelerate else contextlib.nullcontext()
        self._watch = defaults.Watch()
        self._modes = _modes()
        # What the generators of each worker are at, of those that have drawn.
        self._states: dict[int, defaults.States] = {}

    @property
    def here(self) -> bool:
        """Whether the calling thread makes batches."""
        return self._pool is None

    @property
    def members(self) -> Any:
        """The processes, if there are any."""
        return [] if self._pool is None else self._pool.members

    def give_up(self) -> bool:
        """Has processes do what is left; whether they can: they draw as workers that begin do."""
        if self._states:
            return False
        self._pool = self._start()
        while self._tasks:
            number, message = self._tasks.popleft()
            self._pool.post(number, *message)
        return True

    def post(self, number: int, *message: Any) -> None:
        """A task for a worker."""
        if self._pool is None:
            self._tasks.append((number, message))
        else:
            self._pool.post(number, *message)

    def wait(self, seconds: float | None) -> list[tuple[int, Any]]:
        """Makes the batch that was asked for first; none if there is no time for it."""
        if self._pool is not None:
            return self._pool.wait(seconds)
        if not self._tasks or (seconds is not None and seconds <= 0):
            return []
        number, (_, epoch, _, batch, index, _, base_seed, place) = self._tasks[0]
        message = self._work(number, epoch, batch, index, base_seed, place)
        self._tasks.popleft()  # Not before: Ctrl-C leaves it to be made.
        return [(number, message)]

    def array(self, number: int, slot: int) -> Any:
        """The memory of a process's slot."""
        assert self._pool is not None
        return self._pool.array(number, slot)

    def stacks(self, number: int) -> str:
        """What a worker does: the calling thread does not wait for itself."""
        return "" if self._pool is None else self._pool.stacks(number)

    def close(self, dying: bool = False) -> None:
        """Ends what there is."""
        self._tasks.clear()
        if isinstance(self._lazily, Within):
            self._lazily.close()
        if self._pool is not None:
            self._pool.close(dying)

    def _work(
        self, number: int, epoch: int, batch: int, index: Any, base_seed: int, place: int | None
    ) -> Any:
        """What a worker answers."""
        fetcher, threads = self._fetcher, torch.get_num_threads()
        if threads != 1:
            torch.set_num_threads(1)
        try:
            with _outside(self._modes), self._lazily:
                made = self._drawn(number, index, base_seed, place)
            return [BATCH, epoch, batch, None, _Made([with_bad(fetcher, made)])]
        except Exception:
            # Only text: whoever stores the exception itself keeps all frames alive.
            where = f"in the calling thread, in place of DataLoader worker process {number}"
            error = located(ExceptionWrapper(where=where), fetcher.at, batch)
            return [FAILED, epoch, batch, None, _Made([error])]
        finally:
            if threads != 1:
                torch.set_num_threads(threads)

    def _drawn(self, number: int, index: Any, base_seed: int, place: int | None) -> Any:
        """A batch with the random numbers that the worker would have drawn."""
        if not self._choice.draws:
            # Most draw nothing; where one does, it is made again.
            self._watch.begin()
            try:
                made = self._made(index)
            except BaseException as error:
                if not self._watch.drew() or not isinstance(error, Exception):
                    raise
            else:
                if not self._watch.drew():
                    return made
            self._choice.draws = True
        before = defaults.taken()
        try:
            if place is not None:
                defaults.seed(defaults.of_place(base_seed, place))
            elif number in self._states:
                defaults.give(self._states[number])
            else:
                defaults.seed(defaults.of_worker(self._setup.base_seed, number))
            return self._made(index)
        finally:
            if place is None:
                self._states[number] = defaults.taken()
            defaults.give(before)

    def _made(self, index: Any) -> Any:
        return cast(self._fetcher.fetch(index), self._setup.float_dtype)


class _Modes(NamedTuple):
    """What is set for the calling thread and has an effect on torch's functions."""

    grad: bool
    inference: bool
    autocast: bool
    dtype: torch.dtype


def _modes() -> _Modes:
    return _Modes(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(),
    )


@contextlib.contextmanager
def _outside(modes: _Modes) -> Iterator[None]:
    """A block in which these modes hold, which are those in which workers would have been started."""
    now = _modes()
    if now == modes:
        yield
        return
    torch.set_default_dtype(modes.dtype)
    try:
        with (
            torch.inference_mode(modes.inference),
            torch.set_grad_enabled(modes.grad),
            torch.autocast("cpu", enabled=modes.autocast),
        ):
            yield
    finally:
        torch.set_default_dtype(now.dtype)
