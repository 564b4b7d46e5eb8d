"""Images of every format that is decoded, beside Pillow's pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageSequence

import wellfed as wf

SIZE = (61, 47)


def photo(mode: str = "RGB", size: tuple[int, int] = SIZE, seed: int = 0) -> Image.Image:
    """Something between a photograph and noise."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    waves = [128 + 90 * np.sin(x / (5 + c) + y / (9 - c)) + rng.normal(0, 12, x.shape) for c in range(4)]
    image = Image.fromarray(np.stack(waves, 2).clip(0, 255).astype(np.uint8), "RGBA")
    return image if mode == "RGBA" else image.convert("RGB").convert(mode)


def saved(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


def webps() -> Iterator[tuple[str, bytes]]:
    for quality in (1, 20, 50, 75, 90, 100):
        for method in (0, 4, 6):
            size = (SIZE[0] + quality % 7, SIZE[1] + method)
            yield (
                f"webp-{quality}-{method}",
                saved(photo(size=size), format="WEBP", quality=quality, method=method),
            )
    yield "webp-alpha", saved(photo("RGBA"), format="WEBP", quality=60)
    yield "webp-lossless", saved(photo(), format="WEBP", lossless=True)
    yield "webp-lossless-alpha", saved(photo("RGBA"), format="WEBP", lossless=True, exact=True)
    frames = [photo(seed=seed) for seed in range(3)]
    yield (
        "webp-animated",
        saved(frames[0], format="WEBP", save_all=True, append_images=frames[1:], lossless=True),
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    yield "webp-exif", saved(photo(), format="WEBP", exif=exif)


def gifs() -> Iterator[tuple[str, bytes]]:
    colours = photo().quantize(37)
    yield "gif", saved(colours, format="GIF")
    yield "gif-interlaced", saved(colours, format="GIF", interlace=1)
    yield "gif-grey", saved(photo("L"), format="GIF")
    yield "gif-transparent", saved(colours, format="GIF", transparency=3)
    yield "gif-bits", saved(photo("1"), format="GIF")
    frames = [photo(seed=seed).quantize(16) for seed in range(3)]
    yield "gif-animated", saved(frames[0], format="GIF", save_all=True, append_images=frames[1:])


def tiffs() -> Iterator[tuple[str, bytes]]:
    for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits"):
        for mode in ("L", "RGB", "RGBA"):
            yield f"tiff-{mode}-{compression}", saved(photo(mode), format="TIFF", compression=compression)
    for orientation in range(1, 9):
        tags = {274: orientation}
        yield f"tiff-turned-{orientation}", saved(photo(), format="TIFF", tiffinfo=tags)
    yield "tiff-pages", saved(photo(), format="TIFF", save_all=True, append_images=[photo(seed=1)])


def bmps() -> Iterator[tuple[str, bytes]]:
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"bmp-{mode}", saved(photo(mode), format="BMP")
    yield "bmp-few", saved(photo().quantize(5), format="BMP")


def pnms() -> Iterator[tuple[str, bytes]]:
    for mode in ("1", "L", "RGB"):
        yield f"pnm-{mode}", saved(photo(mode), format="PPM")
    numbers = np.random.default_rng(0).integers(0, 101, (5, 7, 3))
    text = " ".join(map(str, numbers.ravel()))
    yield "pnm-text", f"P3\n# a comment\n7 5 100\n{text}\n".encode()
    yield "pnm-small", b"P6 7 5 100\n" + numbers.astype(np.uint8).tobytes()
    yield "pnm-wide", b"P6 7 5 1000\n" + (numbers * 10).astype(">u2").tobytes()
    yield "pnm-bits", b"P1 4 2\n0110 1\n0 0 1"


FILES = {name: data for kind in (webps, gifs, tiffs, bmps, pnms) for name, data in kind()}


def pillow(data: bytes, mode: str) -> npt.NDArray[np.uint8]:
    image = np.asarray(Image.open(io.BytesIO(data)).convert(mode))
    return image[:, :, None] if image.ndim == 2 else image


def decoded(path: Path, mode: str = "RGB") -> Any:
    """By the engine: `wf.decode` leaves to Pillow what it does not know."""
    image = np.asarray(wf.image_files([path]).with_options(mode=mode)[0])
    return image.transpose(1, 2, 0)


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_pillows(name: str, tmp_path: Path) -> None:
    data = FILES[name]
    path = tmp_path / "0.jpg"  # the name plays no part
    path.write_bytes(data)
    for mode in ("RGB", "L", "RGBA"):
        expected = pillow(data, mode)
        assert np.array_equal(decoded(path, mode).reshape(expected.shape), expected), (name, mode)


def test_folders_of_all_formats_make_batches(tmp_path: Path) -> None:
    kinds = {"webp-75-4": "webp", "gif": "gif", "tiff-RGB-None": "tif", "bmp-RGB": "bmp", "pnm-RGB": "ppm"}
    for number, (name, ending) in enumerate(kinds.items()):
        folder = tmp_path / "a"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.{ending}").write_bytes(FILES[name])
    if "gif" in kinds.values():  # torchvision lists no GIF
        (tmp_path / "a" / "1.gif").rename(tmp_path / "a" / "1.png")
    from wellfed import transforms as T

    ds = wf.image_folder(tmp_path).map(T.Resize((20, 24))).batch(5)
    ((images, _labels),) = ds.numpy()
    for image, name in zip(images, kinds, strict=True):
        expected = (
            Image.open(io.BytesIO(FILES[name])).convert("RGB").resize((24, 20), Image.Resampling.BILINEAR)
        )
        assert np.array_equal(image.transpose(1, 2, 0), np.asarray(expected)), name


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (saved(photo("L").convert("I;16"), format="TIFF"), "Gray(16)"),
        (saved(photo("P"), format="TIFF"), "TIFF"),
        (saved(photo(), format="TIFF", compression="jpeg"), "compression"),
        (b"P5 2 1 65535\n\0\0\0\0", "maximum of 65535"),
        (b"\0\0\0\x1cftypavif", "AVIF"),
    ],
)
def test_what_is_not_decoded_is_named(data: bytes, what: str, tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(data)
    with pytest.raises(wf.UnsupportedSampleError) as caught:
        decoded(tmp_path / "0.jpg")
    assert what in str(caught.value), str(caught.value)


def test_frames_after_the_first_are_left(tmp_path: Path) -> None:
    image = Image.open(io.BytesIO(FILES["gif-animated"]))
    first = np.asarray(next(iter(ImageSequence.Iterator(image))).convert("RGB"))
    (tmp_path / "0.gif").write_bytes(FILES["gif-animated"])
    assert np.array_equal(decoded(tmp_path / "0.gif"), first)
