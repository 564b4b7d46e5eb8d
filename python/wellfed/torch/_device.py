"""Pinned memory and `device=`: what happens to a batch between the loader's iterator and the training loop.

Invariants: a batch that is handed out is complete for work that the caller puts on its current stream. Memory that a
copy still reads or writes is neither reused nor freed. A batch that was only staged has not been consumed:
`state_dict()` does not count it.

Where the next batch already waits, it is staged (pinned, copied on a stream of its own) while the caller works on the
one before. It is never waited for: handing out a batch comes first. The pinning is a copy by a thread that does not
hold the interpreter lock, into memory of torch's own pinned allocator, which knows what copies still read from it.
Only for `device=`, where the copy is ours and its end is known, are the workers' slots page-locked themselves
(`PageLock`), and for `ds.torch(device=)` the buffers of the engine's batches (`BatchPages`), and copied from directly.
`Copies` keeps them until an event says that their copies are over: only then do they go back to be written again.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from .. import _native
from ._nested import map_leaves
from ._precision import cast


def target(device: torch.device | str | int | None) -> torch.device | None:
    """What `DataLoader`'s argument `device` says, checked; None where batches stay where they are made.

    Example:
        >>> target("cpu") is None
        True
        >>> target("meta")
        device(type='meta')
    """
    if device is None:
        return None
    place = torch.device(device)
    if place.type == "cpu":
        return None
    if place.type == "cuda" and not torch.cuda.is_available():
        built = (
            "this torch was built without CUDA"
            if torch.version.cuda is None
            else "torch finds no CUDA device"
        )
        raise RuntimeError(
            f"device={str(device)!r} cannot be used: {built}"
            "\nhint: device=None leaves batches on the CPU, as torch's DataLoader does"
        )
    if place.type == "cuda" and place.index is not None and place.index >= torch.cuda.device_count():
        raise RuntimeError(
            f"device={str(device)!r} cannot be used: torch finds {torch.cuda.device_count()} CUDA device(s)"
        )
    if place.type == "mps" and not torch.backends.mps.is_available():
        raise RuntimeError(f"device={str(device)!r} cannot be used: torch finds no MPS device")
    return place


def has_streams(device: torch.device) -> bool:
    """Whether the device reads page-locked memory of the host by itself while it computes: the plan's word on it."""
    return _native.device_has_streams(str(device))


