"""The process that holds a pool's data set and is the parent of its workers, and the consumer's pool of such workers.

It reports births and deaths to the consumer, and goes when the consumer hangs up or dies, its workers before it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
import warnings
from multiprocessing import context, get_context, process, spawn
from pickle import PicklingError
from typing import Any

from .._private import ExceptionWrapper
from .channel import Channel, Closed, pair
from .pool import TERMINATE_GRACE, Pool, SigintDeferred, WorkerProcess
from .setup import STOP_GRACE, Setup
from .shared_payload import SharedPayload, load
from .spawn_template import Template, let_go, preparation_for, template_for
from .worker import die_with_parent, run

__all__ = ["RemoteProcess", "SpawnedPool", "die_with_parent", "fork_starter", "prepare"]


class ForkedFromTemplate(context.ForkProcess):
    """A process that calls itself what the consumer asked for."""

    method = "spawn"

    @property
    def _start_method(self) -> str:  # type: ignore[override]
        return self.method


def prepare(preparation: dict[str, Any]) -> None:
    """Make this process one that the consumer might have spawned."""
    current: Any = process.current_process()
    current._inheriting = True
    try:
        spawn.prepare(preparation)
    finally:
        del current._inheriting


def fork_starter(message: Any, descriptors: list[int], consumer: int, ours: Channel) -> Any:
    """Runs in the template: fork a spawned."""
    child = get_context("fork").Process(target=starter_main, args=(message, descriptors, consumer, ours))
    child.start()
    return child


def inventory() -> tuple[int, int]:
    """Open files and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def starter_main(message: Any, descriptors: list[int], consumer: int, templates: Channel) -> None:
    """The starter process."""
    die_with_parent()
    templates.sock.close()
    preparation, environment, method, number, places, private = message
    link, stream, data, *rest = descriptors
    channel = Channel(socket.socket(fileno=link))
    ends = [Channel(socket.socket(fileno=end)) for end in rest[: 2 * number]]
    travellers = rest[2 * number :]
    if hung_up(channel):
        os._exit(0)
    os.environ.clear()
    os.environ.update(environment)
    ForkedFromTemplate.method = method
    try:
        prepare(preparation)
        setup = None
        if not private:
            before = inventory()
            setup = load(stream, data, places, travellers)
            if inventory() != before:
                with contextlib.suppress(Closed):
                    channel.send(("private",))
                os._exit(0)
    except BaseException:
        with contextlib.suppress(Closed):
            channel.send(("broken", *told(ExceptionWrapper())))
        os._exit(1)
    children: list[Any] = []
    for i in range(number):
        args = (setup, i, ends, channel, consumer, (stream, data, places, travellers))
        child = ForkedFromTemplate(target=live, args=args, daemon=True, name=f"Process-{i + 1}")
        child.start()
        children.append(child)
        pidfd = os.pidfd_open(child.pid or 0)
        with contextlib.suppress(Closed):
            channel.send(("started", i, child.pid), [pidfd])
        os.close(pidfd)
    for end in ends:
        end.close()
    for each in (stream, data, *travellers):
        os.close(each)
    supervise(channel, children, consumer)
    os._exit(0)


