"""Data sets of torchaudio under `wf.feed`.

torchaudio needs a decoder that is not installed here, so a module with its names, parameters and values stands in.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, ConcatDataset, RandomSampler, Subset, random_split
from torch.utils.data import DataLoader as Stock

import torchaudio_stand_in
import wellfed as wf
from fed_loaders import check, kind_of, words_of
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
