"""Image transforms with torchvision v2's names, parameters, defaults and meaning, and sounds' with torchaudio's.

A transform is a description: it is run by the engine, in Rust. Give transforms to `Dataset.map`, or call one on an
image, as torchvision's data sets do with what stands in ``transform=``::

    >>> import numpy as np
    >>> from wellfed import transforms as T
    >>> image = np.zeros((300, 400, 3), np.uint8)
    >>> T.RandomResizedCrop(224)(image).shape
    (224, 224, 3)

Images are decoded files or uint8 arrays; what torchvision does to Pillow images is done to them, so resampling is
always antialiased. Masks, boxes and points of a sample follow its image, as torchvision's ``tv_tensors`` do: geometry
is drawn once a sample, masks are resampled by nearest neighbours, and neither colour nor `Normalize` nor `ToDtype`
touches them. Every sample gets its own random parameters, which depend only on the seed, the epoch and the sample.

Transforms of sounds work on what `wellfed.audio_folder` and `wellfed.audio_files` read, and in data sets only::

    >>> import wellfed as wf
    >>> speech = [T.Resample(new_freq=16_000), T.MelSpectrogram(n_mels=80), T.AmplitudeToDB()]
    >>> ds = wf.audio_files([]).map(*speech).padded_batch(64)
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal

import numpy as np

from . import _arguments as check
from . import (
    _opencv,  # noqa: F401 - plans name its transforms
    _timm,  # noqa: F401 - plans name its transforms
)
from ._audio import (
    LFCC,
    MFCC,
    AmplitudeToDB,
    FrequencyMasking,
    KaldiFbank,
    KaldiMFCC,
    MelScale,
    MelSpectrogram,
    SpecAugment,
    Spectrogram,
    TimeFirst,
    TimeMasking,
    WhisperLogMel,
)
from ._augment import (
    AugMix,
    AutoAugment,
    AutoAugmentPolicy,
    RandAugment,
    RandomAdjustSharpness,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomEqualize,
    RandomInvert,
    RandomOrder,
    RandomPosterize,
    RandomSolarize,
    TrivialAugmentWide,
)
from ._distortions import (
    JPEG,
    ElasticTransform,
    GaussianNoise,
    RandomPerspective,
    RandomPhotometricDistort,
)
from ._effects import (
    Fade,
    MuLawDecoding,
    MuLawEncoding,
    PadOrTrim,
    PitchShift,
    RandomSegment,
    Resample,
    Speed,
    SpeedPerturbation,
    Standardize,
    TimeStretch,
    ToMono,
    Vad,
    Vol,
)
from ._mixing import CutMix, MixUp
from ._recordings import AddNoise, Convolve
from ._sizes import RandomIoUCrop, RandomResize, RandomShortestSize, RandomZoomOut, ScaleJitter
from ._transform import Compose, Transform

__all__ = [
    "JPEG",
    "LFCC",
    "MFCC",
    "AddNoise",
    "AmplitudeToDB",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ClampBoundingBoxes",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "Convolve",
    "CutMix",
    "ElasticTransform",
    "Fade",
    "FiveCrop",
    "FrequencyMasking",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "Identity",
    "InterpolationMode",
    "KaldiFbank",
    "KaldiMFCC",
    "MelScale",
    "MelSpectrogram",
    "MixUp",
    "MuLawDecoding",
    "MuLawEncoding",
    "Normalize",
    "PILToTensor",
    "Pad",
    "PadOrTrim",
    "PitchShift",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSegment",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resample",
    "Resize",
    "SanitizeBoundingBoxes",
    "ScaleJitter",
    "SpecAugment",
    "Spectrogram",
    "Speed",
    "SpeedPerturbation",
    "Standardize",
    "TenCrop",
    "TimeFirst",
    "TimeMasking",
    "TimeStretch",
    "ToDtype",
    "ToImage",
    "ToMono",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Vad",
    "Vol",
    "WhisperLogMel",
]


class InterpolationMode(Enum):
    """How pixels between pixels are found. torchvision's enum of this name, and plain text, do as well."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Identity(Transform):
    """Leaves images as they are.

    Example:
        >>> Identity()
        Identity()
    """


