"""`Channel`: messages with descriptors between two processes.

One message is one packet. What does not fit into a packet lies in a memory file, of which the packet carries
the descriptor; so neither side ever waits for the other in the middle of a message.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import pickle
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any

__all__ = ["PACKET", "Channel", "Closed", "pair"]

PACKET = 48 * 1024
"""Bytes of the largest message that travels in its packet: four of them fit into a default socket buffer."""

MOST_DESCRIPTORS = 200
INLINE, IN_FILE = b"\0", b"\1"


class Closed(Exception):  # noqa: N818 -- a state of the channel, not a mishap
    """The other side is gone."""


class Channel:
    """One end of a two-way connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.waiting: deque[tuple[bytes, Sequence[int]]] = deque()

    def fileno(self) -> int:
        """The descriptor, for `poll`."""
        return self.sock.fileno()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send `message`, waiting for room where there is none."""
        for data, own in self._packets(message, descriptors):
            try:
                self._put(data, own, 0)
            finally:
                self._done(data, own)

    def post(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send `message` now if there is room, else when `flush` is called; never waits."""
        self.waiting.extend(self._packets(message, descriptors))
        self.flush()

    def flush(self) -> bool:
        """Send what waits, as far as there is room; whether nothing waits any more."""
        while self.waiting:
            data, own = self.waiting[0]
            try:
                self._put(data, own, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            self.waiting.popleft()
            self._done(data, own)
        return True

    def recv(self, flags: int = 0) -> tuple[Any, list[int]]:
        """The next message and its descriptors, which are the caller's."""
        room = socket.CMSG_SPACE(4 * (MOST_DESCRIPTORS + 1))
        try:
            data, ancillary, state, _ = self.sock.recvmsg(PACKET + 64, room, flags | socket.MSG_CMSG_CLOEXEC)
        except (ConnectionResetError, BrokenPipeError):
            raise Closed from None
        if not data:
            raise Closed
        descriptors: list[int] = []
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                whole = payload[: len(payload) - len(payload) % 4]
                descriptors.extend(array.array("i", whole))
        if state & socket.MSG_CTRUNC:
            for descriptor in descriptors:
                os.close(descriptor)
            raise OSError(
                errno.EMFILE,
                "Too many open files. Communication with the workers is no longer possible.\n"
                "hint: increase the limit using `ulimit -n` in the shell",
            )
        if data[:1] == IN_FILE:
            file = descriptors.pop()
            with open(file, "rb") as f:
                f.seek(0)
                return pickle.loads(f.read()), descriptors
        return pickle.loads(memoryview(data)[1:]), descriptors

    def hang_up(self) -> None:
        """End the connection for both sides, also where other processes hold copies of the descriptor."""
        with contextlib.suppress(OSError):  # The other side was faster.
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back, and those of messages never sent."""
        while self.waiting:
            self._done(*self.waiting.popleft())
        self.sock.close()

    def _packets(self, message: Any, descriptors: Sequence[int]) -> list[tuple[bytes, Sequence[int]]]:
        data = pickle.dumps(message, 5)
        if len(data) <= PACKET:
            return [(INLINE + data, descriptors)]
        file = os.memfd_create("wellfed-message")
        try:
            write_all(file, data)
        except BaseException:
            os.close(file)
            raise
        return [(IN_FILE, (*descriptors, file))]

    def _put(self, data: bytes, descriptors: Sequence[int], flags: int) -> None:
        if len(descriptors) > MOST_DESCRIPTORS + 1:
            raise ValueError(f"{len(descriptors)} descriptors in one message, at most {MOST_DESCRIPTORS}")
        rights = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        )
        try:
            self.sock.sendmsg([data], rights, flags | socket.MSG_NOSIGNAL)
        except (BrokenPipeError, ConnectionResetError):
            raise Closed from None

    def _done(self, data: bytes, descriptors: Sequence[int]) -> None:
        if data == IN_FILE:
            os.close(descriptors[-1])


def pair() -> tuple[Channel, Channel]:
    """Two connected ends."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(one), Channel(other)


def write_all(descriptor: int, data: bytes | memoryview, at: int = 0) -> None:
    """Write all of `data` at offset `at`; one call writes at most 2 GB."""
    view = memoryview(data).cast("B")
    while len(view):
        done = os.pwrite(descriptor, view, at)
        view, at = view[done:], at + done
