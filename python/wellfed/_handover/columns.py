"""What batches will look like, before the first one: structure, dtypes and shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._loader import is_batched

if TYPE_CHECKING:
    from .._loader import Loader
    from ..dataset import Dataset

__all__ = ["Column", "batch_size", "columns_of", "counted", "map_tree", "picker", "without_lists"]

Tree = Any


@dataclass(frozen=True)
class Column:
    """A column of a batch, or a field of a sample where there are no batches.

    Attributes:
        name: Of the field.
        kind: ``array``, ``ragged``, ``text``, ``bytes`` or ``json``.
        dtype: Of the elements; None where there are none.
        shape: None is a side that differs.
    """

    name: str
    kind: str
    dtype: str | None
    shape: tuple[int | None, ...]


def columns_of(dataset: Dataset, loader: Loader) -> Tree:
    """What an element is: `Column`s in the structure of elements.

    Where lengths or masks were asked for, `(values, lengths)`, `(values, mask)` or `(values, lengths, mask)`.
    """
    plan = dataset._plan()
    front = (batch_size(plan),) if is_batched(plan["root"]) else ()
    found = []
    for name, kind, dtype, sides, lengths, mask in loader._open().columns():
        # The length of each array of a ragged column differs.
        shape = (*front, None, *sides) if kind == "ragged" else (*front, *sides)
        column = Column(name, kind, dtype, shape)
        parts = [column]
        if lengths:
            parts.append(Column(name, "array", "int64", front))
        if mask is not None:
            parts.append(Column(name, "array", "bool", (*front, sides[mask])))
        found.append(tuple(parts) if len(parts) > 1 else column)
    return _built(json.loads(dataset._native.structure), found)


def batch_size(plan: Mapping[str, Any]) -> int | None:
    """The size of all batches, if it is one: smaller last ones must be left out, and bad samples not skipped."""
    return None if plan["options"]["on_error"] == "skip" else _fixed_size(plan["root"])


def _fixed_size(node: Mapping[str, Any]) -> int | None:
    if node["node"] in ("batch", "padded_batch", "ragged_batch"):
        return int(node["batch_size"]) if node["drop_last"] else None
    inputs = node.get("inputs") or ([node["input"]] if "input" in node else [])
    sizes = {_fixed_size(one) for one in inputs}
    return sizes.pop() if len(sizes) == 1 else None


def counted(dataset: Dataset) -> tuple[int | None, bool]:
    """Elements of an epoch, None without end; and whether it is certain that there will not be less."""
    length = dataset._native.length()
    return length, dataset._plan()["options"]["on_error"] != "skip"


def _built(tree: Mapping[str, Any], columns: list[Any]) -> Tree:
    ((kind, inner),) = tree.items()
    if kind == "field":
        return columns[inner]
    if kind == "dict":
        return {key: _built(item, columns) for key, item in inner}
    parts = [_built(item, columns) for item in inner]
    return parts if kind == "list" else tuple(parts)


def map_tree(change: Callable[[Any], Any], tree: Tree) -> Tree:
    """`tree` with `change` done to its leaves."""
    if isinstance(tree, dict):
        return {key: map_tree(change, one) for key, one in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [map_tree(change, one) for one in tree]
        if isinstance(tree, list):
            return parts
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return change(tree)


def without_lists(tree: Tree) -> Tree:
    """`tree` with tuples in place of lists, which tf.data and Keras take for arrays."""
    if isinstance(tree, dict):
        return {key: without_lists(one) for key, one in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*map(without_lists, tree))
    return tuple(map(without_lists, tree)) if isinstance(tree, tuple | list) else tree


def picker(x: Any, y: Any, sample_weight: Any) -> Callable[[Tree], Tree]:
    """What makes Keras' tuples of elements: the fields of the names given, or else what elements are."""
    if x is None and y is None and sample_weight is None:
        return _as_keras
    if x is None:
        raise ValueError("keras(y=...) needs x=, too: the field, or fields, that the model is called with")
    if y is None and sample_weight is not None:
        raise ValueError("keras(sample_weight=...) needs y=, too: a weight belongs to a target")
    wanted = [x] if y is None else [x, y] if sample_weight is None else [x, y, sample_weight]
    for one in wanted:
        if not isinstance(one, str | int) and not (
            isinstance(one, list | tuple) and one and all(isinstance(key, str | int) for key in one)
        ):
            raise TypeError(
                f"keras(): {one!r} is no field\nhint: give its name, its place in a tuple, or a list of those"
            )

    def pick(tree: Tree) -> Tree:
        return tuple(
            {str(key): _field(tree, key) for key in one}
            if isinstance(one, list | tuple)
            else _field(tree, one)
            for one in wanted
        )

    return pick


def _field(tree: Tree, key: Any) -> Any:
    if isinstance(tree, dict) and key in tree:
        return tree[key]
    if isinstance(tree, tuple) and isinstance(key, int) and -len(tree) <= key < len(tree):
        return tree[key]
    has = list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, tuple) else None
    fields = "one field" if has is None else f"the fields {', '.join(map(repr, has))}"
    raise ValueError(f"keras(): there is no field {key!r}; elements have {fields}")


def _as_keras(tree: Tree) -> Tree:
    if not isinstance(tree, tuple):
        return (tree,)
    if 1 <= len(tree) <= 3:
        return tree
    raise ValueError(
        f"Keras takes (x,), (x, y) or (x, y, sample_weight), but elements have {len(tree)} parts\n"
        "hint: say which they are: keras(x=..., y=...), by name or by place"
    )