class ToImage(Transform):
    """Marks where torchvision would make an image tensor; batches are arrays of images anyway.

    Example:
        >>> Compose([ToImage(), ToDtype("float32", scale=True)])
        Compose([
            ToImage(),
            ToDtype(dtype='float32', scale=True),
        ])
    """

    @property
    def makes(self) -> Literal["tensor", "image"] | None:
        """A ``tv_tensors.Image``."""
        return "image"


class PILToTensor(Transform):
    """Marks where torchvision would turn a Pillow image into a uint8 tensor; values stay as they are.

    Example:
        >>> PILToTensor()
        PILToTensor()
    """

    @property
    def makes(self) -> Literal["tensor", "image"] | None:
        """A tensor."""
        return "tensor"


class ToTensor(Transform):
    """To float32 with values from 0 to 1: each value is divided by 255.

    Example:
        >>> float(ToTensor()(np.full((2, 2, 3), 51, np.uint8)).max())
        0.20000000298023224
    """

    @property
    def makes(self) -> Literal["tensor", "image"] | None:
        """A tensor."""
        return "tensor"

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's leaves tensors as they are, and says that it is deprecated."""
        return v2.Identity()


class ToDtype(Transform):
    """Changes the element type.

    Args:
        dtype: float32, float16, bfloat16 or uint8, as text, torch dtype or NumPy dtype.
        scale: Map the range of values too: 0 to 255 in uint8, 0 to 1 in floating point. Without it numbers stay
            what they are.

    Example:
        >>> ToDtype("float32", scale=True)(np.full((2, 2, 3), 255, np.uint8)).max()
        np.float32(1.0)
    """

    dtype: str
    scale: bool

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self._set(dtype=check.dtype(dtype), scale=bool(scale))

    @property
    def makes(self) -> Literal["tensor", "image"] | None:
        """A tensor, unless values stay 8-bit: there are no Pillow images of other types."""
        return None if self.dtype == "uint8" else "tensor"

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's `ToDtype` of torch's dtype."""
        import torch

        return v2.ToDtype(getattr(torch, self.dtype), self.scale)


class Normalize(Transform):
    """``(x - mean) / std`` for each channel of floating point images.

    Comes after `ToDtype` or `ToTensor`.

    Args:
        mean: One number per channel.
        std: One number per channel, none of them 0.
        inplace: Accepted for torchvision's sake; no one else sees the image.

    Example:
        >>> chain = Compose([ToDtype("float32", scale=True), Normalize([0.5], [0.5])])
        >>> chain(np.zeros((2, 2, 1), np.uint8)).min()
        np.float32(-1.0)
    """

    _not_in_plan = frozenset({"inplace"})
    mean: tuple[float, ...]
    std: tuple[float, ...]
    inplace: bool

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        means, stds = check.channels(mean, "mean"), check.channels(std, "std")
        if 0.0 in stds:
            raise ValueError(f"std is {stds}; it must not be 0")
        self._set(mean=means, std=stds, inplace=bool(inplace))


class Resize(Transform):
    """Resizes images.

    Args:
        size: An int is the smaller edge of the result, whose aspect ratio stays; (height, width) is the result;
            None leaves it to ``max_size``.
        interpolation: nearest, nearest-exact, bilinear, bicubic or lanczos, with Pillow's pixels; opencv-nearest,
            opencv-linear or opencv-area, with those of ``cv2.resize``, which does not antialias but for the last;
            opencv-linear-area takes areas where a side becomes shorter; torch-bilinear or torch-bicubic, with
            those that torchvision v2 makes of uint8 tensors. Masks are resized as torchvision resizes them, and
            by pillow-nearest as Pillow does.
        max_size: Greatest longer edge, if size is an int; the longer edge itself, if size is None.
        antialias: True or None; shrinking is always antialiased.

    Example:
        >>> Resize(16)(np.zeros((32, 64, 3), np.uint8)).shape
        (16, 32, 3)
        >>> Resize((10, 20), interpolation="bicubic")(np.zeros((32, 64, 3), np.uint8)).shape
        (10, 20, 3)
    """

    _not_in_plan = frozenset({"antialias"})
    size: int | tuple[int, int] | None
    interpolation: str
    max_size: int | None
    antialias: bool | None

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        chosen: int | tuple[int, int] | None
        if isinstance(size, int | np.integer):
            chosen = int(size)
        elif size is None:
            if not isinstance(max_size, numbers.Integral):
                raise ValueError(f"max_size is {max_size!r}; it must be an int when size is None")
            chosen = None
        elif check.is_sequence(size) and len(size) in (1, 2):
            chosen = int(size[0]) if len(size) == 1 else (int(size[0]), int(size[1]))
        else:
            raise ValueError(f"size is {size!r}; it must be an int, (height, width) or None")
        if max_size is not None and isinstance(chosen, tuple):
            raise ValueError(f"max_size is {max_size}; it must be None when size is (height, width)")
        if max_size is not None and isinstance(chosen, int) and max_size <= chosen:
            raise ValueError(f"max_size is {max_size}; it must be greater than size, which is {chosen}")
        self._set(
            size=chosen,
            interpolation=check.interpolation(interpolation),
            max_size=None if max_size is None else int(max_size),
            antialias=check.antialias(antialias),
        )


class CenterCrop(Transform):
    """Keeps the centre; images that are too small are padded with 0.

    Args:
        size: (height, width), or an int for both.

    Example:
        >>> CenterCrop(4)(np.zeros((8, 2, 3), np.uint8)).shape
        (4, 4, 3)
    """

    size: tuple[int, int]

    def __init__(self, size: int | Sequence[int]) -> None:
        self._set(size=check.size(size))


class FiveCrop(Transform):
    """Makes five images of one: top left, top right, bottom left, bottom right, centre.

    They lie side by side in their sample: a batch is ``[samples, 5, channels, height, width]``. `ToTensor`, `ToDtype`
    and `Normalize` may follow, and change each; other transforms come before. Called on an image, it gives a tuple of
    five, as torchvision's does. For images alone, without masks, boxes and points.

    Args:
        size: (height, width) of each, or an int for both; an image must be no smaller.

    Example:
        >>> [crop.shape for crop in FiveCrop((4, 2))(np.zeros((8, 9, 3), np.uint8))]
        [(4, 2, 3), (4, 2, 3), (4, 2, 3), (4, 2, 3), (4, 2, 3)]
    """

    _several = True
    size: tuple[int, int]

    def __init__(self, size: int | Sequence[int]) -> None:
        self._set(size=check.size(size))


class TenCrop(Transform):
    """Makes ten images of one: those of `FiveCrop`, and the same of the mirrored image.

    A batch is ``[samples, 10, channels, height, width]``; all else is as for `FiveCrop`.

    Args:
        size: (height, width) of each, or an int for both; an image must be no smaller.
        vertical_flip: Mirror top and bottom, and not left and right.

    Example:
        >>> import wellfed as wf
        >>> images = wf.from_tensor_slices(np.zeros((6, 9, 9, 3), np.uint8))
        >>> ds = images.map(TenCrop(8), ToDtype("float32", scale=True)).batch(2)
        >>> next(iter(ds.numpy())).shape
        (2, 10, 3, 8, 8)
    """

    _several = True
    size: tuple[int, int]
    vertical_flip: bool

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        self._set(size=check.size(size), vertical_flip=bool(vertical_flip))


class Pad(Transform):
    """Adds a border.

    Args:
        padding: Pixels at each border: one int, (left and right, top and bottom), or (left, top, right, bottom).
        fill: Value of the border, 0 to 255, or one per channel; for ``padding_mode="constant"``.
        padding_mode: constant, edge, reflect (without repeating the border pixel) or symmetric (repeating it).
        mask_fill: Value of the border of masks, if it is not ``fill``: 255, say, where a loss ignores it.

    Example:
        >>> Pad((1, 2), fill=7)(np.zeros((4, 4, 1), np.uint8))[:, :, 0]
        array([[7, 7, 7, 7, 7, 7],
               [7, 7, 7, 7, 7, 7],
               [7, 0, 0, 0, 0, 7],
               [7, 0, 0, 0, 0, 7],
               [7, 0, 0, 0, 0, 7],
               [7, 0, 0, 0, 0, 7],
               [7, 7, 7, 7, 7, 7],
               [7, 7, 7, 7, 7, 7]], dtype=uint8)
    """

    padding: tuple[int, int, int, int]
    fill: float | tuple[float, ...]
    padding_mode: str
    mask_fill: float | None = None

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
        *,
        mask_fill: float | None = None,
    ) -> None:
        self._set(
            padding=check.padding(padding),
            fill=check.fill(fill),
            padding_mode=check.padding_mode(padding_mode),
            **check.mask_fill(mask_fill),
        )


class RandomCrop(Transform):
    """Keeps a window at a random place.

    Args:
        size: (height, width), or an int for both.
        padding: Border added before cropping, as in `Pad`; None for none.
        pad_if_needed: Pad images that are smaller than ``size``, instead of raising an error.
        fill: Value of the border, 0 to 255, or one per channel.
        padding_mode: constant, edge, reflect or symmetric; see `Pad`.
        mask_fill: Value of the border of masks, if it is not ``fill``.

    Example:
        >>> RandomCrop(32, padding=4)(np.zeros((32, 32, 3), np.uint8), seed=3).shape
        (32, 32, 3)
    """

    _random = True
    size: tuple[int, int]
    padding: tuple[int, int, int, int] | None
    pad_if_needed: bool
    fill: float | tuple[float, ...]
    padding_mode: str
    mask_fill: float | None = None

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] | None = 0,
        padding_mode: str = "constant",
        *,
        mask_fill: float | None = None,
    ) -> None:
        self._set(
            size=check.size(size),
            padding=None if padding is None else check.padding(padding),
            pad_if_needed=bool(pad_if_needed),
            fill=check.fill(fill),
            padding_mode=check.padding_mode(padding_mode),
            **check.mask_fill(mask_fill),
        )


class RandomResizedCrop(Transform):
    """Keeps a part of random area and aspect ratio, and resizes it.

    Args:
        size: (height, width) of the result, or an int for both.
        scale: Least and greatest share of the area that is kept, above 0.
        ratio: Least and greatest aspect ratio (width / height) of the part; its logarithm is drawn uniformly.
        interpolation: nearest, nearest-exact, bilinear, bicubic or lanczos, with Pillow's pixels; opencv-nearest,
            opencv-linear or opencv-area, with those of ``cv2.resize``, which does not antialias but for the last;
            opencv-linear-area takes areas where a side becomes shorter; torch-bilinear or torch-bicubic, with
            those that torchvision v2 makes of uint8 tensors. Of two, as ``("bilinear", "bicubic")``, one is
            drawn for each sample.
        antialias: True or None; shrinking is always antialiased.

    Example:
        >>> RandomResizedCrop((8, 6))(np.zeros((30, 40, 3), np.uint8), seed=5).shape
        (8, 6, 3)
    """

    _random = True
    _not_in_plan = frozenset({"antialias"})
    size: tuple[int, int]
    scale: tuple[float, float]
    ratio: tuple[float, float]
    interpolation: str | tuple[str, ...]
    antialias: bool | None

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self._set(
            size=check.size(size),
            scale=check.positive_pair(scale, "scale"),
            ratio=check.positive_pair(ratio, "ratio"),
            interpolation=check.filters(interpolation),
            antialias=check.antialias(antialias),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's; of two filters a choice between two of them."""
        if isinstance(self.interpolation, str):
            return super().as_torchvision(v2)
        each = [
            RandomResizedCrop(self.size, self.scale, self.ratio, filter_, self.antialias)
            for filter_ in self.interpolation
        ]
        return v2.RandomChoice([crop.as_torchvision(v2) for crop in each])


