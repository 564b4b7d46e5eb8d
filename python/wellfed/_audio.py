"""Transforms of sounds that make spectra, or work on them, with torchaudio's names, parameters, defaults and values.

Parameters are those of ``torchaudio.transforms`` (2.11) where it has a transform of the name. What it has not is said
at the class. A sound is float32 ``[channels, frames]`` with values from -1 to 1; a spectrum ``[channels, bins,
frames]``. Those of waveforms are in `_effects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from . import _arguments as check
from ._sound_transform import WindowFn, _SoundTransform, optional, real, window

__all__ = [
    "LFCC",
    "MFCC",
    "AmplitudeToDB",
    "FrequencyMasking",
    "KaldiFbank",
    "KaldiMFCC",
    "MelScale",
    "MelSpectrogram",
    "SpecAugment",
    "Spectrogram",
    "TimeFirst",
    "TimeMasking",
    "WhisperLogMel",
]


def _no_wkwargs(wkwargs: Any) -> None:
    if wkwargs:
        raise ValueError(f"wkwargs is {wkwargs!r}; windows have their defaults here, so it must be None")


def _norm(norm: Any, allowed: str) -> str | None:
    if norm not in (None, allowed):
        raise ValueError(f"norm is {norm!r}; it must be {allowed!r} or None")
    return None if norm is None else allowed


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
            win_length=optional(win_length, "win_length", 1),
            hop_length=optional(hop_length, "hop_length", 1),
            pad=check.whole(pad, "pad"),
            window_fn=window(window_fn),
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
    return real(power, "power")


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
            win_length=optional(win_length, "win_length", 1),
            hop_length=optional(hop_length, "hop_length", 1),
            f_min=real(f_min, "f_min"),
            f_max=None if f_max is None else real(f_max, "f_max"),
            pad=check.whole(pad, "pad"),
            n_mels=check.whole(n_mels, "n_mels", 1),
            window_fn=window(window_fn),
            power=_power(power),
            normalized=normalized if isinstance(normalized, str) else bool(normalized),
            wkwargs=None,
            center=bool(center),
            pad_mode=pad_mode,
            onesided=None,
            norm=_norm(norm, "slaney"),
            mel_scale=mel_scale,
        )


class MelScale(_SoundTransform):
    """The mel spectrum of a spectrum: ``[channels, n_stft, frames]`` becomes ``[channels, n_mels, frames]``.

    After `Spectrogram`; `MelSpectrogram` is both in one pass, and faster.

    Args:
        n_mels: Filters.
        sample_rate: Rate of the waveform, Hz. A sound of another rate is an error, where torchaudio would take it for
            one of this.
        f_min: Lowest frequency, Hz.
        f_max: Highest frequency, Hz. None is half of the rate.
        n_stft: Bins of the spectrum: ``n_fft // 2 + 1``. A spectrum of other bins is an error.
        norm: ``"slaney"`` makes the areas of all filters equal.
        mel_scale: ``"htk"`` or ``"slaney"``.

    Example:
        >>> [Spectrogram(n_fft=512), MelScale(n_mels=80, n_stft=257)]
        [Spectrogram(n_fft=512), MelScale(n_mels=80, n_stft=257)]
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "n_mels": 128,
        "sample_rate": 16_000,
        "f_min": 0.0,
        "f_max": None,
        "n_stft": 201,
        "norm": None,
        "mel_scale": "htk",
    }
    n_mels: int
    sample_rate: int
    f_min: float
    f_max: float | None
    n_stft: int
    norm: str | None
    mel_scale: str

    def __init__(
        self,
        n_mels: int = 128,
        sample_rate: int = 16_000,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_stft: int = 201,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        self._set(
            n_mels=check.whole(n_mels, "n_mels", 1),
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            f_min=real(f_min, "f_min"),
            f_max=None if f_max is None else real(f_max, "f_max"),
            n_stft=check.whole(n_stft, "n_stft", 1),
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
            f_min=real(f_min, "f_min"),
            f_max=None if f_max is None else real(f_max, "f_max"),
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
        self._set(stype=stype, top_db=None if top_db is None else real(top_db, "top_db"))


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


class SpecAugment(_SoundTransform):
    """Masks several bands of frames and of bins, at random (D. Park and others, *SpecAugment*, 2019).

    What is masked becomes the mean of all values of the sample, or 0. Draws depend only on the seed, the epoch and the
    sample, and are not torchaudio's.

    Args:
        n_time_masks: Bands of frames, at most 1,000.
        time_mask_param: Each has fewer frames than this, each number as likely.
        n_freq_masks: Bands of bins, at most 1,000.
        freq_mask_param: Each has fewer bins than this.
        iid_masks: Whether each channel of a sample has bands of its own, as in torchaudio; samples always have.
        p: At most this part of all frames, or bins, is in one band, 0 to 1.
        zero_masking: Whether what is masked becomes 0.

    Example:
        >>> SpecAugment(n_time_masks=2, time_mask_param=80, n_freq_masks=2, freq_mask_param=27)
        SpecAugment(n_time_masks=2, time_mask_param=80, n_freq_masks=2, freq_mask_param=27)
    """

    _random = True
    _defaults: ClassVar[dict[str, Any]] = {"iid_masks": True, "p": 1.0, "zero_masking": False}
    n_time_masks: int
    time_mask_param: int
    n_freq_masks: int
    freq_mask_param: int
    iid_masks: bool
    p: float
    zero_masking: bool

    def __init__(
        self,
        n_time_masks: int,
        time_mask_param: int,
        n_freq_masks: int,
        freq_mask_param: int,
        iid_masks: bool = True,
        p: float = 1.0,
        zero_masking: bool = False,
    ) -> None:
        self._set(
            n_time_masks=check.whole(n_time_masks, "n_time_masks"),
            time_mask_param=check.whole(time_mask_param, "time_mask_param"),
            n_freq_masks=check.whole(n_freq_masks, "n_freq_masks"),
            freq_mask_param=check.whole(freq_mask_param, "freq_mask_param"),
            iid_masks=bool(iid_masks),
            p=check.probability(p),
            zero_masking=bool(zero_masking),
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
                value = real(value, name)
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
