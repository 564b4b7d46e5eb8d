"""A module that stands in for torchaudio, which is not among what tests need: its names, parameters, shapes and values.

`put_in_place` puts it where `import torchaudio` finds it. Its functions and classes say that they are torchaudio's.
"""

from __future__ import annotations

import math
import os
import sys
import types
import wave
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

__version__ = "2.11.0+stand.in"

calls: list[Any] = []
"""What `load` was called with."""

_FLAC = (np.arange(80).reshape(40, 2) * 37 % 61 - 30).astype(np.float32) * 700 / 32768
"""The samples of the one FLAC file that it can decode: the one that it is compared with."""


def load(
    uri: Any,
    frame_offset: int = 0,
    num_frames: int = -1,
    normalize: bool = True,
    channels_first: bool = True,
    format: Any = None,  # noqa: A002 - its name
    buffer_size: int = 4096,
    backend: Any = None,
) -> tuple[Tensor, int]:
    calls.append(uri)
    with open(uri, "rb") as opened:
        if opened.read(4) == b"fLaC":
            return torch.from_numpy(np.ascontiguousarray(_FLAC.T)), 8000
    try:
        with wave.open(os.fspath(uri)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = np.frombuffer(file.readframes(file.getnframes()), np.uint8).reshape(-1, channels, width)
    except (EOFError, wave.Error) as error:
        raise RuntimeError(f"Failed to create AudioDecoder for {uri}: {error}") from error
    if not len(raw):
        raise RuntimeError(f"Failed to decode audio samples of {uri}")
    wide = np.zeros((*raw.shape[:2], 4), np.uint8)
    wide[..., 4 - width :] = raw ^ 128 if width == 1 else raw
    values = (wide.view("<i4")[..., 0] / 2147483648.0).astype(np.float32)
    data = torch.from_numpy(values.T.copy())[:, frame_offset:]
    if num_frames >= 0:
        data = data[:, :num_frames]
    return (data if channels_first else data.T), rate


# Data sets.


def _load_waveform(root: str, filename: str, exp_sample_rate: int) -> Tensor:
    waveform, rate = sys.modules["torchaudio"].load(os.path.join(root, filename))
    if rate != exp_sample_rate:
        raise ValueError(f"sample rate should be {exp_sample_rate}, but got {rate}")
    return waveform


class _Described(Dataset[Any]):
    _walker: list[str]
    _archive: str

    def get_metadata(self, n: int) -> tuple[Any, ...]:
        raise NotImplementedError

    def __getitem__(self, n: int) -> tuple[Any, ...]:
        path, rate, *others = self.get_metadata(n)
        return _load_waveform(self._archive, path, rate), rate, *others

    def __len__(self) -> int:
        return len(self._walker)


class SPEECHCOMMANDS(_Described):
    def __init__(self, root: Any, subset: str | None = None) -> None:
        self._archive = os.path.join(os.fspath(root), "SpeechCommands")
        self._path = os.path.join(self._archive, "speech_commands_v0.02")
        if subset is not None:
            with open(os.path.join(self._path, f"{subset}_list.txt")) as lines:
                self._walker = [os.path.normpath(os.path.join(self._path, line.strip())) for line in lines]
            return
        found = sorted(
            os.path.join(folder, name) for folder, _, names in os.walk(self._path) for name in names
        )
        self._walker = [path for path in found if "_nohash_" in path]

    def get_metadata(self, n: int) -> tuple[Any, ...]:
        path = os.path.relpath(self._walker[n], self._archive)
        speaker, number = os.path.basename(path).split(".")[0].split("_nohash_")
        return path, 16000, os.path.basename(os.path.dirname(path)), speaker, int(number)


class LIBRISPEECH(_Described):
    _ext_txt = ".trans.txt"
    _ext_audio = ".flac"

    def __init__(self, root: Any, url: str = "train-clean-100") -> None:
        self._url = url
        self._archive = os.path.join(os.fspath(root), "LibriSpeech")
        self._path = os.path.join(self._archive, url)
        names = [name for _, _, names in os.walk(self._path) for name in names]
        self._walker = sorted(n.removesuffix(self._ext_audio) for n in names if n.endswith(self._ext_audio))

    def get_metadata(self, n: int) -> tuple[Any, ...]:
        name = self._walker[n]
        speaker, chapter, utterance = name.split("-")
        folder = os.path.join(self._url, speaker, chapter)
        text = os.path.join(self._archive, folder, f"{speaker}-{chapter}{self._ext_txt}")
        with open(text) as lines:
            texts = dict(line.strip().split(" ", 1) for line in lines)
        path = os.path.join(folder, name + self._ext_audio)
        return path, 16000, texts[name], int(speaker), int(chapter), int(utterance)


class YESNO(Dataset[Any]):
    def __init__(self, root: Any) -> None:
        self._path = os.path.join(os.fspath(root), "waves_yesno")
        self._walker = sorted(name.removesuffix(".wav") for name in os.listdir(self._path))

    def __getitem__(self, n: int) -> tuple[Any, ...]:
        name = self._walker[n]
        waveform, rate = sys.modules["torchaudio"].load(os.path.join(self._path, name + ".wav"))
        return waveform, rate, [int(part) for part in name.split("_")]

    def __len__(self) -> int:
        return len(self._walker)


# Transforms.


class Spectrogram(nn.Module):
    window: Tensor

    def __init__(
        self,
        n_fft: int = 400,
        win_length: int | None = None,
        hop_length: int | None = None,
        pad: int = 0,
        window_fn: Any = torch.hann_window,
        power: float | None = 2.0,
        normalized: bool | str = False,
        wkwargs: dict[str, Any] | None = None,
        center: bool = True,
        pad_mode: str = "reflect",
        onesided: bool = True,
    ) -> None:
        super().__init__()
        self.n_fft, self.pad, self.power, self.normalized = n_fft, pad, power, normalized
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 2 if hop_length is None else hop_length
        self.register_buffer("window", window_fn(self.win_length, **(wkwargs or {})))
        self.center, self.pad_mode, self.onesided = center, pad_mode, onesided

    def forward(self, waveform: Tensor) -> Tensor:
        waveform = nn.functional.pad(waveform, (self.pad, self.pad))
        made = torch.stft(
            waveform.reshape(-1, waveform.shape[-1]),
            self.n_fft,
            self.hop_length,
            self.win_length,
            self.window,
            self.center,
            self.pad_mode,
            self.normalized == "frame_length",
            self.onesided,
            return_complex=True,
        )
        if self.normalized in (True, "window"):
            made /= self.window.pow(2).sum().sqrt()
        made = made.reshape(*waveform.shape[:-1], *made.shape[-2:])
        return made if self.power is None else made.abs().pow(self.power)


def _hertz(mels: Tensor, scale: str) -> Tensor:
    if scale == "htk":
        return 700 * (10 ** (mels / 2595) - 1)
    low = mels * 200 / 3
    return torch.where(mels < 15, low, 1000 * torch.exp((mels - 15) * math.log(6.4) / 27))


def _mel(hertz: float, scale: str) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + hertz / 700)
    return hertz * 3 / 200 if hertz < 1000 else 15 + 27 * math.log(hertz / 1000) / math.log(6.4)


