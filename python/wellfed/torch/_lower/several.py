"""Samples of which the engine makes more than one image: a mask, boxes, or another image go with it.

Invariant: a sample is built as its data set builds it, of the parts that the engine gives and of what is looked up; a
batch is what ``default_collate`` makes of such samples.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import default_collate, default_convert

import wellfed as wf
from wellfed import transforms as T

from .._private import tree_leaves
from . import beside, calculating, moved
from .forms import Chain, Form, Line, RefusalError, name_of
from .joint import GEOMETRY, Boxes, Lazy, Masks, Outcome, mask_dtype
from .unknown import UnknownError
from .values import Boxes as BoxesOf
from .values import (
    Group,
    Joint,
    Mask,
    Namespace,
    NotPlainError,
    Picture,
    Row,
    Side,
    Table,
    Value,
)

if TYPE_CHECKING:
    from .datasets import Leaf

__all__ = [
    "Apart",
    "Assembly",
    "Images",
    "OwnBoxes",
    "Sample",
    "Together",
    "are_pillow",
    "are_several",
    "have_parts",
    "lower_apart",
    "lower_images",
    "masked_apart",
    "others_of",
    "paths_beside",
    "read",
    "sized",
]

_SLOWEST = 2e-4
"""Seconds that it may take to evaluate what goes with an image."""


@dataclass(frozen=True)
class Part:
    """One value of a sample.

    Attributes:
        column: Which of the engine's it is; None if it is looked up.
        other: Which of those that are looked up.
    """

    column: int | None
    other: int = 0


Template = Any
"""A `Part`, or a tuple, list or dictionary of templates."""


@dataclass(frozen=True)
class Sample:
    """How a sample is built.

    Attributes:
        template: Its containers, with parts in them.
        others: For each part that is looked up its values for all rows.
    """

    template: Template
    others: tuple[Sequence[Any], ...] = field(compare=False)

    is_pair = False

    @property
    def form(self) -> tuple[Any, ...]:
        """What must be the same of data sets that are laid end to end."""
        return ("several", _written(self.template))


def _written(template: Template) -> Any:
    """A template as a value that can be hashed."""
    if isinstance(template, Part):
        return template
    if isinstance(template, dict):
        return "dict", *((key, _written(part)) for key, part in template.items())
    return type(template).__name__, *map(_written, template)


@dataclass(frozen=True)
class Together(Masks):
    """A mask file of each image, of a data set of the user's.

    Attributes:
        mask: What was read of it.
    """

    mask: Mask

    @property
    def moves(self) -> bool:
        """Whether transforms are called on it with its image, that draw what moves both."""
        return bool(self.mask.joint) and not self.mask.by_hand


@dataclass(frozen=True)
class OwnBoxes(Boxes):
    """Boxes of each image, of a data set of the user's.

    Attributes:
        format: What the four numbers are.
        canvas: What holds the size of an image until a transform changes it.
    """

    format: str = "XYXY"
    canvas: type = tuple


@dataclass(frozen=True)
class Images:
    """Other images of each sample, that are transformed for themselves.

    Attributes:
        paths: Their files.
        pictures: What was read of them.
    """

    paths: list[list[str]]
    pictures: tuple[Picture, ...]

    what = "images"


@dataclass(frozen=True)
class Apart:
    """What the engine does to masks for themselves.

    Attributes:
        maps: What is done to images and to masks.
        sized: Whether all masks have one size then.
    """

    maps: tuple[moved.Map, ...]
    sized: bool


# Reading.


def are_several(made: Value) -> bool:
    """Whether a sample has more than one image of the engine's, or one that others move with."""
    found = [*beside.leaves(made)]
    pictures = [value for value in found if isinstance(value, Picture)]
    joint = any(isinstance(step, Joint) for picture in pictures for step in picture.steps)
    return joint or len(pictures) > 1 or any(isinstance(value, Mask | BoxesOf | Side) for value in found)


