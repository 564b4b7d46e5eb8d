"""`TakenOver`: iterators of data sets of ours that TensorFlow takes over when it wants to."""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf

__all__ = ["TakenOver", "as_tensors", "from_tensors"]

_Owned: Any = tf.data.IteratorSpec(tf.TensorSpec(())).value_type
"""The class of TensorFlow's iterators."""
_STATE = "wellfed"


def as_tensors(state: dict[str, Any]) -> dict[str, Any]:
    """A state as `tf.train.Checkpoint` saves it."""
    with tf.init_scope():
        return {_STATE: tf.constant(json.dumps(state), tf.string)}


def from_tensors(restored: dict[str, Any]) -> dict[str, Any]:
    """The state that `as_tensors` was given."""
    state: dict[str, Any] = json.loads(restored[_STATE].numpy())
    return state


class TakenOver(_Owned):
    """A `tf.data.Iterator` that becomes one of TensorFlow's own when TensorFlow asks for its resource.

    Until then `_taken` gives its elements; `_rest` is the data set that TensorFlow goes on with.
    """

    def __init__(self, data: Any, spec: Any) -> None:
        super(_Owned, self).__init__()
        self._data = data
        self._resource: Any = None
        # What TensorFlow's methods look at.
        self._element_spec = spec
        self._dataset = data
        self._get_next_call_count = 0

    def _taken(self) -> Any:
        raise NotImplementedError

    def _rest(self) -> Any:
        raise NotImplementedError

    @property
    def _iterator_resource(self) -> Any:
        if self._resource is None:
            rest = self._rest()
            with tf.init_scope():
                self._create_iterator(rest)
        return self._resource

    @_iterator_resource.setter
    def _iterator_resource(self, resource: Any) -> None:
        self._resource = resource

    def __next__(self) -> Any:
        if self._resource is None and tf.executing_eagerly():
            return self._taken()
        return super().__next__()

    def get_next(self) -> Any:
        """As of `tf.data.Iterator`."""
        if self._resource is None and tf.executing_eagerly():
            try:
                return self._taken()
            except StopIteration:
                raise tf.errors.OutOfRangeError(None, None, "End of sequence") from None
        return super().get_next()
