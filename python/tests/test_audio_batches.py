"""Batches of sounds by seconds: held against a model, whatever the order, the ranks and where an epoch goes on."""

from __future__ import annotations

import pathlib
import pickle
import random
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from sounds import floats, noise, write
from wellfed import transforms as T


def model(
    order: list[int],
    seconds: list[float],
    most: float | None,
    samples: list[int] | None,
    boundaries: list[float],
    drop: bool,
) -> list[list[int]]:
    """The rule of `batch_by_duration`, in the order of the batches."""
    buckets: list[list[int]] = [[] for _ in range(len(boundaries) + 1)]
    batches = []
    for index in order:
        number = sum(boundary <= seconds[index] for boundary in boundaries)
        bucket = buckets[number]
        longest = max([seconds[other] for other in bucket] + [seconds[index], 0.001])
        if bucket and most is not None and longest * (len(bucket) + 1) > most + 1e-6:
            batches.append(bucket)
            bucket = buckets[number] = []
            bucket.append(index)
            continue
        bucket.append(index)
        limit = None if samples is None else samples[number if len(samples) > 1 else 0]
        if limit is not None and len(bucket) >= limit:
            batches.append(bucket)
            buckets[number] = []
    return batches if drop else batches + [bucket for bucket in buckets if bucket]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[pathlib.Path], list[Any], list[float]]:
    """Sixty sounds of two sample rates that differ in length."""
    folder = tmp_path_factory.mktemp("sounds")
    rng = random.Random(3)
    paths, samples, seconds = [], [], []
    for number in range(60):
        rate = rng.choice([4000, 8000])
        frames = rng.randrange(0 if number == 7 else 40, 4000)
        samples.append(noise(number, 1, frames if number != 7 else 0))
        paths.append(write(folder / f"{number:02}.wav", samples[-1], rate))
        seconds.append(samples[-1].shape[1] / rate)
    return paths, samples, seconds


