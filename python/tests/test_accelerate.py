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
from PIL import Image, ImageDraw, ImageEnhance, ImageFile, ImageOps, JpegImagePlugin, PngImagePlugin

import wellfed as wf
from wellfed import _accelerate
from wellfed._accelerate.images import pillow

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
LAZY = [
    "rgb.jpg",
    "grey.jpg",
    "progressive.jpg",
    "large.jpg",
    "orientation6.jpg",
    "cmyk.jpg",
    "rgb.png",
    "alpha.png",
]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = dict(Image.OPEN), v1.functional.to_tensor, ImageOps.exif_transpose
    yield
    assert (dict(Image.OPEN), v1.functional.to_tensor, ImageOps.exif_transpose) == before


def _is_lazy(image: Any) -> bool:
    return type(image) in pillow().kinds


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
        (2, "resize", lambda: (small(), resample, box()), {}),
        (2, "resize", lambda: (small(), resample, box(floats=True)), {}),
        (1, "resize", lambda: (small(), resample, box(outside=True), rng.choice([None, 1.0, 1.5, 4])), {}),
        (1, "resize", lambda: (size, resample, box(floats=True)), {}),
        (1, "resize", lambda: ((width, rng.randint(1, 60)), resample, (0, 0, width, height * 0.7)), {}),
        (2, "resize", lambda: (small(), resample), {"reducing_gap": rng.choice([1, 1.5, 2.0, 3, 0.5, "x"])}),
        (6, "ImageEnhance", lambda: (rng.choice(ENHANCERS), rng.choice(FACTORS), rng.choice(ORDERS)), {}),
        (2, "hue", lambda: (rng.choice([-0.5, -0.1, 0.0, 0.2, 0.5]),), {}),
        (1, "resize", lambda: ((width, height), resample), {}),
        (1, "resize", lambda: ((0, 3),), {}),
        (1, "resize", lambda: (small(), 9), {}),
        (4, "transpose", lambda: (Image.Transpose(rng.randint(0, 6)),), {}),
        (1, "transpose", lambda: (rng.choice([7, -1, "x"]),), {}),
        (2, "rotate", lambda: (rng.choice([0, 90, 180, 270, 360, -90]),), {"expand": rng.random() < 0.7}),
        (1, "rotate", lambda: (33, resample if resample in (0, 2, 3) else 0), {}),
        (2, "ImageOps.expand", lambda: (rng.choice([0, 3, (2, 5), (1, 2, 3, 4)]),), {}),
        (1, "ImageOps.expand", lambda: (rng.choice([2, -3]), rng.choice([9, (1, 2, 3), "red", 300])), {}),
        (2, "ImageOps.fit", lambda: (small(),), {}),
        (1, "ImageOps.fit", lambda: (small(), resample, rng.choice([0, 0.1]), (0.2, 1)), {}),
        (2, "ImageOps.pad", lambda: (small(),), {}),
        (2, "ImageOps.pad", lambda: (small(), resample, rng.choice(COLOURS), rng.choice(PLACES)), {}),
        (1, "ImageOps.pad", lambda: (rng.choice([list(small()), (0, 4), (3.5, 9)]),), {}),
        (1, "ImageOps.contain", lambda: (small(),), {}),
        (1, "ImageOps.cover", lambda: (small(), resample), {}),
        (1, "ImageOps.scale", lambda: (rng.choice([0.3, 1, 1.7]),), {}),
        (1, "ImageOps.crop", lambda: (rng.choice([0, 2, (1, 2, 3, 4)]),), {}),
        (1, "ImageOps.mirror", lambda: (), {}),
        (1, "ImageOps.flip", lambda: (), {}),
        (1, "ImageOps.exif_transpose", lambda: (), {}),
        (2, "ImageOps.exif_transpose", lambda: (), {"in_place": True}),
        (2, "functional.pad", lambda: (rng.choice([[3], [0, 4], [1, 2, 3, 4]]), rng.choice([0, 7])), {}),
        (
            1,
            "functional.pad",
            lambda: ([2, 5],),
            {"padding_mode": rng.choice(["edge", "reflect", "symmetric"])},
        ),
        (1, "copy", lambda: (), {}),
        (1, "load", lambda: (), {}),
        (1, "getpixel", lambda: ((0, 0),), {}),
        (1, "tobytes", lambda: (), {}),
        (1, "draft", lambda: ("L", (20, 20)), {}),
        (3, "draft", lambda: (rng.choice([None, "RGB", "L"]), rng.choice([small(), (9, 7), (30, 20)])), {}),
        (1, "draft", lambda: ("RGB", None), {}),
        (3, "thumbnail", lambda: (rng.choice([small(), (40.7, 33), (0, 5)]),), {}),
        (1, "thumbnail", lambda: (small(), resample, rng.choice([None, 1.0, 3])), {}),
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


