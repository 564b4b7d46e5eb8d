"""Transforms of waveforms, with torchaudio's names, parameters, defaults and values.

Parameters are those of ``torchaudio.transforms`` (2.11) where it has a transform of the name. What it has not is said
at the class. A sound is float32 ``[channels, frames]`` with values from -1 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from . import _arguments as check
from ._sound_transform import WindowFn, _SoundTransform, optional, real, window

__all__ = [
    "Fade",
    "MuLawDecoding",
    "MuLawEncoding",
    "PadOrTrim",
    "PitchShift",
    "RandomSegment",
    "Resample",
    "Speed",
    "SpeedPerturbation",
    "Standardize",
    "TimeStretch",
    "ToMono",
    "Vad",
    "Vol",
]


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
        dtype: What filters are computed in: ``torch.float64``, ``torch.float32``, or the name of one. None is the
            first, as of ``torchaudio.transforms.Resample``. ``torchaudio.functional.resample`` computes them in
            float32, which changes values by up to 1.5e-5. Samples are float32 either way.

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
        "dtype": "float64",
    }
    orig_freq: int | None
    new_freq: int
    resampling_method: str
    lowpass_filter_width: int
    rolloff: float
    beta: float | None
    dtype: str

    def __init__(
        self,
        orig_freq: int | None = None,
        new_freq: int = 16_000,
        resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
        *,
        dtype: Any = None,
    ) -> None:
        self._set(
            orig_freq=optional(orig_freq, "orig_freq", 1),
            new_freq=check.whole(new_freq, "new_freq", 1),
            resampling_method=resampling_method,
            lowpass_filter_width=check.whole(lowpass_filter_width, "lowpass_filter_width", 1),
            rolloff=real(rolloff, "rolloff"),
            beta=None if beta is None else real(beta, "beta"),
            dtype=_precision(dtype),
        )


def _precision(dtype: Any) -> str:
    name = "float64" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in ("float32", "float64"):
        raise ValueError(
            f"dtype is {dtype!r}; it must be 'float64', 'float32', torch's dtype of one, or None"
        )
    return name


class Standardize(_SoundTransform):
    """Makes each channel's mean 0 and its variance 1: ``(x - x.mean()) / sqrt(x.var() + eps)``.

    torchaudio has no such transform. Hugging Face's ``Wav2Vec2FeatureExtractor`` does this with ``do_normalize``.

    Args:
        eps: Added to the variance, above 0: silence stays 0.

    Example:
        >>> Standardize()
        Standardize()
    """

    _defaults: ClassVar[dict[str, Any]] = {"eps": 1e-7}
    eps: float

    def __init__(self, eps: float = 1e-7) -> None:
        self._set(eps=real(eps, "eps"))


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
        self._set(gain=real(gain, "gain"), gain_type=gain_type)


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


class Speed(_SoundTransform):
    """Makes a waveform ``factor`` times as fast, and as high, as a tape that runs faster. Its rate stays.

    Of torchaudio's pair of waveform and lengths this is the waveform: ``lengths=True`` of `Dataset.padded_batch` gives
    lengths.

    Args:
        orig_freq: Rate of the waveform, Hz; a sound of another rate is an error. None is each sound's own.
        factor: How many times as fast, 0.01 to 100.

    Example:
        >>> Speed(16_000, 1.1)
        Speed(orig_freq=16000, factor=1.1)
    """

    orig_freq: int | None
    factor: float

    def __init__(self, orig_freq: int | None, factor: float) -> None:
        self._set(orig_freq=optional(orig_freq, "orig_freq", 1), factor=real(factor, "factor"))


class SpeedPerturbation(_SoundTransform):
    """Makes a waveform faster or slower by a factor that is drawn for each sample.

    After T. Ko and others, *Audio Augmentation for Speech Recognition*, 2015.

    Args:
        orig_freq: As of `Speed`.
        factors: What is drawn from, each as likely: 0.01 to 100.

    Example:
        >>> SpeedPerturbation(16_000, [0.9, 1.0, 1.1])
        SpeedPerturbation(orig_freq=16000, factors=(0.9, 1.0, 1.1))
    """

    _random = True
    orig_freq: int | None
    factors: tuple[float, ...]

    def __init__(self, orig_freq: int | None, factors: Sequence[float]) -> None:
        if not check.is_sequence(factors) and not isinstance(factors, np.ndarray):
            raise TypeError(f"factors is {factors!r}; it must be a sequence of numbers")
        self._set(
            orig_freq=optional(orig_freq, "orig_freq", 1),
            factors=tuple(real(factor, "one of factors") for factor in factors),
        )


class PitchShift(_SoundTransform):
    """Shifts the pitch of a waveform by ``n_steps`` steps; its length and rate stay.

    A phase vocoder makes it longer or shorter, and resampling as long as it was. Of a pure tone values are torchaudio's
    to 1e-3; of voices in noise some differ by a few hundredths of the greatest, as torchaudio's own do from those in
    double precision: phases grow to thousands of turns, which float32 has no more exactly.

    Args:
        sample_rate: Rate of what comes in, Hz. A sound of another rate is an error.
        n_steps: Steps upwards, downwards where negative; four octaves at most. It need not be whole.
        bins_per_octave: Steps of an octave.
        n_fft: Samples of a transform. A sound of ``n_fft // 2`` samples or fewer is an error.
        win_length: Samples of a window. None is ``n_fft``.
        hop_length: Samples from one frame to the next. None is a quarter of a window.
        window_fn: As of `Spectrogram`.
        wkwargs: None.

    Example:
        >>> PitchShift(16_000, 4)
        PitchShift(sample_rate=16000, n_steps=4.0)
    """

    _not_in_plan = frozenset({"wkwargs"})
    _defaults: ClassVar[dict[str, Any]] = {
        "bins_per_octave": 12,
        "n_fft": 512,
        "win_length": None,
        "hop_length": None,
        "window_fn": "hann_window",
        "wkwargs": None,
    }
    sample_rate: int
    n_steps: float
    bins_per_octave: int
    n_fft: int
    win_length: int | None
    hop_length: int | None
    window_fn: str
    wkwargs: None

    def __init__(
        self,
        sample_rate: int,
        n_steps: float,
        bins_per_octave: int = 12,
        n_fft: int = 512,
        win_length: int | None = None,
        hop_length: int | None = None,
        window_fn: WindowFn = None,
        wkwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if wkwargs:
            raise ValueError(f"wkwargs is {wkwargs!r}; windows have their defaults here, so it must be None")
        self._set(
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            n_steps=real(n_steps, "n_steps"),
            bins_per_octave=check.whole(bins_per_octave, "bins_per_octave", 1),
            n_fft=check.whole(n_fft, "n_fft", 2),
            win_length=optional(win_length, "win_length", 1),
            hop_length=optional(hop_length, "hop_length", 1),
            window_fn=window(window_fn),
            wkwargs=None,
        )


class TimeStretch(_SoundTransform):
    """Makes a **waveform** faster or slower at the same pitch, by a rate that may be drawn for each sample.

    ``torchaudio.transforms.TimeStretch`` works on complex spectra, which there are none of here. This makes the
    spectrum of the waveform, of ``2 * (n_freq - 1)`` samples and Hann's window, stretches it as torchaudio does, and
    makes a waveform of it: what ``torch.stft``, torchaudio's transform and ``torch.istft`` give together. It goes
    before `Spectrogram` or `MelSpectrogram`, not after. Values differ from those as `PitchShift` says.

    Args:
        hop_length: Samples from one frame to the next. None is half of a transform; a quarter sounds better.
        n_freq: Bins of the spectrum.
        fixed_rate: How many times as fast, 0.01 to 100; or ``(low, high)``, from which a rate is drawn. There is no
            ``overriding_rate``, so it must be given.

    Example:
        >>> TimeStretch(hop_length=128, n_freq=257, fixed_rate=(0.8, 1.25))
        TimeStretch(hop_length=128, n_freq=257, fixed_rate=(0.8, 1.25))
    """

    _defaults: ClassVar[dict[str, Any]] = {"hop_length": None, "n_freq": 201}
    hop_length: int | None
    n_freq: int
    fixed_rate: float | tuple[float, float]

    def __init__(
        self,
        hop_length: int | None = None,
        n_freq: int = 201,
        fixed_rate: float | tuple[float, float] | None = None,
    ) -> None:
        if fixed_rate is None:
            raise ValueError("fixed_rate is None; it must be a number, or (low, high) to draw from")
        self._set(
            hop_length=optional(hop_length, "hop_length", 1),
            n_freq=check.whole(n_freq, "n_freq", 2),
            fixed_rate=check.pair(fixed_rate, "fixed_rate")
            if check.is_sequence(fixed_rate)
            else real(fixed_rate, "fixed_rate"),
        )

    @property
    def random(self) -> bool:
        """Whether the rate is drawn."""
        return isinstance(self.fixed_rate, tuple) and self.fixed_rate[0] < self.fixed_rate[1]


class MuLawEncoding(_SoundTransform):
    """Makes whole numbers from 0 to ``quantization_channels - 1`` of samples from -1 to 1, on µ-law's scale.

    Batches have int64, as torchaudio's tensors. After it, only transforms that cut or fill up, `MuLawDecoding` and
    ``ToDtype("float32")`` can stand. What batches are filled up with is 0, the number of -1, unless ``padding_values``
    says otherwise.

    Args:
        quantization_channels: How many numbers there are, 2 to 16,777,216.

    Example:
        >>> MuLawEncoding()
        MuLawEncoding()
    """

    _defaults: ClassVar[dict[str, Any]] = {"quantization_channels": 256}
    quantization_channels: int

    def __init__(self, quantization_channels: int = 256) -> None:
        self._set(quantization_channels=check.whole(quantization_channels, "quantization_channels", 2))


class MuLawDecoding(_SoundTransform):
    """Makes samples of the numbers of `MuLawEncoding`, which must stand before it: what telephones make of sounds.

    Args:
        quantization_channels: As of `MuLawEncoding`, and the same.

    Example:
        >>> [MuLawEncoding(128), MuLawDecoding(128)]
        [MuLawEncoding(quantization_channels=128), MuLawDecoding(quantization_channels=128)]
    """

    _defaults: ClassVar[dict[str, Any]] = {"quantization_channels": 256}
    quantization_channels: int

    def __init__(self, quantization_channels: int = 256) -> None:
        self._set(quantization_channels=check.whole(quantization_channels, "quantization_channels", 2))


class Vad(_SoundTransform):
    """Cuts off what comes before the first voice, as SoX's ``vad`` does, with torchaudio's values.

    The first voice of any channel counts. A sound without one has no frames afterwards, or its first
    ``pre_trigger_time`` seconds. Put it before what makes all sounds equally long. Music may pass for a voice.

    Args:
        sample_rate: Rate of what comes in, Hz. A sound of another rate is an error.
        trigger_level: The level of the measure from which on there is a voice.
        trigger_time: Time constant, in seconds, that keeps short bursts from counting.
        search_time: How far back quieter and shorter bursts are looked for, in seconds.
        allowed_gap: Silence that may lie between such bursts, in seconds.
        pre_trigger_time: What is kept before the first of them, in seconds; of a sound without a voice, what is left.
        boot_time: Time of the first estimate of noise, in seconds.
        noise_up_time: Time constant of the noise where it grows, in seconds.
        noise_down_time: Time constant of the noise where it falls, in seconds.
        noise_reduction_amount: How much of the noise is taken away, such as 0 or 1.35.
        measure_freq: Measures a second.
        measure_duration: How long a measure is, in seconds. None is twice the time between two.
        measure_smooth_time: Time constant of spectra, in seconds.
        hp_filter_freq: Frequencies below are not looked at, Hz.
        lp_filter_freq: Frequencies above are not looked at, Hz.
        hp_lifter_freq: Pitches below are not looked at, Hz.
        lp_lifter_freq: Pitches above are not looked at, Hz.

    Example:
        >>> Vad(16_000, trigger_level=5)
        Vad(sample_rate=16000, trigger_level=5.0)
    """

    _defaults: ClassVar[dict[str, Any]] = {
        "trigger_level": 7.0,
        "trigger_time": 0.25,
        "search_time": 1.0,
        "allowed_gap": 0.25,
        "pre_trigger_time": 0.0,
        "boot_time": 0.35,
        "noise_up_time": 0.1,
        "noise_down_time": 0.01,
        "noise_reduction_amount": 1.35,
        "measure_freq": 20.0,
        "measure_duration": None,
        "measure_smooth_time": 0.4,
        "hp_filter_freq": 50.0,
        "lp_filter_freq": 6000.0,
        "hp_lifter_freq": 150.0,
        "lp_lifter_freq": 2000.0,
    }
    sample_rate: int
    trigger_level: float
    trigger_time: float
    search_time: float
    allowed_gap: float
    pre_trigger_time: float
    boot_time: float
    noise_up_time: float
    noise_down_time: float
    noise_reduction_amount: float
    measure_freq: float
    measure_duration: float | None
    measure_smooth_time: float
    hp_filter_freq: float
    lp_filter_freq: float
    hp_lifter_freq: float
    lp_lifter_freq: float

    def __init__(
        self,
        sample_rate: int,
        trigger_level: float = 7.0,
        trigger_time: float = 0.25,
        search_time: float = 1.0,
        allowed_gap: float = 0.25,
        pre_trigger_time: float = 0.0,
        boot_time: float = 0.35,
        noise_up_time: float = 0.1,
        noise_down_time: float = 0.01,
        noise_reduction_amount: float = 1.35,
        measure_freq: float = 20.0,
        measure_duration: float | None = None,
        measure_smooth_time: float = 0.4,
        hp_filter_freq: float = 50.0,
        lp_filter_freq: float = 6000.0,
        hp_lifter_freq: float = 150.0,
        lp_lifter_freq: float = 2000.0,
    ) -> None:
        self._set(
            sample_rate=check.whole(sample_rate, "sample_rate", 1),
            trigger_level=real(trigger_level, "trigger_level"),
            trigger_time=real(trigger_time, "trigger_time"),
            search_time=real(search_time, "search_time"),
            allowed_gap=real(allowed_gap, "allowed_gap"),
            pre_trigger_time=real(pre_trigger_time, "pre_trigger_time"),
            boot_time=real(boot_time, "boot_time"),
            noise_up_time=real(noise_up_time, "noise_up_time"),
            noise_down_time=real(noise_down_time, "noise_down_time"),
            noise_reduction_amount=real(noise_reduction_amount, "noise_reduction_amount"),
            measure_freq=real(measure_freq, "measure_freq"),
            measure_duration=None if measure_duration is None else real(measure_duration, "measure_duration"),
            measure_smooth_time=real(measure_smooth_time, "measure_smooth_time"),
            hp_filter_freq=real(hp_filter_freq, "hp_filter_freq"),
            lp_filter_freq=real(lp_filter_freq, "lp_filter_freq"),
            hp_lifter_freq=real(hp_lifter_freq, "hp_lifter_freq"),
            lp_lifter_freq=real(lp_lifter_freq, "lp_lifter_freq"),
        )
