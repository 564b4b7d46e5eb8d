"""tf.data pipelines, iterated in Python or by Keras's `fit`: their steps, waits, and what each stage did.

Invariant: batches, their order and every random number are those that the script gets without us.

What can be seen of tf.data from outside, and what is used here:

- Iteration in Python (`for x, y in dataset`, `as_numpy_iterator`, `next(iterator)`, eager Keras) comes through
  `OwnedIterator._next_internal`, which is timed like any `__next__`.
- Keras's `fit` hands the iterator to a `tf.function`: the call of `get_next` is a node of a graph, and Python sees only
  whole steps. While that function is traced, two nodes that call back into Python (`PyFunc`) are put around the node of
  `get_next`. They cost some 10 microseconds a step, and synchronize nothing: the node of `get_next` blocks the function
  anyhow. The model's own nodes lie in an inner function, whose numbering (the seed of TensorFlow's stateful random
  operations) does not change. A `tf.function` of the script itself that calls `next` is left alone for that reason:
  there, nodes of ours would shift the seeds.
- Threads of tf.data cannot be told by name: the kernel knows all of them as `python`.
- `IteratorGetModelProto` gives what tf.data's own model knows, as nodes after its rewrites: elements made, time in each
  node, the parallelism it chose (a `map` without `num_parallel_calls` may run in parallel), and how full buffers are.
  Asking takes 30 to 150 microseconds, and is done once a second and at an epoch's end.
- Metrics such as `/tensorflow/data/getnext_duration` have no way into Python.

Not seen: loops over a data set inside of a `tf.function` of the script, iterators of distribution strategies, and
Keras 2.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from . import feeding, hooks
from .control import CONTROL, FAR
from .places import of_caller, qualified, shorten
from .recorder import RECORDER, Record, now
from .steps import LoaderLog, Steps

__all__ = ["install"]

BETWEEN_PIPELINES = 1_000_000_000
MARK = "_wellfed_probe"
PLACE = "_wellfed_place"
FED = "_wellfed_fed"
MOST_ASKED = 64 << 20
"""Bytes of tensors in a data set whose graph is looked at."""
MAKERS = ("image_dataset_from_directory", "make_csv_dataset")
"""Calls that make whole data sets."""
DECODES = {
    *("DecodeJpeg", "DecodeAndCropJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeGif", "DecodeWav"),
    *("DecodeCSV", "CSVDataset", "CSVDatasetV2", "Csv", "ParseExampleV2", "ParseSingleExample"),
}
"""Operations that say what a pipeline reads, and data sets that do."""
KERAS_LOOPS = ("multi_step_on_iterator", "one_step_on_iterator")

Place = dict[str, Any]


class Seen:
    """A data set that is iterated: a loader."""

    def __init__(self, record: Record, batch_size: int | None) -> None:
        self.batch_size = batch_size
        self.told_batch = False
        self.asked = False
        """Whether it was asked what wellfed would make of it."""
        self.log = LoaderLog(lambda number: {"k": "loader", "t": now(), "loader": number, **record})


class Epoch:
    """One pass of an iterator over its data set; its steps once the first is asked for."""

    def __init__(self, seen: Seen, t0: int, t1: int) -> None:
        self.seen = seen
        self.t0 = t0
        self.t1 = t1
        self.steps: Steps | None = None
        self.next_pipeline = 0

    def begin(self, kind: type[Steps] = Steps) -> Steps:
        """The steps."""
        if self.steps is None:
            self.steps = kind(self.seen.log, self.t0, self.t1)
        return self.steps


class GraphSteps(Steps):
    """Steps of Keras's loop, entered and left by threads of TensorFlow while the thread of `fit` waits for them."""

    def __init__(self, log: LoaderLog, t0: int, t1: int) -> None:
        super().__init__(log, t0, t1)
        self.clock = time.pthread_getcpuclockid(threading.get_ident())
        # Several with `steps_per_execution`: the graph may ask for a batch before it says that the last came.
        self.open: deque[tuple[int, int, int]] = deque()

    def asks(self) -> None:
        """Before `get_next`."""
        self.open.append((now(), time.clock_gettime_ns(self.clock), time.process_time_ns()))

    def has(self) -> None:
        """After it."""
        if not self.open:
            return
        t0, c0, p0 = self.open.popleft()
        if self.n >= self.skip:
            self.add(
                (self.n, t0, now(), 0, c0, time.clock_gettime_ns(self.clock), p0, time.process_time_ns())
            )
        self.n += 1


