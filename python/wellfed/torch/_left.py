"""Images that the device finishes: what `ds.torch(device="cuda", on_device="decode")` copies instead of pixels.

The engine leaves records (what is known of an image, weights of its resize, and pixels or quantized coefficients), and
the kernels of wellfed-cuda make images of them, with the same bits. All is submitted to the stream that is current:
for the stage that copies ahead, its own.
"""

from __future__ import annotations

import site
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from .. import _native
from ._augment import submit
from ._device import target

SCRATCH = 1 << 29
"""Bytes of device memory between the kernels; a batch that needs more is finished in parts."""


def open_nvjpeg(device: Any) -> tuple[str, tuple[int, int] | None, str]:
    """Finds nvJPEG and opens it on a device.

    Returns:
        Who decodes (``"hardware"``, ``"gpu-hybrid"``, ``"hybrid"``), engines and cores of each, and the library's file.

    Raises:
        RuntimeError: There is no nvJPEG, which says what to install; or the device cannot be used.
    """
    place = target(device)
    assert place is not None  # A CUDA device was named.
    with torch.cuda.device(place):
        # torch makes the device's context first.
        index = torch.cuda.current_device()
        torch.zeros(1, device=f"cuda:{index}")
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    folders.append(str(Path(torch.__file__).parents[1]))
    return _native.open_nvjpeg(index, list(dict.fromkeys(folders)))


class Recipe:
    """What the images of one column become.

    Attributes:
        size: Channels, height and width.
        dtype: Type of elements.
        cast: What floating point elements are cast to when they are finished; None: they stay as they are.
        channels_first: Whether the shape of a batch is (N, C, H, W), or (N, H, W, C).
        decoded: Images so far whose pixels came from the CPU (``"cpu"``), from kernels that decoded coefficients
            (``"device"``), and from nvJPEG (``"nvjpeg"``).
    """

    def __init__(self, size: list[int], dtype: str, channels_first: bool, table: bytes) -> None:
        """As `_native.Loader.left_images` says; `table` has 256 numbers of 32 bits for each channel."""
        self.size = size
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.cast: torch.dtype | None = None
        self.channels_first = channels_first
        self.decoded = {"cpu": 0, "device": 0, "nvjpeg": 0}
        self.map = table
        """What becomes of 8-bit values: 256 numbers of 32 bits for each channel."""
        # Not a cache of a bound method: that is a cycle, and tables would stay until garbage is collected.
        self._tables: dict[tuple[torch.device, bool], torch.Tensor] = {}

    def of(self, column: _native.RaggedColumn) -> LeftImages:
        """The images of a batch."""
        return LeftImages(
            from_dlpack(column.values.__dlpack__()),
            from_dlpack(column.offsets.__dlpack__()),
            self,
            column.blends,
        )

    def table(self, device: torch.device, identity: bool = False) -> torch.Tensor:
        """The table in the device's memory; that of values that stay as they are, if it is the `identity`."""
        table = self._tables.get((device, identity))
        if table is None:
            same = torch.arange(256, dtype=torch.int32).repeat(4).view(torch.uint8)
            table = (same if identity else torch.frombuffer(bytearray(self.map), dtype=torch.uint8)).to(
                device
            )
            if device.type == "cuda":
                # It is used on other streams than the one that copies it.
                torch.cuda.current_stream(device).synchronize()
            self._tables[device, identity] = table
        return table


class LeftImages:
    """The images of a batch before the device finishes them: `to` gives them finished.

    It goes ahead as a tensor does: `Copies` calls `to` with its own stream as the current one.
    """

    def __init__(
        self,
        records: torch.Tensor,
        offsets: torch.Tensor,
        recipe: Recipe,
        blends: Sequence[tuple[float, list[int] | None]] = (),
    ) -> None:
        """Records one after the other, uint8, and int64 offsets, one more than there are images.

        Finished images are mixed by `blends`, in order: sums with this weight of an image itself, or a rectangle of the
        image before (x1, y1, x2, y2).
        """
        self._blends = blends
        self._records = records
        self._offsets = offsets
        self._recipe = recipe

    @property
    def nbytes(self) -> int:
        """Bytes that are copied."""
        return int(self._records.nbytes + self._offsets.nbytes)

    def to(self, device: torch.device | str, non_blocking: bool = True) -> torch.Tensor:
        """The finished images on `device`: copies and launches are submitted to its current stream.

        On the CPU the same kernels run in this thread, one image after the other: for tests.
        """
        device, recipe = torch.device(device), self._recipe
        count = len(self._offsets) - 1
        channels, height, width = recipe.size
        sides = (channels, height, width) if recipe.channels_first else (height, width, channels)
        out = torch.empty((count, *sides), dtype=recipe.dtype, device=device)
        if count == 0:
            return self._cast(out)
        plan = _native.FinishPlan(
            self._records.data_ptr(), self._records.nbytes, self._offsets.data_ptr(), count, SCRATCH
        )
        records = self._records.to(device, non_blocking=non_blocking)
        offsets = self._offsets.to(device, non_blocking=non_blocking)
        scratch = torch.empty(plan.scratch + 16, dtype=torch.uint8, device=device)
        between = plan.between(channels)
        table = recipe.table(device, identity=between is not None)
        index, stream = None, 0
        if device.type == "cuda":
            index = torch.cuda.current_device() if device.index is None else device.index
            stream = int(torch.cuda.current_stream(device).cuda_stream)
        made, stride = out, out.stride()
        step = stride if recipe.channels_first else (stride[0], stride[3], stride[1], stride[2])
        if between is not None:
            # Bytes, of which the kernels of `Augment` make the batch.
            channels = between[0]
            made = torch.empty((count, *between), dtype=torch.uint8, device=device)
            step = made.stride()
        refused = plan.run(
            index,
            stream,
            records.data_ptr(),
            offsets.data_ptr(),
            -(-scratch.data_ptr() // 16) * 16,
            table.data_ptr(),
            made.data_ptr(),
            channels,
            made.element_size(),
            step,
        )
        by_host, by_kernels, by_nvjpeg = plan.decoded
        recipe.decoded["cpu"] += by_host + refused
        recipe.decoded["device"] += by_kernels
        recipe.decoded["nvjpeg"] += by_nvjpeg - refused
        if between is not None:
            size, dtype = recipe.size, str(recipe.dtype).removeprefix("torch.")
            after = plan.after(
                made.data_ptr(), out.data_ptr(), size, dtype, recipe.channels_first, recipe.map
            )
            submit(after, device)
        for blend in self._blends:
            dtype = str(recipe.dtype).removeprefix("torch.")
            _native.mix_images(
                index, stream, out.data_ptr(), count, recipe.size, dtype, recipe.channels_first, *blend
            )
        return self._cast(out)

    def _cast(self, made: torch.Tensor) -> torch.Tensor:
        cast = self._recipe.cast
        return made if cast is None or not made.is_floating_point() else made.to(cast)

    def mixed(self, weight: float, corners: Sequence[int] | None) -> LeftImages:
        """These, mixed once more when they are finished: by a blend as `__init__` takes them."""
        blend = (weight, None if corners is None else list(corners))
        return LeftImages(self._records, self._offsets, self._recipe, [*self._blends, blend])

    def record_stream(self, stream: Any) -> None:
        """Nothing to mark: what the device reads is kept until its event, and what `to` took is its stream's."""

    def __repr__(self) -> str:
        return f"<{len(self._offsets) - 1} images that a device finishes, {self._records.nbytes} bytes>"
