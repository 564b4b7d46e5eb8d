"""`accelerate`: Pillow's images of files remember what is to be done to them, and are decoded in one native pass.

Invariant: pixels, attributes, types and errors are Pillow's. A lazy image is of a subclass that lives only as long as
nobody has asked for what is not remembered; then it is given its pixels and Pillow's own class, and Pillow goes on.
Whatever is not known to come out bit for bit as in Pillow is done by Pillow.
"""

from __future__ import annotations

import functools
import io
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

from . import _native
from .exceptions import WellfedError

__all__ = ["accelerate"]

TESTED = (13, 13)
"""The first and the last major version of Pillow that the tests were run with."""

_TIMES = 2
"""How often pixels are made from a file. After that its image is decoded whole, and Pillow takes its parts from it."""

_CONVERTED = ("L", "RGB")
"""Modes that pixels are made in."""

_FILES = {"JPEG": ("L", "RGB", "CMYK"), "PNG": ("L", "RGB", "RGBA")}
"""Modes of files that are lazy. What Pillow says of others, such as warnings about transparency, it says at once."""

_FREE = frozenset(
    ("size", "width", "height", "mode", "readonly", "getbands", "getexif", "_reload_exif", "_copy_info", "_new")
    + ("_getexif", "_getmp", "_read_dpi_from_exif", "get_format_mimetype", "rotate", "_repr_pretty_")
    + ("__init__", "__repr__", "__enter__", "__exit__", "__setstate__")
)
"""Methods and properties that are Pillow's own on lazy images as well: they look at no pixels, or leave that to
methods that are lazy."""


class _Source:
    """The bytes of a file whose images are lazy."""

    __slots__ = ("data", "kind", "pictures", "times", "wholes")

    def __init__(self, data: bytes, kind: type[Any]) -> None:
        self.data = data
        self.kind = kind
        self.times = 0
        self.pictures: dict[str, _native.Picture] = {}
        self.wholes: dict[str, Any] = {}

    def picture(self, mode: str) -> _native.Picture | None:
        """All of the image in a mode; None if Pillow may not decode it without an error."""
        found = self.pictures.get(mode)
        if found is None:
            try:
                found = _native.Picture.open(self.data, mode)
            except WellfedError:
                return None
            if found is not None:
                self.pictures[mode] = found
        return found

    def loaded(self) -> Any:
        """Pillow's own image of the file, with its pixels."""
        image = self.kind(io.BytesIO(self.data))
        image.load()
        return image

    def whole(self, mode: str) -> Any:
        """All of the image in a mode, with its pixels."""
        found = self.wholes.get(mode)
        if found is None:
            found = self.wholes[mode] = self.loaded().convert(mode)
        return found


class _Recipe:
    """How the pixels of an image come about: natively, and by Pillow's methods."""

    __slots__ = ("calls", "mode", "picture", "source")

    def __init__(
        self, source: _Source, mode: str, picture: _native.Picture, calls: tuple[tuple[str, Any], ...]
    ) -> None:
        self.source = source
        self.mode = mode
        self.picture = picture
        self.calls = calls

    def natively(self) -> bool:
        """Whether pixels are to be made from the file once more."""
        self.source.times += 1
        return self.source.times <= _TIMES

    def by_pillow(self) -> Any:
        """An image of Pillow's own."""
        image = self.source.whole(self.mode)
        for name, argument in self.calls:
            image = getattr(image, name)(*argument)
        return image if self.calls else image.copy()


class _Pillow:
    """Pillow's modules, and the classes of lazy images that are made from its classes."""

    def __init__(self) -> None:
        from PIL import Image, ImageOps, JpegImagePlugin, PngImagePlugin

        self.image = Image
        self.ops = ImageOps
        self.lazy = _lazy_image(Image)
        self.files: dict[str, tuple[type[Any], type[Any]]] = {
            "JPEG": (JpegImagePlugin.JpegImageFile, _lazy_file(self, JpegImagePlugin.JpegImageFile)),
            "PNG": (PngImagePlugin.PngImageFile, _lazy_file(self, PngImagePlugin.PngImageFile)),
        }
        self.kinds = frozenset({self.lazy, *(lazy for _, lazy in self.files.values())})

    def derived(self, recipe: _Recipe, like: Any) -> Any:
        """A lazy image, as Pillow's `_new` makes one."""
        new = self.lazy.__new__(self.lazy)
        new.__dict__.update(
            _im=None,
            _mode=recipe.mode,
            _size=recipe.picture.size,
            palette=None,
            info={key: value.copy() if isinstance(value, list) else value for key, value in like.info.items()},
            _readonly=0,
            _exif=None,
            _recipe=recipe,
        )
        return new


