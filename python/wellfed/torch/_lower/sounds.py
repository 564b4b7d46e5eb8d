"""Sounds in files: what data sets read by `torchaudio.load`, and what that gives.

Invariant: the engine is given only what `torchaudio.load` was compared with: samples of which a float32 has all bits
(PCM in WAV files, FLAC). What else the files turn out to be, the data set itself reads.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Mapping, Sequence
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

__all__ = [
    "FORMATS",
    "SEVERAL",
    "ByFunction",
    "Mean",
    "Mono",
    "Resampler",
    "Sounds",
    "ToRate",
    "branch",
    "check_load",
    "common_rate",
    "loaded",
    "mean",
    "method",
    "rate_of",
    "resampled",
    "resampled_by_function",
    "resampler",
    "source_of_sounds",
    "unread",
]

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

    def __repr__(self) -> str:
        return 'sound["array"]'


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


def common_rate(sounds: Sounds) -> int:
    """The sample rate of all sounds, as far as some of them tell: `SEVERAL` if they differ, 0 if none tells."""
    if sounds.rate is not None:
        return sounds.rate
    found = set()
    for path in sounds.paths[:: max(1, len(sounds.paths) // _ASKED)]:
        try:
            found.add(rate_of(path))
        except (OSError, ValueError):
            continue  # of which is told when it is asked for
    return next(iter(found), 0) if len(found) < 2 else SEVERAL


SEVERAL = -1
"""The sample rate of sounds that have not all the same."""

_ASKED = 64
"""Files that are asked for their sample rate, or a few more."""

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
        return Group(tuple, (Sound(path, rate=rate), rate))

    return handle


@dataclass(frozen=True)
class Mean:
    """``waveform.mean(0, keepdim=keepdim)`` of a tensor."""

    keepdim: bool

    def __call__(self, waveform: Any) -> Any:
        return waveform.mean(0, keepdim=self.keepdim)

    def __repr__(self) -> str:
        return f"waveform.mean(0, keepdim={self.keepdim})"


@dataclass(frozen=True)
class ToRate:
    """Torchaudio's resampling to a rate, from that of each file. Only the engine does it, right behind its decoder.

    Attributes:
        new: The rate, Hz.
        given: Parameters of the filter, by the names of `wellfed.transforms.Resample`.
    """

    new: int
    given: tuple[tuple[str, Any], ...] = ()

    def __repr__(self) -> str:
        return f"resample to {self.new} Hz"


@dataclass(frozen=True)
class ByFunction:
    """``torchaudio.functional.resample`` between rates that are the same for all samples.

    Attributes:
        old: The rate that sounds are taken to have, Hz.
        new: The rate that they get.
        given: Parameters of the filter, by their names.
    """

    old: int
    new: int
    given: tuple[tuple[str, Any], ...] = ()

    def __call__(self, waveform: Any) -> Any:
        return sys.modules["torchaudio.functional"].resample(waveform, self.old, self.new, **dict(self.given))

    def __repr__(self) -> str:
        return f"functional.resample({self.old}, {self.new})"


@dataclass(frozen=True)
class Resampler:
    """``Resample(rate, new)``, which a data set makes anew for each sample."""

    rate: Row
    new: int


def method(sound: Sound, name: str, arguments: list[Value], named: dict[str, Value]) -> Sound:
    """A method of a waveform.

    Raises:
        UnknownError: It is not the mean of its channels.
    """
    given = dict(named)
    for key in ("dim", "keepdim"):
        if arguments and key not in given:
            given[key], *arguments = arguments
    keep = given.pop("keepdim", Known(False))
    known = keep in (Known(True), Known(False)) and given == {"dim": Known(0)} and not arguments
    # Of a sound without a side for channels it would be the mean of all samples.
    if (
        name != "mean"
        or not known
        or any(isinstance(step, Mean) and not step.keepdim for step in sound.steps)
    ):
        raise UnknownError(f"{name}() of a sound is not known")
    assert isinstance(keep, Known)
    return sound.after(Mean(bool(keep.value)))


def mean(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """``torch.mean`` of a sound."""
    if not arguments or not isinstance(arguments[0], Sound):
        return None
    return method(arguments[0], "mean", arguments[1:], named)


def resampled(sound: Sound, rate: Value, new: Value, given: tuple[tuple[str, Any], ...] = ()) -> Sound:
    """A sound that is resampled from the rate of its file.

    Raises:
        UnknownError: It may have another rate, or is no waveform any more.
    """
    plain = all(isinstance(step, Mean) for step in sound.steps)
    if not plain or sound.rate is None or sound.rate != rate or not isinstance(new, Known):
        raise UnknownError("resamples a sound from a rate that is not known to be that of its file")
    if type(new.value) is not int or new.value < 1:
        raise UnknownError("resamples a sound to a rate that is no whole number")
    return sound.after(ToRate(new.value, given))


def resampled_by_function(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """``torchaudio.functional.resample(waveform, rate, new)``, whose filters are of float32, unlike the transform's.

    Raises:
        UnknownError: It is called on something that is not known.
    """
    names = ("waveform", "orig_freq", "new_freq", *_OF_FILTER)
    given = dict(zip(names, arguments, strict=False))
    if len(arguments) > len(names) or set(given) & set(named):
        return None
    given |= named
    sound, rate, new = (given.pop(name, None) for name in names[:3])
    if not isinstance(sound, Sound) or rate is None or new is None or set(given) - set(_OF_FILTER):
        return None
    filters = tuple((name, value.value) for name, value in given.items() if isinstance(value, Known))
    if len(filters) < len(given) or not all(type(value) in _OF_FILTER[name] for name, value in filters):
        raise UnknownError("resamples a sound by a filter that is not known")
    if not isinstance(rate, Known):
        return resampled(sound, rate, new, (*filters, ("dtype", "float32")))
    if not isinstance(new, Known) or type(rate.value) is not int or type(new.value) is not int:
        raise UnknownError("resamples a sound to a rate that is no whole number")
    return sound.after(ByFunction(rate.value, new.value, filters))


_OF_FILTER: dict[str, tuple[type, ...]] = {
    "lowpass_filter_width": (int,),
    "rolloff": (float,),
    "resampling_method": (str,),
    "beta": (float, type(None)),
}
"""Parameters of a filter in their order, and of what types they are known."""


def resampler(arguments: list[Value], named: dict[str, Value]) -> Value | None:
    """``torchaudio.transforms.Resample(rate, new)`` for the rate of a file."""
    given = {**dict(zip(("orig_freq", "new_freq"), arguments, strict=False)), **named}
    rate, new = given.get("orig_freq"), given.get("new_freq")
    if len(arguments) > 2 or len(given) != 2 or not isinstance(rate, Row) or not isinstance(new, Known):
        return None
    return Known(Resampler(rate, new.value))


def branch(
    frame: Any,
    test: ast.expr,
    body: list[ast.stmt],
    evaluate: Callable[[ast.expr], Value],
    run: Callable[[list[ast.stmt]], Value | None],
) -> bool:
    """Goes through ``if waveform.shape[0] > 1:`` around a mean, or ``if rate != 16000:`` around a resampling.

    Both change nothing where it is not so. False if it is neither.

    Args:
        frame: The function, whose variables are changed.
        test: What is asked.
        body: What is done then.
        evaluate: Gives the value of an expression.
        run: Goes through statements, and gives what they return.

    Raises:
        UnknownError: Something else is done.
    """
    variables: dict[str, Value] = frame.locals
    match test, body:
        case (
            ast.Compare(left=left, ops=[ast.Gt() | ast.NotEq()], comparators=[ast.Constant(1)]),
            [ast.Assign(targets=[ast.Name(id=name)], value=value)],
        ) if _counts_channels(left, name):
            sound = variables.get(name)
            if isinstance(sound, Sound) and evaluate(value) == sound.after(Mean(True)):
                variables[name] = sound.after(Mean(True))
                return True
        case ast.Compare(left=ast.Name(id=name), ops=[ast.NotEq()], comparators=[other]), _:
            rate = variables.get(name)
            new = evaluate(other) if isinstance(rate, Row) and rate.of_file else None
            if isinstance(rate, Row) and isinstance(new, Known) and type(new.value) is int:
                before = dict(variables)
                if run(body) is not None:
                    raise UnknownError("what it gives depends on the sample rate")
                frame.locals = _settled(before, frame.locals, rate, new.value)
                return True
    return False


def _counts_channels(node: ast.expr, name: str) -> bool:
    """Whether it is ``name.shape[0]`` or ``name.size(0)``."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id=of), attr="shape"), slice=ast.Constant(0)):
            return of == name
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=of), attr="size"), args=[ast.Constant(0)], keywords=[]
        ):
            return of == name
    return False


def _settled(
    before: Mapping[str, Value], after: Mapping[str, Value], rate: Row, new: int
) -> dict[str, Value]:
    """Variables behind ``if rate != new:``, where what is done to sounds changes nothing if that is not so.

    Raises:
        UnknownError: It does something else.
    """
    found: dict[str, Value] = {}
    for name, value in before.items():
        now = after.get(name)
        same = now is value
        if isinstance(value, Sound):
            last = now.steps[-1] if isinstance(now, Sound) and now.steps else None
            same = same or (isinstance(last, ToRate) and last.new == new and now == value.after(last))
        elif value == rate:
            same = same or now == Known(new)
        if not same or now is None:
            raise UnknownError("what it does depends on the sample rate")
        found[name] = now
    return found
