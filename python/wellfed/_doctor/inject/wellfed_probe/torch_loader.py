"""Patches torch's loaders, torchdata's and wellfed's: the records `loader`, `iter` and `batch`.

What users see of their loaders stays: signatures, attributes, pickles, errors.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import weakref
from types import ModuleType
from typing import Any

from . import engine, feeding, hooks
from .control import CONTROL, is_worker
from .garbage import GARBAGE
from .places import of_caller, qualified, shorten
from .recorder import RECORDER, Record, now
from .steps import LoaderLog, Steps
from .torch_step import ATTRIBUTE, attach, patch_loads

__all__ = ["install", "listen_to_steps", "log_of", "patch_class", "starting"]

_logs: dict[int, tuple[weakref.ref[Any], LoaderLog]] = {}
_step_listeners: list[Any] = []
_local = threading.local()
# Number of the loader whose workers are being started: forked workers find it here. None: no loader runs here.
starting: list[int | None] = [None]


def install() -> None:
    """Patches loaders once they are imported."""
    hooks.when_imported("torch.utils.data.dataloader", lambda m: patch_class(m.DataLoader))
    hooks.when_imported("torchdata.stateful_dataloader.stateful_dataloader", _torchdata)
    hooks.when_imported("wellfed.torch._loader", lambda m: patch_class(m.DataLoader))
    hooks.when_imported("multiprocessing.reduction", patch_loads)


def _torchdata(module: ModuleType) -> None:
    patch_class(module.StatefulDataLoader)


def listen_to_steps(make: Any) -> None:
    """Has `make(steps)` give a function `(number, batch) -> whether it has seen enough` for each iterator, or None."""
    _step_listeners.append(make)


def patch_class(kind: type) -> None:
    """Patches the constructor and `__iter__` that this class itself defines."""
    members = vars(kind)
    if "__init__" in members:
        kind.__init__ = init_of(members["__init__"])  # type: ignore[misc]
    if "__iter__" in members:
        kind.__iter__ = iter_of(members["__iter__"])  # type: ignore[attr-defined]


def init_of(original: Any) -> Any:
    """A loader's constructor that makes known what was made."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        # Only the outermost: subclasses call the constructors of their bases.
        outer = getattr(_local, "making", None)
        if outer is self or feeding.asking():
            return original(self, *args, **kwargs)
        _local.making = self
        try:
            if not is_worker():
                GARBAGE.apply()
                if CONTROL.loader:
                    args, kwargs = replaced(signature, self, args, kwargs)
            original(self, *args, **kwargs)
        finally:
            _local.making = outer
        try:
            if RECORDER.directory is not None:
                register(self)
        except Exception:
            RECORDER.failed("noting a loader")

    return __init__


def register(loader: Any) -> LoaderLog:
    """Begins the log of a loader."""
    key = id(loader)
    place, t = of_caller(made=type(loader)), now()
    reference = weakref.ref(loader, lambda _: _logs.pop(key, None))
    known: list[Record] = []

    def tell(number: int) -> Record:
        if not known:
            known.append(describe(reference(), place))
        return {"k": "loader", "t": t, "loader": number, **known[0]}

    log = LoaderLog(tell)
    _logs[key] = reference, log
    if not is_worker():
        log.announce()
    return log


def log_of(loader: Any) -> LoaderLog:
    """The log of a loader; also of one that came out of a pickle, or was made before we were there."""
    entry = _logs.get(id(loader))
    if entry is not None and entry[0]() is loader:
        return entry[1]
    return register(loader)


def describe(loader: Any, place: Any) -> Record:
    """The fields of the record `loader`."""
    if loader is None:
        return {"class": "", "framework": "torch", "place": place}
    known = vars(loader)
    dataset = known.get("dataset")
    context = getattr(loader, "multiprocessing_context", None)
    method = context if isinstance(context, str) else getattr(context, "_name", None)
    length, samples = sizes(loader)
    batch_size = known.get("batch_size")
    if batch_size is None:
        batch_size = getattr(known.get("batch_sampler"), "batch_size", None)
    return {
        "framework": "wellfed.torch" if of_wellfed(loader) else "torch",
        "class": qualified(type(loader)),
        "dataset": dataset_name(dataset),
        "transform": transform_of(dataset),
        "length": length,
        "samples": samples,
        "batch_size": batch_size if isinstance(batch_size, int) else None,
        "num_workers": int(known.get("num_workers") or 0),
        "prefetch_factor": known.get("prefetch_factor"),
        "persistent_workers": bool(known.get("persistent_workers")),
        "pin_memory": bool(known.get("pin_memory")),
        "in_order": bool(known.get("in_order", True)),
        "iterable": is_iterable(loader),
        "multiprocessing_context": method,
        "collate": qualified(known.get("collate_fn")),
        "place": place,
        "pipeline": [],
    }


def of_wellfed(loader: Any) -> bool:
    """Whether it is of wellfed's class."""
    return any(base.__module__.partition(".")[0] == "wellfed" for base in type(loader).__mro__)


def is_iterable(loader: Any) -> bool:
    """Whether its data set is of the iterable kind."""
    return int(getattr(loader, "_dataset_kind", 0)) == 1


def sizes(loader: Any) -> tuple[int | None, int | None]:
    """Batches and samples an epoch. A loader over an iterable data set is not asked: it would remember the answer."""
    if is_iterable(loader):
        return None, None
    found: list[int | None] = []
    for thing in (loader._index_sampler, loader.sampler):
        try:
            found.append(len(thing))
        except Exception:
            found.append(None)  # Samplers need not have a length.
    return found[0], found[1]


