"""`accelerate`: code that opens images with Pillow, or loads sounds, gets the same values in less time."""

from __future__ import annotations

import functools
import sys
import warnings
from types import TracebackType
from typing import Any

from . import arrays, opencv, sounds
from .decoding import decode
from .loading import load
from .patches import patches

__all__ = ["accelerate", "accelerate_worker", "decode", "inherited_rows", "load", "unusable"]

TESTED = (13, 13)
"""The first and the last major version of Pillow that the tests were run with."""


class accelerate:  # noqa: N801 - it is called as a function
    """Make code that opens images with Pillow faster, with the same pixels.

    From the call on, until `close` or the end of a ``with`` block, `PIL.Image.open` gives images of JPEG and PNG files
    that remember ``convert("RGB")`` and ``convert("L")``, ``crop``, ``resize``, ``transpose`` and ``rotate`` by right
    angles. When pixels are asked for, one native pass decodes the part of the file that is needed and resamples it.
    torchvision's ``ToTensor`` has that pass write its tensor, in ``Compose`` normalized by a ``Normalize`` that comes
    next. Pixels are Pillow's, bit for bit; whatever else is done
    to an image, Pillow does.

    If OpenCV has been imported by then, `cv2.imread` and `cv2.imdecode` decode JPEGs natively, too, with OpenCV's
    pixels: those in colour or grey that are read in colour and not turned by their EXIF data. Everything else OpenCV
    does. `numpy.load` reads files of one array in less time.

    `torchaudio.load`, `soundfile.read` and `librosa.load` (with ``sr=None``), if they have been imported by then, read
    whole WAV files of PCM and FLAC files natively, with the same values; `soundfile.read` also parts of them. Before
    the first one it is compared with the library on three small files.

    It holds for the whole process: all threads, and processes forked while it is on. It may be nested.

    One thing differs: a file that is damaged inside may raise its error where pixels are first needed, rather than at
    the first call such as ``convert``. Files that are cut off raise it where Pillow does.

    Pillow's versions that it was tested with are 13.x, with libjpeg-turbo. With others it warns and does nothing. Of
    OpenCV it is 5.0; others stay as they are.

    Raises:
        ModuleNotFoundError: If Pillow is not installed.

    Example:
        >>> import io
        >>> import numpy as np
        >>> import wellfed as wf
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.linear_gradient("L").save(file, "JPEG")
        >>> with wf.accelerate():
        ...     image = Image.open(file).convert("RGB").crop((0, 100, 200, 240)).resize((64, 64))
        ...     print(isinstance(image, Image.Image), image.size, np.asarray(image).shape)
        True (64, 64) (64, 64, 3)
    """

    def __init__(self) -> None:
        self._on = _usable()
        if self._on:
            patches.enter()
            opencv.enter()
            arrays.enter()
            sounds.enter()

    def __enter__(self) -> accelerate:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.close()

    @property
    def active(self) -> bool:
        """Whether images are opened lazily on behalf of this object."""
        return self._on

    def close(self) -> None:
        """Give back Pillow and torchvision as they were, unless others still want acceleration.

        Images that are lazy already stay so.
        """
        if self._on:
            self._on = False
            patches.leave()
            opencv.leave()
            arrays.leave()
            sounds.leave()


def accelerate_worker() -> None:
    """Switch acceleration on for good in a worker process, of all libraries that are known."""
    if "PIL.Image" in sys.modules and not unusable():
        patches.enter()
    opencv.enter()
    arrays.enter()
    sounds.enter()


def inherited_rows() -> Any:
    """What worker processes are given before they start, so that they share row indexes; None where they need none."""
    if "PIL.Image" not in sys.modules or unusable():
        return None
    from .rows import Inherited

    return Inherited()


def _usable() -> bool:
    """Whether this Pillow is one whose pixels are known; warns if not."""
    reason = unusable()
    if reason:
        warnings.warn(f"wellfed.accelerate() does nothing: {reason}", stacklevel=3)
    return not reason


@functools.cache
def unusable() -> str:
    """Why Pillow cannot be accelerated; empty if it can."""
    from PIL import __version__ as version
    from PIL import features

    first, last = TESTED
    major = version.split(".")[0]
    if not major.isdigit() or not first <= int(major) <= last:
        return f"it was tested with Pillow {first}.x to {last}.x, and this is {version}"
    if not features.check_feature("libjpeg_turbo"):
        return "Pillow was built without libjpeg-turbo, so its pixels are others"
    return ""
