"""Folders of images, and comparisons of data sets, for `keras_cases.py` and `keras_flow_cases.py`."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
from PIL import Image

import wellfed as wf

BACKEND = keras.backend.backend()
ON_TENSORFLOW = BACKEND == "tensorflow"
RNG = np.random.default_rng(7)
ROOT = Path(tempfile.mkdtemp())
theirs = keras.utils.image_dataset_from_directory
ours = wf.keras.image_dataset_from_directory


class Skipped(Exception):
    """A case is not for this backend."""


def only_on_tensorflow() -> None:
    if not ON_TENSORFLOW:
        raise Skipped("Keras' own function needs TensorFlow")


def picture(height: int, width: int, channels: int = 3) -> Any:
    """Waves with noise: all frequencies, and values at both ends."""
    y, x = np.mgrid[:height, :width].astype(float)
    waves = [128 + 150 * np.sin(x / RNG.uniform(2, 30) + y / RNG.uniform(2, 30)) for _ in range(channels)]
    noisy = np.stack(waves, -1) + RNG.normal(0, RNG.choice([0, 5, 60]), (height, width, channels))
    return np.clip(noisy, 0, 255).astype(np.uint8).squeeze()


def folder(name: str, classes: dict[str, int], grey: bool = False, pngs: bool = True) -> Path:
    """Folders of JPEGs and PNGs, one of them nested, with files that are no images."""
    root = ROOT / name
    for label, count in classes.items():
        (root / label / "deeper").mkdir(parents=True)
        (root / label / "notes.txt").write_text("no image")
        for number in range(count):
            height, width = (int(side) for side in RNG.integers(1, 90, 2))
            image = Image.fromarray(picture(height, width, 1 if grey or number % 5 == 4 else 3))
            place = root / label / ("deeper" if number % 4 == 3 else "")
            if number % 3 == 2 and pngs:
                image.save(place / f"{number:02}.png")
            else:
                image.save(
                    place / f"{number:02}.{'JPG' if number % 2 else 'jpeg'}",
                    quality=int(RNG.choice([30, 95])),
                )
    (root / ".hidden").mkdir()
    return root


TWO = folder("two", {"cat": 11, "dog": 8})
THREE = folder("three", {"b": 7, "a": 9, "c": 5})
THREE_JPEGS = folder("jpegs", {"b": 7, "a": 9, "c": 5}, pngs=False)
GREY = folder("grey", {"a": 6, "b": 6}, grey=True)


@contextlib.contextmanager
def printed() -> Iterator[Callable[[], str]]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        yield text.getvalue


def called(function: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, str]:
    """The result, or the exception; and what was printed."""
    with printed() as text:
        try:
            result = function(*arguments, **named)
        except Exception as error:
            result = error
    return result, text()


def parts(element: Any) -> list[Any]:
    return [
        keras.ops.convert_to_numpy(one) for one in (element if isinstance(element, tuple) else (element,))
    ]


def rows(data: Any) -> list[tuple[bytes, ...]]:
    """The samples of batches: what makes each of them up."""
    return [tuple(one.tobytes() for one in row) for batch in data for row in zip(*parts(batch), strict=True)]


def same(expected: Any, found: Any) -> None:
    """Fails unless two data sets give the same bits, twice over the second."""
    for _ in range(2):
        for one, other in zip(expected, found, strict=True):
            for a, b in zip(parts(one), parts(other), strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert a.tobytes() == b.tobytes()
