"""`AugmentationSequential` and `ImageSequential`: augmentations one after the other, run as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ._arguments import refuse
from ._module import _NO_INVERSE, Augmentation, Chain, Step, _no_params

__all__ = ["AugmentationSequential", "ImageSequential"]

_IMAGES, _LABELS = ("input", "image"), ("class", "label")
_OTHERS = ("mask", "bbox", "bbox_xyxy", "bbox_xywh", "keypoints")
_NUMBERS = ("input", "mask", "bbox", "bbox_xyxy", "bbox_xywh", "keypoints", "class")
"""Kornia's keys of data by their numbers."""


def _key(value: Any) -> str:
    """The name of a key: given as text, as a number or as a member of kornia's enum."""
    name = getattr(value, "name", value)
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(_NUMBERS):
        name = _NUMBERS[name]
    known = name.lower() if isinstance(name, str) else ""
    if known in _OTHERS:
        raise refuse(
            f"data_keys has {known!r}",
            "'input' and 'image', and 'class' and 'label', which stay as they are",
            "in a data set of wellfed, map() moves masks, boxes and points with their image",
        )
    if known not in _IMAGES + _LABELS:
        raise ValueError(f"data_keys has {value!r}; must be among 'input', 'image', 'class' and 'label'")
    return "input" if known in _IMAGES else "class"


def _keys(data_keys: Sequence[Any] | None) -> tuple[str, ...] | None:
    if data_keys is None:
        return None
    keys = tuple(_key(one) for one in data_keys)
    if keys.count("input") != 1 or keys[0] != "input":
        raise ValueError(f"data_keys is {list(data_keys)!r}; must begin with 'input', and have it once")
    return keys


class _Sequential(nn.Sequential):
    """A chain whose augmentations are run as one."""

    def __init__(
        self,
        args: tuple[Any, ...],
        same_on_batch: bool | None,
        keepdim: bool | None,
        random_apply: Any,
        random_apply_weights: Any,
    ) -> None:
        where = type(self).__name__
        if random_apply is not False or random_apply_weights is not None:
            name = "random_apply" if random_apply is not False else "random_apply_weights"
            raise refuse(
                f"{where}: {name} is {random_apply if name == 'random_apply' else random_apply_weights!r}",
                "False: all, in order",
                "p= of each augmentation; or wellfed.transforms.RandomChoice in wellfed.torch.Augment",
            )
        super().__init__(*map(_checked, args))
        self.same_on_batch, self.keepdim = same_on_batch, keepdim
        self._chain: Chain | None = None
        self._steps()

    def _steps(self) -> list[Step]:
        """All augmentations in order, those of inner chains too, with what their containers say."""
        steps = []
        for child in self:
            inner = (
                child._steps()
                if isinstance(child, _Sequential)
                else [Step(_checked(child), child.same_on_batch, child.keepdim)]
            )
            for step in inner:
                same = step.same_on_batch if self.same_on_batch is None else bool(self.same_on_batch)
                keep = step.keepdim if self.keepdim is None else bool(self.keepdim)
                steps.append(Step(step.augmentation, same, keep))
        return steps

    def _current(self) -> Chain:
        """What runs the augmentations that there are now."""
        steps = tuple(self._steps())
        if self._chain is None or self._chain.steps != steps:
            self._chain = Chain(steps)
        return self._chain

    def inverse(self, *_args: Any, **_kwargs: Any) -> Any:
        """Refuses: what was drawn is not kept."""
        raise NotImplementedError(_NO_INVERSE)

    def explain(self, shape: Sequence[int]) -> str:
        """What is made of the chain for images of this shape.

        Args:
            shape: (channels, height, width), or that of a batch.

        Returns:
            The transforms that each augmentation becomes, in which way it is unlike kornia's, and the kernels
            of a batch on a CUDA device.

        Example:
            >>> import wellfed.kornia as K
            >>> chain = K.AugmentationSequential(K.RandomHorizontalFlip(), K.CenterCrop(24), K.RandomInvert(p=0.1))
            >>> print(chain.explain((3, 32, 32)))
            (N, 3, 32, 32) uint8 to (N, 3, 24, 24) float32
            1. RandomHorizontalFlip(p=0.5)
                 RandomHorizontalFlip(p=0.5)
            2. CenterCrop(size=(24, 24), p=1.0)
                 FloorCenterCrop(size=(24, 24))
            3. RandomInvert(p=0.1)
                 RandomInvert(p=0.1)
            4. to floating point numbers
            On a CUDA device a batch is made by: augment
        """
        return self._current().explain(shape)

    def _options(self) -> list[str]:
        """Those that are no defaults, as they were given."""
        both = (("same_on_batch", self.same_on_batch), ("keepdim", self.keepdim))
        return [f"{name}={value}" for name, value in both if value is not None]

    def __repr__(self) -> str:
        lines = [line for part in [*map(repr, self), *self._options()] for line in f"{part},".splitlines()]
        return "\n".join([f"{type(self).__name__}(", *(f"    {line}" for line in lines), ")"])


