"""What is replaced of libraries that load an image as soon as they have opened it: the image stays lazy.

Such a library loads so that the file may be closed. Then it is enough that a lazy image has the bytes of the file.
Files of which Pillow may not decode all are loaded as before, so that errors come where they came.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .images import sparing

__all__ = ["OF_LIBRARIES"]

_KNOWN = {"datasets": range(2, 6), "webdataset": range(2)}
"""Major versions in which nothing is done with what `load` returns."""


def _spare_loads(package: str) -> Callable[[Any], Any]:
    """What has `load` of lazy images take the bytes of their file only, inside of a function of `package`."""

    def wrapper(original: Any) -> Any:
        major = str(getattr(sys.modules.get(package), "__version__", "")).partition(".")[0]
        if not major.isdigit() or int(major) not in _KNOWN[package]:
            return original

        @functools.wraps(original)
        def decode(*args: Any, **kwargs: Any) -> Any:
            sparing.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                sparing.depth -= 1

        return decode

    return wrapper


OF_LIBRARIES: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("datasets.features.image", "Image.decode_example", _spare_loads("datasets")),
    ("webdataset.autodecode", "ImageHandler.__call__", _spare_loads("webdataset")),
]
"""As `OF_TORCHVISION`: the module, the name in it, and what makes the replacement of the original."""