def _called(image: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], lazy: bool) -> Any:
    """What a method gives, or a function of `ImageOps`, or changed colours."""
    if method in ("ImageEnhance", "hue"):
        with wf.accelerate() if lazy else warnings.catch_warnings():
            return _enhanced(image, *args) if method == "ImageEnhance" else _jittered(image, *args)
    house, _, name = method.rpartition(".")
    if not house:
        return getattr(image, method)(*args, **kwargs)
    with wf.accelerate() if lazy else warnings.catch_warnings():
        return getattr(ImageOps if house == "ImageOps" else v1.functional, name)(image, *args, **kwargs)


ENHANCERS = ("Brightness", "Contrast", "Color", "Color", "Sharpness")
FACTORS = (0, 0.3, 0.7, 1, 1.0, 1.4, 3.5, -0.5, np.float32(0.6), 1e30, float("inf"), 10**400)
COLOURS = (None, 0, 9, (1, 2, 3), "red", 300)
PLACES = ((0, 0), (0.3, 0.9), (1, 1), [0.5, 2], (-1, 0.5), ("x", 0))
ORDERS = ("", "", "", "paint", "twice", "degenerate", "other", "copy")


def _enhanced(image: Any, name: str, factor: Any, order: str) -> Any:
    """What an enhancer gives, where something else happens before it is asked."""
    enhancer = getattr(ImageEnhance, name)(image)
    assert type(enhancer).__name__ == name
    if order == "paint":
        image.paste(image.getpixel((0, 0)), (0, 0, 9, 9))
    elif order == "twice":
        enhancer.enhance(0.5)
    elif order == "degenerate":
        assert enhancer.degenerate.size == image.size
    elif order == "other":
        enhancer.image = image.transpose(Image.Transpose.ROTATE_180)
    elif order == "copy":
        enhancer = copy.copy(enhancer)
    return enhancer.enhance(factor)


def _jittered(image: Any, hue: float) -> Any:
    """What a `ColorJitter` in a `Compose` gives, which draws one hue and two factors."""
    torch.manual_seed(0)
    of: Any = v1 if hue < 0 else v2
    jitter = of.ColorJitter((0.5, 1.7), None, (0.2, 2), (hue, hue))
    return of.Compose([jitter])(image)


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
        theirs, their_error, their_words = _outcome(lambda: _called(theirs, method, args, kwargs, False))  # noqa: B023
        ours, our_error, our_words = _outcome(lambda: _called(ours, method, args, kwargs, True))  # noqa: B023
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


def _steps(form: str) -> Any:
    """The transforms of a training script."""
    mean, std = wf.IMAGENET_MEAN, wf.IMAGENET_STD
    if form == "v1":
        return v1.Compose(
            [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor(), v1.Normalize(mean, std)]
        )
    if form == "v1 for evaluation":
        return v1.Compose(
            [v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), v1.Normalize(list(mean), list(std))]
        )
    if form == "v1 in parts":
        return v1.Compose([v1.Resize((32, 40)), v1.ToTensor(), v1.RandomErasing(1.0), v1.Normalize(0.5, 0.5)])
    if form == "v1 of a larger image":
        return v1.Compose([v1.RandomCrop(32, padding=4, pad_if_needed=True), v1.PILToTensor()])
    if form == "v1 in place":
        return v1.Compose([v1.Resize((32, 32)), v1.ToTensor(), v1.Normalize([0.5], [0.5], inplace=True)])
    if form == "v1 of uint8":
        return v1.Compose(
            [v1.RandomVerticalFlip(), v1.Resize((32, 32), v1.InterpolationMode.BICUBIC), v1.PILToTensor()]
        )
    if form == "v1 with colours":
        jitter = v1.ColorJitter(0.4, 0.4, 0.4, 0.1)
        return v1.Compose([v1.RandomResizedCrop(32), jitter, v1.RandomGrayscale(0.5), v1.ToTensor()])
    scaled = v2.ToDtype(torch.float32, scale=True)
    if form == "v2":
        return v2.Compose(
            [
                v2.RandomResizedCrop(32),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                scaled,
                v2.Normalize(mean, std),
            ]
        )
    assert form == "v2 on tensors"
    return v2.Compose([v2.PILToTensor(), v2.RandomResizedCrop(32, antialias=True), scaled])


