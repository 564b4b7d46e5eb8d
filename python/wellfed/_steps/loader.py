"""`StepsLoader`: the loader of a data set with Python steps.

Position and state are kept here, in the native loader's schema; batches are made by the workers of `wellfed.torch`,
which are told numbers of batches and nothing else. Invariant: the position is that of what the caller was given,
whatever was made ahead.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from .._passes import Pipeline
from ..exceptions import CorruptSampleError, StateError
from .epochs import EpochLoader
from .maker import Made, Maker, Task
from .rows import SharedRows

__all__ = ["StepsLoader"]

THREAD = "thread"

MOST_BAD = 1_000
"""Bad samples one after the other that end a pass without end."""


class Tasks:
    """The sampler: tasks of the epoch at hand, from where it stands."""

    def __init__(self) -> None:
        self.start: Task = (0, 0, 0)
        self.end: int | None = 0

    def __iter__(self) -> Iterator[Task]:
        epoch, base, number = self.start
        numbers = itertools.count(number) if self.end is None else range(number, self.end)
        return ((epoch, base, n) for n in numbers)


class StepsLoader(EpochLoader):
    """Batches of a data set with Python steps. Every iteration is the next epoch; see `wellfed.Dataset.torch`.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> ds = wf.from_tensor_slices(np.arange(6)).map(lambda x: {"x": x, "name": f"nr {x}"}).batch(3)
        >>> for batch in ds.numpy(num_workers=0):
        ...     print(batch["x"], batch["name"])
        [0 1 2] ['nr 0', 'nr 1', 'nr 2']
        [3 4 5] ['nr 3', 'nr 4', 'nr 5']
    """

    def __init__(
        self,
        dataset: Any,
        convert: Callable[[Any], Any] | None,
        framework: str,
        device: Any,
        context: Any,
    ) -> None:
        from ..torch import DataLoader

        options = dataset._plan()["options"]
        self._framework, self._device = framework, device
        self._order = dataset._native.order()
        on_error: str = options["on_error"]
        workers = worker_count(options["num_workers"])
        self._threads = workers > 0 and context == THREAD
        self._tasks = Tasks()
        self._rows = SharedRows(dataset, 1 if self._threads else workers)
        maker = Maker(dataset, on_error, workers == 0, not self._threads, self._rows)
        loader: DataLoader[Made] = DataLoader(
            maker,
            batch_size=None,
            sampler=self._tasks,
            num_workers=workers,
            collate_fn=as_it_is,
            multiprocessing_context=context if workers > 0 else None,
            persistent_workers=workers > 0,
            prefetch_factor=prefetch(options["prefetch"], workers),
            # Its own: the caller's random numbers are left alone.
            generator=generator(),
            device=device,
            native=False,
            snapshot_every_n_steps=0,
        )
        pipeline = Pipeline(self._order.fingerprint, json.dumps(dataset._plan()["root"]))
        super().__init__(dataset, loader, convert, workers, on_error, pipeline)
        # What was found out is written to files also where nobody closes the loader.
        weakref.finalize(self, self._rows.close)
        # Bad samples since the last batch that was handed out.
        self._bad_run = 0
        self._waited = 0.0

    def __iter__(self) -> Iterator[Any]:
        loader = self._open()
        self._tasks.start = self._start()
        self._tasks.end = self._order.length_from(*self._at[:2])
        return _Epoch(self, iter(loader), self._turn)

    def _taken(self, made: Made) -> bool:
        """Notes that a batch came; whether there is one to hand out."""
        epoch, base, number = made.task
        self._at = (epoch, base, number + 1)
        self._noted(made)
        self._bad_run = 0 if made.batch is not None else self._bad_run + len(made.failures)
        if self._tasks.end is None and self._bad_run >= MOST_BAD:
            raise CorruptSampleError(
                f"none of {self._bad_run} samples one after the other could be made, and the data set has no end; the "
                f"last error: {self._errors[-1].error}"
            ) from self._errors[-1].error
        if made.batch is not None:
            self._good += 1
        elif self._order.sharded:
            raise CorruptSampleError(
                f"all {len(made.failures)} samples of a batch are bad\nhint: ranks must get as many batches: use "
                'on_error="replace" with shard()'
            )
        return made.batch is not None

    def made(self) -> Iterator[Made]:
        """One epoch as the workers give it, from its beginning; bad samples are raised as `on_error` says."""
        self._tasks.start, self._tasks.end = (0, 0, 0), self._order.length_from()
        for made in self._open():
            self._noted(made)
            yield made

    def _noted(self, made: Made) -> None:
        self._count(made.batch is not None, made.samples, made.nanos)
        self._note(made.task[2], made.failures)

    def __len__(self) -> int:
        self._open()
        length: int | None = self._order.length_from()
        if length is None:
            raise TypeError("a loader that repeats without end has no length")
        return length

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, as of `wellfed.Loader.state_dict`."""
        state: dict[str, Any] = json.loads(self._order.state(*self._place()))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called, to the bit.

        Raises:
            StateError: The state is of another pipeline, or cannot be carried over to these ranks and batches.
            ValueError: It is no state, or of a version that is not known.
        """
        self._open()
        self._restore(self._order.restore(json.dumps(state)))

    def _end(self) -> None:
        self._rows.save()
        super()._end()

    def _waits(self) -> dict[str, float]:
        return {"wait_seconds": self._waited}

    def _engine(self) -> dict[str, Any]:
        return {"row_index": self._rows.stats()}

    def close(self) -> None:
        """Ends the workers. Can be called twice."""
        opened = self._loader is not None
        super().close()
        if opened:
            self._rows.close()

    def explain(self) -> str:
        """As of `Dataset.explain`, with the workers of this loader and the device that it copies batches to."""
        from ..torch._device import target
        from .explain import explain

        to = target(self._device)
        return explain(self._dataset, 0, None if to is None else str(to), self._threads)

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Not for data sets with Python steps: what runs in other processes is not traced."""
        raise StateError(
            "a loader with Python steps keeps no trace\nhint: stats() and explain(analyze=True) have times by step"
        )

    def __repr__(self) -> str:
        state = ", closed" if self._loader is None else ""
        device = "" if self._device is None else f", device={str(self._device)!r}"
        who = "threads" if self._threads else "worker processes"
        where = f"{self._workers} {who}" if self._workers else "this process"
        return (
            f"<wellfed.StepsLoader of {self._framework} batches, made in {where}{device}{state}>\n"
            f"{self._dataset!r}"
        )


