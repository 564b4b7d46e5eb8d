"""`StreamDataset`: elements as they come, without an index: generators and torch's `IterableDataset`.

Verbs make a list of stages; a pass runs them one over the other, in one process: this one, or a worker. Invariant: a
pass is a function of (what the generator gives, seed, epoch), so that going through it again resumes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import _arguments as check
from .._passes import Passes, Pipeline
from ..exceptions import ConfigError, StateError
from .collate import as_numpy, collated, converted
from .epochs import EpochLoader
from .failures import Failure, failure_of
from .loader import THREAD, as_it_is, generator, worker_count
from .program import name_of
from .seeds import Undisturbed, mix, seed_all

if TYPE_CHECKING:
    from .._handover.jax import JaxLoader
    from .._handover.tensorflow import TensorFlowDataset

__all__ = ["StreamDataset", "StreamLoader"]

OPTIONS: dict[str, Any] = {"num_workers": "auto", "prefetch": "auto", "on_error": "raise", "seed": 0}

VERSION = 1


class StreamDataset:
    """Elements of a generator or of an iterable data set, in the order they come. Made by `wellfed.from_generator`.

    There is no index: `shuffle` takes a buffer, `shard` gives each rank every n-th element of what all of them go
    through, and a state is resumed by going through the stream again.

    Example:
        >>> import wellfed as wf
        >>> def lines():
        ...     yield from ("one", "two", "three")
        >>> ds = wf.from_generator(lines).map(len).batch(2)
        >>> [batch.tolist() for batch in ds.numpy(num_workers=0)]
        [[3, 3], [5]]
    """

    __slots__ = ("_make", "_name", "_options", "_passes", "_stages")

    def __init__(
        self,
        make: Callable[[], Iterable[Any]],
        name: str,
        stages: tuple[dict[str, Any], ...] = (),
        options: dict[str, Any] | None = None,
        passes: Passes | None = None,
    ) -> None:
        self._make, self._name, self._stages = make, name, stages
        self._options = OPTIONS if options is None else options
        self._passes = passes or Passes()

    def _with(self, verb: str, **parameters: Any) -> StreamDataset:
        if any(stage["verb"] == "batch" for stage in self._stages) and verb in ("batch", "filter", "shard"):
            raise ConfigError(
                f"{verb}() comes after batch(), where it would work on whole batches\nhint: call {verb}() before "
                "batch()"
            )
        stage = {"verb": verb, **parameters}
        return StreamDataset(self._make, self._name, (*self._stages, stage), self._options, self._passes)

    def map(self, *steps: Callable[[Any], Any]) -> StreamDataset:
        """What each of `steps` makes of each element; after `batch`, of each batch."""
        if not steps:
            raise ValueError("map needs at least one callable")
        this = self
        for step in steps:
            if not callable(step):
                raise TypeError(f"map takes callables, not {step!r}")
            this = this._with("map", step=step)
        return this

    def filter(self, predicate: Callable[[Any], Any]) -> StreamDataset:
        """The elements for which `predicate` is true."""
        if not callable(predicate):
            raise TypeError(f"filter takes a callable, not {predicate!r}")
        return self._with("filter", step=predicate)

    def shuffle(self, *, seed: int = 0, buffer_size: int) -> StreamDataset:
        """Each element from a buffer, at random; the next one of the stream takes its place.

        Elements move forward by as many places as the buffer has, at most: with neighbours that are alike, a buffer
        far smaller than the stream leaves them near each other.

        Args:
            seed: 0 to 2**64 - 1.
            buffer_size: Elements in memory.
        """
        return self._with(
            "shuffle",
            seed=check.whole(seed, "seed"),
            buffer_size=check.whole(buffer_size, "buffer_size", 1),
        )

    def take(self, count: int) -> StreamDataset:
        """At most the first `count` elements, all with -1; the rest of the stream is not asked for."""
        number = check.whole(count, "count", -1)
        return self if number == -1 else self._with("take", count=number)

    def skip(self, count: int) -> StreamDataset:
        """All but the first `count` elements, which are made all the same; none with -1."""
        number = check.whole(count, "count", -1)
        return self.take(0) if number == -1 else self._with("skip", count=number)

    def repeat(self, count: int | None = None) -> StreamDataset:
        """The stream several times over: the generator is called anew each time. None and -1 are without end."""
        endless = count is None or check.whole(count, "count", -1) == -1
        return self._with("repeat", count=None if endless else check.whole(count, "count"))

    def shard(self, rank: int, world_size: int) -> StreamDataset:
        """Every `world_size`-th element, from `rank` on. Every rank goes through the whole stream.

        What is left over at the end is left out, so that all ranks get as many elements.
        """
        ranks = check.whole(world_size, "world_size", 1)
        number = check.whole(rank, "rank")
        if number >= ranks:
            raise ConfigError(f"shard(rank={number}, world_size={ranks}): rank must be in 0..world_size")
        return self._with("shard", rank=number, world_size=ranks)

    def batch(
        self, batch_size: int, drop_last: bool = False, collate_fn: Callable[[list[Any]], Any] | None = None
    ) -> StreamDataset:
        """Batches of `batch_size` elements, put together by torch's rules or by `collate_fn`."""
        if collate_fn is not None and not callable(collate_fn):
            raise TypeError(f"collate_fn is {collate_fn!r}, which cannot be called")
        size = check.whole(batch_size, "batch_size", 1)
        return self._with("batch", batch_size=size, drop_last=bool(drop_last), step=collate_fn)

    def with_options(self, **options: Any) -> StreamDataset:
        """Sets how the stream is run.

        Args:
            options: ``num_workers``: ``"auto"`` (default) or 1 and more is one worker process, since a stream cannot be
                divided; 0 the calling process. ``prefetch``: batches made ahead, or ``"auto"``. ``on_error``:
                ``"raise"`` (default) or ``"skip"``; there is no ``"replace"``, as a stream has no other samples.
                ``seed``: what steps draw from.
        """
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise TypeError(
                f"a stream has no option {', '.join(unknown)}\nhint: options are {', '.join(OPTIONS)}"
            )
        if options.get("on_error", "raise") not in ("raise", "skip"):
            raise ValueError(f"on_error is {options['on_error']!r}; of a stream it must be 'raise' or 'skip'")
        merged = {**self._options, **options}
        return StreamDataset(self._make, self._name, self._stages, merged, self._passes)

    def torch(self, device: Any = None, **options: Any) -> StreamLoader:
        """A loader of torch tensors; see `wellfed.Dataset.torch`."""
        return StreamLoader(self.with_options(**options), None, device)

    def numpy(self, **options: Any) -> StreamLoader:
        """A loader of NumPy arrays; see `wellfed.Dataset.numpy`."""
        return StreamLoader(self.with_options(**options), as_numpy, None)

    def tf(
        self,
        *,
        element_spec: Any = None,
        sparse: Sequence[str | int] = (),
        multiprocessing_context: Any = None,
        **options: Any,
    ) -> TensorFlowDataset:
        """A `tf.data.Dataset` of tensors; see `wellfed.Dataset.tf`.

        Its cardinality is not known. Checkpoints are states of a stream: one is restored by going through the stream
        again, so the generator must give the same each time.

        Args:
            element_spec: What elements are, as of `tf.data.Dataset.from_generator`. None: as the first one, for which
                the generator is called once more, in this process.
            sparse: As of `wellfed.Dataset.tf`; of the arrays of a stream, values that are zero are left out.
            multiprocessing_context: How the worker is started, as of torch: ``"fork"``, ``"spawn"``, ``"forkserver"``.
            options: As of `with_options`.
        """
        from .._handover.tensorflow import make_stream

        this = self.with_options(**options)
        return make_stream(this, element_spec, multiprocessing_context, lambda element: element, sparse)

    def keras(
        self,
        x: Any = None,
        y: Any = None,
        sample_weight: Any = None,
        *,
        element_spec: Any = None,
        multiprocessing_context: Any = None,
        **options: Any,
    ) -> Any:
        """What `fit`, `evaluate` and `predict` of Keras take; see `wellfed.Dataset.keras`.

        On TensorFlow it is as of `tf`; on torch and JAX a `torch.utils.data.DataLoader`, with which Keras does not take
        ``class_weight``. Keras learns in the first epoch how many batches there are.

        Args:
            x: As of `wellfed.Dataset.keras`.
            y: As there.
            sample_weight: As there.
            element_spec: What elements are, in Keras' structure ``(x, y)``. On TensorFlow alone, as of `tf`.
            multiprocessing_context: As of `tf`.
            options: As of `with_options`.
        """
        from .._handover.keras import make_stream

        parts = (x, y, sample_weight)
        return make_stream(self.with_options(**options), parts, element_spec, multiprocessing_context)

    def jax(self, sharding: Any = None, *, multiprocessing_context: Any = None, **options: Any) -> JaxLoader:
        """A loader of JAX arrays; see `wellfed.Dataset.jax`. Batches are not copied ahead.

        Args:
            sharding: As of `wellfed.Dataset.jax`.
            multiprocessing_context: As of `tf`.
            options: As of `with_options`.
        """
        from .._handover.jax import make_stream

        return make_stream(self.with_options(**options), sharding, multiprocessing_context)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numpy(num_workers=0))

    def explain(self) -> str:
        """What runs, and where."""
        workers = worker_count(self._options["num_workers"])
        where = "one worker process" if workers else "the calling process"
        lines = [
            "plan",
            *(f"  {line.strip()}" for line in repr(self).splitlines()),
            f"python, in {where}, all of it: a stream has no index, so it is not divided",
            "  resuming goes through the stream again, from its beginning to where the state was taken",
        ]
        if workers > 1:
            lines.append(f"  num_workers={workers}: one of them is used")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return "\n    ".join([f"from_generator({self._name})", *map(_described, self._stages)])

    def _repr_html_(self) -> str:
        from html import escape

        text = f"{self!r}\n(a stream: its elements are not shown, since that would use them up)"
        return f"<pre>{escape(text)}</pre>"

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamDataset, (self._make, self._name, self._stages, self._options)

    def _first(self) -> tuple[Any] | None:
        """The first element that can be made, as arrays; the generator is called for it, in this process."""
        with contextlib.closing(iter(Pass(self, isolate=True))) as elements:
            for _, value, samples, failures, _ in elements:
                for failure in failures:
                    if failure.passing or self._options["on_error"] == "raise":
                        raise failure.exception()
                if samples:
                    return (as_numpy(value),)
        return None

    def _batching(self) -> tuple[bool, int | None]:
        """Whether elements are batches, and the size of all of them, if it is one."""
        for stage in self._stages:
            if stage["verb"] == "batch":
                whole = stage["drop_last"] and self._options["on_error"] == "raise"
                return True, stage["batch_size"] if whole else None
        return False, None

    def _fingerprint(self) -> str:
        text = json.dumps([repr(self), self._options["seed"]])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _described(stage: dict[str, Any]) -> str:
    parameters = dict(stage)
    verb = parameters.pop("verb")
    step = parameters.pop("step", None)
    if verb in ("map", "filter"):
        return f".{verb}({name_of(step)})"
    if step is not None:
        parameters["collate_fn"] = name_of(step)
    return f".{verb}({', '.join(f'{k}={v}' for k, v in parameters.items())})"


