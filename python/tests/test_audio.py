"""Sounds from files to batches, held against a definition in NumPy and, where there is one, against torchaudio."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import wellfed as wf
from sounds import Floats, floats, noise, write
from wellfed import transforms as T


@pytest.fixture
def sounds(tmp_path: pathlib.Path) -> tuple[list[pathlib.Path], list[npt.NDArray[np.int16]]]:
    """Twelve sounds of one channel that differ in length."""
    samples = [noise(i, 1, 500 + 137 * i) for i in range(12)]
    return [write(tmp_path / f"{i:02}.wav", one) for i, one in enumerate(samples)], samples


def power(signal: Floats, n_fft: int, hop: int) -> npt.NDArray[np.float64]:
    """A power spectrogram ``[bins, frames]`` by its definition."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    padded = np.pad(signal.astype(np.float64), n_fft // 2, mode="reflect")
    starts = range(0, len(padded) - n_fft + 1, hop)
    frames = np.stack([padded[at : at + n_fft] * window for at in starts])
    return np.abs(np.fft.rfft(frames)).T ** 2


def test_a_folder_of_classes(tmp_path: pathlib.Path) -> None:
    made = {}
    for number, name in enumerate(("no", "yes")):
        (tmp_path / name).mkdir()
        made[number] = noise(number, 2, 300)
        write(tmp_path / name / "a.wav", made[number])
        (tmp_path / name / "notes.txt").write_text("no sound")
    ds = wf.audio_folder(tmp_path)
    assert (ds.classes, len(ds)) == (["no", "yes"], 2)
    for index in range(2):
        audio, label = ds.sample(index)
        assert audio.dtype == np.float32
        np.testing.assert_array_equal(audio, floats(made[index]))
        assert label == index
    flat = wf.audio_folder(tmp_path, labels=None)
    np.testing.assert_array_equal(flat.sample(1), floats(made[1]))
    again = wf.Dataset.from_json(ds.to_json())
    np.testing.assert_array_equal(again.sample(1)[0], floats(made[1]))


def test_parts_of_files_with_labels_and_texts(tmp_path: pathlib.Path) -> None:
    whole = noise(1, 1, 4000)
    path = write(tmp_path / "a.wav", whole)
    ds = wf.audio_files(
        [path, path, path],
        labels=(3, 4, 5),
        offsets=[0, 0.1, 0.25],
        durations=[0.05, float("nan"), 9],
        texts=["one", "zwölf", ""],
    )
    for index, (start, end) in enumerate([(0, 400), (800, 4000), (2000, 4000)]):
        audio, label, text = ds.sample(index)
        np.testing.assert_array_equal(audio, floats(whole[:, start:end]))
        assert (label, text) == (3 + index, ["one", "zwölf", ""][index])


def test_batches_are_padded_with_lengths_ragged_or_lists(sounds: Any) -> None:
    paths, samples = sounds
    ds = wf.audio_files(paths, labels=range(12))
    for number, (audio, _labels) in enumerate(ds.padded_batch(5, lengths=True).numpy()):
        audio, lengths = audio
        expected = samples[5 * number : 5 * number + 5]
        assert lengths.tolist() == [one.shape[1] for one in expected]
        assert audio.shape == (len(expected), 1, max(lengths))
        for row, one in zip(audio, expected, strict=True):
            np.testing.assert_array_equal(row[:, : one.shape[1]], floats(one))
            assert not row[:, one.shape[1] :].any()
    flat = wf.audio_files(paths).map(T.ToMono(keepdim=False))
    (ragged,) = flat.take(3).ragged_batch(3).numpy()
    np.testing.assert_array_equal(ragged.values, np.concatenate([floats(one[0]) for one in samples[:3]]))
    fixed = wf.audio_files(paths).map(T.PadOrTrim(600)).batch(4)
    shapes = [batch.shape for batch in fixed.numpy()]
    assert shapes == [(4, 1, 600)] * 3


