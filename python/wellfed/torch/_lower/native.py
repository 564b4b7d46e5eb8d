"""The iterator over the engine, and over rows of tensors: torch's protocol, finished batches.

Invariant: batch `i` has the samples that the stock loader's batch `i` has, in the same structure, and where the engine
cannot make a batch, the data set itself does, or raises what it would have raised.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import default_collate, default_convert

import wellfed as wf
from wellfed._loader import timed, torch_converter
from wellfed._several import Loaders

from .._bad import BadSamples
from .._fetch import MapFetcher, note
from .._left import LeftImages
from .._order import sees_nothing
from .._private import profiling
from .._progress import AheadProgress, InlineProgress, Place
from .._schema import SAMPLES
from .._state import Tracked
from .datasets import Flat, Leaf
from .engine import Memory
from .forms import Chain
from .hugging import Table
from .joint import Boxes, Lazy
from .left import Left
from .mixing import Drawn, mixing_of
from .several import Assembly, have_parts
from .tensors import Rows
from .together import puts_together
from .users import Columns, Layout

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from .._resume import Resume
    from .lookups import Lookups

__all__ = [
    "PASSED_ON",
    "EngineLoaders",
    "NativeIterator",
    "NativeSource",
    "TensorIterator",
    "Unprofiled",
    "labels_of",
]

# What the data set itself may still be able to make, or should report in its own words.
PASSED_ON = (
    wf.CorruptSampleError,
    wf.LimitExceededError,
    wf.NotFoundError,
    wf.ShapeError,
    wf.StorageError,
)


class Unprofiled(Tracked):
    """Without what only a profiler needs: with small batches that takes longer than the batch."""

    def __next__(self) -> Any:
        if profiling():
            return super().__next__()
        try:
            data = self._next_data()
        except StopIteration:
            self._progress.finish()
            raise
        self._num_yielded += 1
        return data


class TensorIterator(Unprofiled):
    """Batches of `rows`."""

    _progress: InlineProgress

    def __init__(self, loader: Any, rows: Rows | Lookups, resume: Resume | None = None) -> None:
        super().__init__(loader, resume)
        self._rows = rows
        self._progress = InlineProgress(self, loader, resume)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            self._progress = InlineProgress(self, loader, None)

    def _next_data(self) -> Any:
        self._sampler_iter.arrays = True
        batch = self._rows.batch(self._next_index())
        self._progress.yielded()
        return batch


class EngineLoaders:
    """Loaders of the engine over one data set of it; iterators that live at the same time have one each."""

    def __init__(self, source: wf.Dataset, others: Sequence[wf.Dataset] = ()) -> None:
        self._source, self._others = source, others
        self._idle: list[Any] = []
        self._process: int | None = None
        self._lists = False
        """Whether images of a batch lie side by side, and may differ in size."""
        self.left: Left | None = None
        """What a device does of images."""

    def acquire(self) -> Any:
        """A loader of the engine that no other iterator uses."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        if self._idle:
            return self._idle.pop()
        sources: list[Any] = [source._native for source in (self._source, *self._others)]
        if self.left is not None:
            return self.left.opened(sources[0])
        loaders = [source.loader_given(self._lists) for source in sources]
        return Loaders(loaders) if len(loaders) > 1 else loaders[0]

    def release(self, native: Any) -> None:
        """Gives it back."""
        if self.left is not None:
            self.left.over(native)
        if self._process == os.getpid() and not self._idle:
            self._idle.append(native)
        else:
            native.close()


