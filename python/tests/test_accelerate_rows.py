"""Row indexes of JPEGs that are opened one by one: shared by processes, and no pixel depends on them."""

from __future__ import annotations

import io
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed._accelerate import rows

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="the system shares no memory")


def _jpeg(seed: int, **options: Any) -> bytes:
    """A file that is large enough for an index to be of use."""
    pixels = np.random.default_rng(seed).integers(0, 256, (150, 211, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=80, **options)
    return file.getvalue()


def _counts() -> tuple[int, int]:
    counted = rows.stats()
    assert counted is not None
    return counted["images"], counted["used"]


def _part(data: bytes, box: tuple[int, int, int, int], lazy: bool) -> bytes:
    with wf.accelerate() if lazy else warnings.catch_warnings():
        return Image.open(io.BytesIO(data)).convert("RGB").crop(box).resize((20, 20)).tobytes()


def test_parts_have_the_same_pixels_the_second_time() -> None:
    rng = random.Random(4)
    files = [
        _jpeg(os.getpid()),
        _jpeg(os.getpid() + 1, restart_marker_blocks=3),
        _jpeg(os.getpid() + 2, progressive=True),
    ]
    images, used = _counts()
    for _ in range(12):
        left, top = rng.randrange(150), rng.randrange(100)
        box = (left, top, rng.randint(left + 1, 211), rng.randint(top + 1, 150))
        for data in files:
            assert _part(data, box, True) == _part(data, box, False)
    images, used = _counts()[0] - images, _counts()[1] - used
    assert 1 <= images <= 2, "a progressive file has none"
    assert used >= 11


def test_another_file_with_the_same_end_is_decoded_as_itself() -> None:
    first = _jpeg(os.getpid() + 3)
    # As long and with the same end, as if somebody had worked on its beginning.
    scan = first.index(b"\xff\xda") + 14
    other = bytearray(first)
    other[30] ^= 1  # a number of a quantization table
    assert len(other) == len(first)
    assert scan > 31
    for box in [(90, 70, 200, 140), (100, 100, 150, 150), (0, 0, 211, 150)]:
        for data in (first, bytes(other), first):
            assert _part(data, box, True) == _part(data, box, False)


class Photos(torch.utils.data.Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        return torch.from_numpy(np.array(image.crop((100, 80, 180, 140))))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_use_what_those_of_the_epoch_before_found_out(start: str, tmp_path: Path) -> None:
    from wellfed.torch import DataLoader

    for i in range(8):
        seed = 100 * os.getpid() + 10 * i + (start == "fork")
        (tmp_path / f"{i}.jpg").write_bytes(_jpeg(seed))
    photos = Photos(tmp_path)
    loader = DataLoader(photos, 2, num_workers=2, multiprocessing_context=start)
    expected = list(torch.utils.data.DataLoader(photos, 2))
    before = _counts()
    for epoch in range(2):
        assert all(torch.equal(*pair) for pair in zip(loader, expected, strict=True))
        images, used = (now - then for now, then in zip(_counts(), before, strict=True))
        assert images == 8
        assert used == 8 * epoch


def test_stock_workers_that_are_forked_share_them_too(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(_jpeg(1000 * os.getpid() + i))
    photos = Photos(tmp_path)
    with wf.accelerate():
        loader = torch.utils.data.DataLoader(photos, 2, num_workers=2, multiprocessing_context="fork")
        before = _counts()
        first, second = list(loader), list(loader)
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert [now - then for now, then in zip(_counts(), before, strict=True)] == [4, 4]
