"""Data sets of the user's that load sounds and call torchaudio's transforms, under `wf.feed`.

torchaudio needs a decoder that is not installed here, so a module with its names, parameters and values stands in.
"""

from __future__ import annotations

import pathlib
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Dataset

import torchaudio_stand_in
import wellfed as wf
from fed_loaders import both, check, kind_of, near, words_of
from sounds import noise, write
from torch_same import same


@pytest.fixture(autouse=True, name="torchaudio")
def _put_in_place(monkeypatch: pytest.MonkeyPatch) -> Any:
    return torchaudio_stand_in.put_in_place(monkeypatch)


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
    "lfcc": lambda: A.LFCC(n_lfcc=13, n_filter=32, speckwargs={"n_fft": 512, "hop_length": 160}),
    "lfcc of logarithms": lambda: A.LFCC(
        n_lfcc=20, n_filter=30, f_min=100.0, f_max=7000.0, log_lf=True, norm=None
    ),
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
    "linear filters": (
        lambda: in_place(A.LFCC(n_filter=40), lambda t: t.filter_mat),
        "filter_mat was changed",
    ),
    "cosines of linear filters": (
        lambda: in_place(A.LFCC(n_filter=40), lambda t: t.dct_mat),
        "dct_mat was changed",
    ),
    "linear filters of both halves": (
        lambda: changed(A.LFCC(n_filter=40), "Spectrogram", Derived(onesided=True)),
        "in the place of Spectrogram",
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


def test_what_torch_makes_by_default_may_change(tmp_path: pathlib.Path) -> None:
    dataset = Files(paths_of(tmp_path), A.MelSpectrogram(n_mels=21))
    theirs = list(Stock(dataset, batch_size=3))
    torch.set_default_dtype(torch.float64)
    try:
        near(list(wf.feed(Stock(dataset, batch_size=3))), theirs)
    finally:
        torch.set_default_dtype(torch.float32)


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


class Guarded(Files):
    """What scripts do to files of any kind."""

    rate = 8000

    def mixed(self, waveform: Any) -> Any:
        if waveform.shape[0] > 1:
            waveform = torch.mean(waveform, dim=0, keepdim=True)
        return waveform

    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if rate != self.rate:
            resample = torchaudio_stand_in.Resample(rate, self.rate)
            waveform = resample(waveform)
            rate = self.rate
        waveform = self.mixed(waveform)
        return self.transform(waveform), rate, index


class Means(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return torchaudio_stand_in.Resample(rate, 8000)(waveform.mean(0, True)).mean(dim=0), index


class Functional(Files):
    """Torchaudio's filters are others there, of float32."""

    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if rate != 8000:
            waveform = torchaudio_stand_in.resample(waveform, rate, 8000)
        return waveform, index


class Filtered(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return torchaudio_stand_in.resample(waveform, rate, new_freq=7000, rolloff=0.9), index


class BetweenRates(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio_stand_in.load(self.paths[index])
        return self.transform(torchaudio_stand_in.resample(waveform, 16000, 11025, 9)), index


class ByAnotherFilter(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return torchaudio_stand_in.resample(waveform, rate, 8000, index + 1), index


def test_the_function_that_resamples_is_the_engines(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path, channels=2)
    for kind in (Functional, Filtered, BetweenRates):
        theirs, ours, loader = both(kind(paths, A.Vol(0.5)), batch_size=3)
        assert kind_of(loader) == "native", words_of(loader)
        for (one, labels), (other, expected) in zip(ours[0], theirs[0], strict=True):
            # Filters of float64 are further than this from those of float32.
            assert (one - other).abs().max() < 2e-6
            assert same(labels, expected)
    # Files of another rate than it is told are left to the data set, which resamples them in the same way.
    write(pathlib.Path(paths[2]), noise(2, 2, 6000), 8000)
    theirs, ours, loader = both(BetweenRates(paths, A.Vol(0.5)), batch_size=3)
    assert kind_of(loader) != "native"
    near(ours[0], theirs[0])


class WithoutGradients(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        with torch.no_grad():
            return self.transform(waveform), rate


class Decorated(Files):
    @torch.no_grad()
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return self.transform(waveform), rate


class Inferred(Files):
    @torch.inference_mode()
    def made(self, waveform: Any) -> Any:
        return self.transform(waveform)

    def __getitem__(self, index: int) -> Any:
        with torch.inference_mode(mode=True):
            waveform, rate = torchaudio_stand_in.load(self.paths[index])
            made = self.made(waveform)
        return made, rate


class TurnedOn(Files):
    def __getitem__(self, index: int) -> Any:
        with torch.inference_mode(False):
            waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return waveform, rate


class Weights(Files):
    """What stands beside the sound would have a gradient outside of its block."""

    weights: Any = torch.nn.Parameter(torch.ones(9))

    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio_stand_in.load(self.paths[index])
        with torch.no_grad():
            return waveform, self.weights[index] * 2


@pytest.mark.parametrize("kind", [WithoutGradients, Decorated, Inferred])
def test_code_without_gradients_is_read(tmp_path: pathlib.Path, kind: type) -> None:
    dataset = kind(paths_of(tmp_path), A.Vol(0.5))
    check(dataset, "native", batch_size=3)
    check(dataset, "native", batch_size=3, shuffle=True)


def test_blocks_that_may_have_gradients_stay_in_python(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path)
    check(TurnedOn(paths), "Python", batch_size=3)
    assert "gradients" in words_of(wf.feed(Stock(TurnedOn(paths), batch_size=3)))
    loader = wf.feed(Stock(Weights(paths), batch_size=3))
    assert kind_of(loader) == "Python", words_of(loader)
    assert not any(weights.requires_grad for _, weights in loader)


def test_files_of_any_rate_and_channels_are_made_alike(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path)
    write(pathlib.Path(paths[1]), noise(1, 2, 12000), 16000)
    write(pathlib.Path(paths[2]), noise(2, 2, 6000), 8000)
    write(pathlib.Path(paths[3]), noise(3, 1, 33075), 44100)
    for number in (0, 4, 5, 6):
        write(pathlib.Path(paths[number]), noise(number, 1, 6000), 8000)
    dataset = Guarded(paths, A.MelSpectrogram(8000, n_fft=256, n_mels=20))
    for arguments in ({"batch_size": 1}, {"batch_size": 7, "collate_fn": list}):
        theirs, ours, loader = both(dataset, **arguments)
        assert kind_of(loader) == ("native" if arguments["batch_size"] == 1 else "partly"), words_of(loader)
        for one, other in zip(ours[0], theirs[0], strict=True):
            if isinstance(one, tuple | list) and isinstance(one[0], tuple):
                near([sample[:2] for sample in one], [sample[:2] for sample in other])
            else:
                near([one[:2]], [other[:2]])
                assert same(one[2], other[2])
    theirs, ours, loader = both(Means(paths), batch_size=1)
    assert kind_of(loader) == "native", words_of(loader)
    near(ours[0], theirs[0])


def test_a_transform_for_one_rate_is_torchaudios_where_files_have_several(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path)
    write(pathlib.Path(paths[4]), noise(4, 1, 6000), 8000)
    dataset = Files(paths, nn.Sequential(A.Vol(0.5), A.MelSpectrogram(16000, n_mels=20)))
    theirs, ours, loader = both(dataset, batch_size=3)
    near(ours[0], theirs[0])
    assert kind_of(loader) == "partly", words_of(loader)
    assert "files have several sample rates" in words_of(loader)
    # One among many is seen when its turn comes.
    many = Files([*(paths[:1] * 201), paths[4], *(paths[:1] * 98)], dataset.transform)
    theirs, ours, loader = both(many, batch_size=50)
    near(ours[0], theirs[0])
    assert kind_of(loader) == "native", words_of(loader)
    assert "1 batches so far" in words_of(loader) or "2 batches so far" in words_of(loader)


class Twice(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        return waveform.mean(0).mean(0), rate


class Silenced(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if rate != 8000:
            waveform = torch.zeros(1, 5)
        return waveform, rate


class Late(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        waveform = A.Resample(16000, 8000)(waveform)
        return torchaudio_stand_in.Resample(rate, 4000)(waveform), index


class First(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if waveform.shape[0] > 1:
            waveform = waveform.mean(0)
        return waveform, rate


@pytest.mark.parametrize("kind", [Twice, Silenced, Late, First, ByAnotherFilter])
def test_what_depends_on_the_file_otherwise_stays_in_python(tmp_path: pathlib.Path, kind: type) -> None:
    check(kind(paths_of(tmp_path, channels=2)), "Python", batch_size=3)


class Parts(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, _ = torchaudio_stand_in.load(self.paths[index], num_frames=100)
        return waveform, index


class Halves(Files):
    def __getitem__(self, index: int) -> Any:
        waveform, rate = torchaudio_stand_in.load(self.paths[index])
        if rate > 8000:
            waveform = waveform / 2
        return waveform, index


def test_code_that_is_not_known_runs_as_ever(tmp_path: pathlib.Path) -> None:
    paths = paths_of(tmp_path)
    check(Parts(paths), "Python", batch_size=3)
    check(Halves(paths), "Python", batch_size=3)
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
