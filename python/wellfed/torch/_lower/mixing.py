"""Collate functions that stack samples and then mix the batch: torchvision's `MixUp` and `CutMix`.

``lambda batch: cutmix_or_mixup(*default_collate(batch))`` is how torchvision's documentation writes it. The engine
stacks the samples then, and the finished batch is mixed in its memory, with the draws and bits of the transform: images
by the engine's threads where labels are known to be classes, else all of it in the calling thread.
Invariant: a function is known by all that decides what it does, and its names are looked up anew whenever it is decided
how a loader is run.
"""

from __future__ import annotations

import builtins
import contextlib
import inspect
import math
from collections.abc import Iterator
from itertools import product
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import default_collate

from wellfed._steps.seeds import mix

from .forms import is_stock

__all__ = ["Drawn", "Mixing", "mixing_of", "only_stacks"]

# What a function may do with the samples of a batch. Names in capitals stand for any names of the values in
# `_STANDS_FOR`, those that end with MIX for one of torchvision's transforms.
_STACKS = ("return {collate}(batch)",)
_MIXES = (
    "return {mix}(*{collate}(batch))",
    "one = {collate}(batch); return {mix}(*one)",
    "one, two = {collate}(batch); return {mix}(one, two)",
    "one, two = {collate}(batch); one, two = {mix}(one, two); return one, two",
)
_COLLATES = ("COLLATE", "DATA.default_collate", "TORCH.utils.data.default_collate")
_STANDS_FOR = {"COLLATE": default_collate, "DATA": torch.utils.data, "TORCH": torch}
# The variables of a function around it are numbered by their alphabet: that of the transform may come first or last.
_MIX_NAMES = ("A_MIX", "Z_MIX")

_FLAGS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


class Drawn(NamedTuple):
    """What was drawn for a batch.

    Attributes:
        lam: The weight of a sample's own label; the one before it has the rest.
        corners: ``x1, y1, x2, y2`` of what comes from the image before; None: weighted sums of whole images.
        classes: How many there are.
    """

    lam: float
    corners: tuple[int, int, int, int] | None
    classes: int

    def labels(self, labels: torch.Tensor) -> torch.Tensor:
        """Float32 ``[batch, classes]``, with the bits of torchvision's transform. Labels must be classes.

        Torch's operations on so many numbers wait for threads, where the engine has them all at work.
        """
        own = labels.numpy()
        soft, rows = np.zeros((len(own), self.classes), np.float32), np.arange(len(own))
        soft[rows, np.roll(own, 1)] = np.float32(1.0 - self.lam)
        soft[rows, own] += np.float32(self.lam)
        return torch.from_numpy(soft)


class Mixing:
    """What happens to finished batches.

    Args:
        transform: Torchvision's, as the collate function would call it.
    """

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, batch: list[Any], base_seed: int, position: int) -> Any:
        """The mixed batch.

        Args:
            batch: As `default_collate` makes it.
            base_seed: Of the epoch.
            position: How many samples came before in it.
        """
        with _seeded(base_seed, position):
            return _mixed(self.transform, *batch)

    def fits(self, dtype: str, classes: int) -> bool:
        """Whether the engine may mix images of `dtype`, and `Drawn` labels below `classes`."""
        return _fits(self.transform, dtype, classes)

    def draw(self, size: tuple[int, int, int], base_seed: int, position: int) -> Drawn | None:
        """What calling it on a batch would draw; None where that is no number.

        Args:
            size: Channels, height and width of its images.
            base_seed: Of the epoch.
            position: How many samples come before in it.
        """
        with _seeded(base_seed, position):
            transform = self.transform
            while hasattr(transform, "transforms"):
                transform = _chosen(transform)
            # Only its shape is looked at.
            params = transform.make_params([torch.empty(()).expand(1, *size)])
        lam = params["lam"] if "lam" in params else params["lam_adjusted"]
        return Drawn(lam, params.get("box"), transform.num_classes) if math.isfinite(lam) else None


@contextlib.contextmanager
def _seeded(base_seed: int, position: int) -> Iterator[None]:
    """Seeds torch's default generator for one batch, and leaves it as it was.

    Where torch has workers, these draw. So what is drawn depends on the epoch and on the place in it alone: neither the
    order of later epochs nor a resumed one differs.
    """
    before = torch.get_rng_state()
    # Not torch.manual_seed(), which would seed the generators of devices, too.
    torch.default_generator.manual_seed(mix(base_seed, position))
    try:
        yield
    finally:
        torch.set_rng_state(before)


def _chosen(choice: Any) -> Any:
    """What a `RandomChoice` draws."""
    return choice.transforms[int(torch.multinomial(torch.tensor(choice.p), 1))]


def _fits(transform: Any, dtype: str, classes: int) -> bool:
    from torchvision.transforms import v2

    if type(transform) is v2.RandomChoice:
        return all(_fits(inner, dtype, classes) for inner in transform.transforms)
    if type(transform) is v2.MixUp and dtype not in ("float32", "float16", "bfloat16"):
        return False
    known = type(transform) in (v2.MixUp, v2.CutMix) and _finds_labels(transform)
    # Labels that are none of the classes are torchvision's errors.
    return known and type(transform.num_classes) is int and classes <= transform.num_classes


def _finds_labels(transform: Any) -> bool:
    """Whether it takes the second of a pair as labels."""
    return getattr(transform._labels_getter, "__name__", "") == "_find_labels_default_heuristic"


