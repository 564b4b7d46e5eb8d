"""Samples of a data set that could not be made, and what is done then: `DataLoader(..., on_error=...)`.

Invariant: what may pass (a connection that broke, a device that does not answer) is never taken for a bad sample: it
is raised. Neither is a batch without one good sample: whatever is wrong is not wrong with a sample.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..exceptions import StorageError

__all__ = ["ON_ERROR", "BadSample", "BadSamples", "WithBad", "checked", "may_pass"]

logger = logging.getLogger("wellfed.torch")

ON_ERROR = ("raise", "skip", "replace")

_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *(
            "EIO",
            "EAGAIN",
            "EINTR",
            "EBUSY",
            "ENOMEM",
            "EMFILE",
            "ENFILE",
            "ENODEV",
            "ENXIO",
            "ESTALE",
            "EREMOTEIO",
        ),
        *(
            "ETIMEDOUT",
            "ENETDOWN",
            "ENETUNREACH",
            "ENETRESET",
            "EHOSTDOWN",
            "EHOSTUNREACH",
            "ENOTCONN",
            "EPIPE",
        ),
    )
    if hasattr(errno, name)
)


@dataclass(frozen=True)
class BadSample:
    """A sample that could not be made.

    Attributes:
        index: What the data set was asked for.
        cause: The exception, in one line; ``dataset[index]`` raises it again.
        replaced_by: Index of the sample that took its place; None: it was left out.
    """

    index: Any
    cause: str
    replaced_by: Any = None


class WithBad(NamedTuple):
    """A batch on its way from a worker, with what is missing in it."""

    batch: Any
    bad: list[BadSample]


class BadSamples:
    """The bad samples that a loader met, in the order of batches.

    Attributes:
        listed: The first of them, at most `most`.
        count: How many there were.
    """

    most = 10_000

    def __init__(self) -> None:
        self.listed: list[BadSample] = []
        self.count = 0

    def add(self, bad: list[BadSample]) -> None:
        """Some more, of one batch."""
        if bad and not self.count:
            logger.warning(
                "a sample could not be made, index %r: %s; errors() lists all", bad[0].index, bad[0].cause
            )
        self.count += len(bad)
        self.listed.extend(bad[: max(0, self.most - len(self.listed))])

    def take_off(self, data: Any) -> Any:
        """The batch alone, of what a worker sent."""
        if type(data) is not WithBad:
            return data
        self.add(data.bad)
        return data.batch


def checked(on_error: Any) -> str:
    """What `DataLoader`'s argument `on_error` says."""
    if on_error not in ON_ERROR:
        raise ValueError(f"on_error is {on_error!r}; it must be one of {', '.join(ON_ERROR)}")
    return str(on_error)


def may_pass(error: BaseException) -> bool:
    """Whether the same sample may well be made another time."""
    if isinstance(error, (ConnectionError, TimeoutError, MemoryError, StorageError)):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING
