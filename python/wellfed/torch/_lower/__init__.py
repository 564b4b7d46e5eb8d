"""What stock data sets, transforms and samplers become in the engine; private to `wellfed.torch`."""

from __future__ import annotations

from .albumentations import Albumentations
from .explain import explain, outlook
from .hybrid import Hybrid
from .left import check_left
from .native import NativeIterator, TensorIterator
from .plan import LoaderView, Plan, lower

__all__ = [
    "Albumentations",
    "Hybrid",
    "LoaderView",
    "NativeIterator",
    "Plan",
    "TensorIterator",
    "check_left",
    "explain",
    "lower",
    "outlook",
]