_seen: dict[Any, Seen] = {}
_described: weakref.WeakSet[Any] = weakref.WeakSet()
_models: weakref.WeakSet[Any] = weakref.WeakSet()
_keras: list[GraphSteps | None] = [None]
# Steps of the epoch Keras is in: validation within an epoch takes the place of training until training's next step.


def install() -> None:
    """Names what is patched."""
    hooks.when_imported("tensorflow", patch_tensorflow)
    hooks.when_imported("keras.src.backend.tensorflow.trainer", patch_keras)


def patch_tensorflow(tf: Any) -> None:
    """Times iterators, and notes where data sets are made."""
    iterators = module("tensorflow.python.data.ops.iterator_ops").OwnedIterator
    datasets = module("tensorflow.python.data.ops.dataset_ops").DatasetV2
    eager: Callable[[], bool] = tf.executing_eagerly
    out_of_range = tf.errors.OutOfRangeError
    initialize, next_internal = iterators.__init__, iterators._next_internal
    next_optional = iterators.get_next_as_optional
    initialize_dataset = datasets.__init__

    def init_dataset(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            vars(self)[PLACE] = of_caller(methods=verbs(self))
        except Exception:
            RECORDER.failed("finding where a data set is made")
        initialize_dataset(self, *args, **kwargs)

    def init(self: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        if dataset is None or not eager() or feeding.asking():
            initialize(self, dataset, *args, **kwargs)
            return
        wanted = fed_once(dataset) if CONTROL.feed else dataset
        if "prefetch" in CONTROL.loader and kind(dataset) != "Prefetch":
            wanted = dataset.prefetch(int(CONTROL.loader["prefetch"]))
        if "private_threadpool_size" in CONTROL.loader:
            options = tf.data.Options()
            options.threading.private_threadpool_size = int(CONTROL.loader["private_threadpool_size"])
            wanted = wanted.with_options(options)
        t0 = now()
        initialize(self, wanted, *args, **kwargs)
        t1 = now()
        try:
            seen = loader_of(dataset, wanted)
            if not seen.asked and not CONTROL.feed:
                seen.asked = True
                ask(dataset, seen)
            vars(self)[MARK] = Epoch(seen, t0, t1)
        except Exception:
            RECORDER.failed("describing a tf.data pipeline")

    def next_(self: Any) -> Any:
        if not eager():
            return between(tf, lambda: next_internal(self))
        epoch = vars(self).get(MARK)
        if epoch is None:
            return next_internal(self)
        steps = epoch.begin()
        if steps.n < steps.skip:
            value = next_internal(self)
            steps.n += 1
            return value
        entered = steps.enter()
        try:
            value = next_internal(self)
        except out_of_range:
            finish(self, epoch, entered[0])
            raise
        steps.leave(entered)
        if now() >= epoch.next_pipeline or not epoch.seen.told_batch:
            look(self, epoch, value)
        return value

    def optional(self: Any) -> Any:
        return next_optional(self) if eager() else between(tf, lambda: next_optional(self))

    datasets.__init__ = init_dataset
    iterators.__init__ = init
    iterators._next_internal = next_
    iterators.get_next_as_optional = optional
    if "num_parallel_calls" in CONTROL.loader:
        for name in ("map", "interleave"):
            make_parallel(datasets, name, int(CONTROL.loader["num_parallel_calls"]))


def module(name: str) -> Any:
    """A module that the script has imported."""
    return sys.modules[name]


def fed_once(dataset: Any) -> Any:
    """What wellfed makes of a data set, made when it is first iterated."""
    made = vars(dataset).get(FED)
    if made is None:
        made = vars(dataset)[FED] = feeding.fed(dataset)
    return made


def ask(dataset: Any, seen: Seen) -> None:
    """Notes what wellfed would make of a data set, unless its graph holds much data, which would be copied for that."""
    if sum(tensor_bytes(node) for node in walk(dataset)) > MOST_ASKED:
        return
    place = vars(dataset).get(PLACE)
    feeding.note(dataset, seen.log.number, place if place is not None and "call" in place else None)


def tensor_bytes(node: Any) -> int:
    """Bytes of the tensors that a step has of its own."""
    tensors = vars(node).get("_tensors") or ()
    return sum(
        int(getattr(t, "nbytes", 0) or getattr(t.dtype, "size", 0) * t.shape.num_elements()) for t in tensors
    )


def make_parallel(datasets: Any, name: str, calls: int) -> None:
    """Has the method run in parallel where the script asks for no or fewer calls at once. The order stays."""
    original = getattr(datasets, name)
    # `num_parallel_calls` is the second argument of `map`, and the fourth of `interleave`.
    most = {"map": 1, "interleave": 3}[name]

    def parallel(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = args[most] if len(args) > most else kwargs.get("num_parallel_calls")
        fewer = given is None or (isinstance(given, int) and 0 <= given < calls)
        if fewer and not kwargs.get("synchronous"):
            if len(args) > most:
                args = (*args[:most], calls, *args[most + 1 :])
            else:
                kwargs["num_parallel_calls"] = calls
        return original(self, *args, **kwargs)

    parallel.__name__ = name
    parallel.__doc__ = original.__doc__
    setattr(datasets, name, parallel)


def between(tf: Any, get_next: Callable[[], Any]) -> Any:
    """Makes the nodes of `get_next`; in Keras's function, between two nodes that call us."""
    if _keras[0] is None or not tracing_keras(tf):
        return get_next()
    with tf.device("CPU:0"):
        before = tf.numpy_function(graph_asks, [], tf.int64)
    with tf.control_dependencies([before]):
        batch = get_next()
    if isinstance(batch, tf.experimental.Optional):
        nodes, there = [], batch.has_value()
    else:
        nodes = [tensor for tensor in tf.nest.flatten(batch, True) if isinstance(tensor, tf.Tensor)]
        there = tf.constant(True)
    with tf.control_dependencies(nodes), tf.device("CPU:0"):
        tf.numpy_function(graph_has, [there], tf.int64)
    return batch


def tracing_keras(tf: Any) -> bool:
    """Whether the graph being made is that of Keras's loop, not one of the script's."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if getattr(graph, "name", "") in KERAS_LOOPS:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def graph_asks() -> Any:
    """Called by the graph before `get_next`."""
    if _keras[0] is not None:
        _keras[0].asks()
    return module("numpy").int64(0)


def graph_has(there: Any) -> Any:
    """Called by the graph after it; `there` is false at the end of the data."""
    if _keras[0] is not None and there:
        _keras[0].has()
    return module("numpy").int64(0)


def patch_keras(trainer: ModuleType) -> None:
    """Follows epochs of `fit`, `evaluate` and `predict`."""
    epochs = vars(trainer)["TFEpochIterator"]
    models = vars(trainer)["TensorFlowTrainer"]
    name = "_enumerate_iterator" if hasattr(epochs, "_enumerate_iterator") else "enumerate_epoch"
    enumerate_ = getattr(epochs, name)
    catch = epochs.catch_stop_iteration
    make = models.make_train_function

    def enumerate_iterator(self: Any) -> Iterator[Any]:
        epoch: Epoch | None = None
        for number, item in enumerate(enumerate_(self)):
            try:
                iterator = item[-1]
                if number == 0:
                    epoch = keras_epoch(self, iterator)
                    vars(self)[MARK] = (epoch, iterator)
                _keras[0] = None
                if epoch is not None and isinstance(epoch.steps, GraphSteps):
                    _keras[0] = steps = epoch.steps
                    if steps.n >= steps.limit:
                        steps.check()
                    if steps.n and now() >= epoch.next_pipeline:
                        look(iterator, epoch, iterator.element_spec)
            except Exception:
                RECORDER.failed("following Keras")
            yield item

    @contextlib.contextmanager
    def catch_stop_iteration(self: Any) -> Iterator[None]:
        try:
            with catch(self):
                yield
        finally:
            epoch, iterator = vars(self).pop(MARK, (None, None))
            if epoch is not None and isinstance(epoch.steps, GraphSteps):
                waiting = epoch.steps.open
                finish(iterator, epoch, waiting[0][0] if waiting else now())

    def make_train_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in _described:
            _models.add(self)
            describe_models()
        return make(self, *args, **kwargs)

    setattr(epochs, name, enumerate_iterator)
    epochs.catch_stop_iteration = catch_stop_iteration
    models.make_train_function = make_train_function


def keras_epoch(epochs: Any, iterator: Any) -> Epoch | None:
    """The epoch of this iterator, if it is one of tf.data's own."""
    epoch: Epoch | None = vars(iterator).get(MARK)
    if epoch is None:
        return None
    seen = epoch.seen
    if seen.batch_size is None:
        size = getattr(getattr(epochs, "data_adapter", None), "batch_size", None)
        seen.batch_size = size if isinstance(size, int) else None
    if epoch.steps is not None:
        # `steps_per_epoch`: the same iterator goes on.
        t = now()
        epoch = vars(iterator)[MARK] = Epoch(seen, t, t)
    # An eager model asks for its batches in Python, and `next_` notes them in the same place.
    epoch.begin(GraphSteps)
    return epoch


def describe_models() -> None:
    """Writes what a training step consists of, for models that were built meanwhile."""
    for model in list(_models):
        try:
            if model_of(model):
                _models.discard(model)
                _described.add(model)
        except Exception:
            _models.discard(model)
            RECORDER.failed("describing a Keras model")


def model_of(model: Any) -> bool:
    """Writes the record of a model; false if it has no parameters yet."""
    weights = [variable.value for variable in model.trainable_variables]
    parameters = sum(int(weight.shape.num_elements() or 0) for weight in weights)
    if not parameters:
        return False
    policy = getattr(model, "dtype_policy", None)
    device = str(weights[0].device).rpartition("device:")[2].lower()
    RECORDER.emit(
        "model",
        module_calls=len(list(model._flatten_layers())),
        parameters=parameters,
        optimizer=type(getattr(model, "optimizer", None)).__name__,
        device=device.replace("gpu", "cuda") if device.startswith("gpu") else "cpu",
        dtype=str(weights[0].dtype.name),
        autocast=str(getattr(policy, "name", "")).startswith("mixed"),
    )
    return True


def look(iterator: Any, epoch: Epoch, batch: Any) -> None:
    """After a step, once in a while."""
    if _models:
        describe_models()
    try:
        if not epoch.seen.told_batch:
            batch_of(epoch.seen, module("tensorflow").nest.flatten(batch))
        pipeline_of(iterator, epoch)
    except Exception:
        RECORDER.failed("looking at a tf.data pipeline")


def finish(iterator: Any, epoch: Epoch, t0: int) -> None:
    """There are no more batches, or no more are asked for."""
    steps = epoch.steps
    if steps is None or steps.ended:
        return
    steps.end(t0)
    look(iterator, epoch, iterator.element_spec)


def batch_of(seen: Seen, tensors: list[Any]) -> None:
    """Size and kind of a batch, from its tensors or from what is said of them."""
    seen.told_batch = True
    total = 0
    shapes: list[str] = []
    for tensor in tensors:
        dtype, shape = getattr(tensor, "dtype", None), getattr(tensor, "shape", None)
        if dtype is None or shape is None or shape.rank is None:
            continue
        sizes = shape.as_list()
        if sizes and sizes[0] is None:
            sizes[0] = seen.batch_size
        shapes.append(f"{dtype.name}[{', '.join('?' if n is None else str(n) for n in sizes)}]")
        count = int(dtype.size or 0)
        for n in sizes:
            count *= n or 0
        total += count
    number = seen.log.number
    RECORDER.emit("batch", loader=number, tensors=len(tensors), bytes=total, shapes=shapes, pinned=False)


def pipeline_of(iterator: Any, epoch: Epoch) -> None:
    """What tf.data's model knows of the iterator's nodes."""
    if epoch.steps is None:
        return
    t = now()
    epoch.next_pipeline = t + BETWEEN_PIPELINES
    try:
        models = importlib.import_module("tensorflow.core.framework.model_pb2")
        operations = importlib.import_module("tensorflow.python.ops.gen_experimental_dataset_ops")
        text = operations.iterator_get_model_proto(iterator._iterator_resource).numpy()
    except Exception:
        # Autotuning is off, or this version has no such operation: there is no model to ask.
        epoch.next_pipeline = FAR
        return
    nodes = models.ModelProto.FromString(text).nodes
    rows = []
    # From the source on: inputs have higher numbers than what reads them.
    for number in sorted(nodes, reverse=True):
        node = nodes[number]
        parameters = {p.name: int(p.state_value or p.value) for p in node.parameters}
        rows.append(
            {
                "name": node.name,
                "elements": node.num_elements,
                "time": node.processing_time,
                "parallelism": parameters.get("parallelism", 0),
                "capacity": parameters.get("buffer_size", 0),
                "buffered": node.buffered_elements,
                "bytes": node.bytes_produced,
            }
        )
    RECORDER.emit("pipeline", t=t, loader=epoch.seen.log.number, iter=epoch.steps.iter, nodes=rows)


def loader_of(dataset: Any, wanted: Any) -> Seen:
    """The loader that this data set is; one that is built anew for each epoch by the same line is the same."""
    seen: Seen | None = vars(dataset).get(MARK)
    if seen is not None:
        return seen
    nodes = list(walk(wanted))
    names = [describe(node) for node in nodes]
    made = [node for node in nodes if user_function(node) is not None] or [dataset]
    parsers = [node for node in nodes if any("csv" in op.lower() for op in decodes(node))]
    place: Place | None = vars((parsers or made)[-1]).get(PLACE)
    # Keras makes all data sets of arrays at the same lines: those for training and for validation differ in shape.
    sources = [str(node.element_spec) for node in nodes if not node._inputs()]
    try:
        length = int(wanted.cardinality().numpy())
    except Exception:
        length = -2  # Unknown, as tf.data says it.
    key = (place and (place["file"], place["line"]), *names, *sources, length)
    seen = _seen.get(key)
    if seen is None:
        seen = _seen[key] = announced(wanted, nodes, names, place, length)
    vars(dataset)[MARK] = seen
    return seen


def walk(dataset: Any) -> Iterator[Any]:
    """The steps that lead to this data set, from the source on."""
    for before in dataset._inputs():
        yield from walk(before)
    yield dataset


def user_function(node: Any) -> Any:
    """The function that this step calls for each element."""
    return getattr(node, "_map_func", None)


def function_name(node: Any) -> str:
    """Its name."""
    return str(getattr(getattr(user_function(node), "_func", None), "__name__", "function"))


def kind(node: Any) -> str:
    """`Map` of `_MapDataset`."""
    name = type(node).__name__.lstrip("_")
    for end in ("V1", "V2", "Dataset"):
        name = name.removesuffix(end)
    return name


def static(node: Any, name: str) -> int | None:
    """An argument of the step that is a number."""
    value = vars(node).get(name)
    try:
        return None if value is None else int(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError, AttributeError):
        return None


def verbs(node: Any) -> tuple[str, ...]:
    """Names of the calls in a script that make such a step."""
    name = kind(node).removeprefix("Parallel")
    verb = "with_options" if name == "Options" else re.sub("(?<!^)([A-Z])", r"_\1", name).lower()
    return (verb, *MAKERS)


def operations(node: Any) -> set[str]:
    """Kinds of the operations in the function that this step calls for each element."""
    function = user_function(node)
    if function is None:
        return set()
    definition = function.function.graph.as_graph_def()
    nodes = list(definition.node)
    for inner in definition.library.function:
        nodes.extend(inner.node_def)
    return {n.op for n in nodes}


def decodes(node: Any) -> set[str]:
    """Those of them that decode or parse."""
    return (operations(node) | {kind(node)}) & DECODES


def calls_python(node: Any) -> str:
    """`generator` or `py_function` if this step runs Python code, else nothing."""
    kinds = operations(node)
    if "GeneratorDataset" in kinds:
        return "generator"
    return "py_function" if kinds & {"PyFunc", "PyFuncStateless", "EagerPyFunc"} else ""


def describe(node: Any) -> str:
    """Such as `ParallelMap(decode, num_parallel_calls=-1)`."""
    parts: list[str] = []
    if user_function(node) is not None:
        parts.append(function_name(node))
        python = calls_python(node)
        if python:
            parts.append(python)
    for name in ("_num_parallel_calls", "_cycle_length", "_buffer_size", "_batch_size", "_count"):
        value = static(node, name)
        if value is not None:
            parts.append(f"{name[1:]}={value}")
    implementation = vars(node).get("_impl")
    if implementation is not None:  # Readers are made of other data sets.
        value = static(implementation, "_num_parallel_calls")
        if value is not None:
            parts.append(f"num_parallel_reads={value}")
    return f"{kind(node)}({', '.join(parts)})"


def announced(dataset: Any, nodes: list[Any], names: list[str], place: Place | None, length: int) -> Seen:
    """A loader, with its record."""
    mapped = [node for node in nodes if user_function(node) is not None]
    parallel = [c for c in (static(node, "_num_parallel_calls") for node in mapped) if c is not None]
    prefetch = [static(node, "_buffer_size") for node in nodes if kind(node) == "Prefetch"]
    batch = next((size for size in (static(node, "_batch_size") for node in reversed(nodes)) if size), None)
    ahead = prefetch[-1] if prefetch else None
    record = {
        "framework": "tf.data",
        "class": qualified(type(dataset)),
        "dataset": kind(nodes[0]),
        "transform": shorten(", ".join(function_name(node) for node in mapped)),
        "length": length if length >= 0 else None,
        "samples": length * batch if length >= 0 and batch else None,
        "batch_size": batch,
        # AUTOTUNE counts as more than any number; without parallel calls, `prefetch` is one thread.
        "num_workers": (-1 if -1 in parallel else max(parallel)) if parallel else int(bool(prefetch)),
        "prefetch_factor": ahead if ahead is not None and ahead >= 0 else None,
        "persistent_workers": True,
        "in_order": True,
        "iterable": True,
        "place": place,
        "pipeline": names,
        "decodes": sorted({op for node in nodes for op in decodes(node)}),
    }
    return Seen(record, batch)
