"""Images that the device of a loader finishes: `DataLoader(..., device="cuda", on_device="decode")`.

The engine's batches hold what is left of their images (`wellfed.torch._left`), and the device stage of the loader
finishes them. Invariant: a batch is the same as without, whoever made its images, to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wellfed as wf
from wellfed import _native
from wellfed._loader import left_of
from wellfed._share import DeviceShare

from .._device import BatchPages
from .forms import Chain

if TYPE_CHECKING:
    from .._left import LeftImages
    from .plan import Plan

__all__ = ["Left", "check_left", "kept"]


class Left:
    """What a device does for a loader, and how much of it.

    Args:
        loader: With the device and `on_device`.

    Attributes:
        share: What chooses the device's share, where that is left open.
    """

    def __init__(self, loader: Any) -> None:
        self.device = loader.device
        self._cast = loader.float_dtype
        self._recipe: Any = None
        self._pages: BatchPages | None = None
        self._open: list[_native.Loader] = []
        self.share = DeviceShare(self._apply, ahead=self._ahead) if loader.on_device == "auto" else None

    @property
    def size(self) -> list[int] | None:
        """Channels, height and width of the finished images; None if none are left."""
        return None if self._recipe is None else list(self._recipe.size)

    @property
    def decoded(self) -> dict[str, int]:
        """How many images were decoded by whom."""
        return {} if self._recipe is None else dict(self._recipe.decoded)

    def opened(self, source: _native.Dataset) -> _native.Loader:
        """A loader of the engine, whose batches lie where the device reads them."""
        pages = None
        if self.device.type == "cuda" and source.page_locked(str(self.device)):
            pages = self._pages = self._pages or BatchPages(self.device)
        native = source.loader_given(False, str(self.device), None if pages is None else pages.page_lock)
        if self._recipe is None:
            (self._recipe,) = left_of(native) or [None]
            if self._recipe is not None:
                self._recipe.cast = self._cast
        return native

    def begin(self, native: _native.Loader) -> None:
        """An epoch of this loader of the engine begins, in the caller's thread."""
        if self._pages is not None:
            self._pages.begin()
        if self.share is not None:
            self._open.append(native)
            native.set_device_share(self.share.share)
            self.share.begin()

    def over(self, native: _native.Loader) -> None:
        """It has ended."""
        self._open = [one for one in self._open if one is not native]

    def words(self, source: wf.Dataset) -> str:
        """What is left of the images of this data set, and who decoded them so far."""
        lines = source.batch(1)._native.explain(str(self.device)).splitlines()
        found = next((line for line in lines if line.strip().startswith("leave to the device")), "")
        words = found.partition("): ")[2].removesuffix(" is done there") or "nothing is left to it"
        if self.size is None:
            return words
        cpu, device, nvjpeg = (self.decoded[who] for who in ("cpu", "device", "nvjpeg"))
        so_far = f"; images decoded by the CPU {cpu}, by the device's kernels {device}, by nvJPEG {nvjpeg}"
        return words + (so_far if cpu + device + nvjpeg else "")

    def _apply(self, share: float) -> None:
        for native in self._open:
            native.set_device_share(share)

    def _ahead(self) -> int:
        return max((native.depth for native in self._open), default=4)

    def images(self, column: Any) -> LeftImages | None:
        """The images of a batch, which the device is to finish; None if the engine has made them."""
        if self._recipe is None or type(column) is not _native.RaggedColumn:
            return None
        images: LeftImages = self._recipe.of(column)
        return images


def kept(loader: Any, chain: Chain, together: bool, assembled: bool) -> str:
    """Why no images of a loader can be left to a device although the engine makes them; empty if they can.

    Args:
        loader: The loader.
        chain: What becomes of images.
        together: Whether samples stand side by side in a batch.
        assembled: Whether samples are put together of several parts.
    """
    if not loader._auto_collation:
        return "without a batch size there are no batches"
    if together:
        return "samples stand side by side in a batch"
    if assembled:
        return "a sample has several images, or parts that move with its image"
    if chain.outcome is not None:
        return "masks or boxes move with the images"
    return ""


def check_left(loader: Any, plan: Plan) -> None:
    """Whether the images of a loader with `on_device` are the engine's to leave to the device.

    Raises:
        ValueError: They are not.
    """
    native = plan.native_source or getattr(plan.stream, "native", None)
    if getattr(native, "left", None) is not None:
        return
    why = getattr(native, "kept", "")
    hint = 'leave it at "copy": explain() says then what runs where'
    if plan.kind != "native":
        line: Any = next((line for _, line in plan.lines if not line.native), None)
        why = "" if line is None else f"{line.part}: {line.why}" if line.why else line.part
        if line is not None and line.change:
            hint = f"{line.change}; or {hint}"
    elif not why:
        why = "batches are put together as the library does it"
    why = why or "there are no images to decode"
    raise ValueError(
        f"on_device={loader.on_device!r} is for batches of images that the engine makes whole, and here {why}"
        f"\nhint: {hint}"
    )
