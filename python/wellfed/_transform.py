"""`Transform`, what all transforms are, and `Compose`, several of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NoReturn

from . import _arguments as check
from ._arguments import OPENCV_INTERPOLATIONS
from ._called import call

__all__ = ["Compose", "Transform", "inner_transforms"]


class Transform:
    """Base of all transforms: an immutable, comparable description.

    Its parameters are attributes. ``repr()`` is valid Python, `to_plan` is the form the engine reads.
    """

    # Parameters that torchvision has and that change nothing here.
    _not_in_plan: frozenset[str] = frozenset()
    _random: bool = False
    _several: bool = False

    @property
    def random(self) -> bool:
        """Whether it draws random parameters."""
        return self._random

    @property
    def on_batches(self) -> bool:
        """Whether it works on finished batches, after `Dataset.batch`, and not on samples."""
        return False

    @property
    def several(self) -> bool:
        """Whether it makes several images of one: a tuple of them, where it is called on an image."""
        return any(step._several for step in self.steps())

    @property
    def makes(self) -> Literal["tensor", "image"] | None:
        """What a Pillow image becomes: a tensor, a ``tv_tensors.Image``, or None: it stays one."""
        return None

    def steps(self) -> Iterator[Transform]:
        """Its transforms one by one, if it is a chain; else itself."""
        yield self

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's transform with these parameters; ``v2`` is its module."""
        parameters = dict(vars(self))
        if parameters.get("interpolation") in OPENCV_INTERPOLATIONS:
            raise TypeError(
                f"interpolation is {parameters['interpolation']!r}, which is there for images of 8 bits: "
                "torchvision has none like it"
            )
        if "interpolation" in parameters:
            # Those of tensors are torchvision's own.
            name = parameters["interpolation"].removeprefix("torch-")
            parameters["interpolation"] = v2.InterpolationMode(name)
        if (mask_fill := parameters.pop("mask_fill", None)) is not None:
            from torchvision.tv_tensors import Mask

            parameters["fill"] = {Mask: mask_fill, "others": parameters["fill"]}
        return getattr(v2, type(self).__name__)(**parameters)

    def _set(self, **parameters: Any) -> None:
        self.__dict__.update(parameters)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed; make a new one")

    def to_plan(self) -> dict[str, Any]:
        """This transform as data that JSON can express.

        Example:
            >>> from wellfed import transforms as T
            >>> T.RandomHorizontalFlip(p=0.25).to_plan()
            {'type': 'RandomHorizontalFlip', 'p': 0.25}
        """
        parameters = {k: v for k, v in vars(self).items() if k not in self._not_in_plan}
        return {"type": type(self).__name__, **parameters}

    @staticmethod
    def from_plan(plan: dict[str, Any]) -> Transform:
        """The transform that `to_plan` described.

        Example:
            >>> Transform.from_plan({"type": "CenterCrop", "size": [224, 224]})
            CenterCrop(size=(224, 224))
        """
        kinds = _kinds()
        parameters = dict(plan)
        name = parameters.pop("type", None)
        if name not in kinds:
            raise ValueError(f"there is no transform called {name!r}")
        return kinds[name](**parameters)

    def __call__(self, image: Any, seed: int | None = None) -> Any:
        """Runs this transform on one image.

        Random parameters are drawn anew at each call: from torch's default generator if torch is imported, so that
        `torch.manual_seed` and the seeds of workers count, else from Python's `random`.

        Args:
            image: A Pillow image (RGB, L or RGBA); a tensor ``[..., channels, height, width]``; or an array
                ``[height, width, channels]`` or ``[height, width]`` of uint8 with 1, 3 or 4 channels, or what NumPy
                reads as one.
            seed: What random parameters depend on instead, 0 to 2**64 - 1.

        Returns:
            Of a Pillow image: a Pillow image; or a tensor ``[channels, height, width]``, if the transform makes one
            (`ToTensor`, `PILToTensor`, `ToImage`, or `ToDtype` to floating point). Of a tensor: a tensor. Of an array:
            a new array ``[height, width, channels]``. `FiveCrop` and `TenCrop` give a tuple of such. Tensors of 8 bits
            on the CPU get the pixels that Pillow images get, and so does a batch of 8 bits ``[images, channels, height,
            width]`` on a CUDA device, by the kernels of `wellfed.torch.Augment` and with draws of its own for each
            image; others, and transforms that have no kernel there, are left to torchvision's transform of this name.

        Example:
            >>> from PIL import Image
            >>> from wellfed import transforms as T
            >>> crop = T.RandomCrop(8)
            >>> crop(Image.new("RGB", (32, 24))).size
            (8, 8)
            >>> T.ToTensor()(Image.new("RGB", (32, 24))).shape
            torch.Size([3, 24, 32])
        """
        if self.on_batches:
            raise TypeError(
                f"{type(self).__name__} works on batches, not on one image\n"
                "hint: ds.batch(n).map(...), or call MixUp or CutMix on images and labels"
            )
        return call(self, image, seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self).__name__, json.dumps(self.to_plan())))


