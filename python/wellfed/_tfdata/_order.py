"""The order in which TensorFlow gives samples: its own data sets, on numbers in place of samples.

A buffer's order depends on its seeds and on how many samples pass through it, not on what they are. So TensorFlow
itself shuffles, repeats and interleaves the numbers of samples, which costs little, and the engine makes the samples.

Invariant: data sets that TensorFlow's optimizer looks at side by side (it fuses ``shuffle().repeat()``, which gives
another order) are side by side here, and others are not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.ops import gen_dataset_ops

from .._loader import BadSample, Stats, to_numpy
from .._several import Loaders
from ..dataset import Dataset
from ..exceptions import StateError
from ._pipeline import READS_FILES, Left, Pipeline

__all__ = ["Ordered", "OrderedPass", "Replay", "counted", "numbers", "replay"]

# More samples than there ever are: `take` of them separates data sets, and is not left out as `take(-1)` is.
_ALL = 1 << 62
# Iterators that were made, and are not asked for anything.
_UNASKED = 1000
# Of places.
_VERSION = 1


def numbers(pipeline: Pipeline, node: Any, dataset: Dataset, options: Any, shuffles: bool = True) -> Any:
    """A ``tf.data.Dataset`` of the numbers of samples in the order of `node`, one by one.

    Args:
        pipeline: The graph.
        node: A data set of samples, or of batches of them.
        dataset: The engine's data set of the samples in the order of the source.
        options: The options of the whole pipeline.
        shuffles: False leaves shuffles out.

    Raises:
        Left: The order depends on something that is not known.
    """
    while "Batch" in node.op:
        node = pipeline.before(node)
    order = _Numbers(pipeline, dataset, shuffles).of(node)
    given = tf.data.Options()
    chosen = options.experimental_optimization
    for to, name, value in (
        (given, "deterministic", options.deterministic),
        (given.experimental_optimization, "apply_default_optimizations", chosen.apply_default_optimizations),
        (given.experimental_optimization, "shuffle_and_repeat_fusion", chosen.shuffle_and_repeat_fusion),
    ):
        if value is not None:
            setattr(to, name, value)
    # Threads of its own would take more time than it needs.
    given.autotune.enabled = False
    return order.with_options(given)


def counted(order: Any, size: int = 1) -> int:
    """Elements of what `numbers` gave, in batches of `size`, as ``tf.data`` counts them."""
    found = int(order.cardinality())
    return int(tf.data.INFINITE_CARDINALITY) if found > _ALL // size // 2 else found


@dataclass(frozen=True)
class Replay:
    """How the order of a pass is found again in another process."""

    # Makes the numbers anew, as they are before the first pass.
    make: Callable[[], Any]
    # What the order is made of, so that no other pipeline takes a place of this one.
    form: list[list[Any]]
    # Why it cannot be found again: at all, or but for the first pass.
    never: str | None
    later: str | None
    # Whether there is a shuffle below a shuffle.
    nested: bool


def replay(pipeline: Pipeline, node: Any, make: Callable[[], Any], options: Any) -> Replay:
    """What is known of the order of `node`, the numbers of which `make` gives."""
    form: list[list[Any]] = []
    never = (
        "the pipeline's options say that its order is not deterministic\nhint: leave options.deterministic as it is"
        if options.deterministic is False
        else None
    )
    while node.op.endswith("Dataset") or "Dataset" in node.op:
        verb = node.op.partition("Dataset")[0]
        if verb in ("Shuffle", "Repeat", "Take", "Skip", "BatchV2", "ParallelBatch", "PaddedBatch"):
            ends = (1, 2, 3) if verb == "Shuffle" else (1,)
            form.append([verb, *(int(pipeline.const(node, at)) for at in ends)])
            if verb == "Shuffle" and form[-1][2:] == [0, 0]:
                never = "a shuffle has no seed, and so another order in every process\nhint: give it a seed"
        if node.op in READS_FILES:
            form.append([verb])
            if "deterministic" in node.attr and node.attr["deterministic"].s == b"false":
                never = (
                    "records come in an order that is not deterministic\nhint: leave deterministic=False out"
                )
        if not node.input or "Dataset" not in pipeline.before(node).op:
            break
        node = pipeline.before(node)
    verbs = {part[0] for part in form}
    later = None
    if {"Shuffle", "Repeat"} <= verbs:
        later = (
            "a repeat of a shuffle draws on as far as earlier iterators went\nhint: make one iterator of it"
        )
    return Replay(make, form, never, later, sum(part[0] == "Shuffle" for part in form) > 1)


class _Numbers:
    def __init__(self, pipeline: Pipeline, dataset: Dataset | _Counted, shuffles: bool) -> None:
        self._pipeline, self._dataset, self._shuffles = pipeline, dataset, shuffles

    def of(self, node: Any) -> Any:
        pipeline = self._pipeline
        if node.op in ("TensorSliceDataset", "ZipDataset", "TFRecordDataset", "TFRecordDatasetV2"):
            return tf.data.Dataset.range(len(self._dataset))
        if node.op in READS_FILES:
            return self._interleaved(node)
        before = self.of(pipeline.before(node))
        match node.op:
            case "ShuffleDatasetV2" | "ShuffleDatasetV3" if self._shuffles:
                variant = gen_dataset_ops.shuffle_dataset_v3(
                    before._variant_tensor,
                    buffer_size=pipeline.const(node, 1),
                    seed=pipeline.const(node, 2),
                    seed2=pipeline.const(node, 3),
                    seed_generator=gen_dataset_ops.dummy_seed_generator(),
                    reshuffle_each_iteration=node.attr["reshuffle_each_iteration"].b,
                    output_types=[tf.int64],
                    output_shapes=[[]],
                )
                return dataset_ops._VariantDataset(variant, before.element_spec)
            case "RepeatDataset":
                return before.repeat(pipeline.const(node, 1))
            case "TakeDataset":
                return before.take(pipeline.const(node, 1))
            case "SkipDataset":
                return before.skip(pipeline.const(node, 1))
        return before.take(_ALL)

    def _interleaved(self, node: Any) -> Any:
        """Numbers of records of files that are read in turn."""
        assert isinstance(self._dataset, Dataset)
        parts = self._dataset._native.parts()
        below = self._pipeline.before(node)
        names = self._pipeline.lowered(below).source[1][0]
        if len(parts) != len(names):
            raise Left(f"{node.op} of files of which some are empty or occur twice")
        first, end = (tf.constant([part[side] for part in parts], tf.int64) for side in (0, 1))
        files = _Numbers(self._pipeline, _Counted(len(names)), self._shuffles).of(below)

        def records(file: Any) -> Any:
            return tf.data.Dataset.range(first[file], end[file])

        if node.op == "FlatMapDataset":
            return files.flat_map(records)
        deterministic = None
        if "deterministic" in node.attr:
            deterministic = {b"true": True, b"false": False}.get(node.attr["deterministic"].s)
        names_of = len(node.input) - (3 if node.op == "InterleaveDataset" else 6)
        if names_of != 0 or node.op not in ("InterleaveDataset", "ParallelInterleaveDatasetV4"):
            raise Left(f"{node.op} with tensors from outside, or of an older TensorFlow")
        return files.interleave(
            records,
            self._pipeline.const(node, 1),
            self._pipeline.const(node, 2),
            num_parallel_calls=None if node.op == "InterleaveDataset" else self._pipeline.const(node, 5),
            deterministic=deterministic,
        )


class _Counted:
    """Stands for a data set of so many samples."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count


