"""`wellfed.feed` as the package lists it: frameworks are imported by the first call only."""

from __future__ import annotations

from typing import Any

__all__ = ["feed"]


def feed(loader: Any, **arguments: Any) -> Any:
    """The fastest loader that gives what ``loader`` gives.

    A loader or data set of torch or wellfed is taken as `wellfed.torch.feed` says.

    Of a ``tf.data.Dataset`` it is one, too: what wellfed knows of its graph runs natively, with TensorFlow's bits, and
    what comes after that is TensorFlow's as before. ``explain()`` of the result says where the boundary is, and why.
    Where there is nothing that wellfed makes, the data set itself is given back. The first samples are made by both and
    compared when this is called; where they differ, the data set is given back, too.

    Args:
        loader: A loader of torch, a data set of torch or wellfed, or a ``tf.data.Dataset``.
        arguments: Of loaders of torch those of `wellfed.torch.DataLoader`, in place of those of ``loader``. Of a
            ``tf.data.Dataset``: ``shuffle="global"`` puts a permutation of all samples in the place of shuffles with a
            buffer, whose order else is TensorFlow's; ``random="native"`` lets wellfed draw random flips, crops and
            colours by its own random numbers; ``unpack_to`` is a folder that compressed record files are unpacked
            into, once; ``check=False`` compares no samples; all others are those of `Dataset.with_options`.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> from torch.utils.data import DataLoader
        >>> [len(batch) for batch in wf.feed(DataLoader(np.arange(6), batch_size=4))]
        [4, 2]
    """
    if _is_tensorflow(loader):
        from ._tfdata._feed import feed as feed_tensorflow

        return feed_tensorflow(loader, **arguments)
    from .torch import feed as feed_torch

    return feed_torch(loader, **arguments)


def _is_tensorflow(loader: Any) -> bool:
    """Whether it is a ``tf.data.Dataset``, without importing TensorFlow."""
    kinds = {(base.__module__, base.__name__) for base in type(loader).__mro__}
    return ("tensorflow.python.data.ops.dataset_ops", "DatasetV2") in kinds