def _kinds() -> dict[str, type[Transform]]:
    """All transforms by name."""
    from ._tfdata import _operations  # noqa: F401 (one that no module of ours imports by itself)

    found, left = {}, Transform.__subclasses__()
    while left:
        kind = left.pop()
        found[kind.__name__] = kind
        left += kind.__subclasses__()
    return {name: kind for name, kind in found.items() if not name.startswith("_")}


class Compose(Transform):
    """Runs transforms one after the other.

    ``Dataset.map`` takes several transforms at once, so this is needed only to name a chain.

    Args:
        transforms: At least one `Transform`.

    Example:
        >>> from wellfed import transforms as T
        >>> T.Compose([T.Resize(256), T.CenterCrop(224)])
        Compose([
            Resize(size=256, interpolation='bilinear', max_size=None, antialias=True),
            CenterCrop(size=(224, 224)),
        ])
    """

    transforms: tuple[Transform, ...]

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._set(transforms=inner_transforms(transforms))

    def to_plan(self) -> dict[str, Any]:
        """This chain as data that JSON can express."""
        return {"type": "Compose", "transforms": [t.to_plan() for t in self.transforms]}

    @property
    def random(self) -> bool:
        """Whether one of them draws random parameters."""
        return any(t.random for t in self.transforms)

    @property
    def on_batches(self) -> bool:
        """Whether it works on finished batches."""
        return mixing(self, self.transforms)

    def steps(self) -> Iterator[Transform]:
        """Its transforms one by one, those of inner chains too."""
        for inner in self.transforms:
            yield from inner.steps()

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's chain of these transforms."""
        return v2.Compose([t.as_torchvision(v2) for t in self.transforms])

    def __repr__(self) -> str:
        lines = "".join(f"{t!r},\n" for t in self.transforms)
        indented = "".join(f"    {line}\n" for line in lines.splitlines())
        return f"Compose([\n{indented}])"


def inner_transforms(transforms: Any) -> tuple[Transform, ...]:
    """The transforms inside of another one; there must be some."""
    if not check.is_sequence(transforms):
        raise TypeError("transforms must be a sequence of transforms")
    if not transforms:
        raise ValueError("transforms is empty; there must be at least one")
    return tuple(_known(t) for t in transforms)


def mixing(outer: Transform, transforms: Sequence[Transform]) -> bool:
    """Whether transforms inside of another one work on batches: all of them or none."""
    found = {inner.on_batches for inner in transforms}
    if len(found) > 1:
        raise ValueError(
            f"{type(outer).__name__} has transforms of batches, MixUp or CutMix, beside transforms of images"
        )
    return found == {True}


def _known(transform: Any) -> Transform:
    """`transform`, or the one a plan describes; refuses anything else with advice."""
    if isinstance(transform, dict):
        return Transform.from_plan(transform)
    if isinstance(transform, Transform):
        return transform
    kind = type(transform)
    text = f"{kind.__module__}.{kind.__qualname__} is not a transform of wellfed"
    kinds = _kinds()
    if kind.__module__.startswith("torchvision.") and kind.__name__ in kinds:
        text += f"\nhint: use wellfed.transforms.{kind.__name__}, which takes the same parameters"
    raise TypeError(text)
