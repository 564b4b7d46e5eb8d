"""What is known of the functions that data sets call: those that open images, and those that only calculate.

Invariant: a function is known by being the object that its library has, not by its name.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PosixPath, WindowsPath
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from wellfed import transforms as T
from wellfed._accelerate import opencv, sounds, torchvision_io

from . import beside, calculating, drawn
from . import sounds as of_sounds
from .albumentations import Albumentations
from .encoded import MOST_IN_MEMORY
from .forms import ChannelsFirst, name_of
from .opencv import FILTERS, different
from .processors import Processed
from .unknown import UnknownError
from .values import (
    INDEX,
    Boxes,
    Chance,
    Column,
    Edge,
    Features,
    File,
    Group,
    Hdf5,
    Known,
    Lmdb,
    Mask,
    Picture,
    Row,
    Side,
    Sliced,
    Sound,
    Stack,
    Stored,
    Table,
    Transaction,
    Uniform,
    Value,
)

__all__ = [
    "METHODS",
    "UnknownError",
    "called",
    "column",
    "converted",
    "copies",
    "divided",
    "functions",
    "has_rows",
    "in_memory",
    "inside",
    "is_finished",
    "is_library",
    "is_opened",
    "keeps",
    "made_by",
    "method",
    "name_of",
    "opened",
    "processed",
    "pure",
    "sliced",
    "transformed",
    "transforms",
    "word",
]


# What only calculates.

METHODS = frozenset(
    [
        # of texts
        *(
            "format",
            "replace",
            "split",
            "rsplit",
            "strip",
            "lstrip",
            "rstrip",
            "lower",
            "upper",
            "zfill",
            "join",
        ),
        *(
            "startswith",
            "endswith",
            "removeprefix",
            "removesuffix",
            "title",
            "partition",
            "rpartition",
            "encode",
            "decode",
        ),
        # of paths and dictionaries
        *("with_suffix", "with_name", "joinpath", "as_posix", "get", "index"),
        # of arrays and tensors
        *(
            "item",
            "tolist",
            "tobytes",
            "as_py",
            "astype",
            "to_numpy",
            "copy",
            "reshape",
            "sum",
            "min",
            "max",
            "mean",
            "transpose",
        ),
        *("long", "float", "int", "double", "half", "bool", "to", "clone", "numpy", "view", "permute"),
        *("squeeze", "unsqueeze", "flatten", "type", "contiguous", "detach", "div", "mul", "add", "sub"),
    ]
)
"""Methods of plain values that change nothing."""

_FOLDED: tuple[Any, ...] = (
    *(
        str,
        int,
        float,
        bool,
        len,
        abs,
        min,
        max,
        round,
        tuple,
        list,
        sorted,
        sum,
        repr,
        isinstance,
        slice,
        bytes,
    ),
    *(os.path.join, os.path.basename, os.path.dirname, os.path.splitext, os.path.normpath, os.fspath),
    *(pathlib.Path, pathlib.PurePath, np.int64, np.int32, np.float32, np.float64, np.uint8),
)
"""Functions that give equal values for equal arguments, which nobody changes."""

_MAKING: tuple[Any, ...] = (
    *(torch.tensor, torch.as_tensor, torch.from_numpy, torch.stack, torch.cat, torch.zeros, torch.ones),
    *(torch.LongTensor, torch.FloatTensor, np.array, np.asarray, np.stack, np.concatenate, np.zeros, np.ones),
    *(np.ascontiguousarray, np.frombuffer, dict, torch.arange, np.arange),
)
"""Functions that make a new object each time."""

_PURE = {id(function): "folded" for function in _FOLDED} | {id(function): "made" for function in _MAKING}


def has_rows(array: Any) -> bool:
    """Whether the rows of an array are arrays of numbers, or tensors."""
    if type(array) is torch.Tensor:
        on_cpu = array.layout == torch.strided and array.device.type == "cpu"
        return bool(on_cpu and array.ndim > 0 and not array.requires_grad)
    return bool(type(array) in (np.ndarray, np.memmap) and array.ndim > 1 and array.dtype.kind in "iufb")


def keeps(function: Any) -> bool:
    """Whether a function makes another object of the same numbers of an array."""
    known = (np.array, np.asarray, np.ascontiguousarray, torch.from_numpy, torch.as_tensor)
    return any(function is one for one in known)


def copies(function: Any) -> bool:
    """Whether a function puts the values of a list together in new memory."""
    return any(function is known for known in (*_TOGETHER, pad_sequence))


_TOGETHER: tuple[Any, ...] = (
    torch.tensor,
    torch.stack,
    torch.cat,
    torch.LongTensor,
    torch.FloatTensor,
    np.stack,
    np.array,
)


def pure(function: Any) -> str | None:
    """Whether a function only calculates: "folded" if nobody changes its values, "made" if they are new each time."""
    return _PURE.get(id(function))


# Images.


def word(value: Any) -> str:
    """What a value is called in a sentence."""
    if isinstance(value, Picture):
        return "an image"
    if isinstance(value, Sound):
        return "a sound"
    if isinstance(value, File):
        return "a file"
    if isinstance(value, Row):
        return "a value of the sample"
    if isinstance(value, Known):
        return name_of(value.value)
    return {
        Hdf5: "an HDF5 file",
        Lmdb: "an LMDB environment",
        Transaction: "an LMDB transaction",
        Mask: "a mask",
        Boxes: "boxes",
        Side: "the size of an image",
        Uniform: "a number that it draws",
        Chance: "what it draws",
        Edge: "what it draws",
        Stored: "an array",
        Sliced: "a row of a table",
        Column: "a list",
        Group: "a tuple or list",
        Table: "a dictionary",
    }.get(type(value), type(value).__name__)


def is_opened(value: Value) -> bool:
    """Whether a with statement gives the value itself: of a file, or of an image whose file is open."""
    return isinstance(value, File | Transaction) or (isinstance(value, Picture) and not value.steps)


def converted(picture: Value, mode: Any) -> Picture:
    """``image.convert(mode)`` of a Pillow image, of which nothing else was made."""
    if not isinstance(picture, Picture) or picture.kind != "pil" or mode not in ("RGB", "L"):
        raise UnknownError(f"convert({mode!r}) of this image is not known")
    if picture.mode not in ("any", mode):
        raise UnknownError("converts an image twice")
    return replace(picture, mode=mode)


def sliced(picture: Picture, key: str) -> Picture:
    """``image[:, :, ::-1]`` of what OpenCV read."""
    if picture.kind == "array" and picture.mode == "BGR" and key.strip("()") in (":, :, ::-1", "..., ::-1"):
        # As an array of its own; a view with negative strides would be refused by what comes next.
        return replace(picture, mode="RGB")
    raise UnknownError("looks at a part of an image")


def in_memory(array: Any, place: Value) -> Picture | None:
    """The image of the sample in an array of images; None if it is none, or has another place."""
    if place is not INDEX or array.dtype != np.uint8 or not array.flags.c_contiguous:
        return None
    colour = array.ndim == 4 and array.shape[3] == 3
    if not colour and array.ndim != 3:
        return None
    return Picture(INDEX, "memory", "RGB" if colour else "L", "array", array=array)


def column(owner: Value, arguments: list[Value], named: dict[str, Value]) -> Known | None:
    """``table.column(name)`` of a table of Arrow, which nobody can change; None of anything else."""
    arrow: Any = sys.modules.get("pyarrow")
    if arrow is None or not isinstance(owner, Known) or type(owner.value) is not arrow.Table or named:
        return None
    if len(arguments) != 1 or not isinstance(arguments[0], Known):
        return None
    try:
        return Known(owner.value.column(arguments[0].value))
    except (KeyError, IndexError, TypeError) as error:
        raise UnknownError(f"it raises {error}") from None


def opened(value: Value) -> Value:
    """The file in the place of an object of h5py that has opened it for reading; all else as it is."""
    h5py: Any = sys.modules.get("h5py")
    if h5py is None or not isinstance(value, Known) or type(value.value) is not h5py.File:
        return value
    file = value.value
    return Hdf5(file.filename) if file and file.mode == "r" and file.driver != "core" else value


def inside(file: Hdf5, key: Known | None) -> Value:
    """What has a name in an HDF5 file.

    Raises:
        UnknownError: It is no array that lies in the file as it does in memory.
    """
    h5py: Any = sys.modules["h5py"]

    if key is None or not isinstance(key.value, str):
        raise UnknownError("takes something else than a name of an HDF5 file")
    try:
        with h5py.File(file.path, "r") as opened:
            found = opened[file.name][key.value]
            if type(found) is h5py.Group:
                return Hdf5(file.path, found.name)
            if type(found) is h5py.Dataset and _has_bytes(h5py, found):
                if os.path.getsize(file.path) > MOST_IN_MEMORY:
                    raise UnknownError("the encoded images of an HDF5 file are too large for memory")
                return Stored(found[:])
            if type(found) is h5py.Dataset and found.chunks is not None:
                return Stored(_unpacked(found, key.value))
            offset = found.id.get_offset() if type(found) is h5py.Dataset else None
            if offset is None or found.dtype.kind not in "iuf" or not found.dtype.isnative or found.external:
                raise UnknownError(f"{key.value} of the HDF5 file does not lie in it as one array")
            lies = np.memmap(file.path, found.dtype, "r", offset, found.shape)
    except (OSError, KeyError, ValueError) as error:
        raise UnknownError(str(error)) from None
    return Stored(np.asarray(lies))


def _unpacked(found: Any, name: str) -> Any:
    """An array that lies in an HDF5 file in chunks, compressed or not: unpacked once, and not for each item.

    Raises:
        UnknownError: It is too large, or no array of numbers of this file alone.
    """
    if found.dtype.kind not in "iuf" or not found.dtype.isnative or found.is_virtual or not found.ndim:
        raise UnknownError(f"{name} of the HDF5 file is no array of numbers in it")
    if found.nbytes > MOST_IN_MEMORY:
        raise UnknownError(
            f"{name} of the HDF5 file lies in chunks, and its {found.nbytes} bytes are too many for memory"
        )
    return found[()]


def _has_bytes(h5py: Any, found: Any) -> bool:
    """Whether each item of an array in an HDF5 file is some bytes, any number of them."""
    return bool(found.ndim == 1 and h5py.check_vlen_dtype(found.dtype) == np.uint8)


def divided(picture: Picture, by: Any) -> Picture:
    """``tensor / 255``."""
    if picture.kind == "floats" and type(by) in (int, float) and by == 255:
        # v1's divides, as here; v2's multiplies by 1/255, which differs in the last bit.
        return replace(picture, kind="chw").after(_transform("v1", "ConvertImageDtype")(dtype=torch.float32))
    raise UnknownError("calculates with pixels")


def method(picture: Picture | Mask, name: str, arguments: list[Value], named: dict[str, Value]) -> Value:
    """A method of an image."""
    if isinstance(picture, Mask):
        return beside.method(picture, name, arguments, named)
    if picture.mode != "RGB" and picture.kind == "made" and (found := beside.as_mask(picture)) is not None:
        return beside.method(found, name, arguments, named)
    given = [value.value if isinstance(value, Known) else value for value in arguments]
    match picture.kind, name, given:
        case "pil", "convert", [mode] if not named:
            return converted(picture, mode)
        case "pil", "convert", [] if set(named) == {"mode"} and isinstance(named["mode"], Known):
            return converted(picture, named["mode"].value)
        case "pil", "load", [] if not named:
            return picture
        case (("pil" | "made"), "transpose", [way]) if not named and drawn.is_flip(way):
            return drawn.mirrored(picture, way)
        case "hwc", "permute", [2, 0, 1] | [Group(_, (Known(2), Known(0), Known(1)))] if not named:
            return _channels_first(picture)
        case (("hwc" | "chw"), "contiguous", []) if not named:
            return picture
        case "array", "transpose", [2, 0, 1] | [Group(_, (Known(2), Known(0), Known(1)))] if not named:
            return replace(picture, kind="chw array")
        case "chw", "float", [] if not named:
            return replace(picture, kind="floats")
        case "floats", ("div" | "true_divide"), [by] if not named:
            return divided(picture, by)
    raise UnknownError(f"{name}() of an image is not known")


def transforms(function: Any) -> bool:
    """Whether it is something that can be called on an image or a sound."""
    return callable(function) or isinstance(function, of_sounds.Resampler)


def transformed(picture: Picture | Sound, function: Any, name: str | None) -> Value:
    """What an object that is called on an image or a sound makes of it.

    Args:
        picture: The image or sound.
        function: What is called.
        name: Of the argument that it is; None if it has none.
    """
    if isinstance(picture, Sound):
        if name is not None or isinstance(function, type):
            raise UnknownError(f"calls {name_of(function)}, which is not known")
        if isinstance(function, of_sounds.Resampler):
            return of_sounds.resampled(picture, function.rate, Known(function.new))
        return picture.after(function)
    if not is_finished(picture):
        raise UnknownError(f"calls {name_of(function)} on an image that is not known there")
    if getattr(type(function), "__module__", "").partition(".")[0] == "albumentations":
        if name != "image" or picture.kind not in ("array", "made"):
            raise UnknownError(f"calls {type(function).__name__} in another way than with image=")
        return Table({"image": picture.after(Albumentations(function))})
    if name is not None or isinstance(function, type):
        raise UnknownError(f"calls {name_of(function)}, which is not known")
    return picture.after(function)


def processed(processor: Any, arguments: list[Value], named: dict[str, Value]) -> Value:
    """What an image processor of Hugging Face makes of an image, or of a list of them."""
    given = dict(named)
    if arguments:
        given["images"], *arguments = arguments
    if arguments or given.keys() != {"images", "return_tensors"} or given["return_tensors"] != Known("pt"):
        raise UnknownError(f'calls {name_of(processor)} with more than images and return_tensors="pt"')
    images = given["images"]
    if isinstance(images, Group) and len(images.items) == 1:
        (images,) = images.items
    picture = images.item if isinstance(images, Column) else images
    if not isinstance(picture, Picture) or picture.kind != "pil":
        raise UnknownError(f"calls {name_of(processor)} on something else than a Pillow image")
    if picture.mode != "RGB":
        raise UnknownError(f'calls {name_of(processor)} on images that are not made RGB by convert("RGB")')
    after = picture.after(Processed(processor))
    return Features({"pixel_values": Column(after) if isinstance(images, Column) else Stack(after)})


def is_finished(picture: Picture) -> bool:
    """Whether it is an image as transforms and loaders take it."""
    return picture.kind not in ("chw array", "hwc", "floats") and picture.mode != "BGR"


def is_library(function: FunctionType) -> bool:
    """Whether a function is installed, and none of the user's.

    Such functions may ask which process they run in, as torch's ``get_worker_info`` does. Data sets of torchvision are
    known to do nothing of the kind.
    """
    module = function.__module__ or ""
    if module.startswith("torchvision.datasets."):
        return False
    if module.partition(".")[0] in (*sys.stdlib_module_names - {"__main__"}, "wellfed"):
        return True
    return os.path.realpath(function.__code__.co_filename).startswith(_installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    """Where Python and its packages are."""
    paths = sysconfig.get_paths()
    return tuple(
        os.path.realpath(paths[name]) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
    )


_Handler = Callable[[list[Value], dict[str, Value]], Value | None]


def called(
    known: Mapping[int, _Handler], function: Any, arguments: list[Value], named: dict[str, Value]
) -> Value | None:
    """What a known function gives that opens or changes images; None for any other, and for other arguments."""
    handler = known.get(id(function))
    return None if handler is None else handler(arguments, named)


def functions(text: Callable[[Value], str | None]) -> dict[int, _Handler]:
    """What is known of functions of the libraries that have been imported, by identity. They live as long as those.

    Args:
        text: Writes a value of a sample as an expression.
    """
    found: dict[int, _Handler] = {}
    with_text = (
        ("torchvision.tv_tensors", "BoundingBoxes", _boxes(text)),
        ("torchaudio", "load", of_sounds.loaded(text)),
        ("torchaudio.transforms", "Resample", of_sounds.resampler),
        ("torchaudio.functional", "resample", of_sounds.resampled_by_function),
        ("torch", "mean", of_sounds.mean),
    )
    for module, name, handler in (*_KNOWN, *with_text):
        function: Any = sys.modules.get(module)
        for part in name.split("."):
            function = getattr(function, part, None)
        # What somebody put in its place does something else.
        house = (getattr(function, "__module__", None) or "").partition(".")[0]
        ours = house == "wellfed" or house == module.partition(".")[0]
        if function is not None and (ours or type(function) is BuiltinFunctionType):
            found[id(function)] = handler
    # Scripts may have imported it before it was replaced.
    original = sounds.original_of("torchaudio")
    if original is not None:
        found[id(original)] = of_sounds.loaded(text)
    return found


def _only(arguments: list[Value], named: dict[str, Value], *names: str) -> dict[str, Value]:
    """Arguments by name, of a call that has no others.

    Raises:
        UnknownError: There are others.
    """
    given = dict(zip(names, arguments, strict=False))
    if len(arguments) > len(names) or set(named) - set(names) or set(given) & set(named):
        raise UnknownError("it is called with arguments that are not known")
    return given | named


def _path(value: Value) -> Row:
    if isinstance(value, Row):
        return value
    if isinstance(value, File) and not value.encoded:
        return value.path
    raise UnknownError(f"opens {word(value)}")


def _open(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "file", "mode")
    if given.get("mode") != Known("rb"):
        raise UnknownError("opens a file for something else than reading bytes")
    return File(_path(given["file"]))


def _image_open(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "fp", "mode")
    if given.get("mode", Known("r")) != Known("r") or "fp" not in given:
        raise UnknownError("opens an image in another way")
    if isinstance(given["fp"], File) and given["fp"].encoded:
        return Picture(given["fp"].path, encoded=True)
    return Picture(_path(given["fp"]))


def _bytes_io(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "initial_bytes").get("initial_bytes")
    if not isinstance(given, Row) or given is INDEX:
        raise UnknownError("makes a file in memory of something that is not known")
    return File(given, encoded=True)


def _imdecode(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "buf", "flags")
    flags, buffer = given.get("flags"), given.get("buf")
    known = isinstance(flags, Known) and flags.value in (1, 256) and opencv.applies()
    if not isinstance(buffer, Row) or not isinstance(flags, Known) or not known:
        raise UnknownError("decodes an image by OpenCV in a way that is not known")
    mode = "BGR" if flags.value == 1 else "RGB"
    return Picture(buffer, "opencv", mode, "array", turned=True, encoded=True)


def _by_torchvision(arguments: list[Value], named: dict[str, Value]) -> Value:
    """Torchvision's loader of images of its folders, where Pillow reads them."""
    import torchvision

    if torchvision.get_image_backend() != "PIL":
        raise UnknownError(f"the image backend is {torchvision.get_image_backend()}")
    return converted(Picture(_path(_only(arguments, named, "path")["path"])), "RGB")