class RandomHorizontalFlip(Transform):
    """Mirrors left and right with probability ``p``.

    Args:
        p: 0 to 1.

    Example:
        >>> RandomHorizontalFlip(p=1)(np.array([[1, 2, 3]], np.uint8))[0, :, 0]
        array([3, 2, 1], dtype=uint8)
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self._set(p=check.probability(p))


class RandomVerticalFlip(Transform):
    """Mirrors top and bottom with probability ``p``.

    Args:
        p: 0 to 1.

    Example:
        >>> RandomVerticalFlip(p=1)(np.array([[1], [2]], np.uint8))[:, 0, 0]
        array([2, 1], dtype=uint8)
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self._set(p=check.probability(p))


class RandomRotation(Transform):
    """Rotates by a random angle, counter-clockwise.

    Args:
        degrees: (low, high), or d for (-d, d).
        interpolation: nearest, bilinear or bicubic.
        expand: Enlarge the image so that all of it stays visible.
        center: (x, y) in pixels from the upper left corner; None is the middle.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.

    Example:
        >>> RandomRotation((90, 90))(np.array([[1, 2], [3, 4]], np.uint8))[:, :, 0]
        array([[2, 4],
               [1, 3]], dtype=uint8)
    """

    _random = True
    degrees: tuple[float, float]
    interpolation: str
    expand: bool
    center: tuple[float, float] | None
    fill: float | tuple[float, ...]

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: Any = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] | None = 0,
    ) -> None:
        self._set(
            degrees=check.angle(degrees, "degrees"),
            interpolation=check.sampling(interpolation),
            expand=bool(expand),
            center=check.point(center, "center"),
            fill=check.fill(fill),
        )


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Args:
        brightness: Factor, at least 0: (low, high), or b for (max(0, 1 - b), 1 + b). None leaves it alone.
        contrast: As brightness.
        saturation: As brightness.
        hue: Shift as a share of the colour circle: (low, high) in -0.5 to 0.5, or h for (-h, h).

    Example:
        >>> ColorJitter(brightness=0.4, hue=0.1)
        ColorJitter(brightness=(0.6, 1.4), contrast=None, saturation=None, hue=(-0.1, 0.1))
    """

    _random = True
    brightness: tuple[float, float] | None
    contrast: tuple[float, float] | None
    saturation: tuple[float, float] | None
    hue: tuple[float, float] | None

    def __init__(
        self,
        brightness: float | Sequence[float] | None = None,
        contrast: float | Sequence[float] | None = None,
        saturation: float | Sequence[float] | None = None,
        hue: float | Sequence[float] | None = None,
    ) -> None:
        self._set(
            brightness=check.jitter(brightness, "brightness"),
            contrast=check.jitter(contrast, "contrast"),
            saturation=check.jitter(saturation, "saturation"),
            hue=check.jitter(hue, "hue", center=0.0, bound=(-0.5, 0.5)),
        )


class Grayscale(Transform):
    """Turns images grey.

    Args:
        num_output_channels: 1, or 3 equal ones.

    Example:
        >>> Grayscale()(np.array([[[255, 0, 0]]], np.uint8))
        array([[[76]]], dtype=uint8)
    """

    num_output_channels: int

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"num_output_channels is {num_output_channels}; it must be 1 or 3")
        self._set(num_output_channels=int(num_output_channels))


class RandomGrayscale(Transform):
    """Turns images grey with probability ``p``; they keep their number of channels.

    Args:
        p: 0 to 1.

    Example:
        >>> RandomGrayscale(p=1)(np.array([[[255, 0, 0]]], np.uint8))
        array([[[76, 76, 76]]], dtype=uint8)
    """

    _random = True
    p: float

    def __init__(self, p: float = 0.1) -> None:
        self._set(p=check.probability(p))


class GaussianBlur(Transform):
    """Blurs with a Gaussian of random width.

    Args:
        kernel_size: (width, height) of the kernel in pixels, odd, or an int for both.
        sigma: Standard deviation in pixels: (low, high), or one number that is always used. Above 0.

    Example:
        >>> GaussianBlur(3, sigma=(0.1, 2.0))(np.full((5, 5, 3), 9, np.uint8)).max()
        np.uint8(9)
    """

    _random = True
    kernel_size: tuple[int, int]
    sigma: tuple[float, float]

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        kernel = check.size(kernel_size, "kernel_size")
        if any(k <= 0 or k % 2 == 0 for k in kernel):
            raise ValueError(f"kernel_size is {kernel_size!r}; it must be odd and positive")
        self._set(kernel_size=kernel, sigma=check.sigma(sigma))


class RandomErasing(Transform):
    """Overwrites a random rectangle with probability ``p``.

    Args:
        p: 0 to 1.
        scale: Least and greatest share of the area that is erased, 0 to 1.
        ratio: Least and greatest aspect ratio (height / width, as torchvision has it) of the rectangle.
        value: What is written: a number, one per channel, ``"random"`` for standard normal noise, or ``"random-color"``
            for one such number for each channel of a rectangle, as timm has it.
        inplace: Accepted for torchvision's sake; no one else sees the image.
        count: Least and greatest number of rectangles, which share the area that is drawn for each of them, as in timm.

    Example:
        >>> erased = RandomErasing(p=1, value=7)(np.zeros((20, 20, 3), np.uint8), seed=1)
        >>> sorted(set(erased.flat))
        [np.uint8(0), np.uint8(7)]
    """

    _random = True
    _not_in_plan = frozenset({"inplace"})
    p: float
    scale: tuple[float, float]
    ratio: tuple[float, float]
    value: float | tuple[float, ...] | str
    inplace: bool
    count: tuple[int, int] = (1, 1)

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0.0,
        inplace: bool = False,
        *,
        count: Sequence[int] = (1, 1),
    ) -> None:
        chosen: float | tuple[float, ...] | str
        if isinstance(value, str):
            if value not in ("random", "random-color"):
                raise ValueError(f"value is {value!r}; as text it may be 'random' or 'random-color'")
            chosen = value
        elif isinstance(value, numbers.Real):
            chosen = float(value)
        elif isinstance(value, tuple | list):
            chosen = tuple(float(v) for v in value)
        else:
            raise TypeError(f"value is {value!r}; it must be a number, a sequence of numbers or 'random'")
        share = check.pair(scale, "scale")
        if share[0] < 0 or share[1] > 1:
            raise ValueError(f"scale is {scale!r}; it must lie in 0 to 1")
        if not check.is_sequence(count) or len(count) != 2:
            raise ValueError(f"count is {count!r}; it must be (low, high)")
        least, most = check.whole(count[0], "count", 1), check.whole(count[1], "count", 1)
        if least > most:
            raise ValueError(f"count is {(least, most)}; low must not exceed high")
        self._set(
            p=check.probability(p),
            scale=share,
            ratio=check.positive_pair(ratio, "ratio"),
            value=chosen,
            inplace=bool(inplace),
            # Plans, and what they show, stay what they were where it is not given.
            **({} if (least, most) == (1, 1) else {"count": (least, most)}),
        )

    def as_torchvision(self, v2: Any) -> Any:
        """Torchvision's, which erases one rectangle."""
        if self.value == "random-color" or self.count != (1, 1):
            raise TypeError(
                f"{self!r} erases as timm does, images of 8 bits alone: torchvision's has no such parameters"
            )
        return super().as_torchvision(v2)