@dataclass
class Item:
    """An element or batch on its way.

    Attributes:
        index: Place of the (first) element in the stream; draws are keyed by it and the epoch.
        epoch: The pass, counted with every repetition.
        value: What it is.
        samples: Good ones in it; 0 if it could not be made.
        failures: Bad ones.
    """

    index: int
    epoch: int
    value: Any
    samples: int = 1
    failures: list[Failure] = field(default_factory=list)


class Pass:
    """One pass over a stream. Iterating gives (number, value, samples, failures, time by step).

    Attributes:
        epoch: Which pass.
        start: Batches at its beginning that are made but not given.
    """

    def __init__(self, dataset: StreamDataset, isolate: bool) -> None:
        self.dataset, self.isolate = dataset, isolate
        self.epoch = self.start = 0
        self.nanos: dict[str, int] = {}

    def __iter__(self) -> Generator[Any, None, None]:
        made = enumerate(self._run(len(self.dataset._stages), self.epoch))
        count = 0
        batched = any(stage["verb"] == "batch" for stage in self.dataset._stages)
        while True:
            if self.isolate:
                with Undisturbed():
                    one = next(made, None)
            else:
                one = next(made, None)
            if one is None:
                if count < self.start:
                    yield self._too_short(count)
                return
            number, item = one
            count += 1
            if number < self.start:
                continue
            value = item.value if batched or item.samples == 0 else converted(item.value)
            nanos, self.nanos = self.nanos, {}
            yield number, value, item.samples, item.failures, nanos

    def _too_short(self, count: int) -> Any:
        """What is given where there are fewer batches than were handed out before the state was taken."""
        error = StateError(
            f"the stream ended after {count} batches, but the state is of batch {self.start} of it\nhint: a stream is "
            "resumed by going through it again, so it must give the same in every process"
        )
        item = self._failed(Item(count, self.epoch, None), error, self.dataset._name, passing=True)
        return count, None, 0, item.failures, {}

    def _run(self, stages: int, epoch: int) -> Iterator[Item]:
        """What comes after the first `stages` stages."""
        if stages == 0:
            return self._source(epoch)
        stage = self.dataset._stages[stages - 1]
        if stage["verb"] == "repeat":
            return self._repeated(stages - 1, stage["count"], epoch)
        items = self._run(stages - 1, epoch)
        key = mix(self.dataset._options["seed"], epoch, stages)
        match stage["verb"]:
            case "map" | "filter" as verb:
                return self._each(items, stage["step"], stages, keep=verb == "map")
            case "shuffle":
                return shuffled(items, stage["buffer_size"], mix(key, stage["seed"]))
            case "take":
                return itertools.islice(items, stage["count"])
            case "skip":
                return itertools.islice(items, stage["count"], None)
            case "shard":
                return sharded(items, stage["rank"], stage["world_size"])
            case _:
                return self._batches(items, stage)

    def _source(self, epoch: int) -> Iterator[Item]:
        seed, name = self.dataset._options["seed"], self.dataset._name
        seed_all(mix(seed, epoch))
        elements = iter(self.dataset._make())
        for index in itertools.count():
            seed_all(mix(seed, epoch, index))
            since = time.perf_counter_ns()
            try:
                value = next(elements)
            except StopIteration:
                return
            except Exception as e:
                # A generator that failed is over: there is no next element to go on with.
                yield self._failed(Item(index, epoch, None), e, name, passing=True)
                return
            self._spent(name, since)
            yield Item(index, epoch, value)

    def _repeated(self, stages: int, count: int | None, epoch: int) -> Iterator[Item]:
        for turn in itertools.count() if count is None else range(count):
            empty = True
            for item in self._run(stages, epoch * (count or 1) + turn):
                empty = False
                yield item
            if empty:
                return

    def _each(self, items: Iterator[Item], step: Any, place: int, keep: bool) -> Iterator[Item]:
        seed, name = self.dataset._options["seed"], name_of(step)
        for item in items:
            if item.samples:
                seed_all(mix(seed, item.epoch, item.index, place))
                since = time.perf_counter_ns()
                try:
                    value = step(item.value)
                except Exception as e:
                    yield self._failed(item, e, name, passing=item.samples > 1)
                    continue
                self._spent(name, since)
                if keep:
                    item.value = value
                elif not value:
                    continue
            yield item

    def _batches(self, items: Iterator[Item], stage: dict[str, Any]) -> Iterator[Item]:
        size, step = stage["batch_size"], stage["step"] or collated
        name = "collate" if stage["step"] is None else name_of(step)
        while group := list(itertools.islice(items, size)):
            if len(group) < size and stage["drop_last"]:
                return
            good = [item.value for item in group if item.samples]
            first = group[0]
            failures = [failure for item in group for failure in item.failures]
            batch = Item(first.index, first.epoch, None, len(good), failures)
            for offset, item in enumerate(group):
                for failure in item.failures:
                    failure.offset = offset
            if good:
                seed_all(mix(self.dataset._options["seed"], first.epoch, first.index, size))
                since = time.perf_counter_ns()
                try:
                    batch.value = step(good)
                except Exception as e:
                    batch = self._failed(batch, e, name, passing=True)
                self._spent(name, since)
            yield batch

    def _failed(self, item: Item, error: Exception, stage: str, passing: bool = False) -> Item:
        source = f"from_generator({self.dataset._name})"
        failure = failure_of(
            error,
            offset_in_batch=0,
            epoch=item.epoch,
            source=source,
            key=str(item.index),
            index=item.index,
            stage=stage,
        )
        failure.passing = failure.passing or passing
        item.value, item.samples = None, 0
        item.failures.append(failure)
        return item

    def _spent(self, name: str, since: int) -> None:
        self.nanos[name] = self.nanos.get(name, 0) + time.perf_counter_ns() - since


