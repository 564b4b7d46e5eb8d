"""`Pool`: the worker processes of one iterator as the consumer sees them: started, talked to, watched, ended.

However the consumer ends, the workers end: each watches the consumer's process and both of its connections.
A dead worker is noticed by its process descriptor, whatever it died of and whoever holds copies of its socket.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
import warnings
import weakref
from multiprocessing import util
from types import FrameType, TracebackType
from typing import Any

from . import channel
from .arena import Bytes, Mappings
from .channel import Channel, Closed
from .setup import STOP_GRACE, Setup
from .worker import run_forked

__all__ = ["ForkedPool", "Pool", "SigintDeferred", "WorkerProcess"]

TERMINATE_GRACE = 2.0
"""Seconds that a worker has after SIGTERM, before SIGKILL."""


class SigintDeferred:
    """Ctrl-C waits until the block is through, so that no process is started or ended by halves.

    Args:
        later: Have it take effect a little after the block, for a destructor, of which Python ignores exceptions.
    """

    def __init__(self, later: bool = False) -> None:
        self.later = later

    def __enter__(self) -> None:
        self.noted: tuple[int, FrameType | None] | None = None
        self.before: Any = None
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is not None
        ):
            self.before = signal.signal(signal.SIGINT, self.note)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Stands in for the handler."""
        self.noted = number, frame

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
            if self.noted is None or not callable(self.before):
                return
            if self.later:
                again = threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT))
                again.daemon = True
                again.start()
            else:
                self.before(*self.noted)


