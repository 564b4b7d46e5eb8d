"""The part of a plan above its sources, as Python that makes one element or one batch of picks.

Sources and the transforms on their way to the first Python step run in the engine (`_native.Dataset.leaf`). Everything
above them is compiled to closures once: verbs of order are nothing here, since picks come from the native order;
several inputs are told apart by the leaf that a pick names.

Invariant: an element is a function of its picks and of the seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _native
from .._loader import structured, to_numpy
from ..exceptions import ConfigError, SampleIndexError, ShapeError
from .places import Places
from .seeds import mix, seed_all

AHEAD = 16 << 20
"""Bytes of a source's samples that are made ahead of the steps that need them, but for those that lie in the batch."""

__all__ = ["Context", "Parts", "Program", "is_random", "name_of", "steps_in"]

Parts = dict[int, tuple[int, int]]
"""Of each leaf that takes part in an element: the index in it, and the epoch that keys draws."""

Element = Callable[["Context"], Any]


@dataclass
class Context:
    """What is at hand: the picks of one element, and where it stands.

    Attributes:
        parts: Its picks.
        seeded: Whether steps find generators seeded by the sample. Otherwise they draw from them as they are.
        stage: The step that runs.
        leaf: The leaf that was read last.
        nanos: Time by step.
        ready: By leaf, what the engine has made of its pick already: columns, or an exception.
    """

    parts: Parts = field(default_factory=dict)
    seeded: bool = True
    stage: str = ""
    leaf: int = 0
    nanos: dict[str, int] = field(default_factory=dict)
    ready: dict[int, Any] = field(default_factory=dict)

    def spent(self, stage: str, since: int) -> int:
        """Counts the time since then for `stage`; returns what the clock says now."""
        now = time.perf_counter_ns()
        self.nanos[stage] = self.nanos.get(stage, 0) + now - since
        return now


def name_of(step: Any) -> str:
    """What a callable is called in plans, errors and `explain()`."""
    name = getattr(step, "__qualname__", None) or type(step).__qualname__
    inner = getattr(step, "func", None)
    if name == "partial" and inner is not None:
        return f"partial({name_of(inner)})"
    return str(name).replace("<locals>.", "")


