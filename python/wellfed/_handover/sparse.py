"""Columns as `tf.SparseTensor`s: which ones, what is known of them, and how they are made.

Invariant: a column that differs in length keeps each of its values, zeros too, whether it comes as a ragged batch or
as one sample. Of other arrays, values that are zero (False, an empty text) are left out, as by `tf.sparse.from_dense`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .columns import Column

__all__ = ["Sparse"]


def _named(sparse: Any) -> tuple[str, ...]:
    """The names in `tf(sparse=...)`: of fields, as they are printed, or places in a tuple."""
    if isinstance(sparse, str | bytes) or not isinstance(sparse, Sequence):
        raise TypeError(f"tf(sparse=...) takes a list of fields, not {sparse!r}")
    for one in sparse:
        if isinstance(one, bool) or not isinstance(one, str | int):
            raise TypeError(
                f"tf(sparse=...): {one!r} is no field\nhint: give its name, or its place in a tuple"
            )
    return tuple(map(str, sparse))


class Sparse:
    """Makes the columns of some names sparse.

    Args:
        sparse: Names of leaves: the way to them, with dots between its parts; ``0`` where an element is one array.
        elements: What elements are before that: `Column`s or `tf.TypeSpec`s in their structure.
        batched: Whether elements are batches.

    Raises:
        TypeError: A column cannot be sparse.
        ValueError: There is no such column.
    """

    def __init__(self, sparse: Sequence[str | int], elements: Any, batched: bool) -> None:
        names = _named(sparse)
        self._names = frozenset(names)
        self._batched = batched
        found: dict[str, Any] = {}
        _walked(lambda name, leaf: found.setdefault(name, leaf), elements)
        missing = [name for name in names if name not in found]
        if missing:
            raise ValueError(
                f"tf(sparse=...): there is no column {missing[0]!r}; elements have {', '.join(map(repr, found))}"
            )
        # Those that differ in length, of which every value is kept.
        self._whole = frozenset(name for name in names if self._checked(name, found[name]))

    def _checked(self, name: str, leaf: Any) -> bool:
        """Raises for what cannot be sparse; whether each of its values is kept."""
        if isinstance(leaf, tuple):
            raise TypeError(
                f"tf(sparse=...): {name} comes with its lengths or its mask, as one part of a tuple\n"
                "hint: leave lengths=True and mask=True out, or use ragged_batch(), of which every value is kept"
            )
        if isinstance(leaf, Column):
            if leaf.kind == "ragged":
                return True
            if leaf.kind == "json":
                raise TypeError(f"tf(sparse=...): {name} has JSON values, which are no tensors")
            shape: Any = leaf.shape
        else:
            if not isinstance(leaf, tf.TensorSpec):
                return False
            if leaf.shape.rank is None:
                raise TypeError(f"tf(sparse=...): of {name} it is not known how many dimensions it has")
            shape = leaf.shape.as_list()
        if not shape:
            raise TypeError(
                f"tf(sparse=...): {name} is a single value, which has no dimensions\nhint: batch() gives it one"
            )
        return not self._batched and isinstance(leaf, Column) and shape[0] is None and None not in shape[1:]

    def specs(self, specs: Any) -> Any:
        """What elements are, with `tf.SparseTensorSpec`s."""

        def of(name: str, spec: Any) -> Any:
            if name not in self._names or isinstance(spec, tf.SparseTensorSpec):
                return spec
            return tf.SparseTensorSpec(spec.shape, spec.dtype)

        return _walked(of, specs)

    def __call__(self, element: Any) -> Any:
        """An element with `tf.SparseTensor`s."""
        # The memory of batches is the CPU's, whatever device the caller has chosen.
        with tf.device("/CPU:0"):
            return _walked(self._made, element)

    def _made(self, name: str, value: Any) -> Any:
        if name not in self._names or isinstance(value, tf.SparseTensor):
            return value
        if isinstance(value, tf.RaggedTensor):
            return value.to_sparse()
        return _with_all(value) if name in self._whole else tf.sparse.from_dense(value)


def _with_all(array: Any) -> Any:
    """An array with each of its values."""
    shape = tf.constant(array.shape.as_list(), tf.int64)
    indices = tf.where(tf.ones(array.shape, tf.bool))
    return tf.SparseTensor(indices, tf.reshape(array, [-1]), shape)


def _walked(change: Callable[[str, Any], Any], tree: Any, name: str = "") -> Any:
    """`tree` with `change` done to the name and the value of each leaf; names are those that the engine gives."""
    if isinstance(tree, dict):
        return {key: _walked(change, one, f"{name}{key}.") for key, one in tree.items()}
    if isinstance(tree, tuple) and not _with_lengths(tree):
        parts = [_walked(change, one, f"{name}{place}.") for place, one in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return change(name[:-1] or "0", tree)


def _with_lengths(tree: tuple[Any, ...]) -> bool:
    """Whether these are a column and its lengths or mask, which are of one field."""
    return (
        len(tree) > 1
        and all(isinstance(one, Column) for one in tree)
        and all(one.name == tree[0].name for one in tree)
    )
