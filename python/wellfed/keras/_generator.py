"""`ImageDataGenerator`: Keras' class of that name, whose flows open and transform images in several threads.

Keras' own code finds the files, draws random numbers, and transforms; so with the same seed the batches are Keras' to
the bit. Random numbers of a batch are drawn in Keras' order before its threads begin. Where something might draw from
NumPy's generator on the way (a ``preprocessing_function``, a method that was overridden), images are opened by threads,
and transformed one after the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from .._accelerate.decoding import decode
from ._own import own
from ._threads import THREADS

__all__ = ["ImageDataGenerator"]

_MODULE = "legacy.preprocessing.image"
_Generator: Any = own(_MODULE, "ImageDataGenerator")
_Directory: Any = own(_MODULE, "DirectoryIterator")
_DataFrame: Any = own(_MODULE, "DataFrameIterator")
_Arrays: Any = own(_MODULE, "NumpyArrayIterator")
_load_img: Any = own("utils.image_utils", "load_img")
_img_to_array: Any = own("utils.image_utils", "img_to_array")
_METHODS: Any = own("utils.image_utils", "PIL_INTERPOLATION_METHODS")
_MODES = {"rgb": "RGB", "rgba": "RGBA", "grayscale": "L"}
# Modes of grey that Keras does not convert.
_KEPT = ("I;16", "I")


class ImageDataGenerator(_Generator):
    """`keras.preprocessing.image.ImageDataGenerator`, with the same arguments, methods, and batches.

    `flow_from_directory`, `flow_from_dataframe` and `flow` give Keras' iterators, with all of their attributes and
    methods, and ``explain()``. With the same seed each batch has the bits of Keras': files are decoded and resized as
    Pillow does it, random numbers are drawn in the same order from the same generator, and the random affine is
    SciPy's, which must be installed for it, as of Keras.

    What is opened and transformed at once are the images of one batch, in as many threads as the process has cores.

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     Image.new("RGB", (40, 30), "teal").save(root / name / "1.png")
        >>> generator = wf.keras.ImageDataGenerator(rescale=1 / 255, horizontal_flip=True)
        >>> flow = generator.flow_from_directory(root, target_size=(16, 16), class_mode="binary")
        Found 2 images belonging to 2 classes.
        >>> flow.class_indices, len(flow)
        ({'cat': 0, 'dog': 1}, 1)
        >>> images, labels = next(flow)
        >>> images.shape, sorted(labels.tolist())
        ((2, 16, 16, 3), [0.0, 1.0])
    """

    @functools.wraps(_Generator.flow_from_directory)
    def flow_from_directory(self, *args: Any, **kwargs: Any) -> Any:
        """Batches of the images in a folder; arguments as of Keras."""
        return _given(super().flow_from_directory(*args, **kwargs), DirectoryFlow)

    @functools.wraps(_Generator.flow_from_dataframe)
    def flow_from_dataframe(self, *args: Any, **kwargs: Any) -> Any:
        """Batches of the images that a table of pandas names; arguments as of Keras."""
        return _given(super().flow_from_dataframe(*args, **kwargs), DataFrameFlow)

    @functools.wraps(_Generator.flow)
    def flow(self, *args: Any, **kwargs: Any) -> Any:
        """Batches of images in an array; arguments as of Keras."""
        return _given(super().flow(*args, **kwargs), ArrayFlow)


def _given(iterator: Any, kind: type) -> Any:
    """Keras' iterator, which its constructor made, as one of ours: it only gets other methods."""
    if type(iterator) in (_Directory, _DataFrame, _Arrays):
        iterator.__class__ = kind
    return iterator


class _Flow:
    """What flows have in common."""

    image_data_generator: Any
    dtype: Any
    save_to_dir: Any

    @property
    def _serial(self) -> str:
        """Why images are transformed one after the other; empty if they are not."""
        generator = self.image_data_generator
        if generator.preprocessing_function is not None:
            return "preprocessing_function may draw from NumPy's generator"
        for name in ("apply_transform", "standardize", "get_random_transform"):
            if getattr(getattr(generator, name), "__func__", None) is not getattr(_Generator, name):
                return f"{name} is not Keras' own"
        return ""

    def _filled(self, batch: Any, items: list[Any], shape: Any, opened: Callable[[Any], Any]) -> None:
        """Writes the images that are `opened`, transformed, into their places of a batch."""
        generator = self.image_data_generator

        def transformed(image: Any, params: Any) -> Any:
            return generator.standardize(generator.apply_transform(image, params))

        def one(place: int, item: Any, params: Any) -> None:
            batch[place] = transformed(opened(item), params)

        if self._serial:
            for place, image in enumerate(THREADS.map(opened, items)):
                batch[place] = transformed(image, generator.get_random_transform(image.shape))
            return
        drawn = [generator.get_random_transform(shape) for _ in items]
        THREADS.map(one, range(len(items)), items, drawn)

    def explain(self) -> str:
        """What runs where."""
        if self.save_to_dir:
            return "all of it is Keras': images are saved to save_to_dir\n"
        why = self._serial
        how = f"in the calling thread: {why}" if why else f"in {THREADS.count} threads"
        return f"images of a batch are opened in {THREADS.count} threads\ntransformed by Keras' functions {how}\n"


