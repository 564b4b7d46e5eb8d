"""`Verbs`: tf.data's methods and arguments, carried out by wellfed, in the place of `Dataset` in tf.data's own tests.

A test is about values where it can be: other sources stand for those that wellfed does not have (`from_tensors`,
generators), if elements are the same. What wellfed does not have is `no(...)`, which keeps the reason; what it
refuses is an `InvalidArgumentError`, as TensorFlow's own refusals are, and kept too. If the test fails, it was skipped
for that.
"""

from __future__ import annotations

import itertools
import os
import types
import unittest
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops import global_shuffle_op, random_access
from tensorflow.python.data.experimental.ops import readers as experimental_readers
from tensorflow.python.data.kernel_tests import test_base
from tensorflow.python.data.ops import dataset_ops, readers
from tensorflow.python.data.util import nest

import wellfed as wf

__all__ = ["notes", "put_in", "touched"]

notes: list[str] = []
"""Why the test that runs cannot be carried out, if it cannot."""

touched: list[bool] = []
"""One entry for each data set of wellfed's that the test that runs has iterated or asked for something."""

LOOKED_AT = 60
"""Elements of Python steps whose shapes are looked at."""

MOST = 10_000
"""Elements of generators that are taken into memory."""


NAMED = "structures other than dicts and tuples"


class Refused(tf.errors.InvalidArgumentError, ValueError, TypeError):  # type: ignore[misc]
    """What wellfed refuses."""


def no(what: str) -> unittest.SkipTest:
    """The error for what wellfed does not have."""
    notes.append(what)
    return unittest.SkipTest(what)


def asked(make: Callable[[], Any]) -> Any:
    """What `make` gives, with wellfed's refusals as TensorFlow's."""
    try:
        return make()
    except (ValueError, TypeError, OverflowError, ZeroDivisionError) as e:
        if isinstance(e, Refused):
            raise
        first = str(e).splitlines()[0]
        notes.append(f"refused: {first}")
        raise Refused(None, None, str(e)) from e


def whole(value: Any) -> Any:
    """A tensor's number."""
    return int(value) if isinstance(value, tf.Tensor | tf.Variable | np.ndarray | np.generic) else value


def leaf(value: Any) -> Any:
    """What TensorFlow makes of a component, as NumPy's or wellfed's."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, tf.SparseTensor) or type(first).__name__ == "SparseTensorValue":
        raise no("sparse tensors")
    strange = tf.data.Dataset | Verbs | tf.TensorArray | tf.experimental.Optional
    if first is None or isinstance(first, strange):
        raise no("components that are no tensors")
    if type(value).__name__ == "RaggedTensorValue":
        value = tf.RaggedTensor.from_nested_row_splits(value.flat_values, value.nested_row_splits)
    if isinstance(value, tf.RaggedTensor):
        if value.ragged_rank != 1:
            raise no("ragged in more than one dimension")
        return wf.Ragged(value.values.numpy(), value.row_splits.numpy())
    return tf.convert_to_tensor(value).numpy()


def mapped(function: Callable[[Any], Any], structure: Any) -> Any:
    """A structure of what `function` gives for its leaves; wellfed's structures are dicts and tuples."""
    if isinstance(structure, Mapping):
        return {key: mapped(function, one) for key, one in structure.items()}
    if hasattr(structure, "__attrs_attrs__"):
        raise no(NAMED)
    if isinstance(structure, tuple) and type(structure).__name__ not in (
        "SparseTensorValue",
        "RaggedTensorValue",
    ):
        return tuple(mapped(function, one) for one in structure)
    return function(structure)


def leaves(structure: Any) -> list[Any]:
    """The leaves of a structure."""
    found: list[Any] = []
    mapped(found.append, structure)
    return found


def element(values: Any) -> Any:
    """What a function gave, in arrays."""
    # As TensorFlow has it: lists are what py_function gives.
    made = mapped(leaf, tuple(values) if isinstance(values, list) else values)
    if any(isinstance(one, wf.Ragged) for one in leaves(made)):
        raise no("a function that gives ragged tensors")
    return made


