"""JPEGs that Pillow writes decode to the pixels that Pillow reads, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from pictures import picture

SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}
SIZES = [(1, 1), (2, 1), (1, 2), (3, 5), (8, 8), (9, 7), (16, 16), (17, 15), (33, 31), (67, 71), (240, 161)]


class Folder:
    """Pictures that are saved, then all compared at once."""

    def __init__(self, root: Path) -> None:
        self.root = root / "class"
        self.root.mkdir(parents=True)

    def save(self, name: str, image: Image.Image, **options: Any) -> None:
        image.save(self.root / f"{name}.jpg", **options)

    def compare(self, mode: str = "RGB") -> None:
        """Every file, in the engine and in Pillow."""
        paths = sorted(self.root.iterdir())
        ds = wf.image_folder(self.root.parent).with_options(layout="NHWC", mode=mode)
        assert len(ds) == len(paths) > 0
        wrong = []
        for index, path in enumerate(paths):
            with Image.open(path) as image:
                expected = np.asarray(image.convert(mode))
            if not np.array_equal(ds.sample(index)[0].reshape(expected.shape), expected):
                wrong.append(path.stem)
        assert not wrong


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def rgb(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(picture(seed, height, width))


def grey(height: int, width: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(picture(seed, height, width)[..., 0])


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
def test_every_quality(folder: Folder, subsampling: str) -> None:
    for quality in range(1, 101):
        image = rgb(45, 38, quality)
        folder.save(f"q{quality:03}", image, quality=quality, subsampling=SUBSAMPLINGS[subsampling])
    folder.compare()


@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("optimize", [False, True])
def test_sizes(folder: Folder, subsampling: str, progressive: bool, optimize: bool) -> None:
    for seed, (height, width) in enumerate(SIZES):
        options = {"subsampling": SUBSAMPLINGS[subsampling], "progressive": progressive, "optimize": optimize}
        folder.save(f"{height}x{width}", rgb(height, width, seed), quality=88, **options)
    folder.compare()


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("progressive", [False, True])
def test_grey(folder: Folder, mode: str, progressive: bool) -> None:
    for seed, (height, width) in enumerate(SIZES):
        folder.save(f"{height}x{width}", grey(height, width, seed), quality=75, progressive=progressive)
    folder.compare(mode)


@pytest.mark.parametrize("rows", [False, True])
def test_restarts(folder: Folder, rows: bool) -> None:
    for interval in (1, 2, 5, 100):
        restart = {"restart_marker_rows" if rows else "restart_marker_blocks": interval}
        for subsampling in SUBSAMPLINGS:
            for progressive in (False, True):
                name = f"{interval}-{subsampling.replace(':', '')}-{progressive}"
                options = {"subsampling": SUBSAMPLINGS[subsampling], "progressive": progressive}
                folder.save(name, rgb(67, 71), quality=80, **options, **restart)
    folder.compare()


def test_colours_as_stored(folder: Folder) -> None:
    for seed, (height, width) in enumerate(SIZES):
        folder.save(f"{height}x{width}", rgb(height, width, seed), quality=90, keep_rgb=True)
    folder.compare()


@pytest.mark.parametrize("progressive", [False, True])
def test_inks(folder: Folder, progressive: bool) -> None:
    for seed, (height, width) in enumerate(SIZES):
        image = Image.fromarray(picture(seed, height, width, 4), "CMYK")
        folder.save(f"{height}x{width}", image, quality=85, progressive=progressive)
    folder.compare()


def test_markers_make_no_difference(folder: Folder) -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    folder.save(
        "exif", rgb(33, 31), exif=exif, comment=b"\xff" * 1000, icc_profile=bytes(70_000), dpi=(72, 300)
    )
    (folder.root / "junk.jpg").write_bytes((folder.root / "exif.jpg").read_bytes() + b"\xff\xd8junk" * 100)
    folder.compare()
