"""Checks of arguments: those of transforms with the exception types that torchvision v2 raises.

What torchvision accepts and we cannot do is refused here with a reason, never ignored.
"""

from __future__ import annotations

import json
import math
import numbers
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

OPENCV_INTERPOLATIONS = ("opencv-nearest", "opencv-linear", "opencv-area", "opencv-linear-area")
TORCH_INTERPOLATIONS = ("torch-bilinear", "torch-bicubic")
PILLOW_NEAREST = "pillow-nearest"
"""Pillow's NEAREST of masks as well: other filters resize those as torchvision does."""

INTERPOLATIONS = (
    *("nearest", "nearest-exact", "bilinear", "bicubic", "lanczos"),
    *(PILLOW_NEAREST, *OPENCV_INTERPOLATIONS, *TORCH_INTERPOLATIONS),
)
PADDING_MODES = ("constant", "edge", "reflect", "symmetric")
IMAGE_DTYPES = ("uint8", "float16", "bfloat16", "float32")
STACK_DTYPES = ("float32", "float64", "int32", "int64")

# Pillow's constants, which torchvision accepts in place of its own names.
_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
_DTYPE_ALIASES = {"float": "float32", "half": "float16", "single": "float32"}


def is_sequence(value: Any) -> bool:
    """True for lists, tuples and the like, not for text."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def path(value: Any, name: str) -> str:
    """A path that is not empty, from text, bytes or a path object."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise TypeError(f"{name} is {value!r}; it must be a path")
    text = os.fsdecode(value)
    if not text:
        raise ValueError(f"{name} is empty; it must be a path\nhint: the current folder is '.'")
    _check_text(text, name)
    return text


def url(value: Any, name: str, storage_options: Mapping[str, Any] | None) -> str:
    """A path or URL with the options of its store in it, as the engine takes them."""
    text = path(value, name)
    if storage_options is None:
        return text
    if "://" not in text or text.startswith("file://"):
        raise ValueError(f"storage_options are given for {text}, which is a local path")
    options = "&".join(f"{key}={quote(value, safe='')}" for key, value in _options(storage_options))
    if not options:
        return text
    web = text.startswith(("http://", "https://"))
    mark = "#" if web else "?"
    base, given = text.rpartition(mark)[::2] if mark in text else ("", "")
    return f"{text}{'&' if base and '=' in given else mark}{options}"


