"""Shared memory of batches: a worker's `Arena` of slots, and the consumer's `Mappings` of them.

A slot is an anonymous memory file that is created once, sent once, and used again when nobody looks at it any
more: neither the consumer (who says so) nor the worker itself (whose code may have kept the tensor).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["Arena", "Mapping", "Mappings", "Slot"]

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
FAILED = ctypes.c_void_p(-1).value

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Mapping:
    """A memory file in this process's address space, without a descriptor; unmapped when the last array is gone."""

    def __init__(self, descriptor: int, size: int, flags: int = mmap.MAP_SHARED) -> None:
        # mmap.mmap would keep a descriptor for every slot, and descriptors are few.
        address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
        if address == FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{os.strerror(code)}: mapping {size} bytes of shared memory")
        self.address, self.size, self.unmap = address, size, libc.munmap
        self.lock: Any = None
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        if hasattr(self, "unmap"):
            if self.lock is not None:
                self.lock.close()
            self.unmap(self.address, self.size)

    def array(self) -> Bytes:
        """A new array of all bytes, which keeps the mapping alive."""
        return np.asarray(self)


class Slot:
    """One piece of shared memory as its worker knows it."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.descriptor = os.memfd_create("wellfed-batch")
        try:
            os.ftruncate(self.descriptor, size)
            self.mapping = Mapping(self.descriptor, size)
        except BaseException:
            os.close(self.descriptor)
            raise
        self.last: weakref.ref[Bytes] | None = None
        # Samples were put here as they were made, and then became a batch where they lie.
        self.placed = self.collated = False

    def array(self) -> Bytes:
        """The slot's bytes for one use of it."""
        base = self.mapping.array()
        self.last = weakref.ref(base)
        return base

    def seen(self) -> bool:
        """Whether code in this process still holds a tensor of the last use."""
        return self.last is not None and self.last() is not None

    def shared(self) -> bool:
        """Whether others hold memory of a slot in which samples were put, and so could change what is sent of it."""
        return self.placed and self.last is not None and references(self.last) > ONE

    def sent(self) -> None:
        """The consumer has the descriptor now."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def references(to: weakref.ref[Any]) -> int:
    """References to an object, with those of this call: how many these are depends on the interpreter."""
    thing = to()
    return sys.getrefcount(thing)


def _one() -> int:
    thing = np.empty(0)
    return references(weakref.ref(thing))


ONE = _one()
"""What `references` says of an object that one other object refers to."""


def slot_size(needed: int) -> int:
    """`needed` rounded up by at most an eighth; pages that are not touched cost nothing."""
    step = max(1 << 16, 1 << max(0, needed.bit_length() - 4))
    return -(-needed // step) * step


class Arena:
    """A worker's slots: those it may use, those in use by the batch in the making, those at the consumer."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead
        self.slots: dict[int, Slot] = {}
        self.free: list[Slot] = []
        self.taken: list[Slot] = []
        self.gone: list[int] = []
        self.most = 1
        self.count = 0
        self.collates_in_place = False
        self.collated = 0

    def take(self, size: int) -> tuple[Slot, Bytes]:
        """A slot of at least `size` bytes for the batch in the making, and its memory."""
        best: Slot | None = None
        for slot in self.free:
            fits = size <= slot.size <= 2 * size + (1 << 16)
            if fits and (best is None or slot.size < best.size) and not slot.seen():
                best = slot
        if best is None:
            best = Slot(self.count, slot_size(size))
            self.slots[best.number] = best
            self.count += 1
        else:
            self.free.remove(best)
        best.placed = best.collated = False
        self.taken.append(best)
        return best, best.array()

    def place(self, size: int) -> Bytes:
        """Memory of a slot for the samples of the batch in the making."""
        slot, memory = self.take(size)
        slot.placed = True
        return memory

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """In this block, samples that lie one after the other in a slot are collated without a copy."""
        self.collates_in_place = True
        try:
            yield
        finally:
            self.collates_in_place = False

    def lying(self, start: int, size: int) -> Bytes | None:
        """The slot's memory from address `start` on, if samples were put there that no other batch was made of."""
        slot = self.find(start) if self.collates_in_place else None
        if slot is None or not slot.placed or slot.collated or slot.last is None:
            return None
        base, offset = slot.last(), start - slot.mapping.address
        if base is None or offset + size > slot.size:
            return None
        slot.collated = True
        self.collated += 1
        return base[offset : offset + size]

    def find(self, address: int) -> Slot | None:
        """The slot of the batch in the making that `address` lies in."""
        for slot in self.taken:
            if slot.mapping.address <= address < slot.mapping.address + slot.size:
                return slot
        return None

    def finish(self, used: set[int]) -> None:
        """The batch is packed and the consumer gets the slots `used`; the others it took are free again."""
        self.free.extend(slot for slot in self.taken if slot.number not in used)
        self.taken.clear()
        self.most = max(self.most, len(used))

    def release(self, numbers: list[int]) -> None:
        """The consumer no longer looks at these slots; more than are needed in a round are given up."""
        self.free.extend(self.slots[number] for number in numbers)
        while len(self.free) > self.most * (self.ahead + 3):
            slot = self.free.pop(0)
            del self.slots[slot.number]
            if slot.descriptor < 0:
                self.gone.append(slot.number)
            slot.sent()

    def take_gone(self) -> list[int]:
        """Slots given up since the last call, for the consumer to forget."""
        gone, self.gone = self.gone, []
        return gone


class Mappings:
    """The consumer's view of one worker's slots.

    Attributes:
        page_lock: Called with address and size of each new one, so that a device can read it; None where none does.
            What it returns is closed before the memory goes.
    """

    def __init__(self) -> None:
        self.page_lock: Callable[[int, int], Any] | None = None
        self.mappings: dict[int, Mapping] = {}
        self.users: dict[int, weakref.ref[Bytes]] = {}
        self.released: deque[int] = deque()

    def add(self, number: int, size: int, descriptor: int) -> None:
        """Map a slot that the worker has created; the descriptor is closed."""
        try:
            mapping = self.mappings[number] = Mapping(descriptor, size)
            if self.page_lock is not None:
                mapping.lock = self.page_lock(mapping.address, size)
        finally:
            os.close(descriptor)

    def forget(self, numbers: list[int]) -> None:
        """The worker has given these slots up."""
        for number in numbers:
            self.mappings.pop(number, None)
            self.users.pop(number, None)

    def array(self, number: int) -> Bytes:
        """The slot's bytes; when the last array and tensor over them is gone, the slot goes back."""
        base = self.mappings[number].array()
        self.users[number] = weakref.ref(base, functools.partial(give_back, self.released, number))
        return base

    def take_released(self) -> list[int]:
        """Slots that nobody looks at any more since the last call."""
        released: list[int] = []
        while self.released:
            released.append(self.released.popleft())
        return released


def give_back(released: deque[int], number: int, _: Any) -> None:
    """Runs when an array dies, at any point of any thread: so it does no more than this."""
    released.append(number)
