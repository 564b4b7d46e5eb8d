"""Patches the life of worker processes: the records `role` and `send`, and whose worker this is."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import hooks, torch_loader
from .clocks import share_among
from .files import FILES
from .recorder import RECORDER, Record, now
from .stacks import SAMPLER

__all__ = ["WORKER", "install"]

thread_time = time.thread_time_ns

# How long to wait for the parent to say whose worker this is.
PATIENCE = 3_000_000_000


def install() -> None:
    """Patches worker loops once they are imported."""
    hooks.when_imported("torch.utils.data._utils.worker", _stock)
    hooks.when_imported("torchdata.stateful_dataloader.worker", _stock)
    hooks.when_imported("wellfed.torch._workers.worker", _ours)


def _stock(module: ModuleType) -> None:
    module._worker_loop = loop_of(module._worker_loop)  # type: ignore[attr-defined]


def _ours(module: ModuleType) -> None:
    module.run = our_loop_of(module.run)  # type: ignore[attr-defined]
    module.Packer.pack = pack_of(module.Packer.pack)


class Worker:
    """What this process is: a worker's number, -1 inline; and whose."""

    def __init__(self) -> None:
        self.number = -1
        # None where the parent leaves the number in a file.
        self.loader: int | None = None
        self.since = 0
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.number = -1
        self.loader = torch_loader.starting[0]

    def begin(self, number: int, count: int) -> None:
        """It turns out to be a worker."""
        self.number = number
        self.since = now()
        RECORDER.emit("role", t=self.since, worker=number, num_workers=count, tid=threading.get_native_id())
        share_among(count)
        FILES.install()
        RECORDER.drain_from(SENT.drain)
        SAMPLER.watch(threading.get_ident())
        SAMPLER.start()

    def known(self) -> bool:
        """Whether it is known which loader this process works for; looks for it."""
        if self.loader is not None:
            return True
        path = os.path.join(str(RECORDER.directory), f"{os.getpid()}.loader")
        try:
            with open(path, encoding="ascii") as file:
                self.loader = int(file.read())
            os.unlink(path)
        except (OSError, ValueError):
            if now() - self.since > PATIENCE:
                self.loader = 0
        return self.loader is not None

    def end(self) -> None:
        """The worker's loop is over."""
        SAMPLER.stop()
        if not self.known():
            self.since = 0
        RECORDER.flush()


WORKER = Worker()


def loop_of(original: Any) -> Any:
    """The worker loop of torch, announced."""
    names = list(inspect.signature(original).parameters)
    number, count = names.index("worker_id"), names.index("num_workers")

    @functools.wraps(original)
    def _worker_loop(*args: Any, **kwargs: Any) -> Any:
        try:
            given = dict(zip(names, args)) | kwargs
            WORKER.begin(int(given[names[number]]), int(given[names[count]]))
            time_dumps()
        except Exception:
            RECORDER.failed("beginning a worker")
        try:
            return original(*args, **kwargs)
        finally:
            WORKER.end()

    return _worker_loop


def our_loop_of(original: Any) -> Any:
    """The life of a worker of wellfed's, announced."""

    @functools.wraps(original)
    def run(setup: Any, worker_id: int, *args: Any, **kwargs: Any) -> Any:
        try:
            WORKER.begin(worker_id, setup.num_workers)
        except Exception:
            RECORDER.failed("beginning a worker")
        try:
            return original(setup, worker_id, *args, **kwargs)
        finally:
            WORKER.end()

    return run


# Sending.


class Sent:
    """Batches that were sent."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []

    def drain(self) -> Iterator[Record]:
        """Those since the last time."""
        count = len(self.rows)
        if count and WORKER.known():
            rows, self.rows[:count] = self.rows[:count], []
            t0, t1, cpu, size = map(list, zip(*rows))
            yield {
                "k": "send",
                "loader": WORKER.loader,
                "worker": WORKER.number,
                "t0": t0,
                "t1": t1,
                "cpu": cpu,
                "bytes": size,
            }


SENT = Sent()


def time_dumps() -> None:
    """Times the serialization of what this worker sends, in the thread that does it."""
    from multiprocessing.reduction import ForkingPickler

    original = ForkingPickler.dumps

    @functools.wraps(original)
    def dumps(*args: Any, **kwargs: Any) -> Any:
        t0, c0 = now(), thread_time()
        data = original(*args, **kwargs)
        SENT.rows.append((t0, now(), thread_time() - c0, len(data)))
        return data

    ForkingPickler.dumps = staticmethod(dumps)  # type: ignore[method-assign]


def pack_of(original: Any) -> Any:
    """Packing of a batch into shared memory, timed."""

    @functools.wraps(original)
    def pack(self: Any, *args: Any, **kwargs: Any) -> Any:
        t0, c0 = now(), thread_time()
        packed = original(self, *args, **kwargs)
        SENT.rows.append((t0, now(), thread_time() - c0, len(packed[0])))
        return packed

    return pack
