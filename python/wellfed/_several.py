"""Several loaders of the engine over the same rows: of samples with more than one image, one for each image."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from .dataset import Dataset
from .exceptions import LimitExceededError

__all__ = ["Loaders", "budget_of_each"]


def budget_of_each(source: Dataset, given: int | None, loaders: int) -> int:
    """What each of several loaders of the engine may hold of the memory that all may take together.

    Args:
        source: What one of them is made of.
        given: What all may take; None for what one would take by itself.
        loaders: How many there are.
    """
    if given is None:
        alone = source._native.loader_given(False)
        given = json.loads(alone.stats()[0])["memory_budget"]
        alone.close()
    return max(given // loaders, 1)


class Loaders:
    """Loaders of the engine over the images of samples, of which each has one: as one loader of all."""

    def __init__(self, loaders: list[Any]) -> None:
        self._loaders = loaders
        # For each batch under way what each loader had to say against it.
        self._refused: deque[list[Exception | None]] = deque()
        self.depth: int = min(loader.depth for loader in loaders)
        self.image_size = None

    @property
    def fingerprint(self) -> int:
        """Of all, in their order."""
        found = 0
        for loader in self._loaders:
            found = (found * 31 + loader.fingerprint) % 2**64
        return found

    def stats(self) -> Any:
        """Those of the first."""
        return self._loaders[0].stats()

    def errors(self) -> list[Any]:
        """Bad samples of all."""
        return [error for loader in self._loaders for error in loader.errors()]

    def begin(self, seed: int, samples: int) -> None:
        """Begins an epoch in all."""
        self._refused.clear()
        for loader in self._loaders:
            loader.begin(seed, samples)

    def submit(self, rows: Any) -> None:
        """Has all make a batch. What one of them has against it, `next` raises in its turn."""
        refused: list[Exception | None] = []
        for loader in self._loaders:
            try:
                loader.submit(rows)
                refused.append(None)
            except LimitExceededError as error:
                refused.append(error)
        self._refused.append(refused)

    def finish(self) -> None:
        """There are no more batches."""
        for loader in self._loaders:
            loader.finish()

    def ready(self) -> bool:
        """Whether the next batch is there."""
        if not self._refused:
            return False
        pairs = zip(self._loaders, self._refused[0], strict=True)
        return all(refused is not None or loader.ready() for loader, refused in pairs)

    def next(self) -> list[Any]:
        """The columns of all. Where one fails, each is through with the batch nevertheless."""
        columns: list[Any] = []
        failed: Exception | None = None
        for loader, refused in zip(self._loaders, self._refused.popleft(), strict=True):
            try:
                if refused is not None:
                    raise refused
                columns += loader.next()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return columns

    def close(self) -> None:
        """Ends all."""
        for loader in self._loaders:
            loader.close()