@dataclass(frozen=True)
class Read:
    """What was read of samples with several things.

    Attributes:
        picture: The image.
        paths: Its files.
        follows: What is beside it; None if that is only looked up.
        sample: How samples are built.
        same_boxes: Whether boxes are still those that were found; None if there are none.
    """

    picture: Picture
    paths: list[str]
    follows: Masks | Boxes | Images | None
    sample: Sample
    same_boxes: Callable[[], bool] | None = None


Evaluated = Callable[[Row], list[str]]


def read(names: Namespace, made: Value, length: int, evaluated: Evaluated) -> Read:
    """Reads a sample of a data set.

    Args:
        names: Of the texts in it.
        made: The sample.
        length: Of the data set.
        evaluated: From an expression of paths to all of them.

    Raises:
        RefusalError: The engine does not make such samples.
        UnknownError: As well.
    """
    found = [*beside.leaves(made)]
    if any(isinstance(value, Side) for value in found):
        raise UnknownError("size of an image is not known before it is read")
    pictures = [value for value in found if isinstance(value, Picture)]
    if not pictures:
        raise UnknownError("its samples have masks or boxes, but no image beside them")
    first = next((picture for picture in pictures if picture.mode == "RGB"), pictures[0])
    seconds = [picture for picture in pictures if picture is not first]
    others = [_second(picture) for picture in seconds]
    beside_it = [value for value in (*found, *others) if isinstance(value, Mask | BoxesOf)]
    images = [value for value in others if isinstance(value, Picture)]
    for picture in (first, *images):
        _check_picture(picture)
    joint = tuple(step for step in first.steps if isinstance(step, Joint))
    by_hand = any(step.draw is not None for step in joint)
    if not _move_alike(first, joint, beside_it, images):
        raise UnknownError("transforms are called on the image without what belongs to it")
    if len(beside_it) > 1 or (beside_it and images) or (images and joint and not by_hand):
        raise UnknownError("its samples have more than an image with a mask, boxes or other images")
    paths = evaluated(first.path)
    follows: Masks | Boxes | Images | None = None
    same_boxes: Callable[[], bool] | None = None
    if beside_it:
        value = beside_it[0]
        if isinstance(value, Mask):
            follows = _masks(value, evaluated)
        else:
            if value.image != first.path:
                raise UnknownError("its boxes are of another image")
            boxes = value
            follows = own = _boxes(names, boxes, length, joint, made)

            def same_boxes() -> bool:
                return _are_equal(own, _boxes(names, boxes, length, joint, made))

    elif images:
        follows = Images([evaluated(picture.path) for picture in images], tuple(images))
    columns: dict[int, int] = {id(first): 0}
    columns |= {id(old): 1 + place for place, old in enumerate(seconds)}
    columns |= {id(value): 1 for value in found if isinstance(value, Mask | BoxesOf)}
    looked: list[Sequence[Any]] = []
    labels = isinstance(follows, OwnBoxes) and bool(follows.labels)

    def planted(value: Value, key: Any = None, parent: Value | None = None) -> Template:
        if isinstance(value, Group):
            return value.kind(planted(item) for item in value.items)
        if isinstance(value, Table):
            return {key: planted(item, key, value) for key, item in value.items.items()}
        if id(value) in columns:
            return Part(columns[id(value)])
        has_boxes = isinstance(parent, Table) and any(isinstance(v, BoxesOf) for v in parent.items.values())
        if labels and key == "labels" and has_boxes:
            return Part(2)
        text = names.text(value)
        if text is None:
            raise UnknownError("its samples hold something that is not known")
        looked.append(_looked_up(names, text, length, bool(joint) and not by_hand))
        return Part(None, len(looked) - 1)

    template = planted(made)
    return Read(first, paths, follows, Sample(template, tuple(looked)), same_boxes)


def _move_alike(
    first: Picture, joint: tuple[Joint, ...], beside_it: list[Mask | BoxesOf], images: list[Picture]
) -> bool:
    """Whether what moves the image moves all that belongs to it, too."""
    shared = moved.shared_by(first.steps)
    if any(moved.shared_by(picture.steps) != shared for picture in images):
        return False
    if any(step.draw is not None for step in joint):
        others = [value for value in beside_it if isinstance(value, Mask)]
        alike = all(moved.shared_by((*mask.steps, *mask.joint)) == shared for mask in others)
        by_hand = all(step.draw is not None for step in joint)
        return (
            alike and by_hand and len(others) == len(beside_it) and moved.drawn_for(first, [*others, *images])
        )
    for value in beside_it:
        if isinstance(value, Mask) and (value.by_hand or (value.joint and value.steps)):
            return False
        if value.joint != joint and (not isinstance(value, Mask) or value.joint or joint):
            return False
    return True


def _second(picture: Picture) -> Picture | Mask:
    """An image beside another one: a mask, if nothing resamples the numbers of its file."""
    if picture.mode != "any":
        return picture
    found = beside.as_mask(picture)
    if found is None:
        raise UnknownError("its second image has the mode of its file; convert() says which it is to have")
    return found


def _check_picture(picture: Picture) -> None:
    from .vocabulary import is_finished

    if not is_finished(picture):
        raise UnknownError("its images are of a kind that is not known")
    if picture.encoded or picture.array is not None or picture.turned or picture.reader != "pillow":
        raise UnknownError("its images are read in another way than by Pillow from files")


def _masks(value: Mask, evaluated: Evaluated) -> Together:
    paths = evaluated(value.path)
    dtype = "uint8" if value.mode == "L" or not paths else mask_dtype(paths[0])
    if value.early and not value.by_hand and not _is_movable(value, dtype):
        raise UnknownError("calculates with a mask before it is transformed")
    return Together(paths, dtype, value)


def _is_movable(value: Mask, dtype: str) -> bool:
    """Whether transforms move the numbers that were calculated as they move those of the file."""
    if dtype != "uint8":
        return False
    made = calculating.result(value.early).dtype
    return str(made).removeprefix("torch.") in ("uint8", "int32", "int64", "float32", "float64")


def _drops(joint: tuple[Joint, ...]) -> bool:
    """Whether boxes may be dropped, and their labels with them."""
    from .joint import _leaves

    return any(
        type(leaf).__name__ == "SanitizeBoundingBoxes" for step in joint for leaf in _leaves(step.transform)
    )


def _boxes(names: Namespace, value: BoxesOf, length: int, joint: tuple[Joint, ...], made: Value) -> OwnBoxes:
    if not joint:
        raise UnknownError("its boxes are given to no transform with their image")
    labels = _labels_of(names, made) if _drops(joint) else None
    function = names.function(value.data.text)
    begun, rows, tensors, kinds = time.monotonic(), [], [], []
    for index in range(length):
        tensors.append(torch.as_tensor(function(index), dtype=value.dtype).detach())
        if index % 1000 == 999 and (time.monotonic() - begun) / len(tensors) * length > 4.0:
            raise RefusalError(f"Python code: the boxes of {length} images take seconds to find out")
    kinds = [one.dtype for one in tensors if one.ndim == 2 and len(one)]
    dtype = torch.int64 if kinds.count(torch.int64) > len(kinds) / 2 else torch.float32
    left_out, given = set(), []
    for row, one in enumerate(tensors):
        known = one.ndim == 2 and one.shape[1:] == (4,) and len(one) > 0 and one.dtype is dtype
        mine: list[int] = []
        if known and labels is not None:
            known, mine = _whole(labels(row), len(one))
        if not known:
            left_out.add(row)
            one, mine = torch.empty((0, 4), dtype=dtype), []
        rows.append(one.numpy())
        given.append(mine)
    if 2 * len(left_out) > length:
        raise RefusalError(f"the boxes of {len(left_out)} of {length} images are no float32 or int64 [n, 4]")
    name = str(dtype).removeprefix("torch.")
    return OwnBoxes(
        rows,
        given if labels is not None else [],
        [],
        (),
        name,
        frozenset(left_out),
        value.format,
        value.canvas,
    )