def _options(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values as text. What s3fs hands on to boto3 is an option like the others."""
    if not isinstance(given, Mapping):
        raise TypeError(f"storage_options is of type {type(given).__name__}; it must be a dict")
    for key, value in given.items():
        if not isinstance(key, str) or not key.replace("_", "").replace("-", "").isalnum():
            raise TypeError(f"storage_options has the key {key!r}; keys are names")
        if value is None:
            continue
        if key in ("client_kwargs", "config_kwargs"):
            yield from _options(value)
        elif isinstance(value, bool):
            yield key, str(value).lower()
        elif isinstance(value, int | float):
            yield key, str(value)
        elif isinstance(value, str | os.PathLike):
            yield key, str(os.fspath(value))
        elif isinstance(value, Mapping):
            yield key, to_json(value)
        else:
            # The value may be secret.
            raise TypeError(
                f"storage_options[{key!r}] is of type {type(value).__name__}; it must be a text or number"
            )


def names(value: Any, name: str) -> list[str]:
    """A list of texts. One text is a list of one."""
    given = [value] if isinstance(value, str) else value
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is {value!r}; it must be a list of strings")
    listed = list(given)
    if not all(isinstance(one, str) for one in listed):
        raise TypeError(f"{name} is {value!r}; it must be a list of strings")
    return listed


def to_json(plan: Any, what: str = "") -> str:
    """`plan` as the engine's JSON. `what` names it in errors, in front of the names of its parts."""
    try:
        text = json.dumps(plan, allow_nan=False, default=_plain)
    except (TypeError, ValueError):
        _check(plan, what)
        raise
    if "\\ud" in text:  # perhaps a lone surrogate, which is no text for anybody else
        _check(plan, what)
    return text


def _plain(value: Any) -> Any:
    """Paths as text, and whole numbers of NumPy's."""
    return path(value, "path") if isinstance(value, bytes | os.PathLike) else operator.index(value)


def _check(value: Any, name: str) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            _check(part, str(key))
    elif isinstance(value, list | tuple):
        for part in value:
            _check(part, name)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is {value}; it must be a finite number")
    elif isinstance(value, str):
        _check_text(value, name)
    elif not isinstance(value, int | float | None):
        raise TypeError(f"{name} is {value!r}, of type {type(value).__name__}, which a pipeline cannot hold")


def _check_text(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{name} is {text!r}, whose character {e.start} is not Unicode\n"
            "hint: names that are not UTF-8 cannot be used; convmv renames files"
        ) from None


def whole(value: Any, name: str, least: int = 0) -> int:
    """A whole number (also NumPy's) of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be an int") from None
    if number < least:
        raise ValueError(f"{name} is {number}; it must be at least {least}")
    return number


def size(value: Any, name: str = "size") -> tuple[int, int]:
    """(height, width) from a number, a sequence of one, or a pair."""
    if isinstance(value, numbers.Integral):
        return int(value), int(value)
    if not is_sequence(value):
        raise TypeError(f"{name} is {value!r}; it must be an int or a sequence of one or two ints")
    if len(value) not in (1, 2):
        raise ValueError(f"{name} has {len(value)} numbers; it must be an int or (height, width)")
    return int(value[0]), int(value[-1])


def padding(value: Any) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) from one, two or four ints."""
    given = list(value) if isinstance(value, tuple | list) else [value]
    whole = all(isinstance(p, numbers.Integral) for p in given)
    if len(given) not in (1, 2, 4) or not whole:
        raise ValueError(f"padding is {value!r}; it must be an int or a tuple or list of 1, 2 or 4 ints")
    if min(given) < 0:
        raise ValueError(f"padding is {value!r}; it must not be negative")
    left, top = int(given[0]), int(given[1 if len(given) > 1 else 0])
    right, bottom = (int(given[2]), int(given[3])) if len(given) == 4 else (left, top)
    return left, top, right, bottom


def padding_mode(value: Any) -> str:
    """One of `PADDING_MODES`."""
    if value not in PADDING_MODES:
        raise ValueError(f"padding_mode is {value!r}; it must be one of {', '.join(PADDING_MODES)}")
    return str(value)


def fill(value: Any) -> float | tuple[float, ...]:
    """One number, or one per channel. None is 0, as for Pillow images."""
    if value is None:
        return 0
    if isinstance(value, dict):
        raise TypeError("fill is a dict; give the fill of images only, and mask_fill= for that of masks")
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if not isinstance(value, tuple | list):
        raise TypeError(f"fill is {value!r}; it must be a number, or a tuple or list of numbers")
    values = tuple(int(v) if isinstance(v, numbers.Integral) else float(v) for v in value)
    if not values:
        raise ValueError("fill is empty; it must be a number, or one number per channel")
    return values[0] if len(values) == 1 else values


def mask_fill(value: Any) -> dict[str, float]:
    """The fill of masks as an attribute, which is there only if it was given."""
    return {} if value is None else {"mask_fill": number(value, "mask_fill")}


def interpolation(value: Any) -> str:
    """One of `INTERPOLATIONS`, from text, torchvision's or our `InterpolationMode`, or Pillow's constants."""
    name = getattr(value, "value", value)
    if isinstance(name, numbers.Integral):
        name = _PILLOW.get(int(name), name)
    if name not in INTERPOLATIONS:
        raise ValueError(f"interpolation is {value!r}; it must be one of {', '.join(INTERPOLATIONS)}")
    return str(name)


def sampling(value: Any) -> str:
    """nearest, bilinear or bicubic: what images are turned with."""
    mode = interpolation(value)
    if mode not in ("nearest", "bilinear", "bicubic"):
        raise ValueError(f"interpolation is {mode!r}; images are turned with nearest, bilinear and bicubic")
    return mode


def filters(value: Any, one: Callable[[Any], str] = interpolation) -> str | tuple[str, ...]:
    """One filter, or a pair of which one is drawn; `one` knows which there are."""
    if not isinstance(value, tuple | list):
        return one(value)
    if len(value) not in (1, 2):
        raise ValueError(f"interpolation is {value!r}; it must be one filter, or two of which one is drawn")
    return one(value[0]) if len(value) == 1 else tuple(one(filter_) for filter_ in value)


def antialias(value: Any) -> bool | None:
    """True or None: images are resampled as Pillow images are, which torchvision always antialiases."""
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"antialias is {value!r}; it must be True or None")
    if value is False:
        raise ValueError("antialias=False is not supported: images are resampled as Pillow resamples them")
    return value


