"""Sources of sounds: audio files in folders, by lists of paths, and by manifests of speech."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path as LocalPath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _arguments as check
from .dataset import Dataset
from .sources import Path, StorageOptions, _class_folders, _open_arrays, _storage, _text, _whole_numbers

__all__ = ["audio_files", "audio_folder", "audio_manifest"]


def audio_folder(
    root: Path,
    *,
    labels: Literal["folders"] | None = "folders",
    extensions: str | Sequence[str] | None = None,
    allow_empty: bool = False,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Sounds in folders. Samples are (audio, label), sorted as `image_folder` sorts them.

    WAV, FLAC, MP3, Ogg Vorbis, Opus, AAC and AIFF files are decoded to what ``torchaudio.load`` gives: float32
    ``[channels, frames]``, values of integers divided by the half of their range, at the rate of the file.

    Args:
        root: A folder with one folder per class: a path or URL, as of `image_folder`. Or a pattern such as
            ``speech/**/*.flac``, which gives sounds without labels.
        labels: ``"folders"``; or None for sounds without labels, from ``root`` and all folders below it.
        extensions: Ends of names to take, such as ``[".wav"]``, or one. None: wav, wave, flac, mp3, ogg, oga, opus,
            m4a, mp4, aac, aif and aiff; any, with a pattern.
        allow_empty: Accept classes without sounds.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: There is no such folder, it has no class folders, or a class has no sounds.

    Example:
        >>> import pathlib, tempfile, wave
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("no", "yes"):
        ...     (root / name).mkdir()
        ...     with wave.open(str(root / name / "1.wav"), "wb") as file:
        ...         file.setparams((1, 2, 8000, 0, "NONE", ""))
        ...         file.writeframes(bytes(1600))
        >>> ds = wf.audio_folder(root)
        >>> ds.classes, ds.sample(1)[0].shape
        (['no', 'yes'], (1, 800))
    """
    return _class_folders("audio_folder", root, labels, extensions, allow_empty, storage_options)


def audio_files(
    paths: Iterable[Path | bytes],
    labels: Any = None,
    offsets: Any = None,
    durations: Any = None,
    *,
    texts: Iterable[str] | None = None,
    classes: Sequence[str] | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Audio files by their paths, or parts of them, in the order given.

    Samples are sounds, or tuples (audio, label, text) of what is given. Files are looked at when they are read; one
    that is missing or damaged is an error of its sample. Of a file of which a part is asked for, no more than that is
    decoded.

    Args:
        paths: Any number of paths, or of URLs in one store. A file may occur more than once.
        labels: Whole numbers, one for each path.
        offsets: Seconds at which samples begin in their files, at least 0. None: at the start.
        durations: Seconds that samples have; NaN: up to the end. None: all are up to the end. A sound that ends
            before is shorter. Parts of a frame do not count: sample ``i`` begins at frame ``int(offsets[i] * rate)``
            and has ``int(durations[i] * rate)`` frames, as librosa and NeMo have it.
        texts: A text for each path, such as what is said.
        classes: Names by label, for `Dataset.classes`.
        storage_options: As of `image_folder`.

    Raises:
        ValueError: Arguments differ in number, a path is empty or not UTF-8, seconds are negative, or a label is
            none of the classes.

    Example:
        >>> import pathlib, tempfile, wave
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.wav"
        >>> with wave.open(str(path), "wb") as file:
        ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
        ...     file.writeframes(bytes(32000))
        >>> ds = wf.audio_files([path, path], offsets=[0, 1.5], durations=[1.5, 0.5], texts=["one", "two"])
        >>> audio, text = ds.sample(1)
        >>> audio.shape, text
        ((1, 4000), 'two')
    """
    listed, count = _text(paths, "audio")
    held: list[tuple[npt.NDArray[Any], str]] = [(listed, "uint8"), *_whole_numbers(labels)]
    for name, seconds in (("offsets", offsets), ("durations", durations)):
        if seconds is not None:
            held.append((_seconds(seconds, name, count), "float64"))
    if texts is not None:
        held += _joined(texts, count)
    given = {"labels": labels, "offsets": offsets, "durations": durations, "texts": texts}
    return _open_arrays(
        "audio_files",
        held,
        count=count,
        classes=[] if classes is None else check.names(classes, "classes"),
        **{name: True for name, value in given.items() if value is not None},
        **_storage(listed, storage_options),
    )


def _seconds(values: Any, name: str, count: int) -> npt.NDArray[np.float64]:
    try:
        array = np.ascontiguousarray(values, np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be numbers of seconds") from None
    if array.shape != (count,):
        raise ValueError(f"{name} has the shape {array.shape}; there are {count} paths")
    return array


def _joined(texts: Iterable[str], count: int) -> list[tuple[npt.NDArray[Any], str]]:
    """Texts one after the other, and where each ends."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of strings")
    listed = list(texts)
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{number}] is {text!r}; it must be a string")
    if len(listed) != count:
        raise ValueError(f"there are {len(listed)} texts for {count} paths")
    encoded = [text.encode() for text in listed]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64) if encoded else np.empty(0, np.int64)
    return [(np.frombuffer(b"".join(encoded) or b"", np.uint8), "uint8"), (ends, "int64")]


def audio_manifest(
    manifest: Path,
    *,
    audio: str = "audio_filepath",
    offset: str = "offset",
    duration: str = "duration",
    text: str | None = "text",
    label: str | None = None,
    root: Path | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    r"""Audio files as a manifest lists them: lines of JSON as NVIDIA NeMo has them, or a CSV file with a header.

    Args:
        manifest: A file of this machine. ``.csv`` and ``.tsv`` are tables, separated by commas and tabs; all others
            are lines of JSON.
        audio: The key or column of paths.
        offset: That of seconds at which samples begin. Where a line lacks it, at the start.
        duration: That of seconds that samples have, at which they end, as in NeMo. Where a line lacks it, up to the
            end.
        text: That of texts; None leaves them out. If no line has it, there are none.
        label: That of whole numbers; None: there are no labels.
        root: The folder that paths are in which are not absolute. None is that of the manifest.
        storage_options: As of `image_folder`, where paths are URLs.

    Raises:
        FileNotFoundError: There is no such manifest.
        ValueError: A line has no path, or something that is not what it must be; it names the line.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.jsonl"
        >>> written = path.write_text('{"audio_filepath": "a.wav", "duration": 2.5, "text": "hello"}\n')
        >>> len(wf.audio_manifest(path))  # the sound is looked at when it is read
        1
    """
    name = check.path(manifest, "manifest")
    folder = os.path.dirname(os.path.abspath(name)) if root is None else check.path(root, "root")
    paths: list[str] = []
    columns: dict[str, list[Any]] = {key: [] for key in (offset, duration, text, label) if key is not None}
    for where, row in _rows(name):
        given = row.get(audio)
        if not isinstance(given, str) or not given:
            raise ValueError(f"{where} has no {audio}, which is the path of a sound")
        paths.append(given if "://" in given else os.path.join(folder, given))
        for key, values in columns.items():
            values.append(_of_line(row.get(key), key, where, number=key not in (text,), whole=key == label))
    has = {key: any(value is not None for value in values) for key, values in columns.items()}
    starts = columns[offset] if has[offset] else None
    lengths = columns[duration] if has[duration] else None
    texts = columns[text] if text is not None and has[text] else None
    if label is not None and None in columns[label]:
        raise ValueError(f"line {columns[label].index(None) + 1} of {name} has no {label}")
    return audio_files(
        paths,
        columns[label] if label is not None else None,
        None if starts is None else [0.0 if value is None else value for value in starts],
        None if lengths is None else [np.nan if value is None else value for value in lengths],
        texts=None if texts is None else ["" if value is None else value for value in texts],
        storage_options=storage_options,
    )


def _rows(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a manifest, and where each stands."""
    ending = LocalPath(name).suffix.lower()
    with open(name, encoding="utf-8", newline="" if ending in (".csv", ".tsv") else None) as file:
        if ending in (".csv", ".tsv"):
            reader = csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ",")
            for row in reader:
                yield f"line {reader.line_num} of {name}", row
            return
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"line {number} of {name}"
            try:
                found = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{where} is no JSON: {error}") from None
            if not isinstance(found, dict):
                raise ValueError(f"{where} is no JSON object")
            yield where, found


def _of_line(value: Any, key: str, where: str, *, number: bool, whole: bool) -> Any:
    """A value as it is used; None where there is none."""
    if value is None or (number and value == ""):
        return None
    if not number:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return int(value) if whole else float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{where}: {key} is {value!r}, which is no number") from None