def _are_equal(one: OwnBoxes, other: OwnBoxes) -> bool:
    same = (one.dtype, one.labels, one.left_out) == (other.dtype, other.labels, other.left_out)
    return same and all(map(np.array_equal, one.rows, other.rows))


def _whole(labels: Any, count: int) -> tuple[bool, list[int]]:
    """Labels that the engine drops with their boxes: whether it does, and which they are."""
    if not isinstance(labels, torch.Tensor) or labels.dtype != torch.int64 or labels.shape != (count,):
        return False, []
    return True, labels.tolist()


def _labels_of(names: Namespace, made: Value) -> Callable[[int], Any] | None:
    """The labels that stand beside boxes, as torchvision finds them."""
    for table in _tables(made):
        if any(isinstance(value, BoxesOf) for value in table.items.values()):
            found = [key for key in table.items if "label" in key.lower()]
            if found != ["labels"]:
                raise UnknownError('SanitizeBoundingBoxes without "labels" beside the boxes is not known')
            text = names.text(table.items["labels"])
            if text is None:
                break
            return names.function(text)
    raise UnknownError("SanitizeBoundingBoxes without labels beside the boxes is not known")


def _tables(value: Value) -> Iterator[Table]:
    if isinstance(value, Table):
        yield value
    if isinstance(value, Group | Table):
        for item in value.items if isinstance(value, Group) else value.items.values():
            yield from _tables(item)


def _untouched(value: Any) -> Any:
    """A value that transforms of torchvision leave as it is."""
    import PIL.Image
    from torchvision.tv_tensors import TVTensor

    if any(isinstance(leaf, TVTensor | PIL.Image.Image) for leaf in tree_leaves(value)):
        raise NotPlainError("a value beside the image is transformed with it")
    return value


def _looked_up(names: Namespace, text: str, length: int, joint: bool) -> Sequence[Any]:
    function = names.function(text)
    make = (lambda row: _untouched(function(row))) if joint else function
    took = []
    for index in range(min(length, 16)):
        begun = time.perf_counter()
        make(index)
        took.append(time.perf_counter() - begun)
    if took and min(took) > _SLOWEST:
        raise RefusalError(f"Python code: what goes with an image takes {min(took) * 1e6:.0f} us")
    return Lazy(length, make)


# Transforms.


def lower_apart(chain: Chain, follows: Together, picture: Picture, lower: moved.Lower) -> None:
    """Adds what the engine does to masks that are transformed for themselves to a chain of their images.

    Args:
        chain: That of the images.
        follows: The masks.
        picture: The images.
        lower: Lowers their steps.
    """
    from .transforms import lower_one

    form = Form("pil", mode="L", exact=True)
    # What is done before the first transform that moves both, and after each of these.
    native: list[list[T.Transform]] = [[]]
    for step in (*follows.mask.steps, *follows.mask.joint):
        try:
            if isinstance(step, Joint):
                native.append([])
                form = replace(form, sized=form.sized or type(step.transform).__name__ == "RandomCrop")
                continue
            added, form, note = lower_one(step, form)
            if follows.dtype == "uint16" and any(isinstance(one, T.Resize) for one in added):
                raise RefusalError("Pillow resizes images of 16 bits in a way of its own")
            native[-1] += [_of_mask(one) for one in added]
        except RefusalError as refused:
            line = Line(f"{name_of(step)} of masks", False, refused.why, refused.change)
            chain.lines.append(line)
            chain.suffix.append(step)
            return
        chain.lines.append(Line(f"{name_of(step)} of masks", True, note))
    if chain.suffix:
        return
    try:
        chain.outcome = Apart(moved.maps_of(picture, lower, native), form.sized)
    except RefusalError as refused:
        chain.lines.append(Line("masks", False, refused.why, refused.change))
        chain.suffix.append(_in_python)


