"""wellfed feeds training: from photographs on disk to finished tensors.

Example:
    >>> import numpy as np
    >>> import wellfed as wf
    >>> from wellfed import transforms as T
    >>> images, labels = np.zeros((10, 32, 32, 3), np.uint8), np.arange(10)
    >>> ds = (
    ...     wf.from_tensor_slices((images, labels))
    ...     .shuffle(seed=0)
    ...     .map(T.RandomCrop(32, padding=4), T.ToDtype("float32", scale=True))
    ...     .batch(4)
    ... )
    >>> for x, y in ds.numpy():
    ...     print(x.shape, x.dtype, y.dtype)
    (4, 3, 32, 32) float32 int64
    (4, 3, 32, 32) float32 int64
    (2, 3, 32, 32) float32 int64
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import exceptions, transforms
from ._loader import BadSample, Loader
from ._native import __version__
from .dataset import Dataset
from .exceptions import (
    ConfigError,
    CorruptSampleError,
    InternalError,
    LimitExceededError,
    NotFoundError,
    SampleIndexError,
    ShapeError,
    StateError,
    StorageError,
    UnsupportedSampleError,
    WellfedError,
)
from .sources import (
    cifar10,
    cifar100,
    encoded_images,
    from_tensor_slices,
    image_files,
    image_folder,
    mnist,
    webdataset,
)

if TYPE_CHECKING:
    from ._doctor import doctor as doctor
    from .torch import feed as feed

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue, for values from 0 to 1."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue, for values from 0 to 1."""

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "BadSample",
    "ConfigError",
    "CorruptSampleError",
    "Dataset",
    "InternalError",
    "LimitExceededError",
    "Loader",
    "NotFoundError",
    "SampleIndexError",
    "ShapeError",
    "StateError",
    "StorageError",
    "UnsupportedSampleError",
    "WellfedError",
    "__version__",
    "cifar10",
    "cifar100",
    "encoded_images",
    "exceptions",
    "from_tensor_slices",
    "image_files",
    "image_folder",
    "mnist",
    "transforms",
    "webdataset",
]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, and not everyone has it.
    if name == "feed":
        from .torch import feed

        return feed
    if name == "doctor":
        from ._doctor import doctor

        return doctor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext wellfed`` gives notebooks the magic ``%%doctor``, which runs a cell under the doctor."""
    from ._doctor._magic import register

    register(shell)
