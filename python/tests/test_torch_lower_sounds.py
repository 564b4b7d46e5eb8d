"""Data sets of sounds under `wf.feed`: torchaudio's own, and the user's that load files and call its transforms.

torchaudio needs a decoder that is not installed here, so a module with its names, parameters and values stands in.
"""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, Dataset, RandomSampler, Subset, random_split
from torch.utils.data import DataLoader as Stock

import torchaudio_stand_in
import wellfed as wf
from sounds import noise, write
from torch_same import same

COUNT = 12


@pytest.fixture(autouse=True, name="torchaudio")
def _put_in_place(monkeypatch: pytest.MonkeyPatch) -> Any:
    return torchaudio_stand_in.put_in_place(monkeypatch)


def speech(root: pathlib.Path, frames: Callable[[int], int] = lambda _: 1600) -> pathlib.Path:
    """Files as Speech Commands has them, of so many frames each."""
    folder = root / "SpeechCommands" / "speech_commands_v0.02"
    for number in range(COUNT):
        word = folder / ("no", "yes", "up")[number % 3]
        word.mkdir(parents=True, exist_ok=True)
        write(word / f"speaker{number}_nohash_{number % 2}.wav", noise(number, 1, frames(number)), 16000)
    names = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*.wav"))
    (folder / "testing_list.txt").write_text("\n".join(names[::3]))
    return root


def words_of(loader: Any) -> str:
    return str(loader.explain())


def kind_of(loader: Any) -> str:
    return words_of(loader).splitlines()[0].removeprefix("DataLoader, ").partition(" ")[0].rstrip(":,")


def both(dataset: Any, **arguments: Any) -> tuple[Any, Any, Any]:
    """Two epochs of the loader that is fed and of torch's, and the former."""
    results = []
    for make in (Stock, lambda *given, **named: wf.feed(Stock(*given, **named))):
        torch.manual_seed(3)
        loader = make(dataset, **arguments)
        results.append([list(loader), list(loader)])
    return results[0], results[1], loader


def check(dataset: Any, kind: str, **arguments: Any) -> None:
    theirs, ours, loader = both(dataset, **arguments)
    assert same(ours, theirs)
    assert kind_of(loader) == kind, words_of(loader)


def pads(samples: list[Any]) -> Any:
    waveforms = nn.utils.rnn.pad_sequence([sample[0][0] for sample in samples], batch_first=True)
    return waveforms, [sample[1:] for sample in samples]


def side_by_side(batch: Any) -> Any:
    return tuple(zip(*batch))


def test_speech_commands_are_batches_of_the_engine(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path))
    check(dataset, "native", batch_size=5)
    check(dataset, "native", batch_size=5, shuffle=True, drop_last=True)
    check(dataset, "native", batch_size=None)
    check(torchaudio.datasets.SPEECHCOMMANDS(tmp_path, "testing"), "native", batch_size=2)
    # Nothing was left to it but what it was compared with.
    torchaudio.calls.clear()
    list(wf.feed(Stock(dataset, batch_size=5)))
    assert not torchaudio.calls
    (waveforms, rates, labels, speakers, numbers) = next(iter(wf.feed(Stock(dataset, batch_size=5))))
    assert (waveforms.shape, rates.dtype, numbers.dtype) == ((5, 1, 1600), torch.int64, torch.int64)
    assert labels == ("no",) * 4 + ("up",)
    assert speakers[0] == "speaker0"


def test_orders_and_parts_of_speech_commands_are_torchs(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path))
    order = RandomSampler(dataset, generator=torch.Generator().manual_seed(7), replacement=True)
    check(dataset, "native", batch_sampler=[[3, 1], [2], [11, 0, 0]])
    check(dataset, "native", batch_size=4, sampler=[5, 5, 2, 9])
    check(Subset(dataset, [4, 0, 4]), "native", batch_size=2)
    check(ConcatDataset([dataset, Subset(dataset, [1]), dataset]), "native", batch_size=7)
    parts = random_split(dataset, [9, 3], generator=torch.Generator().manual_seed(1))
    check(parts[0], "native", batch_size=4)
    results = []
    for feed in (lambda loader: loader, wf.feed):
        order.generator.manual_seed(7)
        results.append(list(feed(Stock(dataset, batch_sampler=BatchSampler(order, 3, False)))))
    assert same(*results)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_is_given_samples(torchaudio: Any, tmp_path: pathlib.Path, workers: int) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path, lambda number: 800 + 100 * number))
    check(dataset, "partly", batch_size=5, collate_fn=pads, num_workers=workers)
    check(dataset, "native", batch_size=5, collate_fn=side_by_side, num_workers=workers)


