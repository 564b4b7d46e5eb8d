"""`MixUp` and `CutMix`: what is done to finished batches of images and labels."""

from __future__ import annotations

from typing import Any

from . import _arguments as check
from ._transform import Transform

__all__ = ["CutMix", "MixUp"]


class _Mix(Transform):
    _random = True
    alpha: float
    num_classes: int | None
    labels_getter: str

    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: str = "default"
    ) -> None:
        value = check.number(alpha, "alpha")
        if not value > 0:
            raise ValueError(f"alpha is {value}; it must be greater than 0")
        if not isinstance(labels_getter, str):
            raise TypeError(
                "labels_getter is not the name of a field\nhint: a callable that finds labels can be given to "
                "torchvision's transform, in the loop over batches"
            )
        classes = None if num_classes is None else check.whole(num_classes, "num_classes", 1)
        self._set(alpha=value, num_classes=classes, labels_getter=labels_getter)

    @property
    def on_batches(self) -> bool:
        """Whether it works on finished batches: it does."""
        return True

    def __call__(self, *batch: Any) -> Any:
        """Torchvision's transform of this name and these parameters on a batch of tensors, which it draws anew.

        Args:
            batch: Images ``[batch, channels, height, width]`` and labels; as torchvision takes them.
        """
        from torchvision.transforms import v2

        return self.as_torchvision(v2)(*batch)


class MixUp(_Mix):
    """Replaces images and labels of a batch by weighted sums of each and the one before it.

    Goes into `Dataset.map` after `batch`. Images are of floating point numbers. Labels become float32 ``[batch,
    num_classes]``. One weight is drawn for a batch, from the Beta distribution with ``alpha`` twice. Shuffle before, as
    neighbours are mixed.

    Args:
        alpha: Greater than 0.
        num_classes: Where labels are numbers of classes; None where they are float32 rows of probabilities.
        labels_getter: The name of the field of the labels. Default: the second of a pair, or in a dict what is called
            labels.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> from wellfed import transforms as T
        >>> ds = wf.from_tensor_slices((np.zeros((6, 8, 8, 3), np.uint8), np.arange(6) % 2))
        >>> ds = ds.shuffle(seed=0).map(T.ToTensor()).batch(3).map(T.MixUp(num_classes=2))
        >>> images, labels = next(iter(ds.numpy()))
        >>> images.shape, labels.shape, labels.sum(1).round(4).tolist()
        ((3, 3, 8, 8), (3, 2), [1.0, 1.0, 1.0])
    """


class CutMix(_Mix):
    """Pastes a rectangle of the image before into each image of a batch, and weights labels by its area.

    Goes into `Dataset.map` after `batch`. Labels become float32 ``[batch, num_classes]``. One rectangle is drawn for a
    batch, by torchvision's formula.

    Args:
        alpha: Of the Beta distribution, greater than 0.
        num_classes: As of `MixUp`.
        labels_getter: As of `MixUp`.

    Example:
        >>> from wellfed import transforms as T
        >>> T.RandomChoice([T.CutMix(num_classes=10), T.MixUp(num_classes=10)]).on_batches
        True
    """
