"""From a description of a pipeline to a data set of wellfed, and from that to one of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.eager import context, execute
from tensorflow.python.ops import gen_dataset_ops

from .. import sources
from .._features import FixedLenFeature
from .._handover.passes import Epochs, Pass
from .._several import budget_of_each
from ..dataset import Dataset
from ._constants import array_of
from ._iterators import EpochPasses, OrderedPasses, Passes
from ._operations import TensorFlowOps
from ._order import Ordered, Replay, counted
from ._pipeline import Left, Lowered, Pipeline
from ._values import Bytes, Const, Image, Number, Value, applied, images_of, is_made

__all__ = ["components", "handed_over", "native", "rebuilt", "reference", "with_rest"]

# Samples that are made at once where TensorFlow takes them one by one.
_TOGETHER = 16


def native(lowered: Lowered, options: dict[str, Any]) -> list[Dataset]:
    """The engine's data sets, one for each image of a sample. Samples of the first have a position or numbers, too.

    They come in the order of the source, where the pipeline's is one that TensorFlow has to be asked for.

    Raises:
        Left: There is no image, or the engine cannot read it.
    """
    images = images_of(lowered.values)
    if not images:
        raise Left("it makes no images")
    options = dict(options)
    unpack_to = options.pop("unpack_to", None)
    made = [_native(lowered, image, options, unpack_to, at > 0) for at, image in enumerate(images)]
    if len(made) > 1:
        budget = budget_of_each(made[0], options.get("memory_budget"), len(made))
        made = [dataset.with_options(memory_budget=budget) for dataset in made]
    return made


def _native(lowered: Lowered, image: Image, options: dict[str, Any], unpack_to: Any, alone: bool) -> Dataset:
    """The data set of one image; `alone` leaves out the numbers of records beside it."""
    kind, what = lowered.source
    if image.held:
        pixels = what[image.key]
        dataset = sources.from_tensor_slices((pixels, np.arange(len(pixels))), pixels="hwc")
    elif kind == "slices":
        paths = [path if isinstance(path, bytes) else str(path).encode() for path in what[image.key]]
        if any(b"://" in path for path in paths) or not all(paths):
            raise Left("files that are not local")
        dataset = sources.image_files(paths, labels=np.arange(len(paths)))
    else:
        dataset = _records(lowered, image, unpack_to, alone)
    if image.ops:
        dataset = dataset.map(TensorFlowOps(image.ops))
    for verb, argument in () if lowered.ordered else lowered.verbs:
        dataset = dataset.shuffle(seed=argument) if verb == "shuffle" else getattr(dataset, verb)(argument)
    return dataset.with_options(layout="NHWC", mode=image.mode, **options)


def _of(image: Image) -> str:
    return repr((image.key, image.mode, image.ops))


def _numbers(lowered: Lowered) -> list[Any]:
    """The features of records that are given, each once."""
    keys = [value.key for value in lowered.values if isinstance(value, Number)]
    return list(dict.fromkeys(keys))


def _records(lowered: Lowered, image: Image, unpack_to: Any, alone: bool) -> Dataset:
    features: dict[str, FixedLenFeature] = {}
    for _, name, dtype, shape, default in [image.key, *(() if alone else _numbers(lowered))]:
        if features.get(name) is not None:
            raise Left(f"feature {name} is read twice")
        given = None if default is None else np.frombuffer(default, dtype).reshape(shape)
        features[name] = FixedLenFeature(list(shape), dtype, given)
    return sources.tfrecord(
        lowered.source[1],
        features,
        images=[image.key[1]],
        fields=list(features),
        compression=lowered.compression,  # type: ignore[arg-type]
        unpack_to=unpack_to if lowered.compression else None,
    )


def components(lowered: Lowered) -> Callable[[Any], tuple[Any, ...]]:
    """What turns a batch of the engine's into the components of the pipeline's."""
    records = lowered.source[0] == "records"
    beside = {key: i + 1 for i, key in enumerate(_numbers(lowered))} if records else {}
    # Of the columns of several images, each after those of the one before, with its own position.
    of_image = {
        _of(image): (at + len(beside) if at and records else at * (1 if records else 2))
        for at, image in enumerate(images_of(lowered.values))
    }
    arrays = lowered.source[1]

    def one(value: Value, batch: Any) -> Any:
        match value:
            case Image(key) if not is_made(value):
                return arrays[key][batch[1]]
            case Image():
                return batch[of_image[_of(value)]]
            case Const(array):
                constant = np.asarray(array)
                return np.broadcast_to(constant, (len(batch[0]), *constant.shape))
            case Bytes(key):
                return arrays[key][batch[1]]
            case Number(key) if not records:
                return applied(value, arrays[key][batch[1]])
            case Number(key):
                return applied(value, np.asarray(batch[beside[key]]))
        raise AssertionError(value)

    return lambda batch: tuple(
        one(value, batch if isinstance(batch, tuple) else (batch,)) for value in lowered.values
    )


def handed_over(
    datasets: list[Dataset],
    lowered: Lowered,
    order: Any,
    batch: tuple[int, bool],
    types: list[Any],
    shapes: list[Any],
    replay: Replay | None = None,
) -> tuple[Any, Any, Passes]:
    """A ``tf.data.Dataset`` of the engine's batches, which are tuples of components; its loader; its passes.

    Args:
        datasets: The engine's samples, of each image by itself.
        lowered: What they are.
        order: A ``tf.data.Dataset`` of the numbers of samples; None where the one of `datasets` has the order.
        batch: Samples of a batch, and whether a smaller last one is left out.
        types: Of components.
        shapes: Of components of batches.
        replay: How `order` is found again.
    """
    signature = tuple(tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, types, strict=True))
    if order is not None:
        return _ordered(datasets, lowered, (order, replay), batch, signature)
    (dataset,) = datasets
    batches, split = dataset.batch(batch[0], drop_last=batch[1]), components(lowered)
    # A second iterator beside the first has threads of its own.
    epochs = Epochs(lambda: batches.numpy())

    def generate() -> Iterator[tuple[Any, ...]]:
        one = Pass(epochs)
        try:
            yield from map(split, one)
        finally:
            one.close()

    fed = tf.data.Dataset.from_generator(generate, output_signature=signature)
    fed = _counted(fed, dataset, _count(epochs.loader)).prefetch(2)
    return fed, epochs.loader, EpochPasses(epochs, split, signature, fed)


def _ordered(
    datasets: list[Dataset],
    lowered: Lowered,
    order: tuple[Any, Replay | None],
    batch: tuple[int, bool],
    signature: Any,
) -> tuple[Any, Ordered, OrderedPasses]:
    """`handed_over` in an order of TensorFlow's."""
    seed = datasets[0]._plan()["options"].get("seed") or 0
    loader = Ordered(datasets, order[0], batch, seed, order[1])
    split, marks = components(lowered), loader.marks()

    def generate(mark: Any) -> Iterator[tuple[Any, ...]]:
        return map(split, loader.batches(mark))

    flat = marks.flat_map(
        lambda mark: tf.data.Dataset.from_generator(generate, args=(mark,), output_signature=signature)
    )
    fed = _counted(flat, datasets[0], loader.count()).prefetch(2)
    return fed, loader, OrderedPasses(loader, split, signature, marks, flat)


