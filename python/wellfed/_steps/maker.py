"""`Maker`: whole batches of a data set with Python steps, in whatever process or thread asks for them.

Invariant: a bad sample is data (`Failure`) and never an exception here, so that its place, its cause and the samples
beside it reach the caller. What is no fault of a sample is an exception: KeyboardInterrupt, errors of the collate
function, errors that may pass.
"""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from .. import _native
from .collate import collated, converted
from .failures import Failure, failure_of
from .program import Context, Program
from .rows import SharedRows
from .seeds import Undisturbed, mix, seed_all

__all__ = ["Made", "Maker", "Task"]

ATTEMPTS = 16
"""Replacements that are tried for one bad sample."""

AT_ONCE = 64
"""Elements of a batch whose native parts are made in one go, without a look at whether they are still wanted."""

Task = tuple[int, int, int]
"""Epoch, base and number of a batch: what the native order needs to say which samples it has."""


@dataclass
class Made:
    """A batch with what happened.

    Attributes:
        task: Which one it is.
        batch: Collated; None if nothing is left of it.
        samples: How many it has.
        failures: Bad samples.
        nanos: Time by step.
    """

    task: Task
    batch: Any
    samples: int
    failures: list[Failure] = field(default_factory=list)
    nanos: dict[str, int] = field(default_factory=dict)


class Maker:
    """A map-style data set whose indices are tasks and whose samples are batches. Pickles with its callables.

    Args:
        dataset: What batches are made of.
        on_error: As of `Dataset.with_options`.
        isolate: Whether generators are to be left as they were found.
        seeded: Whether steps find generators that are seeded by the sample.
        rows: Row indexes of its images.
    """

    def __init__(self, dataset: Any, on_error: str, isolate: bool, seeded: bool, rows: SharedRows) -> None:
        self._dataset = dataset
        self._rows = rows
        self._on_error = on_error
        self._isolate = isolate
        self._seeded = seeded
        self._here = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_here"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._here = threading.local()

    def __len__(self) -> int:
        length = self._dataset._native.length()
        return (1 << 62) if length is None else int(length)

    @property
    def _tools(self) -> tuple[_native.Order, Program]:
        """Order and program of this thread."""
        tools: tuple[_native.Order, Program] | None = getattr(self._here, "tools", None)
        if tools is None:
            native = self._dataset._native
            program = Program(native, self._dataset._steps, self._rows.native)
            tools = self._here.tools = program.order, program
        return tools

    def __getitem__(self, task: Task) -> Made:
        if self._isolate:
            with Undisturbed():
                return self.make(task)
        return self.make(task)

    def make(self, task: Task) -> Made:
        """The batch of a task."""
        order, program = self._tools
        try:
            return self._make(order, program, task)
        finally:
            program.finish()

    def _make(self, order: _native.Order, program: Program, task: Task) -> Made:
        context = Context(seeded=self._seeded)
        made = Made(task, None, 0, nanos=context.nanos)
        samples = []
        batch = order.batch(*task)
        ready: list[dict[int, Any]] = []
        for offset, picks in enumerate(batch):
            if offset % AT_ONCE == 0:
                rows = range(offset, min(offset + AT_ONCE, len(batch)))
                ready = program.make_ready(context, batch, rows)
            context.ready = ready[offset % AT_ONCE]
            failure, value = self._sample(program, context, picks, offset)
            if failure is not None:
                made.failures.append(failure)
                if failure.passing or self._on_error == "raise":
                    return made
                if self._on_error == "skip":
                    continue
                found = self._replacement(order, program, context, task, offset, failure)
                if found is None:
                    return made
                value = found[0]
            samples.append(value)
        made.samples = len(samples)
        if samples:
            try:
                made.batch = self._collated(program, context, samples, batch[0])
            except Exception as e:
                # No fault of one sample: raised whatever `on_error` says.
                place = {"source": None, "key": None, "index": None, "stage": context.stage}
                failure = failure_of(e, offset_in_batch=0, epoch=task[0], **place)
                failure.passing = True
                made.failures.append(failure)
        return made

    def _sample(
        self, program: Program, context: Context, picks: list[tuple[int, int, int]], offset: int
    ) -> tuple[Failure | None, Any]:
        context.parts = {leaf: (index, epoch) for leaf, index, epoch in picks}
        try:
            return None, program.elements(context)
        except Exception as e:
            index, epoch = context.parts[context.leaf]
            source, key = program.order.name_of(context.leaf, index)
            place = {"source": source, "key": key, "index": index, "stage": context.stage}
            return failure_of(e, offset_in_batch=offset, epoch=epoch, **place), None

    def _replacement(
        self,
        order: _native.Order,
        program: Program,
        context: Context,
        task: Task,
        offset: int,
        failure: Failure,
    ) -> tuple[Any] | None:
        """Another sample for a bad one; None if none was found, or an outage was."""
        context.ready = {}
        for attempt in range(ATTEMPTS):
            again, value = self._sample(program, context, order.replacement(*task, offset, attempt), offset)
            if again is None:
                failure.replaced = True
                return (value,)
            if again.passing:
                failure.passing = True
                failure.error, failure.cause, failure.trace = again.error, again.cause, again.trace
                return None
        return None

    def _collated(
        self, program: Program, context: Context, samples: list[Any], first: list[tuple[int, int, int]]
    ) -> Any:
        context.stage = "collate"
        if not program.batched:
            return converted(samples[0])
        if self._seeded and (program.collate is not None or program.on_batches):
            seed_all(mix(program.order.leaf_seed(first[0][0]), len(samples), *itertools.chain(*first)))
        name, step = program.collate or ("collate", collated)
        context.stage = name
        since = time.perf_counter_ns()
        batch = step(samples)
        since = context.spent(name, since)
        for name, step in program.on_batches:
            context.stage = name
            batch = step(batch)
            since = context.spent(name, since)
        return batch