_install = threading.Lock()
"""Held while an image gets its pixels: for assignments only, never while they are made."""


@functools.cache
def _pillow() -> _Pillow:
    return _Pillow()


def _whole_numbers(values: Any, count: int) -> bool:
    """Whether these are plain integers, which need no rounding."""
    return type(values) in (tuple, list) and len(values) == count and all(type(v) is int for v in values)


def _dressed(name: str, base: type[Any], own: dict[str, Any]) -> type[Any]:
    """A subclass of `base` that first settles an image where `own` and `_FREE` have no other answer."""
    namespace = dict(own)
    for key in dir(base):
        if key in namespace or key in _FREE or (key.startswith("__") and not key.startswith("__arrow")):
            continue
        value = getattr(base, key)
        if isinstance(value, property):
            namespace[key] = _settled_property(value)
        elif callable(value) and not isinstance(value, type):
            namespace[key] = _settled_method(key, value)
    # It answers to the name of Pillow's class, as in reprs and logs.
    namespace.update(__module__=base.__module__, __qualname__=base.__qualname__, __doc__=base.__doc__, __hash__=None)
    return type(base)(name, (base,), namespace)


def _settled_method(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._settle()
        return getattr(self, name)(*args, **kwargs)

    return call


def _settled_property(value: property) -> property:
    def get(self: Any) -> Any:
        self._settle()
        assert value.fget is not None
        return value.fget(self)

    def set_(self: Any, to: Any) -> None:
        self._settle()
        assert value.fset is not None
        value.fset(self, to)

    return property(get, set_ if value.fset is not None else None)


def _reduce(self: Any, protocol: Any) -> Any:
    self._settle()
    return self.__reduce_ex__(protocol)


def _equal(self: Any, other: Any) -> Any:
    self._settle()
    if type(other) in _pillow().kinds:
        other._settle()
    return self.__eq__(other)


def _lazy_image(module: Any) -> type[Any]:
    """The class of images that were made from others."""
    plain = module.Image

    def settle(self: Any) -> None:
        recipe: _Recipe | None = self.__dict__.get("_recipe")
        if recipe is None:
            return
        core = None
        if recipe.natively():
            try:
                core = module.frombytes(recipe.mode, recipe.picture.size, recipe.picture.pixels()).im
            except WellfedError:
                pass
        if core is None:
            core = recipe.by_pillow().im
        with _install:
            if self.__dict__.pop("_recipe", None) is not None:
                self._im = core
                self.__class__ = plain

    def forget(self: Any) -> None:
        """Becomes Pillow's without pixels."""
        with _install:
            self.__dict__.pop("_recipe", None)
            self.__class__ = plain

    def then(self: Any, name: str, args: tuple[Any, ...], picture: _native.Picture | None) -> Any:
        """The image after a call that was remembered as `picture`, or is Pillow's to do."""
        recipe: _Recipe | None = self.__dict__.get("_recipe")
        if picture is None or recipe is None:
            self._settle()
            return getattr(self, name)(*args)
        calls = (*recipe.calls, (name, args))
        return _pillow().derived(_Recipe(recipe.source, recipe.mode, picture, calls), self)

    def copy(self: Any) -> Any:
        recipe = self.__dict__.get("_recipe")
        return plain.copy(self) if recipe is None else _pillow().derived(recipe, self)

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not matrix and (not mode or mode == self._mode):
            return self.copy()
        self._settle()
        return self.convert(mode, matrix, *args, **kwargs)

    def crop(self: Any, box: Any = None) -> Any:
        if box is None or (type(box) is tuple and box == (0, 0, *self._size)):
            return self.copy()
        picture = None
        recipe = self.__dict__.get("_recipe")
        if recipe is not None and _whole_numbers(box, 4) and min(box) >= 0:
            most = module.MAX_IMAGE_PIXELS
            if most is None or (box[2] - box[0]) * (box[3] - box[1]) <= most:
                picture = recipe.picture.crop(*box)
        return self._then("crop", (box,), picture)

    def resize(
        self: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None
    ) -> Any:
        picture = None
        recipe = self.__dict__.get("_recipe")
        if (
            recipe is not None
            and reducing_gap is None
            and (box is None or (type(box) is tuple and box == (0, 0, *self._size)))
            and _whole_numbers(size, 2)
            and min(size) > 0
            and (resample is None or (isinstance(resample, int) and 0 <= resample <= 3))
        ):
            if tuple(size) == self._size:
                return self.copy()
            picture = recipe.picture.resize(*size, 3 if resample is None else int(resample))
        return self._then("resize", (size, resample, box, reducing_gap), picture)

    def transpose(self: Any, method: Any) -> Any:
        picture = None
        recipe = self.__dict__.get("_recipe")
        if recipe is not None and isinstance(method, int) and 0 <= method <= 6:
            picture = recipe.picture.transpose(int(method))
        return self._then("transpose", (method,), picture)

    def pixels(self: Any) -> bytes | None:
        """The pixels; None if the image has got Pillow's."""
        recipe: _Recipe | None = self.__dict__.get("_recipe")
        if recipe is None:
            return None
        made: bytes | None = self.__dict__.get("_pixels")
        if made is None and recipe.natively():
            try:
                made = self.__dict__["_pixels"] = recipe.picture.pixels()
            except WellfedError:
                return None
        return made

    def array_interface(self: Any) -> Any:
        made = self._made()
        if made is None:
            self._settle()
            return self.__array_interface__
        width, height = self._size
        shape = (height, width) if self._mode == "L" else (height, width, 3)
        return {"version": 3, "data": made, "shape": shape, "typestr": "|u1"}

    def tobytes(self: Any, encoder_name: str = "raw", *args: Any) -> bytes:
        made: bytes | None = self._made() if encoder_name == "raw" and not args else None
        if made is not None:
            return made
        self._settle()
        return self.tobytes(encoder_name, *args)  # type: ignore[no-any-return]

    def load(self: Any) -> Any:
        if self.__dict__.pop("_spare_load", False):
            return None
        self._settle()
        return self.load()

    def get_core(self: Any) -> Any:
        self._settle()
        return self.im

    def set_core(self: Any, core: Any) -> None:
        self._forget()
        self.im = core

    def close(self: Any) -> None:
        self._forget()
        self.close()

    own = {
        "_settle": settle,
        "_forget": forget,
        "_then": then,
        "_made": pixels,
        "copy": copy,
        "convert": convert,
        "crop": crop,
        "resize": resize,
        "transpose": transpose,
        "__array_interface__": property(array_interface),
        "tobytes": tobytes,
        "load": load,
        "im": property(get_core, set_core),
        "close": close,
        "__reduce_ex__": _reduce,
        "__eq__": _equal,
    }
    return _dressed("Image", plain, own)


def _lazy_file(pillow: _Pillow, plain: type[Any]) -> type[Any]:
    """The class of images as `Image.open` gives them."""
    modes = _FILES[plain.format]

    def settle(self: Any) -> None:
        source: _Source | None = self.__dict__.get("_source")
        if source is not None:
            # Pillow has loaded it by now, so its errors are those of loading.
            image = source.loaded()
            self.__dict__.pop("_source", None)
            self._im = image._im
            self._readonly = image._readonly
        self.__class__ = plain

    def take(self: Any) -> _Source | None:
        """The bytes of the file, where its image can be lazy. Then the file is done with, as after loading."""
        source: _Source | None = self.__dict__.get("_source")
        if source is not None:
            return source
        fp = self.fp
        if (
            fp is None
            or self._im is not None
            or self._mode not in modes
            or len(self.tile) != 1
            or self.decoderconfig
            or "transparency" in self.info
            or getattr(self, "n_frames", 1) != 1
        ):
            return None
        try:
            place = fp.tell()
            fp.seek(0)
            data = fp.read()
        except Exception:
            return None  # Pillow meets it again, and says so
        picture = None
        if type(data) is bytes:
            source = _Source(data, plain)
            picture = source.picture("L" if self._mode == "L" else "RGB")
        if picture is None or picture.size != self._size:
            fp.seek(place)
            return None
        if plain.format == "PNG":
            self._text = self.png.im_text
            self.png.close()
            self.png = None
        self.tile = []
        self.readonly = 0
        if self._exclusive_fp and self._close_exclusive_fp_after_loading:
            fp.close()
        self.fp = None
        self._source = source
        return source

    def derived(self: Any, mode: str) -> Any:
        """A lazy image in `mode`; None where there can be none."""
        source = self._take()
        picture = None if source is None else source.picture(mode)
        if source is None or picture is None:
            return None
        return pillow.derived(_Recipe(source, mode, picture, ()), self)

    def remembered(name: str) -> Any:
        method = getattr(plain, name)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            copy = self._derived(self._mode) if self._mode in _CONVERTED else None
            if copy is None:
                self._settle()
                return getattr(self, name)(*args, **kwargs)
            return getattr(copy, name)(*args, **kwargs)

        return call

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = mode or self._mode
        new = self._derived(wanted) if wanted in _CONVERTED and not matrix else None
        if new is not None:
            return new
        self._settle()
        return self.convert(mode, matrix, *args, **kwargs)

    def array_interface(self: Any) -> Any:
        copy = self._derived(self._mode) if self._mode in _CONVERTED else None
        if copy is None:
            self._settle()
            return self.__array_interface__
        return copy.__array_interface__

    def load(self: Any) -> Any:
        if self.__dict__.pop("_spare_load", False):
            return None
        self._settle()
        return self.load()

    def close(self: Any) -> None:
        self.__dict__.pop("_source", None)
        self.__class__ = plain
        self.close()

    own: dict[str, Any] = {name: remembered(name) for name in ("copy", "crop", "resize", "transpose")}
    own |= {
        "_settle": settle,
        "_take": take,
        "_derived": derived,
        "convert": convert,
        "__array_interface__": property(array_interface),
        "load": load,
        "close": close,
        "__reduce_ex__": _reduce,
        "__eq__": _equal,
    }
    return _dressed(plain.__name__, plain, own)


class _Patches:
    """What is replaced while anybody wants acceleration."""

    def __init__(self) -> None:
        self.users = 0
        self.lock = threading.Lock()
        self.undo: list[Callable[[], None]] = []
        self.torchvision = False

    def enter(self) -> None:
        pillow = _pillow()
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            for name, (plain, lazy) in pillow.files.items():
                self._replace_opener(pillow.image.OPEN, name, plain, lazy)
            self._replace(pillow.ops, "exif_transpose", _exif_transpose)
        self.see_torchvision()

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users:
                return
            for undo in reversed(self.undo):
                undo()
            self.undo.clear()
            self.torchvision = False

    def see_torchvision(self) -> None:
        """Replaces `to_tensor` and `Compose.__call__` once torchvision has been imported."""
        transforms = sys.modules.get("torchvision.transforms")
        functional = sys.modules.get("torchvision.transforms.functional")
        if self.torchvision or not hasattr(transforms, "Compose") or not hasattr(functional, "to_tensor"):
            return
        with self.lock:
            if self.users and not self.torchvision:
                self._replace(functional, "to_tensor", _to_tensor)
                self._replace(transforms.Compose, "__call__", _compose)
                self.torchvision = True

    def _replace(self, module: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(module, name)
        ours = wrapper(original)
        setattr(module, name, ours)

        def undo() -> None:
            # What somebody else put there meanwhile stays.
            if getattr(module, name) is ours:
                setattr(module, name, original)

        self.undo.append(undo)

    def _replace_opener(self, table: dict[str, Any], name: str, plain: type[Any], lazy: type[Any]) -> None:
        original = table[name]
        factory, accept = original

        @functools.wraps(factory, updated=())
        def opener(fp: Any, filename: Any = None) -> Any:
            image = factory(fp, filename)
            if type(image) is plain:
                image.__class__ = lazy
                if not self.torchvision:
                    self.see_torchvision()
            return image

        ours = (opener, accept)
        table[name] = ours

        def undo() -> None:
            if table.get(name) is ours:
                table[name] = original

        self.undo.append(undo)


_patches = _Patches()


def _renew_locks() -> None:
    global _install
    _install, _patches.lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held them is not in the child.
    os.register_at_fork(after_in_child=_renew_locks)


def _exif_transpose(original: Any) -> Any:
    @functools.wraps(original)
    def exif_transpose(image: Any, *, in_place: bool = False) -> Any:
        if not in_place and type(image) in _pillow().kinds:
            # Pillow's function loads the image first, and needs no pixels before it transposes.
            image.__dict__["_spare_load"] = True
            try:
                return original(image)
            finally:
                image.__dict__.pop("_spare_load", None)
        return original(image, in_place=in_place)

    return exif_transpose


@functools.lru_cache(maxsize=64)
def _values(channels: int, mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> _native.Values:
    return _native.Values(channels, None if mean is None else list(mean), None if std is None else list(std))


def _tensor(image: Any, normalize: Any = None) -> Any:
    """What torchvision's `ToTensor`, and then its `Normalize`, make of a lazy image; None where they are to do it."""
    import torch

    pillow = _pillow()
    if type(image) not in pillow.kinds or torch.get_default_dtype() is not torch.float32:
        return None
    if type(image) is not pillow.lazy:
        image = image._derived(image._mode) if image._mode in _CONVERTED else None
    recipe = None if image is None else image.__dict__.get("_recipe")
    if recipe is None:
        return None
    channels = 1 if recipe.mode == "L" else 3
    mean = std = None
    if normalize is not None:
        mean, std = normalize.mean, normalize.std
        for numbers in (mean, std):
            if type(numbers) not in (list, tuple) or len(numbers) not in (1, channels):
                return None
            if not all(type(number) in (int, float) for number in numbers):
                return None
        mean, std = tuple(mean), tuple(std)
    try:
        values = _values(channels, mean, std)
    except (WellfedError, OverflowError):
        return None
    if not recipe.natively():
        return None
    width, height = recipe.picture.size
    tensor = torch.empty((channels, height, width), dtype=torch.float32, device="cpu")
    try:
        recipe.picture.write_tensor(tensor.data_ptr(), tensor.nbytes, values)
    except WellfedError:
        return None
    return tensor


def _to_tensor(original: Any) -> Any:
    @functools.wraps(original)
    def to_tensor(pic: Any) -> Any:
        tensor = _tensor(pic)
        return original(pic) if tensor is None else tensor

    return to_tensor


def _compose(original: Any) -> Any:
    """`Compose.__call__` that has one pass do `ToTensor` and the `Normalize` right after it."""
    from torch.nn.modules import module
    from torchvision.transforms import Normalize, ToTensor, functional

    normalize = functional.normalize
    to_tensor = ToTensor.__call__, Normalize.forward

    def pair(steps: Any) -> int | None:
        """Where both are, as torchvision wrote them, and with nobody listening in between."""
        if type(steps) not in (list, tuple):
            return None
        for at in range(len(steps) - 1):
            if type(steps[at]) is ToTensor and type(steps[at + 1]) is Normalize:
                after = vars(steps[at + 1])
                stock = functional.normalize is normalize
                stock = stock and (ToTensor.__call__, Normalize.forward) == to_tensor
                hooks = after["_forward_hooks"] or after["_forward_pre_hooks"] or "forward" in after
                hooks = hooks or module._global_forward_hooks or module._global_forward_pre_hooks
                return at if stock and not hooks else None
        return None

    @functools.wraps(original)
    def call(self: Any, img: Any) -> Any:
        steps = self.transforms
        at = pair(steps)
        if at is None:
            return original(self, img)
        for step in steps[:at]:
            img = step(img)
        tensor = _tensor(img, steps[at + 1])
        if tensor is not None:
            img, at = tensor, at + 2
        for step in steps[at:]:
            img = step(img)
        return img

    return call


class accelerate:  # noqa: N801 - it is called as a function
    """Make code that opens images with Pillow faster, with the same pixels.

    From the call on, until `close` or the end of a ``with`` block, `PIL.Image.open` gives images of JPEG and PNG files
    that remember ``convert("RGB")`` and ``convert("L")``, ``crop``, ``resize``, ``transpose`` and ``rotate`` by right
    angles. When pixels are asked for, one native pass decodes the part of the file that is needed and resamples it.
    torchvision's ``ToTensor`` has that pass write its tensor, in ``Compose`` normalized by a ``Normalize`` that comes
    next. Pixels are Pillow's, bit for bit; whatever else is done
    to an image, Pillow does.

    It holds for the whole process: all threads, and processes forked while it is on. It may be nested.

    One thing differs: a file that is damaged inside may raise its error where pixels are first needed, rather than at
    the first call such as ``convert``. Files that are cut off raise it where Pillow does.

    Pillow's versions that it was tested with are 13.x, with libjpeg-turbo. With others it warns and does nothing.

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
            _patches.enter()

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
        """Give back Pillow and torchvision as they were, unless others still want acceleration. Images that are lazy
        already stay so."""
        if self._on:
            self._on = False
            _patches.leave()


def accelerate_worker() -> None:
    """Switch acceleration on for good in a worker process, where its code has Pillow and that is a known one."""
    if "PIL.Image" in sys.modules and not unusable():
        _patches.enter()


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