FORMS = [
    "v1",
    "v1 for evaluation",
    "v1 in parts",
    "v1 of a larger image",
    "v1 in place",
    "v1 of uint8",
    "v1 with colours",
    "v2",
    "v2 on tensors",
]


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("form", FORMS)
def test_torchvisions_transforms_give_the_same_tensors(form: str, mode: str) -> None:
    steps = _steps(form)

    def make(name: str, lazy: bool) -> Any:
        torch.manual_seed(5)
        with wf.accelerate() if lazy else warnings.catch_warnings():
            return steps(Image.open(io.BytesIO(FILES[name])).convert(mode))

    for name in [name for name in LAZY if "1x1" not in name]:
        (theirs, their_error, _), (ours, our_error, _) = (
            _outcome(lambda lazy=lazy, name=name: make(name, lazy)) for lazy in (False, True)
        )
        assert type(our_error) is type(their_error), f"{name}: {our_error!r}"
        assert (str(our_error), type(ours)) == (str(their_error), type(theirs))
        if their_error is None:
            assert ours.dtype == theirs.dtype, name
            assert torch.equal(ours, theirs), name


def test_a_tensor_is_ones_own() -> None:
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["rgb.jpg"]))
        tensor, again = (v1.functional.to_tensor(image) for _ in range(2))
    assert type(tensor) is torch.Tensor
    assert tensor.is_contiguous()
    assert tensor.dtype is torch.float32
    tensor += 1
    assert torch.equal(tensor, again + 1)
    assert tensor.resize_(3, 100, 100).shape == (3, 100, 100)


def test_what_listens_between_to_tensor_and_normalize_hears_it() -> None:
    heard = []
    normalize = v1.Normalize([0.5], [0.5])
    normalize.register_forward_pre_hook(lambda _, given: heard.append(given[0].max().item()))
    steps = v1.Compose([v1.ToTensor(), normalize])
    with wf.accelerate():
        steps(Image.open(io.BytesIO(FILES["rgb.jpg"])))
    assert len(heard) == 1
    assert heard[0] <= 1


def test_normalize_of_other_numbers_is_torchvisions() -> None:
    image = io.BytesIO(FILES["rgb.jpg"])
    for mean, std in [([0.5], [0.0]), ([0.1, 0.2], [1, 1]), ((0.5, 0.5, 0.5), torch.ones(3)), ([0], [1e-60])]:
        steps = v1.Compose([v1.ToTensor(), v1.Normalize(mean, std)])
        expected, their_error, _ = _outcome(lambda: steps(Image.open(image)))  # noqa: B023
        with wf.accelerate():
            found, our_error, _ = _outcome(lambda: steps(Image.open(image)))  # noqa: B023
        assert (type(our_error), str(our_error)) == (type(their_error), str(their_error))
        assert their_error is not None or torch.equal(found, expected)


def test_other_default_dtypes_are_kept() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with wf.accelerate():
            tensor = v1.functional.to_tensor(Image.open(io.BytesIO(FILES["rgb.jpg"])))
        assert tensor.dtype is torch.float64
        assert torch.equal(tensor, v1.functional.to_tensor(Image.open(io.BytesIO(FILES["rgb.jpg"]))))
    finally:
        torch.set_default_dtype(torch.float32)


