"""Lazy images: Pillow's images that remember what is to be done to them.

Invariant: an image is of a lazy class only as long as nobody has asked for what is not remembered; then it is given its
pixels and Pillow's own class. Whatever is not known to come out bit for bit as in Pillow is done by Pillow.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import types
from typing import Any

from .. import _native
from ..exceptions import WellfedError

__all__ = ["CONVERTED", "Recipe", "pillow", "sparing"]

_TIMES = 2
"""How often pixels are made from a file. After that its image is decoded whole, and Pillow takes its parts from it."""

CONVERTED = ("L", "RGB")
"""Modes that pixels are made in."""

_FILES = {"JPEG": ("L", "RGB", "CMYK"), "PNG": ("L", "RGB", "RGBA")}
"""Modes of files that are lazy. What Pillow says of others, such as warnings about transparency, it says at once."""

_FREE = frozenset(
    {
        "size",
        "width",
        "height",
        "mode",
        "readonly",
        "getbands",
        "getexif",
        "_reload_exif",
        "_copy_info",
        "_new",
        "_getexif",
        "_getmp",
        "_read_dpi_from_exif",
        "get_format_mimetype",
        "rotate",
        "_repr_pretty_",
        "__init__",
        "__repr__",
        "__enter__",
        "__exit__",
        "__setstate__",
    }
)
"""Methods and properties that are Pillow's own on lazy images as well: they look at no pixels, or leave that to
methods that are lazy."""


class _Sparing(threading.local):
    """Whether this thread is in a function that loads images only to have their bytes."""

    depth = 0


sparing = _Sparing()


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


class Recipe:
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

    def derived(self, recipe: Recipe, like: Any) -> Any:
        """A lazy image, as Pillow's `_new` makes one."""
        new = object.__new__(self.lazy)
        new.__dict__.update(
            _im=None,
            _mode=recipe.mode,
            _size=recipe.picture.size,
            palette=None,
            info={
                key: value.copy() if isinstance(value, list) else value for key, value in like.info.items()
            },
            _readonly=0,
            _exif=None,
            _recipe=recipe,
        )
        return new


_install = threading.Lock()
"""Held while an image gets its pixels: for assignments only, never while they are made."""


@functools.cache
def pillow() -> _Pillow:
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
    namespace.update(
        __module__=base.__module__, __qualname__=base.__qualname__, __doc__=base.__doc__, __hash__=None
    )
    made: type[Any] = types.new_class(name, (base,), exec_body=lambda body: body.update(namespace))
    return made


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
    if type(other) in pillow().kinds:
        other._settle()
    return self.__eq__(other)


def _lazy_image(module: Any) -> type[Any]:
    """The class of images that were made from others."""
    plain = module.Image

    def settle(self: Any) -> None:
        recipe: Recipe | None = self.__dict__.get("_recipe")
        if recipe is None:
            return
        core = None
        if recipe.natively():
            with contextlib.suppress(WellfedError):
                core = module.frombytes(recipe.mode, recipe.picture.size, recipe.picture.pixels()).im
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
        recipe: Recipe | None = self.__dict__.get("_recipe")
        if picture is None or recipe is None:
            self._settle()
            return getattr(self, name)(*args)
        calls = (*recipe.calls, (name, args))
        return pillow().derived(Recipe(recipe.source, recipe.mode, picture, calls), self)

    def copy(self: Any) -> Any:
        recipe = self.__dict__.get("_recipe")
        return plain.copy(self) if recipe is None else pillow().derived(recipe, self)

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

    def resize(self: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Any:
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
        recipe: Recipe | None = self.__dict__.get("_recipe")
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


def _lazy_file(made_by: _Pillow, plain: type[Any]) -> type[Any]:
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
        return made_by.derived(Recipe(source, mode, picture, ()), self)

    def remembered(name: str) -> Any:
        method = getattr(plain, name)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            copy = self._derived(self._mode) if self._mode in CONVERTED else None
            if copy is None:
                self._settle()
                return getattr(self, name)(*args, **kwargs)
            return getattr(copy, name)(*args, **kwargs)

        return call

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = mode or self._mode
        new = self._derived(wanted) if wanted in CONVERTED and not matrix else None
        if new is not None:
            return new
        self._settle()
        return self.convert(mode, matrix, *args, **kwargs)

    def array_interface(self: Any) -> Any:
        copy = self._derived(self._mode) if self._mode in CONVERTED else None
        if copy is None:
            self._settle()
            return self.__array_interface__
        return copy.__array_interface__

    def load(self: Any) -> Any:
        if self.__dict__.pop("_spare_load", False):
            return None
        # Nothing stands behind the pixels of a file that can be taken, so that loading finds nothing else.
        if sparing.depth and self._take() is not None:
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


def _renew_lock() -> None:
    global _install
    _install = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
