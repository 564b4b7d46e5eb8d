"""All that is used of torch without being documented there, under names of our own.

No other file of `wellfed.torch` names what torch keeps for itself. `python/tests/test_torch_private.py` looks for that,
and asks the torch at hand whether each name is what is expected of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils._pytree import tree_leaves
from torch.utils.data import _utils as data_utils
from torch.utils.data import dataloader
from torch.utils.data._utils import collate, fetch, signal_handling, worker
from torch.utils.data._utils.worker import WorkerInfo

__all__ = [
    "CHECKED",
    "HAS_NUMPY",
    "BaseIterator",
    "DatasetKind",
    "ExceptionWrapper",
    "InfiniteSampler",
    "InlineFetcher",
    "InlineStreamFetcher",
    "SingleProcessIterator",
    "StockWorkersIterator",
    "WithoutSubclasses",
    "WorkerInfo",
    "collate",
    "generate_numpy_seed",
    "is_wrapper",
    "name_worker_process",
    "own_pickling",
    "profiling",
    "set_state",
    "set_worker_info",
    "set_worker_signals",
    "sharding_init",
    "state_of",
    "tree_leaves",
    "typed_storage",
]

CHECKED = "2.15"
"""The torch that this file was checked with. Another may well do: the test says what would be wrong."""

# Loaders and iterators.

BaseIterator = dataloader._BaseDataLoaderIter
SingleProcessIterator = dataloader._SingleProcessDataLoaderIter
StockWorkersIterator = dataloader._MultiProcessingDataLoaderIter
DatasetKind = dataloader._DatasetKind
InfiniteSampler = dataloader._InfiniteConstantSampler
InlineFetcher = fetch._MapDatasetFetcher
InlineStreamFetcher = fetch._IterableDatasetFetcher
sharding_init = dataloader._sharding_worker_init_fn


def profiling() -> bool:
    """Whether a profiler is on; True where that cannot be told."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", True))


# Workers.

HAS_NUMPY: bool = data_utils.HAS_NUMPY
generate_numpy_seed = worker._generate_state
set_worker_signals = signal_handling._set_worker_signal_handlers


def set_worker_info(info: WorkerInfo | None) -> None:
    """What `torch.utils.data.get_worker_info` says from now on in this process."""
    worker._worker_info = info


def name_worker_process() -> None:
    """The name by which torch's tools know a worker process."""
    name = getattr(torch.multiprocessing, "_set_thread_name", None)
    if name is not None:
        name("pt_data_worker")


# Tensors.

WithoutSubclasses = torch._C.DisableTorchFunctionSubclass


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
    return torch._utils._get_obj_state(tensor)


def set_state(tensor: torch.Tensor, state: Any) -> torch.Tensor:
    """The tensor with these attributes."""
    if type(tensor).__setstate__ is not torch.Tensor.__setstate__:
        tensor.__setstate__(state)
        return tensor
    changed: torch.Tensor = torch._utils._set_obj_state(tensor, state)
    return changed


def typed_storage(memory: torch.Tensor, dtype: torch.dtype) -> Any:
    """The memory of a tensor of bytes, as what ``Tensor.new`` takes."""
    return torch.storage.TypedStorage(wrap_storage=memory.untyped_storage(), dtype=dtype, _internal=True)


def wrapper_of_vision_datasets() -> Any:
    """The class of what torchvision's `wrap_dataset_for_transforms_v2` gives; None where there is none."""
    try:
        from torchvision.tv_tensors._dataset_wrapper import VisionDatasetTVTensorWrapper
    except ImportError:
        return None
    return VisionDatasetTVTensorWrapper