class NativeSource(EngineLoaders):
    """What batches are made from: the engine's loaders, labels, and the data set for what the engine cannot.

    One belongs to a loader; iterators of it that live at the same time have a loader of the engine each.

    Args:
        flat: The data set, recognized.
        source: The engine's data set of its rows, transformed.
        loader: Whose data set and collate function it is.
        chain: What images become, and masks, if they move with them.
        memory: That of its arrays, if it has some.
        others: Data sets of other images of the same rows.
        left: What a device does of images, if it does something.

    Attributes:
        kept: Why a device may do nothing of images.
    """

    def __init__(
        self,
        flat: Flat,
        source: wf.Dataset,
        loader: DataLoader[Any],
        chain: Chain,
        memory: Memory | None = None,
        others: Sequence[wf.Dataset] = (),
        left: Left | None = None,
        kept: str = "",
    ) -> None:
        self._memory = memory
        self.rows = flat.rows
        self.length = flat.length
        super().__init__(source, others)
        self.left, self.kept = left, kept
        self._batched: bool = loader._auto_collation
        self._fetcher = MapFetcher(loader.dataset, self._batched, loader.collate_fn, loader.drop_last)
        self._fetcher.on_error = getattr(loader, "on_error", "raise")
        self._bad = getattr(loader, "_bad", None) or BadSamples()
        self._table = flat.leaves[0].table
        self._form, self._outcome = chain.form, chain.outcome
        self._leaves, self._starts = flat.leaves, flat.starts
        self._together = self._batched and puts_together(loader.collate_fn)
        # Where images are put side by side, they may differ in size.
        self._lists = self._together and not chain.form.sized
        self.mixing = mixing_of(loader.collate_fn) if self._batched else None
        # What a collate function makes of stacked values, if it is not torch's own.
        self.put: Callable[[Any], Any] = _as_they_are
        self._assembly = None
        if have_parts(flat.leaves):
            self._assembly = Assembly(flat.leaves, self._starts, chain, self._batched)
        readings = [leaf.reading.layout for leaf in flat.leaves if leaf.reading is not None]
        layouts = [layout for layout in readings if isinstance(layout, Layout)]
        self._columns = Columns(layouts, self._starts, self._batched) if layouts else None
        self.mixes = False
        """Whether the engine mixes batches, and not the calling thread."""
        self._classes: int | None = None
        """Labels are whole numbers from 0 to below this."""
        labels = None
        if self._columns is not None:
            labels = self._columns.labels
        elif self._outcome is None and self._assembly is None:
            labels = labels_of(flat.leaves) if self._batched and self._table is None else None
            self._targets = (
                _targets(flat.leaves, self._batched, labels) if self._table is None else _columns(self._table)
            )
        if labels is not None and labels.dtype == torch.int64 and len(labels) and labels.min() >= 0:
            self._classes = int(labels.max()) + 1
        self.convert = torch_converter()
        self.in_python = 0

    def tried(self) -> str:
        """What the engine has to say against samples such as the first, a middle and the last one."""
        for index in sorted({0, self.length // 2, self.length - 1}):
            row = index if self.rows is None else int(self.rows[index])
            try:
                self._source._native.sample(row, 0)
            except wf.WellfedError as error:
                return f"sample {index}: {str(error).partition(chr(10))[0]}"
        return ""

    def refresh(self) -> None:
        """An epoch begins: arrays may have been changed in place."""
        if self._memory is not None:
            self._memory.refresh()

    def mixed_size(self, native: Any) -> tuple[int, int, int] | None:
        """Channels, height and width of images that a loader of the engine mixes; None if that is not its task."""
        size: Any = native.image_size if self.left is None else self.left.size or native.image_size
        classes = self._classes
        if self.mixing is None or self._form.layout != "NCHW" or size is None or classes is None:
            return None
        return tuple(size) if self.mixing.fits(self._form.dtype, classes) else None

    @property
    def leaves(self) -> bool:
        """Whether images are left to a device."""
        return self.left is not None and self.left.size is not None

    def taken(self, native: Any) -> Callable[[], Any]:
        """What takes the next batch of a loader of the engine, which begins an epoch."""
        take: Callable[[], Any] = native.next
        if self.left is None:
            return take
        self.left.begin(native)
        return take if self.left.share is None else timed(take, self.left.share.note)

    def locate(self, given: Any) -> Any:
        """Rows of the indices of a batch; None if the data set itself has to see them."""
        try:
            indices = np.asarray(given if self._batched else [given])
        except (TypeError, ValueError):
            return None
        if indices.ndim != 1 or indices.size == 0 or indices.dtype.kind not in "iu":
            return None
        if indices.min() < 0 or indices.max() >= self.length:
            return None
        if (self._columns is not None or self._assembly is not None) and not _are_plain(given):
            return None  # it may become a part of the sample
        indices = indices.astype(np.int64, copy=False)
        return indices if self.rows is None else self.rows[indices]

    def finish(self, columns: list[Any], rows: Any, given: Any) -> Any:
        """Images with what belongs to them, as the collate function puts it."""
        if self._together:
            return self._side_by_side(columns, rows, given)
        if self._assembly is not None:
            try:
                return self._assembly.batch([*map(self.convert, columns)], rows)
            except Exception as error:  # The data set may expect it, or says more of it.
                return self.make_in_python(given, error)
        left = None if self.left is None else self.left.images(columns[0])
        image: Any = self.convert(columns[0]) if left is None else left
        if isinstance(image, list) and self._batched:
            # Sounds that may differ in length.
            try:
                image = torch.stack(image)
            except RuntimeError as error:
                return self.make_in_python(given, error)
        if self._outcome is not None:
            masks = self._outcome.build_mask(self.convert(columns[1]))
            if self._batched:
                return [image, masks]
            return [self._form.build(image[0]), self._outcome.wrap_mask(masks[0])]
        if self._table is not None:
            beside = self._targets(rows)
            return {
                name: image if name == self._table.image else beside[name] for name in self._table.columns
            }
        if self._columns is not None:
            try:
                return self.put(
                    self._columns.batch(image if self._batched else self._form.build(image[0]), rows)
                )
            except Exception as error:  # The data set may expect it, or says more of it.
                return self.make_in_python(given, error)
        if not self._batched:
            # An array becomes a tensor.
            return [default_convert(self._form.build(image[0])), self._targets(rows)]
        return self.put([image, self._targets(rows)])

    def _side_by_side(self, columns: list[Any], rows: Any, given: Any) -> Any:
        """What the collate function makes of the samples, which are views of the batch."""
        images, *rest = map(self.convert, columns)
        samples: list[Any] = []
        for place, row in enumerate(rows.tolist()):
            number = bisect_right(self._starts, row) - 1
            leaf, own = self._leaves[number], row - self._starts[number]
            follows = leaf.follows
            if isinstance(follows, Boxes) and own in follows.left_out:
                try:
                    samples.append(self._fetcher.dataset[int(given[place])])
                except Exception:
                    return self.make_in_python(given, None)  # It says which sample it was.
                continue
            image = images[place]
            if self._assembly is not None:
                try:
                    samples.append(self._assembly.sample([image, *(column[place] for column in rest)], row))
                except Exception as error:
                    return self.make_in_python(given, error)
                continue
            if self._columns is not None:
                try:
                    samples.append(self._columns.sample(self._form.build(image), row))
                except Exception as error:
                    return self.make_in_python(given, error)
                continue
            if follows is None:
                target = _target(self._leaves, row)
            else:
                size = image.shape[:2] if self._form.layout == "NHWC" else image.shape[1:]
                target = follows.target(own, [column[place] for column in rest], self._outcome, tuple(size))
            samples.append((self._form.build(image), target))
        return self._fetcher.collate_fn(samples)

    def make_in_python(self, given: Any, error: BaseException | None) -> Any:
        """The batch as the data set makes it. Whatever it raises has the engine's words as its cause."""
        if isinstance(given, np.ndarray):
            given = given.tolist()
        try:
            batch = self._fetcher.fetch(given)
        except Exception as raised:
            note(raised, self._fetcher.at)
            if error is None:
                raise
            raise raised from error
        self._bad.add(list(self._fetcher.bad))
        self.in_python += 1
        return batch


class _EngineProgress(AheadProgress):
    """Also says how many samples came before: the engine draws by the place of a sample in its epoch."""

    def __init__(self, iterator: Any, loader: Any, resume: Resume | None) -> None:
        super().__init__(iterator, loader, resume)
        known = None if resume is None else resume.samples
        self.samples: int = self.order.mark().yielded if known is None else known

    def _at_place(self) -> Any:
        return super()._at_place(), self.samples

    def _state(self, place: Place) -> dict[str, Any]:
        mark, samples = place.at
        return {**super()._state(place._replace(at=mark)), SAMPLES: samples}


class NativeIterator(Unprofiled):
    """Batches of the engine, several of them under way."""

    _progress: _EngineProgress

    def __init__(self, loader: Any, source: NativeSource, resume: Resume | None = None) -> None:
        self._source = source
        self._native: Any = None
        super().__init__(loader, resume)
        # Workers draw ahead in torch, too. Without any, only what cannot tell is asked early.
        self._ahead = loader.num_workers > 0 or sees_nothing(loader._index_sampler)
        self._begin(loader, resume)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            # torch draws no new seed for workers that live on; ours is of one epoch.
            self._base_seed += 1
            self._begin(loader, None)

    def _begin(self, loader: Any, resume: Resume | None) -> None:
        # (indices as the sampler gave them, rows or None, how the engine mixes them)
        self._queue: deque[tuple[Any, Any, Drawn | None]] = deque()
        self._finished = False
        self._progress = _EngineProgress(self, loader, resume)
        self._source.refresh()
        if self._native is None:
            self._native = self._source.acquire()
        self._take = self._source.taken(self._native)
        self._native.begin(self._base_seed & 0xFFFF_FFFF_FFFF_FFFF, self._progress.samples)
        self._mixed_size = self._source.mixed_size(self._native)
        # Where the next batch that is submitted begins.
        self._position = self._progress.samples
        if self._num_workers > 0:
            self._fill()  # as torch's workers do, which begin before the first batch is asked for

    def _fill(self) -> None:
        most = self._native.depth if self._ahead else 0
        while not self._finished and len(self._queue) <= most:
            try:
                self._sampler_iter.arrays = True
                given = self._next_index()
            except StopIteration:
                self._finished = True
                self._native.finish()
                return
            self._progress.drawn()
            rows = self._source.locate(given)
            drawn = None
            if rows is not None:
                if self._mixed_size is not None and self._source.mixing is not None:
                    drawn = self._source.mixing.draw(self._mixed_size, self._base_seed, self._position)
                try:
                    # Images that a device finishes are mixed there.
                    mixed = None if self._source.leaves else drawn
                    self._native.submit(rows, *(mixed or ())[:2])
                except wf.LimitExceededError:
                    rows = None
            self._position += _count(given)
            self._queue.append((given, rows, drawn))

    def ready(self) -> bool:
        """Whether the next batch is here: made by the engine, so that asking for it takes no time."""
        if self._native is None:
            return False
        # Without rows it is made in Python, when it is asked for.
        return bool(self._queue) and self._queue[0][1] is not None and self._native.ready()

    def _next_data(self) -> Any:
        if self._native is None:
            raise StopIteration
        self._fill()
        if not self._queue:
            self._release()
            raise StopIteration
        try:
            batch = self._made(*self._queue[0])
        except Exception:
            self._answered()  # A batch whose exception was handed over.
            raise
        self._answered()
        return batch

    def _answered(self) -> None:
        given, *_ = self._queue.popleft()
        self._progress.samples += _count(given)
        self._progress.yielded()

    def _made(self, given: Any, rows: Any, drawn: Drawn | None) -> Any:
        if rows is None:
            return self._source.make_in_python(given, None)
        try:
            columns = self._take()
        except PASSED_ON as error:
            # The engine is through with it: who is interrupted now comes back for the data set's answer.
            self._queue[0] = given, None, None
            return self._source.make_in_python(given, error)
        mixing = self._source.mixing
        if mixing is None:
            return self._source.finish(columns, rows, given)
        # The engine is through with it: who is interrupted meanwhile comes back for the data set's answer.
        self._queue[0] = given, None, None
        batch = self._source.finish(columns, rows, given)
        if drawn is not None:
            images, labels = batch
            if isinstance(images, LeftImages):
                images = images.mixed(drawn.lam, drawn.corners)
            return images, drawn.labels(labels)
        if isinstance(batch[0], LeftImages):
            # What was drawn is no number, and the transform says so of finished images.
            batch = [batch[0].to("cpu"), *batch[1:]]
        return mixing(batch, self._base_seed, self._progress.samples)

    def _release(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            self._source.release(native)

    def __del__(self) -> None:
        # At the interpreter's end what is needed here may be gone already.
        with contextlib.suppress(Exception):
            self._release()


def _as_they_are(batch: Any) -> Any:
    return batch


def _are_plain(given: Any) -> bool:
    """Whether indices are whole numbers of Python or NumPy, and no tensors."""
    if isinstance(given, list | tuple):
        return all(isinstance(index, int | np.integer) for index in given)
    return isinstance(given, int | np.integer | np.ndarray)


def _count(given: Any) -> int:
    try:
        return len(given)
    except TypeError:
        return 1


def labels_of(leaves: list[Leaf]) -> torch.Tensor | None:
    """The targets of all rows, if they are whole numbers, or all are floats."""
    if any(leaf.target_transform is not None or isinstance(leaf.targets, Lazy) for leaf in leaves):
        return None
    values: Any = leaves[0].targets if len(leaves) == 1 else [t for leaf in leaves for t in leaf.targets]
    kinds = set(map(type, values))
    if kinds not in ({int}, {float}):
        return None
    try:
        return torch.tensor(values, dtype=torch.int64 if kinds == {int} else torch.float64)
    except (OverflowError, RuntimeError):
        return None


def _targets(leaves: list[Leaf], batched: bool, table: torch.Tensor | None) -> Callable[[Any], Any]:
    """From rows to their targets, collated; out of a `table` of all of them, if there is one."""
    if not batched:
        return lambda rows: _target(leaves, int(rows[0]))
    if table is not None:
        return lambda rows: table.index_select(0, torch.from_numpy(rows))
    return lambda rows: default_collate([_target(leaves, row) for row in rows.tolist()])


def _columns(table: Table) -> Callable[[Any], dict[str, Any]]:
    """From rows to the columns of a table that are no images, collated."""
    tables = {n: v if isinstance(v, list) else torch.from_numpy(v.copy()) for n, v in table.values.items()}

    def gather(rows: Any) -> dict[str, Any]:
        at = torch.from_numpy(rows)
        return {
            name: [values[row] for row in rows.tolist()]
            if isinstance(values, list)
            else values.index_select(0, at)
            for name, values in tables.items()
        }

    return gather


def _target(leaves: list[Leaf], row: int) -> Any:
    for leaf in leaves:
        if row < len(leaf):
            target = leaf.targets[row]
            return target if leaf.target_transform is None else leaf.target_transform(target)
        row -= len(leaf)
    raise IndexError(row)