class WorkerProcess:
    """One worker: its process, its connections, its slots."""

    def __init__(self, number: int, control: Channel, watch: Channel) -> None:
        self.number, self.control, self.watch = number, control, watch
        self.process: Any = None
        self.pidfd = -1
        self.mappings = Mappings()
        self.finished = False
        self.disconnected = False

    @property
    def pid(self) -> int | None:
        """Number of the process, once it has one."""
        return None if self.process is None else int(self.process.pid)

    def skip_to(self, epoch: int) -> None:
        """Tell the worker early that tasks of earlier epochs are not wanted any more."""
        with contextlib.suppress(Closed):  # It is dead, as `Pool.wait` will find out.
            self.watch.post(epoch)

    def gone(self, seconds: float = 0.0) -> bool:
        """Whether the process has ended, after waiting for it for some time."""
        if self.pidfd < 0:
            return self.process is None
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Give the descriptors back, and the memory that no array looks at."""
        self.mappings.forget(list(self.mappings.mappings))
        self.control.close()
        self.watch.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class Pool:
    """Workers and what is common to all ways of starting them."""

    def __init__(self, number: int) -> None:
        self.owner = os.getpid()
        self.closed = False
        self.members: list[WorkerProcess] = []
        self.poll = select.poll()
        self.watched: dict[int, tuple[str, WorkerProcess | None]] = {}
        self.worker_ends: list[tuple[Channel, Channel]] = []
        for i in range(number):
            control, worker_control = channel.pair()
            watch, worker_watch = channel.pair()
            self.members.append(WorkerProcess(i, control, watch))
            self.worker_ends.append((worker_control, worker_watch))
            self.register(control.fileno(), "control", self.members[-1])
        alive.add(self)
        at_exit()

    def register(
        self, descriptor: int, what: str, member: WorkerProcess | None, events: int = select.POLLIN
    ) -> None:
        """Have `wait` look at a descriptor."""
        self.poll.register(descriptor, events)
        self.watched[descriptor] = what, member

    def unregister(self, descriptor: int) -> None:
        """No longer look at a descriptor."""
        if self.watched.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)

    def started(self, member: WorkerProcess, process: Any, pidfd: int) -> None:
        """A worker's process exists."""
        member.process, member.pidfd = process, pidfd
        self.register(pidfd, "process", member)

    def post(self, number: int, *message: Any) -> None:
        """Send to a worker without waiting; that it is dead is for `wait` to say."""
        member = self.members[number]
        try:
            member.control.post(message)
        except Closed:
            return
        if member.control.waiting:
            self.poll.modify(member.control.fileno(), select.POLLIN | select.POLLOUT)

    def dismiss(self, number: int) -> None:
        """Tell a worker to end; it is not missed."""
        self.members[number].finished = True
        self.post(number, "end", 0, [])

    def wait(self, seconds: float | None) -> list[tuple[int, Any]]:
        """Messages that came in within `seconds` (None: no limit) with the number of their worker.

        Raises:
            RuntimeError: A worker has died, and nothing it sent is left.
        """
        arrived: list[tuple[int, Any]] = []
        dead: list[WorkerProcess] = []
        for descriptor, events in self.poll.poll(None if seconds is None else max(0.0, seconds) * 1000):
            what, member = self.watched.get(descriptor, ("", None))
            if what == "control" and member is not None:
                if events & select.POLLOUT:
                    self.flush(member)
                if events & ~select.POLLOUT:
                    self.read(member, arrived, 0)
            elif what == "process" and member is not None:
                dead.append(member)
            elif what == "starter":
                self.starter_says()
        for member in dead:
            while not member.disconnected:
                if not self.read(member, arrived, 0x40):  # MSG_DONTWAIT
                    break
            if member.finished:
                self.unregister(member.pidfd)
        lost = [m for m in self.members if not m.finished and (m.disconnected or m in dead)]
        if lost and not arrived:
            for member in lost:
                member.gone(1.0)
            self.raise_lost([m for m in self.members if not m.finished and (m.disconnected or m.gone())])
        return arrived

    def flush(self, member: WorkerProcess) -> None:
        """There is room for what waits."""
        try:
            if member.control.flush():
                self.poll.modify(member.control.fileno(), select.POLLIN)
        except Closed:
            self.disconnect(member)

    def read(self, member: WorkerProcess, arrived: list[tuple[int, Any]], flags: int) -> bool:
        """Take one message of a worker; whether there was one."""
        try:
            message, descriptors = member.control.recv(flags)
        except BlockingIOError:
            return False
        except Closed:
            self.disconnect(member)
            return False
        *head, new, gone = message
        for (number, size), descriptor in zip(new, descriptors):
            member.mappings.add(number, size, descriptor)
        if gone:
            member.mappings.forget(gone)
        if head[0] is not None:
            arrived.append((member.number, head))
        return True

    def disconnect(self, member: WorkerProcess) -> None:
        """A worker's connection is closed."""
        self.unregister(member.control.fileno())
        member.disconnected = True

    def starter_says(self) -> bool:
        """A message of the process that starts the workers, where there is one."""
        raise NotImplementedError

    def array(self, number: int, slot: int) -> Bytes:
        """The memory of a worker's slot."""
        return self.members[number].mappings.array(slot)

    def raise_lost(self, lost: list[WorkerProcess]) -> None:
        """Say which workers died, and how."""
        pids = ", ".join(str(m.pid) for m in lost)
        how = [describe(m.pid, self.exit_code(m)) for m in lost]
        facts = "; ".join(f"worker {m.number} {fact}" for m, (_, fact, _) in zip(lost, how))
        hints = dict.fromkeys(hint for _, _, hint in how if hint)
        text = f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {facts}"
        raise RuntimeError("\n".join([text, *hints])) from RuntimeError(how[0][0])

    def exit_code(self, member: WorkerProcess) -> int | None:
        """The exit code of an ended worker, negative for a signal; None: not known."""
        return None if member.process is None else member.process.exitcode

    def stacks(self, number: int, seconds: float = 2.0) -> str:
        """What a worker is doing, as its own thread tells, or as the kernel does if that thread cannot run."""
        member = self.members[number]
        poll = select.poll()
        poll.register(member.watch.fileno(), select.POLLIN)
        try:
            member.watch.post(None)
            if poll.poll(seconds * 1000):
                return str(member.watch.recv(0x40)[0])
        except (Closed, OSError):
            pass
        state = "not started" if member.pid is None else process_state(member.pid)
        return f"it does not answer: {state}; native code may hold the interpreter lock\n"

    def close(self, dying: bool = False) -> None:
        """End all workers; returns when they are gone. `dying`: called by a destructor."""
        if self.closed:
            return
        self.closed = True
        if self.owner != os.getpid():
            return
        with SigintDeferred(later=dying):
            for member in self.members:
                member.watch.hang_up()
                member.control.hang_up()
            self.end()
            for member in self.members:
                member.close()
            self.close_worker_ends()
            self.watched.clear()
        alive.discard(self)

    def close_worker_ends(self) -> None:
        """Close our copies of the workers' ends."""
        for pair in self.worker_ends:
            for end in pair:
                end.close()
        self.worker_ends.clear()

    def end(self) -> None:
        """See to it that all processes end."""
        raise NotImplementedError

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.close(dying=True)