def test_spectra_are_those_of_the_definition(sounds: Any) -> None:
    paths, samples = sounds
    spectrogram = T.Spectrogram(n_fft=128, hop_length=40)
    for index in (0, 7):
        made = wf.audio_files(paths).map(spectrogram).sample(index)[0]
        expected = power(floats(samples[index][0]), 128, 40)
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)
        decibels = wf.audio_files(paths).map(spectrogram, T.AmplitudeToDB(top_db=60)).sample(index)[0]
        logs = 10 * np.log10(np.maximum(expected, 1e-10))
        np.testing.assert_allclose(decibels, np.maximum(logs, logs.max() - 60), atol=1e-2)
        turned = wf.audio_files(paths).map(spectrogram, T.TimeFirst()).sample(index)[0]
        np.testing.assert_array_equal(turned, made.T)
    half = wf.audio_files(paths).map(spectrogram, T.ToDtype("float16")).sample(0)
    assert half.dtype == np.float16
    (batch,) = (
        wf.audio_files(paths[:3])
        .map(T.ToMono(keepdim=False), spectrogram)
        .padded_batch(3, lengths=True)
        .numpy()
    )
    values, lengths = batch
    assert values.shape == (3, 65, lengths.max())
    assert lengths.tolist() == [one.shape[1] // 40 + 1 for one in samples[:3]]


CHAINS = [
    (T.Resample(8000, 16000), lambda A: A.Resample(8000, 16000)),
    (
        T.Resample(8000, 11025, lowpass_filter_width=16),
        lambda A: A.Resample(8000, 11025, lowpass_filter_width=16),
    ),
    (T.Spectrogram(power=1.0, normalized=True), lambda A: A.Spectrogram(power=1.0, normalized=True)),
    (
        T.MelSpectrogram(8000, n_fft=200, n_mels=23, norm="slaney", mel_scale="slaney"),
        lambda A: A.MelSpectrogram(8000, n_fft=200, n_mels=23, norm="slaney", mel_scale="slaney"),
    ),
    (
        T.MFCC(8000, 13, melkwargs={"n_fft": 200, "n_mels": 23}),
        lambda A: A.MFCC(8000, 13, melkwargs={"n_fft": 200, "n_mels": 23}),
    ),
    (
        T.LFCC(8000, n_filter=20, n_lfcc=10, log_lf=True),
        lambda A: A.LFCC(8000, n_filter=20, n_lfcc=10, log_lf=True),
    ),
    (T.Vol(6, "db"), lambda A: A.Vol(6, "db")),
    (T.Fade(100, 200, "half_sine"), lambda A: A.Fade(100, 200, "half_sine")),
]


@pytest.mark.parametrize("rates", [(8000, 16000), (8000, 7000), (8000, 11025)])
def test_filters_of_float32_are_those_of_torchaudios_function(sounds: Any, rates: tuple[int, int]) -> None:
    functional = pytest.importorskip("torchaudio.functional")
    torch = pytest.importorskip("torch")
    paths, samples = sounds
    for given in ({}, {"resampling_method": "sinc_interp_kaiser", "lowpass_filter_width": 16}):
        made = wf.audio_files(paths).map(T.Resample(*rates, **given, dtype=torch.float32)).sample(9)
        expected = functional.resample(torch.from_numpy(floats(samples[9])), *rates, **given).numpy()
        assert made.shape == expected.shape
        np.testing.assert_allclose(made, expected, atol=2e-6)


def test_standardized_sounds_have_no_mean_and_variance_1(sounds: Any) -> None:
    paths, samples = sounds
    made = wf.audio_files(paths).map(T.Standardize()).sample(9)
    waveform = floats(samples[9]).astype(np.float64)
    expected = (waveform - waveform.mean(1, keepdims=True)) / np.sqrt(waveform.var(1, keepdims=True) + 1e-7)
    np.testing.assert_allclose(made, expected, atol=1e-5)
    with pytest.raises(ValueError, match="eps is 0; must be finite and above 0"):
        T.Standardize(0)
    with pytest.raises(ValueError, match="dtype is 'float16'; it must be 'float64', 'float32'"):
        T.Resample(dtype="float16")


@pytest.mark.parametrize(("ours", "theirs"), CHAINS, ids=lambda case: type(case).__name__)
def test_values_are_torchaudios(sounds: Any, ours: T.Transform, theirs: Any) -> None:
    transforms = pytest.importorskip("torchaudio.transforms")
    torch = pytest.importorskip("torch")
    paths, samples = sounds
    made = wf.audio_files(paths).map(ours).sample(9)
    expected = theirs(transforms)(torch.from_numpy(floats(samples[9]))).numpy()
    assert made.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(made, expected, atol=2e-4 * scale)


def epoch(ds: wf.Dataset, number: int) -> list[Any]:
    loader = ds.numpy()
    loader.set_epoch(number)
    return [batch.copy() for batch in loader]


def test_segments_are_drawn_by_seed_epoch_and_sample_and_decoded_alone(sounds: Any) -> None:
    paths, samples = sounds
    ds = wf.audio_files(paths).map(T.RandomSegment(400, pad_if_needed=True)).shuffle(seed=5)
    first = epoch(ds.batch(12), 0)
    np.testing.assert_array_equal(first, epoch(ds.batch(12), 0))
    np.testing.assert_array_equal(first, epoch(ds.with_options(optimize=False).batch(12), 0))
    assert not np.array_equal(first, epoch(ds.batch(12), 1))
    assert "only what RandomSegment takes" in ds.batch(12).explain()
    order = (
        wf.audio_files(paths, labels=range(12)).map(T.RandomSegment(400, pad_if_needed=True)).shuffle(seed=5)
    )
    (audio, labels) = next(iter(order.batch(12).numpy()))
    for one, label in zip(audio, labels, strict=True):
        whole = floats(samples[label][0])
        assert any(np.array_equal(whole[at : at + 400], one[0]) for at in range(len(whole) - 399))


def test_verbs_keep_every_sound_once(sounds: Any) -> None:
    paths, _ = sounds
    ds = wf.audio_files(paths, labels=range(12)).map(T.Resample(new_freq=4000)).shuffle(seed=3)
    whole = {int(label): audio for audio, label in (ds.sample(i) for i in range(12))}
    assert sorted(whole) == list(range(12))
    for parts in ([ds.take(5), ds.skip(5)], [ds.shard(0, 3), ds.shard(1, 3), ds.shard(2, 3)]):
        seen = []
        for part in parts:
            for (audio, lengths), labels in part.padded_batch(4, lengths=True).numpy():
                for row, length, label in zip(audio, lengths, labels, strict=True):
                    np.testing.assert_array_equal(row[:, :length], whole[int(label)])
                    seen.append(int(label))
        assert sorted(seen) == list(range(12))
    loader = ds.padded_batch(2).numpy()
    iterator = iter(loader)
    for _ in range(2):
        next(iterator)
    state = loader.state_dict()
    rest = [labels.tolist() for _, labels in iterator]
    other = ds.padded_batch(2).numpy()
    other.load_state_dict(state)
    assert [labels.tolist() for _, labels in other] == rest


def test_damaged_files_follow_the_policy(sounds: Any) -> None:
    paths, _ = sounds
    paths[4].write_bytes(b"RIFF is not enough")
    cut = paths[7].read_bytes()
    paths[7].write_bytes(cut[: len(cut) // 2])
    ds = wf.audio_files(paths, labels=range(12))
    with pytest.raises(wf.CorruptSampleError) as caught:
        list(ds.padded_batch(12).numpy())
    assert caught.value.key == str(paths[4])
    assert caught.value.stage == "decode"
    assert "audio_files(12 paths)" in str(caught.value)
    loader = ds.with_options(on_error="skip").padded_batch(12).numpy()
    ((_, labels),) = loader
    assert 4 not in labels.tolist()
    assert {bad.index for bad in loader.errors()} >= {4}
    missing = wf.audio_files([paths[0].with_name("none.wav")])
    with pytest.raises(FileNotFoundError, match=r"none\.wav"):
        missing.sample(0)


def test_sizes_are_checked_before_there_is_memory_for_them(sounds: Any) -> None:
    paths, _ = sounds
    ds = wf.audio_files(paths[:1]).with_options(max_bytes=4000)
    assert ds.sample(0).shape == (1, 500)
    with pytest.raises(wf.LimitExceededError, match="4000"):
        ds.map(T.Resample(new_freq=80_000)).sample(0)
    with pytest.raises(wf.LimitExceededError, match="PadOrTrim"):
        wf.audio_files(paths[:1]).map(T.PadOrTrim(1 << 38)).sample(0)


def test_wrong_use_is_told(sounds: Any, tmp_path: pathlib.Path) -> None:
    paths, _ = sounds
    ds = wf.audio_files(paths)
    for transforms, message in [
        ((T.RandomHorizontalFlip(),), "RandomHorizontalFlip moves boxes|works on"),
        ((T.Normalize([0.5], [0.5]),), "Normalize works on images"),
        ((T.Spectrogram(), T.Resample()), "Resample.*works on waveforms|works on waveforms"),
        ((T.Resample(new_freq=8000), T.MelSpectrogram()), "a sound of 8000 Hz, and sample_rate is 16000"),
        ((T.ToDtype("uint8"),), "sounds are floating point"),
    ]:
        with pytest.raises(ValueError, match=message):
            ds.map(*transforms).padded_batch(2).numpy()
    with pytest.raises(ValueError, match="sample_rate is 16000"):
        ds.map(T.MelSpectrogram()).sample(0)
    with pytest.raises(ValueError, match=r"differs in length[^\n]*\n.*padded_batch"):
        ds.batch(2).numpy()
    with pytest.raises(ValueError, match="orig_freq is 44100"):
        ds.map(T.Resample(44100, 16000)).sample(0)
    stereo = write(tmp_path / "stereo.wav", noise(0, 2, 300))
    mixed = wf.audio_files([paths[0], stereo]).padded_batch(2).numpy()
    with pytest.raises(ValueError, match="a sound of 2 channels, where others have 1"):
        list(mixed)
    (both,) = wf.audio_files([paths[0], stereo]).map(T.ToMono()).padded_batch(2).numpy()
    assert both.shape == (2, 1, 500)
    with pytest.raises(ValueError, match="begins at 9"):
        wf.audio_files(paths[:1], offsets=[9]).sample(0)
    with pytest.raises(ValueError, match="offsets"):
        wf.audio_files(paths, offsets=[0])
    with pytest.raises(TypeError, match="audio_folder"):
        wf.audio_files("a.wav")
    with pytest.raises(TypeError, match="works on the sounds of a data set"):
        T.Vol(2)(np.zeros((3, 3, 3), np.uint8))
    for make, message in [
        (lambda: T.MelSpectrogram(n_mels=0), "n_mels"),
        (lambda: T.Spectrogram(power=None), "complex"),
        (lambda: T.Spectrogram(window_fn="kaiser"), "window_fn is kaiser"),
        (lambda: T.MFCC(n_mfcc=200), "200"),
        (lambda: T.Resample(new_freq=0), "new_freq"),
        (lambda: T.Vol(1, "loud"), "gain_type"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            make()


def test_explain_tells_the_stages(sounds: Any) -> None:
    text = (
        wf.audio_files(sounds[0])
        .map(T.Resample(new_freq=16_000), T.MelSpectrogram(n_mels=80), T.AmplitudeToDB())
        .padded_batch(4)
        .explain()
    )
    for part in ("decode to float32", "Resample(", "MelSpectrogram(", "AmplitudeToDB(", "float32 [1, 80, *]"):
        assert part in text, text


def test_manifests(tmp_path: pathlib.Path) -> None:
    samples = noise(2, 1, 1600)
    write(tmp_path / "a.wav", samples)
    lines = [
        {"audio_filepath": "a.wav", "duration": 0.1, "text": "eins"},
        {"audio_filepath": str(tmp_path / "a.wav"), "offset": 0.1, "duration": 0.05, "text": "zwei"},
    ]
    nemo = tmp_path / "train.json"
    nemo.write_text("\n".join(map(json.dumps, lines)))
    table = tmp_path / "train.csv"
    table.write_text("path,start,length,words\na.wav,,0.1,eins\na.wav,0.1,0.05,zwei\n")
    for ds in (
        wf.audio_manifest(nemo),
        wf.audio_manifest(table, audio="path", offset="start", duration="length", text="words"),
    ):
        assert len(ds) == 2
        first, second = ds.sample(0), ds.sample(1)
        np.testing.assert_array_equal(first[0], floats(samples[:, :800]))
        np.testing.assert_array_equal(second[0], floats(samples[:, 800:1200]))
        assert (first[1], second[1]) == ("eins", "zwei")
    nemo.write_text('{"audio": "a.wav"}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*train\.json has no audio_filepath"):
        wf.audio_manifest(nemo)
    nemo.write_text("{\n")
    with pytest.raises(ValueError, match="is no JSON"):
        wf.audio_manifest(nemo)


EXAMPLES = [
    T.ToMono(keepdim=False),
    T.Resample(8000, 16000, "sinc_interp_kaiser", 16, 0.9, 8.5),
    T.Resample(8000, 16000, dtype="float32"),
    T.Standardize(1e-5),
    T.Vol(0.5, "power"),
    T.Fade(3, 4, "exponential"),
    T.PadOrTrim(5),
    T.RandomSegment(7, True),
    T.Spectrogram(512, 400, 160, 3, "hamming_window", 1.0, "frame_length", None, False, "constant", False),
    T.MelSpectrogram(8000, 256, n_mels=20, f_min=20, f_max=3000, norm="slaney", mel_scale="slaney"),
    T.MFCC(n_mfcc=13, norm=None, log_mels=True, melkwargs={"n_mels": 23, "window_fn": "ones"}),
    T.LFCC(n_filter=30, n_lfcc=12, speckwargs={"n_fft": 200}),
    T.AmplitudeToDB("magnitude", 70),
    T.FrequencyMasking(5),
    T.TimeMasking(9, p=0.5),
    T.TimeFirst(),
    T.WhisperLogMel(128),
    T.KaldiFbank(num_mel_bins=80, scale=32768, window_type="hamming", use_energy=True),
    T.KaldiMFCC(num_ceps=12, cepstral_lifter=0),
    T.AddNoise(["a.wav", [0.5, -0.25]], (5, 20), 0.5),
    T.Convolve([[0.5, 0.0, 0.25, -0.125]], "same"),
    T.Speed(16_000, 1.1),
    T.SpeedPerturbation(None, (0.9, 1.1)),
    T.MuLawEncoding(128),
    T.MuLawDecoding(),
    T.MelScale(23, 8000, 20, 3000, 129, "slaney", "slaney"),
    T.SpecAugment(1, 2, 3, 4, False, 0.5, True),
    T.Vad(16_000, trigger_level=5, measure_duration=0.08),
    T.PitchShift(16_000, -2.5, 24, 400, 300, 100, "hamming_window"),
    T.TimeStretch(128, 257, 1.25),
    T.TimeStretch(fixed_rate=(0.8, 1.25)),
]


@pytest.mark.parametrize("transform", EXAMPLES, ids=lambda t: type(t).__name__)
def test_text_forms_survive(transform: T.Transform) -> None:
    assert T.Transform.from_plan(json.loads(json.dumps(transform.to_plan()))) == transform
    assert eval(repr(transform), vars(T).copy()) == transform
    assert hash(transform) == hash(T.Transform.from_plan(transform.to_plan()))


@pytest.mark.parametrize("transform", EXAMPLES, ids=lambda t: type(t).__name__)
def test_parameters_and_defaults_are_torchaudios(transform: T.Transform) -> None:
    inspect = pytest.importorskip("inspect")
    theirs = getattr(pytest.importorskip("torchaudio.transforms"), type(transform).__name__, None)
    if theirs is None:
        pytest.skip("torchaudio has none of this name")
    if isinstance(transform, (T.AddNoise, T.Convolve)):
        pytest.skip("torchaudio's takes the other sound with each call")
    ours = inspect.signature(type(transform)).parameters
    parameters = inspect.signature(theirs).parameters
    assert list(ours) == list(parameters)
    for name, parameter in parameters.items():
        # The window, and the rate of `Resample`, which are said to differ.
        differs = ("window_fn", *(["orig_freq"] * isinstance(transform, T.Resample)))
        if name not in differs:
            assert ours[name].default == parameter.default, name