def dataset_name(dataset: Any) -> str:
    """Class of the data set, and of what it wraps: `Subset(ImageFolder)`."""
    names: list[str] = []
    for _ in range(5):
        names.append(type(dataset).__qualname__ if names else qualified(type(dataset)))
        inner = vars(dataset).get("dataset") if hasattr(dataset, "__dict__") else None
        if inner is None:
            break
        dataset = inner
    return "(".join(names) + ")" * (len(names) - 1)


def transform_of(dataset: Any) -> str:
    """What the data set, or the one that it wraps, says of its transform."""
    for _ in range(5):
        members = vars(dataset) if hasattr(dataset, "__dict__") else {}
        for name in ("transform", "transforms"):
            if members.get(name) is not None:
                return shorten(" ".join(repr(members[name]).split()))
        dataset = members.get("dataset")
        if dataset is None:
            break
    return ""


def iter_of(original: Any) -> Any:
    """A loader's `__iter__` that has the steps of the iterator noted."""

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807
        if getattr(_local, "iterating", None) is self or RECORDER.directory is None:
            return original(self)
        outer = getattr(_local, "iterating", None)
        _local.iterating = self
        try:
            log = log_of(self)
            starting[0] = log.number
            if log.iterators == 0 and not is_worker() and not of_wellfed(self):
                feeding.note(self, log.number)
        except Exception:
            RECORDER.failed("noting an iterator")
            _local.iterating = outer
            return original(self)
        t0 = now()
        try:
            iterator = original(self)
        finally:
            _local.iterating = outer
        t1 = now()
        try:
            began(self, log, iterator, t0, t1)
        except Exception:
            RECORDER.failed("noting an iterator")
        return iterator

    return __iter__


def began(loader: Any, log: LoaderLog, iterator: Any, t0: int, t1: int) -> None:
    """An iterator was made, or begins anew."""
    tell_workers(loader, log, iterator)
    steps = Steps(log, t0, t1, alone=False)
    if log.iterators == 1:
        steps.listeners.append(functools.partial(first_batch, log.number))
    for make in _step_listeners:
        listener = make(steps)
        if listener is not None:
            steps.listeners.append(listener)
    attach(iterator, steps)
    if hasattr(iterator, "__dict__") and "_native" in vars(iterator):
        engine.watch(steps, iterator)


def tell_workers(loader: Any, log: LoaderLog, iterator: Any) -> None:
    """Leaves the number of the loader where workers find it that were not forked from this process."""
    workers = vars(iterator).get("_workers") if hasattr(iterator, "__dict__") else None
    if not workers or RECORDER.directory is None or ATTRIBUTE in vars(iterator):
        return
    if start_method(loader) == "fork":
        return
    for worker in workers:
        pid = getattr(worker, "pid", None)
        if pid is not None:
            with open(os.path.join(RECORDER.directory, f"{pid}.loader"), "w", encoding="ascii") as out:
                out.write(str(log.number))


def start_method(loader: Any) -> str:
    """How its workers are started."""
    context = getattr(loader, "multiprocessing_context", None) or sys.modules["multiprocessing"]
    return str(context.get_start_method())


def first_batch(number: int, step: int, batch: Any) -> bool:
    """Notes what the batches of a loader look like."""
    shapes: list[str] = []
    total = [0, 0, False]

    def look(value: Any, depth: int) -> None:
        if depth > 8 or total[0] >= 1000:
            return
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is not None and dtype is not None and not isinstance(value, type):
            total[0] += 1
            total[1] += int(getattr(value, "nbytes", 0) or 0)
            pinned = getattr(value, "is_pinned", None)
            if pinned is not None and "torch.cuda" in sys.modules and not total[2]:
                initialised = getattr(sys.modules["torch.cuda"], "is_initialized", None)
                total[2] = bool(initialised is not None and initialised() and pinned())
            if len(shapes) < 50:
                shapes.append(f"{str(dtype).rpartition('.')[2]}{list(map(int, shape))}")
        elif isinstance(value, dict) or hasattr(value, "keys"):
            for key in list(value.keys()):
                look(value[key], depth + 1)
        elif isinstance(value, (list, tuple)):
            for item in value:
                look(item, depth + 1)

    look(batch, 0)
    RECORDER.emit(
        "batch", loader=number, tensors=total[0], bytes=total[1], shapes=shapes, pinned=bool(total[2])
    )
    return True


# Changes that are tried.


def replaced(
    signature: inspect.Signature, loader: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The constructor's arguments with those that are to be tried in place of the script's; only what torch takes."""
    try:
        bound = signature.bind(loader, *args, **kwargs)
    except TypeError:
        return args, kwargs  # torch says it better.
    given = bound.arguments
    wanted = {name: value for name, value in CONTROL.loader.items() if name in signature.parameters}
    before = given.get("num_workers", 0) or 0
    if not isinstance(before, int):
        before = 1
    workers = wanted.get("num_workers", before)
    if iterates(given.get("dataset")) and before <= 1 < workers:
        # Each worker would give the whole data set, unless it was written for several: that cannot be known.
        workers = before
    wanted["num_workers"] = workers
    for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
        if workers == 0:
            # torch refuses them without workers.
            given.pop(name, None)
            wanted.pop(name, None)
    given.update(wanted)
    return bound.args[1:], bound.kwargs


def iterates(dataset: Any) -> bool:
    """Whether torch would take it for a data set of the iterable kind."""
    module = sys.modules.get("torch.utils.data.dataset")
    kind = getattr(module, "IterableDataset", None)
    return kind is not None and isinstance(dataset, kind)
