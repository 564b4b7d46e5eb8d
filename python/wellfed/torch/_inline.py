"""The loader's work in the calling process: same order, same random draws, same results as torch's."""

from __future__ import annotations

import sys
from typing import Any

from torch.utils.data import dataloader as stock

__all__ = ["InlineIterator"]


class InlineIterator(stock._SingleProcessDataLoaderIter):
    """One epoch of a loader with `num_workers=0`; an exception carries the index of its sample as a note."""

    def _next_data(self) -> Any:
        index = self._next_index()
        try:
            data = self._dataset_fetcher.fetch(index)
        except StopIteration:
            raise
        except Exception as e:
            if sys.version_info >= (3, 11) and index is not None:
                e.add_note(f"wellfed: in the batch of samples {shorten(index)}")
            raise
        return data


def shorten(index: Any, limit: int = 120) -> str:
    """`index` as text of a bounded length."""
    text = repr(index)
    return text if len(text) <= limit else text[: limit - 4] + " ..."
