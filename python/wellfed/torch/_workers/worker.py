"""What runs in a worker process: torch's worker loop, with our sockets and memory around it.

A worker ends when its consumer hangs up or dies, also in the middle of a sample: a thread watches for both.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import gc
import os
import random
import select
import signal
import statistics
import sys
import threading
import time
import traceback
from typing import Any

import torch
from torch.utils.data.datapipes.datapipe import IterDataPipe
from torch.utils.data.graph_settings import apply_random_seed

from ... import _offer
from ..._accelerate import accelerate_worker, places
from .._fetch import IterableFetcher, MapFetcher, Stopped, located, with_bad
from .._precision import cast
from .._private import (
    HAS_NUMPY,
    DatasetKind,
    ExceptionWrapper,
    WithoutSubclasses,
    WorkerInfo,
    generate_numpy_seed,
    name_worker_process,
    set_worker_info,
    set_worker_signals,
    typed_storage,
)
from .._private import collate as stock_collate
from .arena import Arena
from .channel import MOST_DESCRIPTORS, PACKET, Channel, Closed
from .choice import Stopwatch
from .fresh import Fresh
from .pack import LARGE, Packer, in_memory
from .reach import look
from .setup import BATCH, END, FAILED, LOOKED, STARTED, STOP_GRACE, Look, Setup

__all__ = ["run", "run_forked"]

PR_SET_PDEATHSIG = 1
LONGEST = 5e-3
"""Seconds for a batch above which it is worker processes that make it."""


class ConsumerWatch:
    """Whether this worker is still wanted, kept by a thread that also answers questions about stacks."""

    def __init__(self, worker_id: int, watch: Channel, parent: int) -> None:
        self.worker_id, self.watch, self.parent = worker_id, watch, parent
        self.stopped = self.interrupted = self.busy = False
        # The first epoch whose tasks are still wanted. Only the thread writes it, and it may be late: it then names
        # an epoch before the one that the tasks are of.
        self.oldest = 0
        self.main = threading.get_ident()
        self.job = "has no task yet"

    def begin(self) -> None:
        """Watch from now on; Ctrl-C is the consumer's to answer, who hangs up if it ends the loop."""
        signal.signal(signal.SIGINT, self.on_interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        threading.Thread(target=self.look, name="wellfed-watch", daemon=True).start()

    def on_interrupt(self, *_: Any) -> None:
        """Ctrl-C: nothing as long as the consumer goes on, else the end of a sample that takes long."""
        self.interrupted = True
        if self.stopped and self.busy:
            self.busy = False
            raise KeyboardInterrupt

    def look(self) -> None:
        """Body of the thread."""
        poll = select.poll()
        poll.register(self.parent, select.POLLIN)
        poll.register(self.watch.fileno(), select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.parent:
                    os._exit(1)  # Nobody is left to take a batch or to read a message.
                try:
                    question, _ = self.watch.recv()
                    if question is None:
                        self.watch.send(self.stacks())
                    else:
                        self.oldest = question
                except Closed:
                    self.stopped = True
                    if self.interrupted:
                        _thread.interrupt_main()
                    return self.outlive()

    def outlive(self) -> None:
        """The consumer hung up; if it dies now, or forgets us, this process still ends."""
        poll = select.poll()
        poll.register(self.parent, select.POLLIN)
        deadline = time.monotonic() + 10 * STOP_GRACE
        while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if time.monotonic() >= deadline:
                break
        os._exit(1)

    def stacks(self) -> str:
        """What this process does and the Python stacks of its threads, the one with the sample first."""
        frames = sys._current_frames()
        names = {t.ident: t.name for t in threading.enumerate()}
        own = threading.get_ident()
        parts = [self.job]
        for ident in sorted(frames, key=lambda i: i != self.main):
            if ident != own:
                stack = "".join(traceback.format_stack(frames[ident]))
                parts.append(f"thread {names.get(ident, ident)}:\n{stack}")
        frames.clear()  # It holds the frame of this very call.
        return "\n".join(parts)[: PACKET // 2]


class Worker:
    """The loop over tasks."""

    def __init__(self, setup: Setup, worker_id: int, control: Channel, consumer_watch: ConsumerWatch) -> None:
        self.setup, self.worker_id, self.control = setup, worker_id, control
        self.consumer_watch = consumer_watch
        self.dataset = setup.dataset
        self.arena = Arena(setup.ahead)
        self.packer = Packer(self.arena)
        self.shared_rng = torch.Generator()
        self.fetcher: Any = None
        self.places: places.Places | None = None
        self.broken: ExceptionWrapper | None = None
        self.ended = False
        self.where = f"in DataLoader worker process {worker_id}"
        self.took: list[float] = []
        self.fresh: Fresh | None = None
        self.before = (0, 0)

    def seed(self) -> None:
        """The random state that torch gives its workers."""
        setup = self.setup
        seed = setup.base_seed + self.worker_id
        random.seed(seed)
        torch.manual_seed(seed)
        if HAS_NUMPY:
            import numpy as np

            np.random.seed(generate_numpy_seed(setup.base_seed, self.worker_id))
        self.shuffle(setup.shared_seed)
        info = WorkerInfo(id=self.worker_id, num_workers=setup.num_workers, seed=seed, dataset=self.dataset)
        set_worker_info(info)

    def shuffle(self, shared_seed: int | None) -> None:
        """Data pipes draw from a seed that all workers share."""
        if isinstance(self.dataset, IterDataPipe):
            if shared_seed is None:
                raise AssertionError("shared_seed must be provided for IterDataPipe workers")
            self.shared_rng.manual_seed(shared_seed)
            self.dataset = apply_random_seed(self.dataset, self.shared_rng)

    def make_fetcher(self, dataset: Any) -> Any:
        """The fetcher of one epoch."""
        setup = self.setup
        self.dataset = dataset
        kind: Any = MapFetcher if setup.kind == DatasetKind.Map else IterableFetcher
        collate = self.collate_in_place if self.places is not None else setup.collate_fn
        if setup.watch and collate is not stock_collate.default_collate and self.places is None:
            collate = self.fresh = Fresh(collate)
        fetcher = kind(dataset, setup.auto_collation, collate, setup.drop_last)
        fetcher.stopped = self.stopped
        if isinstance(fetcher, MapFetcher):
            fetcher.on_error = setup.on_error
        else:
            fetcher.share = "this worker's share"
        return fetcher

    def put_samples_in_place(self) -> None:
        """Have tensors of lazy images made where their batch is to lie, if torch's own function collates it.

        Any other one might look at the samples again once they are a batch.
        """
        if self.setup.auto_collation and self.setup.collate_fn is stock_collate.default_collate:
            self.places = places.current = places.Places(self.arena)

    def collate_in_place(self, samples: list[Any]) -> Any:
        """What torch's `default_collate` gives."""
        with self.arena.in_place():
            return stock_collate.default_collate(samples)

    def fetch(self, index: Any) -> Any:
        """The batch of these indices."""
        if self.places is None:
            return self.fetcher.fetch(index)
        self.places.begin(len(index) if hasattr(index, "__len__") else 0)
        try:
            return self.fetcher.fetch(index)
        finally:
            self.places.end()

    def stopped(self) -> bool:
        """Whether the batch in the making is for nobody."""
        return self.consumer_watch.stopped

    def open(self) -> None:
        """The first epoch."""
        report = None
        self.consumer_watch.busy = True
        try:
            if self.setup.init_fn is not None:
                self.setup.init_fn(self.worker_id)
            self.fetcher, report = self.setup.hooks.open(
                self.worker_id, self.setup.kind, self.dataset, self.make_fetcher
            )
        except Exception:
            self.broken = ExceptionWrapper(where=self.where)
        finally:
            self.consumer_watch.busy = False
        if self.setup.watch:
            self.before = open_files(), threading.active_count()
        self.send(STARTED, 0, 0, report)

    def reopen(self, epoch: int, shared_seed: int | None) -> None:
        """A later epoch."""
        report = None
        self.ended = False
        try:
            self.shuffle(shared_seed)
            self.fetcher, report = self.setup.hooks.reopen(
                self.worker_id, self.setup.kind, self.dataset, self.make_fetcher
            )
        except Exception:
            self.broken = ExceptionWrapper(where=self.where)
        self.send(STARTED, epoch, 0, report)

    def loop(self) -> None:
        """Tasks, until the consumer hangs up."""
        while not self.consumer_watch.stopped:
            task, _ = self.control.recv()
            if self.consumer_watch.stopped:
                break
            kind, epoch, released = task[0], task[1], task[2]
            if released:
                self.arena.release(released)
            if kind == "resume":
                self.reopen(epoch, task[3])
            elif kind == "look":
                self.send(LOOKED, epoch, 0, self.look())
            elif kind == "end":
                break
            elif epoch >= self.consumer_watch.oldest and not self.ended:
                self.work(epoch, *task[3:])

    def work(
        self, epoch: int, number: int, index: Any, wanted: Any, base_seed: int = 0, place: int | None = None
    ) -> None:
        """One task; with a `place`, random numbers are those of this place in the epoch."""
        if self.broken is not None:
            broken, self.broken = self.broken, None
            return self.fail(epoch, number, broken, None)
        self.consumer_watch.job = f"works on batch {number}"
        if place is not None:
            seed_by_place(base_seed, place)
        try:
            self.consumer_watch.busy = True
            try:
                watch = Stopwatch() if self.setup.watch else None
                batch = cast(self.fetch(index), self.setup.float_dtype)
                if watch is not None:
                    self.took.append(watch.seconds())
            except StopIteration:
                if self.setup.kind != DatasetKind.Iterable:
                    raise
                self.ended = True
                report = self.setup.hooks.report(wanted, self.fetcher, ended=True)
                return self.send(END, epoch, number, report)
            report = self.setup.hooks.report(wanted, self.fetcher, ended=False)
            self.fetcher.at = f"packing batch {number}"
            packed = self.packer.pack(with_bad(self.fetcher, batch))
            del batch
            return self.send(BATCH, epoch, number, report, packed)
        except Closed:
            raise
        except Exception:
            self.arena.finish(set())
            # Only here: whoever stores the exception itself keeps all frames alive.
            return self.fail(
                epoch, number, ExceptionWrapper(where=self.where), getattr(self.fetcher, "at", None)
            )
        finally:
            self.consumer_watch.busy = False
            self.consumer_watch.job = "waits for a task"

    def look(self) -> Look:
        """What the epoch was like; the data set is looked at only where batches are made quickly."""
        making = statistics.median(self.took) if self.took else 0.0
        if not self.took or making > LONGEST:
            return Look(making, "a batch takes long to make", "")
        files, threads = self.before
        if open_files() != files:
            return Look(making, "samples leave files open", "")
        if threading.active_count() != threads:
            return Look(making, "samples start threads", "")
        why, mark, memory = look(self.setup.dataset, self.setup.collate_fn)
        if why is None and self.fresh is not None and (self.fresh.shares or self.fresh.lies_in(memory)):
            why = "collate_fn hands on memory that is not its own"
        return Look(making, why, mark)

    def fail(self, epoch: int, number: int, error: ExceptionWrapper, at: str | None) -> None:
        """Report an exception; one that cannot travel does as a RuntimeError of the same text."""
        located(error, at, number)
        try:
            packed = self.packer.pack(error)
        except Exception:
            error.exc_msg = f"{error.exc_type.__name__} (its class cannot be pickled): {error.exc_msg}"
            error.exc_type = RuntimeError
            packed = self.packer.pack(error)
        self.send(FAILED, epoch, number, None, packed)

    def send(self, kind: int, epoch: int, number: int, report: Any, packed: Any = None) -> None:
        """One message, with the descriptors of slots that the consumer does not have yet."""
        skeleton, places = packed if packed is not None else (b"", [])
        letter = None
        if len(skeleton) > PACKET // 2:
            slot, memory = self.arena.take(len(skeleton))
            memory[: len(skeleton)] = memoryview(skeleton)
            letter, skeleton = (slot.number, len(skeleton)), b""
        used = {number for number, _, _ in places}
        if letter is not None:
            used.add(letter[0])
        new = [slot for slot in self.arena.taken if slot.number in used and slot.descriptor >= 0]
        while len(new) > MOST_DESCRIPTORS:
            part, new = new[:MOST_DESCRIPTORS], new[MOST_DESCRIPTORS:]
            self.introduce(part, (None,))
        gone = self.arena.take_gone()
        self.arena.finish(used)
        self.introduce(new, (kind, epoch, number, report, skeleton, letter, places), gone)

    def introduce(self, slots: list[Any], message: Any, gone: Any = ()) -> None:
        """Send `message` together with new slots."""
        named = [(slot.number, slot.size) for slot in slots]
        self.control.send((*message, named, gone), [slot.descriptor for slot in slots])
        for slot in slots:
            slot.sent()


def open_files() -> int:
    """How many files this process has open, the memory of batches left out."""
    number = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            number += not os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:")
    return number


def seed_by_place(base_seed: int, place: int) -> None:
    """Seeds the default generators for one batch: what it draws depends neither on the worker nor on other batches."""
    words = generate_numpy_seed(base_seed, place)
    seed = words[0] | words[1] << 32
    random.seed(seed)
    torch.manual_seed(seed)
    if HAS_NUMPY:
        import numpy as np

        np.random.seed(words)


def in_slots(arena: Arena, float_dtype: torch.dtype | None) -> Any:
    """Collation of tensors as in torch, with a slot as the place where large batches are put together.

    Samples of another floating point type than `float_dtype` are converted on their way into the slot.
    """
    plain = stock_collate.collate_tensor_fn

    def collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
        first = batch[0]
        kind = type(first)
        if not in_memory(first):
            return plain(batch, collate_fn_map=collate_fn_map)
        dtype, shape = first.dtype, first.shape
        target = float_dtype if float_dtype is not None and dtype.is_floating_point else dtype
        size = len(batch) * first.numel() * target.itemsize
        for tensor in batch:
            if tensor.requires_grad or type(tensor) is not kind:
                return plain(batch, collate_fn_map=collate_fn_map)
            if tensor.dtype != dtype or tensor.shape != shape:
                size = 0
        if kind is not torch.Tensor:
            # Its class decides what stacking gives, given the place that torch would give it.
            if size < LARGE:
                return torch.stack(batch, 0)
            out = where_images_lie(batch, arena) if arena.collates_in_place and target == dtype else None
            return in_place_of_shared(first, batch, arena) if out is None else out
        if size < LARGE:
            return torch.stack(batch, 0)
        if arena.collates_in_place and target == dtype:
            out = where_they_lie(batch, arena)
            if out is not None:
                return out
        _, memory = arena.take(size)
        out = torch.frombuffer(memory, dtype=target, count=len(batch) * first.numel()).view(
            len(batch), *shape
        )
        if target == dtype:
            return torch.stack(batch, 0, out=out)
        for place, tensor in zip(out, batch):
            place.copy_(tensor)
        return out

    return collate_tensors


def where_they_lie(batch: Any, arena: Arena) -> torch.Tensor | None:
    """A batch of tensors that lie one after the other in a slot already; None if they do not."""
    first = batch[0]
    start, step = first.data_ptr(), first.nbytes
    for number, tensor in enumerate(batch):
        if tensor.data_ptr() != start + number * step or not tensor.is_contiguous():
            return None
    memory = arena.lying(start, len(batch) * step)
    if memory is None:
        return None
    return torch.frombuffer(memory, dtype=first.dtype).view(len(batch), *first.shape)


def where_images_lie(batch: Any, arena: Arena) -> torch.Tensor | None:
    """As `where_they_lie`, of torchvision's images, of which torch makes a plain tensor."""
    kinds = sys.modules.get("torchvision.tv_tensors")
    # Where torchvision was told otherwise, what it makes of an image is one again.
    if kinds is None or type(batch[0]) is not kinds.Image or type(batch[0][:0]) is not torch.Tensor:
        return None
    with WithoutSubclasses():
        return where_they_lie([image.as_subclass(torch.Tensor) for image in batch], arena)


def in_place_of_shared(first: torch.Tensor, batch: Any, arena: Arena) -> Any:
    """What torch's collate function gives, with a slot where it takes named shared memory."""
    _, memory = arena.take(len(batch) * first.nbytes)
    storage = typed_storage(
        torch.frombuffer(memory[: len(batch) * first.nbytes], dtype=torch.uint8), first.dtype
    )
    out = first.new(storage).resize_(len(batch), *first.size())
    return torch.stack(batch, 0, out=out)


def forget_arena() -> None:
    """In a process that a data set forks: batches go where torch puts them, as the slots are still its parent's."""
    stock_collate.default_collate_fn_map[torch.Tensor] = stock_collate.collate_tensor_fn
    _offer.current = None


def die_with_parent() -> None:
    """Have the kernel end this process with the thread that forked it: a net below the watching thread."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def run(setup: Setup, worker_id: int, control: Channel, watch: Channel, parent: int) -> None:
    """A worker's life; returns when it is to end."""
    consumer_watch = ConsumerWatch(worker_id, watch, parent)
    consumer_watch.begin()
    # What exists now never becomes garbage here: the collector would only copy the pages it lies on.
    gc.freeze()
    try:
        set_worker_signals()
        name_worker_process()
        torch.set_num_threads(1)
        if setup.accelerate:
            accelerate_worker()
        worker = Worker(setup, worker_id, control, consumer_watch)
        stock = stock_collate.default_collate_fn_map
        if stock.get(torch.Tensor) is stock_collate.collate_tensor_fn:
            stock[torch.Tensor] = in_slots(worker.arena, setup.float_dtype)
            _offer.current = worker.arena
            os.register_at_fork(after_in_child=forget_arena)
            if setup.accelerate:
                worker.put_samples_in_place()
        worker.seed()
        worker.open()
        worker.loop()
    except (Closed, Stopped, KeyboardInterrupt):
        pass
    finally:
        set_worker_info(None)


def run_forked(
    setup: Setup,
    worker_id: int,
    channels: tuple[Channel, Channel],
    others: list[Channel],
    parent: int,
    from_main: bool,
) -> None:
    """The body of a worker forked from the consumer, whose process number is `parent`."""
    if from_main:
        die_with_parent()
    for channel in others:
        channel.sock.close()
    # The descriptor names the consumer even if its number is given to another process later.
    watched = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(1)
    run(setup, worker_id, *channels, watched)
