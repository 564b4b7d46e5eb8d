"""What data sets become: files or arrays that the engine reads, and labels.

Invariant: only data sets of exactly the known types are recognized, from the attributes they have already built
(nothing is listed anew), and only where each image is what the engine makes of the same bytes. What `flatten` says of a
data set holds until `Flat.current` is false.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import ConcatDataset, Subset

from . import hugging, sound_sets, users
from .forms import Form, RefusalError, is_stock
from .functions import loads_rgb
from .hugging import Encoded, Table
from .joint import Boxes, Follower, Lazy, Masks, coco_boxes, inner_of, mask_dtype
from .sounds import Sounds, common_rate
from .stamps import Stamp
from .users import Reading
from .values import Picture

__all__ = ["Encoded", "Files", "Flat", "Leaf", "Pixels", "Stored", "flatten"]

_METHODS = ("__getitem__", "__getitems__", "__len__", "__getattribute__")


@dataclass(frozen=True)
class Files:
    """Images in files.

    Attributes:
        paths: Where they are.
        opencv: Whether only what is known of OpenCV is read, as it reads it; the rest is left to Python.
        turned: Whether they are turned as their EXIF data says.
    """

    paths: list[str]
    opencv: bool = False
    turned: bool = False

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class Pixels:
    """Images in one uint8 array, as ``pixels`` of `wellfed.from_tensor_slices` has it."""

    array: npt.NDArray[np.uint8]
    order: str

    def __len__(self) -> int:
        return len(self.array)


@dataclass(frozen=True)
class Stored:
    """Images of a data set of the engine's own: of shards, say.

    Attributes:
        open: Gives that data set.
        length: How many there are.
        opencv: Whether only what is known of OpenCV is read, as it reads it; the rest is left to Python.
        turned: Whether they are turned as their EXIF data says.
    """

    open: Callable[[], Any]
    length: int
    opencv: bool = False
    turned: bool = False

    def __len__(self) -> int:
        return self.length


@dataclass
class Leaf:
    """One data set that has images or sounds: what it reads, calls and answers.

    Attributes:
        dataset: The data set itself.
        content: Its images or sounds.
        form: What one of them is before `transform`.
        transform: What it calls on the image; None for nothing.
        targets: What belongs to each image.
        target_transform: What it calls on that; None for nothing.
        joint: Whether both stand in its ``transforms``.
        table: Its columns, if it is a table; then there are no `targets`.
        follows: What moves with the image; then `transform` is called with both, and there are no `targets`.
        reading: What was read of its ``__getitem__``, if its class is the user's; then there are no `targets`.
    """

    dataset: Any
    content: Files | Pixels | Encoded | Stored | Sounds
    form: Form
    transform: Any
    targets: Sequence[Any]
    target_transform: Any
    joint: bool = False
    table: Table | None = None
    follows: Follower | None = None
    reading: Reading | None = None

    def __len__(self) -> int:
        return len(self.content)


@dataclass
class Flat:
    """A data set without its wrappers: rows of leaves laid end to end.

    Attributes:
        leaves: The data sets with images.
        rows: Row for each index of the data set; None where they are the same.
        length: Samples of the data set.
    """

    leaves: list[Leaf]
    rows: npt.NDArray[np.int64] | None
    length: int
    stamp: Stamp = field(default_factory=lambda: Stamp([]))

    @property
    def starts(self) -> list[int]:
        """First row of each leaf."""
        sizes = [0, *(len(leaf) for leaf in self.leaves)]
        return [int(start) for start in np.cumsum(sizes)[:-1]]

    def current(self, dataset: Any, deep: bool = True) -> bool:
        """Whether `dataset` is still what was looked at: the same lists, and if `deep` with the same elements."""
        try:
            now = _stamp(dataset, self._readings())
        except RefusalError:
            return False
        return self.stamp.holds(now, deep) and (not deep or all(map(_has_same_paths, self._readings())))

    def look(self, dataset: Any) -> None:
        """Remembers how `dataset` is now."""
        self.stamp = Stamp(_stamp(dataset, self._readings()))

    def _readings(self) -> Iterator[Reading]:
        return iter([leaf.reading for leaf in self.leaves if leaf.reading is not None])


def flatten(dataset: Any) -> Flat:
    """What the engine can read of `dataset`, whose transforms may still be Python.

    Raises:
        RefusalError: It is none of the known types, or something of it was replaced.
    """
    flat = _flatten(dataset)
    flat.look(dataset)
    return flat


def _flatten(dataset: Any) -> Flat:
    kind = type(dataset)
    if kind is Subset:
        _check(dataset)
        inner = _flatten(dataset.dataset)
        picked = _indices(dataset.indices, inner.length)
        return Flat(inner.leaves, picked if inner.rows is None else inner.rows[picked], len(picked))
    if kind is ConcatDataset:
        _check(dataset)
        parts = [_flatten(part) for part in dataset.datasets]
        if dataset.cumulative_sizes != ConcatDataset.cumsum(dataset.datasets):
            raise RefusalError("its parts changed their length", "make the ConcatDataset anew")
        leaves = [leaf for part in parts for leaf in part.leaves]
        if any(leaf.table is not None for leaf in leaves):
            raise RefusalError("its parts are tables", "datasets.concatenate_datasets")
        length = sum(part.length for part in parts)
        if all(part.rows is None for part in parts):
            return Flat(leaves, None, length)
        rows, start = [], 0
        for part in parts:
            rows.append(start + (np.arange(part.length) if part.rows is None else part.rows))
            start += sum(len(leaf) for leaf in part.leaves)
        return Flat(leaves, np.concatenate(rows), length)
    if hugging.is_known(dataset):
        leaf = _hugging(dataset)
        picked = dataset._indices
        given = None if picked is None else picked.column(0).to_numpy().astype(np.int64)
        return Flat([leaf], given, len(dataset))
    inner = inner_of(dataset)
    if inner is not None:
        leaf = _wrapped(dataset, inner)
        return Flat([leaf], None, len(leaf))
    handler = _handlers().get(kind)
    if handler is None:
        leaf = _of_sounds(dataset) if sound_sets.is_known(dataset) else _of_user(dataset)
        return Flat([leaf], None, len(leaf))
    _check(dataset)
    leaf = handler(dataset)
    if len(leaf.targets) < len(leaf) or len(dataset) != len(leaf):
        raise RefusalError(f"has {len(leaf)} images, but {len(leaf.targets)} targets")
    return Flat([leaf], None, len(leaf))


def _check(dataset: Any) -> None:
    if not is_stock(dataset, *_METHODS):
        raise RefusalError("its methods were replaced", "use the class as its library made it")


def _indices(given: Any, length: int) -> npt.NDArray[np.int64]:
    try:
        picked = np.asarray(given)
    except (TypeError, ValueError):
        raise RefusalError("its indices are no whole numbers") from None
    if picked.size == 0:
        picked = picked.astype(np.int64)
    if picked.ndim != 1 or picked.dtype.kind not in "iu":
        raise RefusalError("its indices are no whole numbers")
    if picked.size and (picked.min() < 0 or picked.max() >= length):
        raise RefusalError(
            f"its indices do not all lie in 0 to {length - 1}", "use indices that count from 0"
        )
    return picked.astype(np.int64)


def _why_unknown(dataset: Any) -> tuple[str, str]:
    kind = type(dataset)
    for base in kind.__mro__[1:]:
        if base in _handlers() or base in (Subset, ConcatDataset):
            return f"a subclass of {base.__name__} may do something else", f"use {base.__name__} itself"
    if kind.__module__.startswith("torchvision."):
        return "the engine does not read what it has", ""
    # No advice: nobody knows what it holds, which may be text as well as images.
    return "Python code", ""


# What may change between epochs, cheap to look at.


def _stamp(dataset: Any, readings: Iterator[Reading]) -> list[Any]:
    kind = type(dataset)
    if kind is Subset:
        return [dataset, dataset.indices, *_stamp(dataset.dataset, readings)]
    if kind is ConcatDataset:
        parts = [value for part in dataset.datasets for value in _stamp(part, readings)]
        return [dataset, dataset.datasets, *parts]
    if hugging.is_known(dataset):
        form = dataset.format
        reading = next(readings, None) if hugging.is_transformed(dataset) else None
        return [
            dataset,
            dataset._data,
            dataset._indices,
            f"{form['type']} {form['format_kwargs']} {form['columns']}",
            *([] if reading is None else reading.now()),
        ]
    inner = inner_of(dataset)
    if inner is not None:
        # Its own attributes shadow those of the data set in it.
        return [dataset, inner, vars(dataset).get("_target_keys"), *_stamp(inner, readings)]
    if kind not in _handlers():
        reading = next(readings, None)
        if reading is None:
            raise RefusalError("")
        return [dataset, *reading.now()]
    if not is_stock(dataset, *_METHODS):
        raise RefusalError("")
    own = vars(dataset)
    values = [dataset, *(own.get(name) for name in _READ)]
    # Of StandardTransform's two transforms only that of targets is of interest: others are lowered anew anyway.
    values.append(getattr(own.get("reader"), "samples", None))
    return [*values, getattr(own.get("transforms"), "target_transform", None)]


_READ = (
    *(
        "samples",
        "imgs",
        "data",
        "targets",
        "labels",
        "loader",
        "target_transform",
        "y",
        "index",
        "root",
        "compat",
    ),
    *(
        "_samples",
        "_images",
        "_image_files",
        "_labels",
        "_bin_labels",
        "_segs",
        "images",
        "coco",
        "ids",
        "_target_types",
        "target_type",
        "categories",
        "reader",
        "load_bytes",
        "input_img_mode",
        "additional_features",
    ),
)


def _has_same_paths(reading: Reading) -> bool:
    try:
        return reading.same_paths is None or reading.same_paths()
    except Exception:  # one of the samples has none any more
        return False


# The known types.

Handler = Callable[[Any], Leaf]
_RGB_FILES = Form("pil", mode="RGB")
_ANY_FILES = Form("pil", mode="any")
_OPENCV_FILES = Form("array", mode="RGB")


def _loaded(dataset: Any) -> bool:
    """Whether a known function loads its images with OpenCV, and not with Pillow."""
    if loads_rgb(dataset.loader):
        return True
    _loaded_by_pillow(dataset)
    return False


def _loaded_by_pillow(dataset: Any) -> None:
    from torchvision import get_image_backend
    from torchvision.datasets import folder

    loader = dataset.loader
    known = ("default_loader", "pil_loader")
    if loader not in (folder.default_loader, folder.pil_loader) or any(
        (f := getattr(folder, name)).__module__ != folder.__name__ or f.__qualname__ != name for name in known
    ):
        raise RefusalError(
            f"its loader is {getattr(loader, '__qualname__', loader)!s}",
            "torchvision's default loader: leave loader= out",
        )
    if get_image_backend() != "PIL":
        raise RefusalError(
            f"the image backend is {get_image_backend()}", 'torchvision.set_image_backend("PIL")'
        )


def _files(paths: Sequence[Any], opencv: bool = False) -> Files:
    try:
        return Files([os.fspath(path) for path in paths], opencv, turned=opencv)
    except TypeError:
        raise RefusalError("its samples are no paths") from None


def _pairs(name: str, loader: bool = True) -> Handler:
    def handle(d: Any) -> Leaf:
        opencv = loader and _loaded(d)
        samples = getattr(d, name)
        try:
            paths, targets = zip(*samples, strict=True) if samples else ((), ())
        except (TypeError, ValueError):
            raise RefusalError(f"{name} is no list of pairs") from None
        form = _OPENCV_FILES if opencv else _RGB_FILES
        return Leaf(d, _files(paths, opencv), form, d.transform, targets, d.target_transform)

    return handle


def _listed(d: Any) -> Leaf:
    opencv = _loaded(d)
    form = _OPENCV_FILES if opencv else _RGB_FILES
    return Leaf(d, _files(d._image_files, opencv), form, d.transform, d._labels, d.target_transform)


def _standard(d: Any) -> tuple[Any, Any]:
    from torchvision.datasets.vision import StandardTransform

    joint = d.transforms
    if not joint:
        return None, None
    if type(joint) is not StandardTransform or not is_stock(joint, "__call__"):
        raise RefusalError(
            "transforms= sees image and target at once",
            "torchvision.datasets.wrap_dataset_for_transforms_v2(...), or transform= and target_transform=",
        )
    return joint.transform, joint.target_transform


def _pets(d: Any) -> Leaf:
    answers = {"category": "_labels", "binary-category": "_bin_labels"}
    kinds = list(d._target_types)
    if kinds == ["segmentation"]:
        return _opened(d, d._images, d._segs)
    if len(kinds) != 1 or kinds[0] not in answers:
        raise RefusalError(f"target_types are {kinds}", 'target_types="category"')
    transform, target_transform = _standard(d)
    return Leaf(
        d, _files(d._images), _RGB_FILES, transform, getattr(d, answers[kinds[0]]), target_transform, True
    )


def _opened(d: Any, images: Sequence[Any], masks: Sequence[Any]) -> Leaf:
    """Pairs of files, of which the second is opened by Pillow when it is asked for."""
    from PIL import Image

    transform, target_transform = _standard(d)
    targets = Lazy(len(masks), lambda row: Image.open(masks[row]))
    return Leaf(d, _files(images), _RGB_FILES, transform, targets, target_transform, True)


def _voc(d: Any) -> Leaf:
    return _opened(d, d.images, d.targets)


def _coco(d: Any) -> Leaf:
    transform, target_transform = _standard(d)
    _check_coco(d)
    targets = Lazy(len(d.ids), lambda row: d._load_target(d.ids[row]))
    return Leaf(d, _files(_coco_paths(d)), _RGB_FILES, transform, targets, target_transform, True)


def _check_coco(d: Any) -> None:
    if not is_stock(d, "_load_image", "_load_target"):
        raise RefusalError("its methods were replaced", "use the class as its library made it")


def _coco_paths(d: Any) -> list[str]:
    return [os.path.join(d.root, d.coco.imgs[i]["file_name"]) for i in d.ids]


def _wrapped(dataset: Any, inner: Any) -> Leaf:
    """A data set whose targets are masks or boxes that move with their image."""
    from torchvision import datasets
    from torchvision.datasets.vision import StandardTransform

    if type(inner) not in _handlers() or not is_stock(inner, *_METHODS):
        raise RefusalError(*_why_unknown(inner))
    if inner.transform or inner.target_transform or inner.transforms:
        raise RefusalError(
            "the data set in it was given transforms of its own", "give them before it is wrapped"
        )
    follows: Masks | Boxes
    if type(inner) is datasets.VOCSegmentation:
        paths, masks = _files(inner.images), _files(inner.targets).paths
        follows = Masks(masks, mask_dtype(masks[0]) if masks else "uint8")
    elif type(inner) is datasets.OxfordIIITPet and list(inner._target_types) == ["segmentation"]:
        paths, masks = _files(inner._images), _files(inner._segs).paths
        follows = Masks(masks, mask_dtype(masks[0]) if masks else "uint8")
    elif type(inner) is datasets.CocoDetection:
        _check_coco(inner)
        paths = _files(_coco_paths(inner))
        follows = coco_boxes(inner.coco, inner.ids, vars(dataset)["_target_keys"])
    else:
        raise RefusalError(
            "its targets do not move with the image", "leave wrap_dataset_for_transforms_v2 out"
        )
    joint = vars(dataset)["transforms"]
    if type(joint) is StandardTransform:
        raise RefusalError(
            "transform= and target_transform= are called apart, so that targets do not follow", "transforms="
        )
    return Leaf(dataset, paths, _RGB_FILES, joint, (), None, True, follows=follows)


def _places(d: Any) -> Leaf:
    _loaded_by_pillow(d)
    paths, targets = zip(*d.imgs, strict=True) if d.imgs else ((), ())
    transform, target_transform = _standard(d)
    return Leaf(d, _files(paths), _RGB_FILES, transform, targets, target_transform, True)


def _caltech101(d: Any) -> Leaf:
    if list(d.target_type) != ["category"]:
        raise RefusalError(f"target_type is {d.target_type}", 'target_type="category"')
    folder = os.path.join(d.root, "101_ObjectCategories")
    paths = [
        os.path.join(folder, d.categories[y], f"image_{i:04d}.jpg") for y, i in zip(d.y, d.index, strict=True)
    ]
    return Leaf(d, Files(paths), _ANY_FILES, d.transform, d.y, d.target_transform)


def _caltech256(d: Any) -> Leaf:
    folder = os.path.join(d.root, "256_ObjectCategories")
    paths = [
        os.path.join(folder, d.categories[y], f"{y + 1:03d}_{i:04d}.jpg")
        for y, i in zip(d.y, d.index, strict=True)
    ]
    return Leaf(d, Files(paths), _ANY_FILES, d.transform, d.y, d.target_transform)


def _pixels(array: Any, order: str, ndim: int) -> Pixels:
    if isinstance(array, torch.Tensor) and array.device.type == "cpu":
        array = array.numpy()
    channels = {"hwc": -1, "chw": 1}
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim != ndim:
        raise RefusalError("its data is no uint8 array of images any more")
    if ndim == 4 and array.shape[channels[order]] != 3:
        raise RefusalError("its data are no colour images any more")
    return Pixels(array, order)


def _settle(dataset: Any, name: str) -> None:
    """Has an array of images lie in order in memory, so that the engine reads it where it is, as it is then.

    CIFAR's is a transposed view. The array is exchanged for an equal one only where nobody else holds it or its memory.
    """
    array = vars(dataset).get(name)
    if type(array) is not np.ndarray or array.flags.c_contiguous or not array.flags.writeable:
        return
    base: Any = array.base
    del array
    if type(base) is not np.ndarray or not base.flags.owndata:
        return
    # Each is held by one owner, by a variable here or none, and by the call.
    if sys.getrefcount(vars(dataset)[name]) <= 2 and sys.getrefcount(base) <= 3:
        setattr(dataset, name, np.ascontiguousarray(vars(dataset)[name]))


def _array(name: str, targets: str, order: str, ndim: int) -> Handler:
    form = Form("pil", mode="RGB" if ndim == 4 else "L", sized=True)

    def handle(d: Any) -> Leaf:
        answers = getattr(d, targets)
        if answers is None:
            raise RefusalError("it has no labels")
        if type(answers) is not list:  # what torchvision turns into int() one by one
            answers = np.asarray(answers)
            if answers.ndim != 1:
                raise RefusalError("its targets are no plain list")
            answers = answers.astype(np.int64).tolist()
        elif name == "data" and targets == "targets" and ndim == 3:
            answers = [int(y) for y in answers]
        _settle(d, name)
        return Leaf(d, _pixels(getattr(d, name), order, ndim), form, d.transform, answers, d.target_transform)

    return handle


def _qmnist(d: Any) -> Leaf:
    if not d.compat:
        raise RefusalError("its targets are tensors", "compat=True")
    answers = d.targets[:, 0].tolist()
    return Leaf(
        d,
        _pixels(d.data, "hwc", 3),
        Form("pil", mode="L", sized=True),
        d.transform,
        answers,
        d.target_transform,
    )


def _of_user(dataset: Any) -> Leaf:
    """A data set of a class that is not known: the user's, if its source says what it does."""
    why, change = _why_unknown(dataset)
    try:
        reading, images = users.read(dataset)
    except RefusalError as refused:
        why, change = (why, change) if change else (refused.why, refused.change)
        raise RefusalError(why, change, refused.refusal) from None
    picture = reading.picture
    content: Files | Pixels | Encoded | Sounds
    form = reading.form
    if not isinstance(picture, Picture):
        assert isinstance(images, list)
        content = Sounds(images)
        form = _with_rate(form, content)
    elif isinstance(images, Encoded):
        content = images
    elif isinstance(images, list):
        content = Files(images, picture.reader != "pillow", picture.turned)
    else:
        content = Pixels(images, "hwc")
    return Leaf(
        dataset,
        content,
        form,
        reading.transform,
        (),
        None,
        reading=reading,
        follows=reading.follows,
    )


