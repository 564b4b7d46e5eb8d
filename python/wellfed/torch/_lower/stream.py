"""Batches of a pipeline of webdataset by the engine: its shards by position, in the order of its own stages.

Invariant: batch `i` has the samples that the stock loader's batch `i` has for the same draws of the pipeline, whatever
the number of workers, none of which is started: each worker's order is played here. Where the engine cannot make a
batch, the library does, or raises what it would have raised.
"""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch.utils.data import default_collate, default_convert

import wellfed as wf
from wellfed import transforms as T
from wellfed._cores import engine_threads
from wellfed._loader import torch_converter
from wellfed.sources import streamed_shards

from .._fetch import note
from .._private import WorkerInfo
from .._progress import InlineProgress, Place, PoolProgress
from .._schema import BATCHES, FETCHER_ENDED, FETCHER_STATE, SAMPLES, STREAM
from .datasets import Files, Leaf
from .engine import accepts_for
from .forms import Chain, Line, RefusalError, name_of
from .mixing import only_stacks
from .native import PASSED_ON, EngineLoaders, NativeSource, Unprofiled
from .shards import ShardStream
from .transforms import lower_leaf
from .webdataset import Streamed, batches_of, samples_of

if TYPE_CHECKING:
    from .._resume import Resume
    from .hugging_stream import RowStream

__all__ = ["Stream", "StreamIterator", "stream_of"]


class Stream(EngineLoaders):
    """What batches are made from.

    Args:
        streamed: The pipeline, recognized.
        chain: What its images become.
        shards: The samples of its shards, and the numbers of those of each.
        loader: Whose data set it is.
    """

    def __init__(
        self, streamed: Streamed, chain: Chain, shards: tuple[wf.Dataset, dict[str, range]], loader: Any
    ) -> None:
        self.streamed, self.chain, self.shards = streamed, chain, shards
        self.samples = shards[1]
        self.in_python = 0
        self._collate = loader.collate_fn
        self._batched: bool = loader._auto_collation
        self._convert = torch_converter()
        source = shards[0].map(*chain.native) if chain.native else shards[0]
        options: Any = {
            "layout": chain.form.layout,
            "num_workers": engine_threads(getattr(loader, "num_threads", None)),
            "memory_budget": getattr(loader, "memory_budget", None),
        }
        super().__init__(source.with_options(**options))

    def lines(self) -> list[tuple[str, Line]]:
        """What became of each part."""
        name = type(self.streamed.dataset).__name__
        why = "shards are read by position, by the engine; fields that are not asked for are not decoded"
        order = "the pipeline's own stages, run over the numbers of samples, for each worker as it would be"
        lines = [
            ("data", Line(name, True, why)),
            ("order", Line("order of samples", False, order)),
            ("transform", Line(self.streamed.decoder, True)),
            *(("transform", line) for line in self.chain.lines),
        ]
        for place, function in enumerate(self.streamed.functions):
            if function is not None and place != self.streamed.image:
                part = f"{self.streamed.fields[place]}: {name_of(function)}"
                lines.append(("target", Line(part, False, "called on each value, in the calling process")))
        return lines

    def stages(self, workers: int) -> list[Any]:
        """What each worker has of its own: a copy of the pipeline, which remembers what it did."""
        return [copy.deepcopy(self.streamed.order) for _ in range(workers)]

    def batches(self, loader: Any, worker: WorkerInfo | None, stages: Any) -> Iterator[Any]:
        """Numbers of the samples of each batch of one process."""
        return batches_of(self.streamed, self.samples, loader.batch_size, loader.drop_last, worker, stages)

    def located(self, numbers: Any) -> Any:
        """Rows of the engine's data set."""
        return numbers

    def finish(self, columns: list[Any], numbers: Any) -> Any:
        """A batch of the engine's columns, as the loader collates it."""
        place = self.streamed.image
        functions = self.streamed.functions
        values = [_values(column, functions[i]) for i, column in enumerate(columns) if i != place]
        beside: list[Any] = []
        if values:
            samples = list(zip(*values, strict=True))
            # Of the library's batches torch makes tensors.
            batch = default_collate(samples) if self._batched else default_convert(_library_batch(samples))
            beside = list(batch)
        return [*beside[:place], self._convert(columns[place]), *beside[place:]]

    def make_in_python(self, numbers: Any, error: BaseException) -> Any:
        """The batch as the library makes it. Whatever it raises has the engine's words as its cause."""
        try:
            samples = samples_of(self.streamed, self.samples, numbers.tolist())
            if samples is None:
                raise error
            batch = self._collate(samples if self._batched else _library_batch(samples))
        except Exception as raised:
            note(raised, f"one of the samples {numbers.tolist()[:20]} of the shards")
            if raised is error:
                raise
            raise raised from error
        self.in_python += 1
        return batch


