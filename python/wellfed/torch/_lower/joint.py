"""Data sets whose target moves with its image: masks and boxes, as `wrap_dataset_for_transforms_v2` makes them.

Invariant: as for images, only exactly known data sets and transforms of v2 are lowered, and only where the engine does
to masks and boxes what v2 does to `tv_tensors`. The rest is called in Python, with image and target together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from wellfed import _opencv as O
from wellfed import transforms as T
from wellfed.exceptions import WellfedError

from .._private import wrapper_of_vision_datasets
from . import calculating
from .forms import Chain, Form, Line, RefusalError, Steps, is_stock, name_of
from .values import Calculation, Joint

if TYPE_CHECKING:
    from .datasets import Leaf

__all__ = ["GEOMETRY", "Boxes", "Follower", "Lazy", "Masks", "Outcome", "inner_of", "lower_joint"]

_WRAPPED = ("__getitem__", "__getitems__", "__len__", "__getattr__", "__getattribute__")


class Lazy(Sequence[Any]):
    """Targets that the data set makes when they are asked for.

    Args:
        length: How many.
        make: From a row to its target.
    """

    def __init__(self, length: int, make: Callable[[int], Any]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, row: Any) -> Any:
        return self._make(row)


@dataclass(frozen=True)
class Outcome:
    """What follows the image, after native transforms.

    Attributes:
        pure: Whether `tv_tensors` were turned into plain tensors.
        mask: Type that masks are turned into; None for that of the file.
        boxes: Format of boxes.
        boxes_dtype: Type that boxes are turned into; None for that of the annotations.
    """

    pure: bool = False
    mask: torch.dtype | None = None
    boxes: str = "XYXY"
    boxes_dtype: torch.dtype | None = None

    def build_mask(self, value: torch.Tensor) -> torch.Tensor:
        """A mask as Python expects it, or a batch of them."""
        return value if self.mask is None else value.to(self.mask)

    def wrap_mask(self, value: torch.Tensor) -> torch.Tensor:
        """A mask by itself, of the type that the data set gives."""
        from torchvision.tv_tensors import Mask

        return value if self.pure else Mask(value)


@dataclass(frozen=True)
class Masks:
    """A mask file of each image."""

    paths: list[str]
    dtype: str

    what = "masks"

    def target(self, row: int, columns: list[Any], outcome: Outcome, size: tuple[int, int]) -> Any:
        """The target of `row`, from the engine's columns behind the image."""
        return outcome.wrap_mask(outcome.build_mask(columns[0]))


@dataclass(frozen=True)
class Boxes:
    """Boxes of each image, with what else COCO knows.

    Attributes:
        rows: For each image its boxes, left, top, right, bottom.
        labels: For each image the categories of its boxes.
        ids: Ids of images.
        keys: What a target has, in order.
        dtype: Element type of the boxes.
        left_out: Rows that Python makes: without boxes, or with those of another type.
    """

    rows: list[npt.NDArray[Any]]
    labels: list[list[int]]
    ids: list[int]
    keys: tuple[str, ...]
    dtype: str
    left_out: frozenset[int]

    what = "boxes"

    def target(self, row: int, columns: list[Any], outcome: Outcome, size: tuple[int, int]) -> Any:
        """The target of `row`, from the engine's columns behind the image."""
        from torchvision.tv_tensors import BoundingBoxes

        boxes, labels = columns
        if outcome.boxes_dtype is not None:
            boxes = boxes.to(outcome.boxes_dtype)
        if not outcome.pure:
            boxes = BoundingBoxes(boxes, format=outcome.boxes, canvas_size=size)
        made = {"image_id": self.ids[row], "boxes": boxes, "labels": labels}
        return {key: made[key] for key in self.keys}


Follower = Masks | Boxes


# Data sets.


def inner_of(dataset: Any) -> Any:
    """The data set that `wrap_dataset_for_transforms_v2` was given; None for anything else."""
    Wrapper = wrapper_of_vision_datasets()  # noqa: N806 (a class)
    if Wrapper is None or not isinstance(dataset, Wrapper):
        return None
    inner = vars(dataset).get("_dataset")
    if type(dataset).__mro__[1:3] != (Wrapper, type(inner)) or not is_stock(dataset, *_WRAPPED):
        return None
    made_by = getattr(vars(dataset).get("_wrapper"), "__module__", "")
    return inner if made_by == Wrapper.__module__ else None


def mask_dtype(path: str) -> str:
    """Element type of the mask in a file.

    Raises:
        RefusalError: It is no mask that the engine reads.
    """
    from PIL import Image

    try:
        with Image.open(path) as mask:
            kind, mode = mask.format, mask.mode
    except OSError as e:
        raise RefusalError(f"its first mask cannot be read: {e}") from None
    known = {"P": "uint8", "L": "uint8", "I;16": "uint16", "1": "bool"}
    if kind != "PNG" or mode not in known:
        raise RefusalError(f"its masks are {kind} of mode {mode}", "PNG with a palette or in grey")
    return known[mode]


