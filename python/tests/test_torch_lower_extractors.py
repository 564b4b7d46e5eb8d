"""Hugging Face's `datasets` with sounds under `wf.feed`: rows that go through a feature extractor of `transformers`.

Decoding by `datasets` needs a library that is not installed here, so that what is expected is made of the samples.
"""

from __future__ import annotations

import io
import wave
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Subset

import wellfed as wf
from sounds import floats, noise
from torch_same import same

hf = pytest.importorskip("datasets")
whisper = pytest.importorskip("transformers.models.whisper.feature_extraction_whisper")
wav2vec2 = pytest.importorskip("transformers.models.wav2vec2.feature_extraction_wav2vec2")

FRAMES = [16000, 9000, 48000, 31111, 500]
EXTRACTOR = whisper.WhisperFeatureExtractor(chunk_length=2)


def encoded(samples: Any, rate: int = 16000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as written:
        written.setparams((len(samples), 2, rate, 0, "NONE", ""))
        written.writeframes(np.ascontiguousarray(samples.T).astype("<i2").tobytes())
    return file.getvalue()


def sounds(channels: int = 1) -> list[Any]:
    return [noise(number, channels, frames) for number, frames in enumerate(FRAMES)]


def table(files: list[Any], **feature: Any) -> Any:
    stored = {"bytes": hf.Value("binary"), "path": hf.Value("string")}
    cells = [
        {"bytes": None, "path": file} if isinstance(file, str) else {"bytes": file, "path": None}
        for file in files
    ]
    features = hf.Features({"audio": stored, "label": hf.Value("int64"), "text": hf.Value("string")})
    rows = {"audio": cells, "label": [*range(len(files))], "text": [f"text {n}" for n in range(len(files))]}
    made = hf.Dataset.from_dict(rows, features=features)
    return made.cast_column("audio", hf.Audio(**{"sampling_rate": 16000, **feature}))


def listed(rows: Any) -> Any:
    made = EXTRACTOR([sound["array"] for sound in rows["audio"]], sampling_rate=16000, return_tensors="pt")
    return {"input_features": made.input_features, "labels": rows["label"], "text": rows["text"]}


def kept(rows: Any) -> Any:
    arrays = [sound["array"] for sound in rows.pop("audio")]
    rate = EXTRACTOR.sampling_rate
    rows["input_features"] = EXTRACTOR(arrays, sampling_rate=rate, return_tensors="pt")["input_features"]
    return rows


def expected(channels: int = 1) -> Any:
    arrays = [floats(samples).mean(0) for samples in sounds(channels)]
    return EXTRACTOR(arrays, sampling_rate=16000, return_tensors="pt").input_features


def check(dataset: Any, rows: list[int], features: Any) -> None:
    """Checks features and what goes with them, in batches of two."""
    loader = wf.feed(Stock(dataset, batch_size=2))
    batches = list(loader)
    assert loader.explain().startswith("DataLoader, native"), loader.explain()
    made = torch.cat([batch["input_features"] for batch in batches])
    assert made.shape == (len(rows), 80, 200)
    assert (made - features[rows]).abs().max() <= 1e-5 * features.abs().max()
    name = "labels" if "labels" in batches[0] else "label"
    assert torch.cat([batch[name] for batch in batches]).tolist() == rows
    assert [text for batch in batches for text in batch["text"]] == [f"text {row}" for row in rows]


@pytest.mark.parametrize("function", [listed, kept])
def test_whispers_features_of_a_column_of_sounds(function: Any) -> None:
    made = table([encoded(samples) for samples in sounds()])
    made.set_transform(function)
    check(made, [0, 1, 2, 3, 4], expected())
    check(made.select([3, 0, 2]), [3, 0, 2], expected())
    check(Subset(made, [4, 4, 1]), [4, 4, 1], expected())


def test_of_several_channels_the_mean_is_taken_and_files_are_read(tmp_path: Any) -> None:
    paths = []
    for number, samples in enumerate(sounds(2)):
        (tmp_path / f"{number}.wav").write_bytes(encoded(samples))
        paths.append(str(tmp_path / f"{number}.wav"))
    check(table(paths).with_transform(listed), [0, 1, 2, 3, 4], expected(2))
    both = hf.concatenate_datasets([table([encoded(one) for one in sounds(2)][:2]) for _ in range(2)])
    loader = wf.feed(Stock(both.with_transform(listed), batch_size=4))
    (batch,) = loader
    assert same(batch["input_features"][:2], batch["input_features"][2:])


def wider(**settings: Any) -> Any:
    return whisper.WhisperFeatureExtractor(**{"chunk_length": 2, **settings})


def with_filters() -> Any:
    made = wider()
    made.mel_filters = made.mel_filters * 1.01
    return made


class Derived(whisper.WhisperFeatureExtractor):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: wider(dither=0.1), "dither"),
        (lambda: wider(hop_length=200), "hop_length"),
        (lambda: wider(padding_side="left"), "pads on the left"),
        (with_filters, "other values"),
        (lambda: Derived(chunk_length=2), "Derived"),
        (lambda: wav2vec2.Wav2Vec2FeatureExtractor(), "or not at all"),
        (lambda: wav2vec2.Wav2Vec2FeatureExtractor(return_attention_mask=True), "attention_mask"),
    ],
)
def test_other_extractors_stay_in_python(make: Any, words: str) -> None:
    extractor = make()

    def function(rows: Any) -> Any:
        arrays = [sound["array"] for sound in rows["audio"]]
        made = extractor(arrays, sampling_rate=16000, return_tensors="pt")
        return {"x": made["input_features"], "label": rows["label"]}

    made = table([encoded(samples) for samples in sounds()]).with_transform(function)
    text = wf.feed(Stock(made, batch_size=2)).explain()
    assert not text.startswith("DataLoader, native"), text
    assert words in text


