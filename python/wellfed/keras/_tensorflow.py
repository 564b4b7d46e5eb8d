"""`TensorData`: what `wf.keras` gives on TensorFlow, a `tf.data.Dataset` with what Keras adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._handover.tensorflow import TensorFlowDataset, make

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._transform import Transform
    from ..dataset import Dataset

__all__ = ["TensorData"]


class TensorData(TensorFlowDataset):
    """A `tf.data.Dataset` of files or arrays.

    Attributes:
        class_names: Names of classes by label; None without labels.
        file_paths: Paths of the files, in the order before any shuffle.
    """

    class_names: list[str] | None
    file_paths: list[str]

    @classmethod
    def of(
        cls, source: Dataset, steps: Sequence[Transform], batch_size: int | None, finish: Callable[[Any], Any]
    ) -> Any:
        """Batches of `source` after `steps`, to which `finish` is done; single samples without a size."""
        samples = source.map(*steps) if steps else source
        return cls._made(samples if batch_size is None else samples.batch(batch_size), samples, finish, None)

    @classmethod
    def _made(cls, dataset: Dataset, samples: Dataset, finish: Any, like: TensorData | None) -> Any:
        made: Any = make(dataset, None, None, finish, cls)
        made._samples, made._labelled = samples, finish
        if like is not None:
            for name in ("class_names", "file_paths"):
                if hasattr(like, name):
                    setattr(made, name, getattr(like, name))
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