def coco_boxes(coco: Any, ids: list[int], keys: set[str] | None) -> Boxes:
    """The boxes of a COCO data set, as the wrapper makes them.

    Raises:
        RefusalError: Targets have other keys than the engine knows.
    """
    wanted = {"image_id", "boxes", "labels"} if keys is None else set(keys)
    known = ("image_id", "boxes", "labels")
    if not wanted <= set(known) or "boxes" not in wanted or "labels" not in wanted:
        raise RefusalError(f"target_keys are {sorted(wanted)}", 'target_keys={"image_id", "boxes", "labels"}')
    given = [torch.as_tensor([note["bbox"] for note in coco.imgToAnns.get(i, [])]) for i in ids]
    dtypes = [boxes.dtype for boxes in given if len(boxes)]
    dtype = torch.int64 if dtypes.count(torch.int64) > len(dtypes) / 2 else torch.float32
    rows, left_out = [], set()
    for row, boxes in enumerate(given):
        if not len(boxes) or boxes.dtype is not dtype:
            left_out.add(row)
            rows.append(np.empty((0, 4), str(dtype).removeprefix("torch.")))
            continue
        boxes[..., 2:] += boxes[..., :2]
        rows.append(boxes.numpy())
    labels = [
        [] if row in left_out else [note["category_id"] for note in coco.imgToAnns[i]]
        for row, i in enumerate(ids)
    ]
    order = tuple(key for key in known if key in wanted)
    return Boxes(rows, labels, list(ids), order, str(dtype).removeprefix("torch."), frozenset(left_out))


# Transforms.


def lower_joint(
    transform: Any, form: Form, follows: Follower, accepts: Callable[[list[T.Transform]], None]
) -> Chain:
    """Cuts `transform`, which is called with image and target, in two.

    Args:
        transform: What the data set calls; None for nothing.
        form: What the image is before.
        follows: What its target is.
        accepts: Raises a `WellfedError` where the engine does not take a list of transforms.
    """
    chain = Chain(form=form, outcome=Outcome(boxes=getattr(follows, "format", "XYXY")))
    if transform is None:
        return chain
    leaves = list(_leaves(transform))
    on_images: list[T.Transform] = []
    for place, leaf in enumerate(leaves):
        try:
            added, after, note, outcome = _lower_one(leaf, chain.form, follows, chain.outcome)
            try:
                images = [t for t in added if not isinstance(t, _WITH_BOXES)]
                if images:
                    accepts([*on_images, *images])
            except (WellfedError, TypeError, ValueError) as e:
                raise RefusalError(str(getattr(e, "message", e)).partition("\n")[0]) from None
        except RefusalError as refused:
            chain.lines.append(Line(name_of(leaf), False, refused.why, refused.change))
            chain.suffix = leaves[place:]
            after_name = type(leaf).__name__
            for later in leaves[place + 1 :]:
                chain.lines.append(Line(name_of(later), False, f"comes after {after_name}, which is Python"))
            return chain
        on_images += images
        chain.native += added
        chain.form, chain.outcome = after, outcome
        chain.lines.append(Line(name_of(leaf), True, note))
    return chain


# What an image by itself cannot stand for.
_WITH_BOXES = (
    T.ClampBoundingBoxes,
    T.ConvertBoundingBoxFormat,
    T.RandomIoUCrop,
    T.SanitizeBoundingBoxes,
)


@dataclass(frozen=True, repr=False)
class Alone:
    """A transform that is called on the image alone, of which others take it together with its target."""

    transform: Any

    def __repr__(self) -> str:
        return repr(self.transform)


def _leaves(transform: Any) -> Iterator[Any]:
    from torchvision.transforms import v2

    if type(transform) is Steps:
        from . import albumentations
        from .transforms import leaves_of

        for step in transform.transforms:
            if isinstance(step, Joint):
                pipeline = albumentations.leaves(albumentations.Albumentations(step.transform))
                yield from _leaves(step.transform) if pipeline is None else pipeline
            else:
                yield from map(Alone, leaves_of(step))
    elif type(transform) is v2.Compose and is_stock(transform, "forward", "__call__", "_call_impl"):
        for inner in transform.transforms:
            yield from _leaves(inner)
    else:
        yield transform