def shuffled(items: Iterator[Item], size: int, key: int) -> Iterator[Item]:
    """Each item from a buffer of `size`."""
    draw = random.Random(key)
    buffer = list(itertools.islice(items, size))
    for item in items:
        place = draw.randrange(size)
        yield buffer[place]
        buffer[place] = item
    draw.shuffle(buffer)
    yield from buffer


def sharded(items: Iterator[Item], rank: int, world_size: int) -> Iterator[Item]:
    """One item of each full group of `world_size`."""
    while len(group := list(itertools.islice(items, world_size))) == world_size:
        yield group[rank]


class StreamLoader(EpochLoader):
    """Batches of a stream. Every iteration is the next pass; see `wellfed.Loader` for the methods.

    Example:
        >>> import wellfed as wf
        >>> loader = wf.from_generator(lambda: iter(range(6))).batch(2).numpy(num_workers=0)
        >>> batches = iter(loader)
        >>> first = next(batches)
        >>> state = loader.state_dict()
        >>> loader.load_state_dict(state)
        >>> [batch.tolist() for batch in loader]
        [[2, 3], [4, 5]]
    """

    def __init__(
        self,
        dataset: StreamDataset,
        convert: Callable[[Any], Any] | None,
        device: Any,
        context: Any = None,
    ) -> None:
        from ..torch import DataLoader
        from .stream_pass import IterablePass

        if context == THREAD:
            raise ConfigError(
                "a stream is not made in a thread, where what its elements draw would be mixed with what others draw"
                "\nhint: num_workers=0 makes it in this one"
            )
        workers = min(1, worker_count(dataset._options["num_workers"]))
        ahead = dataset._options["prefetch"]
        self._pass = IterablePass(dataset, isolate=workers == 0)
        loader: DataLoader[Any] = DataLoader(
            self._pass,
            batch_size=None,
            num_workers=workers,
            collate_fn=as_it_is,
            multiprocessing_context=context if workers > 0 else None,
            prefetch_factor=None if workers == 0 else 2 if ahead == "auto" else max(1, int(ahead)),
            generator=generator(),
            device=device,
            native=False,
            snapshot_every_n_steps=0,
        )
        pipeline = Pipeline(
            int(dataset._fingerprint(), 16), json.dumps([stage["verb"] for stage in dataset._stages])
        )
        super().__init__(dataset, loader, convert, workers, dataset._options["on_error"], pipeline)

    def __iter__(self) -> Iterator[Any]:
        loader = self._open()
        self._pass.epoch, _, self._pass.start = self._start()
        return self._batches(iter(loader), self._turn)

    def _batches(self, batches: Iterator[Any], turn: int) -> Iterator[Any]:
        for number, value, samples, failures, nanos in batches:
            self._expect(turn)
            self._at = (self._at[0], 0, number + 1)
            self._count(samples > 0, samples, nanos)
            self._note(number, failures)
            if samples:
                self._good += 1
                yield value if self._convert is None else self._convert(value)
        self._end()

    def __len__(self) -> int:
        raise TypeError("a stream has no length: how many elements it gives is known when it has ended")

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was handed out."""
        epoch, _, number = self._place()
        return {
            "version": VERSION,
            "kind": "stream",
            "epoch": epoch,
            "batch": number,
            "plan": self._dataset._fingerprint(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called. It goes through the stream up to there.

        Raises:
            StateError: The state is of another pipeline.
            ValueError: It is no state, or of a version that is not known.
        """
        self._open()
        if state.get("kind") != "stream" or state.get("version") != VERSION:
            raise ConfigError("this is no state of a stream, or one of another version")
        if state["plan"] != self._dataset._fingerprint():
            raise StateError(
                "state belongs to another stream or pipeline\nhint: verbs, batch size and ranks of a stream must be "
                "those of the state, since it is resumed by going through it again"
            )
        self._restore((check.whole(state["epoch"], "epoch"), 0, check.whole(state["batch"], "batch")))

    def explain(self) -> str:
        """As of `StreamDataset.explain`."""
        text: str = self._dataset.explain()
        return text

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Not for streams: what runs in other processes is not traced."""
        raise StateError("the loader of a stream keeps no trace\nhint: stats() has times by step")

    def __repr__(self) -> str:
        where = "a worker process" if self._workers else "this process"
        return f"<wellfed.StreamLoader, batches made in {where}>\n{self._dataset!r}"
