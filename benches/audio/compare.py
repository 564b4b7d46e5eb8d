"""Values of wellfed's sound transforms beside torchaudio's, with random parameters.

    python benches/audio/compare.py [--cases 200] [--seed 0] [--only spectrogram,resample] [--freeze FILE]

Needs torch, torchaudio and the example program (see `bridge.py`). For each transform it prints the number of cases, the
greatest difference divided by the greatest value of torchaudio's answer, what is allowed, and the parameters of the
worst case. A case in which one refuses and the other does not is told, too. With a greater difference than allowed, the
exit status is 1.

Where rounding errors of torchaudio itself are as large as what is allowed (sums of thousands of products; powers below
1, which raise values that are next to nothing), the same is computed in double precision, with torchaudio's filters and
windows. A case that differs too much from torchaudio's float32 then counts by its distance from that, of which at most
twice torchaudio's own is allowed. Both distances are printed, as the greatest of all cases.

With `--freeze`, four cases of each transform are written to a file that `crates/wellfed-audio/tests/torchaudio.rs`
reads, of noise that both make by a formula: the request, the number of torchaudio's values, and some of them at equal
distances.
"""

from __future__ import annotations

import argparse
import copy
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torchaudio
from bridge import Features, Floats, Refused
from numpy.typing import NDArray

frozen: list[int] | None = None
"""How many signals a frozen case has had so far."""

F, T = torchaudio.functional, torchaudio.transforms
WINDOWS = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "blackman": torch.blackman_window,
    "bartlett": torch.bartlett_window,
    "rectangular": lambda n: torch.ones(n),
}
METHODS = {"hann": "sinc_interp_hann", "kaiser": "sinc_interp_kaiser"}


@dataclass
class Case:
    """One draw: the request, and how torchaudio answers it."""

    name: str
    parameters: dict[str, Any]
    reference: Callable[[], torch.Tensor]
    one: Floats
    other: Floats | None = None
    exact: Callable[[], torch.Tensor] | None = None
    """The same in double precision."""


def formula(samples: int, first: int) -> Floats:
    """Noise between -0.5 and 0.5, exact in float32."""
    numbers = (np.arange(first, first + samples, dtype=np.uint64) * 2_654_435_761 % (1 << 32)) >> 8
    return np.asarray(numbers / (1 << 24) - 0.5, np.float32)


