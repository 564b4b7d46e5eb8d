"""What a data set draws by itself for an image and what belongs to it: flips by chance, crops of ``get_params()``.

``if random.random() > 0.5:`` is read as a transform that draws with this chance, and is called on all that the branch
changes. Invariant: a number that is drawn decides one thing, so that a transform which draws it anew has the same
distribution; all that is moved by it is moved alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import beside
from .unknown import UnknownError
from .values import Chance, Edge, Group, Joint, Known, Mask, Picture, Region, Table, Uniform, Value

__all__ = ["KNOWN", "alone", "by_chance", "compared", "is_flip", "mirrored"]

_FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")


# Numbers.


def uniform(arguments: list[Value], named: dict[str, Value]) -> Value:
    """``random.random()``, ``np.random.rand()``, ``np.random.uniform()``."""
    if arguments or named:
        raise UnknownError("draws numbers in a way that is not known")
    return Uniform()


def uniform_tensor(arguments: list[Value], named: dict[str, Value]) -> Value:
    """``torch.rand(1)``."""
    one = (Known(1), Known(()), Group(tuple, ()), Group(tuple, (Known(1),)), Group(list, (Known(1),)))
    if named or len(arguments) != 1 or arguments[0] not in one:
        raise UnknownError("draws numbers in a way that is not known")
    return Uniform()


def coin(*known: list[int]) -> Callable[[list[Value], dict[str, Value]], Value]:
    """A function that draws one of 0 and 1 when it is given the numbers of one of `known`."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        if named or [getattr(value, "value", None) for value in arguments] not in known:
            raise UnknownError("draws numbers in a way that is not known")
        return Chance(Uniform(), True, 0.5)

    return handle


def compared(sign: str | None, left: Value, right: Value) -> Chance:
    """``random.random() > 0.5``."""
    turned = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    if isinstance(right, Uniform):
        left, right, sign = right, left, turned.get(sign or "")
    known = isinstance(right, Known) and type(right.value) in (int, float) and right.value == right.value
    if not isinstance(left, Uniform) or not isinstance(right, Known) or not known or sign not in turned:
        raise UnknownError("compares what it draws with something that is not known")
    return Chance(left, sign.startswith("<"), float(right.value))


# Branches.


def by_chance(chance: Chance, before: Value | None, after: Value) -> Value:
    """What a variable holds after a branch that is taken by chance, of what it held, and holds if it is taken."""
    if after is before or after == before:
        return after
    if isinstance(before, Group) and isinstance(after, Group) and before.kind is after.kind:
        if len(before.items) == len(after.items):
            pairs = zip(before.items, after.items, strict=True)
            return Group(after.kind, tuple(by_chance(chance, one, other) for one, other in pairs))
    elif isinstance(before, Table) and type(before) is type(after) and isinstance(after, Table):
        if list(before.items) == list(after.items):
            items = {key: by_chance(chance, one, after.items[key]) for key, one in before.items.items()}
            return type(after)(items)
    elif isinstance(before, Picture) and isinstance(after, Picture) and after.steps:
        step = after.steps[-1]
        if before.after(step) == after and not isinstance(step, Joint):
            if not _is_flip(step):
                return before.after(_sometimes(chance, step))
            _check_new(before.steps, chance.number)
            return before.after(Joint(_randomly(chance, step), chance.number))
    elif isinstance(before, Mask) and isinstance(after, Mask) and after.joint:
        step = after.joint[-1]
        if beside.moved_mask(before, step) == after and step.draw is None:
            _check_new(before.joint, chance.number)
            _check_new(before.steps, chance.number)
            return beside.moved_mask(before, Joint(_randomly(chance, step.transform), chance.number))
    raise UnknownError("changes something by chance in a way that is not known")


def _check_new(steps: tuple[Any, ...], draw: Any) -> None:
    if any(isinstance(step, Joint) and step.draw is draw for step in steps):
        raise UnknownError("what it draws decides two things")


def _is_flip(step: Any) -> bool:
    """Whether it is a flip that is always done."""
    import torchvision.transforms as v1

    return type(step) in (v1.RandomHorizontalFlip, v1.RandomVerticalFlip) and step.p == 1


def _probability(chance: Chance) -> float:
    return min(max(chance.bound if chance.below else 1 - chance.bound, 0.0), 1.0)


