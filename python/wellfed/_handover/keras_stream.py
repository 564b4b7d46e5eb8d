"""Streams for Keras on torch and JAX.

A `keras.utils.PyDataset` says beforehand how many batches it has, which a stream cannot. Of what Keras takes, only a
`torch.utils.data.DataLoader` can both end when it likes and be iterated again for the next epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from .columns import map_tree, without_lists
from .passes import Epochs, Pass, stream_loader

if TYPE_CHECKING:
    from .._steps.stream import StreamDataset

__all__ = ["KerasStream"]


class _Elsewhere(IterableDataset[Any]):
    """In the place of a data set: batches come from a loader of ours."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class KerasStream(DataLoader[Any]):
    """Batches of a stream for Keras on torch or JAX; see `StreamDataset.keras`. Every pass is the next epoch."""

    def __init__(self, dataset: StreamDataset, pick: Callable[[Any], Any], context: Any) -> None:
        super().__init__(_Elsewhere(), batch_size=None)
        self._pick = pick
        self._epochs = Epochs(lambda: stream_loader(dataset, None, context))
        self._pass: Pass | None = None

    @property
    def loader(self) -> Any:
        """The loader: `stats`, `errors`, `explain`, `set_epoch`, `state_dict`, `close`."""
        return self._epochs.loader

    def __iter__(self) -> Any:
        if self._pass is not None:
            # Keras gave it up: it looks at one batch to build the model.
            self._pass.close()
        one = self._pass = Pass(self._epochs)
        return (map_tree(_tensor, self._pick(without_lists(batch))) for batch in one)

    def __repr__(self) -> str:
        return f"<wellfed batches for Keras>\n{self.loader.dataset!r}"


def _tensor(value: Any) -> Any:
    """`value`, if Keras can take it."""
    if isinstance(value, torch.Tensor):
        return value
    raise TypeError(
        f"a batch has a {type(value).__name__}, and Keras takes arrays on torch and JAX\nhint: say which fields to "
        "take: keras(x=..., y=...)"
    )
