"""How a loader is run: natively, partly natively, or in Python; with the reason for each part.

Invariant: `lower` never fails and never changes what a loader gives. What it does not know is Python, and `Plan.lines`
says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, default_convert

from wellfed._cores import engine_threads
from wellfed._options import Options, left_to
from wellfed._several import budget_of_each
from wellfed.dataset import Dataset
from wellfed.exceptions import WellfedError

from . import hugging_stream, litdata, mosaic, several, webdataset
from .collated import Batch, stacks
from .datasets import Flat, Leaf, Pixels, flatten
from .engine import accepts_for, mapped, memory_of, source_of, unread
from .forms import Chain, Line, Refusal, RefusalError, name_of
from .hugging_stream import RowStream
from .hybrid import Hybrid
from .joint import Boxes
from .left import Left, kept
from .lookups import Lookups
from .mixing import Mixing, mixing_of, only_stacks
from .native import NativeIterator, NativeSource, TensorIterator, labels_of
from .shards import Examples, Shards, ShardStream, flat_of, lookups_of, read_alike
from .sounds import FORMATS as FORMATS_OF_SOUNDS
from .spectra import is_sound
from .stream import Stream, StreamIterator, stream_of
from .tensors import Rows
from .together import puts_together
from .transforms import leaves_size_open, lower_leaf
from .users import NO_IMAGE, Layout

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from .._resume import Resume

__all__ = ["LoaderView", "Plan", "lower"]

_OF_ENGINE = ("num_threads", "memory_budget", "on_error", "on_device", "device", "float_dtype")
"""Arguments of loaders that the engine's loaders depend on."""
Kind = Literal["native", "tensors", "hybrid", "python"]
Lines = list[tuple[str, Line]]


@dataclass
class Plan:
    """What was decided for a loader.

    Attributes:
        kind: ``"native"``: batches come from the engine. ``"tensors"``: whole batches of rows. ``"hybrid"``: samples
            come from `dataset`, whose images are made natively. ``"python"``: nothing is native.
        dataset: What workers (or the loader itself) take samples from, where batches do not come natively.
        lines: What became of each part, by section.
    """

    kind: Kind
    dataset: Any
    lines: Lines
    native_source: NativeSource | None = None
    rows: Rows | Lookups | None = None
    stream: Stream | RowStream | ShardStream | None = None
    shards: Shards | None = None
    flat: Flat | None = None
    chains: list[Chain] = field(default_factory=list)
    key: list[Any] = field(default_factory=list)
    refusal: Refusal | None = None

    def iterator(self, loader: DataLoader[Any], resume: Resume | None = None) -> Iterator[Any] | None:
        """An epoch of finished batches for the loader it was made for, or what is left of one after `resume`.

        None where Python has to collate samples of `dataset`.
        """
        if self.native_source is not None:
            return NativeIterator(loader, self.native_source, resume)
        if self.stream is not None:
            return StreamIterator(loader, self.stream, resume)
        if self.rows is not None:
            return TensorIterator(loader, self.rows, resume)
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        # A loader may be pickled; what was decided for it is decided anew where it arrives.
        return _undecided, ()


def _undecided() -> None:
    """What becomes of a plan elsewhere."""


class LoaderView:
    """A loader that takes samples from another data set: everything else is read from the loader.

    Args:
        loader: The loader.
        dataset: The data set in place of its own.
    """

    def __init__(self, loader: DataLoader[Any], dataset: Any) -> None:
        self.loader = loader
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name in ("loader", "dataset"):  # not there yet, or not any more
            raise AttributeError(name)
        return getattr(self.loader, name)


