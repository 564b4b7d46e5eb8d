"""Transforms of sounds that draw, convolve, add noise, encode and cut, and masks of padded batches."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import wellfed as wf
from sounds import Floats, floats, noise, write
from wellfed import transforms as T

RATE = 8000


@pytest.fixture
def sounds(tmp_path: pathlib.Path) -> tuple[list[pathlib.Path], list[Floats]]:
    """Forty sounds of one channel that differ in length, and their samples."""
    samples = [noise(i, 1, 500 + 37 * i) for i in range(40)]
    paths = [write(tmp_path / f"{i:02}.wav", one, RATE) for i, one in enumerate(samples)]
    return paths, [floats(one) for one in samples]


def every(ds: wf.Dataset, workers: int = 1, epoch: int = 0) -> list[Any]:
    """All samples of an epoch, in their order."""
    loader = ds.with_options(num_workers=workers).padded_batch(8, lengths=True).numpy()
    loader.set_epoch(epoch)
    made = []
    for values, lengths in loader:
        made += [values[i, ..., :length].copy() for i, length in enumerate(lengths)]
    return made


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


RESPONSE = np.array([0.5, 0.0, 0.25, -0.125], np.float32)
HISS = (np.random.default_rng(5).standard_normal(700) * 0.1).astype(np.float32)

DRAWING = [
    T.AddNoise([HISS, HISS[:50] ** 3], (0, 30), p=0.8),
    T.Convolve([RESPONSE, HISS], p=0.8),
    T.SpeedPerturbation(RATE, [0.9, 1.0, 1.1]),
]


@pytest.mark.parametrize("transform", DRAWING, ids=lambda t: type(t).__name__)
def test_draws_are_of_seed_epoch_and_sample_whatever_the_threads(sounds: Any, transform: T.Transform) -> None:
    paths, samples = sounds
    assert transform.random
    ds = wf.audio_files(paths).map(transform).with_options(seed=3)
    first = every(ds)
    assert same(first, every(ds, workers=4))
    assert same(first, every(ds.with_options(optimize=False)))
    assert same(first, every(pickle.loads(pickle.dumps(ds))))
    assert not same(first, every(ds, epoch=1))
    assert not same(first, every(ds.with_options(seed=4)))
    assert not same(first, samples)
    # Each sample alone is what it is in a batch.
    np.testing.assert_array_equal(ds.sample(7), first[7])


def test_noise_has_the_ratio_that_is_asked_for_and_comes_from_arrays_or_files(
    sounds: Any, tmp_path: pathlib.Path
) -> None:
    paths, samples = sounds
    other = noise(99, 2, 9000)
    (tmp_path / "noise").mkdir()
    file = write(tmp_path / "noise" / "street.wav", other, 2 * RATE)
    for where in ([HISS], [file], [str(file), HISS.astype(np.float64)]):
        ratios = []
        for one, clean in zip(
            every(wf.audio_files(paths).map(T.AddNoise(where, (5, 20)))), samples, strict=True
        ):
            added = one.astype(np.float64) - clean
            ratios.append(10 * np.log10((clean.astype(np.float64) ** 2).sum() / (added**2).sum()))
        assert 4.9 < min(ratios) < 8
        assert 17 < max(ratios) < 20.1
    # Of one number, that ratio; of an array as long as a sound, that array.
    clean = samples[5]
    exact = T.AddNoise([HISS[: clean.shape[1]]], 10)
    made = wf.audio_files(paths[5:6]).map(exact).sample(0)
    energy = (clean**2).sum() / (HISS[: clean.shape[1]] ** 2).sum()
    expected = clean + HISS[: clean.shape[1]] * np.sqrt(energy * 10 ** (-10 / 10))
    np.testing.assert_allclose(made, expected, atol=1e-6)
    # A file is what an array of its mean, resampled, is.
    whole = wf.audio_files([file]).map(T.ToMono(keepdim=False), T.Resample(new_freq=RATE)).sample(0)
    by_file, by_array = (
        every(wf.audio_files(paths).map(T.AddNoise([one], (5, 20)))) for one in (file, np.asarray(whole))
    )
    for one, two in zip(by_file, by_array, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_responses_are_convolved_with(sounds: Any) -> None:
    paths, samples = sounds
    long = np.random.default_rng(0).standard_normal(400).astype(np.float32)
    for response in (RESPONSE, long, [0.5, 0.25]):
        for mode in ("full", "same", "valid"):
            ds = wf.audio_files(paths[:3]).map(T.Convolve([response], mode=mode))
            for one, clean in zip(every(ds), samples, strict=False):
                full = np.convolve(clean[0].astype(np.float64), np.asarray(response, np.float64))
                size = {"full": len(full), "same": clean.shape[1]}.get(
                    mode, clean.shape[1] - len(response) + 1
                )
                begin = (len(full) - size) // 2
                expected = full[begin : begin + size]
                assert one.shape == (1, size)
                np.testing.assert_allclose(one[0], expected, atol=2e-6 * np.abs(full).max())


def test_speed_is_torchaudios_and_its_lengths_are_known(sounds: Any) -> None:
    paths, samples = sounds
    lengths = {
        one.shape[1] for one in every(wf.audio_files(paths[:1] * 40).map(T.SpeedPerturbation(None, [0.5, 2])))
    }
    assert lengths == {1000, 250}
    transforms = pytest.importorskip("torchaudio.transforms")
    torch = pytest.importorskip("torch")
    made = wf.audio_files(paths).map(T.Speed(RATE, 1.1)).sample(9)
    expected, _ = transforms.Speed(RATE, 1.1)(torch.from_numpy(samples[9]))
    np.testing.assert_allclose(made, expected.numpy(), atol=1e-6)


def test_numbers_of_mu_law_are_int64_and_become_samples_again(sounds: Any) -> None:
    paths, samples = sounds
    ds = wf.audio_files(paths).map(T.MuLawEncoding())
    codes = every(ds)
    assert {one.dtype for one in codes} == {np.dtype(np.int64)}
    mu = 255.0
    for one, clean in zip(codes, samples, strict=True):
        curve = np.sign(clean) * np.log1p(mu * np.abs(clean)) / np.log1p(mu)
        expected = ((curve + 1) / 2 * mu + 0.5).astype(np.int64)
        assert np.abs(one - expected).max() <= 1
        assert (one == expected).mean() > 0.99
        assert one.min() >= 0
        assert one.max() <= 255
    # What is filled up is what was asked for, in the numbers' own dtype.
    (padded,) = wf.audio_files(paths[:2]).map(T.MuLawEncoding()).padded_batch(2, padding_values=128).numpy()
    assert padded.dtype == np.int64
    assert (padded[0, 0, 500:] == 128).all()
    for one, clean in zip(every(ds.map(T.MuLawDecoding())), samples, strict=True):
        assert one.dtype == np.float32
        assert 0 < np.abs(one - clean).max() < 0.03
    assert ds.map(T.ToDtype("float32")).sample(0).dtype == np.float32
    fixed = wf.audio_files(paths).map(T.PadOrTrim(600), T.MuLawEncoding()).batch(4)
    assert [(batch.dtype, batch.shape) for batch in fixed.numpy()] == [(np.dtype(np.int64), (4, 1, 600))] * 10


def test_a_mel_scale_is_the_filters_of_a_mel_spectrum(sounds: Any) -> None:
    paths, _ = sounds
    plain = wf.audio_files(paths).map(T.Spectrogram(256), T.MelScale(23, RATE, 20, n_stft=129, norm="slaney"))
    whole = wf.audio_files(paths).map(T.MelSpectrogram(RATE, 256, f_min=20, n_mels=23, norm="slaney"))
    for one, two in zip(every(plain), every(whole), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6 * np.abs(two).max())
    with pytest.raises(ValueError, match="a spectrum of 129 bins, and n_stft is 201"):
        wf.audio_files(paths).map(T.Spectrogram(256), T.MelScale(sample_rate=RATE)).sample(0)


def test_spec_augment_masks_with_the_mean_or_zero(sounds: Any) -> None:
    paths, _ = sounds
    spectrum = wf.audio_files(paths).map(T.Spectrogram(128, hop_length=16))
    clean = every(spectrum)
    for zero in (True, False):
        masks = T.SpecAugment(2, 12, 1, 9, zero_masking=zero)
        widths = []
        for one, whole in zip(every(spectrum.map(masks)), clean, strict=True):
            value = 0 if zero else whole.mean(dtype=np.float64)
            changed = one != whole
            np.testing.assert_allclose(one[changed], value, rtol=1e-5)
            frames, bins = changed[0].all(0), changed[0].all(1)
            assert (changed[0] == (frames[None] | bins[:, None])).all()
            widths.append((frames.sum(), bins.sum()))
        assert max(frames for frames, _ in widths) <= 22
        assert max(bins for _, bins in widths) <= 8
        assert len(set(widths)) > 10


def voice(begin: int, frames: int, rate: int) -> npt.NDArray[np.int16]:
    """Quiet noise, and a voice from a frame on."""
    time = np.arange(frames) / rate
    hum = sum(np.sin(2 * np.pi * 220 * harmonic * time) / harmonic for harmonic in range(1, 16))
    hiss = np.random.default_rng(begin).standard_normal(frames)
    return np.asarray(4000 * hum * (np.arange(frames) >= begin) + 3 * hiss, np.int16)[None]


def test_silence_before_a_voice_is_cut_off_as_torchaudio_does(tmp_path: pathlib.Path) -> None:
    starts = [12_000, 20_000, 31_000]
    samples = [voice(start, 48_000, 16_000) for start in starts] + [voice(48_000, 48_000, 16_000)]
    paths = [write(tmp_path / f"{i}.wav", one, 16_000) for i, one in enumerate(samples)]
    ds = wf.audio_files(paths).map(T.Vad(16_000))
    made = every(ds)
    for one, whole, start in zip(made, samples, starts, strict=False):
        begin = 48_000 - one.shape[1]
        assert start - 4_000 < begin < start + 1_000
        np.testing.assert_array_equal(one, floats(whole)[:, begin:])
    assert made[3].shape == (1, 0)
    early = every(wf.audio_files(paths).map(T.Vad(16_000, pre_trigger_time=0.1)))
    assert [len(one[0]) - len(two[0]) for one, two in zip(early, made, strict=True)] == [1600] * 4
    with pytest.raises(ValueError, match="a sound of 16000 Hz, and sample_rate is 8000"):
        wf.audio_files(paths).map(T.Vad(8_000)).sample(0)
    functional = pytest.importorskip("torchaudio.functional")
    torch = pytest.importorskip("torch")
    for one, whole in zip(made, samples, strict=True):
        np.testing.assert_array_equal(one, functional.vad(torch.from_numpy(floats(whole)), 16_000).numpy())


def test_pitch_and_speed_change_apart_from_each_other(tmp_path: pathlib.Path) -> None:
    tone = (20000 * np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)).astype(np.int16)[None]
    path = write(tmp_path / "a.wav", tone, 16_000)

    def peak(values: Floats) -> float:
        spectrum = np.abs(np.fft.rfft(values[0] * np.hanning(values.shape[1])))
        return float(spectrum.argmax() * 16_000 / values.shape[1])

    ds = wf.audio_files([path])
    higher = ds.map(T.PitchShift(16_000, 12)).sample(0)
    assert higher.shape == (1, 16_000)
    assert abs(peak(higher) - 880) < 3
    slower = ds.map(T.TimeStretch(100, fixed_rate=0.8)).sample(0)
    assert slower.shape == (1, 20_000)
    assert abs(peak(slower) - 440) < 3
    drawn = T.TimeStretch(100, fixed_rate=(0.8, 1.25))
    assert drawn.random
    assert not T.TimeStretch(100, fixed_rate=0.8).random
    lengths = {one.shape[1] for one in every(wf.audio_files([path] * 20).map(drawn))}
    assert len(lengths) > 10
    assert 12_800 <= min(lengths) <= max(lengths) <= 20_000
    functional = pytest.importorskip("torchaudio.functional")
    torch = pytest.importorskip("torch")
    for steps in (12, -5):
        made = ds.map(T.PitchShift(16_000, steps)).sample(0)
        expected = functional.pitch_shift(torch.from_numpy(floats(tone)), 16_000, steps).numpy()
        np.testing.assert_allclose(made, expected, atol=1e-3)


def test_padded_batches_have_masks(sounds: Any) -> None:
    paths, samples = sounds
    lengths = [one.shape[1] for one in samples]
    ds = wf.audio_files(paths, labels=range(40))
    batches = list(ds.padded_batch(8, mask=True, multiple_of=100).numpy())
    for number, ((values, mask), _) in enumerate(batches):
        assert mask.dtype == np.bool_
        assert mask.shape == (8, values.shape[-1])
        assert values.shape[-1] % 100 == 0
        for row, length in zip(mask, lengths[8 * number :], strict=False):
            assert row[:length].all()
            assert not row[length:].any()
    (values, found, mask), _ = next(iter(ds.padded_batch(8, lengths=True, mask=True).numpy()))
    assert found.tolist() == lengths[:8]
    np.testing.assert_array_equal(mask.sum(1), found)
    # Along time, wherever that is.
    spectrum = T.Spectrogram(128, hop_length=40)
    for order in ([], [T.TimeFirst()]):
        ds_of_spectra = wf.audio_files(paths).map(spectrum, *order)
        values, mask = next(iter(ds_of_spectra.padded_batch(4, mask=True).numpy()))
        frames = [length // 40 + 1 for length in lengths[:4]]
        assert mask.sum(1).tolist() == frames
        assert mask.shape == (4, values.shape[2 if order else 3])
    # Of arrays, too; and a field that does not vary has none.
    rows = wf.from_tensor_slices([[1, 2], [3], [4, 5, 6]])
    values, mask = next(iter(rows.padded_batch(3, mask=True).numpy()))
    assert mask.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    fixed = wf.audio_files(paths).map(T.PadOrTrim(600)).padded_batch(4, mask=True)
    assert next(iter(fixed.numpy())).shape == (4, 1, 600)
    again = pickle.loads(pickle.dumps(ds.padded_batch(8, mask=True)))
    np.testing.assert_array_equal(
        next(iter(again.numpy()))[0][1], next(iter(ds.padded_batch(8, mask=True).numpy()))[0][1]
    )
    for (values, mask), _ in ds.batch_by_duration(1.0, bucket_boundaries=[0.1], mask=True).numpy():
        assert mask.shape == (len(values), values.shape[-1])
        assert mask.any(0).all()


def test_masks_come_as_torchs_tensors(sounds: Any) -> None:
    torch = pytest.importorskip("torch")
    paths, samples = sounds
    values, mask = next(iter(wf.audio_files(paths).padded_batch(8, mask=True).torch()))
    assert mask.dtype == torch.bool
    assert mask.shape == (8, values.shape[-1])
    assert mask.sum(1).tolist() == [one.shape[1] for one in samples[:8]]


def test_spectra_come_as_float16(sounds: Any) -> None:
    paths, _ = sounds
    chain = [T.MelSpectrogram(RATE, 256, n_mels=23), T.AmplitudeToDB()]
    whole = wf.audio_files(paths).map(*chain)
    half = whole.map(T.ToDtype("float16"))
    for one, two in zip(every(half), every(whole), strict=True):
        assert one.dtype == np.float16
        np.testing.assert_array_equal(one, two.astype(np.float16))
    (batch,) = wf.audio_files(paths[:4]).map(T.PadOrTrim(600), *chain, T.ToDtype("float16")).batch(4).numpy()
    assert (batch.dtype, batch.shape) == (np.dtype(np.float16), (4, 1, 23, 5))
    with pytest.raises(ValueError, match="sounds are floating point"):
        whole.map(T.ToDtype("uint8")).padded_batch(4).numpy()


def test_wrong_use_is_told(sounds: Any, tmp_path: pathlib.Path) -> None:
    paths, _ = sounds
    ds = wf.audio_files(paths)
    for make, error, message in [
        (lambda: T.AddNoise([], 5), ValueError, "noise is empty"),
        (lambda: T.AddNoise(HISS, 5), TypeError, "noise is of type ndarray; it must be a list"),
        (lambda: T.AddNoise("a.wav", 5), TypeError, "noise is of type str; it must be a list"),
        (lambda: T.AddNoise([HISS[None]], 5), ValueError, r"noise\[0\] has the shape \[1, 700\]"),
        (lambda: T.AddNoise([HISS[:0]], 5), ValueError, r"noise\[0\] has no samples"),
        (lambda: T.AddNoise([HISS, [0.0, np.nan]], 5), ValueError, r"noise\[1\] has NaN at 1"),
        (lambda: T.AddNoise([noise(0, 1, 9)[0]], 5), TypeError, "dtype int16"),
        (lambda: T.AddNoise(["s3://b/a.wav"], 5), ValueError, "local file"),
        (lambda: T.AddNoise([HISS], (20, 5)), ValueError, "snr is"),
        (lambda: T.AddNoise([HISS], 5, p=2), ValueError, "p is 2"),
        (lambda: T.Convolve([HISS], mode="half"), ValueError, "mode"),
        (lambda: T.Speed(RATE, 0), ValueError, "factor is 0"),
        (lambda: T.SpeedPerturbation(RATE, []), ValueError, "factors has 0 numbers"),
        (lambda: T.SpeedPerturbation(RATE, 1.1), TypeError, "factors is 1.1"),  # type: ignore[arg-type]
        (lambda: T.MuLawEncoding(1), ValueError, "quantization_channels is 1"),
        (lambda: T.SpecAugment(2000, 5, 1, 5), ValueError, "n_time_masks is 2000"),
        (lambda: T.MelScale(n_mels=0), ValueError, "n_mels"),
        (lambda: T.Vad(16_000, measure_freq=0), ValueError, "measure_freq is 0"),
        (lambda: T.PitchShift(16_000, 60), ValueError, "n_steps is 60"),
        (lambda: T.PitchShift(16_000, 1, hop_length=600), ValueError, "hop_length is 600"),
        (lambda: T.TimeStretch(), ValueError, "fixed_rate is None"),
        (lambda: T.TimeStretch(fixed_rate=0), ValueError, "fixed_rate is"),
    ]:
        with pytest.raises(error, match=message):
            make()
    for chain, message in [
        ((T.MuLawEncoding(), T.Vol(2)), "works on samples"),
        ((T.MuLawDecoding(),), "works on what MuLawEncoding makes"),
        ((T.MuLawEncoding(), T.ToDtype("float16")), "256 quantization channels"),
        ((T.Spectrogram(), T.AddNoise([HISS], 5)), "works on waveforms"),
        ((T.SpecAugment(1, 2, 1, 2),), "works on spectra"),
        ((T.Speed(16_000, 1.1),), "a sound of 8000 Hz, and orig_freq is 16000"),
    ]:
        with pytest.raises(ValueError, match=message):
            ds.map(*chain).sample(0)
    gone = tmp_path / "none.wav"
    with pytest.raises(FileNotFoundError, match=r"none\.wav"):
        ds.map(T.AddNoise([gone], 5)).sample(0)
    gone.write_bytes(b"no sound")
    with pytest.raises(wf.CorruptSampleError, match=r"none\.wav"):
        ds.map(T.Convolve([gone])).sample(0)
    with pytest.raises(wf.LimitExceededError, match="4000"):
        ds.map(T.Convolve([np.ones(900)])).with_options(max_bytes=4000).sample(0)
