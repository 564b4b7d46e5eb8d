"""A data set as a sequence: `ds[i]`, slices, `iter(ds)`, and what a notebook shows of it.

Invariant: `ds[i]` is element `i` of the order of epoch 0. What is random in it is drawn anew at each call.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._grid import grid
from ._steps.collate import as_numpy, stacked
from ._steps.program import Context, Parts, Program, is_random
from ._steps.seeds import Undisturbed, fresh
from .exceptions import SampleIndexError

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Elements", "html_of", "sliced"]

SHOWN = 8
"""Samples that a notebook shows."""

SECONDS = 2.0
"""Time after which it begins no further one."""


class Elements:
    """Elements by their number, made one by one in the calling thread. Works after a fork; does not pickle."""

    def __init__(self, dataset: Dataset) -> None:
        native = dataset._native
        self._program = Program(native, dataset._steps)
        self._order = self._program.order
        self._length: int | None = native.length()
        self._random = is_random(dataset._plan()["root"])

    def __getitem__(self, index: Any) -> Any:
        """Element `index` of epoch 0, drawn anew."""
        number = operator.index(index)
        if number < 0 and self._length is not None:
            number += self._length
        if number < 0 or (self._length is not None and number >= self._length):
            has = "no end" if self._length is None else f"{self._length} elements"
            raise SampleIndexError(f"there is no element {operator.index(index)}: the data set has {has}")
        # All draws of an element by the same number: what moves together goes on doing so.
        epoch = fresh() if self._random else 0
        picks = [{leaf: (at, epoch) for leaf, at, _ in one} for one in self._order.batch(0, 0, number)]
        return self._made(picks, seeded=False)

    def sample(self, source: int, index: int, epoch: int) -> Any:
        """A sample of a source, as a loader makes it."""
        with Undisturbed():
            return self.of(self._program.parts_of(source, index, epoch))

    def of(self, parts: Parts) -> Any:
        """As `sample`; generators are left as the sample's steps leave them."""
        return self._program.elements(Context(parts, seeded=True))

    def first(self, count: int) -> Iterator[Parts]:
        """The picks of the first samples of epoch 0."""
        numbers = itertools.count() if self._length is None else range(self._length)
        picks = (one for number in numbers for one in self._order.batch(0, 0, number))
        for one in itertools.islice(picks, count):
            yield {leaf: (index, epoch) for leaf, index, epoch in one}

    def _made(self, picks: list[Parts], seeded: bool) -> Any:
        program = self._program
        samples = [program.elements(Context(parts, seeded)) for parts in picks]
        if not program.batched:
            return samples[0]
        batch = stacked(samples) if program.collate is None else program.collate[1](samples)
        for _, step in program.on_batches:
            batch = step(batch)
        return as_numpy(batch)


def sliced(dataset: Dataset, wanted: slice) -> Dataset:
    """`dataset[wanted]` by `skip` and `take`."""
    start, stop, step = wanted.start, wanted.stop, wanted.step
    if step is not None and operator.index(step) != 1:
        raise ValueError(
            f"a slice with step {step} is not possible: skip() and take() keep neighbours together\nhint: take every "
            "n-th element by shard(0, n), or any by torch.utils.data.Subset(ds, indices)"
        )
    ends = [0 if at is None else operator.index(at) for at in (start, stop)]
    if any(at < 0 for at in ends):
        start, stop, _ = wanted.indices(len(dataset))
    start = 0 if start is None else operator.index(start)
    after = dataset.skip(start) if start else dataset
    return after if stop is None else after.take(max(0, operator.index(stop) - start))


def html_of(dataset: Dataset) -> str:
    """The first samples as a page; what is wrong with one stands in its place. Never raises, and soon returns."""
    title = repr(dataset)
    if dataset._made is None:
        return grid(iter(()), f"{title}\n(samples are shown when the filter has been computed, as by len())")
    shown: list[Any] = []
    over = threading.Event()

    def make() -> None:
        try:
            for parts in dataset._indexed().first(SHOWN):
                if over.is_set():
                    return
                try:
                    shown.append(dataset._indexed().of(parts))
                except Exception as e:
                    shown.append(e)
        except Exception as e:
            shown.append(e)

    # A thread, since a sample may take for ever: what is not there in time is not shown.
    with Undisturbed():
        thread = threading.Thread(target=make, name="wellfed-grid", daemon=True)
        thread.start()
        thread.join(SECONDS)
        over.set()
    late = f"\n(the other samples were not made within {SECONDS:g} s)" if thread.is_alive() else ""
    try:
        return grid(iter(list(shown)), title + late, dataset.classes)
    except Exception as e:
        return grid(iter([e]), title)