def _library_batch(samples: list[Any]) -> Any:
    from webdataset.filters import default_collation_fn

    return default_collation_fn(samples)


def _values(column: Any, function: Callable[[Any], Any] | None) -> list[Any]:
    """What the library's decoder gives of a field, and then the user's function."""
    values = column if isinstance(column, list) else np.asarray(column).tolist()
    return values if function is None else [function(value) for value in values]


def stream_of(loader: Any, streamed: Streamed, before: Stream | None) -> Stream:
    """How the engine makes the batches of `loader`.

    Args:
        loader: Over the pipeline.
        streamed: The pipeline.
        before: What was made of it before; given back if it still holds, and else its shards are not looked at again.

    Raises:
        RefusalError: The engine cannot make them.
    """
    _check_loader(loader, streamed)
    chain = _lowered(streamed)
    before = before if before is not None and before.streamed.same_shards(streamed) else None
    if before is not None and before.chain == chain and _alike(before, streamed, loader):
        return before
    if chain.suffix:
        line = next(line for line in chain.lines if not line.native)
        raise RefusalError(f"{line.part}: {line.why}" if line.why else line.part, line.change)
    if chain.form.kind == "pil":
        raise RefusalError(
            "samples are Pillow images, which cannot be stacked", "transforms.ToTensor() at the end"
        )
    if not chain.form.sized and 1 in (loader.batch_size, streamed.batch):
        raise RefusalError("sizes may differ from batch to batch", "Resize((h, w)) or a crop")
    try:
        shards = before.shards if before is not None else _shards(streamed)
        stream = Stream(streamed, chain, shards, loader)
        # What the engine has to say against it, it says here.
        stream.release(stream.acquire())
    except wf.WellfedError as e:
        raise RefusalError(str(e).partition("\n")[0]) from None
    return stream


def _lowered(streamed: Streamed) -> Chain:
    """What becomes of the image that the decoder makes."""
    # What the decoder does beyond a Pillow image, the engine does first.
    first: list[T.Transform] = []
    if streamed.form.kind == "tensor":
        first = [T.ToTensor()] if streamed.form.dtype == "float32" else [T.PILToTensor()]
    transform = streamed.functions[streamed.image]
    leaf = Leaf(streamed.dataset, Files([]), streamed.form, transform, (), None)
    accepts = accepts_for(leaf)
    chain = lower_leaf(leaf, lambda transforms: accepts([*first, *transforms]))
    chain.native = [*first, *chain.native]
    return chain


def _alike(before: Stream, streamed: Streamed, loader: Any) -> bool:
    """Whether a stream was made of these stages, for this loader as it is."""
    stages = before.streamed.stages
    same = len(stages) == len(streamed.stages) and all(map(_is, stages, streamed.stages))
    return same and before._collate is loader.collate_fn and before._batched == loader._auto_collation


def _is(one: Any, other: Any) -> bool:
    return one is other


def _shards(streamed: Streamed) -> tuple[wf.Dataset, dict[str, range]]:
    dataset, parts = streamed_shards(streamed.paths, streamed.fields)
    return dataset.with_options(mode="RGB"), dict(zip(streamed.urls, parts, strict=True))