class _Epoch(Iterator[Any]):
    """One pass over a loader. Keeps the loader alive; ends when another pass begins."""

    __slots__ = ("_batches", "_loader", "_turn")

    def __init__(self, loader: StepsLoader, batches: Iterator[Made], turn: int) -> None:
        self._loader, self._turn = loader, turn
        self._batches: Iterator[Made] | None = batches

    def __next__(self) -> Any:
        if self._batches is None:
            raise StopIteration
        loader = self._loader
        while True:
            loader._expect(self._turn)
            since = time.perf_counter()
            made = next(self._batches, None)
            loader._waited += time.perf_counter() - since
            if made is None:
                self._batches = None
                loader._end()
                raise StopIteration
            if loader._taken(made):
                return made.batch if loader._convert is None else loader._convert(made.batch)


def worker_count(given: int | str) -> int:
    """Workers for the option `num_workers`, of which 0 is this process."""
    if given == "auto":
        from .._cores import auto_workers

        return auto_workers()
    return int(given)


def prefetch(given: int | str, workers: int) -> int | None:
    """Batches that each worker makes ahead."""
    if workers == 0:
        return None
    return 2 if given == "auto" else max(1, -(-int(given) // workers))


def generator() -> Any:
    """A generator of torch's of one's own."""
    import torch

    return torch.Generator()


def as_it_is(made: Any) -> Any:
    """In place of a collate function: batches come collated."""
    return made