def _of_sounds(dataset: Any) -> Leaf:
    reading, sounds = sound_sets.read(dataset)
    if len(dataset) != len(sounds):
        raise RefusalError(f"has {len(sounds)} sounds, but {len(dataset)} samples")
    form = _with_rate(reading.form, sounds)
    return Leaf(dataset, sounds, form, None, (), None, reading=reading)


def _with_rate(form: Form, sounds: Sounds) -> Form:
    """The form with the sample rate that sounds have."""
    return replace(form, rate=common_rate(sounds))


def _hugging(dataset: Any) -> Leaf:
    if not hugging.is_transformed(dataset):
        table = hugging.read(dataset)
        return Leaf(dataset, table.content, table.form, None, (), None, table=table)
    known = hugging.read_transformed(dataset)
    return leaf_of_rows(dataset, known.content, known.reading)


def leaf_of_rows(dataset: Any, content: Encoded | list[str] | Sounds, reading: Reading) -> Leaf:
    """Images or sounds of a table, and what functions of the user make of its rows."""
    if isinstance(content, Sounds):
        form = _with_rate(reading.form, content)
        return Leaf(dataset, content, form, reading.transform, (), None, reading=reading)
    files = Files(content, turned=True) if isinstance(content, list) else content
    return Leaf(dataset, files, reading.form, reading.transform, (), None, reading=reading)


