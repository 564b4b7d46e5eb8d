"""What transforms of sounds share: the class that they are of, and checks of their arguments."""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from . import _arguments as check
from . import _native
from ._transform import Transform

__all__ = ["WindowFn", "_SoundTransform", "optional", "real", "window"]

WindowFn = str | Callable[..., Any] | None
"""torch's function that makes a window, or its name."""


class _SoundTransform(Transform):
    """Base of transforms of sounds: the engine checks their parameters."""

    # Defaults, which `repr` leaves out.
    _defaults: ClassVar[dict[str, Any]] = {}

    def _set(self, **parameters: Any) -> None:
        super()._set(**parameters)
        _native.check_transform(check.to_json(self.to_plan()))

    def __call__(self, image: Any, seed: int | None = None) -> NoReturn:
        """Sounds are transformed in data sets only."""
        name = type(self).__name__
        raise TypeError(
            f"{name} works on the sounds of a data set, not on one image or array\n"
            f"hint: wf.audio_files(paths).map(T.{name}(...)); torchaudio.transforms works on tensors"
        )

    def as_torchvision(self, v2: Any) -> NoReturn:
        """Torchvision has no transforms of sounds."""
        raise TypeError(f"{type(self).__name__} works on sounds, and torchvision has no such transforms")

    def __repr__(self) -> str:
        given = (
            f"{k}={v!r}" for k, v in vars(self).items() if k not in self._defaults or self._defaults[k] != v
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def __hash__(self) -> int:
        return hash((type(self).__name__, json.dumps(self.to_plan())))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)


def optional(value: Any, name: str, least: int = 0) -> int | None:
    return None if value is None else check.whole(value, name, least)


def real(value: Any, name: str) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    return float(value)


def window(window_fn: WindowFn) -> str:
    """The name of a window: given as such, or as torch's function of that name."""
    name = window_fn if isinstance(window_fn, str) else getattr(window_fn, "__name__", repr(window_fn))
    if window_fn is None:
        return "hann_window"
    if name not in _WINDOWS:
        raise ValueError(f"window_fn is {name}; it must be one of {', '.join(_WINDOWS)}, of torch or by name")
    return name


_WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "ones")
