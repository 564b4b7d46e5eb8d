"""PyTorch's DataLoader, drop-in: `wellfed.torch.DataLoader` takes torch's arguments and keeps torch's behaviour.

Example:
    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> from wellfed.torch import DataLoader
    >>> rows = TensorDataset(torch.arange(10), torch.arange(10) * 2)
    >>> for x, y in DataLoader(rows, batch_size=4):
    ...     print(x.tolist(), y.tolist())
    [0, 1, 2, 3] [0, 2, 4, 6]
    [4, 5, 6, 7] [8, 10, 12, 14]
    [8, 9] [16, 18]
"""

from __future__ import annotations

from ._accumulate import MicroBatch, MicroBatches
from ._augment import Augment
from ._bad import BadSample
from ._feed import feed
from ._loader import DataLoader
from ._lower import Albumentations
from ._state import Stateful, StateMismatchError
from ._workers.threads import get_worker_info

__all__ = [
    "Albumentations",
    "Augment",
    "BadSample",
    "DataLoader",
    "MicroBatch",
    "MicroBatches",
    "StateMismatchError",
    "Stateful",
    "feed",
    "get_worker_info",
]
