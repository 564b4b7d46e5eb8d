"""Data sets put together, as functions: `zip`, `concatenate`, `interleave`, `sample_from_datasets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .dataset import Dataset, combined

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["concatenate", "interleave", "sample_from_datasets", "zip"]


def zip(*datasets: Dataset) -> Dataset:  # noqa: A001 (tf.data's name)
    """As `Dataset.zip`."""
    return combined("zip", datasets)


def concatenate(*datasets: Dataset) -> Dataset:
    """One data set after the other, as `Dataset.concatenate`."""
    return combined("concatenate", datasets)


def interleave(datasets: Sequence[Dataset], block_length: int = 1) -> Dataset:
    """As `Dataset.interleave`."""
    return Dataset.interleave(datasets, block_length)


def sample_from_datasets(
    datasets: Sequence[Dataset],
    weights: Sequence[float] | None = None,
    seed: int = 0,
    stop_on_empty_dataset: bool = False,
) -> Dataset:
    """As `Dataset.sample_from_datasets`."""
    return Dataset.sample_from_datasets(datasets, weights, seed, stop_on_empty_dataset)
