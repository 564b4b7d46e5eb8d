"""The loader's work in the calling process: same order, same random draws, same results as torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.data import dataloader as stock
from torch.utils.data import graph_settings

from .._accelerate.within import Within
from ._fetch import IterableFetcher, MapFetcher, note
from ._private import DatasetKind, SingleProcessIterator
from ._progress import InlineProgress
from ._source import Source
from ._state import Tracked

if TYPE_CHECKING:
    from ._resume import Resume

__all__ = ["InlineIterator"]


class InlineIterator(Tracked, SingleProcessIterator):
    """One epoch of a loader with `num_workers=0`; an exception carries the index of its sample as a note."""

    _progress: InlineProgress

    def __init__(self, loader: Any, resume: Resume | None = None) -> None:
        super().__init__(loader, resume)
        self._on_error, self._bad = loader.on_error, loader._bad
        self._lazily = Within() if loader.accelerate else None
        if isinstance(self._dataset, (stock.IterDataPipe, stock.MapDataPipe)):
            graph_settings.apply_sharding(self._dataset, self._world_size, self._rank)
        # It makes the fetcher, since a data set takes up its state before its iterator is made.
        self._source = Source(
            self._dataset,
            self._collate_fn,
            self._dataset_kind == DatasetKind.Iterable,
            self._make_fetcher,
            loader.batch_size,
            None if resume is None else resume.source,
        )
        self._dataset_fetcher = self._source.fetcher
        self._progress = InlineProgress(self, loader, resume, self._source)

    def _make_fetcher(self) -> Any:
        kind = IterableFetcher if self._dataset_kind == DatasetKind.Iterable else MapFetcher
        fetcher = kind(self._dataset, self._auto_collation, self._collate_fn, self._drop_last)
        if isinstance(fetcher, MapFetcher):
            fetcher.on_error = self._on_error
        return fetcher

    def _fetch(self, index: Any) -> Any:
        if self._lazily is None:
            return self._dataset_fetcher.fetch(index)
        with self._lazily:
            return self._dataset_fetcher.fetch(index)

    def _close(self) -> None:
        if self._lazily is not None:
            self._lazily.close()

    def _next_data(self) -> Any:
        try:
            index = self._next_index()
        except StopIteration:
            self._close()
            raise
        try:
            data = self._fetch(index)
        except StopIteration:
            self._close()
            raise
        except Exception as e:
            note(e, self._dataset_fetcher.at)
            raise
        self._bad.add(list(getattr(self._dataset_fetcher, "bad", ())))
        self._progress.yielded()
        return data
