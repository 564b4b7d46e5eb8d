"""From files and arrays to data sets of the engine, and from its samples to what Python expects.

Invariant: row `i` of an `Engine` is row `i` of the leaves it was made from, laid end to end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import wellfed as wf
from wellfed import transforms as T
from wellfed._loader import torch_converter

from . import several
from .datasets import Encoded, Files, Leaf, Pixels, Stored
from .forms import Chain, Form, RefusalError
from .joint import Boxes, Masks, Outcome, engine_rows
from .sounds import Sounds, source_of_sounds
from .sounds import unread as unread_sounds
from .spectra import is_sound

__all__ = ["Engine", "Memory", "accepts_for", "mapped", "memory_of", "source_of"]

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
# Formats of which the engine decodes all that Pillow does, and sooner. Of others it knows a part, and names do not tell
# which.
_READ = (*_JPEG, ".png", ".gif", ".ppm", ".webp")
_IMAGES = (
    ".png",
    ".bmp",
    ".gif",
    ".pgm",
    ".ppm",
    ".pbm",
    ".pnm",
    ".tif",
    ".tiff",
    ".webp",
    ".avif",
    ".heic",
    ".jp2",
    ".jxl",
)


class Memory:
    """Images of arrays as one piece of memory: where they lie, if they do so in order; else a copy.

    Args:
        parts: The arrays, laid end to end.
    """

    def __init__(self, parts: list[Pixels]) -> None:
        plain = [_in_order(part) for part in parts]
        if len({(part.array.shape[1:], part.order) for part in plain}) > 1:
            raise RefusalError("its parts differ in the size of their images")
        self.order = plain[0].order
        self.copied = len(plain) > 1 or not plain[0].array.flags.c_contiguous
        self._parts = [part.array for part in plain]
        self.array = self._parts[0]
        if self.copied:
            self.array = np.empty((sum(map(len, self._parts)), *self.array.shape[1:]), np.uint8)
            self.refresh()

    def refresh(self) -> None:
        """Takes over what was changed in place since the copy was made."""
        if self.copied:
            np.concatenate(self._parts, out=self.array)


def _in_order(pixels: Pixels) -> Pixels:
    """The same images with channels where they lie first: those of CIFAR are a transposed view of that."""
    array = pixels.array
    if pixels.order == "hwc" and array.ndim == 4 and not array.flags.c_contiguous:
        turned = array.transpose(0, 3, 1, 2)
        if turned.flags.c_contiguous:
            return Pixels(turned, "chw")
    return pixels


def source_of(leaves: list[Leaf], memory: Memory | None = None) -> wf.Dataset:
    """The engine's data set of all images of `leaves`, without labels.

    Args:
        leaves: What has images.
        memory: That of their arrays, which may be a copy; None: they must lie in order.

    Raises:
        RefusalError: They cannot be one.
    """
    contents = [leaf.content for leaf in leaves]
    sounds = [content for content in contents if isinstance(content, Sounds)]
    if sounds:
        if len(sounds) < len(contents):
            raise RefusalError("its parts mix sounds and images")
        return source_of_sounds(sounds)
    modes: set[Any] = {"RGB" if leaf.form.mode == "any" else leaf.form.mode for leaf in leaves}
    if len(modes) > 1:
        raise RefusalError("its parts mix colour and grey images")
    if all(isinstance(content, Files) for content in contents):
        paths = [path for content in contents if isinstance(content, Files) for path in content.paths]
        if len({(content.opencv, content.turned) for content in contents if isinstance(content, Files)}) > 1:
            raise RefusalError("its parts are read in different ways")
        if any(isinstance(leaf.follows, Boxes | Masks) for leaf in leaves):
            return wf.annotated_images(paths, **engine_rows(leaves)).with_options(mode=modes.pop())
        first = contents[0]
        assert isinstance(first, Files)
        mode: Any = "OPENCV" if first.opencv else modes.pop()
        return wf.image_files(paths).with_options(mode=mode, exif_orientation=first.turned)
    stored = [content for content in contents if isinstance(content, Stored)]
    if len(stored) == len(contents) == 1:
        opened: wf.Dataset = stored[0].open()
        as_read: Any = "OPENCV" if stored[0].opencv else modes.pop()
        return opened.with_options(mode=as_read, exif_orientation=stored[0].turned)
    encoded = [content for content in contents if isinstance(content, Encoded)]
    if encoded and len(encoded) == len(contents):
        if len({(content.opencv, content.turned) for content in encoded}) > 1:
            raise RefusalError("its parts are read in different ways")
        chunks = [chunk for content in encoded for chunk in content.chunks]
        images = wf.encoded_images(chunks, [offsets for content in encoded for offsets in content.offsets])
        how: Any = "OPENCV" if encoded[0].opencv else modes.pop()
        return images.with_options(mode=how, exif_orientation=encoded[0].turned)
    pixels = [content for content in contents if isinstance(content, Pixels)]
    if len(pixels) < len(contents):
        raise RefusalError("its parts mix files and arrays")
    if memory is None:
        memory = Memory(pixels)
        if memory.copied:
            # Changes that are made in place would go unseen.
            raise RefusalError(
                "its pixels do not lie in order in memory", "numpy.ascontiguousarray of its array"
            )
    return wf.from_tensor_slices(memory.array, pixels=memory.order)  # type: ignore[arg-type]


def mapped(leaves: list[Leaf], chain: Chain, memory: Memory | None = None) -> wf.Dataset:
    """The engine's data set of all images of `leaves`, with what belongs to them, transformed.

    Raises:
        RefusalError: They cannot be one.
    """
    source = source_of(leaves, memory)
    if isinstance(chain.outcome, several.Apart):
        return several.masked_apart(source, chain)
    return source.map(*chain.native) if chain.native else source


def memory_of(leaves: list[Leaf]) -> Memory | None:
    """The memory of the arrays of `leaves`; None if not all have one."""
    pixels = [leaf.content for leaf in leaves if isinstance(leaf.content, Pixels)]
    return Memory(pixels) if pixels and len(pixels) == len(leaves) else None


def unread(leaf: Leaf) -> int:
    """How many files have names of formats that the engine does not read."""
    if isinstance(leaf.content, Sounds):
        return unread_sounds(leaf.content)
    if isinstance(leaf.content, Encoded):
        return leaf.content.unread if leaf.table is None else 0
    if not isinstance(leaf.content, Files):
        return 0
    # What lies beside the image, a mask say, keeps its numbers, which other formats have other ways to store.
    read, beside = (_JPEG, _JPEG) if leaf.content.opencv else (_READ, (*_JPEG, ".png"))
    known = [read, *(beside for _ in several.paths_beside(leaf))]
    lists = [leaf.content.paths, *several.paths_beside(leaf)]
    return sum(
        any(
            not name.lower().endswith(ends) and name.lower().endswith(_IMAGES)
            for name, ends in zip(names, known)
        )
        for names in zip(*lists, strict=True)
    )


def accepts_for(leaf: Leaf) -> Callable[[list[T.Transform]], None]:
    """What raises where the engine does not take transforms on images such as those of `leaf`."""
    if is_sound(leaf.form):
        return _accepts_all
    sized = isinstance(leaf.content, Pixels) and len(leaf.content) > 0
    shape: tuple[int, ...] = (64, 64) if leaf.form.mode == "L" else (64, 64, 3)
    order = "hwc"
    if isinstance(leaf.content, Pixels) and sized:
        shape, order = leaf.content.array.shape[1:], leaf.content.order

    def accepts(transforms: list[T.Transform]) -> None:
        _try(shape, order, sized, tuple(transforms))

    return accepts


def _accepts_all(transforms: list[T.Transform]) -> None:
    """Of sounds it is known what stands where: each transform is looked at with what comes before it."""


@functools.lru_cache(256)
def _try(shape: tuple[int, ...], order: str, sized: bool, transforms: tuple[T.Transform, ...]) -> None:
    # One image of the same kind stands for all: what the engine refuses, it refuses for every one.
    image = np.zeros((1, *shape), np.uint8)
    try:
        tried = wf.from_tensor_slices(image, pixels=order).map(*transforms)  # type: ignore[arg-type]
        tried._native.sample(0, 0)
    except wf.ShapeError:
        if sized:
            raise  # Of files nobody knows the size.


class Engine:
    """Images of leaves, decoded and transformed one by one in the calling thread.

    Args:
        leaves: What they are read from.
        native: Transforms that the engine does.
        form: What they lead to.
        outcome: What follows the image then, if something does.
    """

    def __init__(
        self, leaves: list[Leaf], native: list[T.Transform], form: Form, outcome: Outcome | None = None
    ) -> None:
        source = source_of(leaves)
        self.source = source.map(*native) if native else source
        self.form, self._outcome = form, outcome
        self._follows = leaves[0].follows
        self._dataset = self.source.with_options(layout=form.layout)._native
        self._convert = torch_converter()

    def sample(self, row: int, draw: int) -> Any:
        """Image `row` as the next Python transform expects it.

        Args:
            row: From 0.
            draw: Decides random parameters: the same for the same number, of 32 bits.
        """
        value: torch.Tensor = self._convert(self._dataset.sample(row, draw)[0])
        return self.form.build(value)

    def pair(self, row: int, draw: int) -> tuple[Any, Any]:
        """Image `row` and what follows it, as the next Python transform expects them.

        Args:
            row: From 0.
            draw: As in `sample`.
        """
        value, *rest = map(self._convert, self._dataset.sample(row, draw))
        size = value.shape[:2] if self.form.layout == "NHWC" else value.shape[1:]
        assert self._follows is not None
        assert self._outcome is not None
        return self.form.build(value), self._follows.target(row, rest, self._outcome, tuple(size))
