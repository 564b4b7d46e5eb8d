"""A batch as bytes: a pickle of its structure, and its large arrays where they already lie, in slots.

Small arrays travel within the pickle, so that a consumer who keeps the labels of an epoch does not keep its
images; every large array has a slot of its own for the same reason.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch

from .._private import WithoutSubclasses, is_wrapper, own_pickling, set_state, state_of
from .arena import Arena

__all__ = ["LARGE", "Packed", "Packer", "unpack"]

LARGE = 64 * 1024
"""Bytes from which an array has a slot of its own."""

DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}

Packed = tuple[bytes, list[tuple[int, int, int]]]
"""The pickle, and slot, offset and size of each large array in order."""


def rebuild(data: Any, code: int, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor over `data`."""
    if not len(data):
        return torch.empty(shape, dtype=DTYPES[code])
    return torch.frombuffer(data, dtype=DTYPES[code]).view(shape)


def rebuild_strided(data: Any, code: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A tensor over `data` whose dimensions do not lie in order."""
    return torch.frombuffer(data, dtype=DTYPES[code]).as_strided(shape, stride)


def rebuild_special(
    make: Any, arguments: tuple[Any, ...], kind: type[torch.Tensor], state: Any, grad: bool
) -> torch.Tensor:
    """A tensor of a subclass, or with attributes, or one that wants gradients."""
    tensor: torch.Tensor = make(*arguments)
    with WithoutSubclasses():
        if kind is not torch.Tensor:
            tensor = tensor.as_subclass(kind)
        if grad:
            tensor.requires_grad_()
    return set_state(tensor, state) if state else tensor


def unpack(skeleton: Any, buffers: Sequence[Any]) -> Any:
    """The batch, its large arrays over `buffers`."""
    return pickle.loads(skeleton, buffers=buffers)


class Packer:
    """Packs batches of one worker."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.table = Reducers(reducers(), self.reduce_special)
        self.table[torch.Tensor] = self.reduce_tensor
        self.table[np.ndarray] = reduce_array
        self.address = 0
        self.found: list[tuple[pickle.PickleBuffer, int]] = []

    def pack(self, batch: Any) -> Packed:
        """`batch` as bytes, its large arrays in slots: copied only where they do not lie in one yet."""
        out = io.BytesIO()
        self.found, self.address = [], 0
        pickler = pickle.Pickler(out, 5, buffer_callback=self.keep_in_band)
        pickler.dispatch_table = self.table
        pickler.dump(batch)
        places = [self.place(buffer, address) for buffer, address in self.found]
        self.found = []
        return out.getvalue(), places

    def keep_in_band(self, buffer: pickle.PickleBuffer) -> bool:
        """Called for each array: whether it is so small that it belongs into the pickle."""
        address, self.address = self.address, 0
        if buffer.raw().nbytes < LARGE:
            return True
        self.found.append((buffer, address))
        return False

    def place(self, buffer: pickle.PickleBuffer, address: int) -> tuple[int, int, int]:
        """Slot, offset and size of an array."""
        data = buffer.raw()
        slot = self.arena.find(address) if address else None
        whole = slot is not None and address + data.nbytes <= slot.mapping.address + slot.size
        if slot is not None and whole and not slot.shared():
            return slot.number, address - slot.mapping.address, data.nbytes
        if slot is not None and whole and slot.collated:
            # Whoever keeps samples had the memory of their whole batch kept, too, if that went on.
            self.arena.collated -= 1
        slot, memory = self.arena.take(data.nbytes)
        memory[: data.nbytes] = np.frombuffer(data, np.uint8)
        return slot.number, 0, data.nbytes

    def reduce_tensor(self, tensor: torch.Tensor) -> Any:
        """How the pickle holds a plain tensor."""
        if tensor.requires_grad:
            return self.reduce_special(tensor)
        try:
            data: Any = tensor.numpy()
        except (TypeError, RuntimeError):
            return self.reduce_other(tensor)
        if data.flags.c_contiguous:
            self.address = tensor.data_ptr()
            return rebuild, (pickle.PickleBuffer(data), CODES[tensor.dtype], data.shape)
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        if data.transpose(order).flags.c_contiguous:
            self.address = tensor.data_ptr()
            flat = pickle.PickleBuffer(data.transpose(order))
            return rebuild_strided, (flat, CODES[tensor.dtype], data.shape, tensor.stride())
        return rebuild, (
            pickle.PickleBuffer(np.ascontiguousarray(data).data),
            CODES[tensor.dtype],
            data.shape,
        )

    def reduce_special(self, tensor: torch.Tensor) -> Any:
        """How the pickle holds a tensor of a subclass, or that wants gradients: as a plain one, and the rest."""
        with WithoutSubclasses():
            if tensor.requires_grad and not tensor.is_leaf:
                raise RuntimeError(
                    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
                    "support crossing process boundaries.  If you just want to transfer the data, call detach() "
                    "on the tensor before serializing (e.g., putting it on the queue)."
                )
            if not in_memory(tensor) or own_pickling(type(tensor)):
                return tensor.__reduce_ex__(4)
            plain = tensor.detach().as_subclass(torch.Tensor)
            state = state_of(tensor)
            return rebuild_special, (
                *self.reduce_tensor(plain)[:2],
                type(tensor),
                state,
                tensor.requires_grad,
            )

    def reduce_other(self, tensor: torch.Tensor) -> Any:
        """Types that NumPy lacks go as bytes; all that is more than numbers in memory goes torch's way."""
        if tensor.is_cuda:
            return torch.multiprocessing.reductions.reduce_tensor(tensor)
        if not in_memory(tensor):
            return tensor.__reduce_ex__(4)
        data = tensor.reshape(-1).view(torch.uint8).numpy()
        if tensor.is_contiguous():
            self.address = tensor.data_ptr()
        return rebuild, (pickle.PickleBuffer(data), CODES[tensor.dtype], tuple(tensor.shape))


class Reducers(dict[type, Any]):
    """How types are pickled; subclasses of tensors are found when they are first met."""

    def __init__(self, known: dict[type, Any], special: Any) -> None:
        super().__init__(known)
        self.special = special

    def __missing__(self, kind: type) -> Any:
        if not issubclass(kind, torch.Tensor):
            raise KeyError(kind)
        self[kind] = self.special
        return self.special


def in_memory(tensor: torch.Tensor) -> bool:
    """Whether it is nothing but numbers in ordinary memory."""
    plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return plain and not (tensor.is_conj() or tensor.is_neg() or tensor.is_nested or is_wrapper(tensor))


def reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """How the pickle holds a NumPy array: always writable afterwards, as without shared memory."""
    return (array if array.flags.writeable else array.copy()).__reduce_ex__(5)


def reducers() -> dict[type, Any]:
    """How other types are pickled: as `multiprocessing` does it, without torch's named shared memory."""
    table: dict[type, Any] = dict(copyreg.dispatch_table)
    for kind, reduce in ForkingPickler._extra_reducers.items():  # type: ignore[attr-defined]
        if not (issubclass(kind, torch.Tensor) or "Storage" in kind.__name__):
            table[kind] = reduce
    return table