def _of_mask(transform: T.Transform) -> T.Transform:
    """A transform of a mask that Pillow holds."""
    if isinstance(transform, T.Resize):
        if transform.interpolation != "nearest":
            raise RefusalError(
                f"masks are resampled by {transform.interpolation} here", "InterpolationMode.NEAREST"
            )
        return T.Resize(transform.size, "pillow-nearest", transform.max_size)
    flip = isinstance(transform, T.RandomHorizontalFlip | T.RandomVerticalFlip) and transform.p == 1
    if not flip and not isinstance(transform, T.CenterCrop):
        raise RefusalError("the engine does not do it to masks alone")
    return transform


def _in_python(image: Any) -> Any:
    """Stands for what is called in Python."""
    raise NotImplementedError


def lower_images(
    chain: Chain, follows: Images, first: Picture, lower: Callable[[Picture], moved.Lower]
) -> None:
    """Adds what becomes of the other images of a sample to the chain of the first.

    Args:
        chain: That of the first.
        follows: The others.
        first: The first.
        lower: From an image to what lowers its steps.
    """
    chains = []
    others = [lower(picture)(picture.steps) for picture in follows.pictures]
    if not chain.suffix and not any(other.suffix for other in others):
        pictures = [first, *follows.pictures]
        moved.side_by_side([chain, *others], [picture.steps for picture in pictures], [*map(lower, pictures)])
    for picture, other in zip(follows.pictures, others, strict=True):
        other.grey = picture.mode == "L"
        chain.lines += other.lines
        chain.suffix += other.suffix
        chains.append(other)
    chain.outcome = tuple(chains)


# The engine.


def masked_apart(source: wf.Dataset, chain: Chain) -> wf.Dataset:
    """Images and masks of `source`, of which each is transformed for itself."""
    apart: Apart = chain.outcome
    for one in apart.maps:
        source = source.map(*one.transforms, field=one.field)
    return source


def others_of(leaves: list[Leaf], chain: Chain) -> list[wf.Dataset]:
    """The engine's data sets of the other images of samples, transformed."""
    if not isinstance(chain.outcome, tuple):
        return []
    sets = []
    for place, other in enumerate(chain.outcome):
        paths: list[str] = []
        for leaf in leaves:
            assert isinstance(leaf.follows, Images)
            paths += leaf.follows.paths[place]
        files = wf.image_files(paths).with_options(
            mode="L" if other.grey else "RGB", layout=other.form.layout
        )
        sets.append(files.map(*other.native) if other.native else files)
    return sets


# Samples and batches.

_FLIPS = (T.RandomHorizontalFlip, T.RandomVerticalFlip)