def lower(loader: DataLoader[Any], before: Plan | None = None, native: bool = True) -> Plan:
    """How `loader` is run. Takes no time where nothing has changed, so it is asked before every epoch.

    Args:
        loader: With all its arguments.
        before: What was decided last time; given back if it still holds.
        native: False keeps everything in Python.
    """
    dataset = loader.dataset
    if not native:
        return _python(dataset, "native=False was given", "leave native=False out")
    if isinstance(dataset, IterableDataset):
        return _of_stream(loader, before)
    if isinstance(dataset, Dataset):
        why = "its samples are made one by one, since torch's sampler gives their order"
        return _python(dataset, why, _pipeline(loader))
    if before is not None and before.refusal is not None and before.refusal.holds(dataset):
        return before
    try:
        rows = Rows(dataset)
    except RefusalError as refused:
        if refused.why != "no TensorDataset":
            return _python(dataset, refused.why, refused.change)
    else:
        return _of_tensors(loader, rows)
    try:
        known = before is not None and before.flat is not None and before.flat.current(dataset)
        flat = before.flat if known and before is not None and before.flat is not None else flatten(dataset)
        if known:
            _refresh(flat)
        chains = [lower_leaf(leaf, accepts_for(leaf)) for leaf in flat.leaves]
        key: list[Any] = [dataset, loader.collate_fn, loader.batch_sampler, loader.batch_size]
        key += [getattr(loader, name, None) for name in _OF_ENGINE]
        mixing = _mixing(loader)
        # A collate function looks its names up anew at each call.
        key += [None if mixing is None else mixing.transform, only_stacks(loader.collate_fn)]
        key += [_stacked(loader, flat)]
        if known and before is not None and chains == before.chains and _same(key, before.key):
            return before
        plan = _decide(loader, flat, chains)
    except RefusalError as refused:
        # Not the error itself: with its traceback it would keep the loader alive.
        why, change, refusal = refused.why, refused.change, refused.refusal
        if NO_IMAGE in why:
            try:
                return _of_lookups(loader, before)
            except RefusalError as other:
                why, change = other.why, other.change
        plan = _python(dataset, why, change)
        plan.refusal = refusal
        return plan
    plan.flat, plan.chains, plan.key = flat, chains, key
    return plan


def _of_lookups(loader: Any, before: Plan | None) -> Plan:
    """A loader whose batches are made in no time in the calling thread.

    Raises:
        RefusalError: It is none.
    """
    if not loader._auto_collation:
        raise RefusalError("Python code, called for one sample at a time")
    if loader.on_error != "raise":
        raise RefusalError("Python code, whose errors are looked at sample by sample")
    if not _is_harmless(loader.worker_init_fn):
        raise RefusalError("Python code, which worker_init_fn may change")
    if before is not None and isinstance(before.rows, Lookups) and before.rows.current(loader):
        return before
    lookups = Lookups(loader)
    line = Line(_name(loader.dataset), True, "samples are looked up and put together in the calling thread")
    return Plan("tensors", loader.dataset, [("data", line)], rows=lookups)


def _of_stream(loader: Any, before: Plan | None) -> Plan:
    """A loader over an iterable data set."""
    if hugging_stream.is_known(loader.dataset):
        return _of_rows(loader, before)
    for library in (mosaic, litdata):
        if library.is_known(loader.dataset):
            return _of_shards(loader, before, library.read)
    if not webdataset.is_known(loader.dataset):
        return _python(loader.dataset, "an iterable data set is Python code", "")
    try:
        known = before.stream if before is not None and isinstance(before.stream, Stream) else None
        stream = stream_of(loader, webdataset.read(loader.dataset), known)
    except RefusalError as refused:
        return _python(loader.dataset, refused.why, refused.change)
    return Plan("native", loader.dataset, stream.lines(), stream=stream)


def _of_rows(loader: Any, before: Plan | None) -> Plan:
    """A loader over an iterable data set whose rows lie in Arrow tables."""
    dataset = loader.dataset
    key: list[Any] = [loader.collate_fn, loader.batch_size, loader.worker_init_fn]
    key += [getattr(loader, name, None) for name in _OF_ENGINE]
    if before is not None and isinstance(before.stream, RowStream) and before.stream.current(dataset, key):
        return before
    if loader.on_error != "raise":
        return _python(dataset, "errors of an iterable data set are looked at one by one", "")
    try:
        iterated = hugging_stream.read(dataset)
        examples, flat = hugging_stream.flat_of(iterated)
        chains = [lower_leaf(leaf, accepts_for(leaf)) for leaf in flat.leaves]
        plan = _decide(cast(Any, LoaderView(loader, examples)), flat, chains)
    except RefusalError as refused:
        return _python(dataset, refused.why, refused.change)
    native, lines = plan.native_source, plan.lines
    if native is None:
        return Plan("python", dataset, [_in_python(line) for line in lines])
    if native.mixing is not None:
        return _python(dataset, f"collate_fn {name_of(loader.collate_fn)} is Python code", "")
    lines[0] = ("data", Line(_name(dataset), True, lines[0][1].why))
    stream = RowStream(iterated, flat, native, lines, key)
    return Plan("native", dataset, stream.lines(), stream=stream)


