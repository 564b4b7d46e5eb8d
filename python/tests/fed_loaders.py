"""Loaders under `wf.feed` beside torch's: what both give in two epochs, and what `explain()` says."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader as Stock

import wellfed as wf
from torch_same import same


def words_of(loader: Any) -> str:
    return str(loader.explain())


def kind_of(loader: Any) -> str:
    return words_of(loader).splitlines()[0].removeprefix("DataLoader, ").partition(" ")[0].rstrip(":,")


def both(dataset: Any, **arguments: Any) -> tuple[Any, Any, Any]:
    """Two epochs of the loader that is fed and of torch's, and the former."""
    results = []
    for make in (Stock, lambda *given, **named: wf.feed(Stock(*given, **named))):
        torch.manual_seed(3)
        loader = make(dataset, **arguments)
        results.append([list(loader), list(loader)])
    return results[0], results[1], loader


def check(dataset: Any, kind: str, **arguments: Any) -> None:
    theirs, ours, loader = both(dataset, **arguments)
    assert same(ours, theirs)
    assert kind_of(loader) == kind, words_of(loader)


def near(ours: Any, theirs: Any, decibels: bool = False) -> None:
    """Checks batches of sounds, which may be apart by a hundred-thousandth of the greatest value.

    Decibels of nearly nothing are what rounding leaves, so that magnitudes are compared.
    """
    assert len(ours) == len(theirs)
    for (one, labels), (other, expected) in zip(ours, theirs, strict=True):
        assert same(labels, expected)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if decibels:
            one, other = 10 ** (one / 20), 10 ** (other / 20)
        assert (one - other).abs().max() <= 1e-5 * other.abs().max()
