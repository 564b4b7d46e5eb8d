"""``num_workers="auto"``: nothing that a sample draws depends on how many workers that is."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import wellfed as wf
from wellfed.torch import DataLoader, _loader
from wellfed.torch._workers import choice, tuning

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


def epoch(workers, rate, waiting=0.5, busy=0.1, memory=0):
    return tuning.Epoch(workers, rate, waiting, busy, memory)


def learned(*epochs, room=1 << 30):
    tuner = tuning.Tuner(2, lambda: room)
    numbers = [tuner.workers]
    for measured in epochs:
        tuner.learn(measured)
        numbers.append(tuner.workers)
    return numbers


def test_more_workers_are_tried_where_cores_are_idle_and_stay_if_they_pay():
    assert learned(epoch(2, 10), epoch(4, 19), epoch(8, 20), epoch(4, 19)) == [2, 4, 8, 4, 4]
    assert learned(epoch(2, 10), epoch(4, 20), epoch(8, 40), epoch(8, 40)) == [2, 4, 8, 8, 8]  # the most
    assert learned(epoch(2, 10), epoch(4, 9), epoch(2, 10)) == [2, 4, 2, 2]
    assert learned(epoch(2, 10), None, epoch(2, 10)) == [2, 4, 2, 2]  # too short to tell
    assert learned(None, epoch(2, 10)) == [2, 2, 4]
    assert learned(epoch(2, 10, busy=1.9)) == [2, 2]  # all cores are in use
    assert learned(epoch(2, 10, waiting=0.01)) == [2, 2]  # the training is slower
    assert learned(epoch(2, 10, memory=1 << 29)) == [2, 2]  # more would fill the memory
    assert learned(epoch(2, 10), epoch(2, 30), epoch(4, 19)) == [2, 4, 4, 8]  # one that began before it


def test_the_number_changes_between_epochs_and_no_value_does(with_workers, monkeypatch):
    def epochs(measured):
        numbers = iter(measured)
        monkeypatch.setattr(tuning.Pace, "finish", lambda _: next(numbers))
        monkeypatch.setattr(tuning, "free_memory", lambda: 1 << 30)
        torch.manual_seed(5)
        loader = with_workers(2, generator=None)
        seen = []
        for _ in range(4):
            seen.append(rows(loader))
            used.append(loader.num_workers)
        said.append(loader.explain())
        return seen

    # In the calling thread there would be no workers to be counted.
    monkeypatch.setattr(choice, "promising", lambda *_: False)
    used, said = [], []
    assert epochs([epoch(2, 10), epoch(4, 19), epoch(8, 10), epoch(4, 19)]) == epochs([None] * 4)
    assert used == [2, 4, 8, 4, 2, 2, 2, 2]
    assert "num_workers=auto: 4" in said[0]
    assert "4 were 1.9x as fast as 2; 8 were 0.53x as fast" in said[0]


def test_an_epoch_is_measured_when_it_has_ended_and_workers_are_there(with_workers, monkeypatch):
    monkeypatch.setattr(tuning, "SHORTEST", 0.0)
    taken = []
    monkeypatch.setattr(tuning.Tuner, "learn", lambda _, measured: taken.append(measured))
    loader = with_workers(2, generator=None, batch_size=1, shuffle=False)
    next(iter(loader))
    assert taken == []  # it was broken off
    assert len(list(loader)) == 23
    assert [measured.workers for measured in taken] == [2]
    (measured,) = taken
    assert measured.rate > 0
    assert 0 <= measured.waiting <= 1
    assert measured.busy >= 0
    assert measured.memory > 1 << 20
    assert len(list(with_workers(1, Failing(), generator=None, on_error="skip"))) == 6


class Asked(torch.utils.data.Sampler):
    def __len__(self):
        return 23

    def __iter__(self):
        return iter(range(23))


@pytest.mark.parametrize(
    "arguments",
    [
        {"persistent_workers": True, "generator": None},
        {},
        {"shuffle": False, "sampler": Asked(), "generator": None},
        {
            "shuffle": False,
            "sampler": torch.utils.data.RandomSampler(range(23), generator=torch.Generator()),
            "generator": None,
        },
    ],
)
def test_the_number_stays_where_more_than_speed_depends_on_it(arguments, with_workers):
    assert with_workers(2, **arguments)._tuner is None
    assert with_workers(2, generator=None)._tuner is not None


def test_memory_that_is_free_is_that_of_the_control_group(tmp_path):
    assert tuning.free_memory(tmp_path, tmp_path) == 0
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:   600 kB\n")
    assert tuning.free_memory(tmp_path, tmp_path) == 600 << 10
    (tmp_path / "memory.max").write_text("max\n")
    assert tuning.free_memory(tmp_path, tmp_path) == 600 << 10
    (tmp_path / "memory.max").write_text(f"{500 << 10}\n")
    (tmp_path / "memory.current").write_text(f"{200 << 10}\n")
    assert tuning.free_memory(tmp_path, tmp_path) == 300 << 10