def _counted(fed: Any, dataset: Dataset, count: int) -> Any:
    """Lets TensorFlow know how many elements there are, where all of them come."""
    if any(name == "on_error" and value != "raise" for name, value in dataset._plan()["options"].items()):
        return fed
    if count == tf.data.UNKNOWN_CARDINALITY:
        return fed
    return fed.apply(tf.data.experimental.assert_cardinality(count))


def _count(dataset: Any) -> int:
    """Elements of the engine's, as ``tf.data`` counts them."""
    try:
        return len(dataset)
    except (TypeError, OverflowError):
        return int(tf.data.INFINITE_CARDINALITY)


def with_rest(
    datasets: list[Dataset], lowered: Lowered, order: Any, shapes: list[Any], types: list[Any]
) -> tuple[Any, Any]:
    """As `handed_over`, sample by sample, with what TensorFlow does of the map function. `shapes` are of samples."""
    rest = lowered.rest
    if rest is None:
        specs = list(zip([[None, *shape] for shape in shapes], types, strict=True))
    else:
        specs = [([None, *_shape(value)], _type(value)) for value in lowered.values]
    kinds, sides = [dtype for _, dtype in specs], [shape for shape, _ in specs]
    fed, loader, _ = handed_over(datasets, lowered, order, (_TOGETHER, False), kinds, sides)
    fed = _counted(fed.unbatch(), datasets[0], _count(datasets[0]) if order is None else counted(order))
    if rest is None:
        return fed, loader
    body = _function(rest.body.graph, list(rest.given), rest.body.outputs)
    calls = tf.data.AUTOTUNE if rest.parallel else None
    return fed.map(body, num_parallel_calls=calls), loader


def _function(graph: Any, given: list[str], outputs: list[str]) -> Callable[..., tuple[Any, ...]]:
    """A function of tensors called `given` in `graph`, which makes those called `outputs` by the graph's operations.

    They become operations of the function that calls it, since one that is called as such would be optimized, and give
    other bits.
    """
    nodes = {node.name: node for node in graph.node}
    made = [name for name in dict.fromkeys(outputs) if name not in given]
    used: set[str] = set()
    wanted: set[str] = set()
    open_ = [name.partition(":")[0] for name in made]
    while open_:
        name = open_.pop()
        if name in wanted:
            continue
        wanted.add(name)
        for tensor in map(_named, nodes[name].input):
            if tensor in given:
                used.add(tensor)
            else:
                open_.append(tensor.removeprefix("^").partition(":")[0])
    pruned = type(graph)()
    pruned.CopyFrom(graph)
    del pruned.node[:]
    fed = {tensor.partition(":")[0] for tensor in used}
    for node in graph.node:
        if node.name in wanted:
            pruned.node.append(node)
        elif node.name in fed:
            # Only its name is looked at: its tensors are given.
            pruned.node.add(name=node.name, op="NoOp")

    def body(*tensors: Any) -> tuple[Any, ...]:
        known = dict(zip(given, tensors, strict=True))
        taken = {name: tensor for name, tensor in known.items() if name in used}
        results = tf.graph_util.import_graph_def(pruned, taken, made, name="") if made else []
        known.update(zip(made, results, strict=True))
        return tuple(known[name] for name in outputs)

    convert: Callable[..., Callable[..., tuple[Any, ...]]] = tf.autograph.experimental.do_not_convert
    return convert(body)


