"""Samples that are looked up and calculated in microseconds: whole batches of them, in the calling thread.

Of a data set of the user's own class, whose source says that samples have no effect but themselves. Handing them from
process to process takes longer than making them. Invariant: batches are equal to the stock loader's to the bit; where a
sample cannot be made, the data set itself is asked, and raises what it raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch.utils.data import Subset

from .._fetch import MapFetcher
from . import frames
from .datasets import _indices
from .forms import RefusalError, is_stock
from .mixing import only_stacks
from .reading import Reader, UnknownError
from .stamps import Stamp
from .users import Collated, check_unshared, laid_out_alone, reader_of
from .values import Batched, Column, Group, Table, Value

__all__ = ["Lookups"]

_SLOWEST = 1e-3
"""Seconds that a batch may take where there are worker processes, which would make others meanwhile."""


class Lookups:
    """Batches of a data set without images.

    Args:
        loader: Its data set, collate function and batches.

    Raises:
        RefusalError: Its samples are none that are only looked up; or they take long.
    """

    def __init__(self, loader: Any) -> None:
        dataset, self._rows = loader.dataset, None
        if type(dataset) is Subset and is_stock(dataset, "__getitem__", "__getitems__", "__len__"):
            self._rows = _indices(dataset.indices, len(dataset.dataset))
            dataset = dataset.dataset
        reader, made = reader_of(dataset)
        try:
            self._make = _maker(reader, made, loader, len(dataset))
        except RefusalError as refused:
            raise RefusalError(refused.why, refused.change or frames.advice(reader.seen)) from None
        self._seen, self._stamp = reader.seen, Stamp([value for _, value in reader.seen])
        self.dataset, self.length = loader.dataset, len(loader.dataset)
        self._fetcher = MapFetcher(loader.dataset, True, loader.collate_fn, loader.drop_last)
        self._given = loader.dataset, loader.collate_fn, loader.batch_size, loader.num_workers
        self._workers: int = loader.num_workers
        self._check_speed(loader)

    def _check_speed(self, loader: Any) -> None:
        size = min(loader.batch_size or 1, self.length)
        if not size:
            raise RefusalError("Python code: it is empty")
        indices, took = list(range(size)), []
        try:
            for _ in range(3):
                begun = time.perf_counter()
                self._make(self._located(indices))
                took.append(time.perf_counter() - begun)
        except Exception as error:
            raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None
        if loader.num_workers and min(took) > _SLOWEST:
            why = f"Python code: a batch of it takes {min(took) * 1e3:.1f} ms"
            raise RefusalError(why, frames.advice(self._seen))

    def current(self, loader: Any) -> bool:
        """Whether what was read still holds."""
        given = loader.dataset, loader.collate_fn, loader.batch_size, loader.num_workers
        if any(now is not before for now, before in zip(given, self._given, strict=True)):
            return False
        if self._rows is not None and not np.array_equal(np.asarray(loader.dataset.indices), self._rows):
            return False
        try:
            return self._stamp.holds([look() for look, _ in self._seen])
        except (AttributeError, KeyError, ValueError):
            return False

    def _unchanged(self) -> bool:
        """Whether the data set would be asked with the same attributes now: without workers changes count at once."""
        if self._workers:
            return True
        try:
            return self._stamp.holds([look() for look, _ in self._seen], deep=False)
        except (AttributeError, KeyError, ValueError):
            return False

    def _located(self, indices: list[int]) -> list[int]:
        return indices if self._rows is None else self._rows[indices].tolist()

    def batch(self, indices: Any) -> Any:
        """What the collate function gives for the samples of these indices."""
        given = indices.tolist() if isinstance(indices, np.ndarray) else indices
        plain = type(given) is list and all(
            type(index) is int and 0 <= index < self.length for index in given
        )
        if plain and self._unchanged():
            try:
                return self._make(self._located(given))
            except Exception:
                pass
        return self._fetcher.fetch(given)


def _maker(reader: Reader, made: Value, loader: Any, length: int) -> Callable[[list[int]], Any]:
    """What makes the batch of some rows."""
    if only_stacks(loader.collate_fn):
        try:
            return Collated(laid_out_alone(reader, made, length, live=not loader.num_workers))
        except RefusalError:
            raise
        except Exception as error:  # Of which the data set tells when it is asked for that sample.
            raise RefusalError(f"Python code (one of its samples raises {type(error).__name__})") from None
    try:
        together = reader.call(loader.collate_fn, [Column(made)])
        check_unshared(reader)
        text = _text(reader, together)
    except UnknownError as unknown:
        raise RefusalError(f"Python code ({unknown})") from None
    except Exception as error:  # It is only read: nobody's script is to fail of it.
        raise RefusalError(f"Python code (reading it ended with {type(error).__name__})") from None
    return reader.names.of_batch(text)


def _text(reader: Reader, value: Value) -> str:
    """A batch as an expression of its rows."""
    if isinstance(value, Batched):
        return value.text
    if isinstance(value, Group):
        inner = "".join(f"{_text(reader, item)}, " for item in value.items)
        return f"({inner})" if value.kind is tuple else f"[{inner}]"
    if isinstance(value, Table):
        return "{" + ", ".join(f"{key!r}: {_text(reader, item)}" for key, item in value.items.items()) + "}"
    if isinstance(value, Column):
        cell = reader.names.text(value.item)
        if cell is not None:
            return f"[{cell} for index in rows]"
    raise UnknownError("its batches are of a kind that is not known")
