"""`image_dataset_from_directory`: Keras' function of that name, with the engine's batches."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import sources
from .._handover.columns import Column
from .._tfdata._operations import TensorFlowOps
from ..exceptions import UnsupportedSampleError
from ._folders import Part, checked, found, keras_own, labels_dtype
from ._labels import Labels
from ._own import handed_over, has_tensorflow, own

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["image_dataset_from_directory"]

_CHANNELS = {"rgb": 3, "rgba": 4, "grayscale": 1}
_METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
_HINT = "convert the files to JPEG or PNG in RGB"


def image_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Any = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: Any = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",  # noqa: A002 (Keras' name)
    verbose: bool = True,
    **options: Any,
) -> Any:
    """`keras.utils.image_dataset_from_directory`: the same files, classes, splits and pixels, in less time.

    Gives what the backend of Keras takes best. On TensorFlow that is a `tf.data.Dataset`, with all of its methods. On
    torch and JAX, where TensorFlow need not be installed, it is a `keras.utils.PyDataset` that can be iterated, and has
    the methods of `tf.data` that pipelines use: see `help(data)`. Both have ``class_names``,
    ``file_paths``, ``loader`` and ``explain()``.

    Images are float32 ``[batch, height, width, channels]`` with values from 0 to 255 (uint8 with ``"nearest"``), equal
    to Keras' to the bit for JPEGs and PNGs of 8 bits. With ``shuffle`` all samples change places, anew in each epoch;
    Keras shuffles within a buffer of 8 batches.

    What the engine does not give with equal bits is Keras' own where TensorFlow is installed, and ``explain()`` says
    so; else it is an error: GIF and BMP files, ``color_mode="rgba"``, ``crop_to_aspect_ratio``,
    ``pad_to_aspect_ratio``, URLs. Likewise ``"grayscale"``; without TensorFlow it is given for files in grey.

    Args:
        directory: As of Keras, as all up to ``verbose``.
        labels: ``"inferred"``, None, or a list of whole numbers, which is left as it is.
        label_mode: ``"int"``, ``"binary"``, ``"categorical"`` or None.
        class_names: Names of folders, in the order of labels.
        color_mode: ``"rgb"``, ``"rgba"`` or ``"grayscale"``.
        batch_size: None gives single samples.
        image_size: Height and width.
        shuffle: Whether samples come in a random order.
        seed: Of the split and of the order.
        validation_split: Part of the files that are for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        interpolation: As of ``tf.image.resize``.
        follow_links: Whether links to folders are followed.
        crop_to_aspect_ratio: See above.
        pad_to_aspect_ratio: See above.
        data_format: ``"channels_last"`` or ``"channels_first"``; None is that of Keras' settings.
        format: ``"tf"``; ``"grain"`` is refused, since its pixels are others.
        verbose: Whether the number of files is printed.
        options: As of `wellfed.Dataset.with_options`, except for those that say what pixels are.

    Raises:
        ValueError: As of Keras.
        ConfigError: See above.
        UnsupportedSampleError: In iteration: a file that TensorFlow decodes in a way that is not known (inks, 16 bits).

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     Image.new("RGB", (40, 30), "teal").save(root / name / "1.png")
        >>> data = wf.keras.image_dataset_from_directory(root, image_size=(16, 16), shuffle=False)
        Found 2 files belonging to 2 classes.
        >>> data.class_names
        ['cat', 'dog']
        >>> for images, labels in data:
        ...     print(tuple(images.shape), [int(label) for label in labels])
        (2, 16, 16, 3) [0, 1]
    """
    given: dict[str, Any] = {name: value for name, value in locals().items() if name != "options"}
    theirs = own("utils.image_dataset_utils", "image_dataset_from_directory")
    checked(given, options, theirs, _fits(color_mode, image_size, interpolation, format))
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError("Only one of `pad_to_aspect_ratio`, `crop_to_aspect_ratio` can be set to `True`.")
    dtype = labels_dtype(labels)
    why = _left_before(given, dtype)
    if why:
        return keras_own(given, theirs, why, _HINT)

    def refused(paths: list[str]) -> Any:
        other = next((path for path in paths if path.lower().endswith((".gif", ".bmp"))), None)
        if other is None:
            return None
        return keras_own(given | {"verbose": False}, theirs, f"{other} is no JPEG or PNG", _HINT)

    if seed is None:
        # Keras would draw it, too.
        given["seed"] = int(np.random.randint(1_000_000))
    formats = own("utils.image_dataset_utils", "ALLOWLIST_FORMATS")
    parts = found(given, formats, "images", f"Allowed formats: {formats}", refused)
    if not isinstance(parts, list) or not all(isinstance(part, Part) for part in parts):
        return parts
    last = own("backend.config", "standardize_data_format")(data_format) == "channels_last"
    size = [
        operator.index(side) for side in ((image_size,) * 2 if isinstance(image_size, int) else image_size)
    ]
    resize = TensorFlowOps([{"op": "resize", "method": interpolation.lower(), "size": size}])
    mode: Any = "TENSORFLOW" if color_mode == "rgb" else "TENSORFLOW_UNCHANGED"
    results = []
    for part in parts:
        source = sources.image_files(part.paths, labels=part.labels)
        source = source if part.seed is None else source.shuffle(seed=part.seed)
        source = source.with_options(layout="NHWC" if last else "NCHW", mode=mode, **options)
        of_labels = Labels(None if part.labels is None else label_mode, len(part.names or ()), dtype)
        finish = _Checked(of_labels, _CHANNELS[color_mode], -1 if last else -3)
        data = handed_over(source, [resize], batch_size, finish)
        data.class_names, data.file_paths = part.names, part.paths
        results.append(data)
    return results if subset == "both" else results[0]


def _fits(color_mode: Any, image_size: Any, interpolation: Any, form: Any) -> bool:
    """Whether Keras has no objection to arguments about images."""
    return (
        color_mode in _CHANNELS
        and (isinstance(image_size, int) or (isinstance(image_size, list | tuple) and len(image_size) == 2))
        and interpolation.lower() in _METHODS
        and form in ("tf", "grain")
    )


def _left_before(given: dict[str, Any], dtype: str) -> str:
    """Why it is left to Keras, as far as the arguments tell; else empty."""
    for name in ("crop_to_aspect_ratio", "pad_to_aspect_ratio"):
        if given[name]:
            return f"{name}=True"
    if given["color_mode"] == "rgba" or (given["color_mode"] == "grayscale" and has_tensorflow()):
        return f"color_mode={given['color_mode']!r}"
    if "://" in os.fspath(given["directory"]):
        return "the folder is a URL"
    return "" if dtype else "labels that are not whole numbers of one type"


class _Checked:
    """Refuses images of another number of channels than is announced: files in colour where grey is asked for."""

    def __init__(self, finish: Callable[[Any], Any], channels: int, axis: int) -> None:
        self._finish, self._channels, self._axis = finish, channels, axis

    def __call__(self, element: Any) -> Any:
        image = element[0] if isinstance(element, tuple) else element
        if isinstance(image, Column) and image.shape[self._axis] != self._channels:
            raise UnsupportedSampleError(
                f"images have {image.shape[self._axis]} channels, and {self._channels} are asked for; how TensorFlow "
                "turns colours into grey is not known here\nhint: install tensorflow, and this is left to Keras; or "
                "convert the files to grey"
            )
        return self._finish(element)
