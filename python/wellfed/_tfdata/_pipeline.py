"""The graph of a ``tf.data`` pipeline: which of its data sets, from the source up, the engine can run.

Invariant: `Pipeline.lowered` gives a description of exactly what TensorFlow would give, sample by sample; whatever is
not known to be equal raises `Left`, whose text says where the boundary is and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from tensorflow.core.framework import graph_pb2, types_pb2

from ._constants import array_of
from ._function import Body
from ._values import Bytes, Const, Image, Number, Unknown, Value, images_of

__all__ = ["PASSED", "READS_FILES", "Left", "Lowered", "Pipeline", "Rest", "deliverable", "is_given"]


class Left(Exception):  # noqa: N818 (it is no error)
    """A data set stays TensorFlow's."""


@dataclass(frozen=True)
class Rest:
    """What TensorFlow does of a map function, after the engine."""

    # The map.
    node: Any
    body: Body
    # Tensors of the function that the engine gives, with what they are.
    given: dict[str, Value]
    parallel: bool
    # Whether the function gives the same for the same sample, so that the order may change before it.
    same: bool


@dataclass(frozen=True)
class Lowered:
    """A data set that the engine can make.

    Its source is ``("slices", arrays)`` or ``("records", files)``; `values` are the components of a sample, `verbs`
    what is done to the order, and `batch` size and whether a smaller last one is left out. Where `ordered`, TensorFlow
    has to be asked for the order, and `verbs` only say of what it is made.
    """

    source: tuple[str, Any]
    values: tuple[Value, ...]
    verbs: tuple[tuple[str, Any], ...] = ()
    batch: tuple[int, bool] | None = None
    rest: Rest | None = None
    notes: tuple[str, ...] = field(default=())
    # How many of the first samples are TensorFlow's first ones, too, but for shuffles.
    aligned: int = 2
    ordered: bool = False
    # How record files are compressed, as TensorFlow calls it.
    compression: str = ""


PASSED = {"PrefetchDataset", "OptionsDataset", "ModelDataset"}
# What makes data sets of the records of files.
READS_FILES = {
    "FlatMapDataset",
    "InterleaveDataset",
    "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3",
    "ParallelInterleaveDatasetV4",
}


# Bytes.
_MOST_PIXELS = 1 << 30
# Images of a sample that are made of one file, which is decoded for each.
_MOST_OF_ONE = 2


