"""Keras' preprocessing layers as steps of a pipeline: ``ds.map(layers.Resizing(180, 180), layers.Rescaling(1 / 255))``.

They give the bits that the layers give on TensorFlow, on images as float32, as `image_dataset_from_directory` has them;
images of files are Keras' with ``with_options(mode="TENSORFLOW")``. (On uint8, Keras' `Resizing` rounds to uint8.) The
layers of one call of `map` are one chain, which comes last. Random layers draw for each sample and epoch anew, from the
ranges that Keras' layers draw from. Other layers belong into the model, or `wellfed.transforms` has torchvision's.

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
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._tfdata._operations import TensorFlowOps
from ..exceptions import ConfigError

__all__ = [
    "CenterCrop",
    "RandomBrightness",
    "RandomContrast",
    "RandomCrop",
    "RandomFlip",
    "RandomRotation",
    "RandomTranslation",
    "RandomZoom",
    "Rescaling",
    "Resizing",
]

_CAST = {"op": "cast", "dtype": "float32"}
_FLIPS = ("horizontal", "vertical", "horizontal_and_vertical")
_FILL_MODES = ("reflect", "wrap", "constant", "nearest")
_FORMATS = (None, "channels_last", "channels_first")
_INTERPOLATIONS = ("nearest", "bilinear")
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
        crop_to_aspect_ratio: Whether the image is cropped to the aspect of the result before.
        pad_to_aspect_ratio: Refused if true.
        fill_mode: Of padding: has no effect.
        fill_value: Of padding: has no effect.
        antialias: Whether each value is made of all that it covers, where images are shrunk.
        data_format: Has no effect: the pipeline's ``layout`` says how results lie.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: What is refused.
        ValueError: There is no such interpolation.
    """
    _float32(kwargs, data_format)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`.")
    if pad_to_aspect_ratio:
        raise ConfigError(
            "Resizing: pad_to_aspect_ratio is not known here\n"
            "hint: put the layer into the model, or wellfed.transforms.Pad before this one"
        )
    if interpolation not in _METHODS:
        raise ValueError(f"interpolation is {interpolation!r}; it must be one of {', '.join(_METHODS)}")
    resize: dict[str, Any] = {
        "op": "resize_cropped" if crop_to_aspect_ratio else "resize",
        "method": interpolation,
        "size": _size(height, width),
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
        mode: ``"horizontal"``, ``"vertical"``, or ``"horizontal_and_vertical"``, with which an image is mirrored both
            ways or none, as Keras does it.
        seed: Must be None: what is drawn follows from the pipeline's seed, the epoch and the sample.
        data_format: Has no effect.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: A seed is given.
        ValueError: There is no such mode.
    """
    _float32(kwargs, data_format)
    if mode not in _FLIPS:
        raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(_FLIPS)}")
    _seedless(seed, "RandomFlip")
    both = mode == "horizontal_and_vertical"
    flip = {"op": "random_flip_both"} if both else {"op": "random_flip", mode: True}
    return TensorFlowOps([flip, _CAST])


def CenterCrop(height: int, width: int, data_format: str | None = None, **kwargs: Any) -> TensorFlowOps:
    """`keras.layers.CenterCrop`. Of an image that is smaller, the centre of that aspect is made larger.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        data_format: Has no effect: the pipeline's ``layout`` says how results lie.
        kwargs: As of `Rescaling`.

    Example:
        >>> CenterCrop(8, 6).to_plan()["ops"]
        [{'op': 'crop_or_resize', 'size': [8, 6]}]
    """
    _float32(kwargs, data_format)
    return TensorFlowOps([{"op": "crop_or_resize", "size": _size(height, width)}])


def RandomCrop(
    height: int,
    width: int,
    seed: int | None = None,
    data_format: str | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomCrop` in training. Keras draws a place for a batch; here each sample has its own.

    As with Keras, nothing is drawn for an image that is not larger than the result on both sides: it is cropped at one
    place, and resized if it is smaller.

    Args:
        height: Rows of the result.
        width: Columns of the result.
        seed: Must be None: what is drawn follows from the pipeline's seed, the epoch and the sample.
        data_format: As of `CenterCrop`.
        name: Has no effect.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: A seed is given.
    """
    _float32(kwargs)
    _seedless(seed, "RandomCrop")
    return TensorFlowOps([{"op": "random_crop_or_resize", "size": _size(height, width)}])


def RandomRotation(
    factor: float | Sequence[float],
    fill_mode: str = "reflect",
    interpolation: str = "bilinear",
    seed: int | None = None,
    fill_value: float = 0.0,
    data_format: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomRotation` in training.

    Args:
        factor: Parts of a full turn: the least and the greatest, or one number for both directions. From -1 to 1.
        fill_mode: ``"reflect"``, ``"wrap"``, ``"constant"`` or ``"nearest"``.
        interpolation: ``"bilinear"`` or ``"nearest"``.
        seed: As of `RandomCrop`.
        fill_value: With ``"constant"``.
        data_format: As of `CenterCrop`.
        kwargs: As of `Rescaling`.

    Raises:
        ConfigError: A seed is given, or a value that is not finite.
        ValueError: A factor out of range.
        NotImplementedError: There is no such mode or interpolation, as of Keras.

    Example:
        >>> RandomRotation(0.25).to_plan()["ops"][0]["degrees"]
        [-90.0, 90.0]
    """
    _float32(kwargs)
    _seedless(seed, "RandomRotation")
    low, high = _base_factor(factor, -1)
    sampling = _sampling(fill_mode, interpolation, fill_value)
    return TensorFlowOps(
        [{"op": "random_rotation", "degrees": _single(low * 360.0, high * 360.0), "sampling": sampling}]
    )