def _from_array(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "obj", "mode")
    picture = given.get("obj")
    modes = (Known(None), Known(picture.mode)) if isinstance(picture, Picture) else ()
    if not isinstance(picture, Picture) or given.get("mode", Known(None)) not in modes:
        raise UnknownError("Image.fromarray() of this array is not known")
    if picture.kind == "array" and not picture.steps and picture.mode != "BGR":
        return replace(picture, kind="pil")
    raise UnknownError("Image.fromarray() of this array is not known")


def _hdf5(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "name", "mode", "swmr", "libver")
    name = given.pop("name", None)
    if not isinstance(name, Known) or type(name.value) not in (str, PosixPath, WindowsPath):
        raise UnknownError("opens an HDF5 file in another way")
    if given.pop("mode", Known("r")) != Known("r") or given:
        raise UnknownError("opens an HDF5 file for something else than reading")
    return Hdf5(str(name.value))


def _exif_transpose(arguments: list[Value], named: dict[str, Value]) -> Value:
    picture = _only(arguments, named, "image").get("image")
    if isinstance(picture, Picture) and picture.kind == "pil" and not picture.turned:
        return replace(picture, turned=True)
    raise UnknownError("exif_transpose() of this image is not known")


def _as_array(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    given = _only(arguments, named, "object", "dtype") if not set(named) - {"dtype"} else {}
    picture = given.get("object")
    if not any(isinstance(value, Picture | Mask) for value in (*arguments, *named.values())):
        return None  # of other values
    dtype = given.get("dtype", Known(None))
    if isinstance(picture, Mask) and picture.kind == "array" and dtype == Known(None):
        return calculating.cleared(picture)
    grey = isinstance(picture, Picture) and picture.mode != "RGB" and picture.array is None
    if grey and isinstance(picture, Picture) and isinstance(dtype, Known) and picture.kind in ("pil", "made"):
        return beside.numbers(picture, dtype.value)
    if not isinstance(picture, Picture) or given.get("dtype", Known(np.uint8)).__class__ is not Known:
        raise UnknownError("makes an array of an image in another way")
    if getattr(given.get("dtype"), "value", np.uint8) not in (np.uint8, "uint8", None):
        raise UnknownError("makes an array of an image in another type")
    if picture.kind == "array":
        return picture
    if picture.kind != "pil" or picture.mode != "RGB" or picture.steps:
        raise UnknownError("makes an array of an image that may be grey")
    return replace(picture, kind="array")


def _as_shared_array(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """``np.asarray``, which gives an array as it is, and of a Pillow image one that is read-only."""
    made = _as_array(arguments, named)
    if not isinstance(made, Mask):
        return made
    values = [*arguments, *named.values()]
    if isinstance(values[0], Mask):
        return values[0]
    other = len(values) > 1 and calculating.result(made.after).dtype != np.uint8
    return made if other else replace(made, memory=None)


def _on_masks(make: Callable[..., Mask], *names: str, least: int = 1) -> _Handler:
    """A function of a mask and of what is the same for all samples."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value | None:
        if not any(isinstance(value, Mask) for value in (*arguments, *named.values())):
            return None  # of other values
        given = _only(arguments, named, *names)
        if not set(names[:least]) <= set(given) or not isinstance(given[names[0]], Mask):
            raise UnknownError("it is called on a mask with arguments that are not known")
        values = [value if isinstance(value, Mask) else _constant(value) for value in given.values()]
        if any(isinstance(value, Mask) for value in values[1:]) and make is not calculating.where:
            raise UnknownError("it is called on two masks")
        return make(**dict(zip(given, values, strict=True)))

    return handle


def _like(number: int) -> Callable[..., Mask]:
    return lambda a, dtype=None: calculating.like(a, number, dtype)


def _expand_dims(a: Mask, axis: Any) -> Mask:
    if axis not in (0, (0,)):
        raise UnknownError("gives a mask a dimension somewhere else than in front")
    return beside.unsqueezed(a)


def _from_numpy(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    if len(arguments) == 1 and isinstance(arguments[0], Mask) and not named:
        if arguments[0].kind != "array":
            raise UnknownError("makes a tensor of a mask that is one")
        return beside.tensor(arguments[0])
    if len(arguments) != 1 or named or not isinstance(arguments[0], Picture):
        return None
    picture = arguments[0]
    if picture.mode != "RGB" or picture.kind not in ("array", "chw array"):
        raise UnknownError("makes a tensor of an image that is not known there")
    return replace(picture, kind="hwc") if picture.kind == "array" else _channels_first(picture)


def _channels_first(picture: Picture) -> Picture:
    return replace(picture.after(ChannelsFirst()) if picture.steps else picture, kind="chw")


def _imread(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "filename", "flags")
    flags = given.get("flags", Known(1))
    if not isinstance(flags, Known) or flags.value not in (1, 256) or not opencv.applies():
        raise UnknownError("reads an image by OpenCV in a way that is not known")
    mode = "BGR" if flags.value == 1 else "RGB"
    return Picture(_path(given["filename"]), "opencv", mode, "array", turned=True)


def _cvt_color(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "src", "code")
    picture, code = given.get("src"), given.get("code")
    # COLOR_BGR2RGB and COLOR_RGB2BGR are one number.
    if (
        isinstance(picture, Picture)
        and picture.kind == "array"
        and picture.mode == "BGR"
        and code == Known(4)
    ):
        return replace(picture, mode="RGB")
    raise UnknownError("cvtColor() of this image is not known")


def _cv_resize(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "src", "dsize", "dst", "fx", "fy", "interpolation")
    picture, size = given.pop("src", None), given.pop("dsize", None)
    values = {name: _constant(value) for name, value in given.items()}
    interpolation = values.pop("interpolation", 1)
    if not isinstance(picture, Picture) or picture.kind != "array":
        raise UnknownError("cv2.resize() of this image is not known")
    if size is None or any(value not in (None, 0) for value in values.values()):
        raise UnknownError("cv2.resize() by factors is not known")
    width, height = _constant(size)
    if interpolation not in FILTERS or different("resize"):
        raise UnknownError(
            different("resize") or f"cv2.resize() with interpolation {interpolation} is not known"
        )
    # OpenCV resizes each channel alike, so that their order makes no difference.
    return replace(picture.after(T.Resize((height, width), FILTERS[interpolation])), kind="array")


def _by_torchvision_io(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "path", "mode", "apply_exif_orientation")
    if given.get("apply_exif_orientation", Known(False)) != Known(False):
        raise UnknownError("turns images as their EXIF data says, by torchvision.io")
    mode = given.get("mode")
    name = getattr(getattr(mode, "value", None), "name", getattr(mode, "value", None))
    if not isinstance(mode, Known) or name != "RGB" or not torchvision_io.taken_over():
        raise UnknownError("reads an image by torchvision.io in another mode than RGB")
    return Picture(_path(given["path"]), "torchvision", "RGB", "chw")


def _as_tensor(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """``torch.as_tensor`` and ``torch.tensor`` of a mask."""
    if not any(isinstance(value, Mask) for value in (*arguments, *named.values())):
        return None
    given = _only(arguments, named, "data", "dtype")
    found = given.get("data")
    dtype = _constant(given.get("dtype", Known(None)))
    if not isinstance(found, Mask):
        raise UnknownError("makes a tensor of a mask in another way")
    if found.kind == "mask":
        found = replace(found, kind="tensor")
    return beside.tensor(found, dtype)


def _mask(arguments: list[Value], named: dict[str, Value]) -> Value:
    given = _only(arguments, named, "data", "dtype")
    return beside.mask(given.get("data", Known(None)), given.get("dtype", Known(None)))


def _boxes(text: Callable[[Value], str | None]) -> _Handler:
    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        given = _only(arguments, named, "data", "format", "canvas_size", "dtype")
        none = Known(None)
        data, form, canvas, dtype = (
            given.get(name, none) for name in ("data", "format", "canvas_size", "dtype")
        )
        return beside.boxes(data, form, canvas, dtype, text)

    return handle


def _size(kind: type, *axes: int) -> _Handler:
    """A function that says how large an image is."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        (picture,) = _only(arguments, named, "image").values() or (None,)
        if not isinstance(picture, Picture) or not is_finished(picture) or picture.kind == "array":
            raise UnknownError("size of an image is not known")
        sides = beside.size(picture)
        return Group(kind, tuple(sides[axis] for axis in axes))

    return handle


def _is_tensor(arguments: list[Value], named: dict[str, Value]) -> Value:
    if named or len(arguments) != 1:
        raise UnknownError("is_tensor() is called in another way")
    value = arguments[0]
    if isinstance(value, Known):
        return Known(isinstance(value.value, torch.Tensor))
    if value is INDEX:
        return Known(False)
    raise UnknownError("asks whether a value of the sample is a tensor")


def _is_instance(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    if named or len(arguments) != 2:
        raise UnknownError("isinstance() is called in another way")
    value, kinds = arguments
    if isinstance(kinds, Group) and all(isinstance(item, Known) for item in kinds.items):
        kinds = Known(tuple(getattr(item, "value", None) for item in kinds.items))
    if not isinstance(kinds, Known):
        raise UnknownError("isinstance() of kinds that are not known")
    if value is INDEX:
        return Known(isinstance(0, kinds.value))
    if isinstance(value, Known):
        return Known(isinstance(value.value, kinds.value))
    if isinstance(value, Picture) and value.kind == "pil" and not value.steps:
        return Known(issubclass(sys.modules["PIL.Image"].Image, kinds.value))
    raise UnknownError(f"asks what kind of object {word(value)} is")


def _get_attribute(arguments: list[Value], named: dict[str, Value]) -> Value:
    raise UnknownError("getattr() and hasattr() are not known")


def _stepped(make: Callable[..., Any], *names: str) -> _Handler:
    """A function of images that does what a transform does."""

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        given = _only(arguments, named, "image", *names)
        picture = given.pop("image", None)
        values = {name: _constant(value) for name, value in given.items()}
        if not isinstance(picture, Picture) or not is_finished(picture) or picture.kind == "array":
            raise UnknownError("it is called on something else than a Pillow image or a tensor")
        try:
            return picture.after(make(**values))
        except (TypeError, ValueError) as error:
            raise UnknownError(str(error)) from None

    return handle


def _constant(value: Value) -> Any:
    if isinstance(value, Known):
        return value.value
    if isinstance(value, Group):
        return value.kind(map(_constant, value.items))
    raise UnknownError("an argument differs from sample to sample")


def made_by(version: str, name: str, **values: Any) -> Any:
    """A transform of torchvision."""
    return _transform(version, name)(**values)


def _transform(version: str, name: str) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        import torchvision.transforms as v1
        from torchvision.transforms import v2

        return getattr(v2 if version == "v2" else v1, name)(**values)

    return make


def _functionals() -> list[tuple[str, str, _Handler]]:
    known = []
    for version, module in (
        ("v1", "torchvision.transforms.functional"),
        ("v2", "torchvision.transforms.v2.functional"),
    ):
        for function, name, names in (
            ("to_tensor", "ToTensor", ()),
            ("pil_to_tensor", "PILToTensor", ()),
            ("resize", "Resize", ("size", "interpolation", "max_size", "antialias")),
            ("center_crop", "CenterCrop", ("output_size",)),
            ("normalize", "Normalize", ("mean", "std", "inplace")),
            ("convert_image_dtype", "ConvertImageDtype", ("dtype",)),
        ):
            make = _transform(version, name)
            if function == "center_crop":
                make = _renamed(make, output_size="size")
            known.append((module, function, _stepped(make, *names)))
    v2 = "torchvision.transforms.v2.functional"
    known.append((v2, "to_image", _stepped(_transform("v2", "ToImage"))))
    known.append((v2, "to_dtype", _stepped(_transform("v2", "ToDtype"), "dtype", "scale")))
    return known


def _renamed(make: Callable[..., Any], **names: str) -> Callable[..., Any]:
    return lambda **values: make(**{names.get(name, name): value for name, value in values.items()})


_KNOWN: list[tuple[str, str, _Handler]] = [
    ("builtins", "open", _open),
    ("builtins", "isinstance", _is_instance),
    ("builtins", "getattr", _get_attribute),
    ("builtins", "hasattr", _get_attribute),
    ("PIL.Image", "open", _image_open),
    ("_io", "BytesIO", _bytes_io),
    ("cv2", "imdecode", _imdecode),
    ("PIL.Image", "fromarray", _from_array),
    ("h5py", "File", _hdf5),
    ("PIL.ImageOps", "exif_transpose", _exif_transpose),
    ("torchvision.datasets.folder", "default_loader", _by_torchvision),
    ("torchvision.datasets.folder", "pil_loader", _by_torchvision),
    ("torchvision.tv_tensors", "Image", _stepped(_transform("v2", "ToImage"))),
    ("torchvision.tv_tensors", "Mask", _mask),
    ("torchvision.transforms.v2.functional", "get_size", _size(list, 0, 1)),
    ("torchvision.transforms.functional", "get_image_size", _size(list, 1, 0)),
    ("torchvision.io", "read_image", _by_torchvision_io),
    ("torchvision.io", "decode_image", _by_torchvision_io),
    ("numpy", "array", _as_array),
    ("numpy", "asarray", _as_shared_array),
    ("numpy", "where", _on_masks(calculating.where, "condition", "one", "other", least=3)),
    ("torch", "where", _on_masks(calculating.where, "condition", "one", "other", least=3)),
    ("numpy", "isin", _on_masks(lambda e, n: calculating.one_of(e, n), "e", "n", least=2)),
    ("numpy", "clip", _on_masks(lambda a, b, c: calculating.limited(a, b, c), "a", "b", "c", least=3)),
    ("numpy", "zeros_like", _on_masks(_like(0), "a", "dtype")),
    ("numpy", "ones_like", _on_masks(_like(1), "a", "dtype")),
    ("torch", "zeros_like", _on_masks(_like(0), "a", "dtype")),
    ("torch", "ones_like", _on_masks(_like(1), "a", "dtype")),
    ("numpy", "expand_dims", _on_masks(_expand_dims, "a", "axis", least=2)),
    ("torch", "from_numpy", _from_numpy),
    ("torch", "as_tensor", _as_tensor),
    ("torch", "tensor", _as_tensor),
    ("torch", "is_tensor", _is_tensor),
    ("cv2", "imread", _imread),
    ("cv2", "cvtColor", _cvt_color),
    ("cv2", "resize", _cv_resize),
    *_functionals(),
    *drawn.KNOWN,
]
