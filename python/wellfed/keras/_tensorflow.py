"""`DirectoryDataset`: what `wf.keras` gives on TensorFlow, a `tf.data.Dataset` with what Keras adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._handover.tensorflow import TensorFlowDataset, make

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._tfdata._operations import TensorFlowOps
    from ..dataset import Dataset

__all__ = ["DirectoryDataset"]


class DirectoryDataset(TensorFlowDataset):
    """A `tf.data.Dataset` of image files.

    Attributes:
        class_names: Names of classes by label; None without labels.
        file_paths: Paths of the files, in the order before any shuffle.
    """

    class_names: list[str] | None
    file_paths: list[str]

    @classmethod
    def of_images(
        cls,
        source: Dataset,
        ops: TensorFlowOps,
        batch_size: int | None,
        finish: Callable[[Any], Any],
        channels: int,
    ) -> Any:
        """Batches of the images of `source` after `ops`, to which `finish` is done; single samples without a size."""
        dataset = source.map(ops)
        batches = dataset if batch_size is None else dataset.batch(batch_size)
        return cls._made(batches, dataset, finish, None)

    @classmethod
    def _made(cls, dataset: Dataset, samples: Dataset, finish: Any, like: DirectoryDataset | None) -> Any:
        made: Any = make(dataset, None, None, finish, cls)
        made._samples, made._labelled = samples, finish
        if like is not None:
            made.class_names, made.file_paths = like.class_names, like.file_paths
        return made

    def explain(self) -> str:
        """What the engine does, and in which way."""
        return self.loader.explain()

    def batch(self, batch_size: Any, drop_remainder: bool = False, *args: Any, **kwargs: Any) -> Any:
        """As of `tf.data`; samples are made where they lie in their batch."""
        if self.loader.dataset is not self._samples or not isinstance(batch_size, int):
            return super().batch(batch_size, drop_remainder, *args, **kwargs)
        batches = self._samples.batch(batch_size, drop_last=bool(drop_remainder))
        return self._made(batches, self._samples, self._labelled, self)

    def unbatch(self, name: Any = None) -> Any:
        """As of `tf.data`."""
        if self.loader.dataset is self._samples:
            return super().unbatch(name)
        return self._made(self._samples, self._samples, self._labelled, self)