def RandomZoom(
    height_factor: float | Sequence[float],
    width_factor: float | Sequence[float] | None = None,
    fill_mode: str = "reflect",
    interpolation: str = "bilinear",
    seed: int | None = None,
    fill_value: float = 0.0,
    data_format: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomZoom` in training: above 0 shows more than the image, below 0 a part of it.

    Args:
        height_factor: The least and the greatest, or one number for both directions. Above -1, at most 1.
        width_factor: Likewise; None: as rows, so that the aspect stays.
        fill_mode: As of `RandomRotation`, as all others.
        interpolation: See above.
        seed: See above.
        fill_value: See above.
        data_format: See above.
        kwargs: See above.

    Raises:
        ConfigError: As of `RandomRotation`.
        ValueError: As of `RandomRotation`.
        NotImplementedError: As of `RandomRotation`.

    Example:
        >>> RandomZoom((-0.5, 0.25)).to_plan()["ops"][0]["height"]
        [0.5, 1.25]
    """
    _float32(kwargs)
    _seedless(seed, "RandomZoom")
    op: dict[str, Any] = {"op": "random_zoom"}
    for name, factor in (("height", height_factor), ("width", width_factor)):
        if factor is not None or name == "height":
            low, high = _sides_factor(factor, f"{name}_factor", lambda x: -1.0 < x <= 1.0, "(-1.0, 1.0]")
            op[name] = _single(1.0 + low, 1.0 + high)
    return TensorFlowOps([{**op, "sampling": _sampling(fill_mode, interpolation, fill_value)}])


def RandomTranslation(
    height_factor: float | Sequence[float],
    width_factor: float | Sequence[float],
    fill_mode: str = "reflect",
    interpolation: str = "bilinear",
    seed: int | None = None,
    fill_value: float = 0.0,
    data_format: str | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomTranslation` in training: above 0 is down and to the right.

    Args:
        height_factor: Parts of the height: the least and the greatest, or one number for both directions. From -1 to 1.
        width_factor: Likewise, of the width.
        fill_mode: As of `RandomRotation`, as all others.
        interpolation: See above.
        seed: See above.
        fill_value: See above.
        data_format: See above.
        kwargs: See above.

    Raises:
        ConfigError: As of `RandomRotation`.
        ValueError: As of `RandomRotation`.
        NotImplementedError: As of `RandomRotation`.
    """
    _float32(kwargs, data_format)
    _seedless(seed, "RandomTranslation")
    parts = {
        name: _single(*_sides_factor(factor, f"{name}_factor", lambda x: -1.0 <= x <= 1.0, "[-1.0, 1.0]"))
        for name, factor in (("height", height_factor), ("width", width_factor))
    }
    sampling = _sampling(fill_mode, interpolation, fill_value)
    return TensorFlowOps([{"op": "random_translation", **parts, "sampling": sampling}])


def RandomContrast(
    factor: float | Sequence[float],
    value_range: Sequence[float] = (0, 255),
    seed: int | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomContrast` in training: values are spread about the mean of their channel.

    Args:
        factor: ``(lower, upper)`` draws a factor from ``1 - lower`` to ``1 + upper``. One number is ``upper``, with 0
            for ``lower``, as Keras 3.15 takes it, though its documentation says otherwise. From 0 to 1.
        value_range: Results are kept within it.
        seed: As of `RandomCrop`.
        kwargs: As of `Rescaling`; ``data_format`` has no effect.

    Raises:
        ConfigError: A seed is given, or a range that ends before it begins.
        ValueError: A factor out of range.

    Example:
        >>> RandomContrast((0.25, 0.5)).to_plan()["ops"][0]["factor"]
        [0.75, 1.5]
        >>> RandomContrast(0.5).to_plan()["ops"][0]["factor"]
        [1.0, 1.5]
    """
    _float32(kwargs, kwargs.pop("data_format", None))
    _seedless(seed, "RandomContrast")
    low, high = _base_factor(factor, 0)
    return TensorFlowOps(
        [
            {
                "op": "random_contrast_layer",
                "factor": _single(1.0 - low, 1.0 + high),
                "range": _range(value_range),
            }
        ]
    )


def RandomBrightness(
    factor: float | Sequence[float],
    value_range: Sequence[float] = (0, 255),
    seed: int | None = None,
    **kwargs: Any,
) -> TensorFlowOps:
    """`keras.layers.RandomBrightness` in training: one number is added to all values of an image.

    Args:
        factor: Parts of the range that are added: the least and the greatest, or one number for both directions.
            From -1 to 1.
        value_range: Results are kept within it.
        seed: As of `RandomCrop`.
        kwargs: As of `RandomContrast`.

    Raises:
        ConfigError: A seed is given, or a range that is not finite.
        ValueError: A factor out of range.

    Example:
        >>> RandomBrightness(0.25).to_plan()["ops"][0]["factor"]
        [-0.25, 0.25]
    """
    _float32(kwargs, kwargs.pop("data_format", None))
    _seedless(seed, "RandomBrightness")
    low, high = _base_factor(factor, -1)
    limits = _range(sorted(value_range) if isinstance(value_range, tuple | list) else value_range)
    return TensorFlowOps([{"op": "random_brightness_layer", "factor": _single(low, high), "range": limits}])


def _constants(values: float | Sequence[float], name: str) -> list[float]:
    """Numbers as float32 has them."""
    given = np.asarray(values, np.float32)
    if given.ndim > 1 or not 1 <= given.size <= 4 or not np.isfinite(given).all():
        raise ConfigError(f"{name} is {values!r}; it must be one finite number, or one for each channel")
    return [float(value) for value in given.reshape(-1)]


def _size(height: int, width: int) -> list[int]:
    return [operator.index(height), operator.index(width)]


def _seedless(seed: Any, layer: str) -> None:
    if seed is not None:
        raise ConfigError(f"{layer}: seed is {seed}\nhint: the pipeline has one seed: shuffle(seed=...)")


def _base_factor(factor: Any, least: int) -> tuple[float, float]:
    """A factor as Keras' base layer takes it: two numbers are sorted, one is for both directions from `least` on."""
    error = ValueError(
        "The `factor` argument should be a number (or a list of two numbers) in the range "
        f"[{least}, 1]. Received: factor={factor}"
    )
    if isinstance(factor, tuple | list):
        if len(factor) != 2 or not all(isinstance(one, int | float) for one in factor):
            raise error
        # Keras checks the first against the greatest and the second against the least only.
        if not all(least <= one <= 1 for one in factor):
            raise error
        low, high = sorted(factor)
        return low, high
    if not isinstance(factor, int | float) or not least <= factor <= 1:
        raise error
    return max(-abs(factor), least), abs(factor)


def _sides_factor(factor: Any, name: str, fits: Callable[[float], bool], limits: str) -> tuple[float, float]:
    """A factor as Keras' layers with one for each side take it."""
    given = factor if isinstance(factor, tuple | list) else (factor,)
    pair = isinstance(factor, tuple | list)
    if (
        len(given) != (2 if pair else 1)
        or not all(isinstance(one, int | float) for one in given)
        or not all(fits(one) for one in given)
    ):
        raise ValueError(
            f"The `{name}` argument should be a number (or a list of two numbers) in the range {limits}. "
            f"Received: {name}={factor}"
        )
    if pair:
        low, high = sorted(given)
        return low, high
    return -abs(factor), abs(factor)


def _sampling(fill_mode: str, interpolation: str, fill_value: float) -> dict[str, Any]:
    for name, value, known in (
        ("fill_mode", fill_mode, _FILL_MODES),
        ("interpolation", interpolation, _INTERPOLATIONS),
    ):
        if value not in known:
            raise NotImplementedError(f"Unknown `{name}` {value}. Expected of one {known}.")
    (filling,) = _single(fill_value)
    if not np.isfinite(filling):
        raise ConfigError(f"fill_value is {fill_value}; it must be finite in float32")
    return {"bilinear": interpolation == "bilinear", "fill_mode": fill_mode, "fill_value": filling}


def _range(values: Sequence[float]) -> list[float]:
    """The range of values, as float32 has it."""
    if not isinstance(values, tuple | list) or len(values) != 2:
        raise ValueError(
            f"The `value_range` argument should be a list of two numbers. Received: value_range={values}"
        )
    found = _single(*values)
    if not np.isfinite(found).all() or found[0] > found[1]:
        raise ConfigError(
            f"value_range is {values}; it must be two numbers that are finite in float32, "
            "the first not above the second"
        )
    return found


def _single(*values: float) -> list[float]:
    """Numbers as float32 has them."""
    return [float(np.float32(value)) for value in values]


def _float32(kwargs: dict[str, Any], data_format: str | None = None) -> None:
    """Takes the arguments that all layers of Keras have, if they change nothing."""
    if data_format not in _FORMATS:
        raise ValueError(
            f"data_format is {data_format!r}; it must be one of {', '.join(map(str, _FORMATS[1:]))}"
        )
    others = sorted(set(kwargs) - {"name", "dtype"})
    if others:
        raise TypeError(f"there is no argument {others[0]}")
    if kwargs.get("dtype") not in (None, "float32", np.float32):
        raise ConfigError(f"dtype is {kwargs['dtype']!r}; results are float32\nhint: cast in the model")