class MelScale(nn.Module):
    fb: Tensor

    def __init__(
        self,
        n_mels: int = 128,
        sample_rate: int = 16000,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_stft: int = 201,
        norm: str | None = None,
        mel_scale: str = "htk",
    ) -> None:
        super().__init__()
        self.n_mels, self.sample_rate, self.f_min, self.n_stft = n_mels, sample_rate, f_min, n_stft
        self.f_max = float(sample_rate // 2) if f_max is None else f_max
        self.norm, self.mel_scale = norm, mel_scale
        ends = [_mel(hertz, mel_scale) for hertz in (f_min, self.f_max)]
        edges = _hertz(torch.linspace(*ends, n_mels + 2), mel_scale)
        bins = torch.linspace(0, sample_rate // 2, n_stft)[:, None]
        rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        bank = torch.minimum(rising, falling).clamp(min=0)
        if norm == "slaney":
            bank *= 2 / (edges[2:] - edges[:-2])
        self.register_buffer("fb", bank)

    def forward(self, spectrum: Tensor) -> Tensor:
        return (spectrum.transpose(-1, -2) @ self.fb).transpose(-1, -2)


class MelSpectrogram(nn.Module):
    def __init__(
        self,
        sample_rate: int = 16000,
        n_fft: int = 400,
        n_mels: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        norm: str | None = None,
        mel_scale: str = "htk",
        **others: Any,
    ) -> None:
        super().__init__()
        self.n_mels = n_mels
        self.spectrogram = Spectrogram(n_fft, **others)
        self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1, norm, mel_scale)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel_scale(self.spectrogram(waveform))  # type: ignore[no-any-return]


class AmplitudeToDB(nn.Module):
    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        super().__init__()
        self.stype, self.top_db = stype, top_db
        self.multiplier = 10.0 if stype == "power" else 20.0
        self.amin, self.ref_value, self.db_multiplier = 1e-10, 1.0, 0.0

    def forward(self, x: Tensor) -> Tensor:
        made = self.multiplier * torch.log10(x.clamp(min=self.amin))
        return made if self.top_db is None else torch.maximum(made, made.max() - self.top_db)


def create_dct(n_mfcc: int, n_mels: int, norm: str | None) -> Tensor:
    places = torch.pi / n_mels * (torch.arange(n_mels) + 0.5)
    made = 2 * torch.cos(places[:, None] * torch.arange(n_mfcc))
    if norm is not None:
        made *= math.sqrt(1 / (2 * n_mels))
        made[:, 0] *= math.sqrt(0.5)
    return made


class MFCC(nn.Module):
    dct_mat: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        n_mfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_mels: bool = False,
        melkwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.sample_rate, self.n_mfcc, self.dct_type, self.norm = sample_rate, n_mfcc, dct_type, norm
        self.log_mels, self.top_db = log_mels, 80.0
        self.amplitude_to_DB = AmplitudeToDB("power", self.top_db)
        self.MelSpectrogram = MelSpectrogram(sample_rate, **(melkwargs or {}))
        self.register_buffer("dct_mat", create_dct(n_mfcc, self.MelSpectrogram.n_mels, norm))

    def forward(self, waveform: Tensor) -> Tensor:
        mels = self.MelSpectrogram(waveform)
        mels = torch.log(mels + 1e-6) if self.log_mels else self.amplitude_to_DB(mels)
        return (mels.transpose(-1, -2) @ self.dct_mat).transpose(-1, -2)


def linear_fbanks(n_freqs: int, f_min: float, f_max: float, n_filter: int, sample_rate: int) -> Tensor:
    bins = torch.linspace(0, sample_rate // 2, n_freqs)[:, None]
    edges = torch.linspace(f_min, f_max, n_filter + 2)
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0)


class LFCC(nn.Module):
    filter_mat: Tensor
    dct_mat: Tensor

    def __init__(
        self,
        sample_rate: int = 16000,
        n_filter: int = 128,
        f_min: float = 0.0,
        f_max: float | None = None,
        n_lfcc: int = 40,
        dct_type: int = 2,
        norm: str | None = "ortho",
        log_lf: bool = False,
        speckwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.sample_rate, self.n_filter, self.n_lfcc = sample_rate, n_filter, n_lfcc
        self.f_min, self.f_max = f_min, float(sample_rate // 2) if f_max is None else f_max
        self.dct_type, self.norm, self.log_lf, self.top_db = dct_type, norm, log_lf, 80.0
        self.amplitude_to_DB = AmplitudeToDB("power", self.top_db)
        self.Spectrogram = Spectrogram(**(speckwargs or {}))
        bins = self.Spectrogram.n_fft // 2 + 1
        bank = linear_fbanks(bins, self.f_min, self.f_max, n_filter, sample_rate)
        self.register_buffer("filter_mat", bank)
        self.register_buffer("dct_mat", create_dct(n_lfcc, n_filter, norm))

    def forward(self, waveform: Tensor) -> Tensor:
        bands = (self.Spectrogram(waveform).transpose(-1, -2) @ self.filter_mat).transpose(-1, -2)
        bands = torch.log(bands + 1e-6) if self.log_lf else self.amplitude_to_DB(bands)
        return (bands.transpose(-1, -2) @ self.dct_mat).transpose(-1, -2)


class Resample(nn.Module):
    kernel: Tensor

    def __init__(
        self,
        orig_freq: int = 16000,
        new_freq: int = 16000,
        resampling_method: str = "sinc_interp_hann",
        lowpass_filter_width: int = 6,
        rolloff: float = 0.99,
        beta: float | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        self.orig_freq, self.new_freq, self.gcd = orig_freq, new_freq, math.gcd(orig_freq, new_freq)
        self.resampling_method, self.lowpass_filter_width = resampling_method, lowpass_filter_width
        self.rolloff, self.beta = rolloff, beta
        if orig_freq == new_freq:
            return
        orig, new = orig_freq // self.gcd, new_freq // self.gcd
        cutoff = min(orig, new) * rolloff
        self.width = math.ceil(lowpass_filter_width * orig / cutoff)
        times = torch.arange(-self.width, self.width + orig, dtype=dtype) / orig
        times = (times - torch.arange(new, dtype=dtype)[:, None] / new) * cutoff
        times = times.clamp(-lowpass_filter_width, lowpass_filter_width)
        window = torch.cos(times * torch.pi / lowpass_filter_width / 2) ** 2
        self.register_buffer("kernel", (torch.sinc(times) * window * cutoff / orig).float()[:, None])

    def forward(self, waveform: Tensor) -> Tensor:
        if self.orig_freq == self.new_freq:
            return waveform
        orig, new = self.orig_freq // self.gcd, self.new_freq // self.gcd
        padded = nn.functional.pad(waveform, (self.width, self.width + orig))
        made = nn.functional.conv1d(padded[:, None], self.kernel, stride=orig).transpose(1, 2)
        return made.reshape(len(waveform), -1)[:, : math.ceil(new * waveform.shape[-1] / orig)]


def resample(
    waveform: Tensor,
    orig_freq: int,
    new_freq: int,
    lowpass_filter_width: int = 6,
    rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann",
    beta: float | None = None,
) -> Tensor:
    others = (resampling_method, lowpass_filter_width, rolloff, beta, waveform.dtype)
    made = Resample(orig_freq, new_freq, *others)(waveform.reshape(-1, waveform.shape[-1]))
    return made.reshape(*waveform.shape[:-1], -1)  # type: ignore[no-any-return]


class Vol(nn.Module):
    def __init__(self, gain: float, gain_type: str = "amplitude") -> None:
        super().__init__()
        self.gain, self.gain_type = gain, gain_type

    def forward(self, waveform: Tensor) -> Tensor:
        factor = self.gain
        if self.gain_type != "amplitude":
            factor = 10 ** (factor / 20) if self.gain_type == "db" else math.sqrt(factor)
        return (waveform * factor).clamp(-1, 1)


class Fade(nn.Module):
    def __init__(self, fade_in_len: int = 0, fade_out_len: int = 0, fade_shape: str = "linear") -> None:
        super().__init__()
        assert fade_shape == "linear"
        self.fade_in_len, self.fade_out_len, self.fade_shape = fade_in_len, fade_out_len, fade_shape

    def forward(self, waveform: Tensor) -> Tensor:
        ones = torch.ones(waveform.shape[-1] - self.fade_in_len)
        rising = torch.cat([torch.linspace(0, 1, self.fade_in_len), ones])
        ones = torch.ones(waveform.shape[-1] - self.fade_out_len)
        return rising * torch.cat([ones, 1 - torch.linspace(0, 1, self.fade_out_len)]) * waveform


class _AxisMasking(nn.Module):
    def __init__(self, mask_param: int, axis: int, iid_masks: bool, p: float = 1.0) -> None:
        super().__init__()
        self.mask_param, self.axis, self.iid_masks, self.p = mask_param, axis, iid_masks, p

    def forward(self, specgram: Tensor) -> Tensor:
        side = specgram.shape[self.axis - 3]
        most = min(self.mask_param, int(side * self.p)) if self.p < 1 else self.mask_param
        value = torch.rand(()) * most
        start = int(torch.rand(()) * (side - value))
        places = torch.arange(side)
        masked = (places >= start) & (places < start + int(value))
        return specgram.masked_fill(masked if self.axis == 2 else masked[:, None], 0.0)


class FrequencyMasking(_AxisMasking):
    def __init__(self, freq_mask_param: int, iid_masks: bool = False) -> None:
        super().__init__(freq_mask_param, 1, iid_masks)


class TimeMasking(_AxisMasking):
    def __init__(self, time_mask_param: int, iid_masks: bool = False, p: float = 1.0) -> None:
        super().__init__(time_mask_param, 2, iid_masks, p)


class Loudness(nn.Module):
    """One that nobody knows."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        self.sample_rate = sample_rate

    def forward(self, waveform: Tensor) -> Tensor:
        return waveform.abs().mean((0, 1))


_OF_DATASETS = (SPEECHCOMMANDS, LIBRISPEECH, YESNO, _Described, _load_waveform)
_OF_TRANSFORMS = (
    *(Spectrogram, MelScale, MelSpectrogram, AmplitudeToDB, MFCC, LFCC, Resample, Vol, Fade),
    *(_AxisMasking, FrequencyMasking, TimeMasking, Loudness),
)


def _is_of(thing: Any, module: str) -> None:
    thing.__module__ = module
    for method in vars(thing).values():
        if isinstance(method, types.FunctionType):
            method.__module__ = module


def put_in_place(monkeypatch: Any) -> Any:
    """The module, which `import torchaudio` finds from now on."""
    names = ("torchaudio", "torchaudio.datasets", "torchaudio.transforms", "torchaudio.functional")
    modules: list[Any] = [types.ModuleType(name) for name in names]
    whole, datasets, transforms, functional = modules
    whole.__version__, whole.load, whole.calls = __version__, load, calls
    whole.datasets, whole.transforms, whole.functional = datasets, transforms, functional
    functional.create_dct, functional.linear_fbanks, functional.resample = create_dct, linear_fbanks, resample
    for things, module in ((_OF_DATASETS, datasets), (_OF_TRANSFORMS, transforms)):
        for thing in things:
            _is_of(thing, module.__name__)
            setattr(module, thing.__name__, thing)
    load.__module__ = create_dct.__module__ = linear_fbanks.__module__ = resample.__module__ = "torchaudio"
    calls.clear()
    for name, module in zip(names, modules, strict=True):
        monkeypatch.setitem(sys.modules, name, module)
    return whole
