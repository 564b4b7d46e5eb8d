"""wellfed's sound transforms and decoders beside torchaudio's and soundfile's: one thread each, in turns.

    python benches/audio/kernels.py [--rounds 7] [--out FILE.json]

Sounds are noise of 30 seconds at 16 kHz, or files of 30 seconds of tones and noise at 16 kHz that soundfile wrote. Each
round has the least of five runs of one and of the other; the ratio is the median over rounds. wellfed's time is taken
inside of the example program (see `bridge.py`), others' in Python, where a call costs microseconds. Whisper's reference
is its published function with torch: transform, filters, logarithm.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import torchaudio
from bridge import Features

RATE, SECONDS, RUNS = 16_000, 30, 5
FILES: list[tuple[str, str, dict[str, Any]]] = [
    ("sound.wav", "PCM_16", {}),
    ("sound.flac", "PCM_16", {}),
    ("sound.mp3", "MPEG_LAYER_III", {"bitrate_mode": "CONSTANT"}),
    ("sound.ogg", "VORBIS", {}),
]


def whisper(filters: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    window = torch.hann_window(400)

    def log_mel(audio: torch.Tensor) -> torch.Tensor:
        energies = torch.stft(audio, 400, 160, window=window, return_complex=True)[..., :-1].abs() ** 2
        logs = torch.clamp(filters @ energies, min=1e-10).log10()
        return (torch.maximum(logs, logs.max() - 8.0) + 4.0) / 4.0

    return log_mel


def least(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of some runs."""
    times = []
    for _ in range(RUNS):
        since = time.perf_counter()
        work()
        times.append(time.perf_counter() - since)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="At least one mel filterbank")
    samples = (np.random.default_rng(0).standard_normal(RATE * SECONDS) * 0.1).astype(np.float32)
    sound = torch.from_numpy(samples)
    transforms, kaldi = torchaudio.transforms, torchaudio.compliance.kaldi
    filters = torchaudio.functional.melscale_fbanks(
        201, 0.0, 8_000.0, 80, RATE, "slaney", "slaney"
    ).T.contiguous()
    cases: dict[str, tuple[Callable[[], Any], str, np.ndarray[Any, Any], dict[str, Any]]] = {}
    for orig, new in [(8_000, 16_000), (44_100, 16_000), (48_000, 16_000), (16_000, 8_000)]:
        resample = transforms.Resample(orig, new)
        cases[f"Resample {orig} to {new}"] = (
            lambda r=resample: r(sound),
            "resample",
            samples,
            {"from": orig, "to": new},
        )
    for n_fft in (400, 512, 1024):
        mel = transforms.MelSpectrogram(RATE, n_fft=n_fft, hop_length=160, n_mels=80)
        more = {"n_fft": n_fft, "hop_length": 160, "n_mels": 80}
        cases[f"MelSpectrogram(80) n_fft={n_fft}"] = (lambda m=mel: m(sound), "mel_by_filters", samples, more)
    reference = whisper(filters)
    cases["Whisper log-mel"] = (lambda: reference(sound), "whisper", samples, {})
    loud = sound[None] * 32_768
    cases["Kaldi fbank(80)"] = (
        lambda: kaldi.fbank(loud, num_mel_bins=80),
        "fbank",
        samples * 32_768,
        {"num_mel_bins": 80},
    )
    cases["Kaldi mfcc"] = (lambda: kaldi.mfcc(loud), "kaldi_mfcc", samples * 32_768, {})
    with tempfile.TemporaryDirectory() as folder, Features() as features:
        times = np.arange(RATE * SECONDS) / RATE
        mixed = 0.3 * np.sin(2 * np.pi * (200 + 40 * times) * times) + 0.2 * samples
        for name, subtype, more in FILES:
            path = str(Path(folder) / name)
            soundfile.write(path, mixed, RATE, subtype=subtype, **more)
            work = lambda p=path: soundfile.read(p, dtype="float32")  # noqa: E731
            cases[f"decode {name}"] = (work, "decode", np.zeros(0, np.float32), {"path": path})
        results = {}
        for name, (theirs, request, signal, parameters) in cases.items():
            rounds = []
            for _ in range(options.rounds):
                one = least(theirs)
                rounds.append((one, features.timed(request, signal, repeat=RUNS, **parameters)[1]))
            ratio = statistics.median(one / other for one, other in rounds)
            results[name] = {
                "theirs": [r[0] for r in rounds],
                "wellfed": [r[1] for r in rounds],
                "times": ratio,
            }
            one, other = (1e3 * statistics.median(column) for column in zip(*rounds))
            print(f"{name:32} {one:8.3f} ms  wellfed {other:8.3f} ms  {ratio:6.2f}x", flush=True)
    if options.out:
        versions = {
            "torch": torch.__version__,
            "torchaudio": torchaudio.__version__,
            "soundfile": soundfile.__version__,
        }
        options.out.write_text(json.dumps({"versions": versions, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