FIXED = {"padding": "max_length", "max_length": 20000, "truncation": True}


@pytest.mark.parametrize("settings", [{}, {"do_normalize": False}])
def test_wav2vec2s_values_of_sounds_made_one_length(settings: Any) -> None:
    extractor = wav2vec2.Wav2Vec2FeatureExtractor(**settings)

    def function(rows: Any) -> Any:
        arrays = [sound["array"] for sound in rows["audio"]]
        made = extractor(
            arrays,
            sampling_rate=16000,
            return_tensors="pt",
            padding="max_length",
            max_length=20000,
            truncation=True,
        )
        return {"input_values": made["input_values"], "label": rows["label"]}

    loader = wf.feed(
        Stock(table([encoded(samples) for samples in sounds()]).with_transform(function), batch_size=2)
    )
    assert loader.explain().startswith("DataLoader, native"), loader.explain()
    made = torch.cat([batch["input_values"] for batch in loader])
    arrays = [floats(samples).mean(0) for samples in sounds()]
    expected = extractor(arrays, sampling_rate=16000, return_tensors="pt", **FIXED).input_values
    assert made.shape == (5, 20000)
    assert made.dtype == torch.float32
    assert (made - expected).abs().max() <= 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("settings", "given", "words"),
    [
        ({}, {"padding": True}, "to the longest of a batch"),
        ({}, {"padding": "longest"}, "to the longest of a batch"),
        ({}, {"padding": "max_length", "max_length": 20000}, "truncation=True"),
        ({}, {**FIXED, "pad_to_multiple_of": 128}, "truncation=True"),
        ({}, {**FIXED, "return_attention_mask": True}, "attention_mask"),
        ({"padding_side": "left"}, FIXED, "pads on the left"),
        ({"padding_value": 1.0}, FIXED, "another value than 0"),
        ({"sampling_rate": 8000}, FIXED, "another sampling_rate"),
    ],
)
def test_wav2vec2s_other_values_stay_in_python(settings: Any, given: Any, words: str) -> None:
    extractor = wav2vec2.Wav2Vec2FeatureExtractor(**settings)
    padding, length = given["padding"], given.get("max_length")
    cut, multiple = given.get("truncation", False), given.get("pad_to_multiple_of")
    mask = given.get("return_attention_mask")

    def function(rows: Any) -> Any:
        made = extractor(
            [sound["array"] for sound in rows["audio"]],
            sampling_rate=16000,
            return_tensors="pt",
            padding=padding,
            max_length=length,
            truncation=cut,
            pad_to_multiple_of=multiple,
            return_attention_mask=mask,
        )
        return {"x": made["input_values"], "label": rows["label"]}

    made = table([encoded(samples) for samples in sounds()]).with_transform(function)
    text = wf.feed(Stock(made, batch_size=2)).explain()
    assert not text.startswith("DataLoader, native"), text
    assert words in text


def test_sounds_that_would_be_decoded_otherwise_stay_in_python() -> None:
    files = [encoded(samples) for samples in sounds()]
    for made, words in (
        (table(files, sampling_rate=None), "sample rate of its sounds is not known"),
        (table(files, num_channels=1), "decoded in another way"),
        (table(files, sampling_rate=8000), "stands on a sound of 8000 Hz"),
        (table([files[0], b"ID3 and so on", files[1]]), "sample 1"),
    ):
        text = wf.feed(Stock(made.with_transform(listed), batch_size=2)).explain()
        assert not text.startswith("DataLoader, native"), text
        assert words in text


def test_the_settings_of_an_extractor_are_looked_at_before_each_epoch() -> None:
    extractor = wider()

    def function(rows: Any) -> Any:
        arrays = [sound["array"] for sound in rows["audio"]]
        return {"x": extractor(arrays, sampling_rate=16000, return_tensors="pt")["input_features"]}

    loader = wf.feed(Stock(table([encoded(one) for one in sounds()]).with_transform(function), batch_size=5))
    assert next(iter(loader))["x"].shape == (5, 80, 200)
    extractor.dither = 0.5
    assert "dither" in loader.explain()
