"""torch's DataLoader over sounds, as it is and under `wf.feed`: data sets of torchaudio, a class of the user's with
torchaudio's transforms, and Hugging Face's `datasets` with Whisper's feature extractor.

    python benches/audio/feed.py [--files 1024] [--rounds 5] [--only commands,padded,mel,whisper] [--out FILE.json]

Files are generated: WAV of one second at 16 kHz, as Speech Commands has them (`padded`: of 0.5 to 1 second, with a
collate function of the user that pads). `mel` are mel spectrograms of 80 bins in decibels. `whisper` are rows
of 5 seconds in memory, padded to 30 by the extractor. Both run with 0 and 2 workers. Needs torchaudio, soundfile,
datasets and transformers. Where torchcodec is not installed, soundfile decodes in its place. Before the clock both must
give the same: PCM bit for bit, powers within 1e-5 of the greatest one.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import soundfile
import torch
import torchaudio
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperFeatureExtractor

import wellfed as wf

sys.path.insert(0, str(Path(__file__).parent.parent))
from turns import in_turns, report

RATE = 16_000


class AudioDecoder:
    """As much of torchcodec's as `torchaudio.load` and `datasets` call, by soundfile."""

    def __init__(self, source: Any, **others: Any) -> None:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        self._samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
        self.metadata = types.SimpleNamespace(sample_rate=rate)

    def get_all_samples(self) -> Any:
        data = torch.from_numpy(self._samples.T.copy())
        return types.SimpleNamespace(data=data, sample_rate=self.metadata.sample_rate)


def decode_by_soundfile() -> str:
    """Which decoder there is."""
    try:
        import torchcodec
    except ImportError:
        package, decoders = types.ModuleType("torchcodec"), types.ModuleType("torchcodec.decoders")
        decoders.AudioDecoder = decoders.VideoDecoder = AudioDecoder  # type: ignore[attr-defined]
        sys.modules.update({"torchcodec": package, "torchcodec.decoders": decoders})
        datasets.config.TORCHCODEC_AVAILABLE = True
        return f"soundfile {soundfile.__version__} in the place of torchcodec"
    return f"torchcodec {torchcodec.__version__}"


def voice(frames: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Tones that glide under noise."""
    time = np.arange(frames) / RATE
    tones = sum(np.sin(2 * np.pi * k * (120 * time + 9 * np.sin(3 * time))) / k for k in range(1, 9))
    return np.clip(0.1 * tones + 0.01 * rng.standard_normal(frames), -1, 1)


def write(root: Path, count: int, shortest: float) -> Path:
    """Files in the folders of Speech Commands."""
    rng = np.random.default_rng(0)
    for number in range(count):
        word = root / "SpeechCommands" / "speech_commands_v0.02" / f"word{number % 35:02}"
        word.mkdir(parents=True, exist_ok=True)
        frames = int(RATE * rng.uniform(shortest, 1))
        soundfile.write(word / f"{number:08x}_nohash_{number % 5}.wav", voice(frames, rng), RATE)
    return root


class Mels(Dataset[Any]):
    """What users of torchaudio write."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.chain = torch.nn.Sequential(
            torchaudio.transforms.MelSpectrogram(RATE, n_fft=400, hop_length=160, n_mels=80),
            torchaudio.transforms.AmplitudeToDB(),
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio.load(self.paths[index])
        return self.chain(waveform), index % 35


def padded(samples: list[Any]) -> Any:
    waveforms = pad_sequence([sample[0][0] for sample in samples], batch_first=True)
    return waveforms, torch.tensor([sample[4] for sample in samples]), [sample[2] for sample in samples]


def rows(count: int) -> Any:
    """Rows of Hugging Face's `datasets`, with the files in memory and the transform that scripts have."""
    rng, cells = np.random.default_rng(0), []
    for _ in range(count):
        file = io.BytesIO()
        soundfile.write(file, voice(5 * RATE, rng), RATE, format="WAV")
        cells.append({"bytes": file.getvalue(), "path": None})
    stored = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"audio": stored, "label": datasets.Value("int64")})
    made = datasets.Dataset.from_dict({"audio": cells, "label": [*range(count)]}, features=features)
    extractor = WhisperFeatureExtractor()

    def prepared(batch: Any) -> Any:
        arrays = [sound["array"] for sound in batch["audio"]]
        inputs = extractor(arrays, sampling_rate=RATE, return_tensors="pt")
        return {"input_features": inputs.input_features, "labels": batch["label"]}

    return made.cast_column("audio", datasets.Audio(sampling_rate=RATE)).with_transform(prepared)


def leaves(batch: Any) -> list[Any]:
    """The values of a batch."""
    if isinstance(batch, dict):
        batch = [*batch.values()]
    return [leaf for part in batch for leaf in leaves(part)] if isinstance(batch, list | tuple) else [batch]


def check(stock: Any, fed: Any, near: float, scale: float) -> None:
    """Logarithms, times `scale`, are compared as powers: those of nearly nothing are what rounding leaves."""
    for theirs, ours in zip(map(leaves, stock), map(leaves, fed), strict=True):
        for one, other in zip(theirs, ours, strict=True):
            if isinstance(one, torch.Tensor) and one.is_floating_point():
                one, other = (10 ** (x * scale) for x in (one, other)) if scale else (one, other)
                same = one.shape == other.shape and (one - other).abs().max() <= near * one.abs().max()
            else:
                same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
            if not same:
                raise SystemExit("wf.feed gives other batches than torch")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="commands,padded,mel,whisper")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # In the calling thread, as in worker processes.
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, torchaudio {torchaudio.__version__}, {decode_by_soundfile()}")
    results = {}
    with tempfile.TemporaryDirectory() as name:
        equal, others = write(Path(name) / "1", options.files, 1), write(Path(name) / "2", options.files, 0.5)
        commands = torchaudio.datasets.SPEECHCOMMANDS
        cases: dict[str, tuple[Callable[[], Any], dict[str, Any], float, float]] = {
            "commands": (lambda: commands(equal), {"batch_size": 128}, 0.0, 0),
            "padded": (lambda: commands(others), {"batch_size": 128, "collate_fn": padded}, 0.0, 0),
            "mel": (lambda: Mels(commands(equal)._walker), {"batch_size": 128}, 1e-5, 0.1),
            "whisper": (lambda: rows(options.files // 16), {"batch_size": 16}, 1e-5, 4),
        }
        for case in options.only.split(","):
            make, arguments, near, scale = cases[case]
            dataset, loaders = make(), {}
            for workers in (0, 2):
                given = {**arguments, "num_workers": workers, "persistent_workers": workers > 0}
                loaders[f"torch, {workers} workers"] = DataLoader(dataset, shuffle=True, **given)
                loaders[f"wf.feed, {workers} workers"] = wf.feed(DataLoader(dataset, shuffle=True, **given))
            check(
                DataLoader(dataset, **arguments),
                wf.feed(DataLoader(dataset, **arguments)),
                near,
                scale,
            )
            print(
                f"{case}: {len(dataset)} samples; {loaders['wf.feed, 2 workers'].explain().splitlines()[0]}"
            )
            results[case] = report(in_turns(loaders, options.rounds), len(dataset))
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
