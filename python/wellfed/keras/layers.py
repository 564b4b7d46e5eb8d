"""Keras' preprocessing layers as steps of a pipeline: ``ds.map(layers.Resizing(180, 180), layers.Rescaling(1 / 255))``.

They give the bits that the layers give on TensorFlow, on images as float32, as `image_dataset_from_directory` has them;
images of files are Keras' with ``with_options(mode="TENSORFLOW")``. (On uint8, Keras' `Resizing` rounds to uint8.) The
layers of one call of `map` are one chain, which comes last. Here are the layers of which the engine has exactly that;
the others belong into the model, or `wellfed.transforms` has torchvision's.

Example:
    >>> import numpy as np
    >>> import wellfed as wf
    >>> from wellfed.keras import layers as L
    >>> images = np.full((2, 40, 30, 3), 51, np.uint8)
    >>> ds = wf.from_tensor_slices(images).map(L.Resizing(8, 8), L.RandomFlip("horizontal"), L.Rescaling(1 / 255))
    >>> batch = next(iter(ds.batch(2).numpy(layout="NHWC")))
    >>> batch.shape, float(batch[0, 0, 0, 0])
    ((2, 8, 8, 3), 0.20000001788139343)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._tfdata._operations import TensorFlowOps
from ..exceptions import ConfigError

__all__ = ["RandomFlip", "Rescaling", "Resizing"]

_CAST = {"op": "cast", "dtype": "float32"}
_FLIPS = ("horizontal", "vertical", "horizontal_and_vertical")
_METHODS = ("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5", "area")


def Rescaling(
    scale: float | Sequence[float], offset: float | Sequence[float] = 0.0, **kwargs: Any
) -> TensorFlowOps:
    """`keras.layers.Rescaling`: values times ``scale`` plus ``offset``, in float32.

    Args:
        scale: One number, or one for each channel.
        offset: As ``scale``.
        kwargs: ``name``, which has no effect, and ``dtype``, if it is float32.

    Example:
        >>> Rescaling(1 / 127.5, offset=-1).to_plan()["ops"][2]
        {'op': 'arithmetic', 'operator': 'add', 'constants': [-1.0]}
    """
    _float32(kwargs)
    return TensorFlowOps(
        [
            _CAST,
            {"op": "arithmetic", "operator": "mul", "constants": _constants(scale, "scale")},
            {"op": "arithmetic", "operator": "add", "constants": _constants(offset, "offset")},
        ]
    )


def Resizing(
    height: int,
    width: int,
    interpolation: str = "bilinear",
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    antialias: bool = False,
    data_format: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.Resizing`, as it is on TensorFlow. On torch and JAX Keras' layer gives other values.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        interpolation: ``"bilinear"``, ``"nearest"``, ``"bicubic"``, ``"lanczos3"``, ``"lanczos5"`` or ``"area"``.
        crop_to_aspect_ratio: Refused if true, as ``pad_to_aspect_ratio``.
        pad_to_aspect_ratio: See above.
        fill_mode: Of padding: has no effect.
        fill_value: Of padding: has no effect.
        antialias: Whether each value is made of all that it covers, where images are shrunk.
        data_format: Has no effect: the pipeline's ``layout`` says how results lie.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: What is refused.
        ValueError: There is no such interpolation.
    """
    _float32(kwargs)
    if crop_to_aspect_ratio or pad_to_aspect_ratio:
        raise ConfigError(
            "Resizing: crop_to_aspect_ratio and pad_to_aspect_ratio are not known here\n"
            "hint: put the layer into the model, or a crop of wellfed.transforms before this one"
        )
    if interpolation not in _METHODS:
        raise ValueError(f"interpolation is {interpolation!r}; it must be one of {', '.join(_METHODS)}")
    resize: dict[str, Any] = {
        "op": "resize",
        "method": interpolation,
        "size": [operator.index(height), operator.index(width)],
    }
    # TensorFlow has no other way to do these two.
    if antialias and interpolation not in ("nearest", "area"):
        resize["antialias"] = True
    return TensorFlowOps([resize, _CAST])


def RandomFlip(
    mode: str = "horizontal_and_vertical",
    seed: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomFlip` in training: mirrors half of all images.

    Args:
        mode: ``"horizontal"`` or ``"vertical"``. Keras' default is refused.
        seed: Must be None: what is drawn follows from the pipeline's seed, the epoch and the sample.
        data_format: Has no effect.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: A seed is given; or ``"horizontal_and_vertical"``, for which Keras draws once, so that an image is
            mirrored in both ways or in none.
        ValueError: There is no such mode.
    """
    _float32(kwargs)
    if mode not in _FLIPS:
        raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(_FLIPS)}")
    if mode == "horizontal_and_vertical":
        raise ConfigError(
            "RandomFlip: with mode='horizontal_and_vertical' Keras mirrors both ways or none, which is not known here\n"
            "hint: RandomFlip('horizontal'), RandomFlip('vertical') mirror each way by itself"
        )
    if seed is not None:
        raise ConfigError(f"RandomFlip: seed is {seed}\nhint: the pipeline has one seed: shuffle(seed=...)")
    return TensorFlowOps([{"op": "random_flip", mode: True}, _CAST])


def _constants(values: float | Sequence[float], name: str) -> list[float]:
    """Numbers as float32 has them."""
    given = np.asarray(values, np.float32)
    if given.ndim > 1 or not 1 <= given.size <= 4 or not np.isfinite(given).all():
        raise ConfigError(f"{name} is {values!r}; it must be one finite number, or one for each channel")
    return [float(value) for value in given.reshape(-1)]


def _float32(kwargs: dict[str, Any]) -> None:
    """Takes the arguments that all layers of Keras have, if they change nothing."""
    others = sorted(set(kwargs) - {"name", "dtype"})
    if others:
        raise TypeError(f"there is no argument {others[0]}")
    if kwargs.get("dtype") not in (None, "float32", np.float32):
        raise ConfigError(f"dtype is {kwargs['dtype']!r}; results are float32\nhint: cast in the model")
