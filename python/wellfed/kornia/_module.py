"""`Augmentation`, what all augmentations of this package are, and `Chain`, which runs some of them as one.

Invariant: an augmentation is a description that does not change. `Augmentation.lower` says what it becomes among
`wellfed.transforms`; images are bytes until the first one that makes floating point numbers of them.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import _arguments as check
from .. import _native
from .. import transforms as T
from .._called import new_seed
from .._transform import Compose, Transform
from ..torch import Augment
from ._bytes import ToBytes

__all__ = ["Augmentation", "Chain", "Place", "Step"]

_DTYPES = {
    torch.float32: "float32",
    torch.float64: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
"""Of images that are given, and of what kernels make of them."""

_MOST_SIZES = 64
"""Sizes of images that plans are kept for."""


class Place:
    """Where in a chain an augmentation stands."""

    def __init__(self, given: tuple[int, int, int], before: list[Transform], floats: bool) -> None:
        """`given` is channels, height and width of the images that come; `before` what is done to them first."""
        self._given, self._before, self.floats = given, before, floats

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images here."""
        if not self._before:
            return self._given[1:]
        plan = json.dumps(Compose(self._before).to_plan())
        _, height, width, _ = _native.Augmentation(plan, self._given, False, 0).output
        return height, width


class Augmentation(nn.Module):
    """Base of all: a module that transforms a batch of images, each image with draws of its own.

    Parameters are attributes that cannot be changed, ``repr()`` is valid Python.
    """

    _makes_floats = False
    """Whether it works on floating point numbers."""
    _on_floats = False
    """Whether it may come after one that does."""
    _draws = True
    """Whether it draws something, where its `p` is neither 0 nor 1."""
    _colours = False
    """Whether images must have three channels, as kornia asks for."""
    _differs = ""
    """In which way pixels or draws are not those of kornia, beyond their 8 bits."""

    p: float
    same_on_batch: bool
    keepdim: bool

    def __init__(
        self, p: float, same_on_batch: bool = False, keepdim: bool = False, **parameters: Any
    ) -> None:
        super().__init__()
        if not isinstance(same_on_batch, bool):
            raise TypeError(f"same_on_batch is {same_on_batch!r}; it must be True or False")
        self._own: Chain | None = None
        parameters.update(p=check.probability(p), same_on_batch=same_on_batch, keepdim=bool(keepdim))
        for name, value in parameters.items():
            setattr(self, name, value)
        self._fixed = frozenset(parameters)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_fixed", ()):
            raise AttributeError(f"{name} of {type(self).__name__} cannot be changed; make a new one")
        super().__setattr__(name, value)

    def lower(self, place: Place) -> list[Transform]:
        """The transforms it becomes."""
        raise NotImplementedError

    def forward(self, input: torch.Tensor, params: Any = None) -> torch.Tensor:  # noqa: A002 (kornia's name)
        """The images, transformed: `AugmentationSequential` of this one alone.

        Args:
            input: ``[images, channels, height, width]``, ``[channels, height, width]`` or ``[height, width]``; uint8,
                or floating point numbers from 0 to 1.
            params: Drawn parameters are not kept, so there are none to be given.

        Returns:
            float32 from 0 to 1, or the dtype of floating point `input`.
        """
        _no_params(params)
        if self._own is None:
            self._own = Chain([Step(self, self.same_on_batch, self.keepdim)])
        return self._own.run(input)

    def inverse(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuses: what was drawn is not kept."""
        raise NotImplementedError(_NO_INVERSE)

    def explain(self, shape: Sequence[int]) -> str:
        """See `AugmentationSequential.explain`."""
        return Chain([Step(self, self.same_on_batch, self.keepdim)]).explain(shape)

    def __repr__(self) -> str:
        parts = []
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = getattr(self, name)
            if name == "p" or parameter.default is inspect.Parameter.empty or value != parameter.default:
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


_NO_INVERSE = "there is no inverse: what was drawn is not kept\nhint: keep the images that were given"


def _no_params(params: Any) -> None:
    if params is not None:
        raise ValueError(
            "params are given; drawn parameters cannot be given again\n"
            "hint: torch.manual_seed before each of two calls gives both the same draws"
        )


class Step(NamedTuple):
    """An augmentation in a chain, with what the containers around it say."""

    augmentation: Augmentation
    same_on_batch: bool
    keepdim: bool


class Chain:
    """Augmentations one after the other, run as one `wellfed.torch.Augment` for each size of images."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Raises ValueError for what cannot be done together."""
        self.steps = tuple(steps)
        self._keepdim = all(step.keepdim for step in self.steps)
        drawing = [step for step in self.steps if step.augmentation._draws]
        self._same = bool(drawing) and drawing[0].same_on_batch
        for step in drawing:
            if step.same_on_batch != self._same:
                raise ValueError(
                    f"same_on_batch is {self._same} for {drawing[0].augmentation!r} and {step.same_on_batch} for "
                    f"{step.augmentation!r}; supported: the same for all of a chain\n"
                    "hint: AugmentationSequential(..., same_on_batch=True), or two chains"
                )
        self._bytes = ToBytes()
        self._made: dict[tuple[int, int, int, torch.dtype], Augment] = {}

    def run(self, images: torch.Tensor) -> torch.Tensor:
        """See `Augmentation.forward`."""
        if not isinstance(images, torch.Tensor):
            raise TypeError(f"images are {type(images).__name__}; they must be a tensor")
        missing = 4 - images.ndim
        if missing not in (0, 1, 2):
            raise ValueError(
                f"images are of shape {list(images.shape)}; must be [images, channels, height, width], "
                "[channels, height, width] or [height, width]"
            )
        batch = images.reshape((1,) * missing + tuple(images.shape)) if missing else images
        dtype = torch.float32
        if images.is_floating_point():
            dtype = images.dtype
            batch = self._bytes(batch)
        elif images.dtype != torch.uint8:
            raise TypeError(
                f"images are {images.dtype}; must be uint8, or floating point numbers from 0 to 1"
            )
        augment = self._augment((batch.shape[1], batch.shape[2], batch.shape[3]), dtype)
        if augment.transform.random:
            # An epoch of its own for each call: draws are new, and torch.manual_seed decides them.
            augment.epoch = new_seed()
        count = len(batch)
        made = augment(batch, [0] * count if self._same else range(count))
        if made.dtype != dtype:
            made = made.to(dtype)
        return made.reshape(made.shape[missing:]) if missing and self._keepdim else made

    def _augment(self, given: tuple[int, int, int], dtype: torch.dtype) -> Augment:
        """What runs images of these channels, height and width."""
        key = (*given, dtype)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_SIZES:
                self._made.clear()
            found = self._made[key] = Augment(
                [one for _, some in self.lower(given, dtype) for one in some], seed=0
            )
        return found

    def lower(
        self, given: tuple[int, int, int], dtype: torch.dtype = torch.float32
    ) -> list[tuple[Augmentation | None, list[Transform]]]:
        """What each augmentation becomes for images of these channels, height and width; the cast belongs to none."""
        if dtype not in _DTYPES:
            raise TypeError(f"images are {dtype}; must be uint8, float16, bfloat16, float32 or float64")
        # Quotients, as of images / 255; the reciprocal is off by a last bit.
        cast: Transform = (
            T.ToTensor() if _DTYPES[dtype] == "float32" else T.ToDtype(_DTYPES[dtype], scale=True)
        )
        made: list[tuple[Augmentation | None, list[Transform]]] = []
        before: list[Transform] = []
        floats: Augmentation | None = None
        for one, _, _ in self.steps:
            if one._colours and given[0] != 3:
                raise ValueError(f"images have {given[0]} channels; {one!r} is for 3, red, green and blue")
            if one._makes_floats and floats is None:
                floats = one
                made.append((None, [cast]))
                before.append(cast)
            elif floats is not None and not (one._makes_floats or one._on_floats):
                raise ValueError(
                    f"{one!r} comes after {floats!r}, and works on 8 bits; supported there: flips, RandomErasing, "
                    f"Normalize and Denormalize\nhint: put it before {type(floats).__name__}"
                )
            some = one.lower(Place(given, list(before), floats is not None))
            made.append((one, some))
            before += some
        if floats is None:
            made.append((None, [cast]))
        return made

    def explain(self, shape: Sequence[int]) -> str:
        """See `AugmentationSequential.explain`."""
        given = tuple(int(side) for side in shape)[-3:]
        if len(given) != 3:
            raise ValueError(f"shape is {tuple(shape)}; it must be (channels, height, width)")
        lines = []
        for number, (one, some) in enumerate(self.lower(given), 1):
            lines.append(f"{number}. {one!r}" if one is not None else f"{number}. to floating point numbers")
            lines += [f"     {_short(transform)}" for transform in some if one is not None]
            if one is not None and one._differs:
                lines.append(f"     unlike kornia: {one._differs}")
        augment = self._augment(given, torch.float32)
        channels, height, width = given
        made = _native.Augmentation(augment._plan, given, False, 0)
        *sides, dtype = made.output
        # A batch that is large enough to draw all that may be drawn; no address is looked at.
        strides = [channels * height * width, height * width, width, 1]
        kernels = made.plan(list(range(64)), 0, 4096, strides, 4096).kernels
        head = f"(N, {', '.join(map(str, given))}) uint8 to (N, {', '.join(map(str, sides))}) {dtype}"
        tail = f"On a CUDA device a batch is made by: {', '.join(kernels)}"
        return "\n".join([head, *lines, tail])

    def __getstate__(self) -> dict[str, Any]:
        """Its augmentations; what was made of them is made anew."""
        return {**self.__dict__, "_made": {}, "_bytes": ToBytes()}


def _short(transform: Transform) -> str:
    """In a line; choices among many by how many there are."""
    inner = getattr(transform, "transforms", None)
    name = type(transform).__name__
    if inner is None:
        given = (f"{key}={value!r}" for key, value in vars(transform).items() if value is not None)
        return f"{name}({', '.join(given)})"
    if len(inner) > 8:
        return f"{name}([{len(inner)} transforms])"
    p = getattr(transform, "p", None)
    tail = f", p={p:g}" if isinstance(p, float) and math.isfinite(p) else ""
    return f"{name}([{', '.join(map(_short, inner))}]{tail})"
