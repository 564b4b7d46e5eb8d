"""`wellfed.accelerate`: what lazy images give is what Pillow gives, whatever is done to them.

`WELLFED_ACCELERATE_CHAINS` says how many random chains of calls are tried; the default is what every run does.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wellfed as wf
from PIL import Image, ImageDraw, ImageFile, ImageOps, JpegImagePlugin, PngImagePlugin
from wellfed import _accelerate

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision.transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as v2_functional  # noqa: E402

CHAINS = int(os.environ.get("WELLFED_ACCELERATE_CHAINS", "400"))


def _noise(mode: str, size: tuple[int, int], seed: int = 0) -> Image.Image:
    """Soft shapes with noise, so that neither filters nor rounding have it easy."""
    rng = np.random.default_rng(seed)
    channels = len(mode)
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    waves = [127 + 100 * np.sin(x / (5 + 3 * c)) * np.cos(y / (7 + 2 * c)) for c in range(channels)]
    pixels = np.stack(waves, -1) + rng.normal(0, 12, (size[1], size[0], channels))
    pixels = pixels.clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)


def _saved(image: Image.Image, format_: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format_, **options)
    return file.getvalue()


def _exif(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = "a description"
    return exif.tobytes()


def _files() -> dict[str, bytes]:
    rgb, grey = _noise("RGB", (67, 45)), _noise("L", (50, 61))
    files = {
        "rgb.jpg": _saved(rgb, "JPEG", quality=90),
        "444.jpg": _saved(rgb, "JPEG", quality=95, subsampling=0),
        "422.jpg": _saved(rgb, "JPEG", quality=60, subsampling=1),
        "progressive.jpg": _saved(rgb, "JPEG", progressive=True),
        "restarts.jpg": _saved(rgb, "JPEG", restart_marker_blocks=2),
        "grey.jpg": _saved(grey, "JPEG"),
        "cmyk.jpg": _saved(_noise("CMYK", (40, 33)), "JPEG"),
        "1x1.jpg": _saved(_noise("RGB", (1, 1)), "JPEG"),
        "1x90.jpg": _saved(_noise("RGB", (1, 90)), "JPEG"),
        "large.jpg": _saved(_noise("RGB", (301, 233)), "JPEG", comment=b"a comment", dpi=(72, 300)),
        "rgb.png": _saved(rgb, "PNG", dpi=(100, 100)),
        "grey.png": _saved(grey, "PNG"),
        "bits.png": _saved(grey.convert("1"), "PNG"),
        "two_bits.png": _saved(grey.quantize(4), "PNG", bits=2),
        "alpha.png": _saved(_noise("RGBA", (40, 33)), "PNG"),
        "grey_alpha.png": _saved(grey.convert("LA"), "PNG"),
        "palette.png": _saved(rgb.quantize(64), "PNG"),
        "palette_alpha.png": _saved(rgb.quantize(64), "PNG", transparency=bytes(range(64))),
        "transparent.png": _saved(rgb, "PNG", transparency=(1, 2, 3)),
        "16.png": _saved(Image.fromarray(np.arange(0, 60000, 20, np.uint16).reshape(50, 60)), "PNG"),
        "1x1.png": _saved(_noise("L", (1, 1)), "PNG"),
        "frames.png": _saved(rgb, "PNG", save_all=True, append_images=[ImageOps.mirror(rgb)]),
        "text.png": _saved(rgb, "PNG", pnginfo=_text()),
        "late_text.png": _late_text(_saved(rgb, "PNG")),
        "gif.gif": _saved(rgb, "GIF"),
        "mpo.jpg": _saved(rgb, "MPO", save_all=True, append_images=[grey.convert("RGB")]),
        "none.jpg": b"no image at all",
    }
    for orientation in range(1, 9):
        files[f"orientation{orientation}.jpg"] = _saved(rgb, "JPEG", exif=_exif(orientation))
    files["orientation6.png"] = _saved(rgb, "PNG", exif=_exif(6))
    jpeg, png = files["large.jpg"], files["rgb.png"]
    files["cut.jpg"] = jpeg[: len(jpeg) // 2]
    files["cut_early.jpg"] = jpeg[:100]
    files["trailing.jpg"] = jpeg + b"more bytes"
    files["damaged.jpg"] = jpeg[:3000] + bytes(500) + jpeg[3500:]
    files["cut.png"] = png[: len(png) // 2]
    files["cut_end.png"] = png[:-6]
    files["checksum.png"] = png[:200] + bytes([png[200] ^ 1]) + png[201:]
    return files


def _text() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("Title", "before the pixels")
    return info


def _late_text(png: bytes) -> bytes:
    import struct
    import zlib

    data = b"tEXtComment\0behind the pixels"
    chunk = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return png[:-12] + chunk + png[-12:]


FILES = _files()
LAZY = ["rgb.jpg", "grey.jpg", "progressive.jpg", "large.jpg", "orientation6.jpg", "cmyk.jpg", "rgb.png", "alpha.png"]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = dict(Image.OPEN), v1.functional.to_tensor, ImageOps.exif_transpose
    yield
    assert (dict(Image.OPEN), v1.functional.to_tensor, ImageOps.exif_transpose) == before


def _is_lazy(image: Any) -> bool:
    return type(image) in _accelerate._pillow().kinds


def _opened(name: str, lazy: bool) -> Any:
    if not lazy:
        return Image.open(io.BytesIO(FILES[name]))
    with wf.accelerate():
        return Image.open(io.BytesIO(FILES[name]))


def _outcome(do: Callable[[], Any]) -> Any:
    """What comes of a call: a value, or an exception; with its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, error = do(), None
        except Exception as e:
            value, error = None, e
    said = [(w.category, str(w.message)) for w in caught]
    return value, error, said