def _mixed(transform: Any, images: Any, labels: Any) -> Any:
    """What the transform makes of a batch, with its draws and its bits, in the memory of the images.

    Torchvision's own code allocates four more batches, which takes several times as long. It is called for everything
    that is not the usual case.
    """
    from torchvision.transforms import v2

    if type(transform) is v2.RandomChoice:
        return _mixed(_chosen(transform), images, labels)
    plain = type(transform) in (v2.MixUp, v2.CutMix) and type(images) is type(labels) is torch.Tensor
    usual = (
        plain
        and images.ndim == 4
        and images.is_floating_point()
        and labels.ndim == 1
        and len(labels) == len(images)
        and transform.num_classes is not None
        and _finds_labels(transform)
    )
    if not usual:
        return transform(images, labels)
    params = transform.make_params([images])
    if type(transform) is v2.MixUp:
        lam = params["lam"]
        soft = transform._mixup_label(labels, lam=lam)
        last = images[-1].clone()
        # From the last to the first: what is still to be read is not written to.
        for image, before in zip(reversed(images[1:].unbind()), reversed(images[:-1].unbind()), strict=True):
            image.mul_(lam).add_(before.mul(1.0 - lam))
        images[0].mul_(lam).add_(last.mul_(1.0 - lam))
        return images, soft
    soft = transform._mixup_label(labels, lam=params["lam_adjusted"])
    x1, y1, x2, y2 = params["box"]
    parts = images[..., y1:y2, x1:x2].unbind()
    last = parts[-1].clone()
    for part, before in zip(reversed(parts[1:]), reversed(parts[:-1]), strict=True):
        part.copy_(before)
    parts[0].copy_(last)
    return images, soft


def mixing_of(function: Any) -> Mixing | None:
    """What `function` does to a batch that it has stacked, if all of it is torchvision's own."""
    for transform in _calls(function, _MIX_FORMS):
        if _is_mix(transform):
            return Mixing(transform)
    return None


def only_stacks(function: Any) -> bool:
    """Whether `function` is torch's `default_collate`, or does nothing but call it."""
    return function is default_collate or any(True for _ in _calls(function, _STACK_FORMS))


def _is_mix(transform: Any) -> bool:
    """Whether it is one of torchvision's transforms of batches, unchanged, and draws from the CPU's generator."""
    try:
        from torchvision.transforms import v2
    except ImportError:
        return False
    methods = ("__call__", "forward", "_call_impl", "_wrapped_call_impl")
    if type(transform) in (v2.RandomChoice, v2.RandomApply):
        inner = list(transform.transforms)
        return is_stock(transform, *methods) and bool(inner) and all(map(_is_mix, inner))
    if type(transform) not in (v2.MixUp, v2.CutMix):
        return False
    # A default device has the last word on where numbers are drawn.
    here = torch.get_default_device().type == "cpu" and transform._dist.concentration1.device.type == "cpu"
    return here and is_stock(transform, *methods, "make_params", "transform", "_mixup_label")


def _text(code: CodeType) -> tuple[Any, ...]:
    """What code does, without its names and where it was written."""
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, len(code.co_varnames)
    names = len(code.co_names), len(code.co_freevars), code.co_cellvars
    return code.co_code, counts, names, code.co_flags & _FLAGS


_Forms = dict[tuple[Any, ...], list[CodeType]]


def _forms(bodies: tuple[str, ...]) -> _Forms:
    """The code of functions with these bodies, each of whose names is global or belongs to a function around it."""
    found: _Forms = {}
    # Calls of what an imported module has are written in another way where the import stands in the same file.
    for body, collate, name, head in product(bodies, _COLLATES, _MIX_NAMES, ("", "if 0: import DATA\n")):
        text = body.format(mix=name, collate=collate)
        names = [collate.partition(".")[0], *([name] if "{mix}" in body else [])]
        for free in product((False, True), repeat=len(names)):
            around = [one for one, is_free in zip(names, free, strict=True) if is_free]
            scope: dict[str, Any] = {}
            exec(f"{head}def outer({', '.join(around)}):\n def inner(batch): {text}\n return inner", scope)
            code = scope["outer"](*around).__code__
            found.setdefault(_text(code), []).append(code)
    return found


_STACK_FORMS, _MIX_FORMS = _forms(_STACKS), _forms(_MIXES)


def _calls(function: Any, forms: _Forms) -> Iterator[Any]:
    """What `function` calls on a stacked batch, for each of the forms that it has; None if that is nothing."""
    if type(function) is not FunctionType or function.__defaults__ or function.__kwdefaults__:
        return
    if torch.utils.data.default_collate is not default_collate:  # Somebody has replaced it.
        return
    code = function.__code__
    for form in forms.get(_text(code), ()):
        called = None
        for role, name in zip(
            (*form.co_names, *form.co_freevars), (*code.co_names, *code.co_freevars), strict=True
        ):
            if role.islower():
                if name != role:  # An attribute.
                    break
                continue
            value = _value(function, name)
            if role in _MIX_NAMES:
                called = value
            elif value is not _STANDS_FOR[role]:
                break
        else:
            yield called


def _value(function: FunctionType, name: str) -> Any:
    """What `name` is in `function` now; None if it is nothing yet."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return None
    return function.__globals__.get(name, vars(builtins).get(name))
