"""`decode`: one image file and its transforms in one pass, for those who write `__getitem__` themselves."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .images import CONVERTED, pillow
from .patches import patches

if TYPE_CHECKING:
    import torch

__all__ = ["decode", "drawn_from"]


def decode(
    source: str | os.PathLike[str] | bytes,
    transforms: Any = None,
    *,
    mode: str = "RGB",
    generator: torch.Generator | None = None,
) -> Any:
    """One image and what transforms make of it, decoded only as far as they need it.

    What comes out is what ``transforms(PIL.Image.open(source).convert(mode))`` gives, bit for bit and drawn from the
    same random numbers. As under `accelerate`, crops, resizes, flips and right angles are remembered, and `ToTensor`
    with a `Normalize` next to it is part of the pass that decodes. Nothing of Pillow or torchvision is replaced. What
    cannot be done so, Pillow and torchvision do.

    Args:
        source: A path, or the bytes of a file.
        transforms: torchvision's (v1 or v2) or wellfed's: one, a ``Compose``, or a list of them. Any other callable of
            a Pillow image will do as well.
        mode: Pillow's mode that the image is converted to first.
        generator: What torch's random numbers are drawn from, in place of its default generator. That is exchanged
            meanwhile, so no other thread should draw from it. Draws from Python's `random` are not affected.

    Returns:
        What the transforms return; a Pillow image if there are none. That may be a lazy one, see `accelerate`.

    Raises:
        Exception: Those of Pillow and of the transforms, with a note that names the file (from Python 3.11 on).

    Example:
        >>> import io
        >>> import wellfed as wf
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.linear_gradient("L").save(file, "JPEG")
        >>> wf.decode(file.getvalue()).size
        (256, 256)
        >>> from torchvision import transforms
        >>> wf.decode(file.getvalue(), [transforms.CenterCrop(32), transforms.ToTensor()]).shape
        torch.Size([3, 32, 32])
    """
    if not isinstance(source, (bytes, str, os.PathLike)):
        raise TypeError(f"source is of type {type(source).__name__}, but must be a path or bytes")
    try:
        image = _opened(source, mode)
        if transforms is None:
            return image
        with drawn_from(generator):
            return _transformed(transforms, image)
    except Exception as error:
        if sys.version_info >= (3, 11):
            name = f"{len(source)} bytes" if isinstance(source, bytes) else os.fspath(source)
            error.add_note(f"wellfed: decoding {name}")
        raise


def _opened(source: str | os.PathLike[str] | bytes, mode: str) -> Any:
    """The image in a mode: lazy where it can be, else with its pixels. No file stays open."""
    from PIL import Image

    from . import unusable

    image: Any = None if unusable() else _unread(source)
    if image is None:
        image = Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    try:
        if not unusable():
            kinds = dict(pillow().files.values())
            if type(image) in kinds:
                image.__class__ = kinds[type(image)]
            if type(image) in pillow().kinds and mode in CONVERTED:
                return image.convert(mode)
        # A copy where it has the mode already: the file may be closed.
        image.load()
        return image.convert(mode)
    finally:
        image.close()


def _unread(source: str | os.PathLike[str] | bytes) -> Any:
    """As `Image.open`, but lazy, and without Pillow's look at the file; None where that is needed."""
    made_by = pillow()
    if made_by.image.OPEN["JPEG"][0].__module__ != made_by.files["JPEG"][0].__module__:
        return None
    with contextlib.ExitStack() as stack:
        if isinstance(source, bytes):
            file: Any = stack.enter_context(io.BytesIO(source))
        else:
            file = stack.enter_context(open(source, "rb"))
        image = made_by.unread(file, "" if isinstance(source, bytes) else os.fspath(source))
        if image is not None:
            made_by.image._decompression_bomb_check(image.size)
            image._exclusive_fp = not isinstance(source, bytes)
            stack.pop_all()  # it closes its file
        return image


def _transformed(transforms: Any, image: Any) -> Any:
    if isinstance(transforms, (list, tuple)):
        transforms = _composed(tuple(transforms))
        if transforms is None:
            return image
    kind = type(transforms)
    # Under `accelerate` they are called so anyway.
    if not patches.users and kind.__module__ in (
        "torchvision.transforms.transforms",
        "torchvision.transforms.v2._container",
    ):
        together = _passes().get(kind)
        # Modules that somebody listens to are called as such.
        if together is not None and _unheard(transforms):
            return together(transforms, image)
    return transforms(image)


def _unheard(transforms: Any) -> bool:
    from .listening import unheard

    return unheard(transforms)


def _composed(steps: tuple[Any, ...]) -> Any:
    """Several transforms as one, of the kind that they are; None for none."""
    if not steps:
        return None
    from .. import transforms as ours

    if all(isinstance(step, ours.Transform) for step in steps):
        return ours.Compose(list(steps))
    if any(type(step).__module__.startswith("torchvision.transforms.v2") for step in steps):
        from torchvision.transforms import v2

        return v2.Compose(list(steps))
    from torchvision import transforms as v1

    return v1.Compose(list(steps))


@functools.cache
def _passes() -> dict[type[Any], Any]:
    """By the class of a `Compose` of torchvision: what calls it with steps that belong to one pass together."""
    from torchvision.transforms import Compose as Compose1
    from torchvision.transforms.v2 import Compose as Compose2

    from .tensors import compose_v1, compose_v2

    return {Compose1: compose_v1(Compose1.__call__), Compose2: compose_v2(Compose2.forward)}


_exchange = threading.Lock()
"""Held while torch's default generator has the state of another."""


@contextlib.contextmanager
def drawn_from(generator: Any) -> Iterator[None]:
    """In this block torch's default generator has the state of `generator`, which goes on from there."""
    if generator is None:
        yield
        return
    import torch

    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is of type {type(generator).__name__}, but must be a torch.Generator")
    if generator.device.type != "cpu":
        raise ValueError(f"generator is on {generator.device}, but images are transformed on the CPU")
    if generator is torch.default_generator:
        yield
        return
    with _exchange:
        before = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(before)


def _renew_lock() -> None:
    global _exchange
    _exchange = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
