"""What is replaced of Pillow, torchvision and other libraries while anybody wants it, and given back afterwards."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from . import rows
from .colours import ENHANCERS, enhancer
from .images import Here, here, pillow
from .loads import OF_LIBRARIES
from .tensors import OF_TORCHVISION

__all__ = ["patches"]

_ON_IMPORT = [*OF_TORCHVISION, *OF_LIBRARIES]
"""What is replaced as soon as its module has been imported."""


class _Patches:
    """What is replaced while anybody wants acceleration."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = threading.Lock()
        self.undo: list[Callable[[], None]] = []
        self.seen: set[str] = set()
        """Names of `_ON_IMPORT` that have been replaced."""
        self.modules = -1
        """How many modules there were when all that is to be replaced had been; then there is no need to look again."""

    def enter(self, everywhere: bool = True) -> None:
        module = pillow()
        # Before anybody forks.
        rows.seen()
        with self.lock:
            self.users += 1
            Here.everywhere += everywhere
            if self.users > 1:
                return
            for name, (plain, lazy) in module.files.items():
                self._replace_opener(module.image.OPEN, name, plain, lazy)
            self._replace(module.ops, "exif_transpose", _exif_transpose)
            self._replace(module.ops, "expand", _expand)
            self._replace(module.ops, "pad", _pad)
            for what, name in enumerate(ENHANCERS):
                plain = getattr(module.enhance, name)
                self._replace(plain, "__init__", enhancer(what, name, plain))
        self.see_libraries()

    def leave(self, everywhere: bool = True) -> None:
        with self.lock:
            self.users -= 1
            Here.everywhere -= everywhere
            if self.users:
                return
            for undo in reversed(self.undo):
                undo()
            self.undo.clear()
            self.seen.clear()
            self.modules = -1

    def see_libraries(self) -> None:
        """Replaces what is replaced of libraries, as soon as they have been imported."""
        modules = len(sys.modules)
        for module, name, wrapper in _ON_IMPORT:
            holder = imported = sys.modules.get(module)
            for part in name.split(".")[:-1]:
                holder = getattr(holder, part, None)
            last = name.split(".")[-1]
            if not hasattr(holder, last):
                # A module that is being imported is seen the next time.
                modules = modules if imported is None else -1
            elif name not in self.seen:
                with self.lock:
                    if self.users and name not in self.seen:
                        self.seen.add(name)
                        self._replace(holder, last, wrapper)
        self.modules = modules

    def _replace(self, module: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(module, name)
        ours = wrapper(original)
        setattr(module, name, ours)

        def undo() -> None:
            # What somebody else put there meanwhile stays.
            if getattr(module, name) is ours:
                setattr(module, name, original)

        self.undo.append(undo)

    def _replace_opener(self, table: dict[str, Any], name: str, plain: type[Any], lazy: type[Any]) -> None:
        original = table[name]
        factory, accept = original
        # What somebody else has put there is called.
        unread = pillow().unread if name == "JPEG" and factory.__module__ == plain.__module__ else None

        @functools.wraps(factory, updated=())
        def opener(fp: Any, filename: Any = None) -> Any:
            if not here.wanted():
                return factory(fp, filename)
            image = None if unread is None else unread(fp, filename)
            if image is None:
                image = factory(fp, filename)
                if type(image) is not plain:
                    return image
                image.__class__ = lazy
            here.note(image)
            if self.modules != len(sys.modules):
                self.see_libraries()
            return image

        ours = (opener, accept)
        table[name] = ours

        def undo() -> None:
            if table.get(name) is ours:
                table[name] = original

        self.undo.append(undo)


def _exif_transpose(original: Any) -> Any:
    @functools.wraps(original)
    def exif_transpose(image: Any, *, in_place: bool = False) -> Any:
        if not in_place and type(image) in pillow().kinds:
            # Pillow's function loads the image first, and needs no pixels before it transposes.
            image.__dict__["_spare_load"] = True
            try:
                return original(image)
            finally:
                image.__dict__.pop("_spare_load", None)
        return original(image, in_place=in_place)

    return exif_transpose


def _expand(original: Any) -> Any:
    @functools.wraps(original)
    def expand(image: Any, border: Any = 0, fill: Any = 0) -> Any:
        new = pillow().expanded(image, border, fill, original) if type(image) in pillow().kinds else None
        return original(image, border, fill) if new is None else new

    return expand


def _pad(original: Any) -> Any:
    @functools.wraps(original)
    def pad(image: Any, size: Any, method: Any = 3, color: Any = None, centering: Any = (0.5, 0.5)) -> Any:
        new = None
        if type(image) in pillow().kinds:
            new = pillow().padded(image, size, method, color, centering, original)
        return original(image, size, method, color, centering) if new is None else new

    return pad


patches = _Patches()


def _renew_lock() -> None:
    patches.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
