"""`feed` of a ``tf.data.Dataset``: finds the boundary, builds both sides, and compares the first samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.ops.options import ExternalStatePolicy

from ..exceptions import WellfedError
from ._build import components, handed_over, native, rebuilt, reference, with_rest
from ._iterators import Fed
from ._order import Ordered, numbers, replay
from ._pipeline import PASSED, Left, Lowered, Pipeline, is_given
from ._values import is_made

__all__ = ["feed", "outlook"]


def feed(
    dataset: Any, *, shuffle: str = "exact", random: str = "exact", check: bool = True, **options: Any
) -> Any:
    """See `wellfed.feed`."""
    for name, given, other in (("shuffle", shuffle, "global"), ("random", random, "native")):
        if given not in ("exact", other):
            raise ValueError(f"{name} is {given!r}; it must be 'exact' or {other!r}")
    settled = {"layout", "mode", "exif_orientation", "decode"} & set(options)
    if settled:
        raise TypeError(f"{min(settled)} is what the tf.data pipeline says, and cannot be given to feed()")
    try:
        unpacks = options.get("unpack_to") is not None
        pipeline = Pipeline(_graph_of(dataset), shuffle == "global", random == "native", unpacks)
        return _fed(dataset, pipeline, options, check)
    except Left as left:
        return _left(dataset, str(left))
    except tf.errors.OpError as error:
        return _left(dataset, f"its graph cannot be read: {str(error).splitlines()[0]}")
    except DecodeError:
        return _left(dataset, "its graph is too large to be read")
    except (OSError, ValueError, WellfedError) as error:
        return _left(dataset, f"wellfed cannot read it: {str(error).splitlines()[0]}")


def outlook(dataset: Any) -> dict[str, Any]:
    """What `feed` would make of a data set, as data, for those who predict what it gains. Makes no data set.

    Returns:
        ``plan``: ``native`` for whole batches, ``hybrid`` where TensorFlow goes on from native samples, ``python``
        where all is left to TensorFlow; ``images``: whether images are decoded natively; ``python``: why parts are
        left.
    """
    try:
        lowered, _, above = _boundary(Pipeline(_graph_of(dataset), False, False))
    except Left as left:
        return {"plan": "python", "images": False, "python": [str(left)]}
    whole = lowered.batch is not None
    rest = [*lowered.notes, *(f"{node.op}: {why}" for node, why in above)]
    decoded = any(is_made(value) and not value.held for value in lowered.values)
    return {"plan": "native" if whole else "hybrid", "images": decoded, "python": rest}


def _graph_of(dataset: Any) -> bytes:
    if not tf.executing_eagerly():
        raise Left("it is made in a graph, where it cannot be looked at; call feed() outside of tf.function")
    serialized = dataset._as_serialized_graph(external_state_policy=ExternalStatePolicy.IGNORE)
    return bytes(serialized.numpy())


def _left(dataset: Any, why: str) -> Any:
    dataset.explain = lambda: f"all of it is TensorFlow's: {why}\n"
    return dataset


def _boundary(pipeline: Pipeline) -> tuple[Lowered, Any, list[tuple[Any, str]]]:
    """What is native, its last node, and the nodes above it with the reasons why they are not.

    Raises:
        Left: Nothing is, or no image is decoded there.
    """
    above: list[tuple[Any, str]] = []
    chain = pipeline.chain()
    for node in chain:
        try:
            lowered = pipeline.lowered(node)
            if any(map(is_made, lowered.values)):
                pipeline.check_ready(lowered)
                lowered = _given(lowered)
        except Left as left:
            above.append((node, str(left)))
            continue
        break
    else:
        raise Left(above[-1][1])
    if not any(map(is_made, lowered.values)):
        raise Left(next(iter(lowered.notes), above[-1][1] if above else "it makes no images"))
    return lowered, node, above


def _given(lowered: Lowered) -> Lowered:
    """As the engine is given it: samples of several images in an order that is TensorFlow's, also where it is plain."""
    return replace(lowered, ordered=True) if is_given(lowered) else lowered