class RandomAffine(Transform):
    """Turns, moves, scales and shears by random amounts around a centre; the image keeps its size.

    Masks, boxes and points move with their image.

    Args:
        degrees: Angle, clockwise: (low, high), or d for (-d, d).
        translate: Greatest share of the width and of the height to move by, 0 to 1; whole pixels. None for none.
        scale: Least and greatest scale, above 0. None for none.
        shear: Angles in degrees: d for (-d, d) along x, (low, high) along x, or (low, high, low, high) along x and y.
        interpolation: nearest, bilinear or bicubic.
        fill: Value of what comes in from outside, 0 to 255, or one per channel.
        center: (x, y) in pixels from the upper left corner; None is the middle.

    Example:
        >>> RandomAffine((90, 90))(np.array([[1, 2], [3, 4]], np.uint8))[:, :, 0]
        array([[3, 1],
               [4, 2]], dtype=uint8)
    """

    _random = True
    degrees: tuple[float, float]
    translate: tuple[float, float] | None
    scale: tuple[float, float] | None
    shear: tuple[float, ...] | None
    interpolation: str
    fill: float | tuple[float, ...]
    center: tuple[float, float] | None

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: Any = "nearest",
        fill: float | Sequence[float] | None = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self._set(
            degrees=check.angle(degrees, "degrees"),
            translate=check.shares(translate, "translate"),
            scale=None if scale is None else check.positive_pair(scale, "scale"),
            shear=check.shear(shear),
            interpolation=check.sampling(interpolation),
            fill=check.fill(fill),
            center=check.point(center, "center"),
        )