class _FromFiles(_Flow):
    """A flow of files."""

    filepaths: Any
    image_shape: Any
    color_mode: Any
    target_size: Any
    interpolation: Any
    keep_aspect_ratio: Any
    data_format: Any
    class_mode: Any
    classes: Any
    class_indices: Any
    labels: Any
    sample_weight: Any

    def _get_batches_of_transformed_samples(self, index_array: Any) -> Any:
        if self.save_to_dir:
            return super()._get_batches_of_transformed_samples(index_array)  # type: ignore[misc]
        batch = np.zeros((len(index_array), *self.image_shape), dtype=self.dtype)
        paths = self.filepaths
        self._filled(batch, [paths[index] for index in index_array], self.image_shape, self._opened)
        labels = self._labels_of(index_array, batch)
        if labels is None:
            return batch
        weights = self.sample_weight
        return (batch, labels) if weights is None else (batch, labels, weights[index_array])

    def _labels_of(self, index_array: Any, batch: Any) -> Any:
        mode = self.class_mode
        if mode == "input":
            return batch.copy()
        if mode in ("binary", "sparse"):
            labels = np.empty(len(batch), dtype=self.dtype)
            for place, index in enumerate(index_array):
                labels[place] = self.classes[index]
            return labels
        if mode == "categorical":
            labels = np.zeros((len(batch), len(self.class_indices)), dtype=self.dtype)
            for place, index in enumerate(index_array):
                # Of one with several classes this is a list of them.
                labels[place, self.classes[index]] = 1.0
            return labels
        if mode == "multi_output":
            return [column[index_array] for column in self.labels]
        return self.labels[index_array] if mode == "raw" else None

    def _opened(self, path: str) -> Any:
        """The file as Keras loads it: float, in its layout and with the size that is asked for."""
        image = self._native(path)
        if image is None:
            image = _load_img(
                path,
                color_mode=self.color_mode,
                target_size=self.target_size,
                interpolation=self.interpolation,
                keep_aspect_ratio=self.keep_aspect_ratio,
            )
        return _img_to_array(image, data_format=self.data_format)

    def _native(self, path: str) -> Any:
        """The image, lazily where it can be; None for what Keras treats in a way of its own."""
        if self.interpolation not in _METHODS:
            return None
        if self.color_mode == "grayscale":
            from PIL import Image

            with Image.open(path) as looked_at:
                if looked_at.mode in _KEPT:
                    return None
        return decode(path, self._resized, mode=_MODES[self.color_mode])

    def _resized(self, image: Any) -> Any:
        height, width = self.target_size
        if image.size != (width, height):
            box = None
            if self.keep_aspect_ratio:
                # The largest part in the middle that has the sides' proportion, in whole pixels.
                high = min(image.height, image.width * height // width)
                wide = min(image.width, image.height * width // height)
                top, left = (image.height - high) // 2, (image.width - wide) // 2
                box = (left, top, left + wide, top + high)
            image = image.resize((width, height), _METHODS[self.interpolation], box=box)
        return np.asarray(image)


class DirectoryFlow(_FromFiles, _Directory):
    """What `ImageDataGenerator.flow_from_directory` gives."""


class DataFrameFlow(_FromFiles, _DataFrame):
    """What `ImageDataGenerator.flow_from_dataframe` gives."""


class ArrayFlow(_Flow, _Arrays):
    """What `ImageDataGenerator.flow` gives."""

    def _get_batches_of_transformed_samples(self, index_array: Any) -> Any:
        if self.save_to_dir:
            return super()._get_batches_of_transformed_samples(index_array)
        batch = np.zeros((len(index_array), *self.x.shape[1:]), dtype=self.dtype)
        # A copy: images are changed in place.
        self._filled(
            batch, list(index_array), self.x.shape[1:], lambda index: self.x[index].astype(self.dtype)
        )
        more = [column[index_array] for column in self.x_misc]
        images = [batch, *more] if more else batch
        if self.y is None:
            return images
        if self.sample_weight is None:
            return images, self.y[index_array]
        return images, self.y[index_array], self.sample_weight[index_array]