class _Plain(LoaderView):
    """A loader over the samples of shards by number, without what the library's loader puts around `collate_fn`."""

    def __init__(self, loader: Any, dataset: Any) -> None:
        super().__init__(loader, dataset)
        self.collate_fn = litdata.plain_collate(loader.collate_fn)


def _of_shards(loader: Any, before: Plan | None, read: Callable[[Any], Shards]) -> Plan:
    """A loader over an iterable data set whose samples lie in shards."""
    dataset = loader.dataset
    key: list[Any] = [loader.collate_fn, loader.batch_size, loader.worker_init_fn, loader.num_workers]
    key += [getattr(loader, name, None) for name in _OF_ENGINE]
    # A collate function looks its names up anew at each call.
    key.append(only_stacks(litdata.plain_collate(loader.collate_fn)))
    if loader.on_error != "raise":
        return _python(dataset, "errors of an iterable data set are looked at one by one", "")
    if not _is_harmless(loader.worker_init_fn):
        return _python(
            dataset, "worker_init_fn may change the data set of a worker", "leave worker_init_fn out"
        )
    known: Flat | None = None
    try:
        shards = read(dataset)
        if before is not None and before.shards is not None and before.shards.same(shards):
            refused_still = before.refusal is not None and before.refusal.holds(dataset)
            if refused_still and _same(key, before.key):
                return before
            if isinstance(before.stream, ShardStream) and before.stream.current(shards, key):
                leaves = [] if before.flat is None else before.flat.leaves
                if [lower_leaf(leaf, accepts_for(leaf)) for leaf in leaves] == before.chains:
                    return before
            known = before.flat if before.flat is not None and read_alike(before.flat) else None
        view = cast(Any, _Plain(loader, Examples(shards)))
        try:
            flat = known if known is not None else flat_of(shards)
        except RefusalError as refused:
            if refused.why != NO_IMAGE:
                raise
            return _of_values(view, shards, key)
        chains = [lower_leaf(leaf, accepts_for(leaf)) for leaf in flat.leaves]
        plan = _decide(view, flat, chains)
    except WellfedError as error:
        return _python(dataset, str(error).partition("\n")[0], "")
    except RefusalError as refused:
        plan = _python(dataset, refused.why, refused.change)
        plan.refusal, plan.key = refused.refusal, key
        plan.shards = None if refused.refusal is None else shards
        return plan
    native, lines = plan.native_source, plan.lines
    lines[0] = ("data", replace(lines[0][1], part=_name(dataset)))
    if native is None:
        in_python = [_in_python(line) for line in lines]
        return Plan("python", dataset, in_python, shards=shards, flat=flat)
    if native.mixing is not None:
        return _python(dataset, f"collate_fn {name_of(loader.collate_fn)} is Python code", "")
    why_not = native.tried()
    if why_not:
        return Plan(
            "python", dataset, [("data", Line(_name(dataset), False, why_not))], shards=shards, flat=flat
        )
    readings = [leaf.reading for leaf in flat.leaves if leaf.reading is not None]
    stream = ShardStream(shards, readings, native, lines, key)
    lines = stream.lines()
    return Plan("native", dataset, lines, stream=stream, shards=shards, flat=flat, chains=chains)


