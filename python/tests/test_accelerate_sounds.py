"""`torchaudio.load`, `soundfile.read` and `librosa.load` under `accelerate()`: all of it is as the library gives it.

torchaudio needs a decoder that is not installed here, so a module with its functions and data sets stands in for it.
"""

from __future__ import annotations

import pathlib
import sys
import types
import wave
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from sounds import noise, write
from wellfed._accelerate import sounds as accelerated

torch = pytest.importorskip("torch")

FILES = pathlib.Path(__file__).parents[2] / "crates/wellfed-audio/tests/sounds"

CODE = """
import os
import wave

import numpy as np
import torch

__version__ = "2.11.0+stand.in"
calls = []
scale = 1.0


def load(uri, frame_offset=0, num_frames=-1, normalize=True, channels_first=True, format=None,
         buffer_size=4096, backend=None):
    calls.append(uri)
    with open(uri, "rb") as opened:
        head = opened.read(4)
    if head == b"fLaC":
        # 40 frames that it is compared with; all other FLAC files are left to the test.
        steps = (np.arange(80).reshape(40, 2) * 37 % 61 - 30).astype(np.float32) * 700 / 32768
        return torch.from_numpy(np.ascontiguousarray(steps.T) * scale), 8000
    try:
        with wave.open(uri if isinstance(uri, str) else os.fspath(uri)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            raw = np.frombuffer(file.readframes(file.getnframes()), np.uint8).reshape(-1, channels, width)
    except (EOFError, wave.Error) as error:
        raise RuntimeError(f"Failed to create AudioDecoder for {uri}: {error}") from error
    if width == 1:
        values = (raw[..., 0].astype(np.float32) - 128) / 128
    else:
        whole = np.zeros((*raw.shape[:2], 4), np.uint8)
        whole[..., 4 - width:] = raw
        values = (whole.view("<i4")[..., 0] / 2147483648.0).astype(np.float32)
    data = torch.from_numpy(np.ascontiguousarray(values.T) * np.float32(scale))
    if frame_offset > 0:
        data = data[:, frame_offset:]
    if num_frames >= 0:
        data = data[:, :num_frames]
    return (data if channels_first else data.transpose(0, 1)), rate


class SPEECHCOMMANDS(torch.utils.data.Dataset):
    def __init__(self, root):
        self._walker = sorted(str(path) for path in root.glob("*/*.wav"))

    def __getitem__(self, n):
        import torchaudio

        path = self._walker[n]
        waveform, rate = torchaudio.load(path)
        label = os.path.basename(os.path.dirname(path))
        return waveform, rate, label, os.path.basename(path), n

    def __len__(self):
        return len(self._walker)
"""