def test_sounds_that_cannot_be_stacked_are_torchs_error(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path, lambda number: 1600 + number // 11))
    errors = []
    for feed in (lambda loader: loader, wf.feed):
        iterator = iter(feed(Stock(dataset, batch_size=2, sampler=[0, 1, 2, 4, 3, 5])))
        assert next(iterator)[0].shape == (2, 1, 1600)
        with pytest.raises(RuntimeError) as error:
            next(iterator)
        errors.append(str(error.value))
        assert next(iterator)[0].shape == (2, 1, 1600)
    assert errors[0].partition("\n")[0] == errors[1].partition("\n")[0]


def test_files_that_are_not_what_is_known_are_left_to_the_data_set(
    torchaudio: Any, tmp_path: pathlib.Path
) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path))
    for place, make in (
        (4, lambda path: write(path, noise(1, 1, 1600), 8000)),
        (5, lambda path: write(path, noise(1, 1, 0), 16000)),
        (7, lambda path: path.write_bytes(b"RIFF and nothing")),
        (8, lambda path: path.unlink()),
    ):
        make(pathlib.Path(dataset._walker[place]))
        errors = []
        for feed in (lambda loader: loader, wf.feed):
            with pytest.raises((ValueError, RuntimeError, OSError)) as error:
                list(feed(Stock(dataset, batch_size=1, sampler=[0, place])))
            errors.append((type(error.value), str(error.value)))
        assert errors[0] == errors[1]
    # Two channels, which are sounds as good as any.
    write(pathlib.Path(dataset._walker[2]), noise(1, 2, 1600), 16000)
    check(dataset, "native", batch_size=1, sampler=[0, 2, 1])
    check(dataset, "native", batch_size=3, sampler=[0, 2, 1], collate_fn=side_by_side)


