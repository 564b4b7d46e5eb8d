"""`text_dataset_from_directory`: Keras' function of that name, with files that are read in threads."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from .. import sources
from .._handover.columns import Column
from ..exceptions import ConfigError
from ._folders import checked, found, keras_own, labels_dtype
from ._labels import Labels
from ._own import handed_over, own
from ._threads import THREADS

__all__ = ["text_dataset_from_directory"]


def text_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Any = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",  # noqa: A002 (Keras' name)
    verbose: bool = True,
    **options: Any,
) -> Any:
    """`keras.utils.text_dataset_from_directory`: the same files, classes and splits.

    What it gives is as of `image_dataset_from_directory`. Texts are ``tf.string`` on TensorFlow; on torch and JAX NumPy
    arrays of bytes, which `fit` does not take: turn them into numbers by ``map``. With ``shuffle`` all files change
    places, anew in each epoch.

    Args:
        directory: As of Keras, as all up to ``verbose``.
        labels: ``"inferred"``, None, or a list of whole numbers, which is left as it is.
        label_mode: ``"int"``, ``"binary"``, ``"categorical"`` or None.
        class_names: Names of folders, in the order of labels.
        batch_size: None gives single samples.
        max_length: Bytes of a text; what is longer is cut.
        shuffle: Whether texts come in a random order.
        seed: Of the split and of the order.
        validation_split: Part of the files that are for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        follow_links: Whether links to folders are followed.
        format: ``"tf"``; ``"grain"`` is refused.
        verbose: Whether the number of files is printed.
        options: As of `wellfed.Dataset.with_options`.

    Raises:
        ValueError: As of Keras.
        ConfigError: ``"grain"``; a negative ``max_length``; URLs, and labels that are not whole numbers, which are left
            to Keras where TensorFlow is installed.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("bad", "good"):
        ...     (root / name).mkdir()
        ...     written = (root / name / "1.txt").write_text(f"a {name} film")
        >>> data = wf.keras.text_dataset_from_directory(root, shuffle=False, max_length=5)
        Found 2 files belonging to 2 classes.
        >>> for texts, labels in data.as_numpy_iterator():
        ...     print(texts.tolist(), labels.tolist())
        [b'a bad', b'a goo'] [0, 1]
    """
    given: dict[str, Any] = {name: value for name, value in locals().items() if name != "options"}
    theirs = own("utils.text_dataset_utils", "text_dataset_from_directory")
    checked(given, options, theirs, format in ("tf", "grain"))
    if max_length is not None and max_length < 0:
        raise ConfigError(f"max_length is {max_length}; it must not be negative")
    dtype = labels_dtype(labels)
    if not dtype or "://" in os.fspath(directory):
        why = "the folder is a URL" if dtype else "labels that are not whole numbers of one type"
        return keras_own(given, theirs, why, "copy the folder here, and use whole numbers as labels")
    parts = found(given, (".txt",), "text files", "Allowed format: .txt", lambda paths: None)
    results = []
    for part in parts:
        numbers = np.arange(len(part.paths))
        source = sources.from_tensor_slices(numbers if part.labels is None else (numbers, part.labels))
        source = source if part.seed is None else source.shuffle(seed=part.seed)
        source = source.with_options(**options) if options else source
        mode = None if part.labels is None else label_mode
        data = handed_over(
            source, [], batch_size, Texts(part.paths, max_length, Labels(mode, len(part.names or ()), dtype))
        )
        data.class_names, data.file_paths = part.names, part.paths
        results.append(data)
    return results if subset == "both" else results[0]


class Texts:
    """Reads the files whose numbers are given, and has labels made: of what is known of columns, tensors and arrays."""

    # On torch and JAX `fit` takes no texts, but functions may make numbers of them.
    texts = True

    def __init__(self, paths: list[str], length: int | None, labels: Labels) -> None:
        self._paths, self._length, self._labels = paths, length, labels

    def __call__(self, element: Any) -> Any:
        if isinstance(element, tuple):
            number, label = element
            return self._labels((self._texts(number), label))
        return self._texts(element)

    def _texts(self, number: Any) -> Any:
        if isinstance(number, Column):
            return replace(number, kind="bytes", dtype=None)
        numbers = np.asarray(number)
        read = THREADS.map(self._read, [self._paths[i] for i in numbers.ravel()])
        if type(number).__module__.partition(".")[0] == "tensorflow":
            import tensorflow as tf

            return tf.constant(read if numbers.ndim else read[0], tf.string)
        texts = np.empty(len(read), object)
        texts[:] = read
        return texts if numbers.ndim else read[0]

    def _read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read(-1 if self._length is None else self._length)