def hung_up(channel: Channel) -> bool:
    """Whether nobody wants this starter any more."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def told(error: ExceptionWrapper) -> tuple[str, str]:
    """An exception as text."""
    return error.exc_type.__name__, error.exc_msg


def live(
    setup: Setup | None, number: int, ends: list[Channel], channel: Channel, consumer: int, payload: Any
) -> None:
    """A worker."""
    die_with_parent()
    channel.sock.close()
    own = ends[2 * number : 2 * number + 2]
    for end in ends:
        if end not in own:
            end.sock.close()
    if setup is None:
        setup = load(*payload)
    stream, data, _, travellers = payload
    for each in (stream, data, *travellers):
        os.close(each)
    run(setup, number, own[0], own[1], consumer)


def supervise(channel: Channel, children: list[Any], consumer: int) -> None:
    """Report deaths until the consumer hangs up, then see all workers off."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    poll.register(consumer, select.POLLIN)
    alive = dict(enumerate(children))
    for child in children:
        poll.register(child.sentinel, select.POLLIN)
    deadline: float | None = None
    stronger = ["terminate", "kill"]
    while alive or deadline is None:
        pause = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        ready = dict(poll.poll(pause))
        if consumer in ready:
            return  # The workers see it, too.
        for i, child in list(alive.items()):
            if child.sentinel in ready:
                poll.unregister(child.sentinel)
                child.join()
                del alive[i]
                with contextlib.suppress(Closed):
                    channel.send(("died", i, child.exitcode))
        if channel.fileno() in ready and deadline is None:
            poll.unregister(channel.fileno())
            deadline = time.monotonic() + STOP_GRACE
        if deadline is not None and time.monotonic() >= deadline:
            if not stronger:
                return
            how = stronger.pop(0)
            for child in alive.values():
                getattr(child, how)()
            deadline = time.monotonic() + TERMINATE_GRACE


def pack(setup: Setup) -> SharedPayload:
    """The payload; what cannot be pickled is explained as torch does it."""
    try:
        return SharedPayload(setup)
    except (TypeError, AttributeError, PicklingError):
        warnings.warn(
            "Got pickle error when attempting to start a worker Process. "
            "This might be because the worker Process arguments are not picklable. "
            "Python 3.14+ changed the multiprocessing start method in non-Mac POSIX platforms "
            "to 'forkserver', which requires the worker Process arguments to be picklable. "
            "You can also try multiprocessing.set_start_method('fork').",
            stacklevel=7,
        )
        raise


