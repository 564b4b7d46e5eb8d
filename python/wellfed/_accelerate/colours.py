"""Colours of lazy images: `ImageEnhance`, which torchvision and timm change them by.

An enhancer of a lazy image is of a class of its own until somebody asks for what Pillow's has besides `enhance`.

Invariant: it enhances what the image was when it was made, as Pillow's does, whatever happens to the image meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .images import CONVERTED, pillow

__all__ = ["ENHANCERS", "enhancer"]

ENHANCERS = ("Brightness", "Contrast", "Color")
"""Names of Pillow's classes, at the numbers that `Picture.adjust` has for them."""


def enhancer(what: int, name: str, plain: type[Any]) -> Callable[[Any], Any]:
    """What makes the replacement of the constructor of `plain`, Pillow's class of a name and a number."""

    def replaced(original: Any) -> Any:
        lazy = _lazy(what, plain, original)

        @functools.wraps(original)
        def init(self: Any, image: Any) -> None:
            if type(self) is plain and type(image) in pillow().kinds and image._mode in CONVERTED:
                before = image.copy()
                if type(before) is pillow().lazy:
                    self.image = image
                    # Grey images have no colour: they are blended with themselves, as they are by then.
                    self._given = image, image if (name, image._mode) == ("Color", "L") else before
                    self.__class__ = lazy
                    return
            original(self, image)

        return init

    return replaced


def _lazy(what: int, plain: type[Any], original: Any) -> type[Any]:
    """The class of enhancers that have not looked at their image yet."""

    def settle(self: Any) -> None:
        """Becomes Pillow's."""
        now, (_, before) = self.image, self.__dict__.pop("_given")
        self.__class__ = plain
        original(self, before)
        self.image = now

    def enhance(self: Any, factor: Any) -> Any:
        # One that has got its pixels may have been painted on.
        if self.image is self._given[0] and type(self.image) in pillow().kinds:
            new = pillow().adjusted(self.image, what, factor)
            if new is not None:
                return new
        settle(self)
        return self.enhance(factor)

    def missing(self: Any, name: str) -> Any:
        if name in ("degenerate", "intermediate_mode") and "_given" in self.__dict__:
            settle(self)
            return getattr(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def reduce(self: Any, protocol: Any) -> Any:
        settle(self)
        return self.__reduce_ex__(protocol)

    own: dict[str, Any] = {"enhance": enhance, "__getattr__": missing, "__reduce_ex__": reduce}
    own |= {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    return type(plain.__name__, (plain,), own)
