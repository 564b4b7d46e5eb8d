"""Transforms of waveforms that have sounds of their own: noise, and the responses of rooms."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from . import _arguments as check
from ._sound_transform import _SoundTransform, real

__all__ = ["AddNoise", "Convolve"]

Recording = str | os.PathLike[str] | Any
"""A sound beside those of the data set: the path of a file, or an array of samples."""


class _WithRecordings(_SoundTransform):
    """A transform with sounds of its own."""

    def __repr__(self) -> str:
        # Arrays as such: what they are in plans is long, and tells nothing.
        shown = {
            name: [_Shown(one) for one in value]
            if isinstance(value, tuple) and name == self._sounds
            else value
            for name, value in vars(self).items()
        }
        given = (f"{k}={v!r}" for k, v in shown.items() if k not in self._defaults or self._defaults[k] != v)
        return f"{type(self).__name__}({', '.join(given)})"

    def __hash__(self) -> int:
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)

    # The parameter that they are.
    _sounds: ClassVar[str]


class _Shown:
    """A recording in ``repr``: short arrays as arguments, long ones by their length."""

    def __init__(self, recording: Any) -> None:
        self.recording = recording

    def __repr__(self) -> str:
        if isinstance(self.recording, str):
            return repr(self.recording)
        samples = np.frombuffer(base64.b64decode(self.recording["float32"]), "<f4")
        return repr(samples.tolist()) if len(samples) <= 16 else f"<{len(samples)} samples>"


def _recordings(given: Any, name: str) -> tuple[Any, ...]:
    """Paths as text, and arrays as plans have them: float32 in little-endian order, as base64."""
    if not isinstance(given, list | tuple):
        raise TypeError(
            f"{name} is of type {type(given).__name__}; it must be a list of paths or arrays\n"
            f"hint: {name}=sorted(pathlib.Path(...).glob('*.wav')), or [array]"
        )
    return tuple(_recording(one, f"{name}[{number}]") for number, one in enumerate(given))


def _recording(given: Any, name: str) -> Any:
    if isinstance(given, str | bytes | os.PathLike):
        return check.path(given, name)
    if isinstance(given, Mapping):
        # As a plan has it; the engine checks it.
        return dict(given)
    try:
        samples = np.asarray(given)
    except Exception as e:
        raise TypeError(f"{name} is {given!r}; it must be a path, or an array of samples") from e
    if samples.ndim != 1:
        raise ValueError(
            f"{name} has the shape {list(samples.shape)}; it must be one channel, [frames]\n"
            "hint: array.mean(0) of [channels, frames]"
        )
    if samples.dtype.kind != "f" and not isinstance(given, list | tuple):
        raise TypeError(
            f"{name} is of dtype {samples.dtype}; it must be floating point, with samples from -1 to 1\n"
            "hint: integers of 16 bits are array / 32768"
        )
    data = samples.astype("<f4").tobytes()
    return {"float32": base64.b64encode(data).decode()}


class AddNoise(_WithRecordings):
    """Adds one of several sounds, drawn for each sample, at a drawn ratio of signal and noise.

    The formula is that of ``torchaudio.transforms.AddNoise``: noise is scaled so that the energy of the signal over its
    own is ``snr`` dB, in each channel by itself. torchaudio takes the noise with each call; here it is a list. Of a
    noise that is longer than the sound, a piece is cut out at random; a shorter one begins at a random place and is
    repeated. Where either is silent, nothing is added.

    Files are decoded once, when the first sound comes, mixed down to one channel, resampled to the rate of the sound,
    and kept in memory, beside the memory budget: at most 67,108,864 samples, 256 MiB.

    Args:
        noise: At least one sound: paths of local files, or arrays ``[frames]`` of floating point at the rate of the
            sounds. Arrays are part of the plan: at most 16,777,216 samples in all.
        snr: Least and greatest ratio, dB, -200 to 200; any number between is as likely. One number is both.
        p: How likely it is that there is noise, 0 to 1.

    Raises:
        ValueError: A list is empty, an array has no samples or is of several channels, or a range does not rise.
        LimitExceededError: Arrays have too many samples; or, with the first sound, files have.
        FileNotFoundError: With the first sound, or when a loader is made: a file is not there.

    Example:
        >>> import numpy as np
        >>> AddNoise(["traffic.wav", "babble.flac"], snr=(5, 20), p=0.5)
        AddNoise(noise=['traffic.wav', 'babble.flac'], snr=(5.0, 20.0), p=0.5)
        >>> AddNoise([np.zeros(16_000, np.float32)], snr=10)
        AddNoise(noise=[<16000 samples>], snr=(10.0, 10.0))
    """

    _random = True
    _sounds = "noise"
    _defaults: ClassVar[dict[str, Any]] = {"p": 1.0}
    noise: tuple[Any, ...]
    snr: tuple[float, float]
    p: float

    def __init__(self, noise: Sequence[Recording], snr: float | tuple[float, float], p: float = 1.0) -> None:
        span = (real(snr, "snr"),) * 2 if not check.is_sequence(snr) else check.pair(snr, "snr")
        self._set(noise=_recordings(noise, "noise"), snr=span, p=check.probability(p))


class Convolve(_WithRecordings):
    """Convolves each channel with one of several impulse responses, drawn for each sample: rooms and devices.

    What ``torchaudio.transforms.Convolve`` and ``FFTConvolve`` do with a second waveform at each call; which of both
    ways is faster is chosen by the length of the response. Responses are taken as they are: one whose energy is 1
    (``array / numpy.linalg.norm(array)``) keeps sounds about as loud as they were.

    Files are decoded and kept as those of `AddNoise`, with its limits.

    Args:
        responses: At least one: paths of local files, or arrays ``[frames]`` of floating point at the rate of the
            sounds.
        mode: ``"full"``: all of it, as long as both together less one. ``"valid"``: where both overlap fully.
            ``"same"``: the middle, as long as the sound.
        p: How likely it is that there is a response, 0 to 1.

    Raises:
        ValueError: A list is empty, or an array has no samples or is of several channels.
        LimitExceededError: Arrays have too many samples; or, with the first sound, files have.
        FileNotFoundError: With the first sound, or when a loader is made: a file is not there.

    Example:
        >>> Convolve([[1.0, 0.0, 0.5]], mode="same")
        Convolve(responses=[[1.0, 0.0, 0.5]], mode='same')
    """

    _random = True
    _sounds = "responses"
    _defaults: ClassVar[dict[str, Any]] = {"mode": "full", "p": 1.0}
    responses: tuple[Any, ...]
    mode: str
    p: float

    def __init__(self, responses: Sequence[Recording], mode: str = "full", p: float = 1.0) -> None:
        self._set(responses=_recordings(responses, "responses"), mode=mode, p=check.probability(p))
