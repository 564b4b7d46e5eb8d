"""Transforms of sounds, with torchaudio's names, parameters, defaults and values.

Parameters are those of ``torchaudio.transforms`` (2.11) where it has a transform of the name. What it has not is said
at the class. A sound is float32 ``[channels, frames]`` with values from -1 to 1; a spectrum ``[channels, bins,
frames]``.
"""

from __future__ import annotations

import json
import numbers
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn

from . import _arguments as check
from . import _native
from ._transform import Transform

__all__ = [
    "LFCC",
    "MFCC",
    "AmplitudeToDB",
    "Fade",
    "FrequencyMasking",
    "KaldiFbank",
    "KaldiMFCC",
    "MelSpectrogram",
    "PadOrTrim",
    "RandomSegment",
    "Resample",
    "Spectrogram",
    "TimeFirst",
    "TimeMasking",
    "ToMono",
    "Vol",
    "WhisperLogMel",
]

WindowFn = str | Callable[..., Any] | None


class _SoundTransform(Transform):
    """Base of transforms of sounds: the engine checks their parameters."""

    # Defaults, which `repr` leaves out.
    _defaults: ClassVar[dict[str, Any]] = {}

    def _set(self, **parameters: Any) -> None:
        super()._set(**parameters)
        _native.check_transform(check.to_json(self.to_plan()))

    def __call__(self, image: Any, seed: int | None = None) -> NoReturn:
        """Sounds are transformed in data sets only."""
        name = type(self).__name__
        raise TypeError(
            f"{name} works on the sounds of a data set, not on one image or array\n"
            f"hint: wf.audio_files(paths).map(T.{name}(...)); torchaudio.transforms works on tensors"
        )

    def as_torchvision(self, v2: Any) -> NoReturn:
        """Torchvision has no transforms of sounds."""
        raise TypeError(f"{type(self).__name__} works on sounds, and torchvision has no such transforms")

    def __repr__(self) -> str:
        given = (
            f"{k}={v!r}" for k, v in vars(self).items() if k not in self._defaults or self._defaults[k] != v
        )
        return f"{type(self).__name__}({', '.join(given)})"

    def __hash__(self) -> int:
        return hash((type(self).__name__, json.dumps(self.to_plan())))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)


def _optional(value: Any, name: str, least: int = 0) -> int | None:
    return None if value is None else check.whole(value, name, least)


def _real(value: Any, name: str) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r}; it must be a number")
    return float(value)


def _window(window_fn: WindowFn) -> str:
    """The name of a window: given as such, or as torch's function of that name."""
    name = window_fn if isinstance(window_fn, str) else getattr(window_fn, "__name__", repr(window_fn))
    if window_fn is None:
        return "hann_window"
    if name not in _WINDOWS:
        raise ValueError(f"window_fn is {name}; it must be one of {', '.join(_WINDOWS)}, of torch or by name")
    return name


_WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "ones")


def _no_wkwargs(wkwargs: Any) -> None:
    if wkwargs:
        raise ValueError(f"wkwargs is {wkwargs!r}; windows have their defaults here, so it must be None")


def _norm(norm: Any, allowed: str) -> str | None:
    if norm not in (None, allowed):
        raise ValueError(f"norm is {norm!r}; it must be {allowed!r} or None")
    return None if norm is None else allowed


class ToMono(_SoundTransform):
    """The mean of all channels: ``waveform.mean(0, keepdim=keepdim)``. torchaudio has no such transform.

    Args:
        keepdim: Whether the channel stays a side of the array: ``[1, frames]``, or ``[frames]`` without.

    Example:
        >>> ToMono()
        ToMono()
        >>> ToMono(keepdim=False)
        ToMono(keepdim=False)
    """

    _defaults: ClassVar[dict[str, Any]] = {"keepdim": True}
    keepdim: bool

    def __init__(self, keepdim: bool = True) -> None:
        self._set(keepdim=bool(keepdim))


