"""`feed`: the fastest equivalent of a loader that exists already, or of a data set with a loader's arguments.

Invariant: what the given loader does is carried over whole, or the call is refused with the reason. Nothing that a
subclass does differently is dropped silently.
"""

from __future__ import annotations

import copy
from typing import Any

import torch.utils.data as stock

from .._loader import Loader
from ..dataset import Dataset
from ._loader import DataLoader
from ._private import InfiniteSampler
from ._streaming import carried, class_for, prepared

__all__ = ["feed"]


def feed(loader: Any, **arguments: Any) -> Any:
    """The fastest loader that gives what ``loader`` gives.

    Args:
        loader: A loader of torch, whose data set, order, collate function and all other arguments are kept; or a data
            set of torch; or a data set of wellfed. A loader of wellfed is given back. A loader that Accelerate prepared
            is given back, too, with the loader in it exchanged; of webdataset's ``WebLoader`` and of the loaders that
            timm's ``create_loader`` wraps around one, which normalize on a device, a copy. Of a ``StreamingDataLoader``
            of MosaicML's Streaming or of LitData it is one, too, with its counts and ``state_dict()``.
        arguments: Of `DataLoader`, in place of those of ``loader``. A state that was loaded into it goes along. With
            ``device="cuda", on_device="decode"`` the device decodes and transforms images.

    Raises:
        TypeError: ``loader`` is of a class that changes how a loader works.
        ValueError: ``arguments`` leave open how batches are made, or a loaded state is of other batches; or
            ``on_device`` is given where the engine does not make whole batches.

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
    stages = _pipeline(loader)
    if stages is not None:
        fed = copy.copy(loader)
        fed.pipeline = [feed(stages[0], **arguments), *stages[1:]]
        return fed
    wrapped = _prefetched(loader)
    if wrapped is not None:
        fed = copy.copy(loader)
        fed.loader = feed(wrapped, **arguments)
        return fed
    if isinstance(loader, DataLoader) and not arguments:
        return loader
    if isinstance(loader, stock.DataLoader):
        kind = class_for(loader)
        changed = [] if kind is not None else _changed(type(loader))
        if changed:
            raise TypeError(
                f"{type(loader).__module__}.{type(loader).__qualname__} has its own {', '.join(changed)}, which feed() "
                "would leave out\n"
                "hint: derive it from wellfed.torch.DataLoader, or give feed() its dataset and arguments"
            )
        return _rebuilt(loader, arguments, kind or DataLoader)
    if not hasattr(loader, "__getitem__") and not isinstance(loader, stock.IterableDataset):
        hint = (
            "\nhint: an iterable data set is derived from torch.utils.data.IterableDataset; of a loader of another "
            "library, give its dataset"
        )
        raise TypeError(
            f"feed() takes a loader or a data set, not {type(loader).__qualname__}"
            f"{hint if hasattr(loader, '__iter__') else ''}"
        )
    return DataLoader(loader, **arguments)


def _pipeline(loader: Any) -> list[Any] | None:
    """The stages of a pipeline of webdataset that begins with a loader of torch's, as its ``WebLoader`` does."""
    if not any(base.__module__.partition(".")[0] == "webdataset" for base in type(loader).__mro__):
        return None
    stages = getattr(loader, "pipeline", None)
    if isinstance(stages, list) and stages and isinstance(stages[0], stock.DataLoader):
        return stages
    return None


def _prefetched(loader: Any) -> Any:
    """The loader in one of timm's that fetch batches ahead, to a device where they are normalized; else None."""
    kinds = {("timm.data.loader", "PrefetchLoader"), ("timm.data.naflex_loader", "NaFlexPrefetchLoader")}
    if not any((base.__module__, base.__name__) in kinds for base in type(loader).__mro__):
        return None
    inner = getattr(loader, "loader", None)
    return inner if isinstance(inner, stock.DataLoader) else None


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
    "on_device",
    "float_dtype",
    "native",
    "accelerate",
    "num_threads",
    "memory_budget",
    "on_error",
    "snapshot_every_n_steps",
    "stall_warning",
)


def _rebuilt(loader: Any, arguments: dict[str, Any], kind: type[DataLoader[Any]]) -> DataLoader[Any]:
    kept: dict[str, Any] = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
    if getattr(loader, "_seeds_by_batch", False):
        kept["num_workers"] = "auto"
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
        infinite = isinstance(loader.sampler, InfiniteSampler)
        kept.update({} if infinite else {"sampler": loader.sampler})
    _make_room(loader, kept, arguments)
    state = _loaded_state(loader)
    if state is not None:
        others = sorted(_BATCHES & set(arguments))
        if others:
            raise ValueError(
                f"a state was loaded into the loader, which is of other batches than {', '.join(others)} would give"
                "\nhint: call load_state_dict() on what feed() returns"
            )
    if kept.get("collate_fn") in _DEFAULTS:
        kept.pop("collate_fn")  # chosen anew: without a batch size it is another
    if kind is not DataLoader:
        prepared(loader, kept)
    fed: DataLoader[Any] = kind(arguments.pop("dataset", loader.dataset), **{**kept, **arguments})
    carried(loader, fed)
    # What its user has hung on it.
    for name, value in vars(loader).items():
        if name not in vars(fed) and not name.startswith("_"):
            setattr(fed, name, value)
    if state is not None:
        fed.load_state_dict(state)
    return fed


_BATCHES = {"dataset", "batch_size", "drop_last", "sampler", "shuffle", "batch_sampler"}
"""Arguments that decide what is in a batch."""


def _loaded_state(loader: Any) -> dict[str, Any] | None:
    """The state that was loaded into a loader of ours or torchdata's and not used yet."""
    if isinstance(loader, DataLoader):
        return loader._checkpoints.pending
    # torchdata's StatefulDataLoader
    state: dict[str, Any] | None = getattr(loader, "next_iter_state", None)
    return state


_DEFAULTS = (stock.default_collate, stock.default_convert)


def _make_room(loader: Any, kept: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Drops what new arguments stand in place of."""
    if arguments.get("batch_sampler") is not None:
        for name in ("batch_size", "drop_last", "sampler"):
            kept.pop(name, None)
    given = sorted({"batch_size", "drop_last", "sampler", "shuffle"} & set(arguments))
    batches = kept.pop("batch_sampler", None) if given else None
    if batches is not None and "batch_size" not in arguments:
        # What is left of it is how large its batches are.
        if type(batches) is not stock.BatchSampler:
            raise ValueError(
                f"{', '.join(given)} cannot be changed alone: batches are made by a {type(batches).__qualname__}"
                "\nhint: give batch_size, too, which takes its place"
            )
        kept.update(batch_size=batches.batch_size, drop_last=batches.drop_last, sampler=batches.sampler)
    if "shuffle" in arguments or "dataset" in arguments:
        kept.pop("sampler", None)
