"""`image_dataset_from_directory`: Keras' function of that name, with the engine's batches."""

from __future__ import annotations

import operator
import os
from typing import Any

import numpy as np

from .. import sources
from .._tfdata._operations import TensorFlowOps
from ._folders import Part, checked, found, keras_own, labels_dtype
from ._labels import Labels
from ._own import handed_over, has_tensorflow, own

__all__ = ["image_dataset_from_directory"]

_MODES = {"rgb": "TENSORFLOW", "rgba": "TENSORFLOW_RGBA", "grayscale": "TENSORFLOW_L"}
_METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")
# Of these Keras crops none.
_NO_CROP = ("gaussian", "mitchellcubic")
_HINTS = {
    "rgb": "convert the files to JPEG or PNG in RGB",
    "rgba": "convert the files to PNG",
    "grayscale": "convert the files to JPEG",
}


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
    so; else it is an error: GIF and BMP files, PNGs with ``"grayscale"`` (without TensorFlow, those in colour), JPEGs
    with ``"rgba"`` (which Keras refuses, too), URLs.

    Args:
        directory: As of Keras, as all up to ``verbose``.
        labels: ``"inferred"``, None, or a list of whole numbers, which is left as it is.
        label_mode: ``"int"``, ``"binary"``, ``"categorical"`` or None.
        class_names: Names of folders, in the order of labels.
        color_mode: ``"rgb"``, ``"rgba"`` or ``"grayscale"``, which is the brightness that JPEGs hold.
        batch_size: None gives single samples.
        image_size: Height and width.
        shuffle: Whether samples come in a random order.
        seed: Of the split and of the order.
        validation_split: Part of the files that are for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        interpolation: As of ``tf.image.resize``.
        follow_links: Whether links to folders are followed.
        crop_to_aspect_ratio: Whether images are cropped to the aspect of ``image_size`` before they are resized.
        pad_to_aspect_ratio: Whether they are resized as wholes, with zeros around them.
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
    hint = _HINTS[color_mode]
    why = _left_before(given, dtype)
    if why:
        return keras_own(given, theirs, why, hint)

    def refused(paths: list[str]) -> Any:
        why = next(filter(None, (_other(path, color_mode) for path in paths)), "")
        return keras_own(given | {"verbose": False}, theirs, why, hint) if why else None

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
    op = "resize_cropped" if crop_to_aspect_ratio else "resize_with_pad" if pad_to_aspect_ratio else "resize"
    resize = TensorFlowOps([{"op": op, "method": interpolation.lower(), "size": size}])
    mode: Any = _MODES[color_mode]
    results = []
    for part in parts:
        source = sources.image_files(part.paths, labels=part.labels)
        source = source if part.seed is None else source.shuffle(seed=part.seed)
        source = source.with_options(layout="NHWC" if last else "NCHW", mode=mode, **options)
        finish = Labels(None if part.labels is None else label_mode, len(part.names or ()), dtype)
        data = handed_over(source, [resize], batch_size, finish)
        data.class_names, data.file_paths = part.names, part.paths
        results.append(data)
    return results if subset == "both" else results[0]


def _fits(color_mode: Any, image_size: Any, interpolation: Any, form: Any) -> bool:
    """Whether Keras has no objection to arguments about images."""
    return (
        color_mode in _MODES
        and (isinstance(image_size, int) or (isinstance(image_size, list | tuple) and len(image_size) == 2))
        and interpolation.lower() in _METHODS
        and form in ("tf", "grain")
    )


def _left_before(given: dict[str, Any], dtype: str) -> str:
    """Why it is left to Keras, as far as the arguments tell; else empty."""
    if given["crop_to_aspect_ratio"] and given["interpolation"].lower() in _NO_CROP:
        return f"crop_to_aspect_ratio=True with interpolation={given['interpolation']!r}"
    if "://" in os.fspath(given["directory"]):
        return "the folder is a URL"
    return "" if dtype else "labels that are not whole numbers of one type"


def _other(path: str, color_mode: str) -> str:
    """Why a file is left to Keras, as far as its name tells; else empty."""
    ending = path.lower()
    if ending.endswith((".gif", ".bmp")):
        return f"{path} is no JPEG or PNG"
    if color_mode == "rgba" and not ending.endswith(".png"):
        return f'{path} is no PNG, and color_mode="rgba"'
    # Colours of PNGs are mixed by their gamma. In grey they are known, and without TensorFlow nothing else is.
    if color_mode == "grayscale" and ending.endswith(".png") and has_tensorflow():
        return f'{path} is a PNG, and color_mode="grayscale"'
    return ""
