"""Options of a pipeline: their names and types. What values they take is checked by the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from . import _arguments as check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .dataset import Dataset


class Options(TypedDict, total=False):
    """How a pipeline is run; see `wellfed.Dataset.with_options`."""

    num_workers: int | Literal["auto"]
    prefetch: int | Literal["auto"]
    read_ahead: int | Literal["auto"]
    memory_budget: int | None
    on_error: Literal["raise", "skip", "replace"]
    seed: int | None
    layout: Literal["NCHW", "NHWC"]
    mode: Literal[
        "RGB",
        "L",
        "RGBA",
        "UNCHANGED",
        "OPENCV",
        "TENSORFLOW",
        "TENSORFLOW_ACCURATE",
        "TENSORFLOW_UNCHANGED",
        "TENSORFLOW_L",
        "TENSORFLOW_RGBA",
    ]
    decode: Literal["exact", "fast"]
    exif_orientation: bool
    lossless: bool
    optimize: bool
    row_index: Literal["memory", "off", "beside"] | str | bytes | os.PathLike[str]
    remote_cache: str | bytes | os.PathLike[str] | None
    remote_cache_bytes: int | None
    trace: bool
    max_pixels: int
    max_bytes: int


# Options that the plan keeps in a group of their own.
_LIMITS = ("max_pixels", "max_bytes")


def merge(plan: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's options with those `given` put in their place."""
    unknown = sorted(set(given) - set(Options.__annotations__))
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"there is no option {', '.join(unknown)}\nhint: options are {known}")
    merged = {**plan, "limits": dict(plan.get("limits", {}))}
    for name, value in given.items():
        value = check.path(value, name) if isinstance(value, bytes | os.PathLike) else value
        (merged["limits"] if name in _LIMITS else merged)[name] = value
    return merged


def flatten(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan's options by the names users know them by."""
    flat = {k: v for k, v in plan.items() if k != "limits"}
    return {**flat, **plan.get("limits", {})}


_ON_DEVICE = ("copy", "resize", "decode", "auto", "nvjpeg")


def check_on_device(device: Any, on_device: str, call: str) -> None:
    """Whether there is such an `on_device`, and whether `device` is one for it; `call` is how it would be.

    Raises:
        ValueError: It is not.
    """
    if on_device not in _ON_DEVICE:
        raise ValueError(f"on_device is {on_device!r}; it is one of {', '.join(map(repr, _ON_DEVICE))}")
    if on_device != "copy" and str(device).split(":")[0] != "cuda" and not isinstance(device, int):
        given = None if device is None else str(device)
        raise ValueError(
            f"on_device={on_device!r} is for CUDA devices, and device is {given!r}"
            f'\nhint: {call}, or leave it at "copy"'
        )


def left_to(dataset: Dataset, device: Any, on_device: str) -> Dataset:
    """The data set with what `on_device` names left to `device`: its loader must finish it there."""
    check_on_device(device, on_device, 'torch(device="cuda", on_device=...)')
    if on_device == "copy":
        return dataset
    if dataset._has_python():
        raise ValueError(
            f"on_device={on_device!r} is for pipelines that the engine runs, and this one has Python steps"
            '\nhint: leave it at "copy"'
        )
    if on_device == "nvjpeg":
        from .torch._left import open_nvjpeg

        open_nvjpeg(device)
    options = {**dataset._plan()["options"], "on_device": on_device}
    return dataset._with(dataset._native.with_options(check.to_json(options)))