class Assembly:
    """Samples and batches, from the columns of the engine.

    Args:
        leaves: The data sets.
        starts: The first row of each.
        chain: What is done to images.
        batched: Whether samples are collated.
    """

    def __init__(self, leaves: list[Leaf], starts: list[int], chain: Chain, batched: bool) -> None:
        self._leaves, self._starts, self._batched = leaves, starts, batched
        self._form, self._outcome = chain.form, chain.outcome
        self._follows: Any = leaves[0].follows
        resized = any(isinstance(t, GEOMETRY) and not isinstance(t, _FLIPS) for t in chain.native)
        self._canvas: type = tuple if resized else getattr(self._follows, "canvas", tuple)
        readings: list[Any] = [leaf.reading for leaf in leaves]
        self._samples: list[Sample] = [reading.layout for reading in readings]

    def sample(self, columns: list[Any], row: int) -> Any:
        """One sample, from columns of it, and its row among those of all data sets."""
        number = bisect_right(self._starts, row) - 1
        layout, own = self._samples[number], row - self._starts[number]
        size = tuple(columns[0].shape[:2] if self._form.layout == "NHWC" else columns[0].shape[1:])

        def value(part: Part) -> Any:
            if part.column is None:
                return layout.others[part.other][own]
            return self._one(part.column, columns[part.column], size)

        return _built(layout.template, value)

    def _one(self, place: int, column: Any, size: tuple[int, ...]) -> Any:
        """What Python expects of a column."""
        if place == 0:
            return self._form.build(column)
        if isinstance(self._follows, Together):
            return self._mask(column, single=True)
        if isinstance(self._follows, OwnBoxes):
            if place == 2:
                return column
            boxes = column if self._outcome.boxes_dtype is None else column.to(self._outcome.boxes_dtype)
            if self._outcome.pure:
                return boxes
            from torchvision.tv_tensors import BoundingBoxes

            canvas: Any = self._canvas(size)
            return BoundingBoxes(boxes, format=self._outcome.boxes, canvas_size=canvas)
        return self._outcome[place - 1].form.build(column)

    def _mask(self, values: torch.Tensor, single: bool) -> Any:
        """A mask, or a batch of masks, as Python expects it."""
        mask = self._follows.mask
        values = calculating.calculate(values, mask.early)
        pure = mask.kind != "mask"
        if isinstance(self._outcome, Outcome):
            values = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
            values = self._outcome.build_mask(values)
            pure = pure or self._outcome.pure
        made = calculating.calculate(values, mask.after)
        if mask.squeezed and 1 in made.shape[-2:]:
            raise ValueError("a side of one pixel would be squeezed")
        if mask.flat:
            made = made[..., 0, :, :]
        if mask.kind == "array":
            made = made if isinstance(made, np.ndarray) else made.numpy()
            return made if single else torch.from_numpy(made)
        made = torch.from_numpy(made) if isinstance(made, np.ndarray) else made
        if pure or not single:
            return made
        from torchvision.tv_tensors import Mask as TorchMask

        return TorchMask(made)

    def batch(self, columns: list[Any], rows: Any) -> Any:
        """What the stock loader gives for these rows, from columns of a batch."""
        if not self._batched:
            return default_convert(self.sample([column[0] for column in columns], int(rows[0])))
        template = self._samples[0].template

        def value(part: Part, held: type) -> Any:
            if part.column is None:
                return default_collate(held(self._other(part.other, row) for row in rows.tolist()))
            column = columns[part.column]
            if part.column and isinstance(self._follows, Together):
                return self._mask(column, single=False)
            return column

        return _collated(template, value, list)

    def _other(self, other: int, row: int) -> Any:
        number = bisect_right(self._starts, row) - 1
        return self._samples[number].others[other][row - self._starts[number]]


def _built(template: Template, value: Callable[[Part], Any]) -> Any:
    if isinstance(template, Part):
        return value(template)
    if isinstance(template, dict):
        return {key: _built(part, value) for key, part in template.items()}
    return type(template)(_built(part, value) for part in template)


def _collated(template: Template, value: Callable[[Part, type], Any], held: type) -> Any:
    """As ``default_collate`` nests batches; texts stay in what it found them in."""
    if isinstance(template, Part):
        return value(template, held)
    if isinstance(template, dict):
        return {key: _collated(part, value, list) for key, part in template.items()}
    return [_collated(part, value, tuple) for part in template]


def sized(chain: Chain) -> bool:
    """Whether what is made beside images, for itself, has one size."""
    if isinstance(chain.outcome, tuple):
        return all(other.form.sized for other in chain.outcome)
    return not isinstance(chain.outcome, Apart) or chain.outcome.sized


def are_pillow(chain: Chain) -> bool:
    """Whether other images of a sample are Pillow images."""
    return isinstance(chain.outcome, tuple) and any(other.form.kind == "pil" for other in chain.outcome)


def paths_beside(leaf: Leaf) -> list[list[str]]:
    """Files that are read beside those of images."""
    if isinstance(leaf.follows, Images):
        return leaf.follows.paths
    return [leaf.follows.paths] if isinstance(leaf.follows, Together) else []


def have_parts(leaves: list[Leaf]) -> bool:
    """Whether samples are made of several parts."""
    return bool(leaves) and all(
        leaf.reading is not None and isinstance(leaf.reading.layout, Sample) for leaf in leaves
    )
