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
import weakref
from typing import Any

from .. import _native
from ..exceptions import WellfedError
from . import rows

__all__ = ["CONVERTED", "Here", "Recipe", "here", "pillow", "sparing"]

_TIMES = 2
"""How often pixels are made from a file. After that its image is decoded whole, and Pillow takes its parts from it."""

CONVERTED = ("L", "RGB")
"""Modes that pixels are made in."""

_FILES = {"JPEG": ("L", "RGB", "CMYK"), "PNG": ("L", "RGB", "RGBA")}
"""Modes of files that are lazy. What Pillow says of others, such as warnings about transparency, it says at once."""

_HEAD = 8192
"""Bytes of a file in which its head must lie for Pillow's parser to wait. A file that was opened has read as many."""

_COMPONENTS = {1: "L", 3: "RGB", 4: "CMYK"}
"""Modes of JPEGs by their number of components."""

_TOLD = frozenset({"tile", "info", "decoderconfig"})
"""What decides whether an image can be lazy, of those whose head Pillow has not read: only if somebody has set it."""

_FREE = frozenset(
    {
        "size",
        "width",
        "height",
        "mode",
        "readonly",
        "draft",
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


class Here(threading.local):
    """What holds for one thread: weak references to its lazy images that must not outlive a block, if it is in one."""

    everywhere = 0
    """Of the class: users who want lazy images in all threads."""
    born: list[weakref.ref[Any]] | None = None

    def wanted(self) -> bool:
        """Whether images that this thread opens now are to be lazy."""
        return self.everywhere > 0 or self.born is not None

    def note(self, image: Any) -> None:
        """A lazy image was made."""
        if self.born is not None:
            self.born.append(weakref.ref(image))


here = Here()


class _Head:
    """The head of a plain JPEG, which Pillow reads when somebody asks for more than size and mode.

    That it can wait is known beforehand: Pillow raises and warns of nothing there. See `_native.jpeg_head`.
    """

    __slots__ = ("data", "filename", "kind")

    def __init__(self, data: bytes, filename: Any, kind: type[Any]) -> None:
        self.data = data
        self.filename = filename
        self.kind = kind

    def image(self) -> Any:
        """Pillow's own image, as it is after opening."""
        return self.kind(io.BytesIO(self.data), self.filename)


class _Sparing(threading.local):
    """Whether this thread is in a function that loads images only to have their bytes."""

    depth = 0


sparing = _Sparing()


class _Source:
    """The bytes of a file whose images are lazy."""

    __slots__ = ("data", "kind", "pictures", "scale", "times", "wholes")

    def __init__(self, data: bytes, kind: type[Any], scale: int = 1) -> None:
        self.data = data
        self.kind = kind
        self.scale = scale
        """How much smaller it is decoded, as `draft` has it."""
        self.times = 0
        self.pictures: dict[str, _native.Picture] = {}
        self.wholes: dict[str, Any] = {}

    def picture(self, mode: str) -> _native.Picture | None:
        """All of the image in a mode; None if Pillow may not decode it without an error."""
        found = self.pictures.get(mode)
        if found is None:
            try:
                found = _native.Picture.open(self.data, mode, rows.seen())
            except WellfedError:
                return None
            if found is not None and self.scale > 1:
                found = found.draft(self.scale)
            if found is not None:
                self.pictures[mode] = found
        return found

    def loaded(self) -> Any:
        """Pillow's own image of the file, with its pixels."""
        image = self.kind(io.BytesIO(self.data))
        if self.scale > 1:
            image.draft(None, (image.width // self.scale, image.height // self.scale))
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
        self, source: _Source, mode: str, picture: _native.Picture, calls: tuple[tuple[Any, Any], ...]
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
        for call, arguments in self.calls:
            # The name of a method, or a function of an image.
            image = getattr(image, call)(*arguments) if isinstance(call, str) else call(image, *arguments)
        return image if self.calls else image.copy()


class _Pillow:
    """Pillow's modules, and the classes of lazy images that are made from its classes."""

    def __init__(self) -> None:
        from PIL import Image, ImageColor, ImageEnhance, ImageOps, JpegImagePlugin, PngImagePlugin

        self.image = Image
        self.color = ImageColor
        self.ops = ImageOps
        self.enhance = ImageEnhance
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
            _readonly=0,
            _exif=None,
            _recipe=recipe,
        )
        here.note(new)
        head = like.__dict__.get("_head")
        if head is not None and "info" not in like.__dict__:
            new.__dict__["_head"] = head
        else:
            new.__dict__["info"] = _copied(like.info)
        return new

    def plain(self, image: Any) -> Any:
        """A lazy image as one that was made from others; None where it has no such pixels."""
        if type(image) is not self.lazy:
            image = image._derived(image._mode) if image._mode in CONVERTED else None
        recipe = None if image is None else image.__dict__.get("_recipe")
        return None if recipe is None or "transparency" in image.__dict__.get("info", ()) else image

    def expanded(self, image: Any, borders: Any, fill: Any, original: Any) -> Any:
        """What `ImageOps.expand` makes of a lazy image; None where that is to do it."""
        image = self.plain(image)
        if image is None:
            return None
        several = type(borders) is tuple and len(borders) in (2, 4)
        sides = borders * (4 // len(borders)) if several else (borders,) * 4
        calls = (*image._recipe.calls, (original, (borders, fill)))
        return self.framed(image, sides, fill, calls)

    def padded(self, image: Any, size: Any, method: Any, color: Any, centering: Any, original: Any) -> Any:
        """What `ImageOps.pad` makes of a lazy image; None where that is to do it."""
        image = self.plain(image)
        several = type(centering) in (tuple, list) and len(centering) == 2
        if image is None or not _whole_numbers(size, 2) or min(size) <= 0 or not several:
            return None
        if not all(type(place) in (int, float) for place in centering):
            return None
        resized = self.ops.contain(image, size, method)
        if type(resized) is not self.lazy or resized._size == size:
            return resized if type(resized) is self.lazy else None
        # As Pillow places it: along the width, or where that fits, along the height.
        left, top = size[0] - resized._size[0], size[1] - resized._size[1]
        x, y = (max(0, min(place, 1)) for place in centering)
        x, y = (round(left * x), 0) if left else (0, round(top * y))
        calls = (*image._recipe.calls, (original, (size, method, color, centering)))
        return self.framed(resized, (x, y, left - x, top - y), 0 if color is None else color, calls)

    def framed(self, image: Any, sides: Any, fill: Any, calls: tuple[tuple[Any, Any], ...]) -> Any:
        """A lazy image with borders, which Pillow makes by `calls`; None where Pillow is to do so."""
        recipe: Recipe | None = image.__dict__.get("_recipe")
        if recipe is None or not _whole_numbers(sides, 4) or min(sides) < 0:
            return None
        if type(fill) is str:
            try:
                fill = self.color.getcolor(fill, recipe.mode)
            except ValueError:
                return None  # Pillow says so
        # A number is the colour of grey images, and black.
        colour = (fill,) * 3 if type(fill) is int and (recipe.mode == "L" or fill == 0) else fill
        if (
            type(colour) is not tuple
            or not _whole_numbers(colour, 3)
            or not 0 <= min(colour) <= max(colour) <= 255
        ):
            return None
        if recipe.mode == "L" and colour is fill:
            return None
        picture = recipe.picture.pad(sides, colour)
        if picture is None:
            return None
        new = self.derived(Recipe(recipe.source, recipe.mode, picture, calls), image)
        new.__dict__.pop("_head", None)
        new.__dict__["info"] = {}
        return new

    def adjusted(self, image: Any, what: int, by: Any) -> Any:
        """A lazy image with other colours, as `Picture.adjust` numbers them; None where Pillow is to do it."""
        if type(by) not in (int, float):
            return None
        image = self.plain(image)
        recipe = None if image is None else image.__dict__.get("_recipe")
        if recipe is None:
            return None
        try:
            picture = recipe.picture.adjust(what, by)
        except OverflowError:
            return None
        if picture is None:
            return None
        calls = (*recipe.calls, (_ADJUSTED[what], (by,)))
        new = self.derived(Recipe(recipe.source, recipe.mode, picture, calls), image)
        # Pillow blends with an image that it made of this one, or else of nothing.
        if what != _SATURATION:
            new.__dict__.pop("_head", None)
            new.__dict__["info"] = {}
        return new

    def unread(self, fp: Any, filename: Any) -> Any:
        """A lazy image of the JPEG in `fp`, whose head Pillow has not read; None where it is to read it now."""
        if type(fp) not in (io.BufferedReader, io.BytesIO) or fp.tell():
            return None
        data = fp.read(_HEAD)
        head = _native.jpeg_head(data)
        if head is None:
            fp.seek(0)
            return None
        width, height, components, length = head
        # Where Pillow's parser stops.
        fp.seek(length)
        plain, lazy = self.files["JPEG"]
        image = object.__new__(lazy)
        image.__dict__.update(
            _size=(width, height),
            _mode=_COMPONENTS[components],
            fp=fp,
            filename="" if filename is None else filename,
            _exclusive_fp=False,
            _head=_Head(data[:length], filename, plain),
        )
        return image


def _enhanced(name: str) -> Any:
    """What `ImageEnhance` does, as a function of an image and a factor."""

    def do(image: Any, factor: Any) -> Any:
        return getattr(pillow().enhance, name)(image).enhance(factor)

    return do


def _hue(image: Any, by: Any) -> Any:
    """Hues shifted, as torchvision does it to Pillow's images."""
    from torchvision.transforms import _functional_pil

    return _functional_pil.adjust_hue(image, by)


_ADJUSTED = (_enhanced("Brightness"), _enhanced("Contrast"), _enhanced("Color"), _hue)
"""What `Picture.adjust` does, by Pillow."""

_SATURATION = 2


def _drafted(image: Any) -> int | None:
    """How much smaller a file is to be decoded by `draft`; None where something else is asked for as well."""
    if not image.decoderconfig:
        return 1
    scale, *rest = image.decoderconfig
    # Of another mode are files that are to be decoded to it.
    kept = image.format == "JPEG" and _COMPONENTS.get(image.layers) == image._mode
    return scale if kept and rest == [0] and scale in (1, 2, 4, 8) else None


class _Asked:
    """Stands for an image whose `thumbnail` is asked for a size: what it is to be resized to."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = self._size = size
        self.width, self.height = size
        self.im = self
        self.mode = self._mode = ""
        self.readonly = 0
        self.wanted: dict[str, Any] | None = None

    def draft(self, *_: Any) -> None:
        """Only files can be decoded smaller."""

    def resize(self, size: Any, resample: Any, **more: Any) -> Any:
        """Notes what is asked for."""
        self.wanted = {"size": size, "resample": resample, **more}
        return self


def _reduces(size: tuple[float, float], to: Any, resample: Any, gap: Any) -> bool:
    """Whether Pillow makes an image smaller by whole numbers before it resizes it, or is to say that `gap` is wrong."""
    if type(gap) not in (int, float) or not 1.0 <= gap < 1e9:
        return True
    return resample != 0 and any(int(have / want / gap) > 1 for have, want in zip(size, to, strict=True))


def _is_part(box: Any) -> bool:
    """Whether it is a box as Pillow's resampling takes one. Whether it lies inside is seen where it is remembered."""
    return (
        type(box) is tuple
        and len(box) == 4
        and all(type(place) in (int, float) and abs(place) < 1e9 for place in box)
    )


def _all_of(fp: Any) -> Any:
    """All bytes of a file, which is at its end then."""
    if type(fp) is io.BufferedReader and type(fp.raw) is io.FileIO:
        # At once, as a buffer would read in parts and join them.
        descriptor = fp.fileno()
        size = os.fstat(descriptor).st_size
        data = os.pread(descriptor, size + 1, 0)
        if len(data) == size:
            fp.seek(size)
            return data
    fp.seek(0)
    return fp.read()


def _copied(info: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value.copy() if isinstance(value, list) else value for key, value in info.items()}


_install = threading.Lock()
"""Held while an image gets its pixels, or what its head says: for assignments only, never while those are made."""


_MADE: list[_Pillow] = []
_MAKING = threading.Lock()


def pillow() -> _Pillow:
    """The classes, made when they are first asked for: once, also where several threads ask at the same time.

    An image of a second set of classes would be none of those that are known, and be settled without end.
    """
    if not _MADE:
        with _MAKING:
            if not _MADE:
                _MADE.append(_Pillow())
    return _MADE[0]


def _whole_numbers(values: Any, count: int) -> bool:
    """Whether these are plain integers, which need no rounding."""
    return type(values) in (tuple, list) and len(values) == count and all(type(v) is int for v in values)


def _dressed(name: str, base: type[Any], own: dict[str, Any]) -> type[Any]:
    """A subclass of `base` that first settles an image where `own` and `_FREE` have no other answer."""
    namespace = dict(own)
    for key, value in own.items():
        if not key.startswith("_") and callable(value):
            namespace[key] = _still_lazy(key, value)
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


def _still_lazy(name: str, method: Any) -> Any:
    """A method that may be called when its image is Pillow's by now, as in `image.resize(image.reduce(2).size)`."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if type(self) in pillow().kinds:
            return method(self, *args, **kwargs)
        return getattr(type(self), name)(self, *args, **kwargs)

    return call


def _settled(image: Any) -> None:
    """Gives an image its pixels, unless another thread has just done so: then it is of Pillow's class."""
    kind: Any = type(image)
    if kind in pillow().kinds:
        kind._settle(image)


def _settled_method(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        _settled(self)
        return getattr(type(self), name)(self, *args, **kwargs)

    return call


def _settled_property(value: property) -> property:
    def get(self: Any) -> Any:
        _settled(self)
        assert value.fget is not None
        return value.fget(self)

    def set_(self: Any, to: Any) -> None:
        _settled(self)
        assert value.fset is not None
        value.fset(self, to)

    return property(get, set_ if value.fset is not None else None)


def _reduce(self: Any, protocol: Any) -> Any:
    _settled(self)
    return self.__reduce_ex__(protocol)


def _equal(self: Any, other: Any) -> Any:
    _settled(self)
    _settled(other)
    return self.__eq__(other)


def _missing(plain: type[Any]) -> Any:
    """What answers where an image has no attribute of a name: what Pillow has not read yet, is read now."""

    def getattr_(self: Any, name: str) -> Any:
        state = self.__dict__
        complete = getattr(type(self), "_complete", None)
        if "_head" in state and complete is not None:
            complete(self)
        # Another thread may have done so meanwhile.
        if name in state:
            return state[name]
        if hasattr(plain, "__getattr__"):
            return plain.__getattr__(self, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    return getattr_


def _lazy_image(module: Any) -> type[Any]:
    """The class of images that were made from others."""
    plain = module.Image

    def complete(self: Any) -> None:
        """Gets the `info` of the file it is from."""
        head: _Head | None = self.__dict__.get("_head")
        if head is not None:
            info = _copied(head.image().info)
            with _install:
                self.__dict__.setdefault("info", info)
                self.__dict__.pop("_head", None)

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
        complete(self)
        with _install:
            if self.__dict__.pop("_recipe", None) is not None:
                self._im = core
                self.__class__ = plain

    def forget(self: Any) -> None:
        """Becomes Pillow's without pixels."""
        complete(self)
        with _install:
            self.__dict__.pop("_recipe", None)
            self.__class__ = plain

    def then(self: Any, name: str, args: tuple[Any, ...], picture: _native.Picture | None) -> Any:
        """The image after a call that was remembered as `picture`, or is Pillow's to do."""
        recipe: Recipe | None = self.__dict__.get("_recipe")
        if picture is None or recipe is None:
            _settled(self)
            return getattr(self, name)(*args)
        calls = (*recipe.calls, (name, args))
        return pillow().derived(Recipe(recipe.source, recipe.mode, picture, calls), self)

    def copy(self: Any) -> Any:
        recipe = self.__dict__.get("_recipe")
        return plain.copy(self) if recipe is None else pillow().derived(recipe, self)

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not matrix and (not mode or mode == self._mode):
            return self.copy()
        _settled(self)
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
        return then(self, "crop", (box,), picture)

    def resize(self: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Any:
        picture = None
        recipe = self.__dict__.get("_recipe")
        whole = box is None or (type(box) is tuple and box == (0, 0, *self._size))
        if (
            recipe is not None
            and (whole or _is_part(box))
            and _whole_numbers(size, 2)
            and min(size) > 0
            and (resample is None or (isinstance(resample, int) and 0 <= resample <= 3))
        ):
            resized = self._size if whole else (box[2] - box[0], box[3] - box[1])
            filter_ = 3 if resample is None else int(resample)
            if reducing_gap is not None and _reduces(resized, size, resample, reducing_gap):
                pass
            elif not whole:
                picture = recipe.picture.resize_box(*size, filter_, box)
            elif tuple(size) == self._size:
                return self.copy()
            else:
                picture = recipe.picture.resize(*size, filter_)
        return then(self, "resize", (size, resample, box, reducing_gap), picture)

    def thumbnail(self: Any, size: Any, resample: Any = 3, reducing_gap: Any = 2.0) -> Any:
        recipe = self.__dict__.get("_recipe")
        asked = _Asked(self._size)
        plain.thumbnail(asked, size, resample, reducing_gap)
        if asked.wanted is None:
            return None
        new = self.resize(**asked.wanted)
        with _install:
            if type(new) is type(self) and self.__dict__.get("_recipe") is recipe:
                self.__dict__.pop("_pixels", None)
                self.__dict__.update(_recipe=new.__dict__["_recipe"], _size=new._size)
                return None
        # Pillow does it once more, in the image itself.
        _settled(self)
        return self.thumbnail(size, resample, reducing_gap)

    def transpose(self: Any, method: Any) -> Any:
        picture = None
        recipe = self.__dict__.get("_recipe")
        if recipe is not None and isinstance(method, int) and 0 <= method <= 6:
            picture = recipe.picture.transpose(int(method))
        return then(self, "transpose", (method,), picture)

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
        made = pixels(self)
        if made is None:
            _settled(self)
            return self.__array_interface__
        width, height = self._size
        shape = (height, width) if self._mode == "L" else (height, width, 3)
        return {"version": 3, "data": made, "shape": shape, "typestr": "|u1"}

    def tobytes(self: Any, encoder_name: str = "raw", *args: Any) -> bytes:
        made: bytes | None = pixels(self) if encoder_name == "raw" and not args else None
        if made is not None:
            return made
        _settled(self)
        return self.tobytes(encoder_name, *args)  # type: ignore[no-any-return]

    def load(self: Any) -> Any:
        if self.__dict__.pop("_spare_load", False):
            return None
        _settled(self)
        return self.load()

    def get_core(self: Any) -> Any:
        _settled(self)
        return self.im

    def set_core(self: Any, core: Any) -> None:
        forget(self)
        self.im = core

    def close(self: Any) -> None:
        forget(self)
        self.close()

    own = {
        "__getattr__": _missing(plain),
        "_complete": complete,
        "_settle": settle,
        "_forget": forget,
        "_then": then,
        "_made": pixels,
        "copy": copy,
        "convert": convert,
        "crop": crop,
        "resize": resize,
        "thumbnail": thumbnail,
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

    def complete(self: Any) -> None:
        """Gets what Pillow reads in the head of its file."""
        head: _Head | None = self.__dict__.get("_head")
        if head is not None:
            read = head.image().__dict__
            with _install:
                if "_head" in self.__dict__:
                    # What was set since, and its file, stay.
                    for name, value in read.items():
                        self.__dict__.setdefault(name, value)
                    del self.__dict__["_head"]

    def settle(self: Any) -> None:
        complete(self)
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
        fp, state = self.fp, self.__dict__
        if fp is None or state.get("_im") is not None or self._mode not in modes:
            return None
        unread = "_head" in state and _TOLD.isdisjoint(state)
        scale = 1 if unread else _drafted(self)
        if scale is None or (
            not unread
            and (len(self.tile) != 1 or "transparency" in self.info or getattr(self, "n_frames", 1) != 1)
        ):
            return None
        try:
            place = fp.tell()
            data = _all_of(fp)
        except Exception:
            return None  # Pillow meets it again, and says so
        picture = None
        if type(data) is bytes:
            source = _Source(data, plain, scale)
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
        source = take(self)
        picture = None if source is None else source.picture(mode)
        if source is None or picture is None:
            return None
        return made_by.derived(Recipe(source, mode, picture, ()), self)

    def remembered(name: str) -> Any:
        method = getattr(plain, name)

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            copy = derived(self, self._mode) if self._mode in CONVERTED else None
            if copy is None:
                _settled(self)
                return getattr(self, name)(*args, **kwargs)
            return getattr(copy, name)(*args, **kwargs)

        return call

    def convert(self: Any, mode: Any = None, matrix: Any = None, *args: Any, **kwargs: Any) -> Any:
        wanted = mode or self._mode
        new = derived(self, wanted) if wanted in CONVERTED and not matrix else None
        if new is not None:
            return new
        _settled(self)
        return self.convert(mode, matrix, *args, **kwargs)

    def array_interface(self: Any) -> Any:
        copy = derived(self, self._mode) if self._mode in CONVERTED else None
        if copy is None:
            _settled(self)
            return self.__array_interface__
        return copy.__array_interface__

    def load(self: Any) -> Any:
        if self.__dict__.pop("_spare_load", False):
            return None
        # Nothing stands behind the pixels of a file that can be taken, so that loading finds nothing else.
        if sparing.depth and take(self) is not None:
            return None
        _settled(self)
        return self.load()

    def thumbnail(self: Any, size: Any, resample: Any = 3, reducing_gap: Any = 2.0) -> None:
        # Pillow's own, which asks the file to be decoded smaller, and resizes what comes of that.
        plain.thumbnail(self, size, resample, reducing_gap)

    def get_core(self: Any) -> Any:
        _settled(self)
        return self.im

    def set_core(self: Any, core: Any) -> None:
        """Other pixels in the place of the file's, which are not needed then."""
        complete(self)
        with _install:
            self.__dict__.pop("_source", None)
            self.__class__ = plain
        self.im = core

    def close_fp(self: Any) -> None:
        if "_head" in self.__dict__:
            # One that Pillow has not read has no other files.
            if self.fp:
                self.fp.close()
        else:
            plain._close_fp(self)

    def close(self: Any) -> None:
        self.__dict__.pop("_source", None)
        if "_head" in self.__dict__:
            with contextlib.suppress(Exception):
                close_fp(self)
            self.fp = None
            self._im = made_by.image.DeferredError(ValueError("Operation on closed image"))
        else:
            self.__class__ = plain
            self.close()

    own: dict[str, Any] = {name: remembered(name) for name in ("copy", "crop", "resize", "transpose")}
    own |= {
        "__getattr__": _missing(plain),
        "_complete": complete,
        "_close_fp": close_fp,
        "_settle": settle,
        "_take": take,
        "_derived": derived,
        "convert": convert,
        "thumbnail": thumbnail,
        "im": property(get_core, set_core),
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