def _checked(child: Any) -> Any:
    """`child`, if it is of this package."""
    if isinstance(child, Augmentation | _Sequential):
        return child
    kind = type(child)
    text = f"{kind.__module__}.{kind.__qualname__} is no augmentation of wellfed.kornia"
    if kind.__module__.partition(".")[0] == "kornia":
        from .. import kornia as own

        if kind.__name__ in own.__all__:
            raise TypeError(f"{text}\nhint: wellfed.kornia.{kind.__name__} takes the same parameters")
        raise TypeError(f"{text}\nhint: call it on what the chain returns, or before the chain")
    raise TypeError(f"{text}\nhint: call it on what the chain returns")


class AugmentationSequential(_Sequential):
    """Runs augmentations one after the other, as one `wellfed.torch.Augment`.

    Images are uint8, or floating point numbers from 0 to 1, which are rounded to 8 bits first. On a CUDA device all is
    a few launches of kernels in the current stream. Draws follow from torch's default generator, so `torch.manual_seed`
    decides them; they have the distribution of kornia's, and are others.

    Args:
        args: Augmentations of this package, or chains of them.
        data_keys: What calls are given: ``"input"`` (or ``"image"``) first; ``"class"`` and ``"label"`` stay as they
            are. None for a dict by such names, whose other items stay as they are.
        same_on_batch: Whether all images of a batch are changed alike. None leaves it to the augmentations, which must
            agree.
        keepdim: Whether an image without a batch is returned without one. None: if all augmentations say so.
        random_apply: False.
        random_apply_weights: None.
        transformation_matrix_mode: ``"silent"``: there is no matrix.
        extra_args: None.

    Example:
        >>> import torch
        >>> import wellfed.kornia as K
        >>> augment = K.AugmentationSequential(
        ...     K.RandomHorizontalFlip(p=0.5),
        ...     K.RandomResizedCrop((24, 24), scale=(0.3, 1.0)),
        ...     K.ColorJiggle(0.4, 0.4, 0.4, 0.1, p=0.8),
        ...     K.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ...     data_keys=["input"],
        ... )
        >>> images = torch.randint(0, 256, (8, 3, 32, 40), dtype=torch.uint8)
        >>> augment(images).shape
        torch.Size([8, 3, 24, 24])
    """

    def __init__(
        self,
        *args: Any,
        data_keys: Sequence[Any] | None = ("input",),
        same_on_batch: bool | None = None,
        keepdim: bool | None = None,
        random_apply: int | bool | tuple[int, int] = False,
        random_apply_weights: Any = None,
        transformation_matrix_mode: str = "silent",
        extra_args: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(args, same_on_batch, keepdim, random_apply, random_apply_weights)
        if transformation_matrix_mode != "silent":
            raise refuse(
                f"{type(self).__name__}: transformation_matrix_mode is {transformation_matrix_mode!r}",
                "'silent'",
                "there is no transform_matrix, whatever it says",
            )
        if extra_args is not None:
            raise refuse(
                f"{type(self).__name__}: extra_args are given",
                "None",
                "they are about masks, boxes and points, which there are none of",
            )
        self.data_keys = _keys(data_keys)

    def forward(self, *args: Any, params: Any = None, data_keys: Sequence[Any] | None = None) -> Any:
        """Transforms images; labels stay as they are.

        Args:
            args: What `data_keys` names, in this order; or a dict.
            params: Drawn parameters are not kept, so there are none to be given.
            data_keys: What is given, if not what the chain was made for.

        Returns:
            The images; several values as a list; a dict of a dict. Images are float32 from 0 to 1 unless `Normalize` is
            in the chain, or of the floating point dtype that they were.
        """
        _no_params(params)
        if len(args) == 1 and isinstance(args[0], dict):
            return self._dict(args[0])
        keys = _keys(data_keys) or self.data_keys
        if keys is None:
            raise ValueError("data_keys is None, and no dict is given\nhint: data_keys=['input']")
        if len(args) != len(keys):
            raise ValueError(f"{len(args)} values are given for data_keys {list(keys)}")
        images = self._current().run(args[0])
        return images if len(keys) == 1 else [images, *args[1:]]

    def _dict(self, given: dict[str, Any]) -> dict[str, Any]:
        """Its image by the name of a key, perhaps with a suffix such as ``_left``, transformed."""
        images = []
        for name in given:
            stems = [one for one in _IMAGES + _OTHERS if _is_key(name, one)]
            if stems and stems[0] in _OTHERS:
                _key(stems[0])
            images += [name] if stems else []
        if len(images) != 1:
            raise ValueError(f"the dict has the images {images}; must have one, as 'image' or 'input'")
        return {**given, images[0]: self._current().run(given[images[0]])}

    def _options(self) -> list[str]:
        keys = (
            () if self.data_keys == ("input",) else (f"data_keys={self.data_keys and list(self.data_keys)}",)
        )
        return [*keys, *super()._options()]


def _is_key(name: Any, key: str) -> bool:
    text = str(name).lower()
    return text == key or text.startswith((f"{key}_", f"{key}-"))


class ImageSequential(_Sequential):
    """`AugmentationSequential` of images alone.

    Args:
        args: Augmentations of this package, or chains of them.
        same_on_batch: Whether all images of a batch are changed alike. None leaves it to the augmentations.
        keepdim: Whether an image without a batch is returned without one. None: if all augmentations say so.
        random_apply: False.
        random_apply_weights: None.
        if_unsupported_ops: Accepted for kornia's sake: there is no inverse.
        disable_item_features: Accepted for kornia's sake.
        disable_sequential_features: Accepted for kornia's sake.

    Example:
        >>> import torch
        >>> import wellfed.kornia as K
        >>> chain = K.ImageSequential(K.RandomInvert(p=1.0), K.RandomVerticalFlip(p=1.0))
        >>> chain(torch.tensor([[[[0.0], [0.2]]]])).flatten()
        tensor([0.8000, 1.0000])
    """

    def __init__(
        self,
        *args: Any,
        same_on_batch: bool | None = None,
        keepdim: bool | None = None,
        random_apply: int | bool | tuple[int, int] = False,
        random_apply_weights: Any = None,
        if_unsupported_ops: str = "raise",
        disable_item_features: bool = True,
        disable_sequential_features: bool = False,
    ) -> None:
        if if_unsupported_ops not in ("raise", "skip"):
            raise ValueError(f"if_unsupported_ops is {if_unsupported_ops!r}; must be 'raise' or 'skip'")
        super().__init__(args, same_on_batch, keepdim, random_apply, random_apply_weights)

    def forward(self, input: torch.Tensor, params: Any = None) -> torch.Tensor:  # noqa: A002 (kornia's name)
        """The images, transformed. See `AugmentationSequential.forward`."""
        _no_params(params)
        return self._current().run(input)
