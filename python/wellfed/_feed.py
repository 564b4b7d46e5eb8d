"""`wellfed.feed` as the package lists it: torch is imported by the first call, so that `help(wellfed)` needs none."""

from __future__ import annotations

from typing import Any

__all__ = ["feed"]


def feed(loader: Any, **arguments: Any) -> Any:
    """The fastest loader that gives what ``loader`` gives: `wellfed.torch.feed`, which says what it takes.

    Args:
        loader: A loader of torch, or a data set of torch or wellfed.
        arguments: Of `wellfed.torch.DataLoader`, in place of those of ``loader``.
    """
    from .torch import feed as feed_torch

    return feed_torch(loader, **arguments)
