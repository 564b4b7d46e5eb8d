"""``num_workers="auto"``: nothing that a sample draws depends on how many workers that is."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import wellfed as wf
from wellfed.torch import DataLoader, _loader

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


class Draws(Dataset):
    """Each sample draws from all default generators, as often as its number says."""

    def __len__(self):
        return 23

    def __getitem__(self, i):
        if i < 0:
            raise IndexError(i)
        values = [torch.rand(()).item() + random.random() + np.random.rand() for _ in range(1 + i % 3)]
        return i, sum(values)


class Failing(Draws):
    def __getitem__(self, i):
        sample = super().__getitem__(i)
        if i % 7 == 3:
            raise ValueError(i)
        return sample


@pytest.fixture
def with_workers(monkeypatch):
    def make(workers, dataset=None, **arguments):
        monkeypatch.setattr(_loader, "auto_workers", lambda: workers)
        arguments = {"batch_size": 4, "shuffle": True, **arguments}
        loader = DataLoader(
            Draws() if dataset is None else dataset,
            num_workers="auto",
            **{"generator": torch.Generator().manual_seed(3), **arguments},
        )
        assert loader.num_workers == workers
        return loader

    return make


def rows(batches):
    return [[part.tolist() for part in batch] for batch in batches]


VARIANTS = [
    {},
    {"persistent_workers": True},
    {"batch_size": None},
    {"shuffle": False, "drop_last": True, "prefetch_factor": 1},
    {"dataset": Failing(), "on_error": "replace"},
    {"dataset": Failing(), "on_error": "skip", "persistent_workers": True},
]


@pytest.mark.parametrize("arguments", VARIANTS)
def test_values_do_not_depend_on_the_number_of_workers(arguments, with_workers):
    arguments = dict(arguments)
    if arguments.get("batch_size", 4) is None:
        arguments["shuffle"] = False
    epochs = []
    for workers in (1, 3):
        loader = with_workers(workers, **arguments)
        epochs.append([rows(loader) if arguments.get("batch_size", 4) else [*loader] for _ in range(2)])
    assert epochs[0] == epochs[1]
    assert epochs[0][0] != epochs[0][1]  # each epoch draws anew


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("stop", [1, 6])
@pytest.mark.parametrize("workers", [(2, 3), (3, 1)])
def test_a_resumed_run_draws_what_the_other_would_have_drawn(persistent, stop, workers, with_workers):
    before, after = workers
    loader = with_workers(before, persistent_workers=persistent)
    batches = iter(loader)
    for _ in range(stop):
        next(batches)
    if stop == 6:
        assert next(batches, None) is None
    state = loader.state_dict()
    whole = [rows(batches), *(rows(loader) for _ in range(2))]
    again = with_workers(after, persistent_workers=persistent)
    again.load_state_dict(state)
    # A finished epoch has nothing left: the next one begins.
    resumed = [rows(again) for _ in range(3)]
    assert resumed[:2] == (whole[1:] if stop == 6 else whole[:2])


def test_out_of_order_batches_have_their_values(with_workers):
    whole = rows(with_workers(2))
    assert sorted(rows(with_workers(3, in_order=False))) == sorted(whole)
    loader = with_workers(3, in_order=False)
    batches = iter(loader)
    head = rows([next(batches), next(batches)])
    again = with_workers(2)
    again.load_state_dict(loader.state_dict())
    assert sorted(head + rows(again)) == sorted(whole)


def test_a_broken_off_epoch_leaves_the_next_one_as_it_is(with_workers):
    seconds = []
    for workers in (1, 3):
        torch.manual_seed(5)
        # With a generator of its own, torch's sampler leaves it elsewhere if it had come to the end of the epoch.
        loader = with_workers(workers, generator=None)
        next(iter(loader))
        seconds.append(rows(loader))
    assert seconds[0] == seconds[1]


def test_feed_keeps_auto(with_workers):
    whole = rows(with_workers(1))
    fed = wf.feed(with_workers(2), snapshot_every_n_steps=2)
    fed.generator.manual_seed(3)
    assert rows(fed) == whole
    assert "num_workers=auto: 2" in fed.explain()


def test_a_given_number_has_torchs_seeds():
    epochs = []
    for kind in (DataLoader, torch.utils.data.DataLoader):
        loader = kind(Draws(), 4, num_workers=2, generator=torch.Generator().manual_seed(3))
        epochs.append(rows(loader))
    assert epochs[0] == epochs[1]