class ClampBoundingBoxes(Transform):
    """Cuts boxes at the border of their image.

    Args:
        clamping_mode: ``"auto"``, ``"soft"`` or ``"hard"``: the same for boxes that are not turned.

    Example:
        >>> ClampBoundingBoxes()
        ClampBoundingBoxes(clamping_mode='auto')
    """

    _not_in_plan = frozenset({"clamping_mode"})
    clamping_mode: str

    def __init__(self, clamping_mode: str = "auto") -> None:
        if clamping_mode not in ("auto", "soft", "hard"):
            raise ValueError(f"clamping_mode is {clamping_mode!r}; it must be 'auto', 'soft' or 'hard'")
        self._set(clamping_mode=clamping_mode)


class ConvertBoundingBoxFormat(Transform):
    """Turns boxes into another format.

    Args:
        format: ``"XYXY"`` (left, top, right, bottom), ``"XYWH"`` (left, top, width, height) or ``"CXCYWH"`` (middle,
            width, height); torchvision's ``BoundingBoxFormat`` does as well.

    Example:
        >>> ConvertBoundingBoxFormat("cxcywh")
        ConvertBoundingBoxFormat(format='CXCYWH')
    """

    format: str

    def __init__(self, format: Any) -> None:  # noqa: A002 (torchvision's name)
        name = str(getattr(format, "value", format)).upper()
        if name not in ("XYXY", "XYWH", "CXCYWH"):
            raise ValueError(f"format is {format!r}; it must be XYXY, XYWH or CXCYWH")
        self._set(format=name)


class SanitizeBoundingBoxes(Transform):
    """Removes boxes that are too small or reach outside of their image, and their labels.

    Args:
        min_size: Least width and height, at least 1.
        min_area: Least area, at least 1.
        labels_getter: ``"default"`` removes the labels of a box with it, and whatever else has one entry a box; None
            removes boxes alone.

    Example:
        >>> SanitizeBoundingBoxes(min_size=2)
        SanitizeBoundingBoxes(min_size=2.0, min_area=1.0, labels_getter='default')
    """

    min_size: float
    min_area: float
    labels_getter: str | None

    def __init__(
        self, min_size: float = 1.0, min_area: float = 1.0, labels_getter: str | None = "default"
    ) -> None:
        for name, value in (("min_size", min_size), ("min_area", min_area)):
            if not value >= 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        if labels_getter not in ("default", None):
            raise ValueError(f"labels_getter is {labels_getter!r}; it must be 'default' or None")
        self._set(min_size=float(min_size), min_area=float(min_area), labels_getter=labels_getter)