class Pipeline:
    """A pipeline's graph.

    Args:
        serialized: A ``GraphDef`` as `tf.data.Dataset` serializes it.
        shuffle: Whether shuffles may be exchanged for permutations of all samples.
        random: Whether random operations may be drawn by the engine.
        unpacks: Whether there is a folder to unpack compressed files into.
    """

    def __init__(self, serialized: bytes, shuffle: bool, random: bool, unpacks: bool = False) -> None:
        self.graph = graph_pb2.GraphDef.FromString(serialized)
        self.nodes = {node.name: node for node in self.graph.node}
        self.library = {function.signature.name: function for function in self.graph.library.function}
        self.top = next(node.input[0] for node in self.graph.node if node.op == "_Retval").partition(":")[0]
        self._shuffle, self._random, self._unpacks = shuffle, random, unpacks
        # A reason, and not the error: that would hold the frames it went through, and with them the data set.
        self._made: dict[str, Lowered | str] = {}

    def chain(self) -> list[Any]:
        """The data sets from the last to the source."""
        found = [self.nodes[self.top]]
        while found[-1].op.endswith("Dataset") or "Dataset" in found[-1].op:
            before = self.before(found[-1]) if found[-1].input else None
            if before is None or "Dataset" not in before.op:
                break
            found.append(before)
        return found

    def lowered(self, node: Any) -> Lowered:
        """What the engine makes instead of a data set.

        Raises:
            Left: It stays TensorFlow's, or one below it does.
        """
        found = self._made.get(node.name)
        if found is None:
            try:
                found = self._lower(node)
            except Left as left:
                found = str(left)
            self._made[node.name] = found
        if isinstance(found, str):
            raise Left(found)
        return found

    def _lower(self, node: Any) -> Lowered:
        if node.op in PASSED:
            return self.lowered(self.before(node))
        rule: Callable[[Any], Lowered] | None = getattr(self, f"_op_{node.op}", None)
        if rule is None:
            raise Left(f"{node.op} is not known")
        return rule(node)

    def before(self, node: Any, at: int = 0) -> Any:
        """The node that an input comes from."""
        return self.nodes[node.input[at].partition(":")[0]]

    def const(self, node: Any, at: int) -> Any:
        """The value of an input.

        Raises:
            Left: It is no constant.
        """
        found = self.before(node, at)
        while found.op == "Identity":
            found = self.before(found)
        if found.op != "Const":
            raise Left(f"{node.op} has an argument that is no constant")
        return array_of(found)

    def _samples(self, node: Any, what: str) -> Lowered:
        """The input of a verb of samples."""
        before = self.lowered(self.before(node))
        if before.batch is not None:
            raise Left(f"{what} of batches")
        if before.rest is not None and (what == "a batch" or not before.rest.same):
            raise Left("the map function before it is TensorFlow's in part")
        return before

    def _op_TensorSliceDataset(self, node: Any) -> Lowered:
        arrays = [self.const(node, i) for i in range(len(node.input))]
        values: list[Value] = []
        texts = any(array.dtype.kind in "OSU" for array in arrays)
        for i, array in enumerate(arrays):
            text = array.dtype.kind in "OSU"
            if _are_pixels(array) and not texts:
                _, height, width, channels = array.shape
                values.append(Image(i, "TENSORFLOW", channels, size=(height, width), held=True))
            elif text and array.ndim > 1:
                values.append(Unknown("several strings of a sample"))
            else:
                values.append(Bytes(i) if text else Number(i, array.dtype, array.shape[1:]))
        return Lowered(("slices", arrays), tuple(values))

    def _op_RangeDataset(self, node: Any) -> Lowered:
        start, stop, step = (int(self.const(node, at)) for at in range(3))
        if node.attr["output_types"].list.type != [types_pb2.DT_INT64]:
            raise Left("a range of other numbers than int64")
        counted = range(start, stop, step)
        return Lowered(("slices", [counted]), (Number(0, np.dtype(np.int64), ()),))

    def _op_ZipDataset(self, node: Any) -> Lowered:
        parts = [self.lowered(self.before(node, at)) for at in range(len(node.input))]
        arrays: list[Any] = []
        values: list[Value] = []
        for part in parts:
            plain = part.source[0] == "slices" and not part.verbs and part.batch is None and part.rest is None
            if not plain:
                raise Left("a zip of anything but slices of arrays, and maps of them")
            for value in part.values:
                # Components are numbered over all parts.
                if isinstance(value, Bytes | Number | Image):
                    values.append(replace(value, key=value.key + len(arrays)))
                else:
                    values.append(value)
            arrays += part.source[1]
        # It ends with the shortest.
        count = min(map(_length, arrays))
        if all(isinstance(array, range) for array in arrays):
            raise Left("a zip of nothing but numbers")
        return Lowered(("slices", [np.asarray(array[:count]) for array in arrays]), tuple(values))

    def _records(self, node: Any, files: Any, compression: Any) -> Lowered:
        names = [name.decode() for name in np.reshape(files, -1)]
        packing = compression.item()
        packing = packing.decode() if isinstance(packing, bytes) else str(packing)
        if packing and not self._unpacks:
            raise Left("compressed records have no positions (unpack_to=folder unpacks them there, once)")
        if any(set(name) & set("*?[]{}") for name in names):
            raise Left("names of files with stars or braces")
        # Credentials and endpoints of TensorFlow's are not those of the engine's.
        if any("://" in name for name in names):
            raise Left("files that are not local")
        return Lowered(("records", names), (Bytes("record"),), compression=packing)

    def _op_TFRecordDataset(self, node: Any) -> Lowered:
        return self._records(node, self.const(node, 0), self.const(node, 1))

    _op_TFRecordDatasetV2 = _op_TFRecordDataset

    def _op_FlatMapDataset(self, node: Any) -> Lowered:
        files, compression = self._files(node)
        records = self._records(node, files.source[1][0], compression)
        return replace(records, verbs=files.verbs, ordered=files.ordered)

    def _op_InterleaveDataset(self, node: Any) -> Lowered:
        files, compression = self._files(node)
        count = np.size(files.source[1][0])
        # Records of files in any order are in any order, unless TensorFlow's is asked for.
        asked = not self._shuffle or not any(name == "shuffle" for name, _ in files.verbs)
        records = self._records(node, files.source[1][0], compression)
        return replace(records, verbs=files.verbs, aligned=1, ordered=files.ordered or (asked and count > 1))

    _op_ParallelInterleaveDatasetV4 = _op_InterleaveDataset
    _op_ParallelInterleaveDatasetV3 = _op_InterleaveDataset
    _op_ParallelInterleaveDatasetV2 = _op_InterleaveDataset

    def _files(self, node: Any) -> tuple[Lowered, Any]:
        """The names that a function makes data sets of records of, and their compression."""
        before = self._samples(node, node.op)
        compression = self._reads_records(self.library[node.attr["f"].func.name])
        if before.source[0] != "slices" or before.values != (Bytes(0),) or compression is None:
            raise Left(f"{node.op} of anything but record files")
        if any(name != "shuffle" for name, _ in before.verbs):
            if self._shuffle:
                raise Left(f"{node.op} of files that are repeated, sharded or taken")
            before = replace(before, ordered=True)
        return before, compression

    def _reads_records(self, function: Any) -> Any:
        """The compression, if a function makes a data set of the records of the file that its argument names."""
        body = Body(function, self.library, [Bytes(0)], False)
        if len(body.arguments) != 1 or len(body.outputs) != 1:
            return None

        def node(tensor: str) -> Any:
            found = body.nodes[tensor.partition(":")[0]]
            while found.op in ("Identity", "Reshape"):
                found = body.nodes[found.input[0].partition(":")[0]]
            return found

        found = node(body.outputs[0])
        if found.op in ("TFRecordDataset", "TFRecordDatasetV2"):
            argument, compression = node(found.input[0]), body.value(found.input[1])
            plain = argument.name == body.arguments[0] and isinstance(compression, Const)
            return compression.array if plain and isinstance(compression, Const) else None
        if found.op == "FlatMapDataset":
            source = node(found.input[0])
            if source.op == "TensorSliceDataset" and node(source.input[0]).name == body.arguments[0]:
                return self._reads_records(self.library[found.attr["f"].func.name])
        return None

    def _op_ShuffleDatasetV3(self, node: Any) -> Lowered:
        before = self._samples(node, "a shuffle")
        if not self._shuffle:
            for at in (1, 2, 3):
                self.const(node, at)
            return replace(before, verbs=(*before.verbs, ("shuffle", None)), ordered=True)
        if before.ordered and before.verbs:
            raise Left("a permutation of samples of which TensorFlow says which they are")
        if not node.attr["reshuffle_each_iteration"].b:
            raise Left("a shuffle with the same order in every epoch")
        seed = abs(int(self.const(node, 2))) * 0x1_0000_0001 + abs(int(self.const(node, 3)))
        if any(name == "repeat" for name, _ in before.verbs):
            raise Left("a shuffle of repeated samples")
        verbs = tuple(verb for verb in before.verbs if verb[0] != "shuffle")
        return replace(before, verbs=(*verbs, ("shuffle", seed % 2**64)), ordered=False)

    _op_ShuffleDatasetV2 = _op_ShuffleDatasetV3

    def _count(self, node: Any, verb: str) -> Lowered:
        before = self._samples(node, verb)
        count = int(self.const(node, 1))
        if verb == "skip" and count < 0:
            raise Left("skip of everything")
        if verb == "take" and count < 0:
            return before
        if verb == "repeat" and count == 0:
            raise Left("repeat of nothing")
        return replace(before, verbs=(*before.verbs, (verb, None if count < 0 else count)))

    def _op_RepeatDataset(self, node: Any) -> Lowered:
        return self._count(node, "repeat")

    def _op_TakeDataset(self, node: Any) -> Lowered:
        return self._count(node, "take")

    def _op_SkipDataset(self, node: Any) -> Lowered:
        return self._count(node, "skip")

    def _op_MapDataset(self, node: Any) -> Lowered:
        before = self.lowered(self.before(node))
        if before.batch is not None or before.rest is not None:
            raise Left("a map of batches" if before.batch else "a map after one that is TensorFlow's in part")
        body = Body(self.library[node.attr["f"].func.name], self.library, before.values, self._random)
        if len(body.arguments) != len(before.values):
            raise Left("a map function with tensors from outside")
        values = tuple(body.results())
        # What is not ready for a batch may be made ready by a function that comes after this one.
        open_ = all(isinstance(value, Bytes | Image) or deliverable(value, before) for value in values)
        if open_ and all(not isinstance(value, Image) or not value.batched for value in values):
            return replace(before, values=values)
        given: dict[str, Value] = {}
        why: list[str] = []
        for output in body.outputs:
            _cut(body, output, before, given, why, set())
        kept = next(value for value in values if not deliverable(value, before))
        note = f"in {node.op}: {_reason(why) if why else _name(kept)}"
        rest = Rest(node, body, given, "Parallel" in node.op, body.stateless)
        return replace(before, values=tuple(given.values()), rest=rest, notes=(note,))

    _op_ParallelMapDatasetV2 = _op_MapDataset
    _op_ParallelMapDataset = _op_MapDataset

    def _op_BatchDatasetV2(self, node: Any) -> Lowered:
        before = self._samples(node, "a batch")
        at = 3 if node.op == "ParallelBatchDataset" else 2
        size, drop = int(self.const(node, 1)), bool(self.const(node, at))
        made = replace(before, batch=(size, drop))
        self.check_ready(made)
        return made

    _op_ParallelBatchDataset = _op_BatchDatasetV2

    def check_ready(self, lowered: Lowered) -> None:
        """Checks that the engine can give all values.

        Raises:
            Left: It cannot.
        """
        loose = [value for value in lowered.values if not deliverable(value, lowered)]
        if loose:
            raise Left(_name(loose[0]))
        held = any(isinstance(value, Image) and value.held for value in lowered.values)
        if held and (lowered.rest is not None or lowered.batch is None):
            # One by one, small images take longer than in TensorFlow.
            raise Left("; ".join((*lowered.notes, "images in memory, of which no whole batches are made")))
        if is_given(lowered):
            self._check_several(lowered)

    def _check_several(self, lowered: Lowered) -> None:
        images = images_of(lowered.values)
        if self._shuffle and any(name == "shuffle" for name, _ in lowered.verbs):
            raise Left("a permutation of samples with several images")
        if any(op["op"].startswith("random") for image in images for op in image.ops):
            raise Left("random operations of samples with several images")
        if any(image.held for image in images):
            raise Left("several images of a sample of which some are in memory")
        if max(Counter(repr(image.key) for image in images).values()) > _MOST_OF_ONE:
            raise Left(f"more than {_MOST_OF_ONE} images of one file, which TensorFlow decodes once")

    def _op_PaddedBatchDatasetV2(self, node: Any) -> Lowered:
        before = self._samples(node, "a batch")
        count = len(before.values)
        padded: list[Value] = []
        for at, value in enumerate(before.values):
            shape, filling = self.const(node, 2 + at), self.const(node, 2 + count + at)
            padded.append(_padded(value, [int(side) for side in shape], filling))
        size, drop = int(self.const(node, 1)), bool(self.const(node, 2 + 2 * count))
        made = replace(before, values=tuple(padded), batch=(size, drop))
        self.check_ready(made)
        return made