def steps_in(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes that callables and Python objects belong to, in their order: inputs first."""
    inputs = node.get("inputs") or ([node["input"]] if "input" in node else [])
    found = [step for one in inputs for step in steps_in(one)]
    if node["node"] == "python" or (node["node"] == "source" and node["spec"]["type"] == "python"):
        found.append(node)
    return found


DETERMINISTIC = frozenset(
    (
        "CenterCrop",
        "Compose",
        "Grayscale",
        "Identity",
        "Normalize",
        "PILToTensor",
        "Pad",
        "Resize",
        "ToDtype",
        "ToImage",
        "ToTensor",
    )
)


def is_random(node: dict[str, Any]) -> bool:
    """Whether a transform of the engine in this tree may draw random numbers."""
    inputs = node.get("inputs") or ([node["input"]] if "input" in node else [])
    named = [node] if "type" in node else node.get("transforms", [])
    for one in named:
        if one["type"] not in DETERMINISTIC or any(map(is_random, one.get("transforms", []))):
            return True
    return any(map(is_random, inputs))


class Program:
    """What makes elements of a data set that has Python steps.

    Args:
        native: The data set.
        steps: Its callables and Python sources, in the order of `steps_in`.
        rows: Row indexes to use, and to add to.
    """

    def __init__(
        self, native: _native.Dataset, steps: Sequence[Any], rows: _native.RowIndexes | None = None
    ) -> None:
        self.native = native
        self.order = native.order()
        self._make = native.leaves(rows)
        self._places = Places()
        # Leaves that the engine makes samples of, with the numbers of their sources.
        self._source_of: dict[int, int] = {}
        self._steps = iter(steps)
        self._leaves = self._sources = 0
        self._leaf_of: list[int] = []
        self._salt = 0
        self._together = False
        root = json.loads(native.to_json())["root"]
        compiled = self._compile(root)
        self.elements = compiled.element
        self.collate = compiled.collate
        self.on_batches = compiled.on_batches
        self.batched = compiled.batched

    def _compile(self, node: dict[str, Any]) -> _Compiled:
        kind = node["node"]
        if kind == "source":
            return self._leaf(node)
        self._together = self._together or kind in ("zip", "enumerate")
        if kind == "enumerate":
            number = self._count(node["start"])
            below = self._compile(node["input"])
            element = _tuple_of([number.element, below.element])
            return below.with_(element=element, first=number.first, chained=False)
        if "inputs" in node:
            return self._several(kind, [self._compile(one) for one in node["inputs"]])
        below = self._compile(node["input"])
        if kind == "mix":
            raise ConfigError(
                "elements of batches that are mixed cannot be made one by one\n"
                "hint: iterate the data set, by torch() or numpy()"
            )
        if kind == "batch":
            return below.with_(batched=True)
        if kind == "unbatch":
            if below.collate is not None or below.on_batches:
                raise ConfigError(
                    "unbatch() comes after a Python step on batches\nhint: call map() before batch(), or leave "
                    "collate_fn out"
                )
            return below.with_(batched=False)
        if kind == "map" and below.python:
            return below.with_(element=self._transforms(below, node), chained=False)
        if kind == "python":
            return self._python(node, below)
        return below

    def parts_of(self, source: int, index: int, epoch: int) -> Parts:
        """The picks of an element that is made of one sample of a source."""
        if self._leaves > 1 and self._together:
            raise ConfigError(
                "sample() of a pipeline with Python steps that has zip() or enumerate()\n"
                "hint: ds[i] is an element of it"
            )
        if source >= len(self._leaf_of):
            raise SampleIndexError(f"there is no source {source}: the plan has {len(self._leaf_of)}")
        return {self._leaf_of[source]: (index, epoch)}

    def finish(self) -> None:
        """A batch is made, as far as it can be."""
        self._places.forget()

    def make_ready(
        self, context: Context, batch: Sequence[Iterable[tuple[int, int, int]]], rows: range
    ) -> list[dict[int, Any]]:
        """What the engine makes of the picks of these elements of a batch, for each as of `Context.ready`.

        As many at once as take little memory, since what Python does in between would find nothing of its own in the
        processor's caches. The others are made when they are asked for.
        """
        ready: list[dict[int, Any]] = [{} for _ in rows]
        if not self._source_of:
            return ready
        wanted: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for row in rows:
            for place, (leaf, index, epoch) in enumerate(batch[row]):
                if leaf in self._source_of:
                    wanted.setdefault((leaf, place), []).append((row, index, epoch))
        since = time.perf_counter_ns()
        for (leaf, place), picks in wanted.items():
            places = self._places.of(leaf, place, len(batch))
            made = self._make.many(self._source_of[leaf], picks, places, AHEAD)
            strays = 0
            for (row, _, _), columns in zip(picks, made):
                ready[row - rows.start][leaf] = columns
                if type(columns) is not list:
                    continue
                for column, block in places:
                    if columns[column] is None:
                        columns[column] = block[row]
                    else:
                        strays += 1
            last = made[-1]
            if type(last) is list and (strays or not places):
                self._places.learn(leaf, len(batch), last)
        context.spent("native", since)
        return ready

    def _leaf(self, node: dict[str, Any]) -> _Compiled:
        if node["spec"]["type"] != "python":
            return self._native_leaf()
        number, dataset, name = self._leaves, next(self._steps), node["spec"]["name"]
        self._leaves += 1
        self._sources += 1
        self._leaf_of.append(number)
        key = self.order.leaf_seed(number)

        def element(context: Context) -> Any:
            index, epoch = context.parts[number]
            context.leaf, context.stage = number, name
            if context.seeded:
                seed_all(mix(key, epoch, index))
            since = time.perf_counter_ns()
            value = dataset[index]
            context.spent(name, since)
            return value

        return _Compiled(element, number, batched=False, python=True, chained=True)

    def _count(self, start: int) -> _Compiled:
        number = self._leaves
        self._leaves += 1
        return _Compiled(lambda context: np.asarray(start + context.parts[number][0]), number, False)

    def _native_leaf(self) -> _Compiled:
        number, source = self._leaves, self._sources
        self._leaves += 1
        self._sources += 1
        self._leaf_of.append(number)
        self._source_of[number] = source
        make = self._make.many
        build = structured(self.native.sources[source], to_numpy)

        def element(context: Context) -> Any:
            context.leaf, context.stage = number, "native"
            columns = context.ready.pop(number, None)
            if columns is None:
                since = time.perf_counter_ns()
                columns = make(source, [(0, *context.parts[number])], [], AHEAD)[0]
                context.spent("native", since)
            if isinstance(columns, Exception):
                raise columns
            return build(columns)

        return _Compiled(element, number, False)

    def _several(self, kind: str, inputs: list[_Compiled]) -> _Compiled:
        python = any(one.python for one in inputs)
        first = inputs[0].first
        if kind == "zip":
            return _Compiled(_tuple_of([one.element for one in inputs]), first, False, python=python)
        ends = [one.first for one in inputs[1:]] + [self._leaves]
        ways = [(one.first, end, one) for one, end in zip(inputs, ends)]

        def way(parts: Parts) -> _Compiled:
            leaf = next(iter(parts))
            # Leaves are numbered depth first, so those of an input are neighbours.
            return next(one for start, end, one in ways if start <= leaf < end)

        def element(context: Context) -> Any:
            return way(context.parts).element(context)

        batched = inputs[0].batched
        if batched and any(one.collate is not None or one.on_batches for one in inputs):
            raise ConfigError(
                f"{kind}() of batches with Python steps\nhint: put {kind}() before batch(), and the steps after that"
            )
        return _Compiled(element, first, batched, python=python)

    def _python(self, node: dict[str, Any], below: _Compiled) -> _Compiled:
        step, name = next(self._steps), node["name"]
        if node["kind"] == "collate":
            return below.with_(collate=(name, step))
        if below.batched:
            return below.with_(on_batches=[*below.on_batches, (name, step)])
        inner, field_name, fresh = below.element, node["field"], not below.chained
        self._salt += 1
        salt, keys, first = self._salt, self._keys(), below.first

        def element(context: Context) -> Any:
            value = inner(context)
            context.stage = name
            if fresh and context.seeded:
                seed_all(self._key(salt, keys, first, context.parts))
            since = time.perf_counter_ns()
            value = step(value) if field_name is None else _on_field(step, value, field_name)
            context.spent(name, since)
            return value

        return below.with_(element=element, python=True, chained=True)

    def _keys(self) -> list[int]:
        """Seeds of the leaves so far."""
        return [self.order.leaf_seed(leaf) for leaf in range(self._leaves)]

    def _key(self, salt: int, keys: list[int], first: int, parts: Parts) -> int:
        """What a step draws from: its place, and all samples that it gets, which are of leaves from `first` on."""
        words = [salt]
        for leaf, (index, epoch) in parts.items():
            if first <= leaf < len(keys):
                words += (keys[leaf], epoch, index)
        return mix(*words)

    def _transforms(self, below: _Compiled, node: dict[str, Any]) -> Element:
        """Transforms of the engine on what a Python step gave."""
        inner, first, transforms, field_name = below.element, below.first, node["transforms"], node["field"]
        self._salt += 1
        salt, keys = self._salt, self._keys()
        name = ", ".join(one["type"] for one in transforms)
        data = json.dumps({"type": "Compose", "transforms": transforms})

        def element(context: Context) -> Any:
            value = inner(context)
            context.stage = name
            seed = self._key(salt, keys, first, context.parts)
            since = time.perf_counter_ns()
            if field_name is not None:
                value = _on_field(lambda image: _transformed(data, name, image, seed), value, field_name)
            else:
                value, found = _on_images(data, name, value, seed)
                if not found:
                    raise ShapeError(
                        f"{name}: the element has no image\nhint: after a Python step, images are uint8 arrays or "
                        "tensors [channels, height, width], or Pillow images"
                    )
            context.spent(name, since)
            return value

        return element


@dataclass
class _Compiled:
    element: Element
    """Makes one element, or one sample of a batch."""
    first: int
    """The first leaf below."""
    batched: bool
    python: bool = False
    """Whether there is a Python step below."""
    chained: bool = False
    """Whether a step below has seeded the generators already, for this one alone."""
    collate: tuple[str, Any] | None = None
    on_batches: list[tuple[str, Any]] = field(default_factory=list)

    def with_(self, **changes: Any) -> _Compiled:
        return _Compiled(**{**vars(self), **changes})


def _tuple_of(elements: list[Element]) -> Element:
    return lambda context: tuple([one(context) for one in elements])


def _on_field(step: Any, value: Any, name: str) -> Any:
    """`value` with its field called `name` replaced by what `step` makes of it."""
    if isinstance(value, dict):
        if name in value:
            return {**value, name: step(value[name])}
        raise ShapeError(f"map(field={name!r}): the element has the fields {sorted(map(str, value))}")
    raise ShapeError(
        f"map(field={name!r}): the element is a {type(value).__name__}, not a dict\nhint: leave field out, and take "
        "the element as it is"
    )


def _on_images(data: str, name: str, value: Any, seed: int) -> tuple[Any, bool]:
    """`value` with all its images transformed by the same draw, and whether there was one."""
    if isinstance(value, dict):
        made = {key: _on_images(data, name, one, seed) for key, one in value.items()}
        return {key: one for key, (one, _) in made.items()}, any(found for _, found in made.values())
    if isinstance(value, list | tuple):
        parts = [_on_images(data, name, one, seed) for one in value]
        results = [one for one, _ in parts]
        if isinstance(value, list):
            rebuilt: Any = results
        else:
            rebuilt = type(value)(*results) if hasattr(value, "_fields") else tuple(results)
        return rebuilt, any(found for _, found in parts)
    is_image = (getattr(value, "ndim", 0) == 3 and str(value.dtype).endswith("uint8")) or hasattr(
        value, "getbands"
    )
    return (_transformed(data, name, value, seed), True) if is_image else (value, False)


def _transformed(data: str, name: str, image: Any, seed: int) -> Any:
    """An image ``[channels, height, width]`` of an image in any of the usual forms."""
    pillow = hasattr(image, "getbands")
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ShapeError(
            f"{name}: an image after a Python step must be uint8 [channels, height, width], not {pixels.dtype} "
            f"{list(pixels.shape)}"
        )
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif not pillow and pixels.shape[0] in (1, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    made = to_numpy(_native.apply(data, np.ascontiguousarray(pixels), seed))
    return np.ascontiguousarray(made.transpose(2, 0, 1))
