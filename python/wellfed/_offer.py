"""What a worker process offers to whatever makes batches in it. Imports nothing, as torch may not be installed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

__all__ = ["Offer", "current"]


class Offer(Protocol):
    """Memory in which batches go to the caller.

    Attributes:
        collated: How many columns of batches lie where their samples were put.
    """

    collated: int

    def place(self, size: int) -> Any:
        """Bytes for the samples of the batch in the making."""

    def in_place(self) -> AbstractContextManager[None]:
        """In such a block, samples that lie in such memory one after the other are collated without a copy."""


current: Offer | None = None
"""That of this process, if it is a worker."""