def tensors(value: Any) -> Any:
    """An element as what tf.data calls functions with."""

    def tensor(one: Any) -> Any:
        if isinstance(one, wf.Ragged):
            return tf.RaggedTensor.from_row_splits(one.values, one.offsets)
        return tf.convert_to_tensor(one)

    if isinstance(value, list):
        return (
            tensor(value) if not value or isinstance(value[0], str | bytes) else [tensors(v) for v in value]
        )
    if isinstance(value, Mapping):
        return {key: tensors(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(tensors(one) for one in value)
    return tensor(value)


def called(function: Callable[..., Any], value: Any) -> Any:
    """A function of tf.data's: a tuple is its arguments."""
    given = tensors(value)
    return function(*given) if isinstance(given, tuple) else function(given)


class Rows:
    """Elements in memory, as a data set of Python."""

    def __init__(self, elements: list[Any]) -> None:
        self.elements = elements

    def __len__(self) -> int:
        return len(self.elements)

    def __getitem__(self, index: int) -> Any:
        return self.elements[index]


def is_text(array: Any) -> bool:
    return isinstance(array, str | bytes) or getattr(array, "dtype", None) == np.dtype(object)


def in_memory(elements: list[Any]) -> wf.Dataset:
    """A source of elements, each a structure of arrays."""
    if not elements:
        raise no("a source without elements, whose structure is not known")
    columns = [list(column) for column in zip(*map(leaves, elements), strict=True)]
    shapes = [{np.shape(one) for one in column} for column in columns]
    numbers = not any(is_text(one) for one in leaves(elements[0]))
    if numbers and all(len(one) == 1 or all(len(shape) == 1 for shape in one) for one in shapes):
        rows = iter(
            [
                np.stack(column) if len(shape) == 1 else wf.Ragged.from_arrays(column)
                for column, shape in zip(columns, shapes, strict=True)
            ]
        )
        return wf.from_tensor_slices(mapped(lambda _: next(rows), elements[0]), pixels="never")
    return wf.from_dataset(Rows(elements))


class _Methods(type):
    """The class of `Verbs`, for the functions of tf.data's class that wellfed does not have."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise no(f"{name} is not among wellfed's methods")


class Verbs(metaclass=_Methods):
    """A data set of wellfed's, with tf.data's methods."""

    def __init__(self, ours: Any) -> None:
        self.ours = ours
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise no(f"{name} is not among wellfed's methods")

    # Sources

    @staticmethod
    def range(*args: Any, output_type: Any = tf.int64, name: Any = None) -> Verbs:
        dtype = output_type.as_numpy_dtype
        return Verbs(asked(lambda: wf.from_tensor_slices(np.arange(*map(whole, args)).astype(dtype))))

    @staticmethod
    def from_tensor_slices(tensors: Any, name: Any = None) -> Verbs:
        made = mapped(leaf, tensors)
        parts = leaves(made)
        if not any(map(is_text, parts)):
            return Verbs(asked(lambda: wf.from_tensor_slices(made, pixels="never")))
        if any(isinstance(part, wf.Ragged) for part in parts):
            raise no("text beside ragged tensors in memory")
        rows = [mapped(lambda part, i=i: part[i], made) for i in range(len(parts[0]))]
        return Verbs(asked(lambda: wf.from_dataset(Rows(rows))))

    @staticmethod
    def from_tensors(tensors: Any, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: in_memory([mapped(leaf, tensors)])))

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = None,
        output_signature: Any = None,
        name: Any = None,
    ) -> Verbs:
        kinds = (
            output_types
            if output_signature is None
            else nest.map_structure(lambda s: s.dtype, output_signature)
        )

        def one(kind: Any, value: Any) -> Any:
            if isinstance(value, tf.SparseTensor):
                raise no("sparse tensors")
            return tf.convert_to_tensor(value, kind).numpy()

        found = list(itertools.islice(generator(*(args or ())), MOST))
        if len(found) == MOST:
            raise no("a generator without end")
        rows = [mapped(lambda v: v, nest.map_structure_up_to(kinds, one, kinds, value)) for value in found]
        return Verbs(asked(lambda: in_memory(rows)))

    # What TensorFlow asks for

    def as_tf(self) -> Any:
        """As a `tf.data.Dataset`."""
        touched.append(True)
        if self._made is None:
            workers = 0 if self.ours._has_python() else 1
            self._made = asked(lambda: self.ours.tf(num_workers=workers))
            if not workers and (spec := widened(self.ours, self._made.element_spec)) is not None:
                self._made = self.ours.tf(num_workers=0, element_spec=spec)
        return self._made

    def __iter__(self) -> Any:
        return iter(self.as_tf())

    def __len__(self) -> int:
        touched.append(True)
        return len(self.ours)

    def __bool__(self) -> bool:
        return True

    @property
    def element_spec(self) -> Any:
        return self.as_tf().element_spec

    @property
    def _variant_tensor(self) -> Any:
        return self.as_tf()._variant_tensor

    def cardinality(self, name: Any = None) -> Any:
        return self.as_tf().cardinality()

    def as_numpy_iterator(self, name: Any = None) -> Any:
        touched.append(True)
        return iter(self.ours.numpy(num_workers=0 if self.ours._has_python() else 1))

    # Verbs

    def known(self) -> Any:
        """A source of the same elements whose sizes are known, where Python steps make them."""
        if not self.ours._has_python():
            return self.ours
        found = list(itertools.islice(self.ours.numpy(num_workers=0), MOST))
        if len(found) == MOST:
            raise no("elements of Python without end, whose sizes are to be known")
        return in_memory(found)

    def with_options(self, options: Any, name: Any = None) -> Verbs:
        return self

    def apply(self, transformation_func: Callable[[Any], Any]) -> Any:
        return transformation_func(self)

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: Any = None,
        synchronous: Any = None,
        use_unbounded_threadpool: Any = False,
        name: Any = None,
    ) -> Verbs:
        return Verbs(asked(lambda: self.ours.map(lambda value: element(called(map_func, value)))))

    def filter(self, predicate: Callable[..., Any], name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.filter(lambda value: bool(called(predicate, value)))))

    def batch(
        self,
        batch_size: Any,
        drop_remainder: Any = False,
        num_parallel_calls: Any = None,
        deterministic: Any = None,
        name: Any = None,
    ) -> Verbs:
        return Verbs(asked(lambda: self.ours.batch(whole(batch_size), drop_last=bool(drop_remainder))))

    def padded_batch(
        self,
        batch_size: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: Any = False,
        name: Any = None,
    ) -> Verbs:
        shapes, values = sides(padded_shapes), fillers(padding_values)
        return Verbs(
            asked(
                lambda: self.known().padded_batch(
                    whole(batch_size), shapes, values, drop_last=bool(drop_remainder)
                )
            )
        )

    def ragged_batch(
        self, batch_size: Any, drop_remainder: Any = False, row_splits_dtype: Any = tf.int64, name: Any = None
    ) -> Verbs:
        if row_splits_dtype != tf.int64:
            raise no("row splits of another dtype than int64")
        return Verbs(
            asked(lambda: self.known().ragged_batch(whole(batch_size), drop_last=bool(drop_remainder)))
        )

    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any],
        bucket_boundaries: Any,
        bucket_batch_sizes: Any,
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,
        no_padding: bool = False,
        drop_remainder: bool = False,
        name: Any = None,
    ) -> Verbs:
        # Functions in these tests give the length of the one field that varies.
        shapes, values = sides(padded_shapes), fillers(padding_values)
        return Verbs(
            asked(
                lambda: self.known().bucket_by_sequence_length(
                    None,
                    list(bucket_boundaries),
                    list(bucket_batch_sizes),
                    shapes,
                    values,
                    pad_to_bucket_boundary,
                    no_padding,
                    drop_remainder,
                )
            )
        )

    def unbatch(self, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.unbatch()))

    def rebatch(self, batch_size: Any, drop_remainder: Any = False, name: Any = None) -> Verbs:
        if np.ndim(batch_size):
            raise no("rebatch to several sizes")
        size = whole(batch_size)
        return Verbs(asked(lambda: self.ours.unbatch().batch(size, drop_last=bool(drop_remainder))))

    def take(self, count: Any, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.take(whole(count))))

    def skip(self, count: Any, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.skip(whole(count))))

    def repeat(self, count: Any = None, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.repeat(whole(count))))

    def shard(self, num_shards: Any, index: Any, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.shard(rank=whole(index), world_size=whole(num_shards))))

    def enumerate(self, start: Any = 0, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.enumerate(whole(start))))

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: Any = None) -> Verbs:
        if (datasets is None) == (not args):
            raise no("zip of nothing, or of data sets in two arguments")
        given = datasets if datasets is not None else (args[0] if len(args) == 1 else args)
        if isinstance(given, Verbs):
            return given
        if isinstance(given, Mapping):
            raise no("zip of a dict of data sets")
        if hasattr(given, "_fields") or hasattr(given, "__attrs_attrs__") or is_dataclass(given):
            raise no(NAMED)
        if not isinstance(given, tuple):
            raise TypeError(f"Invalid `datasets`. {given!r} is not a (nested) structure of data sets")
        parts = [Verbs.zip(one) if isinstance(one, tuple | Mapping) else one for one in given]
        return Verbs(asked(lambda: parts[0].ours.zip(*(part.ours for part in parts[1:]))))

    def concatenate(self, dataset: Any, name: Any = None) -> Verbs:
        return Verbs(asked(lambda: self.ours.concatenate(dataset.ours)))

    @staticmethod
    def sample_from_datasets(
        datasets: Any,
        weights: Any = None,
        seed: Any = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: Any = None,
    ) -> Verbs:
        if isinstance(weights, Verbs):
            raise no("weights that are a data set")
        if rerandomize_each_iteration is False:
            raise no("rerandomize_each_iteration=False: each epoch has its own order")
        shares = None if weights is None else np.asarray(weights).tolist()
        return Verbs(
            asked(
                lambda: wf.Dataset.sample_from_datasets(
                    [one.ours for one in datasets], shares, seed or 0, stop_on_empty_dataset
                )
            )
        )

    def cache(self, filename: Any = "", name: Any = None) -> Verbs:
        path = filename.numpy().decode() if isinstance(filename, tf.Tensor) else os.fspath(filename)
        return Verbs(asked(lambda: self.ours.cache(path=path or None)))

    def prefetch(self, buffer_size: Any, name: Any = None) -> Verbs:
        return self

    def shuffle(
        self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: Any = None, name: Any = None
    ) -> Verbs:
        number = whole(seed) or 0
        return Verbs(
            asked(lambda: self.ours.shuffle(seed=number, reshuffle_each_iteration=reshuffle_each_iteration))
        )


def widened(ours: wf.Dataset, spec: Any) -> Any:
    """The spec of elements of Python steps whose shapes differ, which the user says; None if they do not."""
    specs = tf.nest.flatten(spec)
    if not all(isinstance(one, tf.TensorSpec) for one in specs):
        return None
    shapes = [one.shape for one in specs]
    try:
        for index in range(min(len(ours), LOOKED_AT)):
            found = [tf.TensorShape(np.shape(one)) for one in leaves(ours[index])]
            shapes = [old.most_specific_compatible_shape(new) for old, new in zip(shapes, found, strict=True)]
    except Exception:  # What is wrong with an element is for the test to find.
        return None
    if all(one.shape.is_compatible_with(shape) and one.shape == shape for one, shape in zip(specs, shapes)):
        return None
    made = [tf.TensorSpec(shape, one.dtype) for one, shape in zip(specs, shapes, strict=True)]
    return tf.nest.pack_sequence_as(spec, made)


def sides(shapes: Any) -> Any:
    """`padded_shapes` without TensorFlow's types."""
    if shapes is None:
        return None
    if isinstance(shapes, tf.TensorShape):
        return shapes.as_list()
    if isinstance(shapes, tf.Tensor):
        return [None if side == -1 else int(side) for side in shapes]
    if isinstance(shapes, Mapping):
        return {key: sides(one) for key, one in shapes.items()}
    if isinstance(shapes, tuple):
        return tuple(map(sides, shapes))
    return [None if side in (None, -1) else int(side) for side in shapes]


def fillers(values: Any) -> Any:
    """`padding_values` without TensorFlow's types."""
    if values is None:
        return None

    def filler(value: Any) -> Any:
        if value is None:
            return None
        number = tf.convert_to_tensor(value)
        if number.dtype == tf.string:
            raise no("padding of text")
        if number.shape.rank:
            raise Refused(None, None, f"a padding value has shape {number.shape}")
        return number.numpy().item()

    return nest.map_structure(filler, values)


def tfrecord(
    filenames: Any,
    compression_type: Any = None,
    buffer_size: Any = None,
    num_parallel_reads: Any = None,
    name: Any = None,
) -> Verbs:
    """`tf.data.TFRecordDataset`."""
    if isinstance(filenames, Verbs):
        filenames = [str(bytes(one), "utf-8") for one in filenames.as_numpy_iterator()]
    if isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    elif isinstance(filenames, list | tuple):
        filenames = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in filenames]
    texts = tf.convert_to_tensor(filenames)
    if texts.dtype != tf.string:
        raise no(f"file names of {texts.dtype.name}")
    paths = [name.decode() for name in np.atleast_1d(texts.numpy())]
    # Compressed files have no positions, and so are unpacked beside them.
    folder = os.path.dirname(paths[0]) if paths and compression_type else None
    return Verbs(
        asked(
            lambda: wf.tfrecord(
                paths,
                compression=compression_type or "",
                unpack_to=folder and os.path.join(folder, "unpacked"),
            )
        )
    )


def csv(file_pattern: Any, batch_size: Any, **more: Any) -> Verbs:
    """`tf.data.experimental.make_csv_dataset`."""
    for name in ("num_parallel_reads", "prefetch_buffer_size", "sloppy"):
        more.pop(name, None)
    if (more.pop("encoding", None) or "utf-8").lower() != "utf-8":
        raise no("encodings other than UTF-8")
    if more.get("shuffle_seed") is not None and more.get("shuffle") is False:
        more.pop("shuffle_seed")
    names = [file_pattern] if isinstance(file_pattern, str) else [str(one) for one in file_pattern]
    return Verbs(asked(lambda: wf.csv(names, batch_size, **more)))


def at(dataset: Verbs, index: Any) -> Any:
    """`random_access.at`."""
    touched.append(True)
    try:
        found = dataset.ours[whole(index)]
    except IndexError as e:
        raise tf.errors.OutOfRangeError(None, None, str(e)) from e
    return tensors(found)


def globally_shuffled(
    dataset: Verbs, seed: Any = None, reshuffle_each_iteration: Any = None, name: Any = None
) -> Verbs:
    """`global_shuffle_op._global_shuffle`, which `shuffle` is."""
    return dataset.shuffle(0, seed, reshuffle_each_iteration)


class Module(types.ModuleType):
    """A module of TensorFlow's in which some names are others."""

    def __init__(self, real: Any, **others: Any) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(others, _real=real)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


MODULES = {
    real: Module(real, **others)
    for real, others in [
        (dataset_ops, {"Dataset": Verbs, "DatasetV2": Verbs}),
        (readers, {"TFRecordDataset": tfrecord, "TFRecordDatasetV2": tfrecord}),
        (experimental_readers, {"make_csv_dataset": csv, "make_csv_dataset_v2": csv}),
        (random_access, {"at": at}),
        (global_shuffle_op, {"_global_shuffle": globally_shuffled}),
    ]
}


_determinism = test_base.DatasetTestBase.checkDeterminism


def determinism(self: Any, dataset_fn: Any, expect_determinism: bool, expected_elements: Any) -> None:
    """`checkDeterminism`, which else waits minutes for an order that differs."""
    if not expect_determinism:
        raise no("an order that is not deterministic")
    _determinism(self, dataset_fn, expect_determinism, expected_elements)


def put_in(module: Any) -> None:
    """Has a module of tests see `Verbs` in the place of tf.data's."""
    test_base.DatasetTestBase.checkDeterminism = determinism
    for one in (module, test_base):
        for name, value in vars(one).items():
            if isinstance(value, types.ModuleType) and value in MODULES:
                setattr(one, name, MODULES[value])
