"""Heads of JPEGs that Pillow reads late, or never: whatever an image is asked for, it says what Pillow's says."""

from __future__ import annotations

import copy
import io
import pickle
import struct
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, JpegImagePlugin

import wellfed as wf
from wellfed._accelerate.images import pillow


def _jpeg(mode: str = "RGB", **options: Any) -> bytes:
    pixels = np.random.default_rng(3).integers(0, 256, (41, 57, len(mode)), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, "JPEG", **options)
    return file.getvalue()


def _segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def _with(*segments: bytes, jpeg: bytes | None = None) -> bytes:
    """A file with these behind its JFIF segment."""
    jpeg = jpeg or _jpeg(dpi=(72, 90))
    return jpeg[:20] + b"".join(segments) + jpeg[20:]


def _exif(resolution: Any = None) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    if resolution is not None:
        exif[0x011A], exif[0x0128] = resolution, 2
    return exif.tobytes()


RESOURCES = b"Photoshop 3.0\x008BIM\x03\xed\x00\x00\x00\x00\x00\x10" + bytes(range(16))
PLAIN = {
    "jfif": _jpeg(),
    "dpi": _jpeg(dpi=(72, 300)),
    "grey": _jpeg("L"),
    "cmyk": _jpeg("CMYK"),
    "progressive": _jpeg(progressive=True),
    "restarts": _jpeg(restart_marker_blocks=2),
    "comment": _jpeg(comment=b"words"),
    "profile": _jpeg(icc_profile=bytes(700)),
    "two profiles, one missing": _with(_segment(0xE2, b"ICC_PROFILE\0\x01\x03abc")),
    "resources": _with(_segment(0xED, RESOURCES)),
    "cut resources": _with(_segment(0xED, RESOURCES[:-9])),
    "exif, dpi known": _jpeg(dpi=(72, 72), exif=_exif(30.0)),
    "xmp": _with(_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<xml/>")),
    "unknown segments": _with(_segment(0xE5, b"?"), _segment(0xEC, b"Ducky")),
    "16-bit tables": _with(_segment(0xDB, bytes([0x13]) + bytes(range(1, 129)))),
}
UNUSUAL = {
    "exif": _jpeg(exif=_exif(30.0)),
    "exif that says nothing": _jpeg(exif=_exif()),
    "exif that is none": _with(_segment(0xE1, b"Exif\0\0nonsense"), jpeg=_jpeg()),
    "long head": _with(_segment(0xE7, bytes(9000))),
    "several pictures": _with(_segment(0xE2, b"MPF\0nonsense")),
    "padding": _with(b"\xff\xff" + _segment(0xE5, b"?")[1:]),
    "junk": _with(b"junk"),
    "cut tables": _with(_segment(0xDB, bytes(9))),
    "cut name of a resource": _with(_segment(0xED, b"Photoshop 3.0\x008BIM\x04\x04")),
    "cut jfif": _segment(0xD8, b"")[:2] + _segment(0xE0, b"JFIF\0") + _jpeg()[20:],
    "cut adobe": _with(_segment(0xEE, b"Adobe")),
    "no rows": _jpeg().replace(struct.pack(">BHHB", 8, 41, 57, 3), struct.pack(">BHHB", 8, 0, 57, 3)),
    "cut head": _jpeg()[:300],
    "9 bits": _jpeg().replace(struct.pack(">BHHB", 8, 41, 57, 3), struct.pack(">BHHB", 9, 41, 57, 3)),
}
FILES = PLAIN | UNUSUAL


def _outcome(do: Callable[[], Any]) -> tuple[Any, Any, Any]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, error = do(), None
        except Exception as e:
            value, error = None, (type(e), " ".join(word for word in str(e).split() if "0x" not in word))
    return value, error, [(word.category, str(word.message)) for word in caught]


def _opened(data: bytes, lazy: bool) -> Any:
    if not lazy:
        return Image.open(io.BytesIO(data))
    with wf.accelerate():
        return Image.open(io.BytesIO(data))


def _unread(image: Any) -> bool:
    return "_head" in vars(image)


def _said(image: Any) -> dict[str, Any]:
    """All that an image of Pillow's has, but its file."""
    return {name: value for name, value in vars(image).items() if name != "fp"}


@pytest.mark.parametrize("name", FILES)
def test_what_pillow_reads_in_a_head_is_there_when_it_is_asked_for(name: str) -> None:
    theirs, their_error, their_words = _outcome(lambda: _opened(FILES[name], False))
    ours, our_error, our_words = _outcome(lambda: _opened(FILES[name], True))
    assert (our_error, our_words) == (their_error, their_words)
    if theirs is None:
        assert name in UNUSUAL
        return
    assert _unread(ours) == (name in PLAIN)
    assert (ours.size, ours.mode, ours.format, ours.getbands()) == (
        theirs.size,
        theirs.mode,
        theirs.format,
        theirs.getbands(),
    )
    assert repr(ours).split(" at ")[0] == repr(theirs).split(" at ")[0]
    assert ours.fp.tell() == theirs.fp.tell()
    assert _unread(ours) == (name in PLAIN), "nothing so far needs the head"
    for attribute in vars(theirs).keys() - {"fp"}:
        fresh, _, _ = _outcome(lambda: _opened(FILES[name], True))
        assert getattr(fresh, attribute) == getattr(theirs, attribute), attribute
        assert not _unread(fresh) or attribute in vars(fresh)
    assert ours.info == theirs.info
    assert _said(ours) == _said(theirs)
    assert [*ours.info] == [*theirs.info], "in the same order"
    with pytest.raises(AttributeError, match=f"'{type(theirs).__name__}' object has no attribute 'nothing'"):
        _ = ours.nothing
    assert not hasattr(_outcome(lambda: _opened(FILES[name], True))[0], "nothing")


DOINGS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda image: image.copy(),
    "convert": lambda image: image.convert("RGB"),
    "crop": lambda image: image.convert("L").crop((1, 2, 30, 20)),
    "load": lambda image: (image.load(), image)[1],
    "close": lambda image: (image.close(), image)[1],
    "close, later": lambda image: (image.convert("RGB"), image.close(), image)[2],
    "with": lambda image: (image.__enter__(), image.__exit__(None, None, None), image)[2],
    "with, later": lambda image: (image.__enter__().convert("RGB"), image.__exit__(), image)[2],
    "draft": lambda image: (image.draft("L", (10, 10)), image)[1],
    "pickle": lambda image: pickle.loads(pickle.dumps(image)),
    "deepcopy": lambda image: copy.deepcopy(image),
    "settled part": lambda image: (part := image.convert("RGB").resize((9, 9)), part.load(), part)[2],
    "verify": lambda image: (image.verify(), image)[1],
    "info set": lambda image: (setattr(image, "info", {"a": 1}), image.convert("RGB"))[1],
    "tile set": lambda image: (setattr(image, "tile", []), image)[1],
    "resize": lambda image: image.resize((5, 6)),
    "thumbnail": lambda image: (image.thumbnail((20, 20)), image)[1],
}


