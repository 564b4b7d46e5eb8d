"""Data sets of torchaudio: SPEECHCOMMANDS, LIBRISPEECH and YESNO.

Invariant: only what their own methods say is given: which files there are by their lists, what goes with a file by
`get_metadata`. Classes derived from them are taken as well, unless they have methods of their own for that, such as
the one of torchaudio's tutorial that only picks a subset.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from wellfed._accelerate import sounds as accelerated

from .forms import RefusalError, is_stock
from .joint import Lazy
from .sounds import Sounds, check_load, rate_of
from .users import Layout, Reading
from .values import INDEX, Sound

__all__ = ["is_known", "read"]

_MODULE = "torchaudio.datasets"
_METHODS = (
    "__getitem__",
    "__getitems__",
    "__len__",
    "__getattribute__",
    "__getattr__",
    "get_metadata",
    "_load_item",
)

_KEPT = 1 << 14
"""Samples of which it is kept what goes with them: more than a batch has."""

Handler = Callable[[Any], tuple[Sounds, tuple[Lazy, ...]]]


def _base(dataset: Any) -> type | None:
    """Which of the known classes it is of."""
    module = sys.modules.get(_MODULE)
    kinds: tuple[type, ...] = type(dataset).__mro__
    for kind in kinds:
        known: bool = kind.__name__ in _HANDLERS and getattr(module, kind.__name__, None) is kind
        if known:
            return kind
    return None


def is_known(dataset: Any) -> bool:
    """Whether it is one of them, of the class itself or of one that changes nothing in what samples are."""
    return _base(dataset) is not None and is_stock(dataset, *_METHODS)


def read(dataset: Any) -> tuple[Reading, Sounds]:
    """Recognizes `dataset`.

    Raises:
        RefusalError: It is not as its class makes it.
    """
    kind = _base(dataset)
    assert kind is not None
    check_load()
    if not _has_own_functions(kind):
        raise RefusalError("functions of its module were replaced", "use the class as its library made it")
    walker = vars(dataset).get("_walker")
    if type(walker) is not list or not all(type(name) is str for name in walker):
        raise RefusalError("its _walker is no list of texts any more")
    seen: list[tuple[Callable[[], Any], Any]] = [
        (lambda name=name: vars(dataset).get(name), vars(dataset).get(name))  # type: ignore[misc]
        for name in ("_walker", "_archive", "_path", "_url", "_ext_audio", "_ext_txt")
    ]
    seen += [
        (lambda: is_known(dataset) and _has_own_functions(kind), True),
        (accelerated.loader_of_torchaudio, accelerated.loader_of_torchaudio()),
    ]
    try:
        sounds, others = _HANDLERS[kind.__name__](dataset)
    except (AttributeError, TypeError, ValueError, OSError) as error:
        raise RefusalError(f"what goes with its sounds is not known: {error}") from None
    keys = tuple(range(1 + len(others)))
    return Reading(Sound(INDEX), Layout("tuple", keys, 0, others), seen), sounds


def _has_own_functions(kind: type) -> bool:
    """Whether the functions are torchaudio's that its methods call."""
    module = vars(sys.modules.get(kind.__module__, object))
    return all(
        (getattr(module[name], "__module__", None) or "").partition(".")[0] == "torchaudio"
        for name in ("_load_waveform", "_get_speechcommands_metadata", "_get_librispeech_metadata")
        if name in module
    )


class _Metadata:
    """What goes with the sounds of a data set: what `get_metadata` says of a sample, which is asked once for a batch.

    Args:
        dataset: The data set.
        sounds: Its files, which have to be those that it says.
    """

    def __init__(self, dataset: Any, sounds: Sounds) -> None:
        self._dataset, self._sounds = dataset, sounds
        self._of = functools.lru_cache(_KEPT)(self._asked)

    def _asked(self, row: int) -> tuple[Any, ...]:
        path, rate, *others = self._dataset.get_metadata(row)
        if os.path.join(self._dataset._archive, path) != self._sounds.paths[row] or rate != self._sounds.rate:
            raise ValueError(f"sample {row} has another file or sample rate than its list says")
        return rate, *others

    def columns(self, count: int) -> tuple[Lazy, ...]:
        """The columns behind the sound, for all samples."""
        return tuple(map(self._column, range(count)))

    def _column(self, place: int) -> Lazy:
        return Lazy(len(self._sounds), lambda row: self._of(row)[place])


def _described(dataset: Any, paths: list[str], count: int) -> tuple[Sounds, tuple[Lazy, ...]]:
    rate = dataset.get_metadata(0)[1] if paths else 16_000
    if type(rate) is not int or rate < 1:
        raise ValueError(f"its sample rate is {rate!r}")
    sounds = Sounds(paths, rate)
    return sounds, _Metadata(dataset, sounds).columns(count)


def _speech_commands(dataset: Any) -> tuple[Sounds, tuple[Lazy, ...]]:
    archive = dataset._archive
    inside = os.path.join(archive, "")

    def path(name: str) -> str:
        below = name.removeprefix(inside)
        # As the data set makes it: of a file in its folder that is the same, in the least time.
        plain = below != name and os.path.normpath(below) == below
        return name if plain else os.path.join(archive, os.path.relpath(name, archive))

    return _described(dataset, [path(name) for name in dataset._walker], 4)


def _librispeech(dataset: Any) -> tuple[Sounds, tuple[Lazy, ...]]:
    folder, ending = os.path.join(dataset._archive, dataset._url), dataset._ext_audio

    def path(name: str) -> str:
        speaker, chapter, _ = name.split("-")
        return os.path.join(folder, speaker, chapter, name + ending)

    return _described(dataset, [path(name) for name in dataset._walker], 5)


def _yes_no(dataset: Any) -> tuple[Sounds, tuple[Lazy, ...]]:
    names = dataset._walker
    paths = [os.path.join(dataset._path, name + ".wav") for name in names]
    rates = Lazy(len(paths), lambda row: rate_of(paths[row]))
    # A new list each time, since it is the sample's own.
    return Sounds(paths), (rates, Lazy(len(paths), lambda row: [int(c) for c in names[row].split("_")]))


_HANDLERS: dict[str, Handler] = {
    "SPEECHCOMMANDS": _speech_commands,
    "LIBRISPEECH": _librispeech,
    "YESNO": _yes_no,
}
