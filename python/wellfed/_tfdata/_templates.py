"""Functions of ``tf.image`` that make many operations: found by comparing a graph with what they make here.

A function is traced with numbers that stand for its parameters. A part of a map function is a call of it if both are
the same operations with the same attributes and constants, but for those numbers, from the result down to one image.

Invariant: what differs in anything but parameters, seeds and names is no call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ._constants import array_of

__all__ = ["Call", "Template", "found", "templates"]

# Sides, places and a fraction that nobody asks for, none of which is the difference of two others.
_HEIGHT, _WIDTH, _TOP, _LEFT, _FRACTION = 16411, 20011, 1013, 2039, 0.40625 + 2.0**-20
_NAMES = {
    _HEIGHT: "height",
    _WIDTH: "width",
    _TOP: "top",
    _LEFT: "left",
    _FRACTION: "fraction",
    # Padding counts what lies below and right of the first row and column.
    _HEIGHT - _TOP: "below",
    _WIDTH - _LEFT: "right",
}
_IGNORED = {"seed", "seed2", "_output_shapes", "_class", "_XlaMustCompile"}


@dataclass(frozen=True)
class Template:
    """A function of ``tf.image``: the operation its result comes from, and how it is traced and run."""

    root: str
    call: Callable[[Any], Any]
    # From parameters to the engine's operation; None where they are not known to be equal.
    op: Callable[[dict[str, Any]], dict[str, Any] | None]
    # An operation that a call has, so that others need not be traced.
    has: str | None = None
    random: bool = False
    # Whether it makes other operations than constants where the size of the image is known.
    sized: bool = False


@dataclass(frozen=True)
class Call:
    """A call that was found: the tensor of its image, and its parameters."""

    image: str
    parameters: dict[str, Any]


_METHODS = {
    "bilinear": "ResizeBilinear",
    "nearest": "ResizeNearestNeighbor",
    "bicubic": "ResizeBicubic",
    "area": "ResizeArea",
    "lanczos3": "ScaleAndTranslate",
    "lanczos5": "ScaleAndTranslate",
    "gaussian": "ScaleAndTranslate",
    "mitchellcubic": "ScaleAndTranslate",
}


def templates() -> Iterator[Template]:
    """All that are known."""
    yield from _TEMPLATES


def _size(found: dict[str, Any]) -> list[int] | None:
    sides = [int(found.get(name, 0)) for name in ("height", "width")]
    return sides if min(sides) > 0 else None


def _sized(**parts: Any) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    def op(found: dict[str, Any]) -> dict[str, Any] | None:
        size = _size(found)
        return None if size is None else {**parts, "size": size}

    return op


def _central(found: dict[str, Any]) -> dict[str, Any] | None:
    fraction = float(found.get("fraction", 0))
    return {"op": "central_crop", "fraction": fraction} if 0 < fraction <= 1 else None


def _boxed(found: dict[str, Any]) -> dict[str, Any] | None:
    size = _size(found)
    if size is None or min(found["top"], found["left"]) < 0:
        return None
    return {"op": "crop", "top": found["top"], "left": found["left"], "height": size[0], "width": size[1]}


def _surrounded(found: dict[str, Any]) -> dict[str, Any] | None:
    top, left, below, right = (found.get(name, -1) for name in ("top", "left", "below", "right"))
    if min(top, left) < 0 or min(below, right) <= 0:
        return None
    return {"op": "pad", "top": top, "left": left, "height": top + below, "width": left + right}


def _padded(method: str, antialias: bool) -> Template:
    def call(image: Any) -> Any:
        return tf.image.resize_with_pad(image, _HEIGHT, _WIDTH, method, antialias)

    has = "ScaleAndTranslate" if antialias else _METHODS[method]
    op = _sized(op="resize_with_pad", method=method, antialias=antialias)
    return Template("Squeeze", call, op, has, sized=True)


def _gray(image: Any) -> Any:
    # What rgb_to_grayscale does between two conversions.
    return tf.expand_dims(tf.tensordot(image, [0.2989, 0.5870, 0.1140], [-1, -1]), -1)


_TEMPLATES = [
    Template("ExpandDims", _gray, lambda _: {"op": "grayscale"}, has="MatMul", sized=True),
    Template("Tile", tf.image.grayscale_to_rgb, lambda _: {"op": "to_rgb"}, has="Fill", sized=True),
    Template(
        "RealDiv",
        tf.image.per_image_standardization,
        lambda _: {"op": "standardize"},
        has="Rsqrt",
        sized=True,
    ),
    Template("Slice", lambda image: tf.image.central_crop(image, _FRACTION), _central),
    Template(
        "Squeeze",
        lambda image: tf.image.crop_to_bounding_box(image, _TOP, _LEFT, _HEIGHT, _WIDTH),
        _boxed,
        has="Slice",
    ),
    Template(
        "Squeeze",
        lambda image: tf.image.pad_to_bounding_box(image, _TOP, _LEFT, _HEIGHT, _WIDTH),
        _surrounded,
        has="Pad",
    ),
    Template(
        "Squeeze",
        lambda image: tf.image.resize_with_crop_or_pad(image, _HEIGHT, _WIDTH),
        _sized(op="crop_or_pad"),
        has="Pad",
    ),
    Template(
        "Slice",
        lambda image: tf.image.random_crop(image, [_HEIGHT, _WIDTH, image.shape[2]]),
        _sized(op="random_crop"),
        has="RandomUniformInt",
        random=True,
        sized=True,
    ),
    *(
        _padded(method, antialias)
        for method, op in _METHODS.items()
        for antialias in ((False, True) if method in ("bilinear", "bicubic") or op[0] == "S" else (False,))
    ),
]


@functools.cache
def _traced(
    template: Template, dtype: str, shape: tuple[int | None, ...]
) -> tuple[dict[str, Any], str] | None:
    """The nodes of a call, and the name of its result; None where there is no such call."""
    graph = tf.Graph()
    try:
        with graph.as_default():
            image = tf.compat.v1.placeholder(dtype, shape, name="image")
            result = template.call(image)
    except (ValueError, TypeError, tf.errors.OpError):
        return None
    return {node.name: node for node in graph.as_graph_def().node}, result.name


class _Unlike(Exception):  # noqa: N818 (it is no error)
    pass


def found(
    template: Template, nodes: dict[str, Any], tensor: str, dtype: str, shape: tuple[int | None, ...]
) -> Call | None:
    """The call that gives `tensor` of the graph `nodes`, if it is one with an image of that type and shape."""
    traced = _traced(template, dtype, shape)
    if traced is None:
        return None
    comparison = _Comparison(nodes, traced[0])
    try:
        comparison.compare(tensor, traced[1])
    except _Unlike:
        return None
    return None if comparison.image is None else Call(comparison.image, comparison.parameters)


class _Comparison:
    def __init__(self, nodes: dict[str, Any], template: dict[str, Any]) -> None:
        self._nodes, self._template = nodes, template
        self._seen: dict[str, str] = {}
        self.image: str | None = None
        self.parameters: dict[str, Any] = {}

    def compare(self, ours: str, theirs: str) -> None:
        ours, theirs = _source(self._nodes, ours), _source(self._template, theirs)
        if theirs in self._seen:
            if self._seen[theirs] != ours:
                raise _Unlike
            return
        self._seen[theirs] = ours
        (name, _, output), (other, _, at) = ours.partition(":"), theirs.partition(":")
        if other == "image":
            self.image = ours
            return
        one, two = self._nodes[name], self._template[other]
        if one.op != two.op or output != at:
            raise _Unlike
        if one.op == "Const":
            self._constant(array_of(one), array_of(two))
            return
        for key in (set(one.attr) | set(two.attr)) - _IGNORED:
            if key.startswith("_"):
                continue
            if key not in one.attr or key not in two.attr or one.attr[key] != two.attr[key]:
                raise _Unlike
        before, after = ([name for name in node.input if name[0] != "^"] for node in (one, two))
        if len(before) != len(after):
            raise _Unlike
        for mine, other in zip(before, after, strict=True):
            self.compare(mine, other)

    def _constant(self, one: Any, two: Any) -> None:
        one, two = np.asarray(one), np.asarray(two)
        if one.dtype != two.dtype or one.shape != two.shape:
            raise _Unlike
        for mine, other in zip(one.reshape(-1).tolist(), two.reshape(-1).tolist(), strict=True):
            name = _NAMES.get(other)
            if name is None:
                if mine != other:
                    raise _Unlike
            elif self.parameters.setdefault(name, mine) != mine:
                raise _Unlike


def _source(nodes: dict[str, Any], tensor: str) -> str:
    """The tensor that identities hand on."""
    while True:
        tensor = tensor if ":" in tensor else f"{tensor}:0"
        node = nodes.get(tensor.partition(":")[0])
        if node is None or node.op != "Identity":
            return tensor
        tensor = next(name for name in node.input if name[0] != "^")
