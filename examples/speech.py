"""Trains a small network that tells spoken words apart, on log-mel spectrograms.

    python examples/speech.py recordings --epochs 40
    python examples/speech.py recordings --loader torchaudio --seeds 5

`recordings` has one folder per word, or files that are called `word_speaker_number.wav`, as the Free Spoken Digit
Dataset has them; of each word and speaker the last recordings are held out. Without it, recordings are taken from
`$WELLFED_TEST_DATA/speech`, or tones are generated that stand for words. With `--loader torchaudio` the same is done by
torchaudio's transforms on files that soundfile reads, to compare accuracies.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import wave
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import wellfed as wf
from wellfed import transforms as T

RATE = 8000
MELS = {"n_fft": 256, "hop_length": 128, "n_mels": 40}
BATCH = 32

Batches = Iterable[tuple[Tensor, Tensor]]
Files = list[tuple[Path, int]]


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Trains a small network that tells spoken words apart.")
    parser.add_argument("root", nargs="?", type=Path, help="a folder of recordings")
    parser.add_argument("--generated", action="store_true", help="use tones, even if there are recordings")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1, help="runs, each with a seed of its own")
    parser.add_argument("--loader", choices=["wellfed", "torchaudio"], default="wellfed")
    return parser.parse_args()


def tones(folder: Path, words: int = 6, recordings: int = 30) -> None:
    """Writes a folder for each word, which is two tones after one another, with noise."""
    rng = np.random.default_rng(0)
    for word in range(words):
        (folder / f"word{word}").mkdir(parents=True)
        for number in range(recordings):
            times = np.arange(rng.integers(RATE // 3, RATE)) / RATE
            pitch = rng.normal(1, 0.04)
            low, high = 300 + 150 * word, 2200 - 120 * word
            signal = np.where(
                times < times[-1] / 2, np.sin(6.28 * low * pitch * times), np.sin(6.28 * high * times)
            )
            signal = 0.2 * rng.uniform(0.3, 1) * signal + 0.1 * rng.normal(size=len(times))
            with wave.open(str(folder / f"word{word}" / f"word{word}_a_{number}.wav"), "wb") as file:
                file.setparams((1, 2, RATE, 0, "NONE", ""))
                file.writeframes((signal.clip(-1, 1) * 32767).astype("<i2").tobytes())


def split(root: Path) -> tuple[Files, Files, list[str]]:
    """Files with their labels: to train on, and held out; and the words."""
    paths = sorted(path for path in root.rglob("*") if path.suffix in (".wav", ".flac"))
    if not paths:
        raise SystemExit(f"{root} has no .wav and no .flac files")
    flat = all(path.parent == root for path in paths)

    def word(path: Path) -> str:
        return path.stem.split("_")[0] if flat else path.parent.name

    groups: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in paths:
        groups[word(path), "_".join(path.stem.split("_")[1:-1])].append(path)
    words = sorted({name for name, _ in groups})
    train: Files = []
    held_out: Files = []
    for (name, _), group in sorted(groups.items()):
        # Every fifth, at least one.
        count = max(1, len(group) // 5)
        label = words.index(name)
        train += [(path, label) for path in group[:-count]]
        held_out += [(path, label) for path in group[-count:]]
    return train, held_out, words


def by_wellfed(files: Files, seed: int, training: bool) -> Batches:
    """Batches that the engine makes."""
    ds = wf.audio_files([path for path, _ in files], labels=[label for _, label in files])
    if training:
        ds = ds.shuffle(seed=seed)
    steps: list[T.Transform] = [T.ToMono(), T.Resample(new_freq=RATE), T.PadOrTrim(RATE)]
    steps += [T.MelSpectrogram(RATE, **MELS), T.AmplitudeToDB(top_db=80)]
    if training:
        steps += [T.FrequencyMasking(4), T.TimeMasking(8)]
    return ds.map(*steps).batch(BATCH).torch()


def by_torchaudio(files: Files, seed: int, training: bool) -> Batches:
    """Batches that torch's loader makes of what soundfile and torchaudio give."""
    try:
        import soundfile
        import torchaudio.functional
        import torchaudio.transforms as A
    except ImportError as error:
        raise SystemExit(f"--loader torchaudio needs torchaudio and soundfile: {error}") from None
    steps = [A.MelSpectrogram(RATE, **MELS), A.AmplitudeToDB(top_db=80)]
    if training:
        steps += [A.FrequencyMasking(4), A.TimeMasking(8)]
    transform = nn.Sequential(*steps)

    class Recordings(torch.utils.data.Dataset[tuple[Tensor, int]]):
        """Spectrograms and labels."""

        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            path, label = files[index]
            samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
            waveform = torch.from_numpy(samples).mean(1)[None]
            waveform = torchaudio.functional.resample(waveform, rate, RATE)[:, :RATE]
            waveform = nn.functional.pad(waveform, (0, RATE - waveform.shape[1]))
            return transform(waveform), label

    generator = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(Recordings(), BATCH, shuffle=training, generator=generator)


def network(words: int) -> nn.Module:
    """A few convolutions over time and frequency."""

    def block(inner: int, outer: int) -> list[nn.Module]:
        return [nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(1, 16),
        *block(16, 32),
        *block(32, 32),
        nn.AdaptiveAvgPool2d((2, 2)),
        nn.Flatten(),
        nn.Linear(128, words),
    )


def scaled(decibels: Tensor) -> Tensor:
    """Each sound's decibels with a mean of 0 and a deviation of 1: loudness says nothing of the word."""
    mean, deviation = decibels.mean((1, 2, 3), keepdim=True), decibels.std((1, 2, 3), keepdim=True)
    return (decibels - mean) / (deviation + 1e-5)


def accuracy(model: nn.Module, batches: Batches) -> float:
    """Share of the sounds that are told right."""
    model.eval()
    right = total = 0
    with torch.no_grad():
        for mels, labels in batches:
            right += int((model(scaled(mels)).argmax(1) == labels).sum())
            total += len(labels)
    return right / total


def run(root: Path, args: argparse.Namespace, seed: int) -> float:
    """Trains with one seed; gives the accuracy on what was held out."""
    train, held_out, words = split(root)
    make = by_wellfed if args.loader == "wellfed" else by_torchaudio
    torch.manual_seed(seed)
    model = network(len(words))
    batches = make(train, seed, True)
    steps = args.epochs * -(-len(train) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    start = time.perf_counter()
    for _ in range(args.epochs):
        model.train()
        for mels, labels in batches:
            loss = nn.functional.cross_entropy(model(scaled(mels)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    seconds = time.perf_counter() - start
    found = accuracy(model, make(held_out, seed, False))
    print(
        f"seed {seed}: {found:.1%} of {len(held_out)} held-out sounds, {args.epochs} epochs of {len(train)} sounds "
        f"in {seconds:.1f} s"
    )
    return found


def main() -> None:
    """Trains, and prints what happened."""
    args = parse()
    named = os.environ.get("WELLFED_TEST_DATA")
    root = args.root or (Path(named, "speech") if named else None)
    with tempfile.TemporaryDirectory() as folder:
        if args.generated or root is None or not root.is_dir():
            if args.root and not args.generated:
                raise SystemExit(f"{args.root} is no folder")
            root = Path(folder, "tones")
            tones(root)
            print("generated tones stand for words")
        all_found = [run(root, args, seed) for seed in range(args.seeds)]
    spread = f", from {min(all_found):.1%} to {max(all_found):.1%}" if len(all_found) > 1 else ""
    print(f"{args.loader}: accuracy {statistics.mean(all_found):.1%}{spread}")


if __name__ == "__main__":
    main()