def _message(error: BaseException) -> str:
    # Addresses of files differ from run to run.
    return " ".join(word for word in str(error).split() if "0x" not in word)


def _random_call(rng: random.Random, size: tuple[int, int]) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    width, height = size

    def box(floats: bool = False, outside: bool = False) -> tuple[float, ...]:
        low, high = (-5, 6) if outside else (0, 0)
        x, y = (sorted(rng.randint(low, most + high) for _ in range(2)) for most in size)
        if floats:
            return x[0] + 0.0, y[0] * 0.9, x[1] * 0.99, float(y[1])
        return x[0], y[0], x[1], y[1]

    def small() -> tuple[int, int]:
        return rng.randint(1, 80), rng.randint(1, 80)

    resample = Image.Resampling(rng.choice([0, 1, 2, 2, 2, 3, 4, 5]))
    calls: list[tuple[int, str, Any, dict[str, Any]]] = [
        (4, "convert", lambda: ("RGB",), {}),
        (2, "convert", lambda: ("L",), {}),
        (1, "convert", lambda: (rng.choice(["1", "P", "CMYK", "RGBA", "HSV", "nonsense", None]),), {}),
        (1, "convert", lambda: ("L", (0.5, 0.2, 0.1, 3)), {}),
        (6, "crop", lambda: (box(),), {}),
        (1, "crop", lambda: (box(outside=True),), {}),
        (1, "crop", lambda: (box(floats=True),), {}),
        (1, "crop", lambda: (), {}),
        (1, "crop", lambda: ((0, 0, width, height),), {}),
        (1, "crop", lambda: ((5, 5, 3, 9),), {}),
        (6, "resize", lambda: (small(), resample), {}),
        (1, "resize", lambda: (list(small()),), {}),
        (1, "resize", lambda: (small(), resample, box()), {}),
        (1, "resize", lambda: (small(), resample), {"reducing_gap": 2.0}),
        (1, "resize", lambda: ((width, height), resample), {}),
        (1, "resize", lambda: ((0, 3),), {}),
        (1, "resize", lambda: (small(), 9), {}),
        (4, "transpose", lambda: (Image.Transpose(rng.randint(0, 6)),), {}),
        (1, "transpose", lambda: (rng.choice([7, -1, "x"]),), {}),
        (2, "rotate", lambda: (rng.choice([0, 90, 180, 270, 360, -90]),), {"expand": rng.random() < 0.7}),
        (1, "rotate", lambda: (33, resample if resample in (0, 2, 3) else 0), {}),
        (1, "copy", lambda: (), {}),
        (1, "load", lambda: (), {}),
        (1, "getpixel", lambda: ((0, 0),), {}),
        (1, "tobytes", lambda: (), {}),
        (1, "draft", lambda: ("L", (20, 20)), {}),
        (1, "thumbnail", lambda: ((30, 20),), {}),
        (1, "seek", lambda: (rng.randint(0, 2),), {}),
        (1, "tell", lambda: (), {}),
        (1, "verify", lambda: (), {}),
        (1, "putpixel", lambda: ((0, 0), 7), {}),
        (1, "getexif", lambda: (), {}),
        (1, "filter", lambda: (Image.core and __import__("PIL.ImageFilter").ImageFilter.BLUR,), {}),
        (1, "putpalette", lambda: (list(range(256)) * 3,), {}),
        (1, "putalpha", lambda: (9,), {}),
        (1, "reduce", lambda: (2,), {}),
        (1, "split", lambda: (), {}),
        (1, "getbands", lambda: (), {}),
        (1, "getextrema", lambda: (), {}),
        (1, "histogram", lambda: (), {}),
        (1, "quantize", lambda: (5,), {}),
    ]
    _, name, args, kwargs = rng.choices(calls, [call[0] for call in calls])[0]
    return name, args(), kwargs