def _named(tensor: str) -> str:
    return tensor if ":" in tensor or tensor.startswith("^") else f"{tensor}:0"


def _shape(value: Value) -> list[Any]:
    match value:
        case Image(size=(height, width), channels=channels):
            return [height, width, channels]
        case Number(shape=shape):
            return list(shape)
        case Const(array):
            return list(np.shape(array))
    return []


def _type(value: Value) -> Any:
    match value:
        case Image(dtype=dtype):
            return tf.as_dtype(dtype)
        case Number(dtype=dtype):
            return tf.as_dtype(dtype)
        case Const(array):
            return tf.as_dtype(np.asarray(array).dtype)
    return tf.string


def rebuilt(pipeline: Pipeline, boundary: Any, fed: Any, spec: Any) -> Any:
    """The data sets above `boundary`, as they are, on top of `fed`."""
    variants = {boundary.name: fed._variant_tensor}
    return dataset_ops._VariantDataset(_variant(pipeline, pipeline.top, variants), spec)


def reference(pipeline: Pipeline, node: Any, lowered: Lowered) -> Any:
    """What TensorFlow gives for `lowered`, which `node` is, sample by sample and without shuffles."""
    variants: dict[str, Any] = {}
    if lowered.rest is None:
        return _flat(pipeline, node, variants)
    rest = lowered.rest
    names = [f"{name}:0" for name in rest.body.arguments]
    before = _flat(pipeline, pipeline.before(rest.node), variants)
    given = before.map(_function(rest.body.graph, names, list(rest.given)))
    variants = {rest.node.name: given._variant_tensor}
    return dataset_ops._VariantDataset(_variant(pipeline, node.name, variants, False), given.element_spec)


def _flat(pipeline: Pipeline, node: Any, variants: dict[str, Any]) -> Any:
    # Looking up what is not there would add it.
    kind = "output_types" if "output_types" in node.attr else "Toutput_types"
    shapes = node.attr["output_shapes"].list.shape if "output_shapes" in node.attr else []
    types = node.attr[kind].list.type if kind in node.attr else []
    if node.op.startswith("TFRecordDataset"):
        shapes, types = [[]], [tf.string]
    spec = tuple(tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, types, strict=True))
    return dataset_ops._VariantDataset(_variant(pipeline, node.name, variants, False), spec)


def _variant(pipeline: Pipeline, top: str, variants: dict[str, Any], shuffles: bool = True) -> Any:
    """Runs the operations up to `top` that `variants` do not hold."""
    order: list[Any] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        name = name.partition(":")[0]
        if name not in variants and name not in seen:
            seen.add(name)
            node = pipeline.nodes[name]
            given = node.input
            if node.op.startswith("ShuffleDataset"):
                # Its last input is a generator that is gone; that of another one takes its place.
                given = node.input[:4] if shuffles else node.input[:1]
            for before in given:
                visit(before)
            order.append(node)

    visit(top)
    for node in order:
        if node.op == "Const":
            variants[node.name] = tf.constant(array_of(node))
        elif node.op.startswith("ShuffleDataset") and not shuffles:
            variants[node.name] = variants[node.input[0].partition(":")[0]]
        else:
            if node.op == "ShuffleDatasetV3":
                variants[node.input[4].partition(":")[0]] = gen_dataset_ops.dummy_seed_generator()
            inputs = [variants[name.partition(":")[0]] for name in node.input]
            attributes = [part for name in node.attr for part in (name, _attribute(node.attr[name]))]
            made = execute.execute(
                node.op.encode(), 1, inputs=inputs, attrs=tuple(attributes), ctx=context.context()
            )
            variants[node.name] = made[0]
    return variants[top]


def _attribute(value: Any) -> Any:
    """An attribute as eager execution takes it."""
    match value.WhichOneof("value"):
        case "s":
            return value.s
        case "i":
            return value.i
        case "f":
            return value.f
        case "b":
            return value.b
        case "type":
            return value.type
        case "shape":
            return value.shape
        case "func":
            return value.func.name
        case "list":
            for kind in ("s", "i", "f", "b", "type", "shape"):
                found = list(getattr(value.list, kind))
                if found:
                    return [tf.TensorShape(shape) for shape in found] if kind == "shape" else found
            return []
    raise Left("an attribute of an unknown kind")
