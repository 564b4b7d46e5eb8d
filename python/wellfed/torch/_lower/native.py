"""The iterator over the engine, and over rows of tensors: torch's protocol, finished batches.

Invariant: batch `i` has the samples that the stock loader's batch `i` has, in the same structure, and where the engine
cannot make a batch, the data set itself does, or raises what it would have raised.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import dataloader as stock
from torch.utils.data._utils.collate import default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher

import wellfed as wf
from wellfed._loader import torch_converter

from .datasets import Flat, Leaf
from .hugging import Table
from .order import Order
from .tensors import Rows

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

__all__ = ["NativeIterator", "Pass", "TensorIterator"]

# What the data set itself may still be able to make, or should report in its own words.
_PASSED_ON = (
    wf.CorruptSampleError,
    wf.LimitExceededError,
    wf.NotFoundError,
    wf.ShapeError,
    wf.StorageError,
)


class _Iterator(stock._BaseDataLoaderIter):
    """What both iterators share: the order of an epoch, its seed, the place in it.

    Args:
        loader: Whose epoch it is.
        state: As of `state`: the epoch to go on with.
    """

    def __init__(self, loader: DataLoader[Any], state: dict[str, Any] | None = None) -> None:
        # Draws the epoch's seed, as torch does for every epoch: what follows in the generator depends on it.
        super().__init__(loader)
        self._begin(loader, state)

    def _begin(self, loader: Any, state: dict[str, Any] | None) -> None:
        self._num_yielded: int = 0 if state is None else int(state["batches"])
        self._samples: int = 0 if state is None else int(state["samples"])
        if state is not None:
            self._base_seed = int(state["seed"])
        order = None if state is None else state["order"]
        self._order = Order(
            self._index_sampler, self._sampler_iter, self._auto_collation, order, self._num_yielded
        )

    def state(self) -> dict[str, Any]:
        """The place after the last batch that was handed out, whose size does not depend on the data."""
        return {
            "seed": self._base_seed,
            "batches": self._num_yielded,
            "samples": self._samples,
            "order": self._order.state(),
        }

    def restore(self, loader: DataLoader[Any], state: dict[str, Any]) -> None:
        """Goes on where `state` was taken: the same order, the same random parameters."""
        self._sampler_iter = iter(self._index_sampler)
        self._begin(loader, state)

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """The next epoch, for loaders that keep their iterator."""
        super()._reset(loader, first_iter)
        if not first_iter:
            # torch draws no new seed for workers that live on; ours is of one epoch.
            self._base_seed += 1
            self._begin(loader, None)

    def __next__(self) -> Any:
        if not torch.autograd.profiler._is_profiler_enabled:
            return self._counted()
        with torch.autograd.profiler.record_function(self._profile_name):
            return self._counted()

    def _counted(self) -> Any:
        samples, batch = self._take()
        self._num_yielded += 1
        self._samples += samples
        return batch

    def _take(self) -> tuple[int, Any]:
        raise NotImplementedError


class TensorIterator(_Iterator):
    """Batches of `rows`."""

    def __init__(self, loader: DataLoader[Any], rows: Rows, state: dict[str, Any] | None = None) -> None:
        self._rows = rows
        super().__init__(loader, state)

    def _take(self) -> tuple[int, Any]:
        indices = next(self._order)
        return len(indices), self._rows.batch(indices)


class Pass:
    """What batches are made from: the engine's loaders, labels, and the data set for what the engine cannot.

    One belongs to a loader; iterators of it that live at the same time have a loader of the engine each.

    Args:
        flat: The data set, recognized.
        source: The engine's data set of its rows, transformed.
        loader: Whose data set and collate function it is.
    """

    def __init__(self, flat: Flat, source: wf.Dataset, loader: DataLoader[Any]) -> None:
        self.rows = flat.rows
        self.length = flat.length
        self._source = source
        self._idle: list[Any] = []
        self._process: int | None = None
        self._batched: bool = loader._auto_collation
        self._fetcher = _MapDatasetFetcher(loader.dataset, self._batched, loader.collate_fn, loader.drop_last)
        self._table = flat.leaves[0].table
        self._targets = _targets(flat.leaves, self._batched) if self._table is None else _columns(self._table)
        self.convert = torch_converter(None)
        self.in_python = 0

    def acquire(self) -> Any:
        """A loader of the engine that no other iterator uses."""
        if self._process != os.getpid():
            self._idle, self._process = [], os.getpid()
        source: Any = self._source._native
        return self._idle.pop() if self._idle else source.loader_given()

    def release(self, native: Any) -> None:
        """Gives it back."""
        if self._process == os.getpid() and not self._idle:
            self._idle.append(native)
        else:
            native.close()

    def locate(self, given: Any) -> Any:
        """Rows of the indices of a batch; None if the data set itself has to see them."""
        if type(given) is not np.ndarray:
            try:
                given = np.asarray(given if self._batched else [given])
            except (TypeError, ValueError):
                return None
            if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
                return None
        if given.size == 0 or given.min() < 0 or given.max() >= self.length:
            return None
        given = given.astype(np.int64, copy=False)
        return given if self.rows is None else self.rows[given]

    def finish(self, image: torch.Tensor, rows: Any) -> Any:
        """Images with what belongs to them, as the collate function puts it."""
        if self._table is not None:
            columns = self._targets(rows)
            return {
                name: image if name == self._table.image else columns[name] for name in self._table.columns
            }
        if not self._batched:
            return [image[0], self._targets(rows)]
        return [image, self._targets(rows)]

    def in_its_own_way(self, given: Any, error: BaseException | None) -> Any:
        """The batch as the data set makes it. Whatever it raises has the engine's words as its cause."""
        if isinstance(given, np.ndarray):
            given = given.tolist() if self._batched else int(given[0])
        try:
            batch = self._fetcher.fetch(given)
        except Exception as raised:
            if error is None:
                raise
            raise raised from error
        self.in_python += 1
        return batch


