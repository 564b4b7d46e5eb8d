"""`load`: one file of any kind by its extension, for those who write `__getitem__` themselves."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from .decoding import decode, drawn_from

if TYPE_CHECKING:
    import torch

__all__ = ["load"]

IMAGES = frozenset({"bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp"})
_NUMBERS = frozenset({"class", "cls", "cls2", "count", "id", "index", "inx"})
_TEXTS = frozenset({"text", "transcript", "txt"})
_JSON = frozenset({"jsn", "json"})


def load(
    path: str | os.PathLike[str],
    transforms: Any = None,
    *,
    mode: str | None = "RGB",
    generator: torch.Generator | None = None,
) -> Any:
    """What a file holds, by its extension: that of a field of `wellfed.webdataset`.

    =========================================== ==========================================================
    extension                                   result
    =========================================== ==========================================================
    jpg, jpeg, png, bmp, gif, pgm, ppm, tif,    a Pillow image, as that of `decode`
    tiff, webp
    npy                                         a NumPy array; nothing is unpickled
    cls, cls2, class, count, index, inx, id     an int
    txt, text, transcript                       a str; the file is UTF-8
    json, jsn                                   what it says, parsed
    all others                                  bytes
    =========================================== ==========================================================

    Upper and lower case are the same. Of ``000.seg.png`` the last part counts.

    Args:
        path: A file.
        transforms: What is called on the result: one, or a list of them, one after the other. Of an image as `decode`
            does it, in one pass with decoding.
        mode: Pillow's mode that an image is converted to. None leaves it as the file has it: masks with a palette keep
            the numbers of their classes.
        generator: What torch's random numbers are drawn from, as in `decode`.

    Returns:
        What the table says, or what the transforms return.

    Raises:
        Exception: Those of Pillow, NumPy, the parsers and the transforms, with a note that names the file (from
            Python 3.11 on).

    Example:
        >>> import json, tempfile
        >>> import numpy as np
        >>> import wellfed as wf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/tokens.npy", np.arange(5, dtype=np.uint16))
        ...     with open(f"{folder}/about.json", "w") as file:
        ...         json.dump({"label": 3}, file)
        ...     wf.load(f"{folder}/tokens.npy"), wf.load(f"{folder}/about.json")["label"]
        (array([0, 1, 2, 3, 4], dtype=uint16), 3)
    """
    if not isinstance(path, (str, os.PathLike)):
        what = "but must be a path, whose extension says what it holds"
        raise TypeError(
            f"path is of type {type(path).__name__}, {what}\nhint: wf.decode takes bytes of an image"
        )
    kind = _kind(path)
    if kind in IMAGES and mode is not None:
        return decode(path, transforms, mode=mode, generator=generator)
    try:
        value = _image(path) if kind in IMAGES else _value(path, kind)
        steps = (
            transforms
            if isinstance(transforms, (list, tuple))
            else []
            if transforms is None
            else [transforms]
        )
        with drawn_from(generator):
            for step in steps:
                value = step(value)
        return value
    except Exception as error:
        if sys.version_info >= (3, 11):
            error.add_note(f"wellfed: loading {os.fspath(path)}")
        raise


def _kind(path: str | os.PathLike[str]) -> str:
    name = os.path.basename(os.fspath(path))
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    return name.rpartition(".")[2].lower() if "." in name else ""


def _image(path: str | os.PathLike[str]) -> Any:
    """The image in the mode of its file, with its pixels: the file may be closed."""
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        return image.copy()


def _value(path: str | os.PathLike[str], kind: str) -> Any:
    with open(path, "rb") as file:
        if kind == "npy":
            return np.load(file, allow_pickle=False)
        data = file.read()
    if kind in _TEXTS:
        return data.decode()
    if kind in _JSON:
        return json.loads(data)
    return int(data.decode()) if kind in _NUMBERS else data