def _fed(dataset: Any, pipeline: Pipeline, options: dict[str, Any], check: bool) -> Any:
    lowered, node, above = _boundary(pipeline)
    if is_given(lowered) and options.get("on_error", "raise") != "raise":
        raise Left("bad samples are left out, and samples have several images")
    ours = native(lowered, options)
    # Batches and maps, which images come from, say what they give.
    shapes = [tf.TensorShape(shape) for shape in node.attr["output_shapes"].list.shape]
    kind = "output_types" if "output_types" in node.attr else "Toutput_types"
    types = [tf.as_dtype(dtype) for dtype in node.attr[kind].list.type]
    checked = _compared(pipeline, node, lowered, options, dataset.options()) if check else "not compared"
    order, again = None, None
    if lowered.ordered:
        chosen = dataset.options()

        def make() -> Any:
            return numbers(pipeline, node, ours[0], chosen)

        order, again = make(), replay(pipeline, node, make, chosen)
    passes = None
    if lowered.batch is None:
        fed, loader = with_rest(ours, lowered, order, shapes, types)
    elif order is not None and options.get("on_error") == "skip":
        # The engine makes the batches that it is told to, so TensorFlow makes them of what is left.
        size, drop = lowered.batch
        fed, loader = with_rest(ours, lowered, order, [shape[1:] for shape in shapes], types)
        fed = fed.batch(size, drop_remainder=drop)
    else:
        fed, loader, passes = handed_over(ours, lowered, order, lowered.batch, types, shapes, again)
    if above:
        made = rebuilt(pipeline, node, fed, dataset.element_spec)
    elif passes is not None:
        made = Fed(fed, dataset.element_spec, passes)
    else:
        made = dataset_ops._VariantDataset(fed._variant_tensor, dataset.element_spec)
    # Functions and generators are found by their names, so what made it lives as long as it.
    made._wellfed = (dataset, fed)
    made.loader = loader
    made.explain = lambda: _explained(lowered, node, above, loader, checked)
    return made


def _compared(
    pipeline: Pipeline, node: Any, lowered: Lowered, options: dict[str, Any], pipeline_options: Any
) -> str:
    """Compares the first samples, before any shuffle, with TensorFlow's.

    Raises:
        Left: They differ, or TensorFlow cannot make them.
    """
    image = next(value for value in lowered.values if is_made(value))
    if any(op["op"].startswith("random") for op in image.ops):
        return "not compared, as they are random"
    while "Batch" in node.op or node.op in PASSED:
        padded = node.op.startswith("Padded")
        node = pipeline.nodes[node.input[0].partition(":")[0]]
        if padded:
            lowered = _given(pipeline.lowered(node))
    # Images that differ in size do not fit into one batch before they are padded.
    most = 1 if any(is_made(value) and value.size is None for value in lowered.values) else 2
    if lowered.ordered:
        count, parts = most, native(lowered, {**options, "num_workers": 1})
        order = numbers(pipeline, node, parts[0], pipeline_options, shuffles=False)
        plain: Any = Ordered(parts, order.take(count), (count, False), 0)
    else:
        verbs = tuple(verb for verb in lowered.verbs if verb[0] != "shuffle")
        count = min(most, lowered.aligned)
        (ours,) = native(replace(lowered, verbs=verbs), options)
        plain = ours.take(count).batch(count).numpy(num_workers=1)
    split = components(lowered)
    try:
        theirs = list(reference(pipeline, node, lowered).take(count))
    except tf.errors.OpError as error:
        what = str(error).splitlines()[0].rpartition("}}")[2].strip()
        raise Left(f"TensorFlow cannot make the first samples: {what}") from None
    found = [split(batch) for batch in plain]
    plain.close()
    if not found or not theirs:
        return "none"
    for place, sample in enumerate(theirs):
        for value, expected, own in zip(lowered.values, sample, found[0], strict=True):
            if not _equal(expected.numpy(), own[place]):
                raise Left(f"sample {place} differs from TensorFlow's: {type(value).__name__}")
    return f"{len(theirs)} were compared with TensorFlow's, and are equal"


def _equal(expected: Any, found: Any) -> bool:
    """Whether both are strings, or arrays of one type and shape, with the same bits."""
    if isinstance(expected, bytes):
        return bool(expected == found)
    expected, found = np.asarray(expected), np.asarray(found)
    same = expected.dtype == found.dtype and expected.shape == found.shape
    return bool(same and expected.tobytes() == found.tobytes())


def _explained(lowered: Lowered, node: Any, above: list[tuple[Any, str]], loader: Any, checked: str) -> str:
    lines = [f"wellfed makes {node.op}{'' if lowered.batch else ', sample by sample'}:"]
    lines += [f"  {line}" for line in loader.explain().splitlines()]
    lines += [f"  TensorFlow goes on {note}" for note in lowered.notes]
    if above:
        lines.append("TensorFlow makes what comes after it:")
        lines += [f"  {other.op}: {why}" for other, why in reversed(above)]
    lines.append(f"first samples: {checked}")
    return "\n".join(lines) + "\n"
