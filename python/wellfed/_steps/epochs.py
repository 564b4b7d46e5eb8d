"""`EpochLoader`: what the loaders have in common whose batches Python makes.

Invariant: the place in the epochs is that of what the caller was given, whatever was made ahead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _arguments as check
from .._loader import BadSample, Stats
from .._passes import Pipeline
from ..exceptions import CorruptSampleError, StateError
from .failures import Failure
from .maker import Task

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["EpochLoader"]

MAX_LISTED = 10_000
"""Bad samples kept in the list, as in the engine."""

L = TypeVar("L", bound="EpochLoader")


class EpochLoader:
    """A loader that iterates a loader of `wellfed.torch`, and keeps place, counters and bad samples.

    Args:
        dataset: What is loaded.
        loader: What gives the batches.
        convert: What is done to each batch before it is handed out.
        workers: How many make batches.
        on_error: As of `Dataset.with_options`.
        pipeline: What epochs are counted of.
    """

    def __init__(
        self,
        dataset: Any,
        loader: Any,
        convert: Callable[[Any], Any] | None,
        workers: int,
        on_error: str,
        pipeline: Pipeline,
    ) -> None:
        self._dataset, self._convert = dataset, convert
        self._loader: Any = loader
        self._workers, self._on_error, self._pipeline = workers, on_error, pipeline
        # The next batch to hand out, and where the next epoch starts, if it was set.
        self._at: Task = (0, 0, 0)
        self._jump: Task | None = None
        # The batch that the pass under way began with.
        self._first = 0
        self._began = self._placed = self._in_epoch = False
        # Of the epoch under way; iterators of others are no longer valid.
        self._turn = 0
        # Of the pass under way: batches that were handed out, and bad samples.
        self._good = self._bad = 0
        self._errors: list[BadSample] = []
        self._counts: dict[str, float] = dict.fromkeys(("batches", "samples", "errors"), 0)
        self._nanos: dict[str, int] = {}

    @property
    def dataset(self) -> Any:
        """What is loaded."""
        return self._dataset

    def _open(self) -> Any:
        if self._loader is None:
            raise StateError("the loader is closed")
        return self._loader

    def _start(self) -> Task:
        """Begins the next epoch. Gives its first batch."""
        counted = not self._began and not self._placed
        jump = self._settled()
        if jump is not None:
            self._at, self._jump = jump, None
        elif self._in_epoch and self._at[2] > self._first:
            self._at = (self._at[0] + 1, 0, 0)
        self._began = self._in_epoch = True
        self._first = self._at[2]
        self._good = self._bad = 0
        self._turn += 1
        self._dataset._passes.begun(self._pipeline, self._at[0], counted)
        return self._at

    def _settled(self) -> Task | None:
        """Where the next pass begins, if that does not follow from the one before it."""
        if self._began or self._placed:
            return self._jump
        # A loader that is made anew for each epoch goes on where the one before it began.
        return self._dataset._passes.next(self._pipeline), 0, 0

    def _expect(self, turn: int) -> None:
        """Raises in the iterator of an earlier epoch."""
        if turn != self._turn:
            raise StateError(
                "this iterator is no longer valid: its loader was iterated anew, restored or closed"
            )

    def _end(self) -> None:
        """The epoch is over."""
        epoch = self._at[0]
        self._at, self._in_epoch = (epoch + 1, 0, 0), False
        if self._good == 0 and self._bad > 0:
            last = self._errors[-1].error
            raise CorruptSampleError(
                f"no sample of epoch {epoch} could be made; the last error: {last}"
            ) from last

    def _count(self, whole: bool, samples: int, nanos: Mapping[str, int]) -> None:
        """Adds what a batch brought; `whole` if there is one to hand out."""
        self._counts["batches"] += whole
        self._counts["samples"] += samples
        for name, spent in nanos.items():
            self._nanos[name] = self._nanos.get(name, 0) + spent

    def _note(self, number: int, failures: list[Failure]) -> None:
        """Lists the bad samples of batch `number`, and raises as `on_error` says."""
        for failure in failures:
            # What stays in the list must not keep frames alive.
            error = failure.exception().with_traceback(None)
            self._counts["errors"] += 1
            self._bad += 1
            if len(self._errors) < MAX_LISTED:
                self._errors.append(BadSample(failure.epoch, number, failure.replaced, error))
            unanswered = self._on_error == "replace" and not failure.replaced
            if failure.passing or self._on_error == "raise" or unanswered:
                raise error

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``, from 0. Without it epochs follow one another."""
        self._open()
        self._jump = (check.whole(epoch, "epoch"), 0, 0)
        self._placed = True

    def _place(self) -> Task:
        """Where a state taken now goes on."""
        self._open()
        return self._settled() or self._at

    def _restore(self, place: Task) -> None:
        """Makes the next iteration go on at `place`."""
        self._placed, self._jump, self._in_epoch = True, place, False
        self._turn += 1

    def _waits(self) -> dict[str, float]:
        """What `stats` has besides, in seconds."""
        return {}

    def _engine(self) -> dict[str, Any]:
        """What `stats` has of the engine, by the names that it has there."""
        return {}

    def stats(self) -> Stats:
        """Samples, batches, errors, and milliseconds a sample by step; ``row_index`` as of `wellfed.Loader.stats`."""
        each = {name: nanos / 1e6 / max(1, self._counts["samples"]) for name, nanos in self._nanos.items()}
        data = {**self._counts, "workers": self._workers, **self._waits(), "ms_per_sample": each}
        table = [f"{name:24} {value:g}" for name, value in data.items() if not isinstance(value, dict)]
        for name, counters in self._engine().items():
            data[name] = counters
            table += [f"{f'{name}, {key}':24} {value}" for key, value in (counters or {}).items()]
        table += [f"{'ms a sample, ' + name:24} {value:.4f}" for name, value in each.items()]
        return Stats(json.dumps(data), "\n".join(table))

    def errors(self) -> list[BadSample]:
        """Samples that could not be made, in the order they were met."""
        return list(self._errors)

    def close(self) -> None:
        """Ends the workers. Can be called twice."""
        loader, self._loader = self._loader, None
        self._turn += 1
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            shut = getattr(iterator, "_shutdown_workers", None)
            if shut is not None:
                shut()

    def __enter__(self: L) -> L:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a loader cannot be pickled, since it has workers\nhint: pickle its dataset instead")