def signal(draw: random.Random, samples: int, loudness: float = 1.0, kinds: int = 4) -> Floats:
    """Noise, a chirp with noise, a chirp, or a click. Of the latter two, logarithms are of rounding errors."""
    if frozen is not None:
        frozen.append(samples)
        return formula(samples, 7_919 * (len(frozen) - 1)) * np.float32(loudness)
    noise = np.random.default_rng(draw.randrange(1 << 32)).standard_normal(samples) * 0.2
    time = np.arange(samples) / 16_000
    kind = draw.randrange(kinds)
    chirp = 0.7 * np.sin(2 * np.pi * (100 + draw.uniform(0, 3_000) * time) * time)
    values = [
        noise,
        0.5 * chirp + 0.1 * noise,
        chirp,
        np.where(np.arange(samples) == samples // 2, 0.9, 0.0),
    ][kind]
    return np.asarray(values * loudness, np.float32)


def spectrum_parameters(draw: random.Random) -> dict[str, Any]:
    n_fft = draw.choice(
        [16, 25, 64, 100, 127, 200, 256, 320, 400, 401, 480, 512, 640, 800, 882, 1024, 1200, 2048]
    )
    win_length = draw.choice([None, n_fft, max(2, n_fft * 3 // 4), max(2, n_fft // 2 + 1)])
    return {
        "n_fft": n_fft,
        "win_length": win_length,
        "hop_length": draw.choice([None, draw.randrange(1, n_fft + 1), max(1, n_fft // 4)]),
        "pad": draw.choice([0, 0, 1, 50]),
        "window": draw.choice(list(WINDOWS)),
        "power": draw.choice([1.0, 2.0, 2.0, 0.7, 3.0]),
        "normalized": draw.choice(["False", "window", "frame_length"]),
        "center": draw.random() < 0.7,
        "pad_mode": draw.choice(["reflect", "constant", "replicate", "circular"]),
    }


def torch_spectrum(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same as torchaudio takes it."""
    window, normalized = WINDOWS[parameters["window"]], parameters["normalized"]
    rest = {key: value for key, value in parameters.items() if key not in ("window", "normalized")}
    return {**rest, "window_fn": window, "normalized": False if normalized == "False" else normalized}


def doubled(transform: Any) -> Any:
    """A transform in double precision, with the values that its windows and filters have in float32."""
    return copy.deepcopy(transform).double()


def by_frames(values: torch.Tensor) -> torch.Tensor:
    return values.transpose(-1, -2)


def spectrogram(draw: random.Random) -> Case:
    parameters = {**spectrum_parameters(draw), "onesided": draw.random() < 0.8}
    one = signal(draw, draw.choice([3_000, 5_001, 16_000]))
    transform = T.Spectrogram(**torch_spectrum(parameters))
    return Case(
        "spectrogram",
        parameters,
        lambda: by_frames(transform(torch.from_numpy(one))),
        one,
        exact=lambda: by_frames(doubled(transform)(torch.from_numpy(one).double())),
    )


def mel_parameters(draw: random.Random) -> dict[str, Any]:
    rate = draw.choice([8_000, 16_000, 22_050, 44_100])
    return {
        **spectrum_parameters(draw),
        "sample_rate": rate,
        "f_min": draw.choice([0.0, 20.0, 133.3]),
        "f_max": draw.choice([rate / 2, rate / 2.5, rate / 2 - 100.0]),
        "n_mels": draw.choice([10, 23, 40, 64, 80, 128]),
        "norm": draw.choice([None, "slaney"]),
        "mel_scale": draw.choice(["htk", "slaney"]),
    }


def torch_mel(parameters: dict[str, Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """`MelSpectrogram` passes `normalized` and the rest on."""
    keys = ("sample_rate", "f_min", "f_max", "n_mels", "norm", "mel_scale")
    own = {key: parameters[key] for key in keys}
    rest = {key: value for key, value in parameters.items() if key not in keys}
    return T.MelSpectrogram(**own, **torch_spectrum(rest))


def mel(draw: random.Random) -> Case:
    parameters = mel_parameters(draw)
    one = signal(draw, draw.choice([3_000, 5_001, 16_000]))
    transform = torch_mel(parameters)
    return Case(
        "mel",
        parameters,
        lambda: by_frames(transform(torch.from_numpy(one))),
        one,
        exact=lambda: by_frames(doubled(transform)(torch.from_numpy(one).double())),
    )


def mel_scale(draw: random.Random) -> Case:
    bins, frames = draw.choice([33, 201, 257, 513]), draw.randrange(1, 60)
    rate = draw.choice([8_000, 16_000, 44_100])
    parameters: dict[str, Any] = {
        "sample_rate": rate,
        "f_min": draw.choice([0.0, 20.0, 133.3]),
        "f_max": draw.choice([rate / 2, rate / 2.5]),
        "n_mels": draw.choice([10, 40, 80, 128]),
        "norm": draw.choice([None, "slaney"]),
        "mel_scale": draw.choice(["htk", "slaney"]),
    }
    one = np.abs(signal(draw, bins * frames, kinds=2))
    transform = T.MelScale(**parameters, n_stft=bins)
    spectrogram = torch.from_numpy(one).reshape(bins, frames)
    return Case(
        "mel_scale",
        {**parameters, "n_fft": 2 * (bins - 1), "frames": frames},
        lambda: transform(spectrogram),
        one,
        exact=lambda: doubled(transform)(spectrogram.double()),
    )


def mfcc(draw: random.Random) -> Case:
    parameters = mel_parameters(draw)
    parameters["power"] = 2.0
    keys = ("sample_rate", "f_min", "f_max", "n_mels", "norm", "mel_scale")
    melkwargs = {key: parameters[key] for key in keys[1:]}
    spectrum = {key: value for key, value in parameters.items() if key not in keys}
    extra = {
        "n_coefficients": draw.randrange(1, parameters["n_mels"] + 1),
        "dct_norm": draw.choice(["ortho", None]),
        "log": draw.random() < 0.5,
    }
    one = signal(draw, 8_000, kinds=2)
    transform = T.MFCC(
        parameters["sample_rate"],
        n_mfcc=extra["n_coefficients"],
        norm=extra["dct_norm"],
        log_mels=extra["log"],
        melkwargs={**melkwargs, **torch_spectrum(spectrum)},
    )
    return Case("mfcc", {**parameters, **extra}, lambda: by_frames(transform(torch.from_numpy(one))), one)


def lfcc(draw: random.Random) -> Case:
    spectrum = {**spectrum_parameters(draw), "power": 2.0}
    rate = draw.choice([8_000, 16_000, 44_100])
    own: dict[str, Any] = {
        "sample_rate": rate,
        "n_filter": draw.choice([10, 40, 128]),
        "f_min": draw.choice([0.0, 50.0]),
    }
    extra = {
        "n_coefficients": draw.randrange(1, min(own["n_filter"], spectrum["n_fft"]) + 1),
        "dct_norm": draw.choice(["ortho", None]),
        "log": draw.random() < 0.5,
    }
    one = signal(draw, 8_000, kinds=2)
    transform = T.LFCC(
        **own,
        n_lfcc=extra["n_coefficients"],
        norm=extra["dct_norm"],
        log_lf=extra["log"],
        speckwargs=torch_spectrum(spectrum),
    )
    parameters = {**spectrum, **own, **extra}
    return Case("lfcc", parameters, lambda: by_frames(transform(torch.from_numpy(one))), one)


def decibels(draw: random.Random) -> Case:
    parameters = {"stype": draw.choice(["power", "magnitude"]), "top_db": draw.choice([None, 80.0, 20.0])}
    one = np.exp(np.random.default_rng(draw.randrange(1 << 32)).uniform(-30, 10, 4_000)).astype(np.float32)
    one[:: draw.randrange(2, 40)] = 0.0
    transform = T.AmplitudeToDB(**parameters)
    return Case("decibels", parameters, lambda: transform(torch.from_numpy(one)[None]), one)


def resample(draw: random.Random) -> Case:
    rates = [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000]
    parameters: dict[str, Any] = {
        "from": draw.choice(rates),
        "to": draw.choice(rates),
        "method": draw.choice(list(METHODS)),
        "lowpass_filter_width": draw.choice([6, 1, 16, 64]),
        "rolloff": draw.choice([0.99, 0.9, 1.0, 0.947_594]),
    }
    beta = draw.choice([None, 8.0, 14.769656, 2.5])
    if parameters["method"] == "kaiser":
        parameters["beta"] = beta
    one = signal(draw, draw.choice([1, 100, 4_000, 10_007]))
    transform = T.Resample(
        parameters["from"],
        parameters["to"],
        METHODS[parameters["method"]],
        parameters["lowpass_filter_width"],
        parameters["rolloff"],
        parameters.get("beta"),
    )
    return Case("resample", parameters, lambda: transform(torch.from_numpy(one)), one)


def kaldi_parameters(draw: random.Random) -> dict[str, Any]:
    rate = draw.choice([8_000.0, 16_000.0, 22_050.0, 44_100.0])
    warp: dict[str, Any] = {"vtln_warp": draw.choice([0.9, 1.1]), "vtln_low": 100.0, "vtln_high": -500.0}
    return {
        **(warp if draw.random() < 0.3 else {}),
        "sample_frequency": rate,
        "frame_length": draw.choice([25.0, 20.0, 32.0, 10.0]),
        "frame_shift": draw.choice([10.0, 5.0, 12.5, 25.0]),
        "snip_edges": draw.random() < 0.6,
        "remove_dc_offset": draw.random() < 0.7,
        "preemphasis_coefficient": draw.choice([0.97, 0.0, 0.5, 1.0]),
        "window_type": draw.choice(["povey", "hanning", "hamming", "blackman", "rectangular"]),
        "round_to_power_of_two": draw.random() < 0.7,
        "num_mel_bins": draw.choice([23, 40, 80, 4]),
        "low_freq": draw.choice([20.0, 0.0, 64.0]),
        "high_freq": draw.choice([0.0, -200.0, rate / 2, rate / 2.5]),
        "blackman_coeff": draw.choice([0.42, 0.4]),
        "use_energy": draw.random() < 0.4,
        "raw_energy": draw.random() < 0.6,
        "energy_floor": draw.choice([1.0, 0.0, 0.1]),
        "htk_compat": draw.random() < 0.4,
        "subtract_mean": draw.random() < 0.3,
    }


def kaldi(
    draw: random.Random, name: str, extra: dict[str, Any], function: Callable[..., torch.Tensor]
) -> Case:
    parameters = {**kaldi_parameters(draw), **extra}
    one = signal(draw, draw.choice([8_000, 16_001]), draw.choice([1.0, 32_767.0]), kinds=2)
    return Case(name, parameters, lambda: function(torch.from_numpy(one)[None], **parameters), one)


def fbank(draw: random.Random) -> Case:
    extra = {"use_power": draw.random() < 0.7, "use_log_fbank": draw.random() < 0.7}
    return kaldi(draw, "fbank", extra, torchaudio.compliance.kaldi.fbank)


def kaldi_mfcc(draw: random.Random) -> Case:
    extra = {"num_ceps": draw.choice([13, 4]), "cepstral_lifter": draw.choice([22.0, 0.0, 10.0])}
    case = kaldi(draw, "kaldi_mfcc", extra, torchaudio.compliance.kaldi.mfcc)
    case.parameters["num_ceps"] = min(extra["num_ceps"], case.parameters["num_mel_bins"])
    return case


def vol(draw: random.Random) -> Case:
    parameters = {"gain": draw.uniform(0.1, 8.0), "gain_type": draw.choice(["amplitude", "power", "db"])}
    one = signal(draw, 4_000)
    transform = T.Vol(**parameters)
    return Case("vol", parameters, lambda: transform(torch.from_numpy(one)), one)


def fade(draw: random.Random) -> Case:
    shapes = ["linear", "exponential", "logarithmic", "quarter_sine", "half_sine"]
    parameters = {
        "fade_in_len": draw.choice([0, 1, 2, 1_000, 4_000]),
        "fade_out_len": draw.choice([0, 1, 2, 1_000, 4_000]),
        "fade_shape": draw.choice(shapes),
    }
    one = signal(draw, 4_000)
    transform = T.Fade(**parameters)
    return Case("fade", parameters, lambda: transform(torch.from_numpy(one)), one)


def add_noise(draw: random.Random) -> Case:
    snr, one, other = draw.uniform(-10, 40), signal(draw, 4_000), signal(draw, 4_000)
    reference = lambda: F.add_noise(torch.from_numpy(one), torch.from_numpy(other), torch.tensor(snr))  # noqa: E731
    return Case("add_noise", {"snr": snr}, reference, one, other)


def mu_law_encode(draw: random.Random) -> Case:
    channels, one = draw.choice([256, 128, 65_536]), np.clip(signal(draw, 4_000), -1, 1)
    return Case(
        "mu_law_encode", {"channels": channels}, lambda: T.MuLawEncoding(channels)(torch.from_numpy(one)), one
    )


def mu_law_decode(draw: random.Random) -> Case:
    channels = draw.choice([256, 128, 65_536])
    one = np.random.default_rng(draw.randrange(1 << 32)).integers(0, channels, 4_000).astype(np.float32)
    reference = lambda: T.MuLawDecoding(channels)(torch.from_numpy(one).long())  # noqa: E731
    return Case("mu_law_decode", {"channels": channels}, reference, one)


def speed(draw: random.Random) -> Case:
    parameters = {
        "orig_freq": draw.choice([8_000, 16_000, 44_100]),
        "factor": draw.choice([0.9, 1.1, 1.0, 0.75, 2.0]),
    }
    one = signal(draw, 4_000)
    return Case("speed", parameters, lambda: T.Speed(**parameters)(torch.from_numpy(one))[0], one)


def convolve(draw: random.Random) -> Case:
    mode, one, other = (
        draw.choice(["full", "valid", "same"]),
        signal(draw, 4_000),
        signal(draw, draw.randrange(1, 6_000)),
    )
    name, function = draw.choice(
        [("convolve", F.convolve), ("fft_convolve", F.fftconvolve), ("response", F.fftconvolve)]
    )
    return Case(
        name,
        {"mode": mode},
        lambda: function(torch.from_numpy(one), torch.from_numpy(other), mode),
        one,
        other,
        exact=lambda: function(torch.from_numpy(one).double(), torch.from_numpy(other).double(), mode),
    )


def vad(draw: random.Random) -> Case:
    """Of bursts of a voice in noise: frames that are cut off must be the same, so that any other is infinitely off."""
    rate, channels = draw.choice([8_000, 16_000, 22_050]), draw.choice([1, 1, 2])
    seconds = draw.uniform(0.1, 3.0)
    time = np.arange(int(rate * seconds)) / rate
    rows = []
    for _ in range(channels):
        pitch = draw.uniform(100, 300)
        voice = sum(np.sin(2 * np.pi * pitch * harmonic * time) / harmonic for harmonic in range(1, 20))
        is_loud = np.zeros(len(time))
        for _ in range(draw.randrange(4)):
            begin = draw.uniform(0, seconds)
            is_loud[int(rate * begin) : int(rate * (begin + draw.uniform(0.02, 1.0)))] = draw.uniform(
                0.01, 0.5
            )
        noise = np.random.default_rng(draw.randrange(1 << 32)).standard_normal(len(time))
        rows.append((voice * is_loud + noise * draw.choice([0.0, 1e-4, 3e-3, 3e-2])).astype(np.float32))
    parameters: dict[str, Any] = {"sample_rate": rate}
    for name, values in {
        "trigger_level": [7.0, 3.3, 9.0],
        "trigger_time": [0.25, 0.05],
        "search_time": [1.0, 0.3],
        "allowed_gap": [0.25, 0.0, 0.6],
        "pre_trigger_time": [0.0, 0.2],
        "boot_time": [0.35, 0.0, 0.7],
        "noise_reduction_amount": [1.35, 0.5, 0.0],
        "measure_freq": [20.0, 33.0],
        "measure_duration": [None, 0.05],
        "hp_filter_freq": [50.0, 200.0],
        "lp_filter_freq": [6_000.0, 3_000.0],
    }.items():
        if draw.random() < 0.3:
            parameters[name] = draw.choice(values)
    waveform = torch.from_numpy(np.stack(rows))
    one = np.concatenate(rows)
    return Case("vad", {**parameters, "channels": channels}, lambda: F.vad(waveform, **parameters), one)


def voice(draw: random.Random, samples: int) -> Floats:
    """Harmonics in noise: what is in every frame, so that phases mean something."""
    if frozen is not None:
        return signal(draw, samples)
    time, pitch = np.arange(samples) / 16_000, draw.uniform(90, 400)
    hum = sum(np.sin(2 * np.pi * pitch * harmonic * time) / harmonic for harmonic in range(1, 12))
    noise = np.random.default_rng(draw.randrange(1 << 32)).standard_normal(samples)
    return np.asarray(0.2 * hum + draw.choice([0.0, 0.01, 0.2]) * noise, np.float32)


def time_stretch(draw: random.Random) -> Case:
    """torchaudio's between `torch.stft` and `torch.istft`."""
    bins = draw.choice([101, 201, 257, 513])
    n_fft, rate = 2 * (bins - 1), draw.choice([0.5, 0.8, 0.93, 1.0, 1.1, 1.37, 2.0])
    hop, one = draw.choice([n_fft // 4, n_fft // 2, n_fft // 3]), voice(draw, draw.choice([4_000, 16_001]))

    def stretched(samples: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(n_fft, dtype=torch.float32).to(samples.dtype)
        spectrum = torch.stft(samples, n_fft, hop, window=window, return_complex=True)
        advance = torch.linspace(0, np.pi * hop, bins, dtype=samples.dtype)[:, None]
        spectrum = F.phase_vocoder(spectrum, rate, advance)
        return torch.istft(spectrum, n_fft, hop, window=window, length=round(len(samples) / rate))

    parameters = {"n_fft": n_fft, "hop_length": hop, "rate": rate}
    waveform = torch.from_numpy(one)
    exact = lambda: stretched(waveform.double())  # noqa: E731
    return Case("time_stretch", parameters, lambda: stretched(waveform), one, exact=exact)


def pitch_shift(draw: random.Random) -> Case:
    n_fft = draw.choice([256, 512, 400, 1024])
    # Of most other steps torchaudio resamples by a matrix of hundreds of megabytes: rates have no common divisor.
    n_steps, octave = draw.choice([(-12, 12), (12, 12), (24, 24), (24, 12), (0, 12)])
    parameters: dict[str, Any] = {
        "sample_rate": draw.choice([8_000, 16_000]),
        "n_steps": n_steps,
        "bins_per_octave": octave,
        "n_fft": n_fft,
        "win_length": draw.choice([n_fft, n_fft * 3 // 4]),
    }
    parameters["hop_length"] = draw.choice([parameters["win_length"] // 4, parameters["win_length"] // 3])
    one = voice(draw, draw.choice([4_000, 16_001]))

    def shifted(samples: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(parameters["win_length"]).to(samples.dtype)
        return F.pitch_shift(samples, **parameters, window=window)

    waveform = torch.from_numpy(one)
    return Case(
        "pitch_shift",
        parameters,
        lambda: shifted(waveform),
        one,
        exact=lambda: shifted(waveform.double()),
    )


def spec_augment(draw: random.Random) -> Case:
    bins, frames, channels = draw.randrange(2, 80), draw.randrange(2, 200), draw.choice([1, 1, 2, 3])
    parameters = {
        "n_time_masks": draw.randrange(4),
        "time_mask_param": draw.randrange(1, 80),
        "n_freq_masks": draw.randrange(4),
        "freq_mask_param": draw.randrange(1, 40),
        "p": draw.choice([1.0, 0.2]),
        "zero_masking": draw.random() < 0.5,
    }
    one, seed = signal(draw, channels * bins * frames, kinds=1), draw.randrange(1 << 32)
    # torchaudio draws nothing for a mask that has no room.
    room = [int(axis * parameters["p"]) if parameters["p"] < 1 else 1 for axis in (frames, bins)]
    counts = [parameters["n_time_masks"], parameters["n_freq_masks"]]
    draws = []
    torch.manual_seed(seed)
    for count, has_room in zip(counts, room):
        draws += [torch.rand(channels) if has_room else torch.zeros(channels) for _ in range(2 * count)]
    by_channel = torch.stack(draws, 1).ravel().numpy() if draws else np.zeros(0, np.float32)

    def reference() -> torch.Tensor:
        torch.manual_seed(seed)
        spectrogram = torch.from_numpy(one).reshape(channels, bins, frames)
        # Of two sides, all is drawn as of one channel.
        return T.SpecAugment(**parameters)(spectrogram if channels > 1 else spectrogram[0])

    asked = {**parameters, "frames": frames, "channels": channels}
    return Case("spec_augment", asked, reference, one, by_channel)


# What is allowed: the greatest difference by the greatest value.
ALLOWED: dict[Callable[[random.Random], Case], float] = {
    spectrogram: 1e-5,
    mel: 1e-5,
    mel_scale: 1e-5,
    mfcc: 1e-5,
    lfcc: 1e-5,
    decibels: 1e-6,
    resample: 1e-6,
    # Logarithms of next to no energy: torchaudio's own differ from its values in double precision by up to 1.9e-4.
    fbank: 3e-4,
    kaldi_mfcc: 3e-4,
    vol: 1e-6,
    fade: 1e-6,
    add_noise: 1e-6,
    # One step of 65,536, where torch rounds a logarithm otherwise; of 256 there was none.
    mu_law_encode: 1.6e-5,
    mu_law_decode: 1e-6,
    speed: 1e-6,
    convolve: 2e-6,
    spec_augment: 1e-6,
    vad: 0.0,
    # Phases of thousands of turns in float32: torchaudio's own are off by up to 2e-2, so that double precision decides.
    time_stretch: 1e-4,
    pitch_shift: 1e-4,
}


@dataclass
class Found:
    """How far off a case is: from torchaudio, and both from double precision, where that was computed."""

    difference: float
    ours: float = 0.0
    theirs: float = 0.0

    def too_much(self, allowed: float) -> bool:
        """Whether it is, and is not torchaudio's own error."""
        return self.difference > allowed and (self.ours == 0.0 or self.ours > max(allowed, 2 * self.theirs))


def off(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    """The greatest difference by the greatest value."""
    # Silence through an infinite gain is no number in both.
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    most = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=1e-30)
    return float(
        np.max(np.where(same, 0.0, np.nan_to_num(np.abs(found - wanted), nan=np.inf)), initial=0.0) / most
    )


def difference(case: Case, features: Features) -> Found:
    """The relative difference; infinite for another length, and where only one refuses."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = case.reference().to(torch.float64).numpy().ravel()
    except (AssertionError, RuntimeError, ValueError):
        wanted = None
    other = np.zeros(0, np.float32) if case.other is None else case.other
    try:
        found = features(case.name, case.one, other, **case.parameters).astype(np.float64)
    except Refused as error:
        if wanted is not None:
            print("  only wellfed refuses:", error, case.parameters)
        return Found(0.0 if wanted is None else float("inf"))
    if wanted is None:
        print("  only torchaudio refuses:", case.name, case.parameters)
        return Found(0.0)
    if found.shape != wanted.shape:
        print(f"  {found.size} values for {wanted.size}", case.parameters)
        return Found(float("inf"))
    if case.exact is None:
        return Found(off(found, wanted))
    exact = case.exact().numpy().ravel()
    return Found(off(found, wanted), off(found, exact), off(wanted, exact))


def freeze(path: str, cases: int = 4, kept: int = 48) -> None:
    """Writes torchaudio's values of noise: a line a case."""
    global frozen
    lines = []
    for draw_case, allowed in ALLOWED.items():
        draw, written = random.Random(f"frozen {draw_case.__name__}"), 0
        while written < cases and draw_case not in (
            decibels,
            mu_law_decode,
            spec_augment,
            vad,
            time_stretch,
            pitch_shift,
        ):
            frozen = []
            case = draw_case(draw)
            try:
                wanted = case.reference().to(torch.float32).numpy().ravel()
            except (AssertionError, RuntimeError, ValueError):
                continue
            stride = max(1, wanted.size // kept)
            words = [f"{key}={value}" for key, value in case.parameters.items()]
            loudness = float(np.max(np.abs(case.one)) > 1) * 32_766 + 1
            head = [case.name, f"n={case.one.size}", f"m={0 if case.other is None else case.other.size}"]
            most = float(np.max(np.abs(wanted)))
            sums = [
                f"loudness={loudness:.0f}",
                f"allowed={allowed * 2}",
                f"values={wanted.size}",
                f"stride={stride}",
            ]
            values = " ".join(wanted[::stride].astype(">f4").tobytes().hex(" ", 4).split())
            lines.append(" ".join([*head, *sums, f"most={most!r}", *words]) + "\n" + values)
            written += 1
    frozen = None
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--freeze")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="At least one mel filterbank")
    if options.freeze:
        freeze(options.freeze)
        return 0
    failed = False
    print(f"torchaudio {torchaudio.__version__}, torch {torch.__version__}, {options.cases} cases each")
    with Features() as features:
        for draw_case, allowed in ALLOWED.items():
            name = draw_case.__name__
            if options.only and name not in options.only.split(","):
                continue
            draw = random.Random(f"{name} {options.seed}")
            cases = [draw_case(draw) for _ in range(options.cases)]
            found = [difference(case, features) for case in cases]
            at = max(range(len(cases)), key=lambda i: found[i].difference)
            bad = sum(one.too_much(allowed) for one in found)
            failed |= bad > 0
            exact = ""
            if cases[at].exact is not None:
                ours, theirs = max(one.ours for one in found), max(one.theirs for one in found)
                exact = f"  from double: wellfed {ours:.1e}, torchaudio {theirs:.1e}"
            verdict = f"  TOO MUCH in {bad}" if bad else ""
            worst = found[at].difference
            print(
                f"{name:16} {worst:9.2e} of {allowed:.0e}{verdict}{exact}  {cases[at].parameters}", flush=True
            )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
