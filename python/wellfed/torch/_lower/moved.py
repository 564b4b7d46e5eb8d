"""What becomes of images and masks that a data set moves together by numbers that it draws itself.

Invariant: all that is moved by one number is moved by equal draws of the engine: by one transform of an image with its
mask, or by transforms that stand at the same place in the loaders of several images, and are given images of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from wellfed import transforms as T

from .forms import Chain, Form, Line, RefusalError
from .values import Joint, Mask, Picture, Region

__all__ = ["Lower", "Map", "drawn_for", "form_of", "maps_of", "shared_by", "side_by_side"]

Lower = Callable[[tuple[Any, ...]], Chain]
"""From the steps of an image to their chain."""

_FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)
_CROPS = (T.RandomCrop, T.RandomResizedCrop)


@dataclass(frozen=True)
class Map:
    """Transforms of the engine.

    Attributes:
        field: What they are done to; None for an image with its mask.
        transforms: Them, in order.
    """

    field: str | None
    transforms: tuple[T.Transform, ...]


def shared_by(steps: tuple[Any, ...]) -> tuple[Any, ...]:
    """What moves an image together with others, in order."""
    return tuple(step.shared for step in steps if isinstance(step, Joint))


def drawn_for(picture: Picture, others: list[Picture | Mask]) -> bool:
    """Whether the regions that `picture` is cut to were drawn for images of the sample."""
    paths = [picture.path, *(other.path for other in others)]
    regions = [step.draw for step in picture.steps if isinstance(step, Joint)]
    return all(region.image.path in paths for region in regions if isinstance(region, Region))


@dataclass(frozen=True)
class _Moved:
    """A transform that moves an image with others.

    Attributes:
        place: Where it stands among the engine's transforms of the image.
        transform: What the engine does.
    """

    place: int
    transform: T.Transform


def _moves(steps: tuple[Any, ...], lower: Lower) -> Iterator[_Moved]:
    """What moves an image with others.

    Raises:
        RefusalError: The engine does not do it to several things alike.
    """
    for place, step in enumerate(steps):
        if not isinstance(step, Joint):
            continue
        before, then = lower(steps[:place]), lower(steps[: place + 1])
        added = then.native[len(before.native) :]
        if then.suffix or len(added) != 1 or not isinstance(added[0], (*_FLIPS, *_CROPS)):
            raise RefusalError("the engine does not do it to several images alike")
        yield _Moved(len(before.native), added[0])


def maps_of(picture: Picture, lower: Lower, mask: list[list[T.Transform]]) -> tuple[Map, ...]:
    """What the engine does to images and their masks, in order.

    Args:
        picture: The image.
        lower: Lowers its steps.
        mask: What is done to masks before the first transform that moves both, and after each of these.

    Raises:
        RefusalError: It does not do it.
    """
    native = lower(picture.steps).native
    moves = list(_moves(picture.steps, lower))
    maps, begun = [], 0
    for move, own in zip(moves, mask, strict=False):
        if isinstance(move.transform, T.RandomResizedCrop):
            raise RefusalError(
                "Pillow resizes masks by another rule than the engine resizes them with images"
            )
        maps += [Map("image", tuple(native[begun : move.place])), Map("mask", tuple(own))]
        maps.append(Map(None, (move.transform,)))
        begun = move.place + 1
    maps += [Map("image", tuple(native[begun:])), Map("mask", tuple(mask[-1]))]
    return tuple(one for one in maps if one.transforms)


def side_by_side(chains: list[Chain], steps: list[tuple[Any, ...]], lower: list[Lower]) -> None:
    """Has several images moved alike, each by a loader of its own; tells the chains why not, where that cannot be.

    Args:
        chains: What is done to each.
        steps: What was called on each.
        lower: Lowers the steps of each.
    """
    try:
        _set_places(chains, steps, lower)
    except RefusalError as refused:
        for chain in chains[1:]:
            chain.lines.append(Line("another image", False, refused.why, refused.change))
            chain.suffix.append(_in_python)


def _in_python(image: Any) -> Any:
    """Stands for what is called in Python."""
    raise NotImplementedError


def _set_places(chains: list[Chain], steps: list[tuple[Any, ...]], lower: list[Lower]) -> None:
    moves = [list(_moves(of, by)) for of, by in zip(steps, lower, strict=True)]
    for chain, own in zip(chains[1:], moves[1:], strict=True):
        if sum(t.random for t in chain.native) > len(own):
            raise RefusalError(
                "what is drawn for one image of a sample is not drawn for the other",
                "v2 transforms called on both",
            )
    # Draws are keyed by a transform's place: what does nothing moves it to that of its fellows.
    native: list[list[T.Transform]] = [[] for _ in chains]
    begun = [0] * len(chains)
    for alike in zip(*moves, strict=True):
        first = alike[0].transform
        if isinstance(first, _CROPS):
            sizes = {_size(chain.native[: move.place]) for chain, move in zip(chains, alike, strict=True)}
            if len(sizes) > 1 or None in sizes:
                raise RefusalError(
                    "images that are cut alike may differ in size", "Resize((h, w)) on both before"
                )
        if len({_drawn(move.transform) for move in alike}) > 1:
            raise RefusalError("images are moved by different numbers")
        for place, move in enumerate(alike):
            native[place] += chains[place].native[begun[place] : move.place]
            begun[place] = move.place + 1
        longest = max(map(len, native))
        for line, move in zip(native, alike, strict=True):
            line += [*[T.Identity()] * (longest - len(line)), move.transform]
    for chain, line, place in zip(chains, native, begun, strict=True):
        chain.native = [*line, *chain.native[place:]]


def _drawn(transform: T.Transform) -> tuple[Any, ...]:
    """What its draws depend on."""
    names = ("p", "size", "scale", "ratio", "padding", "pad_if_needed")
    return type(transform), *(repr(getattr(transform, name, None)) for name in names)


def _size(native: list[T.Transform]) -> tuple[int, int] | None:
    """The size that images have after transforms; None if that is not known."""
    size: tuple[int, int] | None = None
    for transform in native:
        if isinstance(transform, (T.CenterCrop, *_CROPS)) or (
            isinstance(transform, T.Resize) and isinstance(transform.size, tuple)
        ):
            given: Any = transform.size
            size = (given, given) if isinstance(given, int) else (given[0], given[1])
        elif not isinstance(transform, (*_FLIPS, *_KEEPING)):
            size = None
    return size


_KEEPING = (
    T.ToImage,
    T.ToTensor,
    T.PILToTensor,
    T.ToDtype,
    T.Normalize,
    T.Identity,
    T.ColorJitter,
    T.Grayscale,
)


def form_of(picture: Picture) -> Form:
    """What an image beside another one is before its transforms."""
    kinds: dict[str, Any] = {"pil": "pil", "array": "array", "chw": "tensor"}
    mode = "L" if picture.mode == "L" else "RGB"
    return Form(kinds[picture.before or picture.kind], mode=mode, exact=True)