def _sometimes(chance: Chance, step: Any) -> Any:
    """The transform of one image that calls `step` by chance."""
    if chance.number.used:
        raise UnknownError("what it draws decides two things")
    made = _of_torchvision("RandomApply", transforms=[step], p=_probability(chance))
    chance.number.used.append((step, made))
    return made


def _randomly(chance: Chance, step: Any) -> Any:
    """The flip that is done by chance, for all that is flipped by it."""
    name = type(step).__name__
    if not _is_flip(step):
        raise UnknownError("changes a mask by chance in a way that is not known")
    what = (chance.below, chance.bound, name)
    if not chance.number.used:
        chance.number.used.append((what, _of_torchvision(name, p=_probability(chance))))
    ((used, made),) = chance.number.used
    if used != what:
        raise UnknownError("what it draws decides two things")
    return made


# Flips and crops.


def flipped(name: str) -> Callable[[list[Value], dict[str, Value]], Value]:
    """``TF.hflip(image)``."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        values = [*arguments, *named.values()]
        if len(values) != 1 or not set(named) <= {"img", "inpt", "image"}:
            raise UnknownError("flips in a way that is not known")
        return _moved(values[0], Joint(_of_torchvision(name, p=1.0)), known=True)

    return handle


def is_flip(way: Any) -> bool:
    """Whether it is what Pillow's images are given to be flipped by ``transpose()``."""
    kind = getattr(sys.modules.get("PIL.Image"), "Transpose", None)
    return kind is not None and way in (kind.FLIP_LEFT_RIGHT, kind.FLIP_TOP_BOTTOM) and type(way) is kind


def mirrored(picture: Picture, way: Any) -> Picture:
    """``image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)``."""
    return picture.after(_of_torchvision(_FLIPS[0 if way.name == "FLIP_LEFT_RIGHT" else 1], p=1.0))


def _of_torchvision(name: str, **values: Any) -> Any:
    import torchvision.transforms as v1

    return getattr(v1, name)(**values)


def _moved(value: Value, joint: Joint, known: bool = False) -> Value:
    """An image or a mask that was moved; an image that always is, if that is `known`, by the transform alone."""
    if isinstance(value, Picture):
        if value.kind not in ("pil", "chw", "made"):
            raise UnknownError("is called on something else than a Pillow image or a tensor")
        return value.after(joint.transform if known else joint)
    if isinstance(value, Mask) and value.kind == "tensor":
        return beside.moved_mask(value, joint)
    raise UnknownError("is called on something else than a Pillow image or a tensor")


def region(arguments: list[Value], named: dict[str, Value]) -> Value:
    """``RandomCrop.get_params(image, output_size)``."""
    given = _by_name(arguments, named, "img", "output_size")
    size = _numbers(given["output_size"])
    if len(size) != 2 or not all(type(side) is int for side in size):
        raise UnknownError("draws a crop of a size that is not known")

    def make(**more: Any) -> Any:
        if more:
            raise UnknownError("resizes a crop that was drawn to be cut out alone")
        return _of_torchvision("RandomCrop", size=size)

    return _edges(given["img"], make)


def resized_region(arguments: list[Value], named: dict[str, Value]) -> Value:
    """``RandomResizedCrop.get_params(image, scale, ratio)``."""
    given = _by_name(arguments, named, "img", "scale", "ratio")
    scale, ratio = _numbers(given["scale"]), _numbers(given["ratio"])

    def make(**more: Any) -> Any:
        if "size" not in more:
            raise UnknownError("cuts a part out that is not resized then")
        return _of_torchvision("RandomResizedCrop", scale=scale, ratio=ratio, **more)

    return _edges(given["img"], make)


def _edges(image: Value, make: Callable[..., Any]) -> Value:
    if not isinstance(image, Picture) or image.kind not in ("pil", "chw", "made"):
        raise UnknownError("draws a crop for something else than an image")
    drawn = Region(image, make)
    return Group(tuple, tuple(Edge(drawn, place) for place in range(4)))