@pytest.mark.parametrize("doing", DOINGS)
@pytest.mark.parametrize("by", ["path", "file", "bytes"])
def test_images_are_pillows_whatever_was_done_before(doing: str, by: str, tmp_path: Path) -> None:
    for name in ("profile", "comment", "cmyk", "grey", "exif, dpi known", "exif"):
        path = tmp_path / "image.jpg"
        path.write_bytes(FILES[name])

        def done(lazy: bool, path: Path = path) -> tuple[Any, ...]:
            with wf.accelerate() if lazy else warnings.catch_warnings():
                with open(path, "rb") as file:
                    given = {"path": path, "file": file, "bytes": io.BytesIO(path.read_bytes())}[by]
                    image = Image.open(given)
                    made, error, _ = _outcome(lambda: DOINGS[doing](image))
                    place = None if file.closed else file.tell()
                if made is None:
                    return error, place
                fp = getattr(made, "fp", None)
                words = [
                    _outcome(lambda what=what: getattr(made, what))
                    for what in ("size", "mode", "info", "format")
                ]
                words += [_outcome(lambda: made.getexif().tobytes()), _outcome(lambda: made.applist)]
                words += [fp is None or fp.closed]
                words += [
                    _outcome(lambda: np.asarray(made).tolist()),
                    _outcome(lambda: made.convert("RGB").tobytes()),
                    _outcome(lambda: made.tobytes()),
                ]
                image.close()
                return error, place, *words

        assert done(True) == done(False), name


def test_images_from_paths_are_closed_without_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "image.jpg"
    path.write_bytes(PLAIN["jfif"])
    loads = []
    load = JpegImagePlugin.JpegImageFile.load
    monkeypatch.setattr(
        JpegImagePlugin.JpegImageFile, "load", lambda image: (loads.append(1), load(image))[1]
    )
    with wf.accelerate():
        with Image.open(path) as image:
            part = image.convert("RGB").resize((9, 9))
        assert part.tobytes()
        image = Image.open(path)
        image.convert("RGB").close()
        image.close()
    assert not loads
    with pytest.raises(ValueError, match="Operation on closed image"):
        image.tobytes()


def test_what_others_put_in_pillows_table_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    factory, accept = Image.OPEN["JPEG"]
    opened = []

    def theirs(fp: Any, filename: Any = None) -> Any:
        opened.append(filename)
        return factory(fp, filename)

    monkeypatch.setitem(Image.OPEN, "JPEG", (theirs, accept))
    with wf.accelerate():
        image = Image.open(io.BytesIO(PLAIN["jfif"]))
    assert opened == [""]
    assert type(image) in pillow().kinds
    assert not _unread(image)


def test_threads_that_ask_at_once_all_get_an_answer() -> None:
    wrong = []
    expected = _opened(PLAIN["profile"], False)
    for _ in range(30):
        image = _opened(PLAIN["profile"], True)
        part = image.convert("RGB")
        barrier = threading.Barrier(4)

        def ask(image: Any = image, part: Any = part, barrier: Any = barrier) -> None:
            barrier.wait()
            try:
                if (image.info, part.info, image.quantization) != (
                    expected.info,
                    expected.info,
                    expected.quantization,
                ):
                    wrong.append("other words")
            except AttributeError as error:
                wrong.append(str(error))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