def _looks(image: Image.Image) -> Any:
    """What can be said of an image before its pixels."""
    size = image.size, image.width, image.height
    return size, image.mode, image.format, dict(image.info), image.getbands(), image.readonly


def _pixels(image: Image.Image, how: int) -> Any:
    if how == 0:
        return np.asarray(image).tolist()
    if how == 1:
        return image.tobytes()
    if how == 2:
        return pickle.loads(pickle.dumps(image)).tobytes()
    if how == 3:
        return copy.deepcopy(image).tobytes()
    if how == 4:
        return _saved(image, "PNG")
    if how == 5:
        return v1.functional.pil_to_tensor(image).tolist()
    image.load()
    return Image.Image.tobytes(image)


def _chain(seed: int) -> int:
    """Does the same to an image of Pillow's and to a lazy one, and compares all that comes of it."""
    rng = random.Random(seed)
    name = rng.choice([*FILES, *LAZY * 2])
    what = f"seed {seed}: {name}"
    theirs, their_error, their_words = _outcome(lambda: _opened(name, False))
    ours, our_error, our_words = _outcome(lambda: _opened(name, True))
    images, lazy = [(theirs, ours)], 0
    for _ in range(rng.randint(1, 8)):
        assert type(their_error) is type(our_error), f"{what}: {their_error!r} {our_error!r}"
        assert our_words == their_words, what
        if their_error is not None:
            assert _message(our_error) == _message(their_error), what
            break
        if isinstance(theirs, Image.Image):
            images.append((theirs, ours))
            lazy += _is_lazy(ours)
            assert isinstance(ours, type(theirs)), what
            assert type(ours).__qualname__ == type(theirs).__qualname__, what
            assert _looks(ours) == _looks(theirs), what
        elif isinstance(theirs, (int, float, bytes, str)):
            assert ours == theirs, what
        # Sometimes from an image before the last.
        theirs, ours = images[-1] if rng.random() < 0.8 else rng.choice(images)
        method, args, kwargs = _random_call(rng, theirs.size)
        what += f".{method}({args}, {kwargs})"
        theirs, their_error, their_words = _outcome(lambda: getattr(theirs, method)(*args, **kwargs))  # noqa: B023
        ours, our_error, our_words = _outcome(lambda: getattr(ours, method)(*args, **kwargs))  # noqa: B023
    rng.shuffle(images)
    for theirs, ours in images:
        if theirs is not None:
            how = rng.randrange(7)
            expected, their_error, _ = _outcome(lambda: _pixels(theirs, how))  # noqa: B023
            found, our_error, _ = _outcome(lambda: _pixels(ours, how))  # noqa: B023
            assert type(their_error) is type(our_error), f"{what}: {how}: {their_error!r} {our_error!r}"
            assert found == expected, f"{what}: {how}"
    return lazy


@pytest.mark.parametrize("block", range(8))
def test_any_chain_of_calls_gives_what_pillow_gives(block: int) -> None:
    lazy = sum(_chain(seed) for seed in range(block, CHAINS, 8))
    assert lazy > CHAINS // 16, "the chains have hardly met a lazy image"