def cut_out(*names: str) -> Callable[[list[Value], dict[str, Value]], Value]:
    """``TF.crop(image, i, j, h, w)``; with `names` of more arguments ``TF.resized_crop``."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        first = next((name for name in ("img", "inpt") if name in named), "img")
        given = _by_name(
            arguments, named, first, "top", "left", "height", "width", *names, least=5 + bool(names)
        )
        edges = [given.pop(name) for name in ("top", "left", "height", "width")]
        image = given.pop(first)
        drawn = edges[0].region if isinstance(edges[0], Edge) else None
        if drawn is None or edges != [Edge(drawn, place) for place in range(4)]:
            raise UnknownError("cuts a part out that get_params() did not draw")
        if isinstance(image, Picture) and _origin(image) == _origin(drawn.image) and image != drawn.image:
            raise UnknownError("cuts a part out of an image that was changed since it was drawn")
        if isinstance(image, Picture | Mask):
            _check_new(image.steps, drawn)
        values = {name: _plain(value) for name, value in given.items()}
        return _moved(image, Joint(drawn.make(**values), drawn))

    return handle


def _origin(image: Picture) -> tuple[Any, ...]:
    return image.path, image.mode, image.reader, image.turned


def _by_name(
    arguments: list[Value], named: dict[str, Value], *names: str, least: int | None = None
) -> dict[str, Value]:
    given = dict(zip(names, arguments, strict=False))
    known = len(arguments) <= len(names) and not set(given) & set(named) and set(named) <= set(names)
    given |= named
    if not known or not set(names[: least or len(names)]) <= set(given):
        raise UnknownError("it is called with arguments that are not known")
    return given


def _numbers(value: Value) -> tuple[Any, ...]:
    found = _plain(value)
    if not isinstance(found, tuple | list) or not all(type(number) in (int, float) for number in found):
        raise UnknownError("an argument is not known")
    return tuple(found)


def _plain(value: Value) -> Any:
    if isinstance(value, Known):
        return value.value
    if isinstance(value, Group):
        return value.kind(map(_plain, value.items))
    raise UnknownError("an argument differs from sample to sample")


# Samples.


def alone(made: Value) -> Value:
    """A sample in which nothing moves with its one image: what was drawn for that is then drawn by its transforms."""
    images = [value for value in beside.leaves(made) if isinstance(value, Picture | Mask)]
    if len(images) != 1 or not isinstance(images[0], Picture):
        return made
    (image,) = images
    for step in image.steps:
        if isinstance(step, Joint) and isinstance(step.draw, Region) and step.draw.image.path != image.path:
            raise UnknownError("cuts a part out that was drawn for another image")
    steps = tuple(
        step.transform if isinstance(step, Joint) and step.draw is not None else step for step in image.steps
    )

    def put(value: Value) -> Value:
        if value is image:
            return replace(image, steps=steps)
        if isinstance(value, Group):
            return Group(value.kind, tuple(map(put, value.items)))
        if isinstance(value, Table):
            return type(value)({key: put(item) for key, item in value.items.items()})
        return value

    return put(made)


_V1 = "torchvision.transforms.functional"
_V2 = "torchvision.transforms.v2.functional"

KNOWN: list[tuple[str, str, Callable[[list[Value], dict[str, Value]], Value]]] = [
    ("random", "random", uniform),
    ("random", "randint", coin([0, 1])),
    ("random", "getrandbits", coin([1])),
    ("numpy.random", "rand", uniform),
    ("numpy.random", "random", uniform),
    ("numpy.random", "random_sample", uniform),
    ("numpy.random", "uniform", uniform),
    ("numpy.random", "randint", coin([2], [0, 2])),
    ("torch", "rand", uniform_tensor),
    ("torchvision.transforms", "RandomCrop.get_params", region),
    ("torchvision.transforms", "RandomResizedCrop.get_params", resized_region),
    ("PIL.ImageOps", "mirror", flipped("RandomHorizontalFlip")),
    ("PIL.ImageOps", "flip", flipped("RandomVerticalFlip")),
    *((module, "hflip", flipped("RandomHorizontalFlip")) for module in (_V1, _V2)),
    *((module, "vflip", flipped("RandomVerticalFlip")) for module in (_V1, _V2)),
    *((module, "crop", cut_out()) for module in (_V1, _V2)),
    *((module, "resized_crop", cut_out("size", "interpolation", "antialias")) for module in (_V1, _V2)),
    (_V2, "horizontal_flip", flipped("RandomHorizontalFlip")),
    (_V2, "vertical_flip", flipped("RandomVerticalFlip")),
]
"""Functions that draw, and those that move what was drawn for."""