def _of_values(loader: Any, shards: Shards, key: list[Any]) -> Plan:
    """The same of samples without images.

    Raises:
        RefusalError: They are left to worker processes.
    """
    if not only_stacks(loader.collate_fn):
        raise RefusalError(f"collate_fn {name_of(loader.collate_fn)} is Python code")
    native, reading = lookups_of(shards, loader)
    why = "samples are looked up and put together in the calling thread"
    stream = ShardStream(shards, [reading], native, [("data", Line(_name(shards.dataset), True, why))], key)
    return Plan("tensors", shards.dataset, stream.lines(), stream=stream, shards=shards)


def _pipeline(loader: Any) -> str:
    """What gives batches of a data set of wellfed as this loader does, but for the seed of the order."""
    try:
        loader.dataset.batch(loader.batch_size or 0)
    except (WellfedError, ValueError):
        return "its own torch() in place of the loader"
    shuffle = ".shuffle(seed=0)" if isinstance(loader.sampler, RandomSampler) else ""
    drop_last = ", drop_last=True" if loader.drop_last else ""
    return f"the data set's own verbs in place of the loader: {shuffle}.batch({loader.batch_size}{drop_last}).torch()"


def _same(one: list[Any], other: list[Any]) -> bool:
    return all(a is b for a, b in zip(one, other, strict=True))


def _refresh(flat: Flat) -> None:
    from .hybrid import transform_of

    for leaf in flat.leaves:
        leaf.transform = transform_of(leaf)


def _python(dataset: Any, why: str, change: str, more: Lines | None = None) -> Plan:
    lines: Lines = [("data", Line(_name(dataset), False, why, change)), *(more or [])]
    return Plan("python", dataset, lines)


def _name(dataset: Any) -> str:
    return type(dataset).__name__


def _collates_stock(loader: Any) -> Line | None:
    """None if batches are collated by torch's own function; else the line about it."""
    batched = loader._auto_collation
    if only_stacks(loader.collate_fn) if batched else loader.collate_fn is default_convert:
        return None
    # No advice to leave it out: that would leave out what it does.
    return Line(
        f"collate_fn {name_of(loader.collate_fn)}", False, "Python code, called on the samples of a batch"
    )


def _stacked(loader: Any, flat: Flat) -> Batch | None:
    """What a collate function that is not torch's makes of stacked samples; None if it does anything else."""
    leaf = flat.leaves[0] if flat.leaves else None
    if leaf is None or not loader._auto_collation or puts_together(loader.collate_fn):
        return None
    if leaf.reading is None:
        plain = leaf.table is None and leaf.follows is None
        return stacks(loader.collate_fn, "tuple", (0, 1), 0) if plain else None
    layout = leaf.reading.layout
    if not isinstance(layout, Layout) or layout.kind == "alone" or layout.image not in layout.keys:
        return None
    return stacks(loader.collate_fn, layout.kind, layout.keys, layout.image)


def _left(leaf: Leaf) -> bool:
    """Whether samples have other images, which only their collate function may leave out."""
    layout = None if leaf.reading is None else leaf.reading.layout
    return isinstance(layout, Layout) and bool(layout.left)


def _of_classes(flat: Flat) -> bool:
    """Whether all that stands beside images is whole numbers."""
    readings = [leaf.reading for leaf in flat.leaves]
    if any(reading is None for reading in readings):
        labels = labels_of(flat.leaves)
        return labels is not None and labels.dtype == torch.int64
    return all(
        isinstance(values, np.ndarray) and values.dtype == np.int64
        for reading in readings
        if reading is not None
        for values in reading.layout.others
    )


def _mixing(loader: Any) -> Mixing | None:
    """What happens to batches that are stacked as torch stacks them."""
    return mixing_of(loader.collate_fn) if loader._auto_collation else None


def _of_tensors(loader: Any, rows: Rows) -> Plan:
    dataset = loader.dataset
    line = Line(_name(dataset), True, "whole batches are gathered at once, in the calling thread")
    custom = _collates_stock(loader)
    if custom is not None:
        return Plan(
            "python", dataset, [("data", _stays(line, "samples are collated in Python")), ("collate", custom)]
        )
    if not loader._auto_collation:
        return _python(dataset, "without a batch size there is nothing to gather", "batch_size=...")
    if loader.num_workers > 0 and loader.worker_init_fn is not None:
        return _python(
            dataset, "worker_init_fn runs in workers, so there are some", "leave worker_init_fn out"
        )
    return Plan("tensors", dataset, [("data", line)], rows=rows)


