"""Image processors of Hugging Face's `transformers`: those that resize, crop, rescale and normalize, and nothing else.

They resize 8-bit tensors by torchvision v2. Invariant: a processor is known only if all of its methods are those of
`TorchvisionBackend`, and the engine's pixels equalled its own on images made up for that.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wellfed import _opencv as O
from wellfed import transforms as T

from .forms import Form, RefusalError, is_stock
from .resampling import different_tensors

__all__ = ["Processed", "is_processor", "lower_processed", "settings"]

_FILTERS = {2: "torch-bilinear", 3: "torch-bicubic"}
"""The engine's filters by Pillow's constants."""

_NEAR = 1e-5
"""How far float32 may be apart from torch's, which multiplies and adds in another order."""


@dataclass(frozen=True)
class Processed:
    """An image processor that is called on an image, of whose batch of one the image is taken."""

    processor: Any

    def __call__(self, image: Any) -> Any:
        return self.processor(image, return_tensors="pt")["pixel_values"][0]

    def __repr__(self) -> str:
        return type(self.processor).__name__


def _backend() -> Any:
    """The class that the processors' methods are of; None where it was not imported."""
    return getattr(sys.modules.get("transformers.image_processing_backends"), "TorchvisionBackend", None)


def is_processor(value: Any) -> bool:
    """Whether it is an image processor that works by torchvision."""
    backend = _backend()
    return backend is not None and isinstance(value, backend)


def settings(processor: Any) -> str:
    """All that its result depends on."""
    names = sorted(processor._valid_kwargs_names)
    return repr([(name, getattr(processor, name, None)) for name in names])


def lower_processed(leaf: Processed, form: Form) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for it, and what the image is then.

    Raises:
        RefusalError: It does more, or otherwise.
    """
    if form.kind != "pil" or form.mode != "RGB":
        raise RefusalError(f"stands on {form} that is not in RGB", 'image.convert("RGB")')
    if why := different_tensors():
        raise RefusalError(why)
    steps = _steps(leaf.processor)
    _check(leaf, steps)
    dtype = next((step.dtype for step in steps if isinstance(step, T.ToDtype)), "uint8")
    sized = form.sized or any(
        isinstance(step, O.FloorCenterCrop) or (isinstance(step, T.Resize) and isinstance(step.size, tuple))
        for step in steps
    )
    return [T.PILToTensor(), *steps], replace(form.turned("tensor", dtype), sized=sized), ""


def _check_methods(processor: Any) -> None:
    kind, backend = type(processor), _backend()
    names = {
        name
        for base in backend.__mro__[:-1]
        for name, value in vars(base).items()
        if name != "__init__" and (callable(value) or isinstance(value, staticmethod | classmethod))
    }
    for name in sorted(names):
        if inspect.getattr_static(kind, name) is not inspect.getattr_static(backend, name):
            raise RefusalError(f"{kind.__name__} has a {name}() of its own")
    if not is_stock(processor, *names):
        raise RefusalError("its methods were replaced", "use the class as its library made it")


def _steps(processor: Any) -> list[T.Transform]:
    """Its settings as transforms."""
    _check_methods(processor)
    p = processor
    if p.do_pad or p.device is not None or p.data_format not in (None, "channels_first"):
        raise RefusalError("it pads, or gives its images another layout or device")
    if p.input_data_format is not None:
        raise RefusalError("its input_data_format is set")
    steps: list[T.Transform] = []
    smallest = 0
    if p.do_resize:
        filter_ = _FILTERS.get(int(p.resample if p.resample is not None else 2))
        size = {name: side for name, side in dict(p.size).items() if side is not None}
        if filter_ is None:
            raise RefusalError(f"its resample is {p.resample}", "BILINEAR or BICUBIC")
        if size.keys() == {"height", "width"}:
            steps.append(T.Resize((size["height"], size["width"]), filter_))
        elif size.keys() == {"shortest_edge"}:
            steps.append(T.Resize(size["shortest_edge"], filter_))
        else:
            raise RefusalError(f"its size is {size}", "height and width, or shortest_edge")
        smallest = min(size.values())
    if p.do_center_crop:
        crop = (p.crop_size["height"], p.crop_size["width"])
        if max(crop) > smallest:
            raise RefusalError(f"its crop_size {crop} may be larger than an image")
        steps.append(O.FloorCenterCrop(crop))
    if p.do_normalize:
        mean, std, _ = p._fuse_mean_std_and_rescale_factor(
            do_normalize=True,
            image_mean=p.image_mean,
            image_std=p.image_std,
            do_rescale=p.do_rescale,
            rescale_factor=p.rescale_factor,
        )
        of_list = [np.asarray(values, np.float32).tolist() for values in (mean, std)]
        steps += [T.ToDtype("float32", scale=False), T.Normalize(*of_list)]
    elif p.do_rescale:
        if abs(p.rescale_factor * 255 - 1) > 1e-9:
            raise RefusalError(f"its rescale_factor is {p.rescale_factor}", "1/255")
        steps.append(T.ToDtype("float32", scale=True))
    return steps


_checked: dict[str, str] = {}
"""By settings: why the engine has other pixels; empty if it has the same."""


def _check(leaf: Processed, steps: list[T.Transform]) -> None:
    key = f"{type(leaf.processor).__qualname__} {settings(leaf.processor)}"
    if key not in _checked:
        _checked[key] = _different(leaf, steps)
    if _checked[key]:
        raise RefusalError(_checked[key])


def _different(leaf: Processed, steps: list[T.Transform]) -> str:
    import PIL.Image

    for height, width in ((301, 400), (290, 257)):
        # Not a generator of anybody's, whose state would change.
        i = np.arange(height * width * 3, dtype=np.int64)
        image = ((((i * i * 31) >> 3) ^ (i % 251)) & 255).astype(np.uint8).reshape(height, width, 3)
        try:
            theirs = leaf(PIL.Image.fromarray(image)).permute(1, 2, 0).numpy()
        except Exception as error:  # settings that it cannot work by: the script will hear of it
            return f"it raises {type(error).__name__}"
        ours = np.asarray(T.Compose(steps)(image)) if steps else image
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            return "it makes other images here than is known"
        if np.abs(theirs.astype(np.float64) - ours).max() > _NEAR * max(1.0, float(np.abs(theirs).max())):
            return "it makes other pixels here than is known"
    return ""
