"""Features of `tf.train.Example`, in the forms of ``tf.io.parse_example``: what `wellfed.tfrecord` takes.

TensorFlow's own objects are taken as well, by their names and attributes: it is not needed for that, nor imported.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from . import _arguments as check

__all__ = ["FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "VarLenFeature"]

_BYTES = ("string", "text", "json", "image", "mask")
_DTYPES = ("int64", "float32", *_BYTES)
_ALIASES = {"float": "float32", "bytes": "string", "object": "string", "str": "text"}


@dataclass(frozen=True)
class FixedLenFeature:
    """A feature of as many values as `shape` has elements, as TensorFlow's class of that name.

    Args:
        shape: ``[]`` is one value. Byte strings and images are one.
        dtype: ``"int64"``, ``"float32"`` or ``"string"``, as text or as a dtype of NumPy, torch or TensorFlow; or what
            byte strings are to be taken for: ``"image"`` (JPEG, PNG: decoded), ``"mask"``, ``"text"``, ``"json"``.
        default_value: For records that lack the feature. Without it those are bad samples.

    Example:
        >>> import wellfed as wf
        >>> wf.FixedLenFeature([], "int64", default_value=-1)
        FixedLenFeature(shape=[], dtype='int64', default_value=-1)
    """

    shape: Sequence[int]
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True)
class VarLenFeature:
    """A feature of any number of values, or none: an array that differs in length from sample to sample.

    Of dtype ``"text"`` it is a list of texts.

    Example:
        >>> import wellfed as wf
        >>> wf.VarLenFeature("float32")
        VarLenFeature(dtype='float32')
    """

    dtype: Any


@dataclass(frozen=True)
class RaggedFeature:
    """As `VarLenFeature`, under a name of its own, and with rows of fixed length if `partitions` say so.

    Args:
        dtype: As of `FixedLenFeature`.
        value_key: Name of the feature in the records. None: that of the field.
        partitions: None, or a list of ``UniformRowLength``. Row lengths and splits that are features themselves are not
            supported: read those as features.

    Example:
        >>> import wellfed as wf
        >>> boxes = wf.RaggedFeature("float32", partitions=[wf.RaggedFeature.UniformRowLength(4)])
        >>> boxes.partitions[0].length
        4
    """

    class UniformRowLength(NamedTuple):
        """Rows of `length` values."""

        length: int

    dtype: Any
    value_key: str | None = None
    partitions: Sequence[Any] = ()


@dataclass(frozen=True)
class FixedLenSequenceFeature:
    """A feature of any number of steps of `shape`: an array ``[steps, *shape]``.

    Args:
        shape: Shape of one step; ``[]`` is one value.
        dtype: As of `FixedLenFeature`. Several texts are a list.
        allow_missing: Records without the feature have no steps, instead of being bad samples. Required in an
            ``Example``, as in TensorFlow.

    Example:
        >>> import wellfed as wf
        >>> wf.FixedLenSequenceFeature([2], "float32").shape
        [2]
    """

    shape: Sequence[int]
    dtype: Any
    allow_missing: bool = False


def described(features: Any, argument: str, images: Collection[str]) -> list[dict[str, Any]] | None:
    """What the engine is told of `features`: names with objects of this module or of ``tf.io``."""
    if features is None:
        return None
    if not isinstance(features, Mapping):
        raise TypeError(
            f"{argument} is of type {type(features).__name__}; it must be a dict of names and features"
        )
    if not features:
        raise ValueError(f"{argument} is empty")
    described = []
    for name, feature in features.items():
        if not isinstance(name, str):
            raise TypeError(f"{argument} has the key {name!r}; keys are names of features")
        described.append({"name": name, **_one(name, feature, name in images)})
    return described


def _one(name: str, feature: Any, image: bool) -> dict[str, Any]:
    kind = type(feature).__name__
    if kind not in __all__:
        raise TypeError(
            f"feature {name} is {feature!r}, which is not supported\nhint: features are {', '.join(sorted(__all__))}"
        )
    dtype = _dtype(name, feature.dtype)
    if image:
        if dtype not in ("string", "image"):
            raise ValueError(f"feature {name} is one of images, but of dtype {dtype!r}, not 'string'")
        dtype = "image"
    spec: dict[str, Any] = {"dtype": dtype}
    if kind == "VarLenFeature":
        return {**spec, "form": "var_len"}
    if kind == "RaggedFeature":
        if feature.value_key not in (None, name):
            spec["key"] = str(feature.value_key)
        rows = [_row_length(name, part) for part in feature.partitions or ()]
        return {**spec, "form": {"rows": rows} if rows else "var_len"}
    shape = _shape(name, feature.shape)
    if kind == "FixedLenSequenceFeature":
        # tf.io.parse_example pads batches with it; here padded_batch says with what.
        if getattr(feature, "default_value", None) is not None:
            raise ValueError(
                f"feature {name} has a default_value, which TensorFlow pads batches with\n"
                "hint: give it to padded_batch(padding_values=...)"
            )
        return {**spec, "form": {"sequence": {"shape": shape, "allow_missing": bool(feature.allow_missing)}}}
    if feature.default_value is not None:
        spec["default"] = _default(name, feature.default_value, dtype, shape)
    return {**spec, "form": {"fixed_len": shape}}


def _dtype(name: str, dtype: Any) -> str:
    found = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(found, str):
        found = {str: "text", bytes: "string", int: "int64", float: "float32"}.get(dtype) or str(dtype)
        if isinstance(dtype, type) and issubclass(dtype, np.generic):
            found = np.dtype(dtype).name
    found = found.removeprefix("torch.")
    found = _ALIASES.get(found, found)
    if found not in _DTYPES:
        raise ValueError(f"feature {name} has dtype {dtype!r}; it must be one of {', '.join(_DTYPES)}")
    return found


def _shape(name: str, shape: Any) -> list[int]:
    if shape is None:
        raise ValueError(f"feature {name} has no shape\nhint: VarLenFeature has any number of values")
    # A TensorShape gives its sides as Nones or numbers.
    sides = [shape] if isinstance(shape, int | np.integer) else list(shape)
    if any(side is None for side in sides):
        raise ValueError(f"feature {name} has shape {sides}; all sides must be known")
    return [check.whole(side, f"shape of feature {name}", 1) for side in sides]


def _row_length(name: str, partition: Any) -> int:
    if type(partition).__name__ != "UniformRowLength":
        raise ValueError(
            f"feature {name} has the partition {partition!r}, which is not supported\n"
            "hint: only UniformRowLength is; read its values, and the feature that divides them, as VarLenFeature each"
        )
    return check.whole(partition.length, f"row length of feature {name}", 1)


def _default(name: str, value: Any, dtype: str, shape: list[int]) -> dict[str, Any]:
    if dtype in _BYTES:
        flat = np.asarray(value, object).reshape(-1)
        text = flat[0] if len(flat) == 1 else None
        if shape or not isinstance(text, str | bytes):
            raise ValueError(f"feature {name} has default_value {value!r}; it must be one string")
        return {"bytes": list(text.encode() if isinstance(text, str) else text)}
    array = np.asarray(value)
    if array.dtype.kind not in ("iu" if dtype == "int64" else "iuf"):
        raise ValueError(f"feature {name} has default_value {value!r}; it must be of dtype {dtype}")
    if array.size != int(np.prod(shape)):
        raise ValueError(
            f"feature {name} has default_value of {array.size} values, but shape {shape} takes {int(np.prod(shape))}"
        )
    flat = array.reshape(-1)
    if dtype == "int64":
        return {"int64": flat.astype(np.int64).tolist()}
    return {"float32_bits": flat.astype(np.float32).view(np.uint32).tolist()}