def _untouched(leaf: Leaf, chain: Chain) -> bool:
    """Whether the engine would only hand on pixels: a Pillow image is made of them in half the time without it."""
    return isinstance(leaf.content, Pixels) and not chain.native and chain.form.kind == "pil"


def _stays(line: Line, why: str) -> Line:
    return Line(line.part, False, why, "")


# What the engine reads of files by their names.
_FORMATS = "JPEG, PNG, GIF, PPM or WebP"


def _formats(flat: Flat) -> str:
    return FORMATS_OF_SOUNDS if any(is_sound(leaf.form) for leaf in flat.leaves) else _FORMATS


def _decide(loader: Any, flat: Flat, chains: list[Chain]) -> Plan:
    dataset = loader.dataset
    lines: Lines = []
    for leaf, chain in zip(flat.leaves, chains, strict=True):
        where = "" if len(flat.leaves) == 1 else f"{_name(leaf.dataset)}: "
        lines += [
            ("transform", Line(where + line.part, line.native, line.why, line.change)) for line in chain.lines
        ]
        if leaf.target_transform is not None:
            part = f"{where}target_transform {name_of(leaf.target_transform)}"
            lines.append(("target", Line(part, False, "called on each label, in the calling process")))
    custom = _collates_stock(loader)
    if custom is not None and _together(loader):
        custom = Line(custom.part, True, "called on the samples of a batch, in the calling process")
    mixing = _mixing(loader)
    stacked = None if custom is None or mixing is not None else _stacked(loader, flat)
    if custom is not None:
        lines.append(("collate", custom))

    if stacked is None and any(_left(leaf) for leaf in flat.leaves):
        return _python(dataset, "its samples have several images", "", [_in_python(line) for line in lines])
    foreign, files = sum(map(unread, flat.leaves)), sum(len(leaf) for leaf in flat.leaves)
    if flat.length == 0 or 2 * foreign > files:
        formats = _formats(flat)
        why = (
            "it is empty"
            if not flat.length
            else f"{foreign} of {files} files have other formats than {formats}"
        )
        return _python(
            dataset, why, f"files of {formats}" if flat.length else "", [_in_python(line) for line in lines]
        )

    theirs = custom if mixing is None and stacked is None else None
    obstacle = _obstacle(loader, flat, chains, theirs, foreign)
    if obstacle is None and stacked is not None:
        # torch.stack takes tensors only, where default_collate takes arrays as well.
        taken = chains[0].form.kind in ("tensor", "image", "waveform", "mono", "spectrum") or stacked.arrays
        fits = stacked.dtype in (None, chains[0].form.dtype)
        obstacle = None if taken and fits and _of_classes(flat) else custom
    if obstacle is None and mixing is not None:
        obstacle = _unmixed(flat, chains)
    if obstacle is None:
        try:
            native_source = _native_source(loader, flat, chains[0])
        except (RefusalError, WellfedError) as e:
            obstacle = Line(_name(dataset), False, str(e).partition("\n")[0])
        else:
            # What sounds are is not known by the names of their files.
            why_not = native_source.tried() if is_sound(chains[0].form) else ""
            if why_not:
                return _python(dataset, why_not, "", [_in_python(line) for line in lines])
            if stacked is not None and custom is not None:
                native_source.put = stacked
                lines = [*lines[:-1], ("collate", Line(custom.part, True, "stacked by the engine"))]
            if mixing is not None and custom is not None:
                who = name_of(mixing.transform)
                why = f"stacked by the engine; torchvision's {who} mixes finished batches, in the calling process"
                if native_source.mixes:
                    why = f"stacked and mixed by the engine, with what torchvision's {who} draws"
                lines = [*lines[:-1], ("collate", Line(custom.part, True, why))]
            what = "read" if isinstance(flat.leaves[0].content, Pixels) else "decoded"
            known = "" if flat.leaves[0].reading is None else ", as its source says"
            return Plan(
                "native",
                dataset,
                [("data", Line(_name(dataset), True, f"{what} by the engine{known}")), *lines],
                native_source=native_source,
            )
    if flat.leaves[0].table is not None:
        return _python(dataset, obstacle.why or obstacle.part, obstacle.change)
    if any(isinstance(leaf.reading and leaf.reading.layout, several.Sample) for leaf in flat.leaves):
        part = f"{obstacle.part}: " if obstacle.part != _name(dataset) else ""
        return _python(
            dataset, f"{part}{obstacle.why}", obstacle.change, [_in_python(line) for line in lines]
        )
    if all(map(_untouched, flat.leaves, chains)):
        why = "its pixels lie in memory, and go to Python as they are"
        return _python(dataset, why, "", [_in_python(line) for line in lines])
    if any(chain.form.mode == "any" for chain in chains):
        why = "Python is given images of the mode of their file, grey or colour"
        change = obstacle.change or "v2.RGB() as the first transform"
        return _python(dataset, why, change, [_in_python(line) for line in lines])
    try:
        for leaf in flat.leaves:
            source_of([leaf])
    except (RefusalError, WellfedError) as e:
        return _python(dataset, str(e).partition("\n")[0], "", [_in_python(line) for line in lines])
    made = "sounds" if is_sound(chains[0].form) else "images"
    note = f"{made} are made by the engine one by one, in worker processes if there are any"
    head = [("data", Line(_name(dataset), True, note))]
    if obstacle.part not in (line.part for _, line in lines):
        head.append(("batches", obstacle))
    return Plan("hybrid", Hybrid(dataset), [*head, *lines])