def test_orientation_is_remembered() -> None:
    for orientation in range(1, 9):
        name = f"orientation{orientation}.jpg"
        expected = ImageOps.exif_transpose(Image.open(io.BytesIO(FILES[name])))
        with wf.accelerate():
            image = Image.open(io.BytesIO(FILES[name]))
            turned = ImageOps.exif_transpose(image)
        assert _is_lazy(image), name
        assert _is_lazy(turned), name
        assert _looks(turned) == _looks(expected)
        assert turned.getexif() == expected.getexif()
        part = turned.crop((3, 4, 30, 40)).resize((16, 20), Image.Resampling.BILINEAR)
        assert _is_lazy(part)
        expected_part = expected.crop((3, 4, 30, 40)).resize((16, 20), Image.Resampling.BILINEAR)
        assert part.tobytes() == expected_part.tobytes(), name
        assert turned.tobytes() == expected.tobytes(), name
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["orientation6.jpg"]))
        assert ImageOps.exif_transpose(image, in_place=True) is None
    assert (
        image.tobytes()
        == ImageOps.exif_transpose(Image.open(io.BytesIO(FILES["orientation6.jpg"]))).tobytes()
    )


def test_images_are_lazy_until_pixels_are_wanted() -> None:
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["large.jpg"]))
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    assert _is_lazy(image)
    part = (
        image.convert("RGB").crop((10, 10, 200, 200)).resize((50, 50)).transpose(Image.Transpose.ROTATE_180)
    )
    assert _is_lazy(part)
    assert _is_lazy(image)
    assert part.format is None
    assert part.info == image.info
    ImageDraw.Draw(part).line((0, 0, 9, 9))
    assert type(part) is Image.Image
    image.load()
    assert type(image) is JpegImagePlugin.JpegImageFile


@pytest.mark.parametrize("name", ["orientation6.jpg", "orientation6.png", "rgb.jpg"])
def test_methods_taken_before_an_image_is_pillows_work_afterwards(name: str) -> None:
    def made(lazy: bool) -> list[Any]:
        found: list[Any] = []
        for derived in (False, True):
            image = _opened(name, lazy)
            image = image.convert("RGB") if derived else image
            methods = [image.copy, image.convert, image.crop, image.resize, image.transpose, image.rotate]
            methods += [image.getpixel, image.save, image.tobytes, image.load, image.close]
            image.load()
            arguments = [
                (),
                ("L",),
                ((1, 2, 20, 30),),
                ((9, 8),),
                (Image.Transpose.ROTATE_90,),
                (90,),
                ((1, 1),),
            ]
            results = [method(*given) for method, given in zip(methods, arguments, strict=False)]
            file = io.BytesIO()
            methods[7](file, "PNG", exif=image.getexif())
            found += [r.tobytes() if isinstance(r, Image.Image) else r for r in results]
            found += [file.getvalue(), methods[8]()]
            methods[9]()
            methods[10]()
            with pytest.raises(ValueError, match="Operation on closed image"):
                image.getpixel((0, 0))
        return found

    assert made(True) == made(False)


def test_parts_of_one_image_are_taken_from_its_pixels() -> None:
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["large.jpg"])).convert("RGB")
    expected = Image.open(io.BytesIO(FILES["large.jpg"])).convert("RGB")
    for left in range(0, 100, 10):
        box = (left, 5, left + 60, 77)
        ours, theirs = (i.crop(box).resize((30, 30)) for i in (image, expected))
        assert ours.tobytes() == theirs.tobytes()
    assert image._recipe.source.wholes, "decoded once for all"


def test_files_are_closed_where_pillow_closes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES["rgb.jpg"])
    with wf.accelerate():
        image = Image.open(path)
        fp = image.fp
        rgb = image.convert("RGB")
        assert image.fp is None
        assert fp is not None
        assert fp.closed
        path.write_bytes(FILES["large.jpg"])
        assert rgb.tobytes() == Image.open(io.BytesIO(FILES["rgb.jpg"])).convert("RGB").tobytes()
        with open(path, "rb") as file:
            image = Image.open(file)
            rgb = image.convert("RGB")
            assert not file.closed
        with Image.open(path) as image:
            pass
        with pytest.raises((ValueError, AssertionError, AttributeError)) as ours:
            image.convert("RGB")
        rgb.close()
        with pytest.raises(ValueError, match="Operation on closed image"):
            rgb.tobytes()
    with Image.open(path) as image:
        pass
    with pytest.raises(ours.type):
        image.convert("RGB")


