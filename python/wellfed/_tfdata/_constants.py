"""Constants of a graph as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["array_of"]


def array_of(node: Any) -> Any:
    """The value of a ``Const``; strings are an array of objects, which are bytes."""
    proto = node.attr["value"].tensor
    tensor = tf.io.parse_tensor(proto.SerializeToString(), tf.as_dtype(proto.dtype))
    return np.asarray(tensor.numpy(), dtype=object if tensor.dtype == tf.string else None)
