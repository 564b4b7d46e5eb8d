"""Images that a CUDA device finishes for JAX: `ds.jax(on_device="decode")`, without torch.

The engine leaves records, and the kernels of wellfed-cuda make images of them in memory of their own and in a stream of
their own (`_native.Finisher`). JAX sees that memory by DLPack, where its stream waits for the images, and copies it
once: what the caller gets is JAX's own, and may be kept or donated. The host waits only where the device is far behind.

Invariant: memory of finished images is written again only when JAX has read it. JAX lets go of an array as soon as what
reads it was submitted, so it is held until a result of that is ready.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import jax

from .. import _native

__all__ = ["Finishing", "LeftImages"]


class _Pages:
    """Page-locks the buffers of the engine's batches, by the driver."""

    def __init__(self, index: int) -> None:
        self.page_lock = _native.PageLocks()
        self._index = index

    def begin(self) -> None:
        """Called before the first batch."""
        self.page_lock.begin(self._index)


class Finishing:
    """What finishes the images of a loader.

    Args:
        device: A CUDA device of this process; None: the host, in the calling thread, by the same kernels: for tests.
    """

    def __init__(self, device: jax.Device | None) -> None:
        self.index = None if device is None else device.local_hardware_id
        self.name = f"cuda:{self.index or 0}"

    def pages(self) -> Any:
        """As of `wellfed._loader.Finishing`."""
        return _Pages(self.index or 0)

    def recipe(self, size: list[int], dtype: str, channels_first: bool, table: bytes) -> Recipe:
        """As of `wellfed._loader.Finishing`."""
        return Recipe(self.index, (size, dtype, channels_first, table))


class Recipe:
    """What the images of one column become.

    Attributes:
        decoded: Images so far whose pixels came from the CPU, from kernels that decoded coefficients, and from nvJPEG.
    """

    def __init__(self, index: int | None, form: tuple[list[int], str, bool, bytes]) -> None:
        """On the device of this number; `form` as `_native.Loader.left_images` says."""
        self.decoded = {"cpu": 0, "device": 0, "nvjpeg": 0}
        self._index, self._form = index, form
        self._finisher: _native.Finisher | None = None
        # Results of what reads finished images, and these.
        self._read: deque[tuple[jax.Array, jax.Array]] = deque()

    def of(self, column: _native.RaggedColumn) -> LeftImages:
        """The images of a batch."""
        return LeftImages(column, self)

    def finish(self, column: _native.RaggedColumn) -> jax.Array:
        """The finished images, an array of JAX's own: its memory may not be written yet when this returns."""
        while self._read and self._read[0][0].is_ready():
            self._read.popleft()
        if self._finisher is None:
            # Not before the first batch, as the kernels are loaded with it.
            self._finisher = _native.Finisher(self._index, *self._form)
        made, (cpu, device) = self._finisher.finish(column.values, column.offsets, column.blends)
        self.decoded["cpu"] += cpu
        self.decoded["device"] += device
        lent = jax.dlpack.from_dlpack(made)
        own, read = _copied(lent)
        self._read.append((read, lent))
        return own


def _copy(images: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A copy, and what is ready when it is: the caller may give the copy away."""
    return jax.numpy.copy(images), images.ravel()[:1]


_copied: Any = jax.jit(_copy)


class LeftImages:
    """The images of a batch before the device finishes them."""

    def __init__(self, column: _native.RaggedColumn, recipe: Recipe) -> None:
        self._column, self._recipe = column, recipe

    def finish(self) -> jax.Array:
        """The finished images, on the device; called once."""
        return self._recipe.finish(self._column)

    def __repr__(self) -> str:
        return f"<{self._column.offsets.shape[0] - 1} images that a device finishes>"
