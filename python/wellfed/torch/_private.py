"""What is used of torch that is not documented, with the versions of torch that it was checked with.

`python/tests/test_torch_private.py` holds every name to what is expected of it.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["is_wrapper", "own_pickling", "set_state", "state_of", "typed_storage"]


# Tensors.


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether the tensor has no memory of its own: a subclass that only wraps others."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def own_pickling(kind: type[torch.Tensor]) -> bool:
    """Whether a subclass says itself how it is pickled."""
    return (
        kind.__reduce_ex__ is not torch.Tensor.__reduce_ex__ or kind.__reduce__ is not torch.Tensor.__reduce__
    )


def state_of(tensor: torch.Tensor) -> Any:
    """Attributes that somebody has hung on a tensor, as torch pickles them; empty if there are none."""
    return torch._utils._get_obj_state(tensor)  # type: ignore[no-untyped-call]


def set_state(tensor: torch.Tensor, state: Any) -> torch.Tensor:
    """The tensor with these attributes."""
    if type(tensor).__setstate__ is not torch.Tensor.__setstate__:
        tensor.__setstate__(state)  # type: ignore[no-untyped-call]
        return tensor
    changed: torch.Tensor = torch._utils._set_obj_state(tensor, state)  # type: ignore[no-untyped-call]
    return changed


def typed_storage(memory: torch.Tensor, dtype: torch.dtype) -> Any:
    """The memory of a tensor of bytes, as what ``Tensor.new`` takes."""
    return torch.storage.TypedStorage(wrap_storage=memory.untyped_storage(), dtype=dtype, _internal=True)