def _are_pixels(array: Any) -> bool:
    """Whether an array can be images of bytes; it is copied once."""
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] not in (1, 3, 4):
        return False
    return bool(0 < array.nbytes <= _MOST_PIXELS)


def _length(array: Any) -> int:
    # len() refuses ranges without an end.
    if not isinstance(array, range):
        return len(array)
    return max(0, (array.stop - array.start + array.step - (1 if array.step > 0 else -1)) // array.step)


def _padded(value: Value, shape: list[int], filling: Any) -> Value:
    """A value filled up to a shape at its ends; -1 is the largest side of the batch.

    Raises:
        Left: It cannot be.
    """
    match value:
        case Image(size=None, channels=channels) if shape[2] in (-1, channels) and min(shape[:2]) < 0:
            raise Left("images that differ in size, padded to the largest of a batch")
        case Image(size=size, channels=channels):
            sides = list(size or (0, 0))
            whole = [given if given >= 0 else side for side, given in zip(sides, shape[:2], strict=True)]
            if shape[2] not in (-1, channels) or any(a > b for a, b in zip(sides, whole, strict=True)):
                raise Left("a padded shape that is not the images'")
            if whole == sides:
                return value
            if filling != 0 or np.signbit(filling):
                raise Left("images padded with other values than 0")
            op = {"op": "pad", "top": 0, "left": 0, "height": whole[0], "width": whole[1]}
            return value.then(op, size=(whole[0], whole[1]))
        case Number(shape=before):
            whole = [given if given >= 0 else side for side, given in zip(before, shape, strict=True)]
            borders = tuple((0, after - side) for side, after in zip(before, whole, strict=True))
            if any(more < 0 for _, more in borders):
                raise Left("a padded shape that is less than an array's")
            if not any(more for _, more in borders):
                return value
            pad = ("pad", (borders, filling[()]))
            return replace(value, shape=tuple(whole), ops=(*value.ops, pad))
        case Const(array) if list(np.shape(array)) != [
            given if given >= 0 else side for side, given in zip(np.shape(array), shape, strict=True)
        ]:
            raise Left("a constant that is padded")
    return value


def is_given(lowered: Lowered) -> bool:
    """Whether the engine has to be given the order of samples, as it makes several images of each."""
    return len(images_of(lowered.values)) > 1


def deliverable(value: Value, lowered: Lowered) -> bool:
    """Whether the engine can give a value of samples."""
    match value:
        case Image(batched=False, size=(_, _)):
            return True
        case Bytes(content=False):
            return lowered.source[0] == "slices"
        case Number():
            return True
        case Const(array):
            return np.asarray(array).dtype.kind in "biuf"
    return False


def _reason(why: list[str]) -> str:
    """The one of several reasons that says most: something can be done, or the deepest that is no check."""
    asked = [text for text in why if "random='native'" in text]
    return (asked or [text for text in why if not text.startswith("Assert")] or why)[0]


def _name(value: Value) -> str:
    match value:
        case Unknown(why):
            return why
        case Image(batched=False, size=None):
            return "images that differ in size"
    return type(value).__name__


def _cut(
    body: Body, tensor: str, lowered: Lowered, given: dict[str, Value], why: list[str], seen: set[str]
) -> None:
    """Notes the last tensors before `tensor` that the engine gives."""
    tensor = tensor if ":" in tensor else f"{tensor}:0"
    if tensor in seen:
        return
    seen.add(tensor)
    value = body.value(tensor)
    name = tensor.partition(":")[0]
    if isinstance(value, Const) and body.nodes[name].op == "Const":
        return
    if deliverable(value, lowered) and not isinstance(value, Const):
        given[tensor] = value
        return
    node = body.nodes[name]
    if name in body.arguments:
        raise Left(_reason(why[::-1]) if why else f"a map function that needs {_name(value)} of the source")
    if isinstance(value, Unknown) and value.why not in why:
        why.insert(0, value.why)
    for before in node.input:
        if before.startswith("^"):
            before = before[1:]
            if body.nodes[before].op == "NoOp" or body.nodes[before].op == "Assert":
                for inner in body.nodes[before].input:
                    if not inner.startswith("^"):
                        _cut(body, inner, lowered, given, why, seen)
                    else:
                        _cut(body, f"{inner[1:]}:0", lowered, given, why, seen)
            else:
                _cut(body, f"{before}:0", lowered, given, why, seen)
        else:
            _cut(body, before, lowered, given, why, seen)