def test_samples_of_32_bits_are_left_to_the_data_set(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    import wave

    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path))
    with wave.open(dataset._walker[3], "wb") as file:
        file.setparams((1, 4, 16000, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(1).bytes(6400))
    torchaudio.calls.clear()
    check(dataset, "native", batch_size=3)
    assert dataset._walker[3] in torchaudio.calls
    with pytest.raises(wf.UnsupportedSampleError, match="pcm_s32le of 32 bits"):
        wf.audio_files([dataset._walker[3]]).with_options(lossless=True).sample(0)


def test_librispeech_has_its_transcripts(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "LibriSpeech" / "dev-clean" / "12" / "34"
    folder.mkdir(parents=True)
    lines = []
    for number in range(6):
        name = f"12-34-{number:04d}"
        lines.append(f"{name} SOME WORDS {number}")
        write(folder / f"{name}.flac", noise(number, 1, 1000), 16000)
    (folder / "12-34.trans.txt").write_text("\n".join(lines))
    dataset = torchaudio.datasets.LIBRISPEECH(tmp_path, "dev-clean")
    check(dataset, "native", batch_size=4)
    # Where its files have other names than they seem to have, it is asked itself.
    loader = wf.feed(Stock(dataset, batch_size=2))
    (folder / "12-34.trans.txt").write_text("\n".join(line.replace("0000", "9999") for line in lines))
    with pytest.raises(KeyError):
        next(iter(loader))


def test_yesno_has_lists_of_labels_and_rates_of_files(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "waves_yesno"
    folder.mkdir()
    for number in range(6):
        bits = "_".join(f"{number:03b}")
        write(folder / f"{bits}.wav", noise(number, 1, 500), 8000 + number)
    dataset = torchaudio.datasets.YESNO(tmp_path)
    check(dataset, "native", batch_size=4)
    check(dataset, "native", batch_size=4, collate_fn=side_by_side)
    assert next(iter(wf.feed(Stock(dataset, batch_size=2))))[1].tolist() == [8000, 8001]


def test_a_subclass_is_known_unless_it_changes_samples(
    torchaudio: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = torchaudio.datasets.SPEECHCOMMANDS

    class Picks(kind):  # type: ignore[misc, valid-type]
        def __init__(self, root: Any) -> None:
            super().__init__(root)
            self._walker = self._walker[::2]

    class Louder(kind):  # type: ignore[misc, valid-type]
        def __getitem__(self, n: int) -> Any:
            waveform, *others = super().__getitem__(n)
            return waveform * 2, *others

    class Renamed(kind):  # type: ignore[misc, valid-type]
        def get_metadata(self, n: int) -> Any:
            path, rate, label, *others = super().get_metadata(n)
            return path, rate, label.upper(), *others

    speech(tmp_path)
    check(Picks(tmp_path), "native", batch_size=4)
    check(Louder(tmp_path), "Python", batch_size=4)
    check(Renamed(tmp_path), "Python", batch_size=4)
    assert next(iter(wf.feed(Stock(Renamed(tmp_path), batch_size=2))))[2] == ("NO", "NO")
    dataset = kind(tmp_path)
    loader = wf.feed(Stock(dataset, batch_size=4))
    assert len(list(loader)) == 3
    dataset.__getitem__ = None
    assert kind_of(loader) == "Python"
    del dataset.__getitem__
    dataset._walker = dataset._walker[:4]
    assert [len(batch[2]) for batch in loader] == [4]
    dataset._walker[0] = dataset._walker[1]
    assert next(iter(loader))[3][:2] == ("speaker3",) * 2
    # Somebody's own `load` is called.
    theirs = torchaudio.load
    monkeypatch.setattr(torchaudio, "load", lambda path: theirs(path))
    assert kind_of(loader) == "Python"
    assert "torchaudio.load" in words_of(loader)


def test_under_accelerate_the_same_is_known(torchaudio: Any, tmp_path: pathlib.Path) -> None:
    dataset = torchaudio.datasets.SPEECHCOMMANDS(speech(tmp_path))
    expected = list(Stock(dataset, batch_size=4))
    with wf.accelerate():
        loader = wf.feed(Stock(dataset, batch_size=4))
        assert same(list(loader), expected)
        assert kind_of(loader) == "native"


# Classes of the user.


class Files(Dataset[Any]):
    """As scripts have them, which import torchaudio."""

    def __init__(self, paths: list[str], transform: Any = None) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio_stand_in.load(self.paths[index])
        if self.transform is not None:
            waveform = self.transform(waveform)
        return waveform, index % 3


class Rates(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return {"waveform": waveform, "rate": rate, "path": self.paths[index]}


def paths_of(folder: pathlib.Path, frames: int = 6000, rate: int = 16000, channels: int = 1) -> list[str]:
    return [
        str(write(folder / f"{number}.wav", noise(number, channels, frames), rate)) for number in range(7)
    ]


def near(ours: Any, theirs: Any, decibels: bool = False) -> None:
    """Checks batches of sounds, which may be apart by a hundred-thousandth of the greatest value.

    Decibels of nearly nothing are what rounding leaves, so that magnitudes are compared.
    """
    assert len(ours) == len(theirs)
    for (one, labels), (other, expected) in zip(ours, theirs, strict=True):
        assert same(labels, expected)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if decibels:
            one, other = 10 ** (one / 20), 10 ** (other / 20)
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()


A = torchaudio_stand_in
CHAINS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "identity": lambda: nn.Identity(),
    "resample": lambda: A.Resample(16000, 8000),
    "resample by sevenths": lambda: A.Resample(16000, 14000, lowpass_filter_width=9, rolloff=0.9),
    "same rate": lambda: A.Resample(16000, 16000),
    "spectrogram": lambda: A.Spectrogram(n_fft=320, hop_length=160),
    "window": lambda: A.Spectrogram(n_fft=320, win_length=300, window_fn=torch.hamming_window, power=1.0),
    "not centred": lambda: A.Spectrogram(center=False, pad=20, normalized=True),
    "both sides": lambda: A.Spectrogram(n_fft=256, onesided=False, pad_mode="constant"),
    "mel": lambda: A.MelSpectrogram(n_fft=512, hop_length=160, n_mels=40),
    "slaney": lambda: A.MelSpectrogram(
        norm="slaney", mel_scale="slaney", n_mels=32, f_min=50.0, f_max=7000.0
    ),
    "mfcc": lambda: A.MFCC(n_mfcc=13, melkwargs={"n_mels": 40}),
    "mfcc of logarithms": lambda: A.MFCC(n_mfcc=20, log_mels=True, norm=None, melkwargs={"n_mels": 40}),
    "louder": lambda: A.Vol(2.0),
    "decibels louder": lambda: A.Vol(6, "db"),
    "fade": lambda: A.Fade(300, 200),
    "chain": lambda: nn.Sequential(
        A.Resample(16000, 8000),
        A.Vol(0.5, "power"),
        nn.Sequential(A.MelSpectrogram(8000, n_fft=256, n_mels=32), A.AmplitudeToDB(top_db=80)),
    ),
    "magnitudes": lambda: nn.Sequential(A.Spectrogram(power=1.0), A.AmplitudeToDB("magnitude")),
}


@pytest.mark.parametrize("chain", CHAINS)
def test_transforms_of_torchaudio_are_the_engines(tmp_path: pathlib.Path, chain: str) -> None:
    dataset = Files(paths_of(tmp_path), CHAINS[chain]())
    theirs, ours, loader = both(dataset, batch_size=3)
    for epoch, expected in zip(ours, theirs, strict=True):
        near(epoch, expected, chain == "magnitudes")
    assert kind_of(loader) == "native", words_of(loader)
    if chain in ("nothing", "identity", "same rate"):
        assert same(ours, theirs)


@pytest.mark.parametrize("workers", [0, 2])
def test_channels_and_collate_functions_of_transformed_sounds(tmp_path: pathlib.Path, workers: int) -> None:
    dataset = Files(paths_of(tmp_path, channels=2), A.MelSpectrogram(n_mels=20))
    for arguments, kind in (
        ({"batch_size": 4}, "native"),
        ({"batch_size": None}, "native"),
        ({"batch_size": 4, "collate_fn": stacks}, "native"),
        ({"batch_size": 4, "collate_fn": halves}, "partly"),
    ):
        theirs, ours, loader = both(dataset, num_workers=workers, **arguments)
        assert kind_of(loader) == kind, words_of(loader)
        for epoch, expected in zip(ours, theirs, strict=True):
            near(epoch, expected)


def stacks(samples: list[Any]) -> Any:
    return torch.stack([sample[0] for sample in samples]), torch.tensor([sample[1] for sample in samples])


def halves(samples: list[Any]) -> Any:
    return torch.stack([sample[0] / 2 for sample in samples]), [sample[1] for sample in samples]


def test_rates_and_paths_go_with_sounds(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path, rate=11025)
    write(pathlib.Path(paths[2]), noise(2, 1, 6000), 44100)
    check(Rates(paths), "native", batch_size=3)
    check(Rates(paths), "native", batch_size=3, shuffle=True, collate_fn=lambda batch: list(batch))


def test_masks_hide_what_torchaudios_may_hide(tmp_path: pathlib.Path) -> None:
    chain = nn.Sequential(A.Spectrogram(power=1.0), A.FrequencyMasking(40), A.TimeMasking(9, p=0.5))
    plain = Files(paths_of(tmp_path), A.Spectrogram(power=1.0))
    loader = wf.feed(Stock(Files(plain.paths, chain), batch_size=7))
    assert kind_of(loader) == "native", words_of(loader)
    (spectra, _), (expected, _) = next(iter(loader)), next(iter(Stock(plain, batch_size=7)))
    hidden = spectra == 0
    torch.testing.assert_close(spectra[~hidden], expected[~hidden], rtol=1e-4, atol=1e-4)
    bins, frames = hidden.all(-1).sum((1, 2)), hidden.all(-2).sum((1, 2))
    assert 0 < bins.max() < 40
    assert 0 < frames.max() < 9
    assert len(set(bins.tolist())) > 2
    (again, _) = next(iter(loader))
    assert not torch.equal(again == 0, hidden)


class Louder(torchaudio_stand_in.Vol):
    def forward(self, waveform: Any) -> Any:
        return super().forward(waveform) * 0.5


class Derived(torchaudio_stand_in.Spectrogram):
    pass


def hooked(module: Any) -> Any:
    module.register_forward_hook(lambda _module, _given, made: made * 2)
    return module


def changed(module: Any, name: str, value: Any) -> Any:
    owner, _, last = name.rpartition(".")
    setattr(module.get_submodule(owner), last, value)
    return module


def in_place(module: Any, tensor: Callable[[Any], Any]) -> Any:
    tensor(module)[1] *= 1.001
    return module


class Doubles(nn.Module):
    def forward(self, waveform: Any) -> Any:
        return waveform.double()


def halved(module: Any) -> Any:
    module.window = module.window.double() / 2
    return module


STAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "a subclass": (lambda: Louder(1.0), "a subclass of Vol may do something else"),
    "a hook": (lambda: hooked(A.Vol(0.5)), "has hooks"),
    "a hook inside": (lambda: (m := A.MelSpectrogram(n_mels=20), hooked(m.mel_scale))[0], "has hooks"),
    "a method": (lambda: changed(A.Vol(0.5), "forward", lambda waveform: waveform), "methods were replaced"),
    "a window": (lambda: A.Spectrogram(wkwargs={"periodic": False}), "window"),
    "a window that was changed": (lambda: in_place(A.Spectrogram(), lambda t: t.window), "window"),
    "filters": (
        lambda: in_place(A.MelSpectrogram(n_mels=20), lambda t: t.mel_scale.fb),
        "its fb was changed",
    ),
    "a filter": (
        lambda: in_place(A.Resample(16000, 8000), lambda t: t.kernel[0, 0]),
        "kernel was changed",
    ),
    "cosines": (
        lambda: in_place(A.MFCC(melkwargs={"n_mels": 40}), lambda t: t.dct_mat),
        "dct_mat was changed",
    ),
    "a reference": (
        lambda: nn.Sequential(A.Spectrogram(), changed(A.AmplitudeToDB(), "amin", 1e-5)),
        "its reference was changed",
    ),
    "another part": (
        lambda: changed(A.MelSpectrogram(n_mels=20), "spectrogram", Derived()),
        "in the place of Spectrogram",
    ),
    "autograd": (
        lambda: (m := A.Spectrogram(), m.window.requires_grad_(True))[0],
        "no plain float32 tensor",
    ),
    "doubles": (lambda: nn.Sequential(Doubles(), A.Spectrogram().double()), "Python code"),
    "a window of doubles": (lambda: halved(A.Spectrogram()), "no plain float32 tensor"),
    "complex": (lambda: A.Spectrogram(power=None), "power is None"),
    "another power": (lambda: A.Spectrogram(power=0.7), "power is 0.7"),
    "masks of each channel": (
        lambda: nn.Sequential(A.Spectrogram(), A.TimeMasking(1, iid_masks=True)),
        "iid_masks",
    ),
    "unknown": (lambda: A.Loudness(16000), "the engine has no such transform"),
    "another rate": (lambda: A.MelSpectrogram(8000, n_mels=20), "is for 8000 Hz"),
    "a spectrum of a spectrum": (lambda: nn.Sequential(A.Spectrogram(), A.Vol(0.5)), "stands on a spectrum"),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_is_not_known_stays_in_python(tmp_path: pathlib.Path, case: str) -> None:
    make, words = STAYS[case]
    dataset = Files(paths_of(tmp_path), make())
    torch.manual_seed(1)
    loader = wf.feed(Stock(dataset, batch_size=3))
    ours = [(made.detach(), labels) for made, labels in loader]
    assert words in words_of(loader), words_of(loader)
    torch.manual_seed(1)
    theirs = [(made.detach(), labels) for made, labels in Stock(dataset, batch_size=3)]
    # What comes before may be the engine's.
    if "masks" not in case:
        near(ours, theirs, case == "a reference")


def test_a_transform_that_is_changed_later_is_seen(tmp_path: pathlib.Path) -> None:
    dataset = Files(paths_of(tmp_path), A.Vol(0.5))
    loader = wf.feed(Stock(dataset, batch_size=7))
    (before, _) = next(iter(loader))
    dataset.transform.gain = 0.25
    (after, _) = next(iter(loader))
    assert same(after, before / 2)
    assert kind_of(loader) == "native"
    hooked(dataset.transform)
    (doubled, _) = next(iter(loader))
    assert same(doubled, before)
    assert kind_of(loader) == "partly"
    dataset.transform = None
    assert same(next(iter(loader))[0], next(iter(Stock(dataset, batch_size=7)))[0])


class Parts(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio_stand_in.load(self.paths[index], num_frames=100)
        return waveform, index


class Means(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if rate > 8000:
            waveform = waveform / 2
        return waveform, index


def test_code_that_is_not_known_runs_as_ever(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path)
    check(Parts(paths), "Python", batch_size=3)
    check(Means(paths), "Python", batch_size=3)
    (tmp_path / "5.wav").rename(tmp_path / "5.mp3")
    paths[5] = str(tmp_path / "5.mp3")
    check(Files(paths), "partly", batch_size=3)
    loader = wf.feed(Stock(Files([*paths[5:6] * 3]), batch_size=3))
    assert "3 of 3 files have other formats than WAV or FLAC" in words_of(loader)


def test_random_numbers_of_others_stay_theirs(tmp_path: pathlib.Path) -> None:
    dataset = Files(paths_of(tmp_path), A.MelSpectrogram(n_mels=20))
    states = []
    for feed in (lambda loader: loader, wf.feed):
        torch.manual_seed(5)
        random.seed(5)
        list(feed(Stock(dataset, batch_size=3, shuffle=True)))
        states.append((torch.get_rng_state().tolist(), random.getstate()))
    assert states[0] == states[1]