class NativeIterator(_Iterator):
    """Batches of the engine, several of them under way."""

    def __init__(
        self, loader: DataLoader[Any], source: Pass, state: dict[str, Any] | None = None, device: Any = None
    ) -> None:
        self._source = source
        self._native: Any = None
        super().__init__(loader, state)

    def _begin(self, loader: Any, state: dict[str, Any] | None) -> None:
        super()._begin(loader, state)
        # (indices as the sampler gave them, rows or None)
        self._queue: deque[tuple[Any, Any]] = deque()
        self._finished = False
        if self._native is None:
            self._native = self._source.acquire()
        self._native.begin(self._base_seed & 0xFFFF_FFFF_FFFF_FFFF, self._samples)
        if self._num_workers > 0:
            self._fill()  # as torch's workers do, which begin before the first batch is asked for

    def _fill(self) -> None:
        while not self._finished and len(self._queue) <= self._native.depth:
            try:
                given = next(self._order)
            except StopIteration:
                self._finished = True
                self._native.finish()
                return
            rows = self._source.locate(given)
            if rows is not None:
                try:
                    self._native.submit(rows)
                except wf.LimitExceededError:
                    rows = None
            self._queue.append((given, rows))

    def _take(self) -> tuple[int, Any]:
        if self._native is None:
            raise StopIteration
        self._fill()
        if not self._queue:
            self._release()
            raise StopIteration
        given, rows = self._queue.popleft()
        if rows is None:
            return _count(given), self._source.in_its_own_way(given, None)
        try:
            columns = self._native.next()
        except _PASSED_ON as error:
            return len(rows), self._source.in_its_own_way(given, error)
        except BaseException:
            self._queue.appendleft((given, rows))
            raise
        return len(rows), self._source.finish(self._source.convert(columns[0]), rows)

    def _release(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            self._source.release(native)

    def __del__(self) -> None:
        # At the interpreter's end what is needed here may be gone already.
        with contextlib.suppress(Exception):
            self._release()


def _count(given: Any) -> int:
    try:
        return len(given)
    except TypeError:
        return 1


def _targets(leaves: list[Leaf], batched: bool) -> Callable[[Any], Any]:
    """From rows to their targets, collated."""
    values = leaves[0].targets if len(leaves) == 1 else [t for leaf in leaves for t in leaf.targets]
    changed = [leaf.target_transform is not None for leaf in leaves]
    kinds = set(map(type, values)) if not any(changed) else set()
    if not batched:
        return lambda rows: _target(leaves, int(rows[0]))
    if kinds == {int} or kinds == {float}:
        try:
            table = torch.tensor(values, dtype=torch.int64 if kinds == {int} else torch.float64)
        except (OverflowError, RuntimeError):
            pass
        else:
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
