"""`take`, `skip`, `repeat` and `shard`: which of the elements there are, and how often they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _arguments as check

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["Parts"]


class Parts:
    """A part of a data set, or several times all of it."""

    __slots__ = ()

    def repeat(self: Dataset, count: int | None = None) -> Dataset:  # type: ignore[misc]
        """The data set several times over, as one epoch. Each time round has its own order and random parameters.

        Args:
            count: How often; None and -1 are without end.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> len(wf.from_tensor_slices(np.arange(10)).repeat(3))
            30
        """
        endless = count is None or check.whole(count, "count", -1) == -1
        return self._verb("repeat", count=None if endless else check.whole(count, "count"))

    def take(self: Dataset, count: int) -> Dataset:  # type: ignore[misc]
        """At most the first ``count`` elements (samples, or batches after `batch`); all with -1.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> list(wf.from_tensor_slices(np.arange(10)).take(2).numpy())
            [array(0), array(1)]
        """
        number = check.whole(count, "count", -1)
        return self if number == -1 else self._verb("take", count=number)

    def skip(self: Dataset, count: int) -> Dataset:  # type: ignore[misc]
        """All but the first ``count`` elements (samples, or batches after `batch`); none with -1.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> len(wf.from_tensor_slices(np.arange(10)).skip(3))
            7
        """
        number = check.whole(count, "count", -1)
        return self.take(0) if number == -1 else self._verb("skip", count=number)

    def shard(self: Dataset, rank: int, world_size: int) -> Dataset:  # type: ignore[misc]
        """The part of this process among ``world_size`` that share the data set.

        Every rank gets the same number of batches.

        Args:
            rank: This process, 0 to ``world_size - 1``.
            world_size: How many processes share the data set.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(8))
            >>> [list(map(int, ds.shard(r, 2).batch(4).numpy().__iter__().__next__())) for r in (0, 1)]
            [[0, 2, 4, 6], [1, 3, 5, 7]]
        """
        ranks = check.whole(world_size, "world_size", 1)
        return self._verb("shard", rank=check.whole(rank, "rank"), world_size=ranks)