class RemoteProcess:
    """A worker that is not this process's child, with the methods of `multiprocessing.Process`."""

    def __init__(self, pool: SpawnedPool, number: int) -> None:
        self.pool, self.number = pool, number
        self.code: int | None = None
        self.number_of_process: int | None = None
        self.pidfd = -1

    @property
    def pid(self) -> int | None:
        """Number of the process; waits until there is one."""
        deadline = time.monotonic() + 60
        while self.number_of_process is None and not self.pool.closed and time.monotonic() < deadline:
            self.pool.listen(1.0)
        return self.number_of_process

    @property
    def exitcode(self) -> int | None:
        """As in `multiprocessing`; None while it runs."""
        if self.code is None and not self.pool.closed and not self.is_alive():
            self.pool.listen(1.0)
        return self.code

    def is_alive(self) -> bool:
        """Whether it runs."""
        if self.pool.closed:
            return False
        if self.pid is None or self.code is not None:
            return False
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        if self.is_alive():
            poll = select.poll()
            poll.register(self.pidfd, select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send a signal to this process, and to no other that has its number later."""
        if self.is_alive():
            signal.pidfd_send_signal(self.pidfd, number)


class SpawnedPool(Pool):
    """Workers that descend from the template."""

    def __init__(self, setup: Setup, method: str, loader: Any) -> None:
        with SigintDeferred():
            self.payload: SharedPayload | None = None
            self.link: Channel | None = None
            self.orphaned = False
            super().__init__(setup.num_workers)
            try:
                for member in self.members:
                    member.process = RemoteProcess(self, member.number)
                self.template: Template = template_for(self, loader)
                preparation = preparation_for("wellfed-worker")
                # The template imports torch meanwhile.
                self.payload = pack(setup)
                self.order = (preparation, dict(os.environ), method, setup.num_workers, self.payload.places)
                self.start(private=False)
            except BaseException:
                self.close()
                raise

    def start(self, private: bool) -> None:
        """Have the template fork a starter, which forks the workers."""
        if self.payload is None:
            raise RuntimeError("the workers have been started already")
        if self.link is not None:
            self.unregister(self.link.fileno())
            self.link.close()
        self.link, theirs = pair()
        self.register(self.link.fileno(), "starter", None)
        ends = [end.fileno() for both in self.worker_ends for end in both]
        descriptors = [
            theirs.fileno(),
            self.payload.stream,
            self.payload.data,
            *ends,
            *self.payload.descriptors,
        ]
        try:
            self.template.start((*self.order, private), descriptors)
        except Closed:
            raise RuntimeError(
                "the process that workers are spawned from has ended before it could start any"
                "\nhint: its own error is printed above; the main module must be importable"
            ) from None
        finally:
            theirs.close()

    def listen(self, seconds: float) -> None:
        """Take in what the starter has to say, waiting for it for some time."""
        if self.link is None or self.orphaned:
            return
        poll = select.poll()
        poll.register(self.link.fileno(), select.POLLIN)
        while poll.poll(seconds * 1000):
            if not self.starter_says():
                return
            seconds = 0

    def starter_says(self) -> bool:
        """One message of the starter; whether more may come."""
        if self.link is None:
            return False
        try:
            (what, *facts), descriptors = self.link.recv()
        except Closed:
            self.starter_gone()
            return False
        if what == "private":
            self.start(private=True)
        elif what == "started":
            number, pid = facts
            member = self.members[number]
            member.process.number_of_process, member.process.pidfd = pid, descriptors[0]
            self.started(member, member.process, descriptors[0])
            if all(m.pidfd >= 0 for m in self.members):
                self.delivered()
        elif what == "died":
            number, code = facts
            self.members[number].process.code = code
        elif what == "broken":
            kind, text = facts
            raise RuntimeError(
                f"Caught {kind} in DataLoader worker process, unpickling what it needs.\nOriginal {text}"
            )
        return True

    def delivered(self) -> None:
        """The workers have what they need: our copies can go."""
        self.close_worker_ends()
        if self.payload is not None:
            self.payload.close()
            self.payload = None

    def starter_gone(self) -> None:
        """The starter is dead: so are the workers, by now or soon."""
        self.orphaned = True
        if self.link is not None:
            self.unregister(self.link.fileno())
        if any(m.pidfd < 0 for m in self.members):
            code = self.template.process.poll()
            how = "" if code is None else f": {code}" if code >= 0 else f" by signal {-code}"
            raise RuntimeError(
                f"DataLoader worker (pid(s) unknown) exited unexpectedly{how}: the process that was to start the "
                "workers has ended, while importing the main module or unpickling the data set"
                "\nhint: its own error, if any, is printed above; if the kernel killed it, memory ran out"
            )

    def exit_code(self, member: WorkerProcess) -> int | None:
        """The starter knows, and tells at about the same time as the descriptor does."""
        deadline = time.monotonic() + 2.0
        while member.process.code is None and not self.orphaned and time.monotonic() < deadline:
            self.listen(0.2)
        return member.process.code  # type: ignore[no-any-return]

    def end(self) -> None:
        """The starter ends the workers, and ends; if it does not, it is killed, and the kernel kills them."""
        if self.link is not None:
            with contextlib.suppress(OSError):
                self.link.sock.shutdown(socket.SHUT_WR)
            poll = select.poll()
            poll.register(self.link.fileno(), select.POLLIN)
            # Not yet forked, it will see that nobody wants it.
            any_started = any(m.pidfd >= 0 for m in self.members)
            deadline = time.monotonic() + (STOP_GRACE + 2 * TERMINATE_GRACE + 1 if any_started else 0.0)
            while time.monotonic() < deadline and poll.poll((deadline - time.monotonic()) * 1000):
                try:
                    self.last_words()
                except (Closed, OSError):
                    break
            self.link.hang_up()
            self.link.close()
            self.link = None
        for member in self.members:
            if member.process is not None:
                member.process.pidfd = -1
        self.delivered()
        let_go(id(self))

    def last_words(self) -> None:
        """Messages while the workers end."""
        if self.link is None:
            raise Closed
        (what, *facts), descriptors = self.link.recv()
        if what == "died":
            self.members[facts[0]].process.code = facts[1]
        elif what == "started":
            member = self.members[facts[0]]
            member.process.number_of_process = facts[1]
        for each in descriptors:
            os.close(each)
        if what in ("private", "broken"):
            raise Closed