def numbers(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


RULES: list[dict[str, Any]] = [
    {"max_duration": 3.0},
    {"max_duration": 2.5, "bucket_boundaries": [0.2, 0.5]},
    {"max_duration": None, "max_samples": 4},
    {"max_duration": None, "max_samples": [7, 2], "bucket_boundaries": [0.4]},
    {"max_duration": 2.0, "max_samples": 5, "bucket_boundaries": [0.25, 0.6], "drop_last": True},
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.usefixtures("epochs_not_counted")
def test_batches_are_the_models_for_any_order_workers_ranks_and_place(sounds: Any, rule: Any) -> None:
    paths, samples, seconds = sounds
    base = wf.audio_files(paths, labels=range(60)).shuffle(seed=5)
    ds = base.batch_by_duration(**rule, lengths=True)
    # A shuffle of as many elements has the same order.
    numbered = wf.from_tensor_slices(np.arange(60)).shuffle(seed=5).numpy()
    limit = rule.get("max_samples")
    limits = None if limit is None else [limit] if isinstance(limit, int) else limit
    for epoch in range(2):
        order = [int(number) for number in numbered]
        numbered.set_epoch(epoch + 1)
        rules = (
            rule["max_duration"],
            limits,
            rule.get("bucket_boundaries", []),
            rule.get("drop_last", False),
        )
        expected = model(order, seconds, *rules)
        for workers in (1, 3):
            loader = ds.numpy(num_workers=workers)
            loader.set_epoch(epoch)
            assert len(loader) == len(expected)
            batches = list(loader)
            assert numbers(batches) == expected
            for (audio, lengths), labels in batches:
                assert lengths.tolist() == [samples[label].shape[1] for label in labels]
                for row, length, label in zip(audio, lengths, labels, strict=True):
                    np.testing.assert_array_equal(row[:, :length], floats(samples[label]))
                    assert not row[:, length:].any()
        # It goes on after any batch, with other workers.
        for done in (1, len(expected) // 2):
            loader = ds.numpy()
            loader.set_epoch(epoch)
            iterator = iter(loader)
            for _ in range(done):
                next(iterator)
            other = ds.numpy(num_workers=2)
            other.load_state_dict(loader.state_dict())
            assert numbers(other) == expected[done:]
        # Ranks share whole batches: as many each, so that the last ones may come twice.
        parts = []
        for rank in range(3):
            loader = ds.shard(rank, 3).numpy()
            loader.set_epoch(epoch)
            parts.append(numbers(loader))
        assert len({len(part) for part in parts}) == 1
        dealt = [batch for several in zip(*parts, strict=True) for batch in several]
        assert dealt[: len(expected)] == expected
        assert all(batch in expected for batch in dealt)


def test_seconds_in_a_batch_stay_below_the_limit_with_padding(sounds: Any) -> None:
    paths, _, seconds = sounds
    ds = wf.audio_files(paths, labels=range(60)).shuffle(seed=1).repeat(2)
    seen = []
    for _, labels in ds.batch_by_duration(1.5, bucket_boundaries=[0.3]).numpy():
        assert max(seconds[label] for label in labels) * len(labels) <= 1.5 + 1e-6
        seen += labels.tolist()
    assert sorted(seen) == sorted([*range(60), *range(60)])


def test_durations_come_from_lists_where_they_say_them(tmp_path: pathlib.Path) -> None:
    # Files are not looked at: there are none.
    missing = [tmp_path / f"{number}.wav" for number in range(4)]
    ds = wf.audio_files(missing, labels=range(4), durations=[1.0, 2.0, 1.0, 0.5]).map(T.ToMono())
    assert len(ds.batch_by_duration(4, bucket_boundaries=[1.5]).numpy()) == 2
    # Offsets without durations: what is left of the file.
    long = write(tmp_path / "long.wav", noise(0, 1, 16000))
    parts = wf.audio_files([long] * 4, labels=range(4), offsets=[0, 0.5, 1.0, 1.9])
    batches = numbers(parts.batch_by_duration(None, max_samples=9, bucket_boundaries=[0.2, 1.2, 1.8]).numpy())
    assert batches == [[3], [2], [1], [0]]
    # Some lines of a manifest say it.
    mixed = wf.audio_files([long] * 3, labels=range(3), durations=[float("nan"), 0.1, 0.3])
    assert numbers(mixed.batch_by_duration(2, bucket_boundaries=[1]).numpy()) == [[1, 2], [0]]


def test_sounds_that_cannot_be_read_or_are_too_long_are_bad_samples(tmp_path: pathlib.Path) -> None:
    paths = [write(tmp_path / f"{n}.wav", noise(n, 1, 800 * (n + 1))) for n in range(6)]
    paths[2].write_bytes(b"no sound")
    paths[4].unlink()
    ds = wf.audio_files(paths, labels=range(6)).batch_by_duration(0.45)
    with pytest.raises(wf.WellfedError, match="format") as caught:
        list(ds.numpy())
    assert caught.value.key == str(paths[2])
    loader = ds.with_options(on_error="skip").numpy()
    assert sorted(n for batch in numbers(loader) for n in batch) == [0, 1, 3]
    errors = {bad.index: str(bad.error) for bad in loader.errors()}
    assert sorted(errors) == [2, 4, 5]
    assert "0.6 seconds, above the limit of 0.45" in errors[5]
    assert "4.wav" in errors[4]
    # Replacements come from those that fit.
    replaced = ds.with_options(on_error="replace").numpy()
    assert {n for batch in numbers(replaced) for n in batch} <= {0, 1, 3}


def test_a_state_does_not_fit_files_of_other_durations(tmp_path: pathlib.Path) -> None:
    paths = [write(tmp_path / f"{n}.wav", noise(n, 1, 800)) for n in range(8)]
    loader = wf.audio_files(paths).batch_by_duration(0.35).numpy()
    next(iter(loader))
    state = loader.state_dict()
    wf.audio_files(paths).batch_by_duration(0.35).numpy().load_state_dict(state)
    write(paths[5], noise(5, 1, 1600))
    with pytest.raises(wf.StateError, match="source 0 has other samples"):
        wf.audio_files(paths).batch_by_duration(0.35).numpy().load_state_dict(state)
    # Without batches by duration they may be.
    loader = wf.audio_files(paths).padded_batch(2).numpy()
    next(iter(loader))
    write(paths[5], noise(5, 1, 2400))
    wf.audio_files(paths).padded_batch(2).numpy().load_state_dict(loader.state_dict())


def test_transforms_mixtures_and_zips_go_with_it(sounds: Any) -> None:
    paths, _, seconds = sounds
    kept = [n for n in range(60) if seconds[n] > 0.1]
    ds = wf.audio_files([paths[n] for n in kept], labels=kept)
    mels = ds.map(T.Resample(new_freq=16_000), T.MelSpectrogram(n_mels=8), T.AmplitudeToDB())
    plain = numbers(ds.batch_by_duration(3).numpy())
    for (audio, lengths), labels in mels.batch_by_duration(3, lengths=True).numpy():
        assert labels.tolist() in plain
        assert audio.shape == (len(labels), 1, 8, max(lengths))
    both = wf.Dataset.sample_from_datasets([ds, ds.shuffle(seed=1)], [0.5, 0.5], seed=2)
    for _, labels in both.take(50).batch_by_duration(2).numpy():
        assert max(seconds[label] for label in labels) * len(labels) <= 2 + 1e-6
    pairs = ds.zip(wf.from_tensor_slices(np.arange(len(kept))))
    found = [part for _, part in pairs.batch_by_duration(3).numpy()]
    assert [part.tolist() for part in found] == [[kept.index(n) for n in batch] for batch in plain]
    torch = pytest.importorskip("torch")
    audio, labels = next(iter(ds.batch_by_duration(3).torch()))
    assert (audio.dtype, labels.tolist()) == (torch.float32, plain[0])
    again = pickle.loads(pickle.dumps(ds.batch_by_duration(3)))
    assert numbers(again.numpy()) == plain


def test_wrong_use_is_told(sounds: Any) -> None:
    paths, _, _ = sounds
    ds = wf.audio_files(paths[:3])
    for arguments, message in [
        ((None,), "neither max_duration nor max_samples"),
        ((0,), "max_duration is 0"),
        ((float("inf"),), "max_duration"),
        ((1, "label"), 'no field "label"; fields that are sounds'),
    ]:
        with pytest.raises(ValueError, match=message):
            ds.batch_by_duration(*arguments)
    for options, message in [
        ({"bucket_boundaries": [2, 1]}, "must be seconds, above 0, and rise"),
        ({"bucket_boundaries": [0]}, "must be seconds, above 0, and rise"),
        ({"max_samples": [1, 2]}, "2 max_samples for 0 bucket_boundaries"),
        ({"max_samples": 0}, "max_samples"),
    ]:
        with pytest.raises(ValueError, match=message):
            ds.batch_by_duration(1, **options)
    with pytest.raises(TypeError, match="bucket_boundaries"):
        ds.batch_by_duration(1, bucket_boundaries=2)
    with pytest.raises(ValueError, match="batch_by_duration"):
        ds.batch_by_tokens(10)
    with pytest.raises(ValueError, match="batch_by_duration"):
        ds.bucket_by_sequence_length("audio", [3], [1, 1])
    with pytest.raises(ValueError, match="fields that are sounds are"):
        wf.from_tensor_slices(np.arange(5)).batch_by_duration(1)
    with pytest.raises(ValueError, match="after batch"):
        ds.padded_batch(2).batch_by_duration(1)
    with pytest.raises(ValueError, match="shard"):
        ds.shard(0, 2).batch_by_duration(1)
    with pytest.raises(ValueError, match="after a Python step"):
        ds.map(lambda audio: audio).batch_by_duration(1)
    text = ds.batch_by_duration(2.5, max_samples=3, bucket_boundaries=[0.5]).explain()
    assert "batch_by_duration(2.5, max_samples=3, bucket_boundaries=[0.5])" in text
