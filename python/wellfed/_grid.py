"""A grid of samples as HTML: what a notebook shows of a data set.

Works on finished samples only (arrays, text, nested dicts and tuples), so that every source and operation is shown. No
more is imported than NumPy.
"""

from __future__ import annotations

import base64
import html
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["grid"]

SIDE = 160
"""Greatest height and width of a picture in the grid, pixels. Larger ones are thinned out, not resampled."""

TEXT = 120
"""Characters of a value that are shown."""

_COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#46f0f0", "#f032e6", "#bcf60c")


def leaves(sample: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a nested sample with their names: ``0``, ``target.boxes``.

    Example:
        >>> list(leaves((1, {"boxes": 2})))
        [('0', 1), ('1.boxes', 2)]
    """
    if isinstance(sample, Mapping):
        parts: Sequence[tuple[Any, Any]] = list(sample.items())
    elif isinstance(sample, list | tuple):
        parts = list(enumerate(sample))
    else:
        yield name, sample
        return
    for key, value in parts:
        yield from leaves(value, f"{name}.{key}" if name else str(key))


def is_picture(value: Any) -> bool:
    """Whether an array looks like an image: three dimensions, of which the first or the last is 1, 3 or 4 channels."""
    if not isinstance(value, np.ndarray) or value.ndim != 3 or value.dtype.kind not in "buif":
        return False
    first, last = value.shape[0], value.shape[2]
    return min(value.shape) > 0 and (first in (1, 3, 4) or last in (1, 3, 4)) and max(value.shape) >= 4


def pixels(value: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], str]:
    """An image array as uint8 ``[height, width, channels]``, and a remark where its values had to be mapped.

    Channels come first or last. Floats from 0 to 1 are scaled by 255; others are mapped from their least and greatest
    value to black and white, and the remark says so.
    """
    if value.shape[0] in (1, 3, 4) and value.shape[2] not in (3, 4):
        value = value.transpose(1, 2, 0)
    step = max(1, math.ceil(max(value.shape[:2]) / SIDE))
    value = value[::step, ::step]
    if value.dtype == np.uint8 and value.shape[2] > 1:
        return np.ascontiguousarray(value), ""
    numbers = value.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    remark = ""
    if value.dtype.kind == "f" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif value.dtype in (np.uint8, np.bool_) and (high > 64 or value.dtype == np.bool_):
        low, high = 0.0, 255.0 if value.dtype == np.uint8 else 1.0
    else:
        remark = f"{low:.4g} is black, {high:.4g} is white"
    scaled = (np.nan_to_num(numbers, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    return np.ascontiguousarray((scaled * 255).clip(0, 255).astype(np.uint8)), remark


def png(image: npt.NDArray[np.uint8]) -> bytes:
    """An image ``[height, width, 1, 3 or 4 channels]`` as a PNG file (filter 0, RFC 2083)."""
    height, width, channels = image.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            chunk(b"IEND", b""),
        )
    )


def _boxes(name: str, value: Any, size: tuple[int, int]) -> str:
    """Boxes (XYXY, pixels) as an SVG layer over an image of `size` (height, width); empty if these are none."""
    last = name.rsplit(".", 1)[-1]
    is_boxes = isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] == 4 and "box" in last
    if not is_boxes or not np.isfinite(value.astype(np.float64)).all():
        return ""
    shapes = "".join(
        f'<rect x="{x0:g}" y="{y0:g}" width="{max(x1 - x0, 0):g}" height="{max(y1 - y0, 0):g}" fill="none" '
        f'stroke="{_COLOURS[i % len(_COLOURS)]}" vector-effect="non-scaling-stroke" stroke-width="2"/>'
        for i, (x0, y0, x1, y1) in enumerate(value[:64].astype(float).tolist())
    )
    height, width = size
    place = "position:absolute;inset:0;width:100%;height:100%"
    return f'<svg viewBox="0 0 {width} {height}" style="{place}">{shapes}</svg>'


def shown(value: Any, classes: Sequence[str] | None) -> str:
    """A value that is no image, in a few words."""
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            number = value.item()
            named = classes is not None and isinstance(number, int) and 0 <= number < len(classes)
            return f"{number} ({classes[number]})" if named and classes is not None else str(number)
        text = np.array2string(value.ravel()[:8], separator=", ", threshold=8)
        more = ", ..." if value.size > 8 else ""
        return f"{value.dtype} {list(value.shape)}: {text[1:-1]}{more}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= TEXT else f"{text[:TEXT]}... ({len(text)} characters)"


def cell(sample: Any, classes: Sequence[str] | None) -> str:
    """One sample: its pictures with boxes over the first one, and the other fields below."""
    fields = list(leaves(sample))
    pictures: list[str] = []
    lines: list[str] = []
    drawn: set[str] = set()
    for name, value in fields:
        if not is_picture(value):
            continue
        image, remark = pixels(value)
        first = value.shape[0] in (1, 3, 4) and value.shape[2] not in (3, 4)
        size = (value.shape[1], value.shape[2]) if first else (value.shape[0], value.shape[1])
        layers = ""
        if not drawn and not pictures:
            for other, candidate in fields:
                layer = _boxes(other, candidate, size)
                if layer:
                    layers += layer
                    drawn.add(other)
        data = base64.b64encode(png(image)).decode()
        title = html.escape(f"{name}: {value.dtype} {list(value.shape)}".lstrip(": "))
        pictures.append(
            f'<div style="position:relative;display:inline-block" title="{title}">'
            f'<img src="data:image/png;base64,{data}" width="{image.shape[1]}" height="{image.shape[0]}" '
            f'style="display:block"/>{layers}</div>'
        )
        if remark:
            lines.append(remark)
    for name, value in fields:
        if is_picture(value):
            continue
        count = f"{len(value)} boxes" if name in drawn else shown(value, classes)
        lines.append(f"{name}: {count}" if name else count)
    text = "<br/>".join(html.escape(line) for line in lines)
    return (
        '<div style="display:inline-block;vertical-align:top;margin:4px;max-width:340px;font-size:12px;'
        f'overflow-wrap:anywhere">{"".join(pictures)}<div>{text}</div></div>'
    )


def grid(samples: Iterator[Any], title: str, classes: Sequence[str] | None = None) -> str:
    """Samples as HTML. A sample that cannot be made is shown as the error it gives; the others are still shown.

    Args:
        samples: Finished samples; exceptions among them are shown as text.
        title: Text above the grid.
        classes: Names of classes by label.

    Example:
        >>> page = grid(iter([(np.zeros((3, 8, 8), np.uint8), np.array(1))]), "two", ["cat", "dog"])
        >>> "1 (dog)" in page and "data:image/png" in page
        True
    """
    cells = []
    for sample in samples:
        if isinstance(sample, Exception):
            text = html.escape(f"{type(sample).__name__}: {sample}")
            cells.append(
                '<div style="display:inline-block;vertical-align:top;margin:4px;width:160px;font-size:12px;'
                f'color:#b00;overflow-wrap:anywhere">{text}</div>'
            )
        else:
            cells.append(cell(sample, classes))
    return f"<pre>{html.escape(title)}</pre><div>{''.join(cells)}</div>"