def _in_python(line: tuple[str, Line]) -> tuple[str, Line]:
    section, of = line
    return section, of if not of.native else _stays(of, "its data set is read in Python")


def _obstacle(loader: Any, flat: Flat, chains: list[Chain], custom: Line | None, foreign: int) -> Line | None:
    """What keeps batches from being made by the engine alone; None if nothing does."""
    for chain in chains:
        if chain.suffix:
            return next(line for line in chain.lines if not line.native)
    together = custom is not None and custom.native
    if custom is not None and not together:
        return custom
    if together and flat.leaves[0].table is not None:
        return Line("rows", False, "rows of a table are put together in Python")
    if flat.leaves[0].table is not None and not loader._auto_collation:
        return Line("rows", False, "without a batch size there are no batches", "batch_size=...")
    first = chains[0]
    if any(chain.native != first.native or chain.form != first.form for chain in chains):
        return Line("ConcatDataset", False, "its parts have different transforms", "give all parts the same")
    if any(chain.outcome != first.outcome for chain in chains):
        return Line("ConcatDataset", False, "its parts have different targets", "give all parts the same")
    if not together and any(isinstance(leaf.follows, Boxes) for leaf in flat.leaves):
        why = "images differ in the number of their boxes, which cannot be stacked"
        return Line("boxes", False, why, "collate_fn=lambda batch: tuple(zip(*batch))")
    layouts = {None if leaf.reading is None else leaf.reading.layout.form for leaf in flat.leaves}
    if len(layouts) > 1:
        return Line("ConcatDataset", False, "samples of its parts differ in what they hold")
    if flat.leaves[0].reading is not None and not _is_harmless(loader.worker_init_fn):
        why = "worker_init_fn may change the data set of a worker"
        return Line("worker_init_fn", False, why, "leave worker_init_fn out")
    form = first.form
    if several.are_pillow(first):
        return Line("images", False, "other images of a sample are Pillow images, which cannot be stacked")
    if form.kind == "pil" or form.mode == "any":
        return Line(
            "images", False, "samples are Pillow images, which cannot be stacked", "v2.ToImage() at the end"
        )
    if foreign:
        return Line(
            "files",
            False,
            f"{foreign} files have other formats than {_formats(flat)}; Python reads those",
            f"files of {_formats(flat)}",
        )
    if not together and not several.sized(chains[0]):
        return Line("masks", False, "masks or other images may differ in size", "Resize((h, w)) on both")
    if not together and not form.sized and any(map(leaves_size_open, first.native)):
        why = "images differ in size, which cannot be stacked"
        return Line("images", False, why, "collate_fn=lambda batch: tuple(zip(*batch)), or a crop")
    # Of sounds the engine gives a list, which is stacked behind it.
    if is_sound(form):
        return None
    if not together and not form.sized and (loader.batch_size == 1 or not _plain_batches(loader)):
        return Line("batches", False, "sizes may differ from batch to batch", "Resize((h, w)) or a crop")
    return None