def _check_loader(loader: Any, streamed: Streamed) -> None:
    if loader._auto_collation:
        if streamed.batch is not None:
            raise RefusalError(
                "batches of batches are made in Python", "batch_size=None, as batched() makes them"
            )
        if not only_stacks(loader.collate_fn):
            raise RefusalError(f"collate_fn {name_of(loader.collate_fn)} is Python code")
    else:
        if streamed.batch is None:
            raise RefusalError("samples come one by one", "batch_size=..., or batched() in the pipeline")
        if loader.collate_fn is not default_convert:
            raise RefusalError(f"collate_fn {name_of(loader.collate_fn)} is Python code")
    if loader.worker_init_fn is not None and loader.num_workers > 0:
        raise RefusalError("worker_init_fn runs in workers, so there are some", "leave worker_init_fn out")


class _Task(NamedTuple):
    """One batch under way.

    Attributes:
        number: From 0, in order.
        worker: Whose it would be.
        samples: Their numbers; None where that worker has no more.
        error: Why the engine was not asked for it.
    """

    number: int
    worker: int
    samples: Any
    error: Exception | None


class StreamIterator(Unprofiled):
    """An epoch of a loader over a pipeline, several batches of it under way."""

    _progress: Any

    def __init__(
        self, loader: Any, stream: Stream | RowStream | ShardStream, resume: Resume | None = None
    ) -> None:
        self._stream = stream
        self._native: Any = None
        self._stages: list[Any] | None = None
        super().__init__(loader, resume)
        self._begin(loader, resume)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if not first_iter:
            # torch draws no new seed for workers that live on; ours is of one epoch.
            self._base_seed += 1
            self._begin(loader, None)

    def _begin(self, loader: Any, resume: Resume | None) -> None:
        stream, workers = self._stream, self._num_workers
        progress = _PoolProgress if workers else _InlineProgress
        self._progress = progress(self, loader, resume)
        known = None if resume is None else resume.samples
        size = loader.batch_size or 1
        self._progress.samples = self._progress.num_yielded * size if known is None else known
        # Workers have copies of the pipeline, which remember what they did as long as they live.
        if workers and (self._stages is None or not loader.persistent_workers):
            self._stages = stream.stages(workers)
        states = [None] * max(workers, 1) if resume is None else resume.worker_states(max(workers, 1))
        # Which epoch it is, where the data set counts them.
        self._progress.epoch = stream.begin(loader) if isinstance(stream, ShardStream) else None
        self._shares: list[Iterator[Any] | None] = []
        for number, state in enumerate(states):
            worker = stages = None
            if workers:
                assert self._stages is not None
                seed = self._base_seed + number
                worker = WorkerInfo(id=number, num_workers=workers, seed=seed, dataset=self._dataset)
                stages = self._stages[number]
            self._shares.append(_after(stream.batches(loader, worker, stages), state))
        self._turn = (self._progress.last_worker + 1) % workers if workers else 0
        self._queue: deque[_Task] = deque()
        self._failed: set[int] = set()
        self._sent = 0
        self._answer: tuple[Any, Any] | None = None
        if self._native is None:
            self._native = stream.acquire()
        source = getattr(stream, "native", None)
        self._take = source.taken(self._native) if isinstance(source, NativeSource) else self._native.next
        self._native.begin(self._base_seed & 0xFFFF_FFFF_FFFF_FFFF, self._progress.samples)
        self._finished = False
        if workers:
            self._progress.ready()
            self._fill()  # as torch's workers do, which begin before the first batch is asked for

    def _fill(self) -> None:
        while not self._finished and len(self._queue) <= self._native.depth:
            if not any(self._shares):
                self._finished = True
                self._native.finish()
                return
            worker = self._turn
            self._turn = (worker + 1) % len(self._shares)
            if self._shares[worker] is not None:
                self._send(worker)

    def _send(self, worker: int) -> None:
        """The next batch of this worker; what goes wrong is said when it is its turn."""
        samples = error = None
        try:
            samples = next(self._shares[worker], None)  # type: ignore[arg-type]
        except Exception as e:
            error = e
        if samples is None:
            self._shares[worker] = None
        else:
            try:
                self._native.submit(self._stream.located(samples))
            except wf.LimitExceededError as e:
                error = e
        self._next_index()
        if self._num_workers:
            self._progress.sent(self._sent)
        self._queue.append(_Task(self._sent, worker, samples, error))
        self._sent += 1

    def ready(self) -> bool:
        """Whether the next batch is here: made by the engine, so that asking for it takes no time."""
        if self._native is None or not self._queue:
            return False
        head = self._queue[0]
        return head.samples is not None and head.error is None and bool(self._native.ready())

    def _next_data(self) -> Any:
        while self._native is not None:
            self._fill()
            if not self._queue:
                self._release()
                break
            task = self._queue[0]
            if task.worker in self._failed or (task.samples is None and task.error is None):
                self._drop(task)
                continue
            try:
                batch = self._made(task)
            except Exception:
                # The pipeline that has raised is at its end, as a generator is.
                self._failed.add(task.worker)
                self._shares[task.worker] = None
                self._answered(task, failed=True)
                raise
            self._answered(task)
            return batch
        raise StopIteration

    def _made(self, task: _Task) -> Any:
        if task.samples is None:
            raise task.error  # type: ignore[misc]
        columns: Any
        columns, error = (None, task.error) if task.error is not None else self._taken()
        if error is not None:
            return self._stream.make_in_python(task.samples, error)
        return self._stream.finish(columns, task.samples)

    def _taken(self) -> tuple[Any, Any]:
        """The engine's answer to the first task: columns, or an error. Who is interrupted after that finds it again."""
        if self._answer is None:
            try:
                self._answer = self._take(), None
            except PASSED_ON as error:
                self._answer = None, error
        return self._answer

    def _drop(self, task: _Task) -> None:
        """A task brings no batch: it found the end, or came after one that failed."""
        if task.samples is not None and task.error is None:
            self._taken()
        self._queue.popleft()
        self._answer = None
        if self._num_workers:
            self._progress.dropped(task.worker, None)

    def _answered(self, task: _Task, failed: bool = False) -> None:
        self._queue.popleft()
        self._answer = None
        self._progress.samples += 0 if task.samples is None else len(task.samples)
        if not self._num_workers:
            if not failed:
                self._progress.yielded()
        elif failed:
            self._progress.failed(task.number, task.worker)
        else:
            self._progress.yielded(task.number, task.worker, None)

    def _release(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            self._stream.release(native)

    def __del__(self) -> None:
        # At the interpreter's end what is needed here may be gone already.
        with contextlib.suppress(Exception):
            self._release()


def _after(batches: Iterator[Any], state: Any) -> Iterator[Any] | None:
    """`batches` without those that were handed over when `state` was taken."""
    if state is None:
        return batches
    if (state.get(FETCHER_STATE) or {}).get(FETCHER_ENDED):
        return None
    for _ in range(state.get(BATCHES, 0)):
        if next(batches, None) is None:
            raise wf.StateError(
                f"cannot resume: {state.get(BATCHES, 0)} batches were used up when the state was taken, but the "
                "pipeline now gives fewer\nhint: is it the same data set?"
            )
    return batches


class _Counted:
    """A progress that says how many samples came before: the engine draws by the place of a sample in its epoch."""

    samples = 0
    epoch: Any = None

    def _at_place(self) -> Any:
        return super()._at_place(), self.samples  # type: ignore[misc]

    def _state(self, place: Place) -> dict[str, Any]:
        at, samples = place.at
        state = super()._state(place._replace(at=at))  # type: ignore[misc]
        mark = None if self.epoch is None else self.epoch.mark(place.finished)
        return {**state, SAMPLES: samples, **({} if mark is None else {STREAM: mark})}


class _InlineProgress(_Counted, InlineProgress):
    pass


class _PoolProgress(_Counted, PoolProgress):
    pass
