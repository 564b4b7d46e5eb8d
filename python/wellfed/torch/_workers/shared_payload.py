"""What spawned workers need, as memory files: pickled once, large arrays beside the pickle.

Whoever needs it maps it. Mappings are private: a worker that writes into an array changes its own copy, as with torch.
"""

from __future__ import annotations

import mmap
import multiprocessing.context
import multiprocessing.reduction
import os
import pickle
import sys
from collections.abc import Sequence
from typing import Any

import torch

from .arena import Mapping
from .channel import write_all
from .pack import CODES, DTYPES

__all__ = ["SharedPayload", "load"]

LARGE = 1 << 16
ALIGNED = 4096
MANY = 100_000
SEPARATORS = ("\n", "\0", "\x1f\x1e")

inherited: list[int] = []
"""In a process that unpickles: descriptors that travelled with the payload."""


class SharedPayload:
    """An object, packed; owns descriptors until `close`."""

    def __init__(self, thing: Any) -> None:
        self.stream = self.data = -1
        self.places: list[tuple[int, int]] = []
        self.descriptors: list[int] = []
        try:
            self.pack(thing)
        except BaseException:
            self.close()
            raise

    def pack(self, thing: Any) -> None:
        """Write the memory files."""
        buffers: list[pickle.PickleBuffer] = []

        def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
            if buffer.raw().nbytes < LARGE:
                return True
            buffers.append(buffer)
            return False

        self.stream = os.memfd_create("wellfed-payload")
        with open(self.stream, "wb", buffering=1 << 20, closefd=False) as file:
            pickler = Pickler(file, keep_in_band)
            before = multiprocessing.context.get_spawning_popen()
            multiprocessing.context.set_spawning_popen(self)  # type: ignore[arg-type]
            try:
                pickler.dump(thing)
            finally:
                multiprocessing.context.set_spawning_popen(before)
        self.data = os.memfd_create("wellfed-payload")
        end = 0
        for buffer in buffers:
            raw = buffer.raw()
            write_all(self.data, raw, end)
            self.places.append((end, raw.nbytes))
            end += -(-raw.nbytes // ALIGNED) * ALIGNED
        os.ftruncate(self.data, end)

    # As `multiprocessing` expects of what starts a process.

    def duplicate_for_child(self, descriptor: int) -> int:
        """A descriptor is to travel; its place in the list is its name."""
        self.descriptors.append(os.dup(descriptor))
        return len(self.descriptors) - 1

    def DupFd(self, place: int) -> Inherited:  # noqa: N802 -- multiprocessing's name
        """How it is pickled."""
        return Inherited(place)

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in (self.stream, self.data, *self.descriptors):
            if descriptor >= 0:
                os.close(descriptor)
        self.stream = self.data = -1
        self.descriptors.clear()


class Inherited:
    """A descriptor that travelled."""

    def __init__(self, place: int) -> None:
        self.place = place

    def detach(self) -> int:
        """The descriptor, as the caller's own."""
        return os.dup(inherited[self.place])


def load(stream: int, data: int, places: Sequence[tuple[int, int]], descriptors: Sequence[int]) -> Any:
    """The object, its large arrays over private mappings of `data`."""
    inherited[:] = descriptors
    buffers: list[Any] = []
    if places:
        end = max(offset + size for offset, size in places)
        memory = Mapping(data, end, mmap.MAP_PRIVATE).array()
        buffers = [memory[offset : offset + size] for offset, size in places]
    length = os.fstat(stream).st_size
    try:
        return pickle.loads(Mapping(stream, length).array(), buffers=buffers)  # type: ignore[arg-type]
    finally:
        inherited.clear()


class Text:
    """A list of strings as one text."""

    def __init__(self, strings: list[str]) -> None:
        self.strings = strings

    def __reduce__(self) -> Any:
        for separator in SEPARATORS:
            text = separator.join(self.strings)
            if text.count(separator) == len(self.strings) - 1:
                return restore_strings, (
                    pickle.PickleBuffer(text.encode("utf-8", "surrogatepass")),
                    separator,
                )
        return list, (tuple(self.strings),)


def restore_strings(text: Any, separator: str) -> list[str]:
    """The list again."""
    return str(text, "utf-8", "surrogatepass").split(separator)


def all_strings(things: list[Any]) -> bool:
    """Whether these are nothing but strings, and not many times the same: those a pickle stores once."""
    sample = things[:: max(1, len(things) // 4096)]
    return len(set(map(id, sample))) == len(sample) and set(map(type, things)) == {str}


class Memory:
    """The memory of tensors, which several of them may share."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.array = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()

    def __reduce__(self) -> Any:
        return restore_memory, (pickle.PickleBuffer(self.array),)


def restore_memory(data: Any) -> torch.UntypedStorage:
    """The memory again."""
    if not len(data):
        return torch.UntypedStorage(0)
    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage()


def restore_tensor(
    storage: torch.UntypedStorage, code: int, offset: int, shape: Any, stride: Any, grad: bool
) -> torch.Tensor:
    """A tensor again."""
    tensor = torch.empty(0, dtype=DTYPES[code]).set_(storage, offset, shape, stride)
    return tensor.requires_grad_(grad) if grad else tensor


class Pickler(multiprocessing.reduction.ForkingPickler):
    """As `multiprocessing` pickles, except that tensors do not move into named shared memory."""

    def __init__(self, file: Any, buffer_callback: Any) -> None:
        super().__init__(file, 5, True, buffer_callback)
        self.dispatch_table = {**self.dispatch_table, torch.Tensor: self.reduce_tensor}
        self.memories: dict[int, Memory] = {}

    def reducer_override(self, thing: Any) -> Any:
        """Objects that hold very long lists of strings: those travel as one text, several times as fast."""
        held = getattr(thing, "__dict__", None)
        if type(held) is not dict or isinstance(thing, type) or type(thing) in self.dispatch_table:
            return NotImplemented
        names = [name for name in held if type(held[name]) is list and len(held[name]) >= MANY]
        names = [name for name in names if sys.getrefcount(held[name]) == 2 and all_strings(held[name])]
        if not names:
            return NotImplemented
        make, arguments, state, *rest = (*thing.__reduce_ex__(5), None)[:5]
        if type(state) is not dict:
            return NotImplemented
        changed = {name: Text(held[name]) for name in names if state.get(name) is held[name]}
        return make, arguments, {**state, **changed}, *rest

    def reduce_tensor(self, tensor: torch.Tensor) -> Any:
        """Plain tensors as their memory; those that are shared on purpose stay shared."""
        plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if (
            not plain
            or tensor.is_shared()
            or tensor.is_nested
            or tensor.is_conj()
            or tensor.is_neg()
            or not tensor.is_leaf
        ):
            return torch.multiprocessing.reductions.reduce_tensor(tensor)
        storage = tensor.untyped_storage()
        memory = self.memories.get(storage.data_ptr())
        if memory is None or not storage.nbytes():
            memory = self.memories[storage.data_ptr()] = Memory(storage)
        place = (CODES[tensor.dtype], tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return restore_tensor, (memory, *place, tensor.requires_grad)
