"""The order in which TensorFlow gives samples: its own data sets, on numbers in place of samples.

A buffer's order depends on its seeds and on how many samples pass through it, not on what they are. So TensorFlow
itself shuffles, repeats and interleaves the numbers of samples, which costs little, and the engine makes the samples.

Invariant: data sets that TensorFlow's optimizer looks at side by side (it fuses ``shuffle().repeat()``, which gives
another order) are side by side here, and others are not.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.ops import gen_dataset_ops

from .._loader import BadSample, Stats, to_numpy
from ..dataset import Dataset
from ..exceptions import StateError
from ._pipeline import READS_FILES, Left, Pipeline

__all__ = ["Ordered", "counted", "numbers"]

# More samples than there ever are: `take` of them separates data sets, and is not left out as `take(-1)` is.
_ALL = 1 << 62
# Iterators that were made, and are not asked for anything.
_UNASKED = 1000


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
        dataset: Samples in the order of the source.
        order: Their numbers.
        batch: How many, and whether a smaller last batch is left out.
        seed: Of the engine's random numbers.
    """

    def __init__(self, dataset: Dataset, order: Any, batch: tuple[int, bool], seed: int) -> None:
        self._dataset, self._size, self._seed = dataset, batch[0], seed
        self._numbers = order.batch(batch[0], drop_remainder=batch[1])
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._main: Any = dataset._native.loader_given()
        self._idle = [self._main]
        self._passes = 0
        self._marks = self.marks()
        self._begins: dict[tuple[int, ...], tuple[Any, int]] = {}

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        (mark,) = self.marks()
        return self.batches(mark.numpy())

    def batches(self, mark: Any) -> Iterator[tuple[Any, ...]]:
        """Those of the iterator that has a mark of `marks`."""
        if os.getpid() != self._process:
            raise StateError(
                "a data set of feed() was iterated in a forked process\nhint: call feed() in that process"
            )
        with self._lock:
            if self._main is None:
                raise StateError("the loader is closed")
            numbers, seed = self._begun(mark)
            loader = self._idle.pop() if self._idle else self._dataset._native.loader_given()
        try:
            yield from self._batches(loader, seed, numbers)
        finally:
            with self._lock:
                kept = self._main is not None and not self._idle
                if kept:
                    self._idle.append(loader)
            if not kept and loader is not self._main:
                loader.close()

    def _begun(self, mark: Any) -> tuple[Any, int]:
        """The numbers for a mark, and the seed of its pass. All marks up to it get iterators, in their order."""
        wanted = tuple(mark)
        for _ in range(_UNASKED):
            if wanted in self._begins:
                return self._begins.pop(wanted)
            (values,) = self._marks
            self._begins[tuple(values.numpy())] = iter(self._numbers), (self._seed + self._passes) % 2**64
            self._passes += 1
            if len(self._begins) > _UNASKED:
                del self._begins[next(iter(self._begins))]
        raise StateError(
            f"an iterator was asked for its first batch after {_UNASKED} others had been made\n"
            "hint: make iterators when they are needed"
        )

    def _batches(self, loader: Any, seed: int, numbers: Any) -> Iterator[tuple[Any, ...]]:
        loader.begin(seed)
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
        return counted(self._numbers, self._size)

    def explain(self) -> str:
        """What the engine does."""
        text = self._dataset.batch(self._size).explain()
        return f"{text.rstrip()}\nThe order is that of TensorFlow's own shuffles, which run on numbers of samples.\n"

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
