"""What a sample's image is between two transforms, and what became of each part: the words of lowering.

Invariant: a `Form` says exactly what the next Python transform would have been handed by stock PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from wellfed import transforms as T

from .stamps import Stamp

__all__ = [
    "Chain",
    "ChannelsFirst",
    "Form",
    "Line",
    "Refusal",
    "RefusalError",
    "Steps",
    "is_stock",
    "is_stock_class",
    "name_of",
]


Kind = Literal["pil", "tensor", "image", "array", "chw array", "waveform", "mono", "samples", "spectrum"]


@dataclass(frozen=True)
class Form:
    """Kind, element type and channels of an image on its way.

    Attributes:
        kind: ``"pil"`` a Pillow image, ``"tensor"`` a plain CHW tensor, ``"image"`` a ``tv_tensors.Image``, ``"array"``
            a NumPy array HWC, ``"chw array"`` one with channels first. Of sounds, ``"waveform"`` and ``"spectrum"``
            tensors with channels first, ``"mono"`` a tensor without a side for them, and ``"samples"`` a NumPy array.
        dtype: Name of the element type.
        mode: Pillow's mode: ``"RGB"``, ``"L"``, or ``"any"`` for that of each file.
        sized: Whether all samples have one size by now.
        crops: How many crops of an image lie one behind the other; 0 for the image itself.
        exact: Whether only equal pixels will do, also where torchvision resamples tensors, which the engine does in
            Pillow's way.
        rate: Of sounds, their sample rate, Hz; 0 if that is not known, `sounds.SEVERAL` if they have not all the same.
    """

    kind: Kind = "pil"
    dtype: str = "uint8"
    mode: str = "RGB"
    sized: bool = False
    exact: bool = False
    crops: int = 0
    rate: int = 0

    def turned(self, kind: Kind, dtype: str | None = None) -> Form:
        """The same image as another kind."""
        return replace(self, kind=kind, dtype=self.dtype if dtype is None else dtype)

    def build(self, value: torch.Tensor) -> Any:
        """What Python expects, from a sample of the engine: HWC for Pillow images and arrays, else CHW."""
        if self.kind in ("tensor", "waveform", "mono", "spectrum"):
            return value
        if self.kind == "image":
            from torchvision.tv_tensors import Image

            return Image(value)
        array = value.numpy()
        if self.kind in ("array", "chw array", "samples"):
            return array
        import PIL.Image

        height, width, channels = array.shape
        # Half the time of fromarray(), which asks more questions.
        return PIL.Image.frombytes("L" if channels == 1 else "RGB", (width, height), array)

    @property
    def layout(self) -> Literal["NCHW", "NHWC"]:
        """The layout that `build` wants, as the engine's option names it."""
        return "NHWC" if self.kind in ("pil", "array") else "NCHW"

    def __str__(self) -> str:
        what = {
            "pil": "a Pillow image",
            "tensor": "a tensor",
            "image": "a tv_tensors.Image",
            "array": "an array",
            "chw array": "an array with channels first",
            "waveform": "a waveform",
            "mono": "a waveform of one channel",
            "samples": "an array of samples",
            "spectrum": "a spectrum",
        }
        if self.kind in ("waveform", "mono", "samples", "spectrum"):
            return what[self.kind]
        return what[self.kind] if self.kind == "pil" else f"{what[self.kind]} of {self.dtype}"


@dataclass(frozen=True)
class Line:
    """What became of one part.

    Attributes:
        part: What it is, as its author would write it.
        native: Whether the engine does it.
        why: What there is to know, or why it stays in Python.
        change: The one change that would make it native.
    """

    part: str
    native: bool
    why: str = ""
    change: str = ""


@dataclass(frozen=True)
class Steps:
    """Transforms that a data set calls one after the other."""

    transforms: tuple[Any, ...]


@dataclass(frozen=True)
class ChannelsFirst:
    """What a data set does by ``torch.from_numpy(array).permute(2, 0, 1)``."""

    def __call__(self, array: Any) -> torch.Tensor:
        return torch.from_numpy(array).permute(2, 0, 1)


class Refusal:
    """That a data set was read and not understood, which holds as long as what was looked at is the same.

    Args:
        dataset: The data set.
        seen: What was looked at, with the values that it had.
    """

    def __init__(self, dataset: Any, seen: list[tuple[Callable[[], Any], Any]]) -> None:
        self._dataset = dataset
        self._looks = [look for look, _ in seen]
        self._stamp = Stamp([value for _, value in seen])

    def holds(self, dataset: Any) -> bool:
        """Whether `dataset` is that one, and would not be understood again."""
        try:
            return self._dataset is dataset and self._stamp.holds([look() for look in self._looks])
        except (AttributeError, KeyError, ValueError):
            return False


class RefusalError(Exception):
    """Something stays in Python: `why`, and the `change` that would help."""

    def __init__(self, why: str, change: str = "", refusal: Refusal | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.change = change
        self.refusal = refusal


@dataclass
class Chain:
    """A transform, cut in two: what the engine runs, and what Python runs on what that gives."""

    native: list[T.Transform] = field(default_factory=list)
    suffix: list[Callable[[Any], Any]] = field(default_factory=list)
    form: Form = field(default_factory=Form)
    lines: list[Line] = field(default_factory=list)
    outcome: Any = None
    """What the target is then, where it moves with the image; or what becomes of what stands beside it."""
    grey: bool = False
    """Whether images are decoded in grey, of those that stand beside another one."""

    @property
    def random(self) -> bool:
        """Whether the engine draws random numbers for it."""
        return any(t.random for t in self.native)


_HOUSES = frozenset(
    {"torch", "torchaudio", "torchvision", "albumentations", "datasets", "timm", "transformers", "builtins"}
)


def is_stock(thing: Any, *methods: str) -> bool:
    """True if the methods that decide what `thing` does are those its library wrote.

    Catches attributes of the instance that hide methods, hooks of modules, and methods that were replaced in the
    class: what a function says of its own module gives those away, whenever it was put there.
    """
    own = getattr(thing, "__dict__", {})
    if any(name in own for name in methods):
        return False
    if any(own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")):
        return False
    return is_stock_class(type(thing), *methods)


def is_stock_class(kind: type, *methods: str) -> bool:
    """True if these methods of a class are those its library wrote."""
    for cls in kind.__mro__[:-1]:
        for name in methods:
            method = cls.__dict__.get(name)
            if isinstance(method, staticmethod | classmethod):
                method = method.__func__
            if method is None or isinstance(method, property):
                continue
            house = (getattr(method, "__module__", None) or "").partition(".")[0]
            if house not in _HOUSES:
                return False
    return True


def name_of(thing: Any) -> str:
    """How explain() writes a transform or a data set: short, in one line."""
    kind = type(thing)
    if kind.__name__ in ("function", "method", "builtin_function_or_method"):
        return str(getattr(thing, "__qualname__", kind.__name__))
    text = kind.__qualname__
    if getattr(kind, "__repr__", None) is not object.__repr__:
        shown = " ".join(str(repr(thing)).split())
        if not shown.startswith("<"):
            text = shown if len(shown) <= 100 else f"{shown[:96]}...)"
    return text