def _lower_one(
    leaf: Any, form: Form, follows: Follower, outcome: Outcome
) -> tuple[list[T.Transform], Form, str, Outcome]:
    from torchvision.transforms import v2

    from . import albumentations, transforms

    if isinstance(leaf, albumentations.Leaf):
        if not isinstance(follows, Masks):
            raise RefusalError("the engine knows pipelines on images and masks")
        if leaf.whole is None or getattr(leaf.owner.compose, "additional_targets", None):
            raise RefusalError("it has additional targets")
        added, after, note = albumentations.lower_with_mask(leaf, form)
        if follows.dtype != "uint8" and any(_turns(t) for t in added):
            raise RefusalError(f"masks are {follows.dtype}; the engine turns those of bytes as OpenCV does")
        _check_fills(follows, added)
        compose: Any = leaf.owner.compose
        first = compose.transforms[0] is leaf.transform
        return [*([albumentations.SAME_SIZES] if first else []), *added], after, note, outcome
    if isinstance(leaf, Alone):
        added, after, note = transforms.lower_one(leaf.transform, form)
        if not all(isinstance(t, _OF_VALUES) for t in added):
            raise RefusalError("is called on the image alone, between transforms of image and target")
        return added, after, note, outcome
    kind = type(leaf)
    if form.kind == "array" and kind.__module__.partition(".")[0] != "albumentations":
        raise RefusalError(f"stands on {form}")
    if kind.__module__.partition(".")[0] == "timm":
        raise RefusalError("takes an image alone")
    if kind.__module__.partition(".")[0] == "torchvision" and ".v2." not in f"{kind.__module__}.":
        raise RefusalError("takes an image alone", f"v2.{kind.__name__}")
    if kind in (v2.ClampBoundingBoxes, v2.ConvertBoundingBoxFormat, v2.SanitizeBoundingBoxes):
        if isinstance(follows, Masks) or outcome.pure:
            raise RefusalError("there are no boxes here")
        if not is_stock(leaf, *transforms.METHODS):
            raise RefusalError(
                "its methods were replaced, or it has hooks", "use the class as its library made it"
            )
        if kind is v2.SanitizeBoundingBoxes and leaf.labels_getter and not follows.labels:
            raise RefusalError("there are no labels that the engine knows")
        lowered, outcome = _on_boxes(leaf, outcome)
        return [lowered], form, "", outcome
    if kind in (v2.ConvertImageDtype, v2.ToPILImage):
        raise RefusalError("changes targets too", "v2.ToDtype(dtype, scale=True)")
    added, after, note = transforms.lower_one(leaf, form)
    if any(isinstance(t, _NOT_JOINT) for t in added):
        raise RefusalError(f"torchvision runs it in its own way on {follows.what}")
    moved = any(isinstance(t, GEOMETRY) for t in added)
    if moved and outcome.pure:
        raise RefusalError("stands after ToPureTensor, where targets do not follow")
    if isinstance(follows, Masks):
        _check_fills(follows, added)
        if any(isinstance(t, T.RandomRotation | T.RandomAffine | T.RandomPerspective) for t in added):
            raise RefusalError("torchvision turns masks by another rule than images")
        if any(isinstance(t, T.RandomIoUCrop) for t in added):
            raise RefusalError("there are no boxes here")
        resized = any(isinstance(t, transforms.RESIZES) for t in added) and kind is not v2.RandomResizedCrop
        if resized and getattr(leaf.interpolation, "value", leaf.interpolation) == "nearest-exact":
            raise RefusalError("masks are resized by another rule than images then", "another interpolation")
        if any(
            isinstance(getattr(t, "fill", 0), tuple) and getattr(t, "mask_fill", None) is None for t in added
        ):
            raise RefusalError("masks are filled with one value", "fill=0")
    elif moved and getattr(leaf, "padding_mode", "constant") != "constant":
        raise RefusalError("boxes have no place in repeated pixels", 'padding_mode="constant"')
    if kind is v2.ToPureTensor:
        outcome = replace(outcome, pure=True)
    if kind is v2.ToDtype and isinstance(leaf.dtype, dict) and not outcome.pure:
        outcome = _cast(leaf.dtype, follows, outcome)
    return added, after, note, outcome


_NOT_JOINT = (
    T.AugMix,
    T.AutoAugment,
    T.RandAugment,
    T.RandomApply,
    T.RandomChoice,
    T.RandomOrder,
    T.TrivialAugmentWide,
)
_OF_VALUES = (
    T.ToImage,
    T.ToTensor,
    T.PILToTensor,
    T.ToDtype,
    T.Normalize,
    T.ColorJitter,
    T.GaussianBlur,
    T.Identity,
)
GEOMETRY = (
    T.CenterCrop,
    T.ElasticTransform,
    T.Pad,
    T.RandomAffine,
    T.RandomCrop,
    T.RandomHorizontalFlip,
    T.RandomPerspective,
    T.RandomIoUCrop,
    T.RandomResize,
    T.RandomResizedCrop,
    T.RandomRotation,
    T.RandomShortestSize,
    T.RandomVerticalFlip,
    T.RandomZoomOut,
    T.Resize,
    T.ScaleJitter,
)