class Resample(_SoundTransform):
    """Changes the sample rate of a waveform, with torchaudio's filter.

    Args:
        orig_freq: Rate of what comes in, Hz. None, which is not torchaudio's default, is each file's own rate; a number
            makes a sound of another rate an error, where torchaudio would resample it wrongly.
        new_freq: Rate of what goes out, Hz.
        resampling_method: ``"sinc_interp_hann"`` or ``"sinc_interp_kaiser"``.
        lowpass_filter_width: Zero crossings of the sinc on either side. More are sharper and slower.
        rolloff: Share of the Nyquist frequency at which the filter ends, above 0, at most 1.
        beta: Of Kaiser's window. None is 14.769656459379492.

    Example:
        >>> Resample(new_freq=16_000)
        Resample(orig_freq=None, new_freq=16000)
        >>> Resample(44_100, 16_000, lowpass_filter_width=64)
        Resample(orig_freq=44100, new_freq=16000, lowpass_filter_width=64)
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "resampling_method": "sinc_interp_hann",
        "lowpass_filter_width": 6,
        "rolloff": 0.99,
        "beta": None,
    }
    orig_freq: int | None
    new_freq: int
    resampling_method: str
    lowpass_filter_width: int
    rolloff: float
    beta: float | None

    def __init__(
        self,
        orig_freq: int | None = None,
        new_freq: int = 16_000,
        resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
    ) -> None:
        self._set(
            orig_freq=_optional(orig_freq, "orig_freq", 1),
            new_freq=check.whole(new_freq, "new_freq", 1),
            resampling_method=resampling_method,
            lowpass_filter_width=check.whole(lowpass_filter_width, "lowpass_filter_width", 1),
            rolloff=_real(rolloff, "rolloff"),
            beta=None if beta is None else _real(beta, "beta"),
        )


class Vol(_SoundTransform):
    """Makes a waveform louder or softer, and cuts it off at -1 and 1.

    Args:
        gain: How much.
        gain_type: What ``gain`` is: ``"amplitude"``, a factor; ``"power"``, a factor of powers; ``"db"``, decibels.

    Example:
        >>> Vol(-6, gain_type="db")
        Vol(gain=-6.0, gain_type='db')
    """

    _defaults: ClassVar[dict[str, Any]] = {"gain_type": "amplitude"}
    gain: float
    gain_type: str

    def __init__(self, gain: float, gain_type: str = "amplitude") -> None:
        self._set(gain=_real(gain, "gain"), gain_type=gain_type)


class Fade(_SoundTransform):
    """Fades a waveform in and out. One that is shorter than a fade is an error of its sample.

    Args:
        fade_in_len: Frames, from the start on.
        fade_out_len: Frames, up to the end.
        fade_shape: ``"linear"``, ``"exponential"``, ``"logarithmic"``, ``"quarter_sine"`` or ``"half_sine"``.

    Example:
        >>> Fade(fade_in_len=800, fade_shape="half_sine")
        Fade(fade_in_len=800, fade_shape='half_sine')
    """

    _defaults: ClassVar[dict[str, Any]] = {"fade_in_len": 0, "fade_out_len": 0, "fade_shape": "linear"}
    fade_in_len: int
    fade_out_len: int
    fade_shape: str

    def __init__(self, fade_in_len: int = 0, fade_out_len: int = 0, fade_shape: str = "linear") -> None:
        self._set(
            fade_in_len=check.whole(fade_in_len, "fade_in_len"),
            fade_out_len=check.whole(fade_out_len, "fade_out_len"),
            fade_shape=fade_shape,
        )


class PadOrTrim(_SoundTransform):
    """Cuts sounds off at ``length`` frames, or fills them with zeros, as Whisper's ``pad_or_trim`` does.

    Where it comes first, no more than that is decoded. Of a spectrum its frames count.

    Args:
        length: Frames. The default are Whisper's 30 seconds at 16 kHz.

    Example:
        >>> PadOrTrim(16_000)
        PadOrTrim(length=16000)
    """

    length: int

    def __init__(self, length: int = 480_000) -> None:
        self._set(length=check.whole(length, "length", 1))


class RandomSegment(_SoundTransform):
    """Cuts a segment of ``num_frames`` frames out at random. A shorter sound stays whole.

    Where it comes first, only the segment is decoded. Every place is as likely; it depends only on the seed, the
    epoch and the sample. torchaudio has no such transform.

    Args:
        num_frames: Frames of the segment.
        pad_if_needed: Whether a shorter sound is filled with zeros at its end, so that all have one length.

    Example:
        >>> RandomSegment(48_000, pad_if_needed=True)
        RandomSegment(num_frames=48000, pad_if_needed=True)
    """

    _random = True
    _defaults: ClassVar[dict[str, Any]] = {"pad_if_needed": False}
    num_frames: int
    pad_if_needed: bool

    def __init__(self, num_frames: int, pad_if_needed: bool = False) -> None:
        self._set(num_frames=check.whole(num_frames, "num_frames", 1), pad_if_needed=bool(pad_if_needed))


class Spectrogram(_SoundTransform):
    """A spectrum of each channel: ``[channels, n_fft // 2 + 1, frames]``.

    Args:
        n_fft: Samples of a transform.
        win_length: Samples of a window. None is ``n_fft``.
        hop_length: Samples from one frame to the next. None is half of a window.
        pad: Zeros on either side of the signal.
        window_fn: ``torch.hann_window``, ``hamming_window``, ``blackman_window``, ``bartlett_window`` or ``ones``; or
            the name of one. None is the first.
        power: Exponent of the magnitude, above 0: 1 for magnitudes, 2 for powers. Complex spectra, torchaudio's
            None, are not
            made.
        normalized: False; True or ``"window"``: divided by the window's norm; ``"frame_length"``: by the root of its
            length.
        wkwargs: None.
        center: Whether frame ``t`` has sample ``t * hop_length`` in its middle.
        pad_mode: How the signal goes on beyond its ends, if ``center``: ``"reflect"``, ``"constant"``,
            ``"replicate"`` or
            ``"circular"``.
        onesided: Whether the half of the spectrum is left out that mirrors the other.
        return_complex: Accepted for torchaudio's sake, which ignores it too.

    Example:
        >>> Spectrogram(n_fft=512, hop_length=160)
        Spectrogram(n_fft=512, hop_length=160)
    """

    _not_in_plan = frozenset({"wkwargs", "return_complex"})
    _defaults: ClassVar[dict[str, Any]] = {
        "n_fft": 400,
        "win_length": None,
        "hop_length": None,
        "pad": 0,
        "window_fn": "hann_window",
        "power": 2.0,
        "normalized": False,
        "wkwargs": None,
        "center": True,
        "pad_mode": "reflect",
        "onesided": True,
        "return_complex": None,
    }
    n_fft: int
    win_length: int | None
    hop_length: int | None
    pad: int
    window_fn: str
    power: float
    normalized: bool | str
    wkwargs: None
    center: bool
    pad_mode: str
    onesided: bool
    return_complex: None

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: WindowFn = None,
        power: float = 2.0,
        normalized: bool | str = False,
        wkwargs: Mapping[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
        return_complex: bool | None = None,
    ) -> None:
        _no_wkwargs(wkwargs)
        self._set(
            n_fft=check.whole(n_fft, "n_fft", 1),
            win_length=_optional(win_length, "win_length", 1),
            hop_length=_optional(hop_length, "hop_length", 1),
            pad=check.whole(pad, "pad"),
            window_fn=_window(window_fn),
            power=_power(power),
            normalized=normalized if isinstance(normalized, str) else bool(normalized),
            wkwargs=None,
            center=bool(center),
            pad_mode=pad_mode,
            onesided=bool(onesided),
            return_complex=None,
        )


def _power(power: Any) -> float:
    if power is None:
        raise ValueError("power is None, a complex spectrum, which is not made; it must be a number above 0")
    return _real(power, "power")


class MelSpectrogram(_SoundTransform):
    """A mel spectrum of each channel: ``[channels, n_mels, frames]``.

    Args:
        sample_rate: Rate of what comes in, Hz. A sound of another rate is an error, where torchaudio would take it for
            one of this.
        n_fft: As of `Spectrogram`; so are ``win_length``, ``hop_length``, ``pad``, ``window_fn``, ``power``,
            ``normalized``,
            ``wkwargs``, ``center`` and ``pad_mode``.
        f_min: Lowest frequency, Hz.
        f_max: Highest frequency, Hz. None is half of the rate.
        n_mels: Filters.
        onesided: Accepted for torchaudio's sake, which ignores it too.
        norm: ``"slaney"`` makes the areas of all filters equal.
        mel_scale: ``"htk"`` or ``"slaney"``.

    Example:
        >>> MelSpectrogram(n_fft=512, hop_length=160, n_mels=80)
        MelSpectrogram(n_fft=512, hop_length=160, n_mels=80)
    """

    _not_in_plan = frozenset({"wkwargs", "onesided"})
    _defaults: ClassVar[dict[str, Any]] = {
        "sample_rate": 16_000,
        "n_fft": 400,
        "win_length": None,
        "hop_length": None,
        "f_min": 0.0,
        "f_max": None,
        "pad": 0,
        "n_mels": 128,
        "window_fn": "hann_window",
        "power": 2.0,
        "normalized": False,
        "wkwargs": None,
        "center": True,
        "pad_mode": "reflect",
        "onesided": None,
        "norm": None,
        "mel_scale": "htk",
    }
    sample_rate: int
    n_fft: int
    win_length: int | None
    hop_length: int | None
    f_min: float
    f_max: float | None
    pad: int
    n_mels: int
    window_fn: str
    power: float
    normalized: bool | str
    wkwargs: None
    center: bool
    pad_mode: str
    onesided: None
    norm: str | None
    mel_scale: str

    def __init__(
        self,
        sample_rate: int = 16_000,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        f_min: float = 0.0,
        f_max: float | None = None,
        pad: int = 0,
        n_mels: int = 128,
        window_fn: WindowFn = None,
        power: float = 2.0,
        normalized: bool | str = False,
        wkwargs: Mapping[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool | None = None,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        _no_wkwargs(wkwargs)
        self._set(
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            n_fft=check.whole(n_fft, "n_fft", 1),
            win_length=_optional(win_length, "win_length", 1),
            hop_length=_optional(hop_length, "hop_length", 1),
            f_min=_real(f_min, "f_min"),
            f_max=None if f_max is None else _real(f_max, "f_max"),
            pad=check.whole(pad, "pad"),
            n_mels=check.whole(n_mels, "n_mels", 1),
            window_fn=_window(window_fn),
            power=_power(power),
            normalized=normalized if isinstance(normalized, str) else bool(normalized),
            wkwargs=None,
            center=bool(center),
            pad_mode=pad_mode,
            onesided=None,
            norm=_norm(norm, "slaney"),
            mel_scale=mel_scale,
        )


def _inner(given: Mapping[str, Any] | None, name: str, kind: type[_SoundTransform]) -> dict[str, Any]:
    """Parameters of a transform inside of another one, in the form of plans."""
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"{name} is {given!r}; it must be a dict of {kind.__name__}'s parameters")
    asked = set(given or {})
    plan = kind(**(given or {})).to_plan()
    return {k: v for k, v in plan.items() if k in asked}


class MFCC(_SoundTransform):
    """Mel-frequency cepstral coefficients of each channel: ``[channels, n_mfcc, frames]``.

    Args:
        sample_rate: Rate of what comes in, Hz. A sound of another rate is an error.
        n_mfcc: Coefficients, at most ``n_mels``.
        dct_type: 2.
        norm: ``"ortho"`` or None.
        log_mels: Whether the logarithm of mels is taken, and not decibels cut off 80 below the greatest.
        melkwargs: Parameters of `MelSpectrogram`, without ``sample_rate``.

    Example:
        >>> MFCC(n_mfcc=13, melkwargs={"n_mels": 40})
        MFCC(n_mfcc=13, melkwargs={'n_mels': 40})
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "sample_rate": 16_000,
        "n_mfcc": 40,
        "dct_type": 2,
        "norm": "ortho",
        "log_mels": False,
        "melkwargs": {},
    }
    sample_rate: int
    n_mfcc: int
    dct_type: int
    norm: str | None
    log_mels: bool
    melkwargs: dict[str, Any]

    def __init__(
        self,
        sample_rate: int = 16_000,
        n_mfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_mels: bool = False,
        melkwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._set(
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            n_mfcc=check.whole(n_mfcc, "n_mfcc", 1),
            dct_type=check.whole(dct_type, "dct_type"),
            norm=_norm(norm, "ortho"),
            log_mels=bool(log_mels),
            melkwargs=_inner(melkwargs, "melkwargs", MelSpectrogram),
        )


class LFCC(_SoundTransform):
    """Linear-frequency cepstral coefficients of each channel: ``[channels, n_lfcc, frames]``.

    Args:
        sample_rate: Rate of what comes in, Hz. A sound of another rate is an error.
        n_filter: Filters.
        f_min: Lowest frequency, Hz.
        f_max: Highest frequency, Hz. None is half of the rate.
        n_lfcc: Coefficients, at most ``n_filter``.
        dct_type: 2.
        norm: ``"ortho"`` or None.
        log_lf: Whether the logarithm is taken, and not decibels cut off 80 below the greatest.
        speckwargs: Parameters of `Spectrogram`.

    Example:
        >>> LFCC(n_lfcc=20)
        LFCC(n_lfcc=20)
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "sample_rate": 16_000,
        "n_filter": 128,
        "f_min": 0.0,
        "f_max": None,
        "n_lfcc": 40,
        "dct_type": 2,
        "norm": "ortho",
        "log_lf": False,
        "speckwargs": {},
    }
    sample_rate: int
    n_filter: int
    f_min: float
    f_max: float | None
    n_lfcc: int
    dct_type: int
    norm: str | None
    log_lf: bool
    speckwargs: dict[str, Any]

    def __init__(
        self,
        sample_rate: int = 16_000,
        n_filter: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_lfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_lf: bool = False,
        speckwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._set(
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            n_filter=check.whole(n_filter, "n_filter", 1),
            f_min=_real(f_min, "f_min"),
            f_max=None if f_max is None else _real(f_max, "f_max"),
            n_lfcc=check.whole(n_lfcc, "n_lfcc", 1),
            dct_type=check.whole(dct_type, "dct_type"),
            norm=_norm(norm, "ortho"),
            log_lf=bool(log_lf),
            speckwargs=_inner(speckwargs, "speckwargs", Spectrogram),
        )


class AmplitudeToDB(_SoundTransform):
    """Turns powers or magnitudes into decibels.

    Args:
        stype: What values are: ``"power"`` or ``"magnitude"``.
        top_db: Values that are further below the greatest of their sample are cut off there. None: none are.

    Example:
        >>> AmplitudeToDB(top_db=80)
        AmplitudeToDB(top_db=80.0)
    """

    _defaults: ClassVar[dict[str, Any]] = {"stype": "power", "top_db": None}
    stype: str
    top_db: float | None

    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        self._set(stype=stype, top_db=None if top_db is None else _real(top_db, "top_db"))


class FrequencyMasking(_SoundTransform):
    """Makes a band of bins zeros, at random, in all channels alike (SpecAugment).

    Args:
        freq_mask_param: The band has fewer bins than this, each number as likely.
        iid_masks: Accepted for torchaudio's sake: every sample has a mask of its own anyway.

    Example:
        >>> FrequencyMasking(30)
        FrequencyMasking(freq_mask_param=30)
    """

    _random = True
    _not_in_plan = frozenset({"iid_masks"})
    _defaults: ClassVar[dict[str, Any]] = {"iid_masks": False}
    freq_mask_param: int
    iid_masks: bool

    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        self._set(freq_mask_param=check.whole(freq_mask_param, "freq_mask_param"), iid_masks=bool(iid_masks))


class TimeMasking(_SoundTransform):
    """Makes a band of frames zeros, at random, in all channels alike (SpecAugment).

    Args:
        time_mask_param: The band has fewer frames than this, each number as likely.
        iid_masks: Accepted for torchaudio's sake: every sample has a mask of its own anyway.
        p: At most this part of all frames is masked, above 0, at most 1.

    Example:
        >>> TimeMasking(80, p=0.5)
        TimeMasking(time_mask_param=80, p=0.5)
    """

    _random = True
    _not_in_plan = frozenset({"iid_masks"})
    _defaults: ClassVar[dict[str, Any]] = {"iid_masks": False, "p": 1.0}
    time_mask_param: int
    iid_masks: bool
    p: float

    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        self._set(
            time_mask_param=check.whole(time_mask_param, "time_mask_param"),
            iid_masks=bool(iid_masks),
            p=check.probability(p),
        )


class TimeFirst(_SoundTransform):
    """Makes ``[..., frames, bins]`` of a spectrum: ``spectrum.transpose(-1, -2)``. torchaudio has no such transform.

    Spectra that come one after the other (`Dataset.ragged_batch`) need time first, and no channel
    (``ToMono(keepdim=False)``).

    Example:
        >>> TimeFirst()
        TimeFirst()
    """

    def __init__(self) -> None:
        self._set()


class WhisperLogMel(_SoundTransform):
    """What OpenAI's Whisper models take of each channel at 16 kHz: ``[channels, n_mels, frames]``, 100 frames a second.

    Args:
        n_mels: 80, or 128 of ``large-v3``.

    Example:
        >>> WhisperLogMel()
        WhisperLogMel()
    """

    _defaults: ClassVar[dict[str, Any]] = {"n_mels": 80}
    n_mels: int

    def __init__(self, n_mels: int = 80) -> None:
        self._set(n_mels=check.whole(n_mels, "n_mels", 1))


_KALDI: dict[str, Any] = {
    "channel": -1,
    "energy_floor": 1.0,
    "frame_length": 25.0,
    "frame_shift": 10.0,
    "high_freq": 0.0,
    "htk_compat": False,
    "low_freq": 20.0,
    "num_mel_bins": 23,
    "preemphasis_coefficient": 0.97,
    "raw_energy": True,
    "remove_dc_offset": True,
    "round_to_power_of_two": True,
    "sample_frequency": 16_000.0,
    "snip_edges": True,
    "subtract_mean": False,
    "use_energy": False,
    "window_type": "povey",
    "scale": 1.0,
}


class _Kaldi(_SoundTransform):
    def _take(self, given: Mapping[str, Any]) -> None:
        unknown = sorted(set(given) - set(self._defaults))
        if unknown:
            known = ", ".join(sorted(self._defaults))
            raise TypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}; parameters are {known}")
        parameters: dict[str, Any] = {}
        for name, default in self._defaults.items():
            value = given.get(name, default)
            if isinstance(default, bool):
                value = bool(value)
            elif isinstance(default, int):
                value = check.whole(value, name, -1)
            elif isinstance(default, float):
                value = _real(value, name)
            parameters[name] = value
        self._set(**parameters)


class KaldiFbank(_Kaldi):
    """Kaldi's filter bank energies of one channel: ``[frames, num_mel_bins]``, one column more with ``use_energy``.

    Parameters and defaults are those of ``torchaudio.compliance.kaldi.fbank`` without dither, vocal tract length
    warping and ``min_duration``, by name only.

    Args:
        parameters: ``channel`` (-1), ``energy_floor`` (1.0), ``frame_length`` (25.0, milliseconds), ``frame_shift``
            (10.0),
            ``high_freq`` (0.0: the Nyquist frequency), ``htk_compat`` (False), ``low_freq`` (20.0), ``num_mel_bins``
            (23),
            ``preemphasis_coefficient`` (0.97), ``raw_energy`` (True), ``remove_dc_offset`` (True),
            ``round_to_power_of_two``
            (True), ``sample_frequency`` (16000.0; a sound of another rate is an error), ``snip_edges`` (True),
            ``subtract_mean`` (False), ``use_energy`` (False), ``use_log_fbank`` (True), ``use_power`` (True),
            ``window_type``
            (``"povey"``); and ``scale`` (1.0), which samples are multiplied by: 32768 gives Kaldi's own values.

    Example:
        >>> KaldiFbank(num_mel_bins=80, scale=32768)
        KaldiFbank(num_mel_bins=80, scale=32768.0)
    """

    _defaults: ClassVar[dict[str, Any]] = {**_KALDI, "use_log_fbank": True, "use_power": True}

    def __init__(self, **parameters: Any) -> None:
        self._take(parameters)


class KaldiMFCC(_Kaldi):
    """Kaldi's cepstral coefficients of one channel: ``[frames, num_ceps]``.

    Parameters and defaults are those of ``torchaudio.compliance.kaldi.mfcc`` without dither, vocal tract length
    warping and ``min_duration``, by name only.

    Args:
        parameters: As of `KaldiFbank`, without ``use_log_fbank`` and ``use_power``; and ``num_ceps`` (13),
            ``cepstral_lifter`` (22.0).

    Example:
        >>> KaldiMFCC(num_ceps=20)
        KaldiMFCC(num_ceps=20)
    """

    _defaults: ClassVar[dict[str, Any]] = {**_KALDI, "num_ceps": 13, "cepstral_lifter": 22.0}

    def __init__(self, **parameters: Any) -> None:
        self._take(parameters)