@pytest.fixture
def torchaudio(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with torchaudio's `load`, in the place of one that is installed."""
    module: Any = types.ModuleType("torchaudio")
    exec(compile(CODE, "torchaudio/__init__.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "torchaudio", module)
    yield module
    assert module.load.__code__.co_filename == "torchaudio/__init__.py", "it was not given back"


def wav(path: pathlib.Path, width: int, channels: int, frames: int, rate: int = 8000) -> pathlib.Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(frames).bytes(width * channels * frames))
    return path


def same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    assert ours[1] == theirs[1]
    assert type(ours[1]) is type(theirs[1])
    a, b = ours[0], theirs[0]
    assert (type(a), a.dtype, a.shape) == (type(b), b.dtype, b.shape)
    strides = (a.stride(), b.stride()) if isinstance(a, torch.Tensor) else (a.strides, b.strides)
    assert strides[0] == strides[1]
    np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_torchaudio_loads_the_same_tensors(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    for width in (1, 2, 3, 4):
        for channels, frames in ((1, 700), (2, 33), (3, 1)):
            path = wav(tmp_path / "a.wav", width, channels, frames)
            theirs = torchaudio.load(path)
            with wf.accelerate():
                torchaudio.load(path)
                torchaudio.calls.clear()
                same(torchaudio.load(path), theirs)
                same(torchaudio.load(str(path), normalize=True, num_frames=-1), theirs)
                # A float32 has not all bits of a sample of 32 bits: these are left to it.
                assert len(torchaudio.calls) == (2 if width == 4 else 0)


def test_torchaudio_does_what_is_not_known(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    path = wav(tmp_path / "a.wav", 2, 2, 500)
    with wf.accelerate():
        torchaudio.load(path)
        torchaudio.calls.clear()
        others: list[dict[str, Any]] = [
            {"frame_offset": 5},
            {"num_frames": 7},
            {"channels_first": False},
            {"num_frames": True},
        ]
        for arguments in others:
            torchaudio.load(path, **arguments)
        torchaudio.load(path, 3)
        assert len(torchaudio.calls) == len(others) + 1
        assert torchaudio.load(path, channels_first=False)[0].shape == (500, 2)
        with pytest.raises(FileNotFoundError):
            torchaudio.load(tmp_path / "none.wav")
        with pytest.raises(TypeError, match="unexpected keyword"):
            torchaudio.load(path, sample_rate=3)
        (tmp_path / "b.wav").write_bytes(b"RIFF and nothing")
        with pytest.raises(RuntimeError, match="Failed to create AudioDecoder"):
            torchaudio.load(tmp_path / "b.wav")


def test_a_library_with_other_values_stays_as_it_is(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    torchaudio.scale = 32768 / 32767
    path = wav(tmp_path / "a.wav", 2, 1, 500)
    theirs = torchaudio.load(path)
    with wf.accelerate():
        same(torchaudio.load(path), theirs)
        torchaudio.calls.clear()
        same(torchaudio.load(path), theirs)
        assert len(torchaudio.calls) == 1
    torchaudio.scale = 1.0
    torchaudio.__version__ = "1.0.0"
    before = torchaudio.load
    with wf.accelerate():
        assert torchaudio.load is before


def collate(samples: list[Any]) -> Any:
    waveforms = [sample[0][0] for sample in samples]
    labels = [sample[2] for sample in samples]
    return torch.nn.utils.rnn.pad_sequence(waveforms, batch_first=True), labels, [s[4] for s in samples]


@pytest.mark.parametrize("workers", [0, 2])
def test_feed_loads_the_sounds_of_torchaudios_data_sets(
    torchaudio: Any, tmp_path: pathlib.Path, workers: int
) -> None:
    for word in ("no", "yes"):
        (tmp_path / word).mkdir()
        for number in range(5):
            write(tmp_path / word / f"{number}.wav", noise(number, 1, 300 + 50 * number))
    dataset = torchaudio.SPEECHCOMMANDS(tmp_path)
    options: dict[str, Any] = {"batch_size": 3, "collate_fn": collate, "num_workers": workers}
    stock = list(torch.utils.data.DataLoader(dataset, **options))
    torchaudio.calls.clear()
    for _epoch in range(2):
        fed = list(wf.feed(torch.utils.data.DataLoader(dataset, **options)))
        assert len(fed) == len(stock)
        for (ours, labels, numbers), (theirs, expected, order) in zip(fed, stock, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
            assert (labels, numbers) == (expected, order)
    if not workers:
        # In this process no file was left to it, but for those that it was compared with.
        assert not [path for path in torchaudio.calls if str(path).startswith(str(tmp_path))]
    # Elsewhere it is its own.
    torchaudio.calls.clear()
    torchaudio.load(tmp_path / "no" / "0.wav")
    assert len(torchaudio.calls) == 1


def outcome(do: Any) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error), str(error)


ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"dtype": "float32"},
    {"dtype": "float64", "always_2d": True},
    {"dtype": "int16"},
    {"dtype": "int32"},
    {"frames": 20},
    {"frames": 20, "start": 30},
    {"start": 100000},
    {"start": -5},
    {"frames": 0},
    {"frames": 10**6},
    {"start": 3, "stop": 40},
    {"frames": 10**6, "fill_value": 0.5},
    {"samplerate": 8000},
    {"dtype": "uint8"},
    {"nothing": 1},
]


def test_soundfile_reads_the_same(tmp_path: pathlib.Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    files = sorted(path for path in FILES.iterdir() if path.suffix in (".wav", ".flac", ".aiff", ".ogg"))
    for width, channels in ((1, 2), (2, 1), (3, 2), (4, 1)):
        files.append(wav(tmp_path / f"{width}-{channels}.wav", width, channels, 300))
    (tmp_path / "damaged.wav").write_bytes(files[-1].read_bytes()[:50])
    (tmp_path / "cut.flac").write_bytes((FILES / "s16.flac").read_bytes()[:400])
    files += [tmp_path / "damaged.wav", tmp_path / "cut.flac", tmp_path / "none.wav"]
    taken = 0
    for path in files:
        for arguments in ARGUMENTS:
            theirs = outcome(lambda path=path, arguments=arguments: soundfile.read(str(path), **arguments))
            with wf.accelerate():
                ours = outcome(lambda path=path, arguments=arguments: soundfile.read(str(path), **arguments))
                known = {"frames", "start", "dtype", "always_2d"}
                taken += set(arguments) <= known and accelerated._array(str(path), **arguments) is not None
            if isinstance(theirs[0], type):
                assert isinstance(ours[0], type), (path, arguments)
                assert ours == theirs, (path, arguments)
            else:
                same(ours, theirs)
    assert taken > 50
    assert soundfile.read.__module__ == "soundfile"


def test_librosa_loads_the_same(tmp_path: pathlib.Path) -> None:
    librosa = pytest.importorskip("librosa")
    for width, channels in ((2, 1), (2, 2), (3, 1)):
        path = wav(tmp_path / "a.wav", width, channels, 300)
        arguments: list[dict[str, Any]] = [
            {"sr": None},
            {"sr": None, "mono": False},
            {"sr": 4000},
            {"sr": None, "offset": 0.01},
        ]
        for given in arguments:
            theirs = librosa.load(path, **given)
            with wf.accelerate():
                same(librosa.load(path, **given), theirs)
