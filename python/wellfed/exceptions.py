"""What can go wrong, as exceptions that are also the standard ones where those fit.

Whatever goes wrong with data, pipelines and loaders is a `WellfedError` that states the fact first, then the place,
then a hint. Arguments of a wrong type or value are the `TypeError` or `ValueError` that Python, torch and torchvision
raise for them, with the name of the argument. The table from the engine's kinds of errors to these classes is in
``crates/wellfed-python/src/error.rs``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConfigError",
    "CorruptSampleError",
    "InternalError",
    "LimitExceededError",
    "NotFoundError",
    "ObjectChangedError",
    "SampleIndexError",
    "ShapeError",
    "StateError",
    "StepError",
    "StorageError",
    "TransientError",
    "UnsupportedSampleError",
    "WellfedError",
]


class WellfedError(Exception):
    """Base of all errors of wellfed.

    Attributes:
        message: The fact, without place and hint. ``str()`` of the exception has all three.
        source: The data set it happened in, such as ``image_folder(data/train)``.
        key: The sample it happened to: a relative path, a key in a tar shard, or a number.
        index: Index of that sample in its source.
        offset: Byte offset in the file or shard.
        stage: What was being done: ``read``, ``decode``, or a transform's name.
        hint: Advice.

    Example:
        >>> import wellfed as wf
        >>> try:
        ...     wf.image_folder("no/such/folder")
        ... except FileNotFoundError as e:
        ...     isinstance(e, wf.WellfedError)
        True
    """

    def __init__(
        self,
        text: str = "",
        *,
        message: str | None = None,
        source: str | None = None,
        key: str | None = None,
        index: int | None = None,
        offset: int | None = None,
        stage: str | None = None,
        hint: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.source = source
        self.key = key
        self.index = index
        self.offset = offset
        self.stage = stage
        self.hint = hint
        if isinstance(self, OSError):
            OSError.__setattr__(self, "errno", errno)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError keeps errno outside __dict__, and its own __reduce__ would call us with other arguments.
        fields = ("message", "source", "key", "index", "offset", "stage", "hint", "errno")
        return _rebuild, (type(self), str(self), {name: getattr(self, name, None) for name in fields})


def _rebuild(kind: type[WellfedError], text: str, fields: dict[str, Any]) -> WellfedError:
    return kind(text, **fields)


class NotFoundError(WellfedError, FileNotFoundError):
    """A file, folder or sample does not exist."""


class StorageError(WellfedError, OSError):
    """The operating system refused or failed; ``errno`` says why."""


class TransientError(StorageError):
    """Storage failed in a way that may pass: a time-out, a lost connection, EIO, an overloaded server.

    It was tried again, several times, and is raised whatever ``on_error`` says: it tells nothing about the sample.
    """


class ObjectChangedError(StorageError):
    """An object in a store is no longer the one that was listed or first read: open the data set again to use it."""


class CorruptSampleError(WellfedError, ValueError):
    """The bytes of a sample are damaged, cut short, or not of the format they claim."""


class UnsupportedSampleError(CorruptSampleError):
    """The bytes of a sample are valid, but of a kind that wellfed does not decode."""


class LimitExceededError(WellfedError, ValueError):
    """A size is above the limit set for it: ``max_pixels``, ``max_bytes`` or ``memory_budget``."""


class ConfigError(WellfedError, ValueError):
    """A parameter, or a combination of parameters, makes no sense."""


class ShapeError(WellfedError, ValueError):
    """Samples of one batch differ in shape or lack a field, or a transform does not fit an image."""


class SampleIndexError(WellfedError, IndexError):
    """There is no sample of that number."""


class StateError(WellfedError, RuntimeError):
    """Something was used at the wrong time or place, as a loader after ``fork()``, or the state of another pipeline."""


class StepError(WellfedError, RuntimeError):
    """A Python step of a pipeline raised an exception, which is the cause of this one."""


class InternalError(WellfedError, RuntimeError):
    """A defect of wellfed itself. Please report it."""
