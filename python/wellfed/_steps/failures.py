"""Bad samples of Python steps on their way from a worker to the caller."""

from __future__ import annotations

import errno
import pickle
import traceback
from dataclasses import dataclass
from typing import Any

from ..exceptions import StepError, TransientError, WellfedError

__all__ = ["Failure", "RemoteTraceback", "failure_of", "may_pass"]

_PASSING = {
    errno.EIO,
    errno.ETIMEDOUT,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.ENOSPC,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ESTALE,
}


class RemoteTraceback(Exception):  # noqa: N818 -- shown as the cause of an exception, never raised
    """The traceback of an exception in a worker, as text."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass
class Failure:
    """A sample that could not be made.

    Attributes:
        offset: Place in its batch.
        epoch: That keys its draws.
        replaced: Whether another sample took its place.
        passing: An outage rather than a bad sample: raised whatever `on_error` says.
        error: The exception that the caller gets, without its cause.
        cause: The exception of the callable, pickled; None if that cannot be, or if there is none.
        trace: The traceback of that, as text.
    """

    offset: int
    epoch: int
    replaced: bool
    passing: bool
    error: WellfedError
    cause: bytes | None
    trace: str

    def exception(self) -> WellfedError:
        """The exception with what caused it."""
        if self.trace:
            cause: BaseException = RemoteTraceback(self.trace)
            if self.cause is not None:
                try:
                    original = pickle.loads(self.cause)
                    original.__cause__ = cause
                    cause = original
                except Exception:  # It pickles but does not come back: its text is there.
                    pass
            self.error.__cause__ = cause
        return self.error


def failure_of(error: Exception, **place: Any) -> Failure:
    """`error` as data. `place` has the fields of a `WellfedError`; `offset` and `epoch` are those of `Failure`."""
    offset, epoch = place.pop("offset_in_batch"), place.pop("epoch")
    if isinstance(error, WellfedError) and error.source is not None:
        error.__traceback__ = None
        return Failure(offset, epoch, False, may_pass(error), error, None, "")
    what = "".join(traceback.format_exception_only(error)).strip()
    known = [
        f"{name} {place[name]}" for name in ("source", "key", "index", "stage") if place[name] is not None
    ]
    wrapped = StepError(f"{what}\n  in {', '.join(known)}", message=what, **place)
    trace = "".join(traceback.format_exception(error))
    try:
        data = pickle.dumps(error.with_traceback(None))
        pickle.loads(data)
    except Exception:
        return Failure(offset, epoch, False, may_pass(error), wrapped, None, trace)
    return Failure(offset, epoch, False, may_pass(error), wrapped, data, trace)


def may_pass(error: BaseException) -> bool:
    """Whether trying again later may help, so that it says nothing about the sample."""
    if isinstance(error, TransientError | ConnectionError | TimeoutError | MemoryError):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING
