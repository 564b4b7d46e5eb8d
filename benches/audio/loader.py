"""Speech from files to padded batches of mel spectrograms: wellfed beside soundfile and torchaudio in torch's
DataLoader.

    python benches/audio/loader.py [--speech DIR] [--files 400] [--rounds 5] [--out FILE.json]

Files of 8 kHz and 1 to 16 seconds are read, resampled to 16 kHz, made mel spectrograms of 80 bins, in decibels, and
padded to
batches of 64. They are generated, as WAV and as FLAC; with ``--speech`` the WAV files of a folder come besides.
torch runs with
0, 1, 2 and as many workers as cores, its operations with one thread in each; what is compared is the fastest. Needs
torch,
torchaudio and soundfile. Before the clock both must give the same values.
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


def write(folder: Path, count: int, ending: str) -> list[str]:
    """Tones that glide under noise, as loud as speech, cut into files."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    paths = []
    for number in range(count):
        seconds = rng.uniform(1, 16)
        time = np.arange(int(8000 * seconds)) / 8000
        voice = sum(np.sin(2 * np.pi * k * (120 * time + 9 * np.sin(3 * time))) / k for k in range(1, 9))
        loud = 0.5 + 0.5 * np.sin(2 * np.pi * 4 * time)
        samples = 0.1 * voice * loud + 0.01 * rng.standard_normal(len(time))
        path = folder / f"{number:05}.{ending}"
        soundfile.write(path, np.clip(samples, -1, 1), 8000, subtype="PCM_16")
        paths.append(str(path))
    return paths


class Speech(Dataset):
    """What users of torchaudio write."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.chain = torch.nn.Sequential(
            A.Resample(8000, 16000), A.MelSpectrogram(16000, n_mels=80), A.AmplitudeToDB()
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        samples, _ = soundfile.read(self.paths[index], dtype="float32", always_2d=True)
        with torch.no_grad():
            return self.chain(torch.from_numpy(samples.T))


def collate(samples: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    lengths = torch.tensor([sample.shape[-1] for sample in samples])
    padded = pad_sequence([sample.permute(2, 0, 1) for sample in samples], batch_first=True)
    return padded.permute(0, 2, 3, 1), lengths


def ours(paths: list[str]) -> Any:
    chain = [T.Resample(8000, 16000), T.MelSpectrogram(16000, n_mels=80), T.AmplitudeToDB()]
    return wf.audio_files(paths).shuffle(seed=0).map(*chain).padded_batch(BATCH, lengths=True).torch()


def check(paths: list[str]) -> None:
    chain = [T.Resample(8000, 16000), T.MelSpectrogram(16000, n_mels=80), T.AmplitudeToDB()]
    speech, made = Speech(paths), wf.audio_files(paths).map(*chain)
    for index in range(0, len(paths), max(1, len(paths) // 5)):
        expected, found = speech[index].numpy(), made.sample(index)
        # Decibels of nearly nothing are what rounding leaves.
        loud = expected > expected.max() - 60
        if expected.shape != found.shape or np.abs(expected - found)[loud].max() > 0.05:
            raise SystemExit(f"{paths[index]}: values differ from torchaudio's")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as name:
        sets = {ending: write(Path(name) / ending, options.files, ending) for ending in ("wav", "flac")}
        if options.speech is not None:
            sets["speech"] = sorted(map(str, options.speech.rglob("*.wav")))
        for form, paths in sets.items():
            print(f"{form}: {len(paths)} files")
            check(paths)
            loaders: dict[str, Any] = {}
            for workers in sorted({0, 1, 2, len(os.sched_getaffinity(0))}):
                loaders[f"torch, {workers} workers"] = DataLoader(
                    Speech(paths),
                    batch_size=BATCH,
                    shuffle=True,
                    num_workers=workers,
                    persistent_workers=workers > 0,
                    collate_fn=collate,
                )
            loaders["wellfed"] = ours(paths)
            results[form] = report(in_turns(loaders, options.rounds), len(paths))
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
