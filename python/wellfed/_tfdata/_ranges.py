"""Which values an image of float32 may have: casts to uint8 are TensorFlow's where they are from 0 to 255."""

from __future__ import annotations

import math
from typing import Any

from ._values import Image

__all__ = ["has_signed_zeros", "within_bytes"]

# Resampling by these gives nothing beyond what was there; others overshoot.
_BETWEEN = {"bilinear", "nearest", "area", "gaussian"}
_KEPT = {"flip", "crop", "central_crop", "random_flip", "random_crop", "to_rgb", "adjust_hue", "random_hue"}
# Operations round, and casts cut off, so that all of [0, 256) would do.
_LEAST, _MOST = -0.25, 255.75

_Span = tuple[float, float]


def within_bytes(image: Image) -> bool:
    """Whether every value is one that a cast to uint8 cuts to a whole number of 0 to 255."""
    span: _Span = (0.0, 255.0)
    for op in image.ops:
        span = _after(span, op)
        if any(map(math.isnan, span)):
            return False
    return span[0] >= _LEAST and span[1] <= _MOST


def has_signed_zeros(image: Image) -> bool:
    """Whether a zero may have the sign of negative numbers.

    TensorFlow's kernels give one or the other of two zeros, as the place of a value in registers has it.
    """
    for op in image.ops:
        match op:
            case {"op": "resize" | "resize_with_pad", "method": method} if method not in _BETWEEN:
                return True
            case {"op": "arithmetic", "operator": "mul" | "div", "constants": constants}:
                if any(math.copysign(1.0, constant) < 0 for constant in constants):
                    return True
            case {"op": "standardize"}:
                return True
    return False


def _after(span: _Span, op: dict[str, Any]) -> _Span:
    low, high = span
    unknown = (-math.inf, math.inf)
    match op:
        case {"op": name} if name in _KEPT:
            return span
        case {"op": "cast", "dtype": "uint8"}:
            return max(low, 0.0), min(high, 255.0)
        case {"op": "cast"}:
            return span
        case {"op": "resize" | "resize_with_pad" as name, "method": method}:
            inside = span if method in _BETWEEN else unknown
            return inside if name == "resize" else _with_zero(inside)
        case {"op": "pad" | "crop_or_pad"}:
            return _with_zero(span)
        case {"op": "arithmetic", "operator": operator, "constants": constants}:
            spans = [_computed(span, operator, constant) for constant in constants]
            # NaN stays, whatever min() makes of it.
            if any(math.isnan(bound) for one in spans for bound in one):
                return (math.nan, math.nan)
            return min(one[0] for one in spans), max(one[1] for one in spans)
        case {"op": "random_brightness", "max_delta": delta}:
            return low - delta, high + delta
        case {"op": "adjust_saturation" | "random_saturation" | "grayscale"} if low >= 0:
            return 0.0, high
        case {"op": "adjust_contrast", "factor": factor}:
            return _contrasted(span, abs(factor))
        case {"op": "random_contrast", "upper": factor}:
            return _contrasted(span, factor)
    return unknown


def _with_zero(span: _Span) -> _Span:
    return min(span[0], 0.0), max(span[1], 0.0)


def _contrasted(span: _Span, factor: float) -> _Span:
    # The mean lies inside, and so no value is farther from it than the width.
    reach = factor * (span[1] - span[0])
    return span[0] - reach, span[1] + reach


def _computed(span: _Span, operator: str, constant: float) -> _Span:
    low, high = span
    match operator:
        case "add":
            return low + constant, high + constant
        case "sub":
            return low - constant, high - constant
        case "sub_from":
            return constant - high, constant - low
        case "minimum":
            return min(low, constant), min(high, constant)
        case "maximum":
            return max(low, constant), max(high, constant)
        case "div" if constant == 0:
            return math.nan, math.nan
    ends = (low * constant, high * constant) if operator == "mul" else (low / constant, high / constant)
    return (math.nan, math.nan) if any(map(math.isnan, ends)) else (min(ends), max(ends))