def pin(batch: Any) -> Any:
    """The batch in pinned memory; an object with a `pin_memory()` of its own is asked for what that gives."""

    def change(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and (value.device.type != "cpu" or value.is_pinned()):
            return value
        return value.pin_memory()

    return map_leaves(batch, change, lambda value: hasattr(value, "pin_memory"))


def move(batch: Any, device: torch.device) -> Any:
    """The batch on the device: tensors, and objects with a `to()` of their own."""

    def change(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(device, non_blocking=value.device.type == "cpu" and value.is_pinned())
        moved = value.to(device)
        # Some move themselves and return nothing.
        return value if moved is None else moved

    return map_leaves(batch, change, _has_to)


class PageLock:
    """Page-locks memory that somebody else owns, so that a GPU reads it without a copy in between.

    The owner makes one per slot, when the slot is made, so that the price (about as much as writing the memory once) is
    paid once; and closes it before the memory goes away.

    Attributes:
        held: False where the system refused. Then batches are copied into pinned memory instead.
    """

    def __init__(self, address: int, nbytes: int, runtime: Any = None) -> None:
        """Locks `nbytes` from `address` on; `runtime` stands in for CUDA's in tests."""
        self._runtime = torch.cuda.cudart() if runtime is None else runtime
        self._address = address
        portable = 1  # for all devices, whichever is current
        self.held = int(self._runtime.cudaHostRegister(address, nbytes, portable)) == 0
        if not self.held and runtime is None:
            # CUDA keeps the refusal as its last error, and the next kernel launch would report it as its own.
            with contextlib.suppress(RuntimeError):
                torch.zeros(1, device="cuda")

    def close(self) -> None:
        """Lets the memory go. No copy may be reading it: see `Copies.drain`."""
        if self.held:
            self.held = False
            self._runtime.cudaHostUnregister(self._address)


class BatchPages:
    """Page-locks the buffers of the engine's batches, by the driver, in the engine's threads.

    Attributes:
        page_lock: What the engine calls once for each buffer when it makes one.
    """

    def __init__(self, device: torch.device) -> None:
        """For a device: "cuda" is the one that is current when the first pass begins."""
        self._device = device
        self.page_lock = _native.PageLocks()

    def begin(self) -> None:
        """Called by the caller's thread before the first batch."""
        index = torch.cuda.current_device() if self._device.index is None else self._device.index
        self._device = torch.device("cuda", index)
        self.page_lock.begin(index)


def _end(process: int) -> None:
    # A forked child has none of the threads that are waited for.
    if os.getpid() == process:
        _native.end_page_locks()


atexit.register(_end, os.getpid())


class Pinning:
    """What `pin_memory=True` does to a batch."""

    ahead = True

    def __init__(self, accelerator: Any = None) -> None:
        """Pins for the current device; `accelerator` stands in for `torch.accelerator` in tests."""
        self._accelerator: Any = torch.accelerator if accelerator is None else accelerator
        self._index = self._accelerator.current_device_index()

    def enter_thread(self) -> None:
        """Called once in the thread that stages, which begins with the first device as its current one."""
        # Otherwise every rank of a machine would get a context on the first device.
        self._accelerator.set_device_index(self._index)
        # Of this thread alone: a copy is not to take the cores that train or load.
        torch.set_num_threads(1)

    def begin(self, batch: Any) -> Any:
        """Runs in the thread: copies into pinned memory."""
        return pin(batch)

    def finish(self, staged: Any) -> Any:
        """Runs where the caller is."""
        return staged


class Moving:
    """What `device=` does to a batch where there are no streams: all when the batch is asked for. And `float_dtype`."""

    ahead = False

    def __init__(self, device: torch.device | None, dtype: torch.dtype | None = None) -> None:
        """Moves batches to `device`, floating point tensors in `dtype`."""
        self._device = device
        self._dtype = dtype

    def enter_thread(self) -> None:
        """Nothing to prepare."""

    def begin(self, batch: Any) -> Any:
        """Nothing is done ahead."""
        return batch

    def finish(self, staged: Any) -> Any:
        """Converts and moves it."""
        batch = cast(staged, self._dtype)
        return batch if self._device is None else move(batch, self._device)


_STREAMS: weakref.WeakKeyDictionary[Any, dict[tuple[int, int | None], Any]] = weakref.WeakKeyDictionary()
"""Of `torch.cuda`, or what stands in for it: the side streams by process and device. Nothing is there before a batch
is copied, and a forked child has none of its parent's."""


def _side_stream(cuda: Any, device: torch.device) -> Any:
    """The stream on which all loaders of this process copy to a device.

    torch deals streams out of 32, and its allocator keeps memory for each: one for each loader would keep the memory
    between the kernels up to 32 times. Loaders that share it need not know of each other. Each waits for events of its
    own, that lie behind its own copies, and what one frees there the other gets in the stream's order.
    """
    known = _STREAMS.setdefault(cuda, {})
    place = (os.getpid(), device.index)
    stream = known.get(place)
    # Of two threads that come at once, both get that of the first.
    return known.setdefault(place, cuda.Stream(device)) if stream is None else stream


class Copies:
    """What `device="cuda"` does to a batch: pins it and copies it on a stream of its own, ordered before its use.

    Example of what happens for one batch::

        thread   side stream: copy, event
        caller   current stream waits for the event; tensors are marked as used by the current stream
    """

    ahead = True

    def __init__(self, device: torch.device, cuda: Any = None) -> None:
        """Copies to `device`; `cuda` stands in for `torch.cuda` in tests."""
        self._cuda: Any = torch.cuda if cuda is None else cuda
        index = self._cuda.current_device() if device.index is None else device.index
        self._device = torch.device(device.type, index)
        self._stream = _side_stream(self._cuda, self._device)
        # Sources of copies that may not be over. Pinned memory of torch's allocator would take care of itself;
        # page-locked slots of workers would not.
        self._sources: deque[tuple[Any, Any]] = deque()
        # The thread of a pass that was abandoned may still be at it when the next one begins.
        self._lock = threading.Lock()
        self._closed = False

    def __del__(self) -> None:
        # When an interpreter ends, CUDA may be gone first.
        with contextlib.suppress(Exception):
            self.drain()

    def enter_thread(self) -> None:
        """Called once in the thread that stages."""
        self._cuda.set_device(self._device)
        torch.set_num_threads(1)

    def begin(self, batch: Any) -> tuple[Any, Any]:
        """Runs in the thread: starts the copies, and an event that comes after them."""
        with self._lock:
            over = _over(self._sources)
        del over
        with self._cuda.stream(self._stream):
            source = map_leaves(batch, _pin_early, _has_to)
            event = self._cuda.Event()
            try:
                ahead = map_leaves(source, self._copy, _has_to)
            finally:
                # Where one copy fails, others of the batch may be under way.
                event.record(self._stream)
                with self._lock:
                    self._sources.append((event, source))
                if self._closed:
                    self.release()
        return ahead, event

    def finish(self, staged: tuple[Any, Any]) -> Any:
        """Runs where the caller is, whose stream waits (the caller does not) and owns the batch from now on."""
        batch, event = staged
        current = self._cuda.current_stream(self._device)
        current.wait_event(event)

        def hand_over(value: Any) -> Any:
            if not _goes_ahead(value):
                return move(value, self._device)
            value.record_stream(current)
            return value

        return map_leaves(batch, hand_over, _has_to)

    def release(self) -> None:
        """Lets sources go as soon as their copies are over. Waits for nothing: where some are not, a thread does."""
        # Errors of the device are told by what is asked of it next; without a thread, the next pass lets them go.
        with contextlib.suppress(RuntimeError):
            # In a signal handler, whoever has the lock may be the one that was interrupted.
            if self._lock.acquire(blocking=False):
                try:
                    over = _over(self._sources)
                finally:
                    self._lock.release()
                del over
            if self._sources:
                # Not of `self`, which may be dropped meanwhile.
                rest = (self._cuda, self._device, self._sources, self._lock)
                threading.Thread(target=_let_go, args=rest, name="wellfed-release", daemon=False).start()

    def close(self) -> None:
        """No pass follows: as `release`, and so for what a thread is still at."""
        self._closed = True
        self.release()

    def drain(self) -> None:
        """Waits for copies under way; after it, memory that they read may go."""
        # Without the lock: it may be the garbage collector that calls, amid whoever has it.
        for event, _ in tuple(self._sources):
            event.synchronize()
        self._sources.clear()

    def _copy(self, value: Any) -> Any:
        if not _goes_ahead(value):
            return value
        if isinstance(value, torch.Tensor):
            return value.to(self._device, non_blocking=True)
        return value.to(self._device)


def _over(sources: deque[tuple[Any, Any]]) -> list[Any]:
    """Takes out what was copied. It goes with the list: outside of the lock, as memory may be unlocked then."""
    over = []
    while sources and sources[0][0].query():
        over.append(sources.popleft())
    return over


def _let_go(cuda: Any, device: torch.device, sources: deque[tuple[Any, Any]], lock: threading.Lock) -> None:
    """Runs in a thread: lets the sources that there are now go when their copies are over."""
    with contextlib.suppress(RuntimeError, IndexError):
        # Threads begin with the first device, on which events would make a context.
        cuda.set_device(device)
        last = sources[-1][0]
        while not last.query():
            if not threading.main_thread().is_alive():
                # The process ends.
                return
            # torch's own wait keeps a core busy.
            time.sleep(0.001)
        with lock:
            over = _over(sources)
        del over


def _has_to(value: Any) -> bool:
    return callable(getattr(value, "to", None))


def _goes_ahead(value: Any) -> bool:
    """Whether it can be copied on one stream and used on another: it must be markable as in use there.

    What cannot be marked is moved when it is handed out, on the caller's stream, where the order is right by itself.
    """
    if isinstance(value, torch.Tensor):
        return bool(value.layout == torch.strided)
    return callable(getattr(value, "record_stream", None))


def _pin_early(value: Any) -> Any:
    return pin(value) if _goes_ahead(value) and hasattr(value, "pin_memory") else value


class StagedProgress:
    """Where the pass stands that `Staged` hands out: that of the iterator below, less what is staged.

    The loader keeps it for `state_dict()`, and it keeps no iterator alive.
    """

    def __init__(self, progress: Any) -> None:
        """Of an iterator with this `_progress`."""
        self._progress = progress
        self._given: Any = None

    def place(self) -> Any:
        """Where the pass stands for the caller."""
        return self._progress.place() if self._given is None else self._given

    def hold(self) -> None:
        """What comes next is not handed out yet."""
        self._given = self._progress.place()

    def release(self) -> None:
        """All that was taken is handed out."""
        self._given = None

    def state_dict(self, place: Any = None) -> Any:
        """The state after the last batch that was handed out, or as of `place`.

        It is made when it is asked for: the caller's step may have drawn random numbers since the batch.
        """
        return self._progress.state_dict(self._given if place is None else place)


def _nothing() -> None:
    """For stages that keep nothing."""


def _progress_of(inner: Any) -> StagedProgress | None:
    """None where the iterator below does not keep its place, which the loader then says."""
    progress = getattr(inner, "_progress", None)
    return None if progress is None else StagedProgress(progress)


class Staged:
    """The loader's iterator with the next batch staged, where there is one already.

    It asks `ready()` of the iterator below, if that has it: whether `next()` would return at once. All attributes that
    are not here are that iterator's.
    """

    def __init__(self, inner: Any, stage: Pinning | Moving | Copies) -> None:
        """Stages what `inner` gives."""
        self._inner = inner
        self._stage = stage
        self._ready: Callable[[], bool] | None = getattr(inner, "ready", None)
        # Where a pass ends, what it copied from goes, however long the next one is away.
        self._release: Callable[[], None] = getattr(stage, "release", _nothing)
        self._progress = _progress_of(inner)
        self._thread: ThreadPoolExecutor | None = None
        self._forget()

    def _forget(self) -> None:
        self._next: Future[Any] | None = None
        self._stop: BaseException | None = None
        if self._progress is not None:
            self._progress.release()
        self._ahead = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._inner)

    def __next__(self) -> Any:
        if self._stop is not None:
            stop = self._stop
            self._forget()
            self._release()
            try:
                raise stop
            finally:
                # Its traceback has this frame, and the frame has it: a cycle that would keep the stage and its batches
                # until garbage is collected, in whatever thread or forked child that happens.
                del stop
        if self._next is None:
            try:
                batch = next(self._inner)
            except StopIteration:
                self._release()
                raise
            staged = self._stage.begin(batch)
        else:
            waiting = self._next
            # Ctrl-C may end this wait: then the batch is still there, for the next call.
            waiting.exception()
            self._forget()
            staged = waiting.result()
        batch = self._stage.finish(staged)
        self._look_ahead()
        return batch

    def _look_ahead(self) -> None:
        """Stages the next batch if it is there. What goes wrong in it is told when it is asked for."""
        if not self._stage.ahead or self._ready is None or not self._ready():
            return
        # Before it is taken: a state is that of what was handed out.
        if self._progress is not None:
            self._progress.hold()
        try:
            batch = next(self._inner)
        except Exception as error:
            self._stop = error
            self._release()
            return
        self._ahead = 1
        if self._thread is None:
            # Ends when nobody refers to it any more, and with the interpreter.
            self._thread = ThreadPoolExecutor(1, "wellfed-stage", self._stage.enter_thread)
        self._next = self._thread.submit(self._stage.begin, batch)

    @property
    def _num_yielded(self) -> int:
        """Batches handed out in this epoch, as torch's iterators count them."""
        yielded: int = self._inner._num_yielded - self._ahead
        return yielded

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Begins the next epoch on the same workers (`persistent_workers`)."""
        if self._next is not None:
            self._next.cancel()
        self._forget()
        self._inner._reset(loader, first_iter)
        self._progress = _progress_of(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # not there yet
            raise AttributeError(name)
        return getattr(self._inner, name)


def stage_for(device: torch.device) -> Moving | Copies:
    """What brings batches to a device: ahead, where it has streams."""
    return Copies(device) if has_streams(device) else Moving(device)


def staged(loader: Any, iterator: Any) -> Any:
    """The iterator that the loader gives out: with `float_dtype`, `pin_memory` and `device` carried out.

    It is the given one where they ask for nothing.

    Args:
        loader: Has our attributes `device` and `float_dtype`.
        iterator: Makes batches in ordinary memory. It may have converted floating point tensors already: workers do.
    """
    device = target(loader.device)
    if loader.float_dtype is not None:
        iterator = Staged(iterator, Moving(None, loader.float_dtype))
    if device is not None:
        return Staged(iterator, stage_for(device))
    return Staged(iterator, Pinning()) if _pins(loader, iterator) else iterator


def _pins(loader: Any, iterator: Any) -> bool:
    """Whether to pin. Where that is asked for and cannot be, warns in torch's words, as its iterators do themselves."""
    if not loader.pin_memory:
        return False
    current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    pins = current is not None and current.type != "mps"
    if not pins and not hasattr(iterator, "_pin_memory"):
        why = "no accelerator is found, then" if current is None else "not supported on MPS now,"
        warnings.warn(
            f"'pin_memory' argument is set as true but {why} device pinned memory won't be used.",
            stacklevel=4,
        )
    return pins