def _is_harmless(worker_init_fn: Any) -> bool:
    """Whether a function that workers begin with only seeds generators, from which no sample here draws."""
    function = worker_init_fn.func if isinstance(worker_init_fn, partial) else worker_init_fn
    if function is None or _is_timms(function, worker_init_fn):
        return True
    if type(function) is not FunctionType or function.__closure__:
        return False
    code = function.__code__
    nested = any(isinstance(constant, CodeType) for constant in code.co_consts)
    return not nested and set(code.co_names) <= _OF_SEEDING


def _is_timms(function: Any, given: Any) -> bool:
    """Whether it is what timm's `create_loader` gives workers: it seeds generators, unless it is given a function."""
    own = getattr(sys.modules.get("timm.data.loader"), "_worker_init", None)
    if own is None or function is not own or function.__module__ != "timm.data.loader":
        return False
    if not isinstance(given, partial):
        return True
    named = given.keywords
    return (
        not given.args and named.keys() <= {"worker_seeding"} and all(type(v) is str for v in named.values())
    )


_OF_SEEDING = frozenset(
    [
        *("np", "numpy", "random", "torch", "cuda", "cv2", "int", "hash", "setNumThreads", "set_num_threads"),
        *("seed", "initial_seed", "manual_seed", "manual_seed_all", "worker_id"),
    ]
)
"""Names in functions that seed generators."""


def _unmixed(flat: Flat, chains: list[Chain]) -> Line | None:
    """What keeps batches from being mixed after the engine has made them: only images and labels are."""
    pairs = all(leaf.reading is None or leaf.reading.layout.is_pair for leaf in flat.leaves)
    if any(is_sound(leaf.form) for leaf in flat.leaves):
        return Line("batches", False, "a collate function mixes sounds")
    if flat.leaves[0].table is not None or not pairs or any(chain.outcome is not None for chain in chains):
        return Line("batches", False, "a collate function mixes what is not images and labels")
    if any(chain.form.crops for chain in chains):
        return Line("batches", False, "a collate function mixes several crops of an image")
    return None


def _together(loader: Any) -> bool:
    """Whether batches are samples side by side."""
    return loader._auto_collation and puts_together(loader.collate_fn)


def _plain_batches(loader: Any) -> bool:
    return type(loader.batch_sampler) is BatchSampler


def _native_source(loader: Any, flat: Flat, chain: Chain) -> NativeSource:
    memory = memory_of(flat.leaves)
    source = mapped(flat.leaves, chain, memory)
    options: Options = {
        "num_workers": engine_threads(getattr(loader, "num_threads", None)),
        "memory_budget": getattr(loader, "memory_budget", None),
    }
    source = source.with_options(layout=chain.form.layout)
    others = several.others_of(flat.leaves, chain)
    if others:
        options["memory_budget"] = budget_of_each(source, options["memory_budget"], 1 + len(others))
    source = source.with_options(**options)
    others = [other.with_options(**options) for other in others]
    left, why = None, ""
    if getattr(loader, "on_device", "copy") != "copy":
        assembled = bool(others) or several.have_parts(flat.leaves)
        why = kept(loader, chain, _together(loader), assembled)
        if not why:
            source = left_to(source, loader.device, loader.on_device)
            left = Left(loader)
    native_source = NativeSource(flat, source, loader, chain, memory, others, left, why)
    # What the engine has to say against it, it says here.
    native = native_source.acquire()
    native_source.mixes = native_source.mixed_size(native) is not None
    native_source.release(native)
    if left is not None and native_source.mixing is not None and not native_source.mixes:
        native_source.left = None
        native_source.kept = "finished batches are mixed by a collate function, in the calling process"
    return native_source
