"""`feed`: the fastest equivalent of a loader that exists already, or of a data set with a loader's arguments.

Invariant: what the given loader does is carried over whole, or the call is refused with the reason. Nothing that a
subclass does differently is dropped silently.
"""

from __future__ import annotations

from typing import Any

import torch.utils.data as stock
from torch.utils.data.dataloader import _InfiniteConstantSampler

from .._loader import Loader
from ..dataset import Dataset
from ._loader import DataLoader

__all__ = ["feed"]


def feed(loader: Any, **arguments: Any) -> Any:
    """The fastest loader that gives what ``loader`` gives.

    Args:
        loader: A loader of torch, whose data set, order, collate function and all other arguments are kept; or a data
            set of torch; or a data set of wellfed. A loader of wellfed is given back. A loader that Accelerate prepared
            is given back, too, with the loader in it exchanged.
        arguments: Of `DataLoader`, in place of those of ``loader``.

    Raises:
        TypeError: ``loader`` is of a class that changes how a loader works.

    Example:
        >>> import torch
        >>> import wellfed as wf
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> loader = DataLoader(TensorDataset(torch.arange(6)), batch_size=4)
        >>> for (x,) in wf.feed(loader):
        ...     print(x)
        tensor([0, 1, 2, 3])
        tensor([4, 5])
    """
    if isinstance(loader, Loader):
        if arguments:
            raise TypeError("a loader of wellfed takes no other arguments\nhint: give its dataset")
        return loader
    if isinstance(loader, Dataset):
        return loader.torch(**arguments)
    inner = _inner(loader)
    if inner is not None:
        loader.base_dataloader = feed(inner, **arguments)
        return loader
    if isinstance(loader, DataLoader) and not arguments:
        return loader
    if isinstance(loader, stock.DataLoader):
        changed = _changed(type(loader))
        if changed:
            raise TypeError(
                f"{type(loader).__module__}.{type(loader).__qualname__} has its own {', '.join(changed)}, which feed() "
                "would leave out\n"
                "hint: derive it from wellfed.torch.DataLoader, or give feed() its dataset and arguments"
            )
        return _rebuilt(loader, arguments)
    if not hasattr(loader, "__getitem__") and not hasattr(loader, "__iter__"):
        raise TypeError(f"feed() takes a loader or a data set, not {type(loader).__qualname__}")
    return DataLoader(loader, **arguments)


def _inner(loader: Any) -> Any:
    """The loader in one that Accelerate prepared, which pretends to be of torch's class itself; else None."""
    of_accelerate = any(base.__module__ == "accelerate.data_loader" for base in type(loader).__mro__)
    return getattr(loader, "base_dataloader", None) if of_accelerate else None


def _changed(kind: type) -> list[str]:
    """Methods that a class has in place of torch's or ours; its constructor is not among them."""
    houses = (
        "torch.utils.data.dataloader",
        "torchdata.stateful_dataloader.stateful_dataloader",
        DataLoader.__module__,
    )
    harmless = {
        "__module__",
        "__doc__",
        "__init__",
        "__dict__",
        "__weakref__",
        "__parameters__",
        "__orig_bases__",
    }
    harmless |= {
        "__qualname__",
        "__annotations__",
        "__static_attributes__",
        "__firstlineno__",
        "__annotate_func__",
    }
    return sorted(
        name
        for base in kind.__mro__
        if issubclass(base, stock.DataLoader) and base.__module__ not in houses
        for name, value in vars(base).items()
        if name not in harmless
        and (callable(value) or isinstance(value, property | staticmethod | classmethod))
    )


# What a loader keeps under the name of its argument.
_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
    "device",
    "float_dtype",
    "native",
    "snapshot_every_n_steps",
    "stall_warning",
)


def _rebuilt(loader: Any, arguments: dict[str, Any]) -> DataLoader[Any]:
    kept: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
    workers = arguments.get("num_workers", loader.num_workers)
    if workers == 0:
        # torch refuses these without workers.
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
            kept.pop(name, None)
    elif loader.num_workers == 0:
        kept.pop("prefetch_factor", None)
    if loader.batch_size is None:
        # Either somebody's batch sampler, or no batches at all.
        if loader.batch_sampler is None:
            kept["batch_size"] = None
        else:
            kept["batch_sampler"] = loader.batch_sampler
    else:
        kept.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    if loader.batch_size is not None or loader.batch_sampler is None:
        infinite = isinstance(loader.sampler, _InfiniteConstantSampler)
        kept.update({} if infinite else {"sampler": loader.sampler})
    _make_room(kept, arguments)
    if kept.get("collate_fn") in _DEFAULTS:
        kept.pop("collate_fn")  # chosen anew: without a batch size it is another
    fed: DataLoader[Any] = DataLoader(arguments.pop("dataset", loader.dataset), **{**kept, **arguments})
    # What its user has hung on it.
    for name, value in vars(loader).items():
        if name not in vars(fed) and not name.startswith("_"):
            setattr(fed, name, value)
    return fed


_DEFAULTS = (stock.default_collate, stock.default_convert)


def _make_room(kept: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Drops what new arguments stand in place of."""
    if arguments.get("batch_sampler") is not None:
        for name in ("batch_size", "drop_last", "sampler"):
            kept.pop(name, None)
    if {"batch_size", "drop_last", "sampler", "shuffle"} & set(arguments):
        kept.pop("batch_sampler", None)
    if "shuffle" in arguments or "dataset" in arguments:
        kept.pop("sampler", None)