class ForkedPool(Pool):
    """Workers forked from this process."""

    def __init__(self, setup: Setup, context: Any) -> None:
        with SigintDeferred():
            super().__init__(setup.num_workers)
            warn_of_threads()
            parent = os.getpid()
            from_main = threading.current_thread() is threading.main_thread()
            try:
                for member, ends in zip(self.members, self.worker_ends):
                    others = [end for m in self.members for end in (m.control, m.watch)]
                    others += [end for pair in self.worker_ends if pair is not ends for end in pair]
                    process = context.Process(
                        target=run_forked,
                        args=(setup, member.number, ends, others, parent, from_main),
                        daemon=True,
                    )
                    process.start()
                    self.started(member, process, os.pidfd_open(process.pid))
            except BaseException:
                self.close()
                raise
            self.close_worker_ends()

    def end(self) -> None:
        """Wait, then terminate, then kill."""
        left = [m for m in self.members if m.process is not None]
        deadline = time.monotonic() + STOP_GRACE
        for grace, stronger in (
            (STOP_GRACE, "terminate"),
            (TERMINATE_GRACE, "kill"),
            (TERMINATE_GRACE, None),
        ):
            deadline = time.monotonic() + grace
            left = [m for m in left if not m.gone(max(0.0, deadline - time.monotonic()))]
            for member in left:
                if stronger is not None:
                    getattr(member.process, stronger)()
        for member in self.members:
            if member.process is not None:
                member.process.join(TERMINATE_GRACE)


alive: weakref.WeakSet[Pool] = weakref.WeakSet()
exits: set[int] = set()
warned: set[str] = set()


def at_exit() -> None:
    """Have all pools closed before this process ends, be it the main one or a child of `multiprocessing`."""
    if os.getpid() not in exits:
        exits.clear()
        exits.add(os.getpid())
        atexit.register(close_all)
        util.Finalize(None, close_all, exitpriority=100)


def close_all() -> None:
    """Close all pools of this process."""
    for pool in list(alive):
        pool.close()


def describe(pid: int | None, code: int | None) -> tuple[str, str, str]:
    """How a process ended: in torch's words, in ours, and a hint."""
    if code is not None and code < 0:
        number = -code
        text = signal.strsignal(number) or f"Unknown signal {number}"
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = ""
        if number == signal.SIGKILL:
            hint = (
                "hint: if nobody killed it, the kernel did for lack of memory (out of memory, see its log): "
                "use fewer workers or smaller batches"
            )
        elif number == signal.SIGBUS:
            hint = "hint: a file that it had mapped became shorter, or memory ran out (batches do not use /dev/shm)"
        elif number == signal.SIGSEGV:
            hint = "hint: native code crashed; num_workers=0 shows where"
        return (
            f"DataLoader worker (pid {pid}) is killed by signal: {text}. ",
            f"was killed by {name} ({text})",
            hint,
        )
    if code is None:
        return f"DataLoader worker (pid {pid}) exited unexpectedly", "ended, its exit code is not known", ""
    torch_text = (
        f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details are lost due to "
        "multiprocessing. Rerunning with num_workers=0 may give better error trace."
    )
    return torch_text, f"exited with code {code}", "hint: num_workers=0 may give a better error trace"


def process_state(pid: int) -> str:
    """The kernel's word on a process."""
    parts = []
    for name in ("wchan", "status"):
        try:
            with open(f"/proc/{pid}/{name}") as f:
                text = f.read()
        except OSError:
            continue
        if name == "status":
            text = next((line for line in text.splitlines() if line.startswith("State:")), "")
        parts.append(text if name == "status" else f"in {text}")
    return ", ".join(p for p in parts if p) or "no such process"


IDLE = {
    ("thread.py", "_worker"),
    ("threading.py", "wait"),
    ("threading.py", "join"),
    ("queue.py", "get"),
    ("selectors.py", "select"),
    ("threads.py", "run"),
}


def busy_threads() -> list[str]:
    """Threads of this process that may hold a lock right now: not those that wait, nor torch's own pools."""
    names = []
    # Only the code: a frame that holds a frame of its own thread would keep the whole loader alive.
    running = {ident: frame.f_code for ident, frame in sys._current_frames().items()}
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.ident not in running:
            continue
        code = running[thread.ident]
        if (os.path.basename(code.co_filename), code.co_name) not in IDLE:
            names.append(thread.name)
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/comm") as f:
                name = f.read().strip()
            if name.startswith("wellfed"):
                names.append(name)
    except OSError:
        pass  # A thread has just ended.
    return names


def warn_of_threads() -> None:
    """Say once that a fork now copies locks in whatever state other threads have them."""
    names = [] if "threads" in warned else busy_threads()
    if names:
        warned.add("threads")
        shown = ", ".join(dict.fromkeys(names[:5]))
        warnings.warn(
            f"worker processes are forked while {len(names)} other threads run ({shown}): a lock that one of them "
            "holds now stays locked in the workers\nhint: multiprocessing_context='forkserver' starts them clean",
            RuntimeWarning,
            stacklevel=6,
        )
