"""Iterable data sets of Hugging Face over Arrow tables: rows by position, in the order of their own stages.

These are what ``to_iterable_dataset()`` makes. Invariant: batch `i` has the samples that the stock loader's batch `i`
has, whatever the number of workers, none of which is started. The order is not computed here: the data set's own stages
run over a column of row numbers in place of its columns, with functions that change nothing, for each worker as it
would run there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from .._private import WorkerInfo
from . import hugging, users
from .datasets import Flat, flatten, leaf_of_rows
from .forms import Line, RefusalError, name_of
from .native import NativeSource
from .values import Example
from .webdataset import in_process

__all__ = ["Examples", "Iterated", "RowStream", "flat_of", "is_known", "order_of", "read"]

_NUMBER = "number"

_MODULE = "datasets.iterable_dataset"
_METHODS = ("__iter__", "_iter_pytorch", "_prepare_ex_iterable_for_iteration")


@dataclass(frozen=True)
class Step:
    """A function of `map`.

    Attributes:
        function: What is called.
        removed: Columns that it takes out.
        batched: Whether it is given several rows, as lists.
    """

    function: Callable[[Any], Any]
    removed: tuple[str, ...]
    batched: bool


@dataclass(frozen=True)
class Iterated:
    """An iterable data set, recognized.

    Attributes:
        dataset: The data set.
        stages: What it iterates over.
        shards: The Arrow tables under it, in their order.
        whole: The rows of all shards, by position, in the format of the iterable data set.
        steps: What it does to each row.
    """

    dataset: Any
    stages: Any
    shards: list[Any]
    whole: Any
    steps: list[Step]

    def same(self, dataset: Any) -> bool:
        """Whether this is still what `dataset` is. Stages are never changed, but exchanged for others."""
        return dataset is self.dataset and dataset._ex_iterable is self.stages


class Examples(Dataset[Any]):
    """Its samples by their place in `Iterated.whole`."""

    def __init__(self, iterated: Iterated) -> None:
        self.iterated = iterated

    def __len__(self) -> int:
        return len(self.iterated.whole)

    def __getitem__(self, place: int) -> Any:
        row = self.iterated.whole[place]
        for step in self.iterated.steps:
            given = {name: [value] for name, value in row.items()} if step.batched else dict(row)
            kept = {name: value for name, value in given.items() if name not in step.removed}
            made = step.function(given)
            if made is given:
                made = {name: value for name, value in made.items() if name not in step.removed}
            row = {**kept, **made}
            if step.batched:
                row = {name: values[0] for name, values in row.items()}
        return row


def is_known(dataset: Any) -> bool:
    """Whether it is an iterable data set of `datasets`, of exactly that type."""
    module = sys.modules.get("datasets")
    return module is not None and type(dataset) is module.IterableDataset


def read(dataset: Any) -> Iterated:
    """Recognizes `dataset`.

    Raises:
        RefusalError: Its rows do not lie in Arrow tables here, or something else than functions of `map` changes them.
    """
    own = vars(dataset)
    if any(name in own or getattr(type(dataset), name).__module__ != _MODULE for name in _METHODS):
        raise RefusalError("its methods were replaced", "use the class as its library made it")
    try:
        return _read(dataset)
    except (AttributeError, KeyError, TypeError) as error:
        # Another version of the library, whose stages look different.
        raise RefusalError(f"its stages are not known ({type(error).__name__})") from None


def _read(dataset: Any) -> Iterated:
    import datasets

    if dataset._starting_state_dict is not None:
        raise RefusalError("it goes on from a state of its own", "the state of the loader")
    formatting = dataset._formatting and dataset._formatting.format_type
    steps: list[Step] = []
    stage = stages = dataset._ex_iterable
    features: list[Any] = [dataset._info.features]
    while hasattr(stage, "ex_iterable"):
        name = _known(stage)
        if name == "MappedExamplesIterable":
            steps.insert(0, _step(stage))
        elif name == "FormattedExamplesIterable":
            features.append(stage._features)
            if stage.formatting is not None and steps:
                raise RefusalError(f"its functions are given rows of format {stage.formatting.format_type!r}")
        stage = stage.ex_iterable
    _known(stage)
    if stage.generate_tables_fn is not datasets.Dataset._generate_tables_from_shards:
        raise RefusalError("its rows are read from elsewhere while it runs", "to_iterable_dataset()")
    shards = list(stage.kwargs["shards"])
    if any(known is not None and known != shards[0].features for known in features):
        raise RefusalError("its columns were cast to others after to_iterable_dataset()", "cast them before")
    if formatting is not None and steps:
        raise RefusalError(f"its functions are given rows of format {formatting!r}", "with_format(None)")
    whole = datasets.concatenate_datasets([shard.with_format(None) for shard in shards])
    return Iterated(dataset, stages, shards, whole.with_format(formatting), steps)


_STAGES = frozenset(
    [
        *("ArrowExamplesIterable", "RebatchedArrowExamplesIterable", "BufferShuffledExamplesIterable"),
        *("SkipExamplesIterable", "TakeExamplesIterable", "StepExamplesIterable", "RepeatExamplesIterable"),
        *("InterleavedShardsExamplesIterable", "FormattedExamplesIterable", "MappedExamplesIterable"),
    ]
)
"""Stages that change the order of rows only, and `map`."""


def _known(stage: Any) -> str:
    kind = type(stage)
    if kind.__module__ != _MODULE or kind.__name__ not in _STAGES:
        words = {"FilteredExamplesIterable": "filter", "ExamplesIterable": "a generator"}
        what = words.get(kind.__name__, kind.__name__)
        raise RefusalError(f"its stage {what} is Python code")
    return kind.__name__


def _step(stage: Any) -> Step:
    who = f"map({name_of(stage.function)})"
    for name, usual in (("with_indices", False), ("input_columns", None), ("fn_kwargs", {})):
        if getattr(stage, name) != usual:
            raise RefusalError(f"{who} has {name}=", f"{name} left out")
    if stage.formatting is not None or stage._features is not None:
        raise RefusalError(f"{who} has rows of a format or features= of its own")
    if stage.batched and stage.drop_last_batch:
        raise RefusalError(f"{who} has drop_last_batch=True", "drop_last_batch left out")
    return Step(stage.function, tuple(stage.remove_columns or ()), stage.batched)


# The order.


def order_of(iterated: Iterated) -> Any:
    """The data set with row numbers, from 0 for the first row of the first shard, in place of rows."""
    import datasets

    features = datasets.Features({_NUMBER: datasets.Value("int64")})
    tables, first = [], 0
    for shard in iterated.shards:
        numbers = {_NUMBER: np.arange(first, first + len(shard))}
        tables.append(datasets.Dataset.from_dict(numbers, features=features))
        first += len(shard)

    def numbered(stage: Any) -> Any:
        twin = _twin(stage)
        if hasattr(stage, "ex_iterable"):
            twin.ex_iterable = numbered(stage.ex_iterable)
        else:
            twin.kwargs = {**stage.kwargs, "shards": tables}
        if type(stage).__name__ == "MappedExamplesIterable":
            twin.function, twin.remove_columns = _unchanged, None
        elif getattr(stage, "_features", None) is not None:
            twin._features = features
        return twin

    known = iterated.dataset
    order = _twin(known)
    order._ex_iterable = numbered(iterated.stages)
    order._info = _twin(known._info)
    if order._info.features is not None:
        order._info.features = features
    return order


def _twin(thing: Any) -> Any:
    """A shallow copy. That of the `copy` module shares its attributes with the data set."""
    twin = object.__new__(type(thing))
    twin.__dict__.update(thing.__dict__)
    return twin


def _unchanged(rows: Any) -> Any:
    return rows


def _batches(
    order: Any, size: int | None, drop_last: bool, worker: WorkerInfo | None
) -> Iterator[npt.NDArray[np.int64]]:
    """Numbers of the rows of each batch that one process of a loader gives, in its order."""
    numbers = (int(row[_NUMBER]) for row in in_process(iter(order), worker))
    while True:
        batch = list(islice(numbers, 1 if size is None else size))
        if not batch or (drop_last and size is not None and len(batch) < size):
            return
        yield np.asarray(batch, np.int64)


# What is read of the functions.


def flat_of(iterated: Iterated) -> tuple[Examples | Any, Flat]:
    """The data set by position, and what the engine can read of it.

    Raises:
        RefusalError: The engine cannot make its rows.
    """
    if not iterated.steps:
        return iterated.whole, flatten(iterated.whole)
    whole = iterated.whole
    image, cells_of = hugging.cells(whole, list(whole.column_names))
    reading = users.read_examples(iterated.steps, lambda names: Example(cells_of(names)), len(whole.data))
    examples = Examples(iterated)
    leaf = leaf_of_rows(examples, hugging.content_of(whole, image, reading), reading)
    picked = whole._indices
    rows = None if picked is None else picked.column(0).to_numpy().astype(np.int64)
    return examples, Flat([leaf], rows, len(whole))


class RowStream:
    """What batches are made from, for a `StreamIterator`.

    Args:
        iterated: The data set, recognized.
        flat: What the engine reads of it.
        native: What makes batches of rows by their position.
        lines: What became of each part.
        key: What else it was made for.
    """

    def __init__(
        self,
        iterated: Iterated,
        flat: Flat,
        native: NativeSource,
        lines: list[tuple[str, Line]],
        key: list[Any],
    ) -> None:
        self.iterated, self.flat, self.native, self.key = iterated, flat, native, key
        self.acquire, self.release = native.acquire, native.release
        order = "the data set's own stages, run over the numbers of rows, for each worker as it would be"
        self._lines = [lines[0], ("order", Line("order of rows", False, order)), *lines[1:]]

    @property
    def in_python(self) -> int:
        """Batches that the data set itself made."""
        return self.native.in_python

    def current(self, dataset: Any, key: list[Any]) -> bool:
        """Whether it still holds."""
        same = len(key) == len(self.key) and all(a is b for a, b in zip(key, self.key))
        readings = [leaf.reading for leaf in self.flat.leaves if leaf.reading is not None]
        try:
            unchanged = all(
                len(now := reading.now()) == len(reading.seen)
                and all(a is b[1] for a, b in zip(now, reading.seen))
                for reading in readings
            )
        except RefusalError:
            return False
        return same and unchanged and self.iterated.same(dataset)

    def lines(self) -> list[tuple[str, Line]]:
        """What became of each part."""
        return self._lines

    def stages(self, workers: int) -> list[Any]:
        """What each worker has of its own: nothing, since the data set counts no epochs by itself."""
        return [None] * workers

    def batches(self, loader: Any, worker: WorkerInfo | None, stages: Any) -> Iterator[Any]:
        """Numbers of the rows of each batch of one process."""
        return _batches(order_of(self.iterated), loader.batch_size, loader.drop_last, worker)

    def located(self, numbers: Any) -> Any:
        """Rows of the engine's data set."""
        return numbers if self.native.rows is None else self.native.rows[numbers]

    def finish(self, columns: list[Any], numbers: Any) -> Any:
        """A batch of the engine's columns, as the loader collates it."""
        return self.native.finish(columns, self.located(numbers), numbers)

    def make_in_python(self, numbers: Any, error: BaseException) -> Any:
        """The batch as the data set makes it. Whatever it raises has the engine's words as its cause."""
        return self.native.make_in_python(numbers, error)