class Ordered:
    """Batches of a data set of the engine in an order that TensorFlow gives. Iterations are independent of each other.

    A shuffle draws the seeds of a pass when an iterator is made, and not when it is asked for its first element;
    ``repeat`` makes one that it never asks. So each iterator of TensorFlow's has a mark, which says how many were made
    before it: it is drawn when the iterator is made.

    Args:
        datasets: Samples in the order of the source, of each of their images by itself.
        order: Their numbers.
        batch: How many, and whether a smaller last batch is left out.
        seed: Of the engine's random numbers.
        replay: How the order is found again; None where nobody asks for places.
    """

    def __init__(
        self,
        datasets: list[Dataset],
        order: Any,
        batch: tuple[int, bool],
        seed: int,
        replay: Replay | None = None,
    ) -> None:
        self._datasets, self._batch, self._seed, self._replay = datasets, batch, seed, replay
        self._numbers = self._batched(order)
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._main: Any = self._made()
        self._idle = [self._main]
        self._passes = 0
        # Passes that were asked for a batch, and whether they were so in the order in which they were made.
        self._asked, self._in_order = 0, True
        self._marks = self.marks()
        self._begins: dict[tuple[int, ...], tuple[Any, int]] = {}

    def _made(self) -> Any:
        """A loader of the engine."""
        loaders = [dataset._native.loader_given() for dataset in self._datasets]
        return Loaders(loaders) if len(loaders) > 1 else loaders[0]

    def _batched(self, order: Any) -> Any:
        return order.batch(self._batch[0], drop_remainder=self._batch[1])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        (mark,) = self.marks()
        return self.batches(mark.numpy())

    def batches(self, mark: Any) -> Iterator[tuple[Any, ...]]:
        """Those of the iterator that has a mark of `marks`."""
        yield from self.begun(mark)[1]

    def begun(self, mark: Any) -> tuple[int, Iterator[tuple[Any, ...]]]:
        """The number of the pass that has a mark of `marks`, and its batches."""
        self._check()
        with self._lock:
            numbers, number = self._begun(mark)
            self._in_order &= number == self._asked
            self._asked += 1
        return number, self._run(numbers, number, 0)

    def resumed(self, number: int, given: int) -> Iterator[tuple[Any, ...]]:
        """The batches of a pass after the first `given` ones. Passes that begin later come after it."""
        self._check()
        assert self._replay is not None
        with self._lock:
            self._numbers = self._batched(self._replay.make())
            for _ in range(number):
                # A shuffle draws its seeds when its iterator is made, and one below it when that is first asked.
                next(iter(self._numbers), None)
            numbers = iter(self._numbers.skip(given))
            self._passes = self._asked = number + 1
            self._in_order = True
        return self._run(numbers, number, given * self._batch[0])

    def place(self, number: int, given: int) -> dict[str, Any]:
        """The place after `given` batches of a pass, for `OrderedPass.load_state_dict`.

        Raises:
            StateError: The order cannot be found again.
        """
        replay = self._replay
        why = "nothing is known of its order" if replay is None else replay.never
        if replay is not None and number:
            why = why or replay.later
            if replay.nested and not self._in_order:
                why = (
                    why
                    or "iterators over shuffles of shuffles were asked in another order than made\nhint: ask them in it"
                )
        if why is not None:
            raise StateError(f"the place of an iterator cannot be saved: {why}")
        return {"version": _VERSION, "pass": number, "batches": given, "pipeline": self._identity()}

    def check_place(self, state: dict[str, Any]) -> None:
        """Checks that a place is one of this pipeline.

        Raises:
            StateError: It is not.
        """
        if state.get("version") != _VERSION or "pass" not in state:
            raise StateError(
                f"the state is of version {state.get('version')} or of another kind of data set; this one reads "
                f"{_VERSION}\nhint: save it with the version of wellfed that reads it, of the same pipeline"
            )
        if state["pipeline"] != self._identity():
            raise StateError(
                f"the state is of another pipeline: {state['pipeline']}, and this one is {self._identity()}\n"
                "hint: restore it into the pipeline that it was saved from, with the same files, seeds and batches"
            )

    def _identity(self) -> list[Any]:
        assert self._replay is not None
        return [
            len(self._datasets[0]),
            self._open().fingerprint,
            self._batch[0],
            self._seed,
            self._replay.form,
        ]

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise StateError(
                "a data set of feed() was iterated in a forked process\nhint: call feed() in that process"
            )

    def _begun(self, mark: Any) -> tuple[Any, int]:
        """The numbers for a mark, and which pass it is. All marks up to it get iterators, in their order."""
        wanted = tuple(mark)
        for _ in range(_UNASKED):
            if wanted in self._begins:
                return self._begins.pop(wanted)
            (values,) = self._marks
            self._begins[tuple(values.numpy())] = iter(self._numbers), self._passes
            self._passes += 1
            if len(self._begins) > _UNASKED:
                del self._begins[next(iter(self._begins))]
        raise StateError(
            f"an iterator was asked for its first batch after {_UNASKED} others had been made\n"
            "hint: make iterators when they are needed"
        )

    def _run(self, numbers: Any, number: int, position: int) -> Iterator[tuple[Any, ...]]:
        """The batches of a pass, of which `position` samples came before."""
        with self._lock:
            if self._main is None:
                raise StateError("the loader is closed")
            loader = self._idle.pop() if self._idle else self._made()
        try:
            loader.begin((self._seed + number) % 2**64, position)
            yield from self._batches(loader, numbers)
        finally:
            with self._lock:
                kept = self._main is not None and not self._idle
                if kept:
                    self._idle.append(loader)
            if not kept and loader is not self._main:
                loader.close()

    def _batches(self, loader: Any, numbers: Any) -> Iterator[tuple[Any, ...]]:
        ahead, open_ = 0, True
        while True:
            while open_ and ahead <= loader.depth:
                found = next(numbers, None)
                if found is None:
                    loader.finish()
                    open_ = False
                else:
                    loader.submit(found.numpy())
                    ahead += 1
            if ahead == 0:
                return
            ahead -= 1
            columns = tuple(map(to_numpy, loader.next()))
            if len(columns[0]):
                yield columns

    @staticmethod
    def marks() -> Any:
        """A ``tf.data.Dataset`` of one element, which is another one in every iterator; all of them give the same."""
        drawn = tf.data.Dataset.random(seed=1, rerandomize_each_iteration=True)
        return drawn.batch(2).take(1)

    def count(self) -> int:
        """Batches, as ``tf.data`` counts them."""
        return counted(self._numbers, self._batch[0])

    def explain(self) -> str:
        """What the engine does."""
        texts = [dataset.batch(self._batch[0]).explain().rstrip() for dataset in self._datasets]
        texts.append("The order is that of TensorFlow's own shuffles, which run on numbers of samples.")
        return "\n".join(texts) + "\n"

    def stats(self) -> Stats:
        """As `Loader.stats`, of the first of the loaders that run at the same time."""
        return Stats(*self._open().stats())

    def errors(self) -> list[BadSample]:
        """As `Loader.errors`."""
        return [BadSample(*fields) for fields in self._open().errors()]

    def close(self) -> None:
        """Ends the threads. Iterations that go on fail."""
        with self._lock:
            loader, self._main = self._main, None
            self._idle = []
        if loader is not None:
            loader.close()

    def _open(self) -> Any:
        if self._main is None:
            raise StateError("the loader is closed")
        return self._main


class OrderedPass(Iterator[Any]):
    """A pass over an `Ordered`, which knows its place.

    Args:
        ordered: What it is a pass of.
        mark: One of `Ordered.marks`.
    """

    def __init__(self, ordered: Ordered, mark: Any) -> None:
        self._ordered, self.mark = ordered, mark
        self._number, self._given = 0, 0
        self._batches: Iterator[tuple[Any, ...]] | None = None

    @property
    def begun(self) -> bool:
        """Whether it has its order."""
        return self._batches is not None

    def _begin(self) -> Iterator[tuple[Any, ...]]:
        if self._batches is None:
            self._number, self._batches = self._ordered.begun(self.mark)
        return self._batches

    def __next__(self) -> tuple[Any, ...]:
        batch = next(self._begin())
        self._given += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that it gave."""
        self._begin()
        return self._ordered.place(self._number, self._given)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where `state_dict` was called."""
        self._ordered.check_place(state)
        # Its mark is no longer one that a pass is to be made for.
        self._begin()
        self._number, self._given = state["pass"], state["batches"]
        self._batches = self._ordered.resumed(self._number, self._given)
