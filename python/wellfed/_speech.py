"""Data sets of speech as they lie on disk: what ``torchaudio.datasets`` downloads, and spoken digits."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path as LocalPath
from typing import Literal

import numpy as np

from . import _arguments as check
from ._sounds import audio_files
from .dataset import Dataset
from .sources import Path, from_tensor_slices

__all__ = ["librispeech", "speech_commands", "spoken_digits", "yesno"]


def speech_commands(
    root: Path, subset: Literal["training", "validation", "testing"] | None = None
) -> Dataset:
    r"""Speech Commands: single words of about a second at 16 kHz. Samples are (audio, label).

    Samples are those of ``torchaudio.datasets.SPEECHCOMMANDS`` in its order. `Dataset.classes` has the words: all
    folders that have recordings, so that labels are the same in all subsets. Its background noise, which is no word, is
    left out.

    Args:
        root: The folder with one folder per word, or one above it that has ``speech_commands_v0.02``,
            ``SpeechCommands/speech_commands_v0.02``, or the same of ``v0.01``, such as torchaudio's ``root``.
        subset: Those that ``validation_list.txt`` or ``testing_list.txt`` names, or all but these. None: all.

    Raises:
        FileNotFoundError: There are no recordings, or a list is missing.
        ValueError: A list names a file of no word, or ``subset`` is another.

    Example:
        >>> import pathlib, tempfile, wave
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for word in ("go", "stop"):
        ...     (root / word).mkdir()
        ...     with wave.open(str(root / word / "004ae714_nohash_0.wav"), "wb") as file:
        ...         file.setparams((1, 2, 16000, 0, "NONE", ""))
        ...         file.writeframes(bytes(32000))
        >>> written = (root / "testing_list.txt").write_text("stop/004ae714_nohash_0.wav\n")
        >>> ds = wf.speech_commands(root, subset="testing")
        >>> audio, label = ds.sample(0)
        >>> audio.shape, ds.classes[int(label)]
        ((1, 16000), 'stop')
    """
    lists = {"validation": ["validation_list.txt"], "testing": ["testing_list.txt"]}
    lists["training"] = lists["validation"] + lists["testing"]
    if subset is not None and subset not in lists:
        raise ValueError(f"subset is {subset!r}; it must be one of {', '.join(sorted(lists))}, or None")
    versions = [f"speech_commands_v0.0{number}" for number in (2, 1)]
    folder = _found(root, [*versions, *(f"SpeechCommands/{name}" for name in versions)])
    # torchaudio's order: that of whole paths as texts.
    whole = sorted(
        f"{word.name}/{file}"
        for word in folder.iterdir()
        if word.is_dir() and word.name != "_background_noise_"
        for file in os.listdir(word)
        if file.endswith(".wav") and "_nohash_" in file
    )
    if not whole:
        raise FileNotFoundError(f"{folder} has no recordings, such as go/004ae714_nohash_0.wav")
    words = sorted({name.partition("/")[0] for name in whole})
    taken: list[str] = whole
    if subset is not None:
        listed = [
            line.strip()
            for name in lists[subset]
            for line in (folder / name).read_text("utf-8").splitlines()
            if line.strip()
        ]
        taken = listed
        if subset == "training":
            others = set(listed)
            taken = [name for name in whole if name not in others]
    label = {word: number for number, word in enumerate(words)}
    for name in taken:
        if name.partition("/")[0] not in label:
            raise ValueError(f"a list of {folder} names {name!r}, which is of no word that has recordings")
    labels = np.array([label[name.partition("/")[0]] for name in taken], np.int64)
    return audio_files((str(folder / name) for name in taken), labels, classes=words)


def librispeech(root: Path, url: str = "train-clean-100") -> Dataset:
    r"""LibriSpeech: sentences that are read aloud, FLAC at 16 kHz. Samples are (audio, text).

    Samples are those of ``torchaudio.datasets.LIBRISPEECH`` in its order; texts are its transcripts, in capitals.
    Their durations are in the heads of files: see `Dataset.batch_by_duration`.

    Args:
        root: The folder of the part that ``url`` names, or one above it that has it, or ``LibriSpeech/<part>``, such as
            torchaudio's ``root``.
        url: torchaudio's name of the part: ``"dev-clean"``, ``"test-other"``, ``"train-clean-360"`` and others.

    Raises:
        FileNotFoundError: There are no recordings, or no transcript of a chapter.
        ValueError: A recording has no line in its transcript.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> chapter = root / "LibriSpeech" / "dev-clean" / "84" / "121123"
        >>> chapter.mkdir(parents=True)
        >>> written = (chapter / "84-121123.trans.txt").write_text("84-121123-0000 GO\n")
        >>> (chapter / "84-121123-0000.flac").touch()
        >>> len(wf.librispeech(root, "dev-clean"))  # the sound is looked at when it is read
        1
    """
    folder = _found(root, [url, f"LibriSpeech/{url}"])
    paths = sorted(folder.glob("*/*/*.flac"), key=lambda path: path.stem)
    if not paths:
        raise FileNotFoundError(f"{folder} has no recordings, such as 84/121123/84-121123-0000.flac")
    transcripts: dict[str, str] = {}
    for chapter in sorted({path.parent for path in paths}):
        file = chapter / f"{chapter.parent.name}-{chapter.name}.trans.txt"
        for line in file.read_text("utf-8").splitlines():
            key, _, text = line.partition(" ")
            transcripts[key] = text.strip()
    for path in paths:
        if path.stem not in transcripts:
            raise ValueError(f"the transcript of {path.parent} has no line for {path.stem}")
    return audio_files(map(str, paths), texts=(transcripts[path.stem] for path in paths))


def yesno(root: Path) -> Dataset:
    """YesNo: eight words each, "yes" or "no" in Hebrew, WAV at 8 kHz. Samples are (audio, labels).

    Samples are those of ``torchaudio.datasets.YESNO`` in its order. Labels are int64 of shape ``[8]``: 1 is "yes".

    Args:
        root: The folder with files such as ``0_0_1_0_1_0_1_1.wav``, or one above it that has ``waves_yesno``, such as
            torchaudio's ``root``.

    Raises:
        FileNotFoundError: There are no recordings.

    Example:
        >>> import pathlib, tempfile, wave
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> with wave.open(str(root / "0_0_1_0_1_0_1_1.wav"), "wb") as file:
        ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
        ...     file.writeframes(bytes(1600))
        >>> audio, labels = next(iter(wf.yesno(root).numpy()))
        >>> labels.tolist()
        [0, 0, 1, 0, 1, 0, 1, 1]
    """
    folder = _found(root, ["waves_yesno"])
    answers = {path: path.stem.split("_") for path in folder.glob("*.wav")}
    paths = sorted(path for path, words in answers.items() if len(words) == 8 and set(words) <= {"0", "1"})
    if not paths:
        raise FileNotFoundError(f"{folder} has no recordings, such as 0_0_1_0_1_0_1_1.wav")
    labels = np.array([[int(word) for word in answers[path]] for path in paths], np.int64)
    return audio_files(map(str, paths)).zip(from_tensor_slices(labels))


def spoken_digits(root: Path, numbers: Iterable[int] | None = None) -> Dataset:
    """The Free Spoken Digit Dataset: digits in English, WAV at 8 kHz. Samples are (audio, label): 0 to 9.

    Args:
        root: The folder with files such as ``7_jackson_32.wav``, which are digit, speaker and number; or one above it
            that has ``recordings``, as its repository has.
        numbers: Which recordings of each digit and speaker: ``range(5)`` are those that its authors test with,
            ``range(5, 50)`` the others. None: all.

    Raises:
        FileNotFoundError: There are no such recordings.

    Example:
        >>> import pathlib, tempfile, wave
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for number in (4, 5):
        ...     with wave.open(str(root / f"7_jackson_{number}.wav"), "wb") as file:
        ...         file.setparams((1, 2, 8000, 0, "NONE", ""))
        ...         file.writeframes(bytes(1600))
        >>> test = wf.spoken_digits(root, numbers=range(5))
        >>> len(test), int(test.sample(0)[1])
        (1, 7)
    """
    folder = _found(root, ["recordings"])
    wanted = None if numbers is None else {int(number) for number in numbers}
    found: list[tuple[int, str, int, LocalPath]] = []
    for path in folder.glob("*.wav"):
        digit, _, rest = path.stem.partition("_")
        speaker, _, number = rest.rpartition("_")
        if digit.isdecimal() and len(digit) == 1 and speaker and number.isdecimal():
            found.append((int(digit), speaker, int(number), path))
    taken = sorted(entry for entry in found if wanted is None or entry[2] in wanted)
    if not taken:
        which = f" of the {len(found)} there" if found else ""
        raise FileNotFoundError(f"{folder} has no recordings such as 7_jackson_32.wav{which}")
    labels = np.array([digit for digit, *_ in taken], np.int64)
    return audio_files((str(path) for *_, path in taken), labels, classes=[str(digit) for digit in range(10)])


def _found(root: Path, below: list[str]) -> LocalPath:
    """The first of these folders below `root`, or `root` itself."""
    folder = LocalPath(check.path(root, "root"))
    if not folder.is_dir():
        raise FileNotFoundError(f"root is {str(folder)!r}, and there is no such folder")
    return next((folder / name for name in below if (folder / name).is_dir()), folder)
