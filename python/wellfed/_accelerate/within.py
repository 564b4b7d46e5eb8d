"""`Within`: images are lazy while a thread makes samples, and nowhere else.

Invariant: images that other threads open are Pillow's own, and so is every image that outlives the samples.
"""

from __future__ import annotations

import contextlib
import sys
from types import TracebackType
from typing import Any

from . import arrays, sounds
from .images import here
from .patches import patches

__all__ = ["Within"]


class Within:
    """A block of code whose thread opens images and arrays as under `accelerate`; may be entered again and again."""

    def __init__(self) -> None:
        self._on = self._arrays = False
        self._outer: list[Any] | None = None

    def __enter__(self) -> None:
        if not self._arrays:
            arrays.enter(everywhere=False)
            sounds.enter(everywhere=False)
            self._arrays = True
        arrays.inside(True)
        sounds.inside(True)
        if not self._on:
            # Asked again each time: who has no Pillow yet may have it later.
            if "PIL.Image" not in sys.modules or _unusable():
                return
            patches.enter(everywhere=False)
            self._on = True
        self._outer, here.born = here.born, []

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        arrays.inside(False)
        sounds.inside(False)
        if not self._on:
            return
        born, here.born = here.born or [], self._outer
        self._outer = None
        for one in born:
            image = one()
            if image is not None:
                # What is wrong with it is said where it is used.
                with contextlib.suppress(Exception):
                    image._settle()

    def close(self) -> None:
        """Gives back all libraries as they were, unless others still want acceleration."""
        if self._arrays:
            self._arrays = False
            arrays.leave(everywhere=False)
            sounds.leave(everywhere=False)
        if self._on:
            self._on = False
            patches.leave(everywhere=False)

    def __del__(self) -> None:
        try:  # noqa: SIM105
            self.close()
        except Exception:  # At the interpreter's end what is needed may be gone, `contextlib` too.
            pass


def _unusable() -> bool:
    from . import unusable

    return bool(unusable())