def probability(value: Any) -> float:
    """A number from 0 to 1."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"p is {value!r}; it must be a number from 0 to 1")
    p = float(value)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p is {p}; it must be from 0 to 1")
    return p


def number(value: Any, name: str) -> float:
    """A number; whole ones stay whole."""
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def point(value: Any, name: str) -> tuple[float, float] | None:
    """(x, y), or None."""
    if value is None:
        return None
    if not is_sequence(value):
        raise TypeError(f"{name} is {value!r}; it must be (x, y) or None")
    if len(value) != 2:
        raise ValueError(f"{name} has {len(value)} numbers; it must be (x, y) or None")
    return float(value[0]), float(value[1])


def shares(value: Any, name: str) -> tuple[float, float] | None:
    """Shares of the width and of the height, 0 to 1; or None."""
    given = point(value, name)
    if given is not None and not all(0.0 <= share <= 1.0 for share in given):
        raise ValueError(f"{name} is {value!r}; both numbers must be 0 to 1")
    return given


def pair(value: Any, name: str) -> tuple[float, float]:
    """(low, high) with low <= high."""
    if not is_sequence(value) or len(value) != 2:
        raise TypeError(f"{name} is {value!r}; it must be a sequence of two numbers")
    low, high = float(value[0]), float(value[1])
    if not low <= high:
        raise ValueError(f"{name} is {value!r}; it must be (low, high) with low <= high")
    return low, high


def positive_pair(value: Any, name: str) -> tuple[float, float]:
    """(low, high) with 0 < low <= high."""
    low, high = pair(value, name)
    if low <= 0:
        raise ValueError(f"{name} is {value!r}; it must be (low, high) with 0 < low <= high")
    return low, high


def angle(value: Any, name: str) -> tuple[float, float]:
    """(low, high) in degrees; one number d is (-d, d)."""
    if isinstance(value, numbers.Real):
        if value < 0:
            raise ValueError(f"{name} is {value}; a single number must not be negative")
        return -float(value), float(value)
    if not is_sequence(value):
        raise TypeError(f"{name} is {value!r}; it must be a number or (low, high)")
    if len(value) != 2:
        raise ValueError(f"{name} has {len(value)} numbers; it must be a number or (low, high)")
    return pair(value, name)


def shear(value: Any) -> tuple[float, ...] | None:
    """(low, high) along x in degrees, or (low, high, low, high) along x and y; one number d is (-d, d) along x."""
    if value is None:
        return None
    if is_sequence(value) and len(value) == 4:
        return pair(value[:2], "shear") + pair(value[2:], "shear")
    return angle(value, "shear")


def sigma(value: Any) -> tuple[float, float]:
    """(low, high), both positive; one number is both."""
    if isinstance(value, numbers.Real):
        value = (value, value)
    if not is_sequence(value):
        raise TypeError(f"sigma is {value!r}; it must be a number or (low, high)")
    if len(value) not in (1, 2):
        raise ValueError(f"sigma has {len(value)} numbers; it must be a number or (low, high)")
    if not all(isinstance(v, numbers.Real) for v in value):
        raise ValueError(f"sigma is {value!r}; it must be a sequence of numbers")
    low, high = float(value[0]), float(value[-1])
    if not 0.0 < low <= high:
        raise ValueError(f"sigma is {value!r}; it must be (low, high) with 0 < low <= high")
    return low, high


def jitter(
    value: Any, name: str, center: float = 1.0, bound: tuple[float, float] = (0.0, math.inf)
) -> tuple[float, float] | None:
    """The range of a colour factor; None where nothing changes."""
    if value is None:
        return None
    if isinstance(value, numbers.Real):
        if value < 0:
            raise ValueError(f"{name} is {value}; a single number must not be negative")
        low, high = center - float(value), center + float(value)
        if center == 1.0:
            low = max(low, 0.0)
    elif is_sequence(value) and len(value) == 2:
        low, high = float(value[0]), float(value[1])
    else:
        raise TypeError(f"{name} is {value!r}; it must be a number or (low, high)")
    if not bound[0] <= low <= high <= bound[1]:
        raise ValueError(f"{name} is {value!r}; (low, high) must rise and lie in {bound[0]} to {bound[1]}")
    return None if low == high == center else (low, high)


def channels(value: Any, name: str) -> tuple[float, ...]:
    """One number per channel (or one for all)."""
    if isinstance(value, numbers.Real):
        return (float(value),)
    try:
        given = tuple(float(v) for v in value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be a sequence of one number per channel") from None
    if not given:
        raise ValueError(f"{name} is empty; it must have one number per channel")
    return given


def dtype(value: Any) -> str:
    """One of `IMAGE_DTYPES`, from text, a torch dtype (without importing torch) or a NumPy dtype."""
    if isinstance(value, dict):
        raise ValueError("dtype is a dict; wellfed transforms images only, so give the dtype of images alone")
    return _dtype(value, IMAGE_DTYPES)


def stack_dtype(value: Any) -> str:
    """One of `STACK_DTYPES`, from the same."""
    return _dtype(value, STACK_DTYPES)


def _dtype(value: Any, known: tuple[str, ...]) -> str:
    if isinstance(value, str):
        name = value
    elif type(value).__module__.partition(".")[0] == "torch":
        name = str(value)
    else:
        try:
            name = np.dtype(value).name
        except TypeError:
            name = repr(value)
    name = name.removeprefix("torch.")
    name = _DTYPE_ALIASES.get(name, name)
    if name not in known:
        raise ValueError(f"dtype is {value!r}; it must be one of {', '.join(known)}")
    return name
