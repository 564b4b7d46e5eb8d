"""Encoded sounds as fields of shards and tables: tar shards, Parquet, and what Hugging Face's `datasets` writes."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from sounds import floats, noise, write
from wellfed import transforms as T


@pytest.fixture
def encoded(tmp_path: pathlib.Path) -> tuple[list[bytes], list[Any]]:
    """Nine WAV files of one channel that differ in length."""
    samples = [noise(n, 1, 300 + 91 * n) for n in range(9)]
    return [write(tmp_path / "one.wav", one).read_bytes() for one in samples], samples


def shard(path: pathlib.Path, samples: list[dict[str, bytes]], first: int = 0) -> pathlib.Path:
    """Writes samples, whose files are given by extension."""
    with tarfile.open(path, "w") as tar:
        for number, files in enumerate(samples, first):
            for extension, data in files.items():
                member = tarfile.TarInfo(f"{number:04}.{extension}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path


def test_sounds_of_tar_shards_are_decoded(encoded: Any, tmp_path: pathlib.Path) -> None:
    files, samples = encoded
    for number in range(3):
        part = [
            {"wav": files[n], "cls": str(n).encode(), "txt": f"text {n}".encode()}
            for n in range(3 * number, 3 * number + 3)
        ]
        shard(tmp_path / f"{number}.tar", part, 3 * number)
    ds = wf.webdataset(str(tmp_path / "{0..2}.tar"), fields=["wav", "cls", "txt"])
    for index in range(9):
        audio, label, text = ds.sample(index)
        np.testing.assert_array_equal(audio, floats(samples[index]))
        assert (label, text) == (index, f"text {index}")
    seen = []
    for (audio, lengths), labels, _ in ds.shuffle(seed=1).padded_batch(4, lengths=True).numpy():
        for row, length, label in zip(audio, lengths, labels, strict=True):
            np.testing.assert_array_equal(row[:, :length], floats(samples[label]))
            seen.append(int(label))
    assert sorted(seen) == list(range(9))
    cut = ds.batch_by_duration(0.2, bucket_boundaries=[0.07], lengths=True).numpy()
    assert sorted(int(label) for _, labels, _ in cut for label in labels) == list(range(9))
    mels = ds.map(T.MelSpectrogram(8000, n_mels=8, n_fft=100), T.AmplitudeToDB())
    assert mels.sample(0)[0].shape == (1, 8, 300 // 50 + 1)
    # Without names of fields samples are dicts.
    assert wf.webdataset(str(tmp_path / "0.tar")).sample(0)["wav"].shape == (1, 300)


def test_fields_of_several_formats_and_damage(encoded: Any, tmp_path: pathlib.Path) -> None:
    files, samples = encoded
    flac = (pathlib.Path(__file__).parents[2] / "crates/wellfed-audio/tests/sounds/s16.flac").read_bytes()
    part = [{"wav": files[0]}, {"flac": flac}, {"wav": files[1][:200]}]
    ds = wf.webdataset(str(shard(tmp_path / "a.tar", part)), fields="wav;flac")
    np.testing.assert_array_equal(ds.sample(0)[0], floats(samples[0]))
    assert ds.sample(1)[0].shape[1] > 0
    with pytest.raises(wf.CorruptSampleError) as caught:
        ds.sample(2)
    assert caught.value.stage == "decode"
    assert "0002" in str(caught.value.key)
    with pytest.raises(ValueError, match="kind"):
        wf.webdataset(str(shard(tmp_path / "b.tar", [{"wav": files[0]}, {"jpg": b"x"}])), fields="wav;jpg")


def table(path: pathlib.Path, files: list[bytes], note: dict[str, Any] | None) -> pathlib.Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    cells = [{"bytes": data, "path": f"{n}.wav"} for n, data in enumerate(files)]
    columns = {
        "audio": pa.array(cells, pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        "label": pa.array(range(len(files))),
    }
    made = pa.table(columns)
    if note is not None:
        features = {"info": {"features": note}}
        made = made.replace_schema_metadata({"huggingface": json.dumps(features)})
    pq.write_table(made, path, row_group_size=4)
    return path


def test_columns_of_tables_are_sounds_where_notes_or_arguments_say_so(
    encoded: Any, tmp_path: pathlib.Path
) -> None:
    files, samples = encoded
    noted = table(
        tmp_path / "noted.parquet", files, {"audio": {"_type": "Audio"}, "label": {"_type": "Value"}}
    )
    plain = table(tmp_path / "plain.parquet", files, None)
    for ds in (
        wf.parquet(noted, fields=["audio", "label"]),
        wf.parquet(plain, fields=["audio", "label"], audio="audio"),
    ):
        for index in range(9):
            audio, label = ds.sample(index)
            np.testing.assert_array_equal(audio, floats(samples[index]))
            assert label == index
        seen = []
        for (audio, lengths), labels in ds.shuffle(seed=2).padded_batch(4, lengths=True).numpy():
            for row, length, label in zip(audio, lengths, labels, strict=True):
                np.testing.assert_array_equal(row[:, :length], floats(samples[label]))
                seen.append(int(label))
        assert sorted(seen) == list(range(9))
        with pytest.raises(ValueError, match="the length of audio is not known"):
            ds.batch_by_duration(1)
    # As bytes, where that is asked for.
    assert wf.parquet(noted, fields="audio", audio=[]).sample(0)[0] == files[0]
    with pytest.raises(ValueError, match="as images and as sounds"):
        wf.parquet(plain, images="audio", audio="audio")
    with pytest.raises(ValueError, match="no column"):
        wf.parquet(plain, audio="sound")
    with pytest.raises(wf.UnsupportedSampleError, match="images and sounds are binary"):
        wf.parquet(plain, audio="label")


def test_a_sound_that_is_only_a_path_is_told(encoded: Any, tmp_path: pathlib.Path) -> None:
    files, _ = encoded
    path = table(tmp_path / "a.parquet", [*files[:2], None], {"audio": {"_type": "Audio"}})  # type: ignore[list-item]
    with pytest.raises(wf.CorruptSampleError, match=r"no bytes in row 2[^\n]*\n?.*embed"):
        wf.parquet(path, fields="audio").sample(2)


def test_what_datasets_saves_is_read(encoded: Any, tmp_path: pathlib.Path) -> None:
    datasets = pytest.importorskip("datasets")
    files, samples = encoded
    cells = [{"bytes": data, "path": None} for data in files]
    # Without the library that would encode arrays: the column is cast, which leaves bytes as they are.
    stored = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"audio": stored, "label": datasets.Value("int64")})
    made = datasets.Dataset.from_dict({"audio": cells, "label": list(range(9))}, features=features)
    made = made.cast_column("audio", datasets.Audio())
    made.save_to_disk(str(tmp_path / "saved"))
    made.to_parquet(str(tmp_path / "saved.parquet"))
    for ds in (wf.arrow(tmp_path / "saved"), wf.parquet(tmp_path / "saved.parquet")):
        sample = ds.sample(5)
        np.testing.assert_array_equal(sample["audio"], floats(samples[5]))
        assert sample["label"] == 5
