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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import exceptions
from ._native import __version__
from .exceptions import (
    ConfigError,
    CorruptSampleError,
    InternalError,
    LimitExceededError,
    NotFoundError,
    ObjectChangedError,
    SampleIndexError,
    ShapeError,
    StateError,
    StepError,
    StorageError,
    TransientError,
    UnsupportedSampleError,
    WellfedError,
)

if TYPE_CHECKING:
    from . import keras as keras
    from . import tables as tables
    from . import transforms as transforms
    from ._accelerate import accelerate as accelerate
    from ._accelerate import decode as decode
    from ._accelerate import load as load
    from ._combine import concatenate as concatenate
    from ._combine import interleave as interleave
    from ._combine import sample_from_datasets as sample_from_datasets
    from ._combine import zip as zip  # noqa: A004
    from ._containers import beton as beton
    from ._containers import hdf5 as hdf5
    from ._containers import jsonl as jsonl
    from ._containers import litdata as litdata
    from ._containers import lmdb as lmdb
    from ._containers import mds as mds
    from ._containers import npy as npy
    from ._containers import npz as npz
    from ._containers import raw_files as raw_files
    from ._csv import csv as csv
    from ._doctor import doctor as doctor
    from ._features import FixedLenFeature as FixedLenFeature
    from ._features import FixedLenSequenceFeature as FixedLenSequenceFeature
    from ._features import RaggedFeature as RaggedFeature
    from ._features import VarLenFeature as VarLenFeature
    from ._feed import feed as feed
    from ._loader import BadSample as BadSample
    from ._loader import Loader as Loader
    from ._ragged import Ragged as Ragged
    from ._sounds import audio_files as audio_files
    from ._sounds import audio_folder as audio_folder
    from ._sounds import audio_manifest as audio_manifest
    from ._speech import librispeech as librispeech
    from ._speech import speech_commands as speech_commands
    from ._speech import spoken_digits as spoken_digits
    from ._speech import yesno as yesno
    from ._tables import arrow as arrow
    from ._tables import parquet as parquet
    from ._write import verify as verify
    from .dataset import Dataset as Dataset
    from .sources import annotated_images as annotated_images
    from .sources import cifar10 as cifar10
    from .sources import cifar100 as cifar100
    from .sources import coco_detection as coco_detection
    from .sources import encoded_images as encoded_images
    from .sources import from_dataset as from_dataset
    from .sources import from_generator as from_generator
    from .sources import from_tensor_slices as from_tensor_slices
    from .sources import image_files as image_files
    from .sources import image_folder as image_folder
    from .sources import mnist as mnist
    from .sources import tfrecord as tfrecord
    from .sources import voc_segmentation as voc_segmentation
    from .sources import webdataset as webdataset

_HOMES = {
    "BadSample": "_loader",
    "Dataset": "dataset",
    "FixedLenFeature": "_features",
    "FixedLenSequenceFeature": "_features",
    "Loader": "_loader",
    "Ragged": "_ragged",
    "RaggedFeature": "_features",
    "VarLenFeature": "_features",
    "accelerate": "_accelerate",
    "annotated_images": "sources",
    "arrow": "_tables",
    "audio_files": "_sounds",
    "audio_folder": "_sounds",
    "audio_manifest": "_sounds",
    "beton": "_containers",
    "cifar10": "sources",
    "cifar100": "sources",
    "coco_detection": "sources",
    "concatenate": "_combine",
    "csv": "_csv",
    "decode": "_accelerate",
    "doctor": "_doctor",
    "encoded_images": "sources",
    "feed": "_feed",
    "from_dataset": "sources",
    "from_generator": "sources",
    "from_tensor_slices": "sources",
    "hdf5": "_containers",
    "image_files": "sources",
    "image_folder": "sources",
    "interleave": "_combine",
    "jsonl": "_containers",
    "keras": "",
    "librispeech": "_speech",
    "litdata": "_containers",
    "lmdb": "_containers",
    "load": "_accelerate",
    "mds": "_containers",
    "mnist": "sources",
    "parquet": "_tables",
    "npy": "_containers",
    "npz": "_containers",
    "raw_files": "_containers",
    "sample_from_datasets": "_combine",
    "tfrecord": "sources",
    "speech_commands": "_speech",
    "spoken_digits": "_speech",
    "tables": "",
    "transforms": "",
    "verify": "_write",
    "voc_segmentation": "sources",
    "webdataset": "sources",
    "yesno": "_speech",
    "zip": "_combine",
}
"""Where the names are that are imported when they are first asked for.

torch takes seconds, and not everyone has it. The command `wellfed` needs none of them, and shares the memory of its
container with the script that it diagnoses: NumPy alone would take 10 MB of that.
"""

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
    "FixedLenFeature",
    "FixedLenSequenceFeature",
    "InternalError",
    "LimitExceededError",
    "Loader",
    "NotFoundError",
    "ObjectChangedError",
    "Ragged",
    "RaggedFeature",
    "SampleIndexError",
    "ShapeError",
    "StateError",
    "StepError",
    "StorageError",
    "TransientError",
    "UnsupportedSampleError",
    "VarLenFeature",
    "WellfedError",
    "__version__",
    "accelerate",
    "annotated_images",
    "arrow",
    "audio_files",
    "audio_folder",
    "audio_manifest",
    "beton",
    "cifar10",
    "cifar100",
    "coco_detection",
    "concatenate",
    "csv",
    "decode",
    "doctor",
    "encoded_images",
    "exceptions",
    "feed",
    "from_dataset",
    "from_generator",
    "from_tensor_slices",
    "hdf5",
    "image_files",
    "image_folder",
    "interleave",
    "jsonl",
    "keras",
    "librispeech",
    "litdata",
    "lmdb",
    "mds",
    "mnist",
    "npy",
    "npz",
    "parquet",
    "raw_files",
    "sample_from_datasets",
    "speech_commands",
    "spoken_digits",
    "tables",
    "tfrecord",
    "transforms",
    "verify",
    "voc_segmentation",
    "webdataset",
    "yesno",
    "zip",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = (
        getattr(import_module(f".{home}", __name__), name) if home else import_module(f".{name}", __name__)
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # `help` asks for all that is listed here, so nothing of it may need torch.
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext wellfed`` gives notebooks the magic ``%%doctor``, which runs a cell under the doctor."""
    from ._doctor._magic import register

    register(shell)