def test_bombs_and_truncated_files_are_treated_as_pillow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str, lazy: bool) -> Any:
        return _outcome(lambda: _opened(name, lazy).convert("RGB").crop((0, 0, 100, 100)).tobytes())

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    (theirs, _, their_words), (ours, _, our_words) = (opened("large.jpg", lazy) for lazy in (False, True))
    assert their_words
    assert our_words == their_words
    assert ours == theirs
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5_000)
    (_, theirs, _), (_, ours, _) = (opened("large.jpg", lazy) for lazy in (False, True))
    assert type(ours) is type(theirs) is Image.DecompressionBombError
    assert str(ours) == str(theirs)
    monkeypatch.undo()
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for name in ("cut.jpg", "cut.png", "checksum.png", "cut_end.png"):
        (theirs, their_error, _), (ours, our_error, _) = (opened(name, lazy) for lazy in (False, True))
        assert (ours, type(our_error)) == (theirs, type(their_error))


def test_contexts_nest_and_give_everything_back() -> None:
    before = dict(Image.OPEN), v1.functional.to_tensor, v1.Compose.__call__
    outer = wf.accelerate()
    assert outer.active
    with wf.accelerate():
        assert _is_lazy(Image.open(io.BytesIO(FILES["rgb.png"])))
    assert _is_lazy(Image.open(io.BytesIO(FILES["rgb.png"])))
    outer.close()
    outer.close()
    assert not outer.active
    assert not _is_lazy(Image.open(io.BytesIO(FILES["rgb.png"])))
    assert (dict(Image.OPEN), v1.functional.to_tensor, v1.Compose.__call__) == before
    # What others replaced meanwhile stays theirs.
    with wf.accelerate():
        v1.functional.to_tensor = theirs = lambda image: image
    assert v1.functional.to_tensor is theirs
    v1.functional.to_tensor = before[1]


def test_threads_share_images() -> None:
    names = ["large.jpg", "rgb.png", "progressive.jpg"]
    expected = {name: _opened(name, False).convert("RGB").resize((40, 30)).tobytes() for name in names}
    wrong = []
    with wf.accelerate():
        shared = {name: Image.open(io.BytesIO(FILES[name])).convert("RGB") for name in names}
        small = {name: image.resize((40, 30)) for name, image in shared.items()}

        def work(seed: int) -> None:
            rng = random.Random(seed)
            for _ in range(60):
                name = rng.choice(names)
                image = rng.choice([small[name], shared[name].resize((40, 30)), small[name].copy()])
                if rng.random() < 0.3:
                    image.load()
                if image.tobytes() != expected[name]:
                    wrong.append(name)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_go_on_with_what_was_lazy() -> None:
    expected = _opened("large.jpg", False).convert("RGB").resize((40, 30)).tobytes()
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["large.jpg"])).convert("RGB").resize((40, 30))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            same = image.tobytes() == expected and _is_lazy(Image.open(io.BytesIO(FILES["rgb.jpg"])))
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert image.tobytes() == expected


class Photos(torch.utils.data.Dataset[Any]):
    """A data set as people write them."""

    def __init__(self, folder: Path, steps: Any) -> None:
        self.paths = sorted(folder.iterdir())
        self.steps = steps

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i])
        return self.steps(image.convert("RGB")), _is_lazy(image), i


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(12):
        (tmp_path / f"{i:02}.jpg").write_bytes(_saved(_noise("RGB", (60 + i, 50 + 2 * i), i), "JPEG"))
    return tmp_path


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_accelerate_and_give_the_same_batches(folder: Path, start: str) -> None:
    from wellfed.torch import DataLoader

    dataset = Photos(folder, _steps("v1"))

    def batches(kind: Any, **arguments: Any) -> list[Any]:
        torch.manual_seed(3)
        return list(kind(dataset, 4, shuffle=True, num_workers=2, multiprocessing_context=start, **arguments))

    expected = batches(torch.utils.data.DataLoader)
    plain = batches(DataLoader, accelerate=False)
    ours = batches(DataLoader)
    for theirs, without, batch in zip(expected, plain, ours, strict=True):
        assert torch.equal(theirs[0], batch[0])
        assert torch.equal(theirs[0], without[0])
        assert torch.equal(theirs[2], batch[2])
        assert batch[1].all()
        assert not without[1].any()
        assert not theirs[1].any()


