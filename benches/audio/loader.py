"""Sounds from files to padded batches of mel spectrograms: wellfed beside soundfile and torchaudio in torch's
DataLoader.

    python benches/audio/loader.py [--speech DIR] [--files 400] [--rounds 5] [--only wav,mp3] [--out FILE.json]

Files of 8 kHz are read, resampled to 16 kHz, made mel spectrograms of 80 bins, in decibels, and padded to batches of
64. They are generated: `digits` are WAV files of 0.2 to 0.9 seconds, as those of spoken digits, `wav` and `flac` have 1
to 16 seconds; with ``--speech`` the WAV files of a folder come besides. `mp3` are segments of 10 seconds out of files
of 3 minutes at 44.1 kHz in stereo, of which the mean of both channels is taken. torch runs with 0, 1, 2 and as many
workers as cores, its operations with one thread in each; what is compared is the fastest. Needs torch, torchaudio and
soundfile. Before the clock both must give the same values.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
import torchaudio.transforms as A
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import wellfed as wf
from wellfed import transforms as T

sys.path.insert(0, str(Path(__file__).parent.parent))
from turns import in_turns, report

BATCH = 64
SEGMENT = 10
"""Seconds of a segment."""
SONG = 180
"""Seconds of the files that segments are taken from."""


def voice(samples: int, rate: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Tones that glide under noise, as loud as speech."""
    time = np.arange(samples) / rate
    tones = sum(np.sin(2 * np.pi * k * (120 * time + 9 * np.sin(3 * time))) / k for k in range(1, 9))
    loud = 0.5 + 0.5 * np.sin(2 * np.pi * 4 * time)
    return np.clip(0.1 * tones * loud + 0.01 * rng.standard_normal(samples), -1, 1)


def write(folder: Path, count: int, ending: str, shortest: float, longest: float) -> list[str]:
    """Files of so many seconds at 8 kHz."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        path = folder / f"{number:05}.{ending}"
        samples = voice(int(8000 * rng.uniform(shortest, longest)), 8000, rng)
        soundfile.write(path, samples, 8000, subtype="PCM_16")
        paths.append(str(path))
    return paths


def write_songs(folder: Path, count: int) -> list[str]:
    """MP3 files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        path = folder / f"{number:05}.mp3"
        left, right = voice(SONG * 44100, 44100, rng), voice(SONG * 44100, 44100, rng)
        soundfile.write(path, np.stack([left, 0.5 * left + right], 1), 44100, subtype="MPEG_LAYER_III")
        paths.append(str(path))
    return paths


class Sounds(Dataset):
    """What users of torchaudio write. Samples are whole files, or parts of them that begin at so many seconds."""

    def __init__(self, paths: list[str], rate: int, offsets: list[float] | None) -> None:
        self.paths, self.rate, self.offsets = paths, rate, offsets
        self.chain = torch.nn.Sequential(
            A.Resample(rate, 16000), A.MelSpectrogram(16000, n_mels=80), A.AmplitudeToDB()
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        part = {}
        if self.offsets is not None:
            part = {"start": round(self.offsets[index] * self.rate), "frames": SEGMENT * self.rate}
        samples, _ = soundfile.read(self.paths[index], dtype="float32", always_2d=True, **part)
        with torch.no_grad():
            return self.chain(torch.from_numpy(samples.T).mean(0, keepdim=True))


def collate(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([sample.shape[-1] for sample in samples])
    padded = pad_sequence([sample.permute(2, 0, 1) for sample in samples], batch_first=True)
    return padded.permute(0, 2, 3, 1), lengths


def chain(rate: int) -> list[Any]:
    return [T.ToMono(), T.Resample(rate, 16000), T.MelSpectrogram(16000, n_mels=80), T.AmplitudeToDB()]


def ours(paths: list[str], offsets: list[float] | None) -> Any:
    durations = None if offsets is None else [float(SEGMENT)] * len(paths)
    return wf.audio_files(paths, offsets=offsets, durations=durations)


def check(theirs: Sounds, made: Any, count: int) -> None:
    for index in range(0, count, max(1, count // 5)):
        expected, found = theirs[index].numpy(), made.sample(index)
        # Decibels of nearly nothing are what rounding leaves.
        loud = expected > expected.max() - 60
        if expected.shape != found.shape or np.abs(expected - found)[loud].max() > 0.05:
            raise SystemExit(f"{theirs.paths[index]}: values differ from torchaudio's")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="digits,wav,flac,mp3,speech")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    only, results = options.only.split(","), {}
    with tempfile.TemporaryDirectory() as name:
        sets: dict[str, tuple[list[str], int, list[float] | None]] = {}
        if "digits" in only:
            sets["digits"] = write(Path(name) / "digits", 4 * options.files, "wav", 0.2, 0.9), 8000, None
        for ending in ("wav", "flac"):
            if ending in only:
                sets[ending] = write(Path(name) / ending, options.files, ending, 1, 16), 8000, None
        if "mp3" in only:
            songs = write_songs(Path(name) / "mp3", 8)
            starts = np.random.default_rng(0).uniform(0, SONG - SEGMENT, options.files // 2)
            sets["mp3"] = [songs[i % 8] for i in range(len(starts))], 44100, [round(s, 2) for s in starts]
        if options.speech is not None and "speech" in only:
            sets["speech"] = sorted(map(str, options.speech.rglob("*.wav"))), 8000, None
        for form, (paths, rate, offsets) in sets.items():
            print(f"{form}: {len(paths)} samples")
            sounds = Sounds(paths, rate, offsets)
            check(sounds, ours(paths, offsets).map(*chain(rate)), len(paths))
            loaders: dict[str, Any] = {}
            for workers in sorted({0, 1, 2, len(os.sched_getaffinity(0))}):
                loaders[f"torch, {workers} workers"] = DataLoader(
                    sounds,
                    batch_size=BATCH,
                    shuffle=True,
                    num_workers=workers,
                    persistent_workers=workers > 0,
                    collate_fn=collate,
                )
            shuffled = ours(paths, offsets).shuffle(seed=0)
            loaders["wellfed"] = shuffled.map(*chain(rate)).padded_batch(BATCH, lengths=True).torch()
            results[form] = report(in_turns(loaders, options.rounds), len(paths))
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
