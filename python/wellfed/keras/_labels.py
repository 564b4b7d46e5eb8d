"""`Labels`: labels in the form that Keras' ``label_mode`` names, of batches and samples of each framework."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._handover.columns import Column

__all__ = ["Labels"]


@dataclass(frozen=True)
class Labels:
    """Makes ``(image, int64 label)`` an element of Keras'.

    Called with what is known of columns, tensors of TensorFlow or torch, or NumPy arrays.

    Args:
        mode: ``"int"``; ``"binary"``: float32 with a last side of 1; ``"categorical"``: float32, one-hot, all zeros for
            labels that are no class, as of ``tf.one_hot``; None: elements are the image alone.
        classes: How many there are.
        dtype: Of ``"int"``.

    Example:
        >>> import numpy as np
        >>> Labels("categorical", 3)((np.zeros(2), np.array([2, 5])))[1].tolist()
        [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    mode: str | None
    classes: int = 0
    dtype: str = "int32"

    def __call__(self, element: Any) -> Any:
        if self.mode is None:
            return element
        image, label = element
        return image, self._made(label)

    def _made(self, label: Any) -> Any:
        dtype = self.dtype if self.mode == "int" else "float32"
        sides = {"int": (), "binary": (1,), "categorical": (self.classes,)}[str(self.mode)]
        if isinstance(label, Column):
            return replace(label, dtype=dtype, shape=(*label.shape, *sides))
        package = type(label).__module__.partition(".")[0]
        if package == "tensorflow":
            import tensorflow as tf

            if self.mode == "categorical":
                return tf.one_hot(label, self.classes)
            cast = tf.cast(label, dtype)
            return cast if self.mode == "int" else tf.expand_dims(cast, -1)
        if package == "torch":
            import torch

            if self.mode == "categorical":
                label = label[..., None] == torch.arange(self.classes)
            cast = label.to(getattr(torch, dtype))
        else:
            label = np.asarray(label)
            if self.mode == "categorical":
                label = label[..., None] == np.arange(self.classes)
            cast = label.astype(dtype)
        return cast[..., None] if self.mode == "binary" else cast
