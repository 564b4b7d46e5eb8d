"""`Epochs`: passes over a loader where several may be under way at once, as with a `tf.data.Dataset`.

Invariants: a pass begins its epoch with its first batch, so one that is made and never asked has no epoch. A pass that
has begun goes on undisturbed when another one begins: that one gets a loader of its own.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    from .._loader import Loader
    from .._steps.loader import StepsLoader
    from .._steps.stream import StreamDataset, StreamLoader
    from ..dataset import Dataset

    AnyLoader: TypeAlias = Loader | StepsLoader | StreamLoader

__all__ = ["Epochs", "Pass", "steps_loader", "stream_loader"]


def steps_loader(
    dataset: Dataset, convert: Callable[[Any], Any] | None, name: str, context: Any
) -> StepsLoader:
    """The loader of a data set with Python steps, for the framework `name`.

    Raises:
        ModuleNotFoundError: torch is not installed, whose workers run Python steps.
    """
    with _torch_said():
        from .._steps.loader import StepsLoader

        return StepsLoader(dataset, convert, name, None, context)


def stream_loader(
    dataset: StreamDataset, convert: Callable[[Any], Any] | None, context: Any = None
) -> StreamLoader:
    """The loader of a stream; raises as `steps_loader`."""
    with _torch_said():
        from .._steps.stream import StreamLoader

        return StreamLoader(dataset, convert, None, context)


@contextlib.contextmanager
def _torch_said() -> Iterator[None]:
    """Says what torch is for where it is missing."""
    try:
        yield
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise ModuleNotFoundError(
            "Python steps (callables in map, filter or collate_fn, and generators) are run by torch's workers, and "
            "torch is not installed\nhint: install torch (its build for CPUs is enough), or use wellfed.transforms",
            name="torch",
        ) from None


class Epochs:
    """Passes over a data set, each of which is its next epoch."""

    def __init__(self, make: Callable[[], AnyLoader]) -> None:
        """`make` opens a loader."""
        self._make = make
        self._lock = threading.Lock()
        self._holder: weakref.ref[Pass] | None = None
        self.loader = make()
        """The loader of the passes that come one after the other."""

    def lend(self, to: Pass) -> AnyLoader:
        """The loader, or another one while a pass that began earlier still has it."""
        with self._lock:
            holder = None if self._holder is None else self._holder()
            if holder is None or holder.over or holder is to:
                self._holder = weakref.ref(to)
                return self.loader
        return self._make()


class Pass(Iterator[Any]):
    """One pass. Ends with its epoch, or when it is closed or forgotten."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._loader: AnyLoader | None = None
        self._batches: Iterator[Any] | None = None
        self._last: dict[str, Any] | None = None
        self.over = False

    @property
    def begun(self) -> bool:
        """Whether it has an epoch."""
        return self._batches is not None

    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        batches = self._begin()
        try:
            return next(batches)
        except StopIteration:
            self.close()
            raise

    def _begin(self) -> Iterator[Any]:
        if self._batches is None:
            self._loader = self._epochs.lend(self)
            self._batches = iter(self._loader)
        return self._batches

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that it gave; begins the epoch."""
        if self._last is not None:
            return self._last
        self._begin()
        assert self._loader is not None
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any], over: bool = False) -> None:
        """Goes on where `state_dict` was called; `over` says whether the pass had ended, so that nothing is left."""
        loader = self._loader if self._loader is not None and not self.over else self._epochs.lend(self)
        loader.load_state_dict(state)
        if over:
            self._loader, self._batches, self._last, self.over = loader, None, None, False
            self.close()
            return
        self._loader, self._batches, self._last, self.over = loader, iter(loader), None, False

    def close(self) -> None:
        """Ends it. A loader of its own is closed."""
        loader, self._loader = self._loader, None
        if self.over or loader is None:
            self.over = True
            return
        if self._last is None:
            self._last = loader.state_dict()
        self.over = True
        if loader is not self._epochs.loader:
            loader.close()
