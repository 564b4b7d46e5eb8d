"""Sounds in files: what data sets read by `torchaudio.load`, and what that gives.

Invariant: the engine is given only what `torchaudio.load` was compared with: samples of which a float32 has all bits
(PCM in WAV files, FLAC). What else the files turn out to be, the data set itself reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import wellfed as wf
from wellfed import _native
from wellfed import transforms as T
from wellfed._accelerate import sounds as accelerated
from wellfed.sources import _encoded_sounds

from .encoded import Encoded
from .forms import RefusalError
from .unknown import UnknownError
from .values import Group, Known, Row, Sound, Value

__all__ = ["FORMATS", "Mono", "Sounds", "check_load", "loaded", "rate_of", "source_of_sounds", "unread"]

FORMATS = "WAV or FLAC"
"""What is read natively, for messages."""

_ENDS = (".wav", ".wave", ".flac")


@dataclass(frozen=True)
class Sounds:
    """Sounds in files.

    Attributes:
        paths: Where they are.
        rate: The sample rate that all must have, Hz; None if each may have its own.
        encoded: The files themselves, if they lie in memory; then there are no `paths`.
    """

    paths: list[str]
    rate: int | None = None
    encoded: Encoded | None = None

    def __len__(self) -> int:
        return len(self.paths) if self.encoded is None else len(self.encoded)


def source_of_sounds(contents: Sequence[Sounds]) -> wf.Dataset:
    """The engine's data set of the sounds of several data sets, laid end to end.

    Raises:
        RefusalError: They cannot be one.
    """
    rates = {content.rate for content in contents}
    if len(rates) > 1:
        raise RefusalError("its parts are read in different ways")
    encoded = [content.encoded for content in contents if content.encoded is not None]
    if not encoded:
        source = wf.audio_files([path for content in contents for path in content.paths])
    elif len(encoded) == len(contents):
        chunks = [chunk for one in encoded for chunk in one.chunks]
        source = _encoded_sounds(chunks, [offsets for one in encoded for offsets in one.offsets])
    else:
        raise RefusalError("its parts mix files and sounds in memory")
    source = source.with_options(lossless=True)
    (rate,) = rates
    # It does nothing but refuse other rates.
    return source if rate is None else source.map(T.Resample(rate, rate))


def unread(content: Sounds) -> int:
    """How many files have names of formats that are left to Python."""
    return sum(not path.lower().endswith(_ENDS) for path in content.paths)


def check_load() -> None:
    """Checks `torchaudio.load`.

    Raises:
        RefusalError: It gives something else than is decoded here.
    """
    if accelerated.loader_of_torchaudio() is None:
        raise RefusalError("torchaudio.load is another one, or gives other samples here than is known")


@dataclass(frozen=True)
class Mono:
    """``np.mean(waveform, axis=0)``: what Hugging Face's decoder gives as an array."""

    def __call__(self, waveform: Any) -> Any:
        return waveform.numpy().mean(0)


def rate_of(path: str | os.PathLike[str]) -> int:
    """The sample rate of a file, Hz.

    Raises:
        ValueError: It is no sound.
    """
    with open(path, "rb", buffering=0) as file:
        begun = file.read(_HEAD)
        head = _native.Sound.head(begun) or _native.Sound.head(begun + file.read())
    if head is None:
        raise ValueError(f"{os.fspath(path)} is no sound")
    return head[1]


_HEAD = 4096
"""Bytes at the start of a file that nearly always tell its sample rate."""


def loaded(text: Callable[[Value], str | None]) -> Callable[[list[Value], dict[str, Value]], Value]:
    """What ``torchaudio.load(path)`` gives: a sound and its sample rate.

    Args:
        text: Writes a value of a sample as an expression.
    """

    def handle(arguments: list[Value], named: dict[str, Value]) -> Value:
        given = dict(named)
        if arguments and "uri" not in given:
            given["uri"], *arguments = arguments
        path = given.pop("uri", None)
        if arguments or any(value != Known(accelerated.WHOLE.get(name)) for name, value in given.items()):
            raise UnknownError("loads a part of a sound, or in another layout")
        if not isinstance(path, Row):
            raise UnknownError("loads a sound of something that is not known")
        try:
            check_load()
        except RefusalError as refused:
            raise UnknownError(refused.why) from None
        rate = Row(f"{text(Known(rate_of))}({path.text})", of_file=True)
        return Group(tuple, (Sound(path), rate))

    return handle