_FILLING = (
    T.CenterCrop,
    T.ElasticTransform,
    T.Pad,
    T.RandomAffine,
    T.RandomCrop,
    T.RandomPerspective,
    T.RandomRotation,
    T.RandomZoomOut,
)


def _turns(transform: T.Transform) -> bool:
    inner = transform.transforms if isinstance(transform, T.RandomApply) else (transform,)
    return any(isinstance(one, O.OpenCvAffine) for one in inner)


def _check_fills(follows: Masks, added: list[T.Transform]) -> None:
    """Refuses to fill masks before their data set's calculations with them, where these change what it fills in."""
    early = getattr(getattr(follows, "mask", None), "early", ())
    if early and not all(_fills_alike(transform, early) for transform in added):
        raise RefusalError("masks that were calculated with are filled with other numbers")


def _fills_alike(transform: T.Transform, early: tuple[Calculation, ...]) -> bool:
    """Whether numbers that it fills masks with stay what they are, and it does not calculate with others."""
    if isinstance(transform, T.RandomApply):
        return all(_fills_alike(one, early) for one in transform.transforms)
    if isinstance(transform, O.OpenCvAffine):
        known = str(calculating.result(early).dtype).endswith(("uint8", "float32"))
        fills = transform.fill if isinstance(transform.fill, tuple) else (transform.fill,)
        filled = transform.border != "reflect"
        return known and not (filled and any(not calculating.keeps_number(early, fill) for fill in fills))
    if not isinstance(transform, _FILLING) or getattr(transform, "p", 1) == 0:
        return True
    if isinstance(transform, T.ElasticTransform | T.RandomZoomOut):
        return False
    fill = getattr(transform, "mask_fill", None)
    fill = getattr(transform, "fill", 0) if fill is None else fill
    return isinstance(fill, int | float) and calculating.keeps_number(early, fill)


def _on_boxes(leaf: Any, outcome: Outcome) -> tuple[T.Transform, Outcome]:
    from torchvision.transforms import v2

    if outcome.boxes_dtype is not None:
        raise RefusalError("stands after a change of the boxes' type")
    if type(leaf) is v2.ClampBoundingBoxes:
        if leaf.clamping_mode not in ("auto", "soft", "hard"):
            raise RefusalError(f"clamping_mode is {leaf.clamping_mode!r}")
        return T.ClampBoundingBoxes(), outcome
    if type(leaf) is v2.ConvertBoundingBoxFormat:
        try:
            lowered = T.ConvertBoundingBoxFormat(leaf.format)
        except ValueError as e:
            raise RefusalError(str(e)) from None
        return lowered, replace(outcome, boxes=lowered.format)
    if leaf.labels_getter not in ("default", None):
        raise RefusalError("labels_getter is Python code", 'labels_getter="default"')
    return T.SanitizeBoundingBoxes(leaf.min_size, leaf.min_area, leaf.labels_getter), outcome


def _cast(dtypes: dict[Any, Any], follows: Follower, outcome: Outcome) -> Outcome:
    from torchvision.tv_tensors import BoundingBoxes, Mask

    key = Mask if isinstance(follows, Masks) else BoundingBoxes
    if key not in dtypes and "others" not in dtypes:
        raise RefusalError(f"names no dtype for {follows.what}")
    wanted = dtypes.get(key, dtypes.get("others"))
    if wanted is None:
        return outcome
    if isinstance(follows, Masks):
        return replace(outcome, mask=wanted)
    return replace(outcome, boxes_dtype=wanted)


def engine_rows(leaves: list[Leaf]) -> dict[str, Any]:
    """What `wellfed.annotated_images` is given for the targets of `leaves`.

    Raises:
        RefusalError: They differ in kind.
    """
    followers = [leaf.follows for leaf in leaves]
    masks = [f for f in followers if isinstance(f, Masks)]
    grey = {getattr(getattr(f, "mask", None), "mode", "any") == "L" for f in masks}
    boxes = [f for f in followers if isinstance(f, Boxes)]
    if len(masks) == len(leaves) and len({f.dtype for f in masks}) == 1 and len(grey) == 1:
        mode = {"mask_mode": "L"} if grey.pop() else {}
        return {"masks": [path for f in masks for path in f.paths], "mask_dtype": masks[0].dtype, **mode}
    formats = {getattr(f, "format", "XYXY") for f in boxes}
    if len(boxes) == len(leaves) and len({f.dtype for f in boxes}) == 1 and len(formats) == 1:
        return {
            "box_format": formats.pop(),
            "boxes": [rows for f in boxes for rows in f.rows],
            "box_dtype": boxes[0].dtype,
            "labels": [labels for f in boxes for labels in f.labels] if boxes[0].labels else None,
        }
    raise RefusalError("its parts differ in their targets")
