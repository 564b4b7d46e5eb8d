"""A clean process, torch imported, that spawned workers descend from; one for all loaders of a process.

    consumer -> template -> starter -> workers

The template holds nothing of any loader. For each pool it forks a starter, which unpickles the data set once and forks
the workers, who share it until they write. If unpickling opened files or started threads, which must not be shared,
the starter says so and is forked again, for workers that each unpickle for themselves.
The template ends when the last loader that used it is gone, or with the consumer.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from multiprocessing import spawn, util
from typing import Any

from .channel import MOST_DESCRIPTORS, Channel, Closed, pair

__all__ = ["Template", "let_go", "main", "template_for"]

CODE = (
    "import sys; sys.path[:] = {path!r}; import torch; "
    "from wellfed.torch._workers.spawn_template import main; main({fd})"
)


class Template:
    """The consumer's end."""

    def __init__(self) -> None:
        preparation = preparation_for("wellfed-template")
        self.owner = os.getpid()
        self.channel, theirs = pair()
        code = CODE.format(path=preparation["sys_path"], fd=theirs.fileno())
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        # Ctrl-C at the terminal is for the consumer; the template has its own handler only once it runs.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = subprocess.Popen(
                [spawn.get_executable(), *flags, "-c", code],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        atexit.register(end_current)
        util.Finalize(None, end_current, exitpriority=50)
        own = os.pidfd_open(os.getpid())
        from_main = threading.current_thread() is threading.main_thread()
        self.channel.post(("hello", preparation, from_main), [own])
        # The message holds a copy of the descriptor from here on: it is small and the socket is empty.
        os.close(own)

    def start(self, message: Any, descriptors: list[int]) -> None:
        """Have a starter forked."""
        while len(descriptors) > MOST_DESCRIPTORS:
            self.channel.send(("more", None), descriptors[:MOST_DESCRIPTORS])
            descriptors = descriptors[MOST_DESCRIPTORS:]
        self.channel.send(("starter", message), descriptors)

    def alive(self) -> bool:
        """Whether it can be used."""
        return self.owner == os.getpid() and self.process.poll() is None

    def end(self) -> None:
        """End it; it holds nothing that would have to be saved."""
        if self.owner != os.getpid():
            return
        self.channel.hang_up()
        self.channel.close()
        self.process.kill()
        self.process.wait()


def preparation_for(name: str) -> dict[str, Any]:
    """What a spawned process is told about this one, as plain data."""
    preparation = spawn.get_preparation_data(name)
    preparation["authkey"] = bytes(preparation["authkey"])
    return preparation


current: Template | None = None
users: set[int] = set()


def template_for(pool: Any, loader: Any) -> Template:
    """The template, started if there is none; it lives as long as `loader`, and until `pool` has let it go."""
    global current
    if current is None or not current.alive():
        if current is not None:
            current.end()
        current = Template()
        users.clear()
    users.add(id(pool))
    if id(loader) not in users:
        users.add(id(loader))
        weakref.finalize(loader, let_go, id(loader))
    return current


def let_go(user: int) -> None:
    """A pool or a loader does not need its template any more: the last one takes it along."""
    global current
    users.discard(user)
    if current is not None and not users:
        template, current = current, None
        template.end()


def end_current() -> None:
    """This process ends."""
    users.clear()
    let_go(0)


def main(descriptor: int) -> None:
    """The template process."""
    from . import spawned

    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    channel = Channel(socket.socket(fileno=descriptor))
    os.set_inheritable(descriptor, False)
    try:
        (_, preparation, from_main), (consumer,) = channel.recv()
        if from_main:
            spawned.die_with_parent()
        spawned.prepare(preparation)
        poll = select.poll()
        poll.register(channel.fileno(), select.POLLIN)
        poll.register(consumer, select.POLLIN)
        children: list[Any] = []
        descriptors: list[int] = []
        while True:
            ready = dict(poll.poll(1000 if children else None))
            children = [child for child in children if child.is_alive()]
            if consumer in ready:
                break
            if channel.fileno() in ready:
                (what, message), some = channel.recv()
                descriptors.extend(some)
                if what == "starter":
                    children.append(spawned.fork_starter(message, descriptors, consumer, channel))
                    while descriptors:
                        os.close(descriptors.pop())
    except Closed:
        pass
    sys.stdout.flush()
    os._exit(0)