def _timm(d: Any) -> Leaf:
    """An `ImageDataset` of timm over folders. What it does about files that it cannot open, it does itself."""
    reader = d.reader
    if type(reader).__name__ != "ReaderImageFolder" or not is_stock(reader, "__getitem__", "__len__"):
        raise RefusalError(f"its reader is {type(reader).__name__}", "images in folders")
    if type(reader).__module__ != "timm.data.readers.reader_image_folder":
        raise RefusalError(f"its reader is {type(reader).__qualname__} of the user", "images in folders")
    if d.load_bytes or d.additional_features is not None:
        raise RefusalError("its samples have more than images and targets, or bytes", "leave load_bytes out")
    if d.input_img_mode not in ("RGB", "L"):
        raise RefusalError(f"input_img_mode is {d.input_img_mode!r}", 'input_img_mode="RGB"')
    paths, targets = zip(*reader.samples, strict=True) if reader.samples else ((), ())
    if any(target is None for target in targets):
        raise RefusalError("some of its images have no target")
    return Leaf(
        d, _files(paths), Form("pil", mode=d.input_img_mode), d.transform, targets, d.target_transform
    )


_KNOWN: dict[str, Handler] = {
    "ImageFolder": _pairs("samples"),
    "DatasetFolder": _pairs("samples"),
    "ImageNet": _pairs("samples"),
    "Country211": _pairs("samples"),
    "EuroSAT": _pairs("samples"),
    "Imagenette": _pairs("_samples"),
    "StanfordCars": _pairs("_samples"),
    "RenderedSST2": _pairs("_samples"),
    "GTSRB": _pairs("_samples", loader=False),
    "DTD": _listed,
    "FGVCAircraft": _listed,
    "Flowers102": _listed,
    "Food101": _listed,
    "SUN397": _listed,
    "OxfordIIITPet": _pets,
    "VOCSegmentation": _voc,
    "CocoDetection": _coco,
    "Places365": _places,
    "Caltech101": _caltech101,
    "Caltech256": _caltech256,
    "CIFAR10": _array("data", "targets", "hwc", 4),
    "CIFAR100": _array("data", "targets", "hwc", 4),
    "SVHN": _array("data", "labels", "chw", 4),
    "STL10": _array("data", "labels", "chw", 4),
    "MNIST": _array("data", "targets", "hwc", 3),
    "FashionMNIST": _array("data", "targets", "hwc", 3),
    "KMNIST": _array("data", "targets", "hwc", 3),
    "EMNIST": _array("data", "targets", "hwc", 3),
    "USPS": _array("data", "targets", "hwc", 3),
    "SEMEION": _array("data", "labels", "hwc", 3),
    "QMNIST": _qmnist,
}

_types: dict[type, Handler] = {}


def _handlers() -> dict[type, Handler]:
    """Handlers by exact type; made when first needed, since torchvision need not be there."""
    if not _types:
        try:
            from torchvision import datasets
        except ImportError:
            return _types
        _types.update(
            {getattr(datasets, name): handle for name, handle in _KNOWN.items() if hasattr(datasets, name)}
        )
    timm = getattr(sys.modules.get("timm.data.dataset"), "ImageDataset", None)
    if timm is not None:
        _types[timm] = _timm
    return _types