def test_explain_says_that_it_is_on(folder: Path) -> None:
    from wellfed.torch import DataLoader

    dataset = Photos(folder, _steps("v1"))
    assert "accelerate" in DataLoader(dataset, num_workers=1).explain()
    assert "accelerate" not in DataLoader(dataset, num_workers=1, accelerate=False).explain()
    assert "in the calling thread, while it makes samples" in DataLoader(dataset).explain()
    assert "accelerate" not in DataLoader(dataset, accelerate=False).explain()
    assert wf.feed(DataLoader(dataset, accelerate=False), num_workers=1).accelerate is False


def test_the_engine_still_takes_over_what_it_knows(folder: Path) -> None:
    from torchvision.datasets import ImageFolder

    from wellfed.torch import DataLoader

    (folder / "class").mkdir()
    for path in folder.glob("*.jpg"):
        path.rename(folder / "class" / path.name)
    with wf.accelerate():
        Image.open(next((folder / "class").iterdir())).close()
        assert "native: the engine" in DataLoader(ImageFolder(str(folder), _steps("v1"))).explain()


def test_other_pillows_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["PIL"], "__version__", "9.5.0.post2")
    _accelerate.unusable.cache_clear()
    try:
        with pytest.warns(UserWarning, match=r"does nothing: .*9\.5\.0\.post2"):
            nothing = wf.accelerate()
        assert not nothing.active
        assert not _is_lazy(Image.open(io.BytesIO(FILES["rgb.jpg"])))
    finally:
        _accelerate.unusable.cache_clear()


def test_borders_are_remembered() -> None:
    for mode in ("RGB", "L"):
        for fill in (0, 7, (1, 2, 3)):
            for border in (4, (2, 5), (1, 2, 3, 4)):
                image = Image.open(io.BytesIO(FILES["rgb.png"])).convert(mode)
                theirs, their_error, _ = _outcome(lambda: ImageOps.expand(image, border, fill))  # noqa: B023
                with wf.accelerate():
                    lazy = Image.open(io.BytesIO(FILES["rgb.png"])).convert(mode)
                    ours, our_error, _ = _outcome(lambda: ImageOps.expand(lazy, border, fill))  # noqa: B023
                assert type(our_error) is type(their_error)
                if their_error is None:
                    assert _is_lazy(ours) == (isinstance(fill, int) == (mode == "L") or fill == 0)
                    assert _looks(ours) == _looks(theirs)
                    part = (3, 1, 60, 40)
                    assert ours.crop(part).tobytes() == theirs.crop(part).tobytes()
                    assert ours.tobytes() == theirs.tobytes()
                    flipped = Image.Transpose.FLIP_LEFT_RIGHT
                    ours, theirs = (i.transpose(flipped).resize((20, 30)) for i in (ours, theirs))
                    assert ours.tobytes() == theirs.tobytes()
    steps = v1.Compose([v1.RandomCrop(32, padding=4), v1.RandomHorizontalFlip(), v1.ToTensor()])
    made = []
    for lazily in (False, True):
        torch.manual_seed(3)
        with wf.accelerate() if lazily else warnings.catch_warnings():
            made += [steps(Image.open(io.BytesIO(FILES["rgb.png"]))) for _ in range(8)]
    assert all(torch.equal(*pair) for pair in zip(made[:8], made[8:], strict=True))


def test_v2_functions_take_lazy_images() -> None:
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["rgb.jpg"])).convert("RGB")
        assert v2_functional.get_size(image) == [45, 67]
        ours = v2_functional.to_image(v2_functional.resized_crop(image, 2, 3, 30, 40, [20, 20]))
    expected = Image.open(io.BytesIO(FILES["rgb.jpg"])).convert("RGB")
    theirs = v2_functional.to_image(v2_functional.resized_crop(expected, 2, 3, 30, 40, [20, 20]))
    assert torch.equal(ours, theirs)
