"""Data sets of speech as they lie on disk. What torchaudio's classes give was looked up with torchaudio 2.11."""

from __future__ import annotations

import pathlib
import pickle

import numpy as np
import pytest

import wellfed as wf
from sounds import floats, noise, write

_written: dict[bytes, str] = {}
"""Names of files by their samples."""


def put(path: pathlib.Path, frames: int = 80, rate: int = 8_000) -> pathlib.Path:
    samples = noise(len(_written), 1, frames)
    _written[floats(samples).tobytes()] = f"{path.parent.name}/{path.name}"
    return write(path, samples, rate)


def names(ds: wf.Dataset) -> list[str]:
    """The files that the sounds of all samples are of."""
    sounds = [ds.sample(index) for index in range(len(ds))]
    return [_written[(one[0] if isinstance(one, tuple) else one).tobytes()] for one in sounds]


def words(root: pathlib.Path) -> pathlib.Path:
    """Speech Commands of three words, in torchaudio's `root`."""
    folder = root / "SpeechCommands" / "speech_commands_v0.02"
    for word in ("up", "bed", "_background_noise_", "zero"):
        (folder / word).mkdir(parents=True)
        for name in ("b_nohash_0", "a_nohash_1", "a_nohash_0", "running_tap"):
            put(folder / word / f"{name}.wav", 160, 16_000)
    (folder / "empty").mkdir()
    (folder / "validation_list.txt").write_text("up/a_nohash_1.wav\nbed/a_nohash_0.wav\n")
    (folder / "testing_list.txt").write_text("zero/b_nohash_0.wav\n\n")
    return root


def test_speech_commands_has_torchaudios_samples(tmp_path: pathlib.Path) -> None:
    root = words(tmp_path)
    ds = wf.speech_commands(root)
    assert ds.classes == ["bed", "up", "zero"]
    each = ("a_nohash_0", "a_nohash_1", "b_nohash_0")
    assert names(ds) == [f"{word}/{name}.wav" for word in ds.classes for name in each]
    assert [int(ds.sample(index)[1]) for index in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    held_out = wf.speech_commands(root / "SpeechCommands", "validation")
    assert names(held_out) == ["up/a_nohash_1.wav", "bed/a_nohash_0.wav"]
    assert [int(held_out.sample(index)[1]) for index in range(2)] == [1, 0]
    assert names(wf.speech_commands(root, "testing")) == ["zero/b_nohash_0.wav"]
    training = wf.speech_commands(root / "SpeechCommands/speech_commands_v0.02", "training")
    rest = set(names(ds)) - set(names(held_out)) - {"zero/b_nohash_0.wav"}
    assert names(training) == sorted(rest)
    assert training.classes == held_out.classes == ds.classes


def test_what_is_no_speech_commands_is_told(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        wf.speech_commands(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="has no recordings, such as go/"):
        wf.speech_commands(tmp_path)
    root = words(tmp_path)
    with pytest.raises(ValueError, match="subset is 'test'; it must be one of testing, training, validation"):
        wf.speech_commands(root, "test")  # type: ignore[arg-type]
    (root / "SpeechCommands/speech_commands_v0.02/testing_list.txt").write_text("house/a_nohash_0.wav\n")
    with pytest.raises(ValueError, match=r"names 'house/a_nohash_0.wav', which is of no word"):
        wf.speech_commands(root, "testing")
    (root / "SpeechCommands/speech_commands_v0.02/testing_list.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"testing_list\.txt"):
        wf.speech_commands(root, "training")


def test_librispeech_has_its_transcripts(tmp_path: pathlib.Path) -> None:
    wav = put(tmp_path / "a.wav", 800, 16_000)
    said = {"84-2-0000": "GO ON", "84-2-0001": "STOP", "7-9-0000": "A  B"}
    for key in said:
        speaker, chapter, _ = key.split("-")
        folder = tmp_path / "LibriSpeech" / "dev-clean" / speaker / chapter
        folder.mkdir(parents=True, exist_ok=True)
        # What a file is is told by its first bytes, not by its name.
        (folder / f"{key}.flac").write_bytes(wav.read_bytes())
        with open(folder / f"{speaker}-{chapter}.trans.txt", "a") as file:
            file.write(f"{key} {said[key]}\n")
    ds = wf.librispeech(tmp_path, "dev-clean")
    samples = [ds.sample(index) for index in range(3)]
    # By names, not by folders: 7-9 comes before 84-2.
    assert [text for _, text in samples] == ["A  B", "GO ON", "STOP"]
    assert all(audio.shape == (1, 800) for audio, _ in samples)
    with pytest.raises(FileNotFoundError, match="has no recordings, such as 84/"):
        wf.librispeech(tmp_path, "test-other")
    (folder / "7-9-0001.flac").touch()
    with pytest.raises(ValueError, match="has no line for 7-9-0001"):
        wf.librispeech(tmp_path / "LibriSpeech" / "dev-clean")


def test_yesno_has_eight_labels(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "waves_yesno"
    folder.mkdir()
    for name in ("1_0_0_0_0_0_0_1", "0_0_1_0_1_0_1_1", "README", "0_1"):
        put(folder / f"{name}.wav")
    audio, labels = next(iter(wf.yesno(tmp_path).padded_batch(2).numpy()))
    assert audio.shape == (2, 1, 80)
    assert labels.dtype == np.int64
    assert labels.tolist() == [[0, 0, 1, 0, 1, 0, 1, 1], [1, 0, 0, 0, 0, 0, 0, 1]]
    assert names(wf.yesno(folder)) == [
        "waves_yesno/0_0_1_0_1_0_1_1.wav",
        "waves_yesno/1_0_0_0_0_0_0_1.wav",
    ]
    folder.rename(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="has no recordings"):
        wf.yesno(tmp_path)


def test_digits_are_told_by_names(tmp_path: pathlib.Path) -> None:
    for name in ("3_yweweler_10", "3_yweweler_9", "0_de_la_cruz_1", "x_george_1", "12_george_1", "4_george"):
        put(tmp_path / f"{name}.wav")
    ds = wf.spoken_digits(tmp_path)
    found = [pathlib.Path(name).stem for name in names(ds)]
    assert found == ["0_de_la_cruz_1", "3_yweweler_9", "3_yweweler_10"]
    assert [int(ds.sample(index)[1]) for index in range(3)] == [0, 3, 3]
    assert ds.classes == [str(digit) for digit in range(10)]
    assert len(wf.spoken_digits(tmp_path, numbers=range(9, 11))) == 2
    with pytest.raises(FileNotFoundError, match="of the 3 there"):
        wf.spoken_digits(tmp_path, numbers=[77])


def test_labels_must_be_classes(tmp_path: pathlib.Path) -> None:
    paths = [put(tmp_path / "a.wav")] * 2
    ds = wf.audio_files(paths, labels=[1, 0], classes=["no", "yes"])
    assert ds.classes == ["no", "yes"]
    assert repr(ds) == "audio_files(2 paths, labels, 2 classes)"
    assert pickle.loads(pickle.dumps(ds)).classes == ["no", "yes"]
    with pytest.raises(ValueError, match=r"labels\[1\] is 2; there are 2 classes"):
        wf.audio_files(paths, labels=[0, 2], classes=["no", "yes"])
    with pytest.raises(ValueError, match="2 classes, and no labels"):
        wf.audio_files(paths, classes=["no", "yes"])
